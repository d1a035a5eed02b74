"""Jobs for children that may die: a command of publication, killed at any of its points."""

from collections.abc import Callable
from pathlib import Path

from tau_live.evidence.artifacts import Names, seconds_of
from tau_live.evidence.publication import archive, publish, purge, rebuild
from tests.evidence.kept import DAY_S, MADE, ONE, Project, project
from tests.faults import arming

NOW = seconds_of(MADE)


def _publish(own: Project) -> None:
    publish(own.against, [own.place(Names(ONE).proof)])


def _archive(own: Project) -> None:
    archive(own.against, now=NOW + 30 * DAY_S)


def _purge(own: Project) -> None:
    purge(own.against, now=NOW + 365 * DAY_S)


def _rebuild(own: Project) -> None:
    rebuild(own.against)


COMMANDS: dict[str, Callable[[Project], None]] = {
    "publish": _publish,
    "archive": _archive,
    "gc": _purge,
    "index": _rebuild,
}


def work(folder: str, command: str, crash_at: int) -> list[str]:
    """Run a command, and die at one of the points that it reaches, counted from 1; 0 is none.

    Returns:
        The points that it has reached.
    """
    reached: list[str] = []

    def on_point(name: str) -> None:
        reached.append(name)
        if len(reached) == crash_at:
            arming.crash()

    with arming.listen(on_point):
        COMMANDS[command](project(Path(folder)))
    return reached
