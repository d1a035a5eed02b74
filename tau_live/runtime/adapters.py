"""The declaration of an adapter: its host, what makes it attach, what it needs, and its hook.

An adapter is a module that holds one ``ADAPTER``, named by an entry point of its package in the
group ``tau_live_hosts``. It is imported once its host is, and imports its host in the functions
alone. A plugin registers one by the hook ``register_hosts``: ``register("host", adapter=ADAPTER)``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import RLock
from typing import TYPE_CHECKING, TypeVar

from tau_live.core.errors import SettingsError
from tau_live.core.settings.kinds import construct
from tau_live.core.settings.tables import DeclaredDecision, Point
from tau_live.runtime.process_switch import log_line

if TYPE_CHECKING:
    from tau_live.runtime.runtime import Runtime

InForce = Callable[[], "Runtime | None"]
"""Returns the running system, or ``None`` while there is none, and then the host is on its own.

Ask at every call, and keep no answer: a forked child, and an ``attach`` after a ``detach``, have
another. It takes a microsecond.
"""

Detach = Callable[[], None]
"""Puts everything back as it was; calling it twice is the same as once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """The attachment of one host.

    Attributes:
        host: The host's name, as its package index has it where it is a package: ``pydantic-ai``.
        module: The import that makes it attach: ``pydantic_ai``; may be dotted.
        probe: Says what of the host's layout is missing, or ``None`` if all is there; called when
            the host has been imported, and before ``attach``. One that raises is one that failed.
        attach: Wraps the host and returns what undoes it. Called once, and once more whenever a
            module of the host was reloaded or the host imported anew, after what the last one
            did was undone. One that raises has undone what it did; the adapter is then disabled
            with one line in the log.
    """

    host: str
    module: str
    probe: Callable[[], str | None]
    attach: Callable[[InForce], Detach]


Function = TypeVar("Function", bound=Callable[[], Mapping[str, object]])


_builders: dict[str, Callable[[], DeclaredDecision]] = {}
"""The decision points declared in this process; none before."""


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
        running: list[Function] = []
        lock = RLock()  # of its own: the function may run an agent that reaches other points

        def build() -> DeclaredDecision:
            with lock:
                if not known and running:
                    raise SettingsError(f"the options of {point!r} have their own function")
                if not known:
                    running.append(function)
                    try:
                        parts = {
                            "point": point,
                            "options": function(),
                            "every": every,
                            "exploit_only": tuple(exploit_only),
                            "never": never,
                            "exposure": exposure,
                        }
                        known.append(construct(DeclaredDecision, parts))
                    finally:
                        running.clear()
                return known[0]

        _builders[point] = build
        return function

    return declare


def declared_decision(point: str, tables: Sequence[DeclaredDecision]) -> DeclaredDecision | None:
    """Return what may be chosen at a point, from Python and from the settings; ``None`` if nothing.

    Raises:
        SettingsError: What Python declared is wrong.
    """
    build = _builders.get(point)
    ours = None if build is None else build()
    theirs = next((row for row in tables if row.point == point), None)
    if ours is None or theirs is None:
        return theirs or ours
    return replace(theirs, options={**theirs.options, **ours.options})
