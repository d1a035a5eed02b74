"""Everything that `docs/architecture.md` names is there."""

import importlib
import re
import threading
from pathlib import Path

import pytest

import tau_live
from tau_live.core.settings import Settings
from tau_live.runtime.process import OWN_THREADS
from tests import architecture
from tests.docs.conftest import ROOT

PAGE = (ROOT / "docs/architecture.md").read_text()
NAMED = re.compile(r"`(tau_live(?:_hooks)?(?:\.\w+)*)`")


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def resolved(name: str) -> object:
    """Return the module, or what stands in one, that a dotted name means."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for part in parts[size:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("title", [
    "The rooms", "Threads and processes", "The way of an event", "The way of a decision",
    "The way of an update", "Doors for later",
])  # fmt: skip
def test_every_name_in_the_prose_is_that_of_something(title: str) -> None:
    entry_points = {"tau_live.auto"}  # importing acts
    names = set(NAMED.findall(section(title))) - entry_points

    assert names
    assert all(resolved(name) is not None for name in names)


def test_every_module_is_in_one_room() -> None:
    homes = {architecture.room_of(name) for name in architecture.modules()} - {"tau_live"}

    assert sorted(architecture.rooms()) == sorted(homes)


def test_the_threads_are_those_that_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = section("Threads and processes")
    table = set(re.findall(r"^\| `(tau-live-[a-z-]+)` \|", told, re.MULTILINE))
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    before = set(threading.enumerate())

    assert tau_live.attach(Settings(store=path)) is not None
    running = {thread.name for thread in threading.enumerate() if thread not in before}
    tau_live.detach()

    assert table == running == OWN_THREADS


def test_no_other_thread_is_started_anywhere() -> None:
    named = set(re.findall(r"`(tau-live-[a-z-]+)`", section("Threads and processes")))

    assert named == architecture.thread_names()
