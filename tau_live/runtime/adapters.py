"""Declarations of adapters, and of options at decision points.

An adapter is a module with one ``ADAPTER``, named by an entry point of its package in the group
``tau_live_hosts``. It is imported after its host, and imports its host only inside functions. A
plugin registers one by the hook ``register_hosts``: ``register("host", adapter=ADAPTER)``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import RLock
from typing import TYPE_CHECKING, TypeVar

from tau_live.core.errors import SettingsError
from tau_live.core.gate import Kind
from tau_live.core.prompts import fill_prompt
from tau_live.core.settings.kinds import construct
from tau_live.core.settings.tables import OWN, DeclaredDecision, Point
from tau_live.core.switch import log_line

if TYPE_CHECKING:
    from tau_live.core.events import PromptArm
    from tau_live.decisions.runs import RunHandle
    from tau_live.runtime.runtime import Runtime

InForce = Callable[[], "Runtime | None"]
"""Returns the running system, or ``None`` while there is none and the host acts alone.

Call it every time, and do not keep the result: a forked child, and an ``attach`` after a
``detach``, have another. It takes a microsecond.
"""

Detach = Callable[[], None]
"""Undoes all changes to the host; calling it again does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """The attachment of one host.

    Attributes:
        host: The host's name, as its package is named in the index: ``pydantic-ai``.
        module: The import that makes it attach: ``pydantic_ai``; may be dotted.
        probe: Returns what is missing from the host's expected layout, or ``None``; called after
            the host was imported and before ``attach``. An exception counts as a failure.
        attach: Wraps the host and returns a function that undoes it. Called once, and again
            whenever a module of the host was reloaded or the host imported anew, after the last
            wrapping was undone. If it raises, it has undone its changes; the adapter is then
            disabled with one line in the log.
    """

    host: str
    module: str
    probe: Callable[[], str | None]
    attach: Callable[[InForce], Detach]


Function = TypeVar("Function", bound=Callable[[], Mapping[str, object]])


_builders: dict[str, Callable[[], DeclaredDecision]] = {}
"""The decision points declared in this process."""


def options(
    point: str,
    *,
    every: str = "run",
    exploit_only: Sequence[str] = (),
    never: Sequence[Mapping[str, object]] = (),
    exposure: float | None = None,
) -> Callable[[Function], Function]:
    """Declare the options of a point by a function that returns their values by name.

    It is called once, when the point is first reached. A TOML table of the same point takes
    precedence over the arguments here, and its options are added to these. An unknown point is
    logged as a warning, and has no effect.

    Args:
        point: One of ``core.settings.tables.Point``: ``model``, ``prompt``, ``params``, ``tools``,
            ``tool_gate`` or ``retry``.
        every: How long a choice lasts: ``run`` or ``request``.
        exploit_only: Options that are never explored.
        never: Options that are not offered in some contexts, as in TOML.
        exposure: The share of runs that the learner decides from the first one on, in ``[0, 1]``;
            ``None`` begins in shadow.
    """
    if point not in list(Point):
        expected = ", ".join(Point)
        log_line(f"tau-live: {point!r} is not a decision point; expected one of {expected}")

    def declare(function: Function) -> Function:
        known: list[DeclaredDecision] = []
        running: list[Function] = []
        lock = RLock()  # one per point: the function may run an agent that reaches others

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


def allowed_options(
    declared: DeclaredDecision, context: Mapping[str, object], prompts: Sequence["PromptArm"] = ()
) -> set[str]:
    """Return the options of a decision that may be offered: not those of a rule, nor withheld."""
    withheld = {prompt.version for prompt in prompts if not prompt.offered}
    return {*declared.allowed_options(context)} - withheld


def declared_decision(point: str, tables: Sequence[DeclaredDecision]) -> DeclaredDecision | None:
    """Return the declaration of a point, from Python and the settings; ``None`` without one.

    Raises:
        SettingsError: The declaration in Python is wrong.
    """
    build = _builders.get(point)
    in_python = None if build is None else build()
    in_settings = next((row for row in tables if row.point == point), None)
    if in_python is None or in_settings is None:
        return in_settings or in_python
    return replace(in_settings, options={**in_settings.options, **in_python.options})


def choose_prompt(runtime: "Runtime", handle: "RunHandle", own: str, context: object) -> str:
    """Return the instructions for a run of plain Python: its own, or an option of ``prompt``.

    Args:
        runtime: The running system, which decides.
        handle: The run.
        own: The instructions of the agent itself, the default.
        context: Facts about the situation.
    """
    try:
        declared = declared_decision(Point.PROMPT, runtime.settings.decisions)
        if declared is None:
            return own
        if not issubclass(type(own), str):
            runtime.count("options_refused")
            return own
        declared, prompts = runtime.fill_prompts(handle, declared)
    except Exception as error:  # noqa: BLE001  # the border to the host
        runtime.report_failure(Kind.DECISION, error)
        return own
    try:
        known = context if isinstance(context, Mapping) else {}
        allowed = [OWN, *allowed_options(declared, known, prompts)]
        choice = runtime.decide(
            handle, Point.PROMPT.value, options=[OWN, *declared.options], context=context,
            default=OWN, exploit_only=declared.exploit_only or None, start=declared.exposure,
            allowed=allowed, prompts=prompts,
        )  # fmt: skip
        name = choice.option
        return own if name == OWN else fill_prompt(str(declared.options[name]), own)
    except Exception as error:  # noqa: BLE001  # the host's context cannot be read
        runtime.report_failure(Kind.DECISION, error, unread=True)
        runtime.count("masks_refused")
        return own
