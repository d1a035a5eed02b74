"""Jobs for children that may die: prepare, do a workload, and look at what is left of it."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from tests.faults import arming
from tests.faults.server import tell
from tests.faults.whole import orphans, problems, state
from tests.faults.workloads import STORE, WORKLOADS, PlantedError, settings, swept


def clean(name: str, folder: str) -> None:
    """Prepare a folder, and do a workload in a copy of it, to its end.

    Tells every point that is reached, and the state wherever it is whole.
    """
    workload = WORKLOADS[name]
    before, after = Path(folder) / "before", Path(folder) / "after"
    before.mkdir(parents=True)
    workload.prepare(before)
    _settle(before)
    shutil.copytree(before, after)
    tell({"state": state(after, STORE)})

    def reached(point: str) -> None:
        tell({"point": point})
        if point in workload.whole:
            tell({"state": state(after, STORE)})

    with arming.listen(reached):
        for _ in workload.work(after):
            if not workload.threads:
                tell({"state": state(after, STORE)})


def crash(name: str, folder: str, case: str, point: str, nth: int) -> None:
    """Do a workload in a copy of what was prepared, and die at a point."""
    own = Path(folder) / case
    shutil.copytree(Path(folder) / "before", own)
    with arming.arm(point, arming.crash, nth=nth):
        _do(name, own)


def fail(name: str, folder: str, case: str, point: str, nth: int) -> list[str]:
    """Do a workload in which a step fails, and do it again; return what is wrong then."""
    own = Path(folder) / f"{case}-failed"
    shutil.copytree(Path(folder) / "before", own)

    def planted() -> None:
        raise PlantedError("planted")

    with arming.arm(point, planted, nth=nth):
        try:
            _do(name, own)
        except PlantedError:
            _do(name, own)
    found = problems(settings(own))
    if state(own, STORE) != state(Path(folder) / "after", STORE):
        found.append("it comes to something else")
    swept(own)
    return found + [f"orphan {file}" for file in orphans(settings(own))]


def _do(name: str, own: Path) -> None:
    for _ in WORKLOADS[name].work(own):
        pass


def look(name: str, folder: str, case: str, states: list[str]) -> list[str]:
    """Return what is wrong with what a crash left, and with what comes of it when it goes on."""
    return list(_wrong(name, Path(folder), Path(folder) / case, frozenset(states)))


def _wrong(name: str, folder: Path, own: Path, states: frozenset[str]) -> Iterator[str]:
    workload = WORKLOADS[name]
    if not workload.threads and state(own, STORE) not in states:
        yield "the store is between two states"
    swept(own)
    yield from problems(settings(own))
    yield from (f"orphan {file}" for file in orphans(settings(own)))
    if not workload.repeats and not workload.threads:
        return
    _do(name, own)
    yield from (f"going on: {problem}" for problem in problems(settings(own)))
    yield from (f"going on: orphan {file}" for file in orphans(settings(own)))
    if not workload.repeats:
        return
    if state(own, STORE) != state(folder / "after", STORE):
        yield "going on, it comes to something else"


def _settle(folder: Path) -> None:
    """Put everything into the one file, so that a copy of the folder is a copy of the store."""
    if (folder / STORE).exists():
        with sqlite3.connect(folder / STORE) as database:
            database.execute("pragma wal_checkpoint(truncate)")
        database.close()
