"""Whatever a page tells a reader to do works, in order, in an empty folder."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tau_live.core.entry_points import host_of, read_entry_points
from tests.docs.blocks import Block, blocks, commands, pages
from tests.docs.conftest import ROOT
from tests.docs.walk import agree, holds

NEEDS = {
    "optimize": ("pydantic_ai",),
    "prove": ("matplotlib", "pydantic_ai"),
    "report": ("matplotlib",),
}
"""What pages need besides what is always there."""

WALKED = [page for page in pages(ROOT) if any(b.runs for b in blocks(page.read_text()))]


@pytest.mark.slow
@pytest.mark.parametrize("page", WALKED, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_does_what_it_says(page: Path, reader: dict[str, str], tmp_path: Path) -> None:
    module = dict(map(host_of, read_entry_points().adapters)).get(page.stem)
    if module is not None and not _is_installed(module):
        pytest.skip(f"{page.stem} is not installed")
    for needed in NEEDS.get(page.stem, ()):
        if not _is_installed(needed):
            pytest.skip(f"{needed} is not installed")
    folder, beside = tmp_path / "folder", tmp_path / "beside"
    folder.mkdir()
    beside.mkdir()

    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/docs/walk.py"), str(page), str(beside)],
        cwd=folder,
        env=reader,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=360,
        check=False,
    )

    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even what it is in
        return False


def test_what_is_not_run_only_installs(root: Path) -> None:
    skipped = [
        block
        for page in pages(root)
        for block in blocks(page.read_text())
        if "no-run" in block.words
    ]

    assert skipped
    assert all("pip install" in block.text for block in skipped)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        pytest.param(
            "```python\nx = 1\n```\n", Block(1, "python", {}, "x = 1\n"), id="a plain block"
        ),
        pytest.param(
            "a\n\n```json file=e.jsonl\n{}\n```\n",
            Block(3, "json", {"file": "e.jsonl"}, "{}\n"),
            id="a file",
        ),
        pytest.param(
            "````console exit=3\n```\n````\n",
            Block(1, "console", {"exit": "3"}, "```\n"),
            id="a longer fence",
        ),
    ],
)
def test_a_block_is_found_with_what_its_fence_says(page: str, expected: Block) -> None:
    assert list(blocks(page)) == [expected]


def test_a_command_goes_on_behind_a_backslash() -> None:
    assert commands("$ one \\\n  two\nsaid\n$ three\n") == ["one \\\n  two", "three"]


@pytest.mark.parametrize("shown", ["one\ntwo\n", "one...\n", "...two\n", "o...o\n"])
def test_what_a_page_shows_may_leave_something_out(shown: str) -> None:
    agree("here", shown, "one\ntwo\n")


@pytest.mark.parametrize("shown", ["one\n", "one...three\n", "two\n...", ".ne\ntwo\n"])
def test_what_a_page_shows_and_was_not_printed_is_found(shown: str) -> None:
    with pytest.raises(SystemExit, match="expected"):
        agree("here", shown, "one\ntwo\n")


def test_lines_that_a_page_shows_among_others_have_their_order() -> None:
    holds("here", "one\nthree\n", "one\ntwo\nthree\n")

    with pytest.raises(SystemExit, match="one"):
        holds("here", "three\none\n", "one\ntwo\nthree\n")
