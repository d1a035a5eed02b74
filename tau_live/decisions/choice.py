"""One decision: reading the host's offer, choosing an option, recording the decision."""

import itertools
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from tau_live.core.choices import Choice
from tau_live.core.errors import suppress
from tau_live.core.events import Decision, PromptArm
from tau_live.core.gate import Kind
from tau_live.core.gate_keeper import GateKeeper
from tau_live.core.guard import Guard, logger
from tau_live.core.hookspecs import DecisionRequest
from tau_live.core.offers import (
    OPTIONS_LIMIT,
    Mask,
    OptionList,
    mask_of,
    own_choice,
    read_options,
    text_of,
    texts_of,
)
from tau_live.core.plugins import Plugins
from tau_live.core.reasons import FOREIGN_DEFAULT, PAUSED, PERMIT_OVER
from tau_live.core.redaction import clean_id
from tau_live.core.settings import Settings
from tau_live.decisions.decider import CONTROL, NEITHER, Arm, Decider, PolicyChoice
from tau_live.decisions.runs import PendingDecision, RunEvents, RunHandle, Stamp
from tau_live.record.inbox import Inbox
from tau_live.rl.features import Features, FrozenRow, copy_row, size_of

STOPPED = "stopped"
_ALL = Mask()

POINTS = 64
"""Most points with a counter of foreign defaults; those of others count under ``OTHERS``."""

OTHERS = "(others)"

UNNAMED = "unnamed"
"""The decision point of a choice whose point has an empty name."""

Read = Callable[[str, object], FrozenRow | None]

PARTS_LIMIT = 65_536
"""Most parts of features that are read of one decision; those of further options are left out."""

EARLIER = "chosen at "
"""Begins the name under which a context has an earlier choice of its run; the point follows."""

_WALKED = 4  # cost of a part of a mixed row, relative to a row of numbers


class Offer(NamedTuple):
    """The options of one decision, ready to be encoded.

    Attributes:
        names: ``[A]``, their distinct names.
        originals: ``[A]``, the host's own objects.
        features: ``[A]``, plain data or ``None``.
        default: The index of the host's own choice; ``None`` if it is not among them.
        own: The index of the option that the host takes without us; ``None`` if not among them.
        cut: How many options were left out as too many.
        unread: How many options' features were left out as too much.
        allowed: ``[A]``, which are allowed this time; ``None`` if all are.
        explored: ``[A]``, which may be explored; ``None`` if all may.
    """

    names: tuple[str, ...]
    originals: tuple[object, ...]
    features: tuple[FrozenRow | None, ...]
    default: int | None
    own: int | None
    cut: int
    allowed: tuple[bool, ...] | None = None
    explored: tuple[bool, ...] | None = None
    unread: int = 0

    def choosable(self) -> dict[str, Features]:
        """Return the allowed options, with copies of their features."""
        options = zip(self.names, self.features, strict=True)
        mask = self.allowed or itertools.repeat(True)
        return {name: {**(features or {})} for name, features in itertools.compress(options, mask)}

    def choosable_default(self) -> str | None:
        """Return the host's own choice, if it is allowed."""
        at = self.default
        if at is None or not (self.allowed is None or self.allowed[at]):
            return None
        return self.names[at]


def offer_of(listed: OptionList, default: object, *, mask: Mask, read: Read) -> Offer | None:
    """Return the options as plain data; ``None`` if there is none that is allowed.

    Options of the same name are one; options beyond ``OPTIONS_LIMIT`` are left out and counted,
    unless one is the default. Of so many, those not allowed are left out first.

    Args:
        listed: The options as the host has them.
        default: The host's own choice.
        mask: Which options are allowed, and which may be explored.
        read: Returns an option's features as plain data.
    """
    room, unread = PARTS_LIMIT, 0
    masks = mask.names if len(listed.originals) > OPTIONS_LIMIT else None
    *texts, text = texts_of((*listed.originals, default))
    wanted = None if default is None else text
    names: dict[str, int] = {}
    kept: list[object] = []
    features: list[FrozenRow | None] = []
    cut = listed.beyond
    for name, original, own in zip(texts, listed.originals, listed.features, strict=True):
        if name in names:
            continue
        too_many = len(names) >= OPTIONS_LIMIT or (masks is not None and name not in masks)
        if too_many and name != wanted:
            cut += 1
            continue
        names[name] = len(names)
        kept.append(original)
        row = None if own is None or room <= 0 else read(name, own)
        unread += own is not None and room <= 0
        room -= 0 if row is None else _parts_of(row)
        features.append(row)
    if not names:
        return None
    at = None if wanted is None else names.get(wanted)
    own = 0 if wanted is None else at
    allowed: tuple[bool, ...] | None = None
    if mask.names is not None:
        allowed = tuple(name in mask.names for name in names)
        if not any(allowed):
            return None
        own = at if wanted is not None and mask.allows(wanted) else allowed.index(True)
    return Offer(
        tuple(names),
        tuple(kept),
        tuple(features),
        at,
        own,
        cut,
        None if allowed is None or all(allowed) else allowed,
        None
        if mask.unexplored.isdisjoint(names)
        else tuple(name not in mask.unexplored for name in names),
        unread,
    )


def with_choices(context: FrozenRow, choices: Mapping[str, str], point: str) -> FrozenRow:
    """Return a context with the options that its run chose before, at other points.

    A name that the host itself uses is left as it is.
    """
    earlier = {
        f"{EARLIER}{other}": option
        for other, option in [*choices.items()]  # threads may share a run
        if other != point
    }
    return copy_row({**earlier, **context}) if earlier else context


def _parts_of(row: FrozenRow) -> int:
    if row.names:
        return len(row)
    if not row.parts:
        row.parts = _WALKED * size_of(row)
    return row.parts


def decision_event(  # noqa: PLR0913  # the fields of a row
    handle: RunHandle,
    ordinal: int,
    stamp: Stamp,
    *,
    point: str,
    offer: Offer,
    context: FrozenRow,
    policy_choice: PolicyChoice | None,
    applied: int | None,
    why_not: str | None,
    latency_us: float,
    arm: Arm,
    prompts: tuple[PromptArm, ...] = (),
) -> Decision:
    """Return the event of a decision: the policy's, or the host's own with ``why_not``."""
    names, explored = offer.names, offer.explored
    served = policy_choice is not None and why_not is None
    return Decision(
        **stamp,
        host=handle.host,
        run_id=handle.run_id,
        execution=handle.execution,
        ordinal=ordinal,
        point=point,
        options=names,
        allowed=None if offer.allowed is None else (*itertools.compress(names, offer.allowed),),
        exploit_only=None
        if explored is None
        else tuple(name for name, may in zip(names, explored, strict=True) if not may),
        chosen=names[policy_choice.place] if policy_choice else None,
        applied=None if applied is None else names[applied],
        default=None if offer.default is None else names[offer.default],
        source="policy" if served else "default",
        why_not=why_not,
        propensity=policy_choice.propensity if policy_choice and served else None,
        probabilities=policy_choice.probabilities if policy_choice else (),
        value=policy_choice.value if policy_choice else None,
        policy_version=policy_choice.version if policy_choice else 0,
        arm=arm.name,
        share=arm.share,
        latency_us=latency_us,
        context=context.copy(),
        features={
            name: values.copy()  # others may get to see the event
            for name, values in zip(names, offer.features, strict=True)
            if values
        }
        if any(offer.features)
        else {},
        encoded=policy_choice.encoded if policy_choice else b"",
        prompts=prompts,
    )


def _warn_of_default(point: str, default: str, options: tuple[str, ...]) -> None:
    with suppress(Exception):  # a host's logging may be broken
        logger().warning(
            "default_not_offered",
            point=clean_id(point),
            default=clean_id(default),
            options=", ".join(map(clean_id, options[:8])),
            effect="no prior and no comparison: no policy ever chooses it",
            todo="offer it under exactly the same name",
        )


class Decisions:
    """Decides for hosts, from memory: within the deadline, or with the host's own choice.

    A decision that took its thread more processor time than the deadline is recorded, and not
    served. Waiting for the processor does not count: where it is scarce, the host waits in any
    case, and loses nothing by the better choice.

    Args:
        settings: The deadline, and the share of rollouts reserved for the control.
        gate: Tells whether runs are recorded, and counts each served decision as a success.
        guard: The border to the host.
        decider: The policies in service.
        plugins: May answer before the policy.
        inbox: Takes the events of decisions; its thread logs warnings, as logging may be slow.
        events: Makes events of runs.
        count: Adds to a counter, by name, what was refused or cut.
        begin_run: Begins a run inside one of another process (or runtime), to decide in it.
        end_run: Ends that run.
    """

    def __init__(  # noqa: PLR0913  # its parts, all keyword-only but one
        self,
        settings: Settings,
        *,
        gate: GateKeeper,
        guard: Guard,
        decider: Decider,
        plugins: Plugins,
        inbox: Inbox,
        events: RunEvents,
        count: Callable[[str, int], None],
        begin_run: Callable[..., RunHandle],
        end_run: Callable[[RunHandle, None], None],
    ) -> None:
        self._settings = settings
        self._gate = gate
        self._guard = guard
        self._decider = decider
        self._plugins = plugins
        self._inbox = inbox
        self._events = events
        self._count = count
        self._begin_run, self._end_run = begin_run, end_run
        self._counters: dict[str, str] = {}  # names of counters of foreign defaults, by point

    def decide(  # noqa: PLR0913  # as the door's, all keyword-only but two
        self,
        handle: RunHandle,
        point: object,
        *,
        options: object,
        context: object,
        default: object,
        allowed: object = None,
        exploit_only: object = None,
        start: float | None = None,
        unsettled: list[PendingDecision] | None = None,
        prompts: tuple[PromptArm, ...] = (),
    ) -> Choice:
        """Choose one of the options, or return the host's own choice whenever in doubt.

        Args:
            handle: The run; it may be over.
            point: The decision point.
            options: The options, as names or with features.
            context: The context of the decision.
            default: The host's own choice.
            allowed: The options that are allowed this time; ``None`` allows all.
            exploit_only: The options that are unsafe to explore; ``None`` if none is.
            start: The initial share of runs that the learner decides where an adapter acts, 0 in
                shadow, from which it climbs on evidence; ``None`` for an explicit decision.
            unsettled: The decision is appended to it, to be settled once it is known which option
                was applied; ``None`` records it at once.
            prompts: The prompt versions on trial, each offered to the run or withheld from it.
        """
        if handle.home is not self._events:
            own = self._begin_run(
                point, key=None, session=handle.session_id, metadata=None, parent=handle
            )
            try:
                return self.decide(
                    own, point, options=options, context=context, default=default,
                    allowed=allowed, exploit_only=exploit_only, start=start, prompts=prompts,
                )  # fmt: skip
            finally:
                self._end_run(own, None)
        choice: Choice | None = None
        gate, inbox = self._gate, self._inbox
        offered = read_options(options, default)
        is_masked = allowed is not None or exploit_only is not None
        mask = mask_of(allowed, exploit_only) if is_masked else _ALL
        is_recorded = handle.recorded and gate.passes and handle.epoch == gate.epoch
        if not offered.readable:
            self._count("options_refused", 1)
        elif not mask.readable:
            self._count("masks_refused", 1)
        elif is_recorded and not inbox.closed and not handle.ended:
            try:
                choice = self._choose(
                    handle, text_of(point) or UNNAMED, offered, mask,
                    context=context, default=default, start=start, unsettled=unsettled,
                    prompts=prompts,
                )  # fmt: skip
            except Exception as error:  # noqa: BLE001  # the border to the host
                self._guard.record_failure(Kind.DECISION, error)
        else:
            self._count("decisions_not_recorded", 1)
        return choice or own_choice(offered.originals, default, mask)

    def _choose(  # noqa: PLR0913  # the arguments of ``decide``, some of them read
        self,
        handle: RunHandle,
        point: str,
        offered: OptionList,
        mask: Mask,
        *,
        context: object,
        default: object,
        start: float | None,
        unsettled: list[PendingDecision] | None,
        prompts: tuple[PromptArm, ...],
    ) -> Choice | None:
        rollout_id, events = handle.rollout_id, self._events
        arm, refused = self._arm(handle, point, start=start, has_control=default is not None)
        began, worked = time.perf_counter(), time.thread_time()
        offer = offer_of(offered, default, mask=mask, read=events.features)
        if offer is None or offer.cut or offer.unread:
            self._count_cut(offer, offered)
        if offer is None:
            return None
        known = self._context(handle, point, context)
        ordinal = handle.decision_count = next(handle.ordinals)
        id_ = events.decision_id(handle, ordinal)
        policy_choice, why_not = self._decide(
            arm, handle, id_, point=point, offer=offer, context=known, refused=refused
        )
        elapsed_ms = (time.perf_counter() - began) * 1e3
        deadline_ms = self._settings.decide_deadline_ms
        is_late = elapsed_ms > deadline_ms  # its processor time, slow to read, is never longer
        if why_not is None and is_late and (time.thread_time() - worked) * 1e3 > deadline_ms:
            why_not = "deadline"
            self._count("decisions_past_deadline", 1)
        if default is not None and offer.default is None:
            self._count_foreign(point, text_of(default), offer.names)
        served = policy_choice if why_not is None else None
        event = decision_event(
            handle, ordinal, events.stamp(), point=point, offer=offer, context=known,
            policy_choice=policy_choice, applied=offer.own if served is None else served.place,
            why_not=why_not, latency_us=elapsed_ms * 1e3, arm=arm,
            prompts=prompts if refused is None and arm.share else (),
        )  # fmt: skip
        if unsettled is None:
            handle.note_choice(point, event.applied)
            self._inbox.put(event)
        else:
            unsettled.append(PendingDecision(handle, self._inbox.put, event))
        if served is None:
            option = own_choice(offer.originals, default, mask).option
            return Choice(option, None, "default", id_, event.policy_version, rollout_id)
        if Kind.DECISION in self._gate.answers_for:
            self._gate.record_success(Kind.DECISION, at=time.time())
        option = offer.originals[served.place]
        return Choice(option, served.propensity, "policy", id_, served.version, rollout_id)

    def _context(self, handle: RunHandle, point: str, context: object) -> FrozenRow:
        """Return the context of a decision as plain data, with earlier choices of its run."""
        known = self._events.context(context)
        if not handle.choices or not self._settings.earlier_choices:
            return known
        return with_choices(known, handle.choices, point)

    def _count_cut(self, offer: Offer | None, offered: OptionList) -> None:
        """Count the options and features that were left out, or that no option was allowed."""
        if offer is None:
            is_masked = bool(offered.originals)
            counter = "decisions_without_an_allowed_option" if is_masked else "decisions_of_nothing"
            self._count(counter, 1)
            return
        if offer.cut:
            self._count("options_cut", offer.cut)
        if offer.unread:
            self._count("features_cut", offer.unread)

    def _count_foreign(self, point: str, default: str, options: tuple[str, ...]) -> None:
        """Count a default that was not offered; warn of the first at its point."""
        counter = self._counters.get(point)
        if counter is None and len(self._counters) < POINTS:
            counter = self._counters[point] = f"{FOREIGN_DEFAULT}{clean_id(point)}"
            self._inbox.mark(partial(_warn_of_default, point, default, options))
        self._count(counter or f"{FOREIGN_DEFAULT}{OTHERS}", 1)

    def _arm(
        self, handle: RunHandle, point: str, *, start: float | None, has_control: bool
    ) -> tuple[Arm, str | None]:
        """Return the arm of a run at a point, which it keeps, and why no policy may decide now."""
        if self._decider.paused:
            return NEITHER, PAUSED
        if time.monotonic() > self._decider.permitted_until:
            return NEITHER, PERMIT_OVER
        if self._plugins.keeps_no_text:  # nothing could be learned from its row
            return NEITHER, "redactor_disabled"
        if point in self._decider.stopped:
            return Arm(CONTROL, 0.0), STOPPED
        arm = handle.arms.get(point)
        if arm is None:  # threads may share a run
            drawn = self._decider.arm(
                point, handle.rollout_id, start=start, has_control=has_control,
                control_share=self._settings.control_share,
            )  # fmt: skip
            arm = handle.arms.setdefault(point, drawn)
        return arm, None

    def _decide(  # noqa: PLR0913  # passed on from ``_choose``
        self,
        arm: Arm,
        handle: RunHandle,
        id_: str,
        *,
        point: str,
        offer: Offer,
        context: Features,
        refused: str | None,
    ) -> tuple[PolicyChoice | None, str | None]:
        """Return the policy's choice, and why it is not applied; ``None`` where it is.

        The first plugin that answers overrules the policy, in the learner's arm alone: the control
        stays as it is.
        """
        champion = self._decider.champion(point) if arm.name == CONTROL else None
        if refused is not None and (champion is None or refused != STOPPED):
            return None, refused
        try:
            policy_choice = self._decider.choose(
                id_,
                point=point,
                options=list(zip(offer.names, offer.features, strict=True)),
                context=context,
                default=offer.default,
                allowed=offer.allowed,
                explored=offer.explored,
                by=champion,
            )
            if arm.name == CONTROL:
                return policy_choice, CONTROL if champion is None else None
            if not self._plugins.listening["decide"]:
                return policy_choice, None
            request = DecisionRequest(
                run_id=handle.run_id,
                rollout_id=handle.rollout_id,
                point=point,
                options=offer.choosable(),
                context={**context},
                default=offer.choosable_default(),
            )
            answer = self._plugins.decide(request)
            if answer is None:
                return policy_choice, None
            index = offer.names.index(answer.option)
            return policy_choice.with_answer(index, answer.probability), None
        except Exception as error:  # noqa: BLE001  # counted by the gate; the row says why
            self._guard.record_failure(Kind.DECISION, error)
            return None, f"error: {type(error).__name__}"
