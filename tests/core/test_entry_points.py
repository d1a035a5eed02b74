"""The plugins and adapters of installed packages are listed, ours first, each by what it is for."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tau_live import __version__
from tau_live.core.entry_points import (
    ADAPTERS,
    PLUGINS,
    host_of,
    is_ours,
    origin,
    read_entry_points,
    unread_packages,
)
from tests.cli.written import installed as write_metadata


@pytest.fixture(autouse=True)
def _another_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = "[tau_live]\nmill = mill\n[tau_live_hosts]\nmill = mill:ADAPTER\n"
    monkeypatch.syspath_prepend(write_metadata(tmp_path, "a-mill", "1.5", points))


def test_ours_stand_before_those_of_other_packages() -> None:
    known = read_entry_points()

    for points in (known.plugins, known.adapters):
        assert [is_ours(point) for point in points] == [True] * (len(points) - 1) + [False]
    assert known.lists_ours
    assert [point.name for point in known.foreign_plugins] == ["mill"]


def test_each_says_which_package_it_comes_from() -> None:
    plugins, adapters = read_entry_points()

    assert origin(adapters[-1]) == "a-mill 1.5"
    assert origin(plugins[0]) == f"tau-live {__version__}"
    assert origin(EntryPoint("oven", "oven.hook:ADAPTER", ADAPTERS)) == "oven.hook"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("smolagents", ("smolagents", "smolagents")),
        ("openai-agents@agents.run", ("openai-agents", "agents.run")),
    ],
)
def test_a_name_is_host_and_import_or_has_both(name: str, expected: tuple[str, str]) -> None:
    assert host_of(EntryPoint(name, "hook:ADAPTER", ADAPTERS)) == expected


@pytest.mark.parametrize(
    ("value", "ours"),
    [("tau_live.runtime.builtin_plugins", True), ("tau_live_hooks.llm:ADAPTER", True),
     ("tau_live_extras.hook:ADAPTER", False), ("mill", False)],
)  # fmt: skip
def test_a_module_of_ours_makes_it_ours(value: str, ours: bool) -> None:
    assert is_ours(EntryPoint("name", value, PLUGINS)) is ours


@pytest.mark.parametrize(
    "points",
    [
        b"[tau_live]\nevil = \n",
        b"[tau_live_hosts]\nevil = !!bad\n",
        b"[console_scripts]\nno equals sign\n",
        b"[tau_live]\nevil = m\xff\n",
        b"evil = in.no.section\n",
    ],
)
def test_a_malformed_file_of_another_package_spoils_nobody_elses_and_is_named(
    points: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "evil"
    monkeypatch.syspath_prepend(write_metadata(folder, "evil", "1.0", ""))
    [file] = folder.rglob("entry_points.txt")
    file.write_bytes(points)

    known = read_entry_points()

    assert known.lists_ours
    assert [point.name for point in known.foreign_plugins] == ["mill"]
    assert [package for package, problem in unread_packages() if problem] == ["evil 1.0"]
