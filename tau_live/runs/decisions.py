"""One decision: the host's offer is read, an option is chosen, the decision is reported."""

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from tau_live.choices import Choice
from tau_live.collection.inbox import Inbox
from tau_live.collection.leaving import Run
from tau_live.deciding.decider import Decided
from tau_live.envelope import Event
from tau_live.gate import GateKeeper, Kind
from tau_live.guard import Guard
from tau_live.handed.masks import Mask, mask_of, own_choice
from tau_live.handed.offers import Offer
from tau_live.handed.values import Listed, listed, text_of
from tau_live.runs.chooser import Chooser
from tau_live.runs.foreign_defaults import ForeignDefaults
from tau_live.runs.handles import RunHandle, Unsettled
from tau_live.runs.run_events import RunEvents, decision_id


class Asked(NamedTuple):
    """What a host asks at a decision point, as it hands it over; see ``tau_live.decide``.

    Attributes:
        point: The place where it chooses.
        options: What may be chosen.
        context: What is known about the situation.
        default: The host's own choice.
        allowed: Those of the options that may be chosen this time; ``None`` for all.
        exploit_only: Those that are unsafe to explore.
        start: The share of runs that the learner decides at first where an adapter acts, and from
            which it climbs on evidence; ``None`` for an explicit decision.
    """

    point: object
    options: object
    context: object
    default: object
    allowed: object
    exploit_only: object
    start: float | None


class Decisions:
    """Answers what hosts ask, from memory, within the deadline or with the host's own choice.

    Args:
        deadline_ms: A decision for which its thread worked longer is recorded, and not served.
            Waiting for the processor does not count: where that is scarce the host waits for it
            whatever is decided, and has lost nothing by the better choice.
        gate: Told of each that was served.
        guard: The border to the host.
        chooser: Who chooses.
        inbox: Where what was decided goes.
        events: What makes events of runs.
        count: Counts by name what was refused or cut.
    """

    def __init__(  # noqa: PLR0913  # its parts, all keyword-only but one
        self,
        deadline_ms: float,
        *,
        gate: GateKeeper,
        guard: Guard,
        chooser: Chooser,
        inbox: Inbox,
        events: RunEvents,
        count: Callable[[str, int], None],
    ) -> None:
        self._deadline_ms = deadline_ms
        self._gate = gate
        self._guard = guard
        self._chooser = chooser
        self._inbox = inbox
        self._events = events
        self._count = count
        self._foreign = ForeignDefaults(count)

    def choice(
        self,
        handle: RunHandle,
        asked: Asked,
        *,
        recorded: bool,
        unsettled: list[Unsettled] | None = None,
    ) -> Choice:
        """Choose one of the options, or return the host's own choice whenever in doubt.

        Args:
            handle: The run; of this process, and maybe over.
            asked: What the host asks.
            recorded: Whether what happens in the run is recorded now.
            unsettled: A decision is appended to it, to be told when it is known what was applied;
                ``None`` tells it at once.
        """
        chosen: Choice | None = None
        offered = listed(asked.options, asked.default)
        mask = mask_of(asked.allowed, asked.exploit_only)
        if not offered.readable:
            self._count("options_refused", 1)
        elif not mask.readable:
            self._count("masks_refused", 1)
        elif recorded and not self._inbox.closed and not handle.ended:
            with self._guard.catching(Kind.DECISION):
                chosen = self._chosen(handle, asked, offered, mask, unsettled=unsettled)
        else:
            self._count("decisions_not_recorded", 1)
        return chosen or own_choice(offered.originals, asked.default, mask)

    def _chosen(
        self,
        handle: RunHandle,
        asked: Asked,
        offered: Listed,
        mask: Mask,
        *,
        unsettled: list[Unsettled] | None,
    ) -> Choice | None:
        point = text_of(asked.point)
        has_control = asked.default is not None
        arm = self._chooser.arm(handle, point, start=asked.start, has_control=has_control)
        began, worked = time.perf_counter(), time.thread_time()
        offer = self._offer(offered, asked.default, mask)
        if offer is None:
            return None
        context = self._events.context(asked.context)
        ordinal = handle.decided = next(handle.ordinals)
        id_ = decision_id(handle, ordinal)
        self._events.give(handle, id_)
        decided, why_not = self._chooser.chosen(
            arm, handle, id_, point=point, offer=offer, context=context
        )
        elapsed_ms = (time.perf_counter() - began) * 1e3
        if why_not is None and (time.thread_time() - worked) * 1e3 > self._deadline_ms:
            why_not = "deadline"
            self._count("decisions_past_deadline", 1)
        made: Callable[..., Event] = partial(
            self._events.decided, handle, ordinal, stamp=self._events.stamp(), point=point,
            offer=offer._replace(originals=()),  # the host's own objects stay in its thread
            context=context, decided=decided, latency_us=elapsed_ms * 1e3, arm=arm,
        )  # fmt: skip
        if has_control and offer.default is None:
            made = partial(self._made_of_foreign, point, text_of(asked.default), offer.names, made)
        served = decided if why_not is None else None
        self._tell(handle, made, offer, served=served, why_not=why_not, unsettled=unsettled)
        if served is None:
            own = own_choice(offer.originals, asked.default, mask).option
            version = decided.version if decided else 0
            return Choice(own, None, "default", id_, version, handle.rollout_id)
        self._gate.succeeded(Kind.DECISION, at=time.time())
        option = offer.originals[served.place]
        return Choice(option, served.propensity, "policy", id_, served.version, handle.rollout_id)

    def _offer(self, offered: Listed, default: object, mask: Mask) -> Offer | None:
        """Return what may be chosen, with plain features; ``None`` if it is nothing."""
        offer = self._events.offer(offered, default, mask=mask)
        if offer is None:
            masked = bool(offered.originals)
            nothing = "decisions_without_an_allowed_option" if masked else "decisions_of_nothing"
            self._count(nothing, 1)
            return None
        if offer.cut:
            self._count("options_cut", offer.cut)
        if offer.unread:
            self._count("features_cut", offer.unread)
        return offer

    def _tell(  # what is told, and of what
        self,
        handle: RunHandle,
        made: Callable[..., Event],
        offer: Offer,
        *,
        served: Decided | None,
        why_not: str | None,
        unsettled: list[Unsettled] | None,
    ) -> None:
        """Queue what makes the event, now or once it is known what was applied."""
        applied = offer.own if served is None else served.place
        tell = partial(self._put_made_by, handle.run)
        if unsettled is None:
            tell(partial(made, applied=applied, why_not=why_not))
        else:
            unsettled.append(Unsettled(tell, made, applied=applied, why_not=why_not))

    def _made_of_foreign(
        self,
        point: str,
        default: str,
        names: tuple[str, ...],
        made: Callable[..., Event],
        **known: int | str | None,
    ) -> Event:
        """Return the event of a decision whose default was not offered, which somebody made."""
        self._foreign.note(point, default, names)
        return made(**known)

    def _put_made_by(self, run: Run, made: Callable[[], Event]) -> bool:
        return self._inbox.put_later((made, run))
