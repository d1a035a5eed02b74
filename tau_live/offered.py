"""What an application offers at the decision points of its host, declared in Python."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import RLock
from typing import TypeVar

from tau_live.errors import SettingsError
from tau_live.process_switch import log_line
from tau_live.settings import DeclaredDecision
from tau_live.settings.decisions import Point

Function = TypeVar("Function", bound=Callable[[], Mapping[str, object]])


class _State:
    """What was declared in this process, by point; nothing before."""

    made: Mapping[str, Callable[[], DeclaredDecision]] = {}


def options(
    point: str,
    *,
    every: str = "run",
    exploit_only: Sequence[str] = (),
    never: Sequence[Mapping[str, object]] = (),
    exposure: float | None = None,
) -> Callable[[Function], Function]:
    """Declare what may be chosen at a point: a function that returns names and what they mean.

    It is called once, when the point is first reached. What TOML declares of the same point goes
    before the arguments here, and its options stand beside these. A point that no host has is
    logged as a warning, and changes nothing.

    Args:
        point: One of ``settings.decisions.Point``: ``model``, ``prompt``, ``params``, ``tools``,
            ``tool_gate`` or ``retry``.
        every: How long a choice stays: ``run`` or ``request``.
        exploit_only: Options that are never tried out.
        never: Options that are not offered where something is known, as in TOML.
        exposure: The share of runs that the learner decides from the first one on; ``None``
            begins in shadow.
    """
    if point not in list(Point):
        expected = ", ".join(Point)
        log_line(f"tau-live: {point!r} is not a decision point; expected one of {expected}")

    def declare(function: Function) -> Function:
        known: list[DeclaredDecision] = []
        asked: list[Function] = []
        lock = RLock()  # of its own: the function may run an agent that reaches other points

        def made() -> DeclaredDecision:
            with lock:
                if not known and asked:
                    raise SettingsError(f"the options of {point!r} have their own function")
                if not known:
                    asked.append(function)
                    try:
                        parts = {
                            "every": every,
                            "exploit_only": tuple(exploit_only),
                            "never": never,
                            "exposure": exposure,
                        }
                        known.append(_declared(point, {"options": function(), **parts}))
                    finally:
                        asked.clear()
                return known[0]

        _State.made = {**_State.made, point: made}
        return function

    return declare


def declared(point: str, told: Sequence[DeclaredDecision]) -> DeclaredDecision | None:
    """Return what may be chosen at a point, from Python and from the settings; ``None`` if nothing.

    Raises:
        SettingsError: What Python declared is wrong.
    """
    made = _State.made.get(point)
    ours = None if made is None else made()
    theirs = next((one for one in told if one.point == point), None)
    if ours is None or theirs is None:
        return theirs or ours
    return replace(theirs, options={**theirs.options, **ours.options})


def _declared(point: str, given: Mapping[str, object]) -> DeclaredDecision:
    from tau_live.settings.rows import made

    return made(DeclaredDecision, {"point": point, **given})
