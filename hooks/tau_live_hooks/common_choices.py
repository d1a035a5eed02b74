"""What is chosen for a host: before a model is asked, before a tool is called, after a failure.

A choice is put into the host's own request. What is sent is compared with it at the last moment,
and only then is the decision told: as applied, or why not. How a host's request is read and changed
is its adapter's ``Seam``; everything else is here.
"""

from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from tau_live.gate import Kind
from tau_live.offered import declared
from tau_live.runs.handles import RunHandle, Unsettled
from tau_live.runtime import Runtime
from tau_live.settings.decisions import OWN, DeclaredDecision, Every, Point
from tau_live_hooks.common_border import tell

INSTRUCTIONS = "{instructions}"
"""Stands in a prompt for the agent's own instructions."""

REPLACED = "replaced"
"""Why a choice was not applied: something behind us chose otherwise."""

NOT_ASKED = "not_asked"
"""Why a choice was not applied: the model was not asked after all."""

REQUEST_POINTS = (Point.MODEL, Point.PROMPT, Point.PARAMS, Point.TOOLS)
"""What can be chosen before a model is asked, in this order."""

R = TypeVar("R")


class Seam(Protocol[R]):
    """How the requests of a host are read and changed; may raise, then the host's own is sent."""

    def said(self, point: Point, request: R) -> object:
        """Return what a request says at a point, as a copy that can be compared.

        For ``tools`` the names of those that are offered; for a model its name or ``id``; ``None``
        where the host has nothing to choose there, such as no tool.
        """
        ...

    def is_own(self, request: R, model: object) -> bool:
        """Say whether an option of the point ``model`` is the model that is asked anyway."""
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
        self._open: list[tuple[Unsettled, Point, object]] = []

    def add(self, unsettled: Sequence[Unsettled], point: Point, expected: object) -> None:
        """Wait for what is sent, which says ``expected`` if the choice was applied."""
        self._open += [(one, point, expected) for one in unsettled]

    def sent(self, request: R) -> None:
        """Tell the decisions of a request that is sent now: applied, or replaced behind us."""
        waiting, self._open = self._open, []
        for unsettled, point, expected in waiting:
            is_applied = self.seam.said(point, request) == expected
            unsettled.settle(None if is_applied else REPLACED)

    def over(self) -> None:
        """Tell the decisions of a request that was never sent; nothing if it was."""
        waiting, self._open = self._open, []
        settle([unsettled for unsettled, _, _ in waiting], NOT_ASKED)


class _Kept(NamedTuple):
    """A choice of a run at a point: which value, and under which name."""

    name: str
    value: object


class _Named(NamedTuple):
    """What may be chosen: what was declared, what of it this time, and the host's own."""

    told: DeclaredDecision
    own: str
    allowed: set[str]


class Choices:
    """Decides what one run asks of models and tools.

    Args:
        runtime: Who decides.
        handle: The run.
    """

    def __init__(self, runtime: Runtime, handle: RunHandle) -> None:
        self._runtime = runtime
        self._handle = handle
        self._kept: dict[str, _Kept] = {}

    def changed(
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
        for point in REQUEST_POINTS:
            try:
                told = self._declared(point)
                if told is not None and seam.said(point, request) is not None:
                    named = _named(seam, told, request, known)
                    request = self._changed(pending, named, request, known)
            except Exception as error:  # noqa: BLE001  # the host's code
                tell(self._runtime, Kind.DECISION, error)
        return request, pending

    def vetoed(self, known: Mapping[str, object]) -> str | None:
        """Return what the model is told instead of a tool's result; ``None`` to let it run.

        Ask for each call, and let the host do what is returned: it is told as applied.

        Args:
            known: The situation, with the tool's name as ``tool``.
        """
        told = self._declared(Point.TOOL_GATE)
        if told is None:
            return None
        chosen = self._chosen(_Named(told, OWN, {*told.allowed(known), OWN}), known)
        return None if chosen == OWN else str(told.options[chosen])

    def again(
        self,
        known: Mapping[str, object],
        *,
        own: bool,
        unsettled: list[Unsettled] | None = None,
    ) -> bool:
        """Say whether what failed is tried again.

        Args:
            known: The situation, with what failed as ``what``.
            own: Whether the host would.
            unsettled: Takes a decision for what the host would not do, to be settled when it is
                known whether that happened; ``None`` settles it at once.
        """
        told = self._declared(Point.RETRY)
        if told is None:
            return own
        name = next((name for name, value in told.options.items() if value is own), OWN)
        made: list[Unsettled] = []
        chosen = self._decided(_Named(told, name, {*told.allowed(known), name}), known, made)
        if chosen == name or unsettled is None:
            settle(made)
        else:
            unsettled += made
        return own if chosen == name else bool(told.options[chosen])

    def _declared(self, point: Point) -> DeclaredDecision | None:
        told = declared(point, self._runtime.settings.decisions)
        return told if told is not None and told.options else None

    def _changed(
        self, pending: Pending[R], named: _Named, request: R, known: Mapping[str, object]
    ) -> R:
        told, seam = named.told, pending.seam
        point = Point(told.point)
        kept = self._kept.get(point) if told.every is Every.RUN else None
        if kept is not None:
            same = kept.name == named.own
            return request if same else _put(seam, point, request, kept.value)
        unsettled: list[Unsettled] = []
        name = self._decided(named, known, unsettled)
        changed = request
        try:
            if name != named.own:
                changed = _put(seam, point, request, told.options[name])
        except Exception as error:
            settle(unsettled, f"error: {type(error).__name__}")
            raise
        pending.add(unsettled, point, seam.said(point, changed))
        self._kept[point] = _Kept(name, told.options.get(name))
        return changed

    def _chosen(self, named: _Named, known: Mapping[str, object]) -> str:
        unsettled: list[Unsettled] = []
        name = self._decided(named, known, unsettled)
        settle(unsettled)
        return name

    def _decided(
        self, named: _Named, known: Mapping[str, object], unsettled: list[Unsettled]
    ) -> str:
        told, own, allowed = named
        choice = self._runtime.decide(
            self._handle,
            told.point,
            options=[*told.options, *([own] if own not in told.options else [])],
            context=known,
            default=own,
            allowed=allowed,
            exploit_only=told.exploit_only or None,
            start=told.exposure or 0.0,
            unsettled=unsettled,
        )
        return str(choice.option)


def settle(unsettled: Sequence[Unsettled], why_not: str | None = None) -> None:
    """Record decisions: as applied, or why not."""
    for one in unsettled:
        one.settle(why_not)


def prompted(text: str, own: str) -> str:
    """Return a declared prompt with the agent's own instructions where it wants them."""
    said = text.replace(INSTRUCTIONS, own)
    return said if own else said.strip()


def _named(
    seam: Seam[R], told: DeclaredDecision, request: R, known: Mapping[str, object]
) -> _Named:
    """Return what may be chosen, and the name of what the host does by itself."""
    allowed = {*told.allowed(known)}
    own = OWN
    if told.point == Point.MODEL:
        own = next((n for n, value in told.options.items() if seam.is_own(request, value)), OWN)
    elif told.point == Point.TOOLS:
        names = _names(seam.said(Point.TOOLS, request))
        kept = {name: _kept_of(names, value) for name, value in told.options.items()}
        own = next((name for name, stay in kept.items() if stay == names), OWN)
        allowed -= {name for name, stay in kept.items() if not stay and told.options[name]}
    return _Named(told, own, {*allowed, own})


def _put(seam: Seam[R], point: Point, request: R, value: object) -> R:
    if point is Point.TOOLS:
        value = _kept_of(_names(seam.said(point, request)), value)
    elif point is Point.PROMPT:
        own = seam.instructions(request)
        value = prompted(str(value), own)
        if value == own:  # what the host has of them stays, such as no message at all
            return request
    return seam.put(point, request, value)


def _names(said: object) -> list[str]:
    return [str(name) for name in said] if isinstance(said, list | tuple) else []


def _kept_of(names: Sequence[str], value: object) -> list[str]:
    """Return those of the host's tools that an option names; never one that it does not have."""
    wanted = {*value} if isinstance(value, list | tuple) else set()
    return [name for name in names if name in wanted]
