"""When what is counted of drops last grew: counters have no time, and an old drop is no news.

Whoever looks for alerts notes how far each counter has come and when, beside what is noted of
alerts; nobody else has to write, and stores that are there already need nothing new. Pure.
"""

from collections.abc import Mapping

from tau_live.reasons import FOREIGN_DEFAULT, LEFT_OUT, RERUNS, WhyNot, drops_of
from tau_live.store.alert_log import Noted

GREW = "grew"
"""Of this kind is what is noted of a counter; the subject is its name."""

RESOLUTION_S = 60.0
"""Of a counter that grows all the time no more is noted than once in so long."""

LATELY_S = 86_400.0
"""So long ago is lately."""

_MISSED = tuple(
    f"{LEFT_OUT}{reason}" for reason in (WhyNot.REWARD_MISSING, WhyNot.REWARD_OUT_OF_RANGE)
)

NotedAll = Mapping[tuple[str, str], Noted]


def marks(counters: Mapping[str, int], noted: NotedAll, *, now: float) -> dict[str, str]:
    """Return what is to be noted now, by counter: its value, and when that was seen.

    Args:
        counters: What is counted.
        noted: What was noted before.
        now: Epoch seconds.
    """
    found: dict[str, str] = {}
    for name, value in _watched(counters).items():
        before, at = _read(noted, name)
        if value < before:  # restored, or started anew
            found[name] = f"{value} {now if at is None else at}"
        elif value > before and not (at is not None and 0.0 <= now - at < RESOLUTION_S):
            found[name] = f"{value} {now}"
    return found


def grew(counters: Mapping[str, int], noted: NotedAll) -> dict[str, float | None]:
    """Return when each counter of drops last grew, as far as anybody looked.

    Args:
        counters: What is counted.
        noted: What was noted.

    Returns:
        Epoch seconds by counter, late by the time until somebody looked; ``None`` where it grew
        since somebody last did, however long ago that is.
    """
    found: dict[str, float | None] = {}
    for name, value in _watched(counters).items():
        before, at = _read(noted, name)
        found[name] = at if value <= before else None
    return found


def lately(at: float | None, *, now: float) -> bool:
    """Say whether a counter grew lately; what is not known may have been just now."""
    return at is None or now - at < LATELY_S


def _watched(counters: Mapping[str, int]) -> dict[str, int]:
    drops = drops_of(counters)
    return drops | {
        name: count
        for name, count in counters.items()
        if count and (name in (RERUNS, *_MISSED) or name.startswith(FOREIGN_DEFAULT))
    }


def _read(noted: NotedAll, name: str) -> tuple[int, float | None]:
    known = noted.get((GREW, name))
    try:
        value, at = known.mark.split() if known else ("0", "")
        return int(value), float(at) if at else None
    except ValueError:  # somebody has spoiled it
        return 0, None
