"""The choices for a host: before a model's request, before a tool's call, after a failure.

A choice is put into the host's own request. What is sent is compared with it at the last moment,
and only then is the decision reported: as applied, or why not. An adapter's ``Seam`` reads and
changes its host's requests; everything else is here.
"""

from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from tau_live.core.gate import Kind
from tau_live.core.settings.tables import OWN, DeclaredDecision, Every, Point
from tau_live.decisions.runs import PendingDecision, RunHandle
from tau_live.runtime.adapters import declared_decision
from tau_live.runtime.runtime import Runtime
from tau_live_hooks.common import tell

INSTRUCTIONS = "{instructions}"
"""Stands in a prompt for the agent's own instructions."""

REPLACED = "replaced"
"""Why a choice was not applied: something behind us chose otherwise."""


R = TypeVar("R")


class Seam(Protocol[R]):
    """The reader and editor of a host's requests; may raise, then the host's own is sent."""

    def value_at(self, point: Point, request: R) -> object:
        """Return what a request says at a point, as a copy that can be compared.

        For ``tools`` the names of those that are offered; for a model its name or ``id``; ``None``
        where the host has nothing to choose there, such as no tool.
        """
        ...

    def is_own(self, request: R, model: object) -> bool:
        """Say whether an option of the point ``model`` is the model of the request anyway."""
        ...

    def put(self, point: Point, request: R, value: object) -> R:
        """Return the request with a choice in it.

        Args:
            point: Where it was chosen.
            request: The host's own, which is not changed.
            value: For ``prompt`` the instructions, with the agent's own in them (``prompted``);
                for ``params`` a mapping over the host's; for ``model`` what was declared; for
                ``tools`` the names that stay.
        """
        ...

    def instructions(self, request: R) -> str:
        """Return the agent's own instructions."""
        ...


class Pending(Generic[R]):
    """The decisions of one request, until it is known what became of them.

    Args:
        seam: Reads the request at a point.
    """

    def __init__(self, seam: Seam[R]) -> None:
        self.seam = seam
        self._open: list[tuple[PendingDecision, Point, object]] = []

    def add(self, unsettled: Sequence[PendingDecision], point: Point, expected: object) -> None:
        """Wait for what is sent, which says ``expected`` if the choice was applied."""
        self._open += [(decision, point, expected) for decision in unsettled]

    def settle_sent(self, request: R) -> None:
        """Report the decisions of a request that is sent now: applied, or replaced behind us."""
        waiting, self._open = self._open, []
        for unsettled, point, expected in waiting:
            is_applied = self.seam.value_at(point, request) == expected
            unsettled.settle(None if is_applied else REPLACED)

    def over(self) -> None:
        """Report the decisions of a request that was never sent; nothing if it was."""
        waiting, self._open = self._open, []
        settle([unsettled for unsettled, _, _ in waiting], "not_asked")


class Choices:
    """Decides what one run asks of models and tools.

    Args:
        runtime: Who decides.
        handle: The run.
    """

    def __init__(self, runtime: Runtime, handle: RunHandle) -> None:
        self._runtime = runtime
        self._handle = handle
        self._kept: dict[str, tuple[str, object]] = {}

    def change_request(
        self, seam: Seam[R], request: R, known: Mapping[str, object]
    ) -> tuple[R, Pending[R]]:
        """Return the request as it was decided to be sent, and what waits for its being sent.

        Args:
            seam: How the request is read and changed.
            request: The host's own.
            known: The situation, of ``common_text.situation_of``.

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
                tell(self._runtime, Kind.DECISION, error)
        return request, pending

    def veto(self, known: Mapping[str, object]) -> str | None:
        """Return the text for the model in place of a tool's result; ``None`` to let it run.

        Ask for each call, and let the host do what is returned: it is reported as applied.

        Args:
            known: The situation, with the tool's name as ``tool``.
        """
        declared = self._declaration(Point.TOOL_GATE)
        if declared is None:
            return None
        allowed = {*declared.allowed_options(known), OWN}
        chosen, made = self._ask_runtime(declared, OWN, allowed, known)
        settle(made)
        return None if chosen == OWN else str(declared.options[chosen])

    def again(
        self,
        known: Mapping[str, object],
        *,
        own: bool,
        unsettled: list[PendingDecision] | None = None,
    ) -> bool:
        """Say whether what failed is tried again.

        Args:
            known: The situation, with what failed as ``what``.
            own: Whether the host would.
            unsettled: Takes a decision for what the host would not do, to be settled when it is
                known whether that happened; ``None`` settles it at once.
        """
        declared = self._declaration(Point.RETRY)
        if declared is None:
            return own
        name = next((name for name, value in declared.options.items() if value is own), OWN)
        allowed = {*declared.allowed_options(known), name}
        chosen, made = self._ask_runtime(declared, name, allowed, known)
        if chosen == name or unsettled is None:
            settle(made)
        else:
            unsettled += made
        return own if chosen == name else bool(declared.options[chosen])

    def _declaration(self, point: Point) -> DeclaredDecision | None:
        declared = declared_decision(point, self._runtime.settings.decisions)
        return declared if declared is not None and declared.options else None

    def _change(
        self,
        pending: Pending[R],
        declared: DeclaredDecision,
        request: R,
        known: Mapping[str, object],
    ) -> R:
        seam, point = pending.seam, Point(declared.point)
        own, allowed = _offered_by(seam, declared, request, known)
        if declared.every is Every.RUN and point in self._kept:
            kept, value = self._kept[point]
            return request if kept == own else _put(seam, point, request, value)
        name, unsettled = self._ask_runtime(declared, own, allowed, known)
        changed = request
        try:
            if name != own:
                changed = _put(seam, point, request, declared.options[name])
        except Exception as error:
            settle(unsettled, f"error: {type(error).__name__}")
            raise
        pending.add(unsettled, point, seam.value_at(point, changed))
        self._kept[point] = name, declared.options.get(name)
        return changed

    def _ask_runtime(
        self, declared: DeclaredDecision, own: str, allowed: set[str], known: Mapping[str, object]
    ) -> tuple[str, list[PendingDecision]]:
        """Return the name of the choice, and the decisions to be settled."""
        unsettled: list[PendingDecision] = []
        choice = self._runtime.decide(
            self._handle,
            declared.point,
            options=[*declared.options, *([own] if own not in declared.options else [])],
            context=known,
            default=own,
            allowed=allowed,
            exploit_only=declared.exploit_only or None,
            start=declared.exposure or 0.0,
            unsettled=unsettled,
        )
        return str(choice.option), unsettled


def settle(unsettled: Sequence[PendingDecision], why_not: str | None = None) -> None:
    """Record decisions: as applied, or why not."""
    for decision in unsettled:
        decision.settle(why_not)


def fill_prompt(text: str, own: str) -> str:
    """Return a declared prompt with the agent's own instructions where it wants them."""
    filled = text.replace(INSTRUCTIONS, own)
    return filled if own else filled.strip()


def _offered_by(
    seam: Seam[R], declared: DeclaredDecision, request: R, known: Mapping[str, object]
) -> tuple[str, set[str]]:
    """Return the name of what the host does by itself, and the options allowed this time."""
    allowed = {*declared.allowed_options(known)}
    own = OWN
    if declared.point == Point.MODEL:
        own = next((n for n, value in declared.options.items() if seam.is_own(request, value)), OWN)
    elif declared.point == Point.TOOLS:
        names = _names(seam.value_at(Point.TOOLS, request))
        kept = {name: _kept_of(names, value) for name, value in declared.options.items()}
        own = next((name for name, stay in kept.items() if stay == names), OWN)
        allowed -= {name for name, stay in kept.items() if not stay and declared.options[name]}
    return own, {*allowed, own}


def _put(seam: Seam[R], point: Point, request: R, value: object) -> R:
    if point is Point.TOOLS:
        value = _kept_of(_names(seam.value_at(point, request)), value)
    elif point is Point.PROMPT:
        own = seam.instructions(request)
        value = fill_prompt(str(value), own)
        if value == own:  # what the host has of them stays, such as no message at all
            return request
    return seam.put(point, request, value)


def _names(value: object) -> list[str]:
    return [str(name) for name in value] if isinstance(value, list | tuple) else []


def _kept_of(names: Sequence[str], value: object) -> list[str]:
    """Return those of the host's tools that an option names; never one that it does not have."""
    wanted = {*value} if isinstance(value, list | tuple) else set()
    return [name for name in names if name in wanted]
