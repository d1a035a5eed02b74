"""What `docs/architecture.md` says of the house is so; what it draws is what is there."""

import importlib
import re
import threading
from pathlib import Path

import pytest

import tau_live
from tau_live.process_runtime import OWN_THREADS
from tau_live.settings import Settings
from tests import architecture
from tests.docs.conftest import ROOT

PAGE = (ROOT / "docs/architecture.md").read_text()
NAMED = re.compile(r"`(tau_live(?:_hooks)?(?:\.\w+)*)`")
FLOOR = re.compile(r"^│ ([ \d]\d)  (.+?)  +──► ([\d ]+|nothing of ours) +│$", re.MULTILINE)
INSIDE = re.compile(r"^│     (.+?) *│$", re.MULTILINE)


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def drawn_floors() -> dict[int, tuple[list[str], list[int]]]:
    """Return what the drawing has on each floor, and the floors that its arrow leads to."""
    drawing = section("The floors")
    heads = list(FLOOR.finditer(drawing))
    ends = [*(head.start() for head in heads[1:]), len(drawing)]
    return {
        int(head[1]): (
            [
                name.strip()
                for line in INSIDE.findall(drawing[head.end() : end])
                for name in line.split("·")
                if name.strip()
            ],
            [int(number) for number in head[3].split() if number.isdigit()],
        )
        for head, end in zip(heads, ends, strict=True)
    }


def dotted(name: str) -> str:
    return name if name.startswith("tau_live") else f"tau_live.{name}"


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


def test_every_module_is_on_the_page_and_every_one_on_the_page_is_there() -> None:
    listed = set(re.findall(r"^\| `(tau_live[\w.]*)` \|", section("Every module"), re.MULTILINE))

    assert listed == architecture.modules().keys() - {"tau_live"}


@pytest.mark.parametrize("title", [
    "The floors", "Threads and processes", "The way of an event", "The way of a decision",
    "The way of an update", "Doors for later",
])  # fmt: skip
def test_every_name_in_the_prose_is_that_of_something(title: str) -> None:
    entry_points = {"tau_live.llm_door", "tau_live.instrumentor", "tau_live.auto"}  # importing acts
    names = set(NAMED.findall(section(title))) - entry_points

    assert names
    assert all(resolved(name) is not None for name in names)


def test_the_drawing_has_the_layers_that_are_held() -> None:
    drawn = [dotted(name) for members, _ in drawn_floors().values() for name in members]

    assert drawn == [name for layer in architecture.contract() for name in layer]


def test_everything_there_is_stands_on_one_floor() -> None:
    drawn = [dotted(name) for members, _ in drawn_floors().values() for name in members]
    homes = {architecture.home(name) for name in architecture.modules()} - {"tau_live"}

    assert sorted(drawn) == sorted(homes)


@pytest.mark.slow
def test_the_arrows_are_the_imports() -> None:
    grimp = pytest.importorskip("grimp")  # what import-linter looks with
    graph = grimp.build_graph("tau_live", "tau_live_hooks", cache_dir=None)
    floors = drawn_floors()
    place = {dotted(name): n for n, (members, _) in floors.items() for name in members}
    real: dict[int, set[int]] = {number: set() for number in floors}
    for module in graph.modules - {"tau_live"}:
        here = place[architecture.home(module)]
        real[here] |= {
            place[architecture.home(other)]
            for other in graph.find_modules_directly_imported_by(module)
            if other != "tau_live"
        } - {here}

    assert {number: set(below) for number, (_, below) in floors.items()} == real
    assert all(below < number for number, lower in real.items() for below in lower)


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
