import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tau_live.experience.packs import (
    MANIFEST,
    SECTIONS,
    TEMPLATE,
    PackError,
    digest_of,
    init_pack,
    load_pack,
    load_packs,
    read_pack,
    stamp_of,
    stamp_pack,
)
from tau_live.store.sealing import Keys
from tests.experience.lessons import KEYS

FILES = {
    ("system", "system.md"): b"You answer with units.\n",
    ("inject", "inject.md"): b"Hints:\n{experiences}\n",
    ("summarize", "summarize.md"): b"Summarize.\n",
    ("extract", "extract.md"): b"Extract.\n",
    ("optimize", "optimize.md"): b"Optimize.\n",
}
CONFIG: dict[str, object] = {
    "schema_version": 1, "id": "tfgrpo-units", "domain": "units", "experience_slots": 3
}  # fmt: skip
UNITS = "d9b8663816ac2a777d269dd0869967039828d91841e49bc0772ac74353192af8"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The pack of the contract, stamped."""
    folder = tmp_path / "pack"
    folder.mkdir()
    for (_, name), content in FILES.items():
        (folder / name).write_bytes(content)
    sources = {section: f"{section}.md" for section in SECTIONS}
    (folder / MANIFEST).write_text(json.dumps({**CONFIG, "sources": sources}))
    stamp_pack(folder, KEYS)
    return folder


def test_digests_and_stamps_are_those_of_the_vector(folder: Path) -> None:
    windows = {key: content.replace(b"\n", b"\r\n") for key, content in FILES.items()}

    assert digest_of(FILES, CONFIG) == digest_of(windows, CONFIG) == UNITS
    assert digest_of(FILES, {**CONFIG, "domain": "dates"}) == (
        "461260239905797124013bd069920cd627fdf83b9edc004b8e92a83235972a3e"
    )
    assert (
        load_pack(folder, KEYS).stamp
        == stamp_of(UNITS, KEYS)
        == ("c2af09a6831ac923ec8a18aa767fb199bb410f7c0af77bb21758220b771aeaa6")
    )


def test_no_file_can_pass_for_two() -> None:
    joined = {("system", "a"): b"x\ninject:b\ny\n"}
    split = {("system", "a"): b"x\n", ("inject", "b"): b"y\n"}

    assert digest_of(joined, CONFIG) != digest_of(split, CONFIG)
    assert digest_of({("ab", "c"): b""}, CONFIG) != digest_of({("a", "bc"): b""}, CONFIG)


def change(folder: Path, **values: object) -> None:
    path = folder / MANIFEST
    known = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in {**known, **values}.items() if v != "-"}))


def sources(**named: str) -> dict[str, str]:
    return {**{section: f"{section}.md" for section in SECTIONS}, **named}


def linked(folder: Path) -> None:
    (folder / "system.md").rename(folder.parent / "own.md")
    (folder / "system.md").symlink_to(folder.parent / "own.md")


BROKEN: list[tuple[Callable[[Path], Any], str]] = [
    (lambda d: change(d, stamp="-"), "Prompt pack tfgrpo-units is missing a stamp (manifest: "),
    (lambda d: (d / "system.md").write_text("Lie.\n"), "Prompt pack tfgrpo-units stamp mismatch. "),
    (lambda d: change(d, domain="dates"), "stamp mismatch. expected c2af"),
    (
        lambda d: change(d, experience_slots=-1),
        "has invalid experienceSlots; expected a non-negative integer (",
    ),
    (lambda d: change(d, experience_slots=True), "has invalid experienceSlots"),
    (lambda d: change(d, experience_slots=33), "has invalid experienceSlots"),
    (lambda d: change(d, id="-"), "missing required fields: id, domain, system"),
    (lambda d: change(d, sources={}), "missing required fields: id, domain, system"),
    (
        lambda d: change(d, retrieval={"kind": "newest"}),
        "Unsupported prompt-pack retrieval policy kind 'newest'",
    ),
    (lambda d: change(d, more=1), "unknown field `more`"),
    (lambda d: change(d, sources=sources(more="x.md")), "see more"),
    (lambda d: change(d, sources=sources(inject="../x.md")), "no path inside the pack"),
    (lambda d: change(d, sources=sources(inject="/etc/passwd")), "no path inside the pack"),
    (lambda d: change(d, sources=sources(inject="a\\b")), "no path inside the pack"),
    (lambda d: change(d, sources=sources(inject="system.md")), "one file is named by two sections"),
    (linked, "leaves the folder"),
    (lambda d: (d / "extract.md").unlink(), "cannot be read"),
    (lambda d: (d / "extract.md").write_bytes(b"x" * (64 * 1024 + 1)), "more than 64 KiB"),
    (lambda d: (d / "extract.md").write_bytes(b"\xff"), "is not UTF-8"),
    (lambda d: (d / "inject.md").write_text("Hints"), "must hold {experiences} once"),
    (lambda d: (d / MANIFEST).write_text("{"), "is not JSON"),
    (lambda d: (d / MANIFEST).write_text("[]"), "is not a JSON object"),
]


@pytest.mark.parametrize(("damage", "expected"), BROKEN)
def test_a_pack_is_loaded_whole_or_refused(
    folder: Path, damage: Callable[[Path], Any], expected: str
) -> None:
    damage(folder)

    with pytest.raises(PackError) as raised:
        load_pack(folder, KEYS)

    assert expected in str(raised.value)


def test_an_earlier_key_vouches_for_a_pack_and_another_does_not(folder: Path) -> None:
    assert load_pack(folder, Keys(b"n" * 32, [bytes(range(32))])).id == "tfgrpo-units"
    with pytest.raises(PackError, match="stamp mismatch"):
        load_pack(folder, Keys(b"n" * 32))


def test_a_domain_has_one_pack(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "dates")
    change(tmp_path / "dates", domain="dates")
    stamp_pack(tmp_path / "dates", KEYS)

    assert [*load_packs([folder, tmp_path / "dates"], KEYS)] == ["dates", "units"]
    with pytest.raises(PackError, match="a domain has one prompt pack"):
        load_packs([folder, folder], KEYS)


def test_a_new_pack_is_whole_once_it_is_stamped(tmp_path: Path) -> None:
    init_pack(tmp_path / "new", id="own", domain="mine")

    pack = stamp_pack(tmp_path / "new", KEYS)

    assert load_pack(tmp_path / "new", KEYS) == pack == read_pack(tmp_path / "new")
    assert pack.texts == TEMPLATE
    assert pack.system("") == "Answer the question."
    assert "<notes>\n- Be exact.\n</notes>" in pack.system("- Be exact.")
    with pytest.raises(PackError, match="is not empty"):
        init_pack(tmp_path / "new", id="own", domain="mine")
