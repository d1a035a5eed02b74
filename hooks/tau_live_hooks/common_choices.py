"""The choices for a host: before a model's request, before a tool's call, after a failure.

A choice is put into the host's own request. What is sent is compared with it at the last moment,
and only then is the decision reported: as applied, or why not. An adapter's ``Seam`` reads and
changes its host's requests; everything else is here.
"""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from tau_live.core.events import PromptArm
from tau_live.core.gate import Kind
from tau_live.core.prompts import fill_prompt
from tau_live.core.settings.tables import OWN, DeclaredDecision, Every, Point
from tau_live.decisions.runs import PendingDecision, RunHandle
from tau_live.runtime.adapters import allowed_options, declared_decision
from tau_live.runtime.runtime import Runtime
from tau_live_hooks.common import Situation, report_failure

REPLACED = "replaced"
"""Why a choice was not applied: code after ours changed the request."""


R = TypeVar("R")


class Seam(Protocol[R]):
    """The reader and editor of a host's requests; may raise, then the host's own is sent."""

    def value_at(self, point: Point, request: R) -> object:
        """Return a request's value at a point, as a copy that can be compared.

        For ``tools`` the names of those that are offered; for a model its name or ``id``; ``None``
        where the host has nothing to choose there, such as no tool.
        """
        ...

    def is_own(self, request: R, model: object) -> bool:
        """Return whether an option of the point ``model`` is the request's own model."""
        ...

    def put(self, point: Point, request: R, value: object) -> R:
        """Return the request with a choice in it.

        Args:
            point: The decision point.
            request: The host's own, which is not changed.
            value: For ``prompt`` the instructions, with the agent's own in them (``fill_prompt``);
                for ``params`` a mapping over the host's; for ``model`` the declared value; for
                ``tools`` the names that stay.
        """
        ...

    def instructions(self, request: R) -> str:
        """Return the agent's own instructions."""
        ...


class Pending(Generic[R]):
    """The decisions of one request, until it is known whether they were applied.

    Args:
        seam: The reader of the request.
    """

    def __init__(self, seam: Seam[R]) -> None:
        self.seam = seam
        self._open: list[tuple[PendingDecision, Point, object]] = []

    def add(self, decisions: Sequence[PendingDecision], point: Point, expected: object) -> None:
        """Add decisions at a point, where the request reads ``expected`` if they are applied."""
        self._open += [(decision, point, expected) for decision in decisions]

    def settle_sent(self, request: R) -> None:
        """Report the decisions of a request that is sent now: applied, or replaced after us."""
        pending, self._open = self._open, []
        for decision, point, expected in pending:
            is_applied = self.seam.value_at(point, request) == expected
            decision.settle(None if is_applied else REPLACED)

    def settle_unsent(self) -> None:
        """Report the decisions of a request that was never sent; nothing if it was."""
        pending, self._open = self._open, []
        settle([decision for decision, _, _ in pending], "not_asked")


class Choices:
    """Decides the requests and tool calls of one run.

    Args:
        runtime: The running system, which decides.
        handle: The run.
    """

    def __init__(self, runtime: Runtime, handle: RunHandle) -> None:
        self._runtime = runtime
        self._handle = handle
        self._for_run: dict[str, tuple[str, object]] = {}
        self._prompts: tuple[PromptArm, ...] = ()

    def change_request(self, seam: Seam[R], request: R, known: Situation) -> tuple[R, Pending[R]]:
        """Return the request with the choices in it, and the decisions that wait until it is sent.

        Args:
            seam: The reader and editor of the request.
            request: The host's own.
            known: The situation, of ``common.situation_of``.

        A point at which the seam raises is left to the host, and counted as a failure.
        """
        pending = Pending(seam)
        # in the order in which they are decided
        for point in (Point.MODEL, Point.PROMPT, Point.PARAMS, Point.TOOLS):
            try:
                declared = self._declaration(point)
                if declared is not None and seam.value_at(point, request) is not None:
                    request = self._change(pending, declared, request, known)
            except Exception as error:  # noqa: BLE001  # the host's code
                report_failure(self._runtime, Kind.DECISION, error)
        return request, pending

    def veto(self, known: Situation) -> str | None:
        """Return the text for the model in place of a tool's result; ``None`` to let it run.

        Call it for each call of a tool, and let the host obey: the choice is reported as applied.

        Args:
            known: The situation, with the tool's name as ``tool``.
        """
        declared = self._declaration(Point.TOOL_GATE)
        if declared is None:
            return None
        allowed = {*declared.allowed_options(known), OWN}
        choice, decisions = self._decide(declared, OWN, allowed, known)
        settle(decisions)
        return None if choice == OWN else str(declared.options[choice])

    def should_retry(
        self,
        known: Situation,
        *,
        own: bool,
        unsettled: list[PendingDecision] | None = None,
    ) -> bool:
        """Return whether to retry what failed.

        Args:
            known: The situation, with what failed as ``what``.
            own: Whether the host would retry it.
            unsettled: Takes a decision against the host's own choice, to be settled when it is
                known whether it was obeyed; ``None`` settles it at once.
        """
        declared = self._declaration(Point.RETRY)
        if declared is None:
            return own
        name = next((name for name, value in declared.options.items() if value is own), OWN)
        allowed = {*declared.allowed_options(known), name}
        choice, decisions = self._decide(declared, name, allowed, known)
        if choice == name or unsettled is None:
            settle(decisions)
        else:
            unsettled += decisions
        return own if choice == name else bool(declared.options[choice])

    def _declaration(self, point: Point) -> DeclaredDecision | None:
        declared = declared_decision(point, self._runtime.settings.decisions)
        if declared is not None and declared.prompt_key is not None:
            declared, self._prompts = self._runtime.fill_prompts(self._handle, declared)
        return declared if declared is not None and declared.options else None

    def _change(
        self,
        pending: Pending[R],
        declared: DeclaredDecision,
        request: R,
        known: Situation,
    ) -> R:
        seam, point = pending.seam, Point(declared.point)
        prompts = self._prompts if point is Point.PROMPT else ()
        own, allowed = _own_and_allowed(
            seam, declared, request, allowed_options(declared, known, prompts)
        )
        if declared.every is Every.RUN and point in self._for_run:
            name, value = self._for_run[point]
            return request if name == own else _put(seam, point, request, value)
        name, decisions = self._decide(declared, own, allowed, known, prompts=prompts)
        changed = request
        try:
            if name != own:
                changed = _put(seam, point, request, declared.options[name])
        except Exception as error:
            settle(decisions, f"error: {type(error).__name__}")
            raise
        pending.add(decisions, point, seam.value_at(point, changed))
        self._for_run[point] = name, declared.options.get(name)
        return changed

    def _decide(
        self,
        declared: DeclaredDecision,
        own: str,
        allowed: set[str],
        known: Situation,
        *,
        prompts: tuple[PromptArm, ...] = (),
    ) -> tuple[str, list[PendingDecision]]:
        """Return the name of the choice, and the decisions to be settled."""
        decisions: list[PendingDecision] = []
        choice = self._runtime.decide(
            self._handle,
            declared.point,
            options=[*declared.options, *([own] if own not in declared.options else [])],
            context=known,
            default=own,
            allowed=allowed,
            exploit_only=declared.exploit_only or None,
            start=declared.exposure or 0.0,
            unsettled=decisions,
            prompts=prompts,
        )
        return str(choice.option), decisions


def settle(decisions: Sequence[PendingDecision], why_not: str | None = None) -> None:
    """Report decisions as applied, or why they were not."""
    for decision in decisions:
        decision.settle(why_not)


def _own_and_allowed(
    seam: Seam[R], declared: DeclaredDecision, request: R, allowed: set[str]
) -> tuple[str, set[str]]:
    """Return the name of the host's own choice, and the options allowed this time."""
    own = OWN
    if declared.point == Point.MODEL:
        own = next((n for n, value in declared.options.items() if seam.is_own(request, value)), OWN)
    elif declared.point == Point.TOOLS:
        names = _names(seam.value_at(Point.TOOLS, request))
        subsets = {name: _subset(names, value) for name, value in declared.options.items()}
        own = next((name for name, subset in subsets.items() if subset == names), OWN)
        allowed -= {
            name for name, subset in subsets.items() if not subset and declared.options[name]
        }
    return own, {*allowed, own}


def _put(seam: Seam[R], point: Point, request: R, value: object) -> R:
    if point is Point.TOOLS:
        value = _subset(_names(seam.value_at(point, request)), value)
    elif point is Point.PROMPT:
        own = seam.instructions(request)
        value = fill_prompt(str(value), own)
        if value == own:  # the host's request stays, be it one without any message
            return request
    return seam.put(point, request, value)


def _names(value: object) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list | tuple) else []


def _subset(names: Sequence[str], value: object) -> list[str]:
    """Return those of the host's tools that an option names; never one that it does not have."""
    wanted = {*value} if isinstance(value, list | tuple) else set()
    return [name for name in names if name in wanted]
