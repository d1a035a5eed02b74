"""What a store can do with what happened: rollouts with their spans, decisions, rewards."""

from collections.abc import Sequence
from typing import Protocol

from tau_live.rollouts import (
    Attempt,
    AttemptStatus,
    Decision,
    Reason,
    Reward,
    Rollout,
    RolloutStatus,
    Span,
)
from tau_live.store.records import (
    Amendment,
    LearnableRollout,
    Page,
    Passed,
    RolloutQuery,
    Shadowed,
    Totals,
)


class RunRecord(Protocol):
    """What is told of rollouts, attempts and spans, and what is asked meanwhile."""

    def begin_rollout(self, rollout: Rollout) -> bool:
        """Store a rollout as it is given; ``False`` if the id is already there."""
        ...

    def set_status(
        self,
        rollout_id: str,
        new: RolloutStatus,
        *,
        at: float,
        reason: Reason | None = None,
        error_type: str | None = None,
        worker_id: str | None = None,
    ) -> bool:
        """Move a rollout on, if its lifecycle allows it; ``False`` if it was there already.

        Compare and set in one statement. An end sets ``ended_at`` once, and a reason where none
        is given; a failed rollout that goes on has neither any more. A worker that does not hold
        the rollout is refused. A rollout that was once enqueued is in the queue while it is
        queuing or requeuing, and only then. No attempt outlives its rollout: an end or a requeue
        ends those that are open, as succeeded or else as failed.

        Raises:
            UnknownError: No such rollout is stored.
            InvalidTransitionError: It cannot become ``new`` from where it stands.
        """
        ...

    def amend_rollout(self, rollout_id: str, told: Amendment) -> None:
        """Fill in what a late start tells, or a later attempt's end. Raises: UnknownError.

        What is already known stays, but for metadata that is told ``later``, and a start that
        was earlier.
        """
        ...

    def take_over(self, rollout_id: str, owner: str | None) -> None:
        """Let another process own a rollout, which it goes on with. Raises: UnknownError."""
        ...

    def begin_attempt(self, attempt: Attempt) -> bool:
        """Store an attempt; ``False`` if its number is already there."""
        ...

    def set_attempt_status(
        self,
        rollout_id: str,
        number: int,
        new: AttemptStatus,
        *,
        at: float,
        error_message: str | None = None,
    ) -> bool:
        """Move an attempt on; as ``set_status``."""
        ...

    def add_spans(self, spans: Sequence[Span]) -> int:
        """Store spans as ``add_span`` does, and return how many were new or closed an open one.

        One pass for each attempt, so that a batch costs little more than its rows.

        Raises:
            UnknownError: An attempt is not stored; then none of the spans is.
        """
        ...

    def close_spans(self, rollout_id: str, number: int, *, status: str, at: float) -> int:
        """End every open span of an attempt; return how many there were."""
        ...

    def rollout(self, rollout_id: str) -> Rollout:
        """Return one rollout. Raises: UnknownError."""
        ...

    def find_rollout(self, rollout_id: str) -> Rollout | None:
        """Return one rollout, or ``None``."""
        ...

    def attempts(
        self,
        rollout_id: str,
        *,
        newest: int | None = None,
        unended: bool = False,
        execution: str | None = None,
    ) -> list[Attempt]:
        """Return attempts of a rollout by number.

        Args:
            rollout_id: Of the rollout.
            newest: How many of them, those with the highest numbers; ``None`` returns all.
            unended: Whether to return only those that have not ended.
            execution: Which execution they belong to, resumed or not; ``None`` is any.
        """
        ...

    def spans(self, rollout_id: str, number: int | None = None) -> list[Span]:
        """Return the spans of a rollout (or of one attempt) in the order of arrival."""
        ...


class RolloutLog(RunRecord, Protocol):
    """Rollouts, attempts and spans."""

    def add_span(self, span: Span) -> bool:
        """Store a span, or the end of one that is open; ``False`` if it was there already.

        A span is a heartbeat of its attempt and moves a preparing attempt (and its rollout) to
        running. The same span id again within the attempt is ignored and counted
        (``duplicate_spans``), except that a closed form of an open span closes it.
        """
        ...

    def ids_beginning_with(self, beginning: str, *, limit: int) -> list[str]:
        """Return the ids of up to ``limit`` rollouts that begin so, in order."""
        ...

    def counts_by_status(self) -> dict[RolloutStatus, int]:
        """Return how many rollouts have each status; costs the same however many there are."""
        ...

    def query(self, query: RolloutQuery) -> Page:
        """Return the rollouts that are asked for, and how many there are in all."""
        ...

    def open_rollouts(self, owner: str) -> list[str]:
        """Return the ids of the rollouts that this process left running."""
        ...

    def owners(self) -> list[str]:
        """Return every process that owns a rollout which is not at its end."""
        ...

    def wait_for_rollouts(
        self, ids: Sequence[str], *, statuses: Sequence[RolloutStatus], timeout_s: float
    ) -> list[Rollout]:
        """Return those of ``ids`` that have one of ``statuses``, as soon as all of them have.

        After ``timeout_s`` it returns those that are there by then. Works across processes.
        """
        ...


class DecisionRecord(Protocol):
    """What is told of decisions."""

    def add_decision(self, decision: Decision, *, assigned: bool = True) -> bool:
        """Store a decision; ``False`` if its place in the attempt is taken.

        The same place again is counted (``duplicate_decisions``). A decision that comes after
        its rollout became ready joins it at the rollout's ``ready_seq``; where its point has
        already learned beyond that, it is kept, counted (``late_decisions``) and not learned from.

        Args:
            decision: With the arm that decided it.
            assigned: Whether that arm was assigned here, so that what becomes of it is evidence.

        Raises:
            UnknownError: The attempt is not stored.
        """
        ...


class DecisionLog(DecisionRecord, Protocol):
    """Decisions."""

    def decision(self, decision_id: str) -> Decision:
        """Return one decision. Raises: UnknownError."""
        ...

    def decisions(self, rollout_id: str) -> list[Decision]:
        """Return the decisions of a rollout in the order of their places."""
        ...

    def shadow_points(self) -> list[str]:
        """Return every decision point that has decisions in shadow, sorted."""
        ...

    def shadowed(self, point: str, *, limit: int) -> list[Shadowed]:
        """Return the newest decisions in shadow at a point, the newest first."""
        ...


class RewardRecord(Protocol):
    """What is told of rewards, and of what they make ready for learning."""

    def add_reward(self, reward: Reward) -> str:
        """Store a reward; return ``new``, ``same``, ``replaced`` or ``older``.

        One (target, name, source, key) is one reward. The same value again is ``same``; another
        value replaces it if its ``at`` is not earlier, and then has arrived last. Both that and
        ``older`` are counted (``conflicting_rewards``).
        """
        ...

    def rewards(self, rollout_id: str) -> list[Reward]:
        """Return the rewards of a rollout and of its decisions, in the order of arrival."""
        ...

    def mark_ready(
        self, rollout_id: str, *, total_reward: float, run_reward: float | None = None
    ) -> bool:
        """Give a rollout its place among those that may be learned from; ``False`` if it has one.

        Its ``ready_seq`` is the next of the store's; a rollout that has one keeps it, but takes
        the new ``total_reward``, and of it the ``run_reward`` (``None``: all of it).
        """
        ...

    def await_reward(self, rollout_id: str, *, until: float) -> None:
        """Note that a finished rollout waits for its reward, and until when.

        One that is ready does not wait.

        Raises:
            UnknownError: No such rollout is stored.
        """
        ...

    def leave_out(self, rollout_id: str, reason: str | None) -> None:
        """Note why nothing is learned of a rollout; ``None`` if that is no longer so.

        The counter ``left_out_<reason>`` tells of how many that is so now.
        """
        ...


class RewardLog(RewardRecord, Protocol):
    """Rewards, joined by id whenever they come, and what they make ready for learning."""

    def redate(self, *, before: float, after: float) -> int:
        """Let rollouts wait on whose time a clock has passed over that was set; return how many.

        Put forward: those whose wait would have ended in between end theirs as much later. Put
        back: those that ended in what is the future now have ended ``after``.
        """
        ...

    def overdue(self, now: float, *, limit: int) -> list[str]:
        """Return the finished rollouts whose wait is over, oldest first; they wait no longer."""
        ...

    def mean_reward(self, *, of: int, newest: bool) -> float | None:
        """Return the mean total of the first or last ``of`` rollouts that became ready."""
        ...

    def newest_missing(self, *, of: int) -> tuple[int, int]:
        """Return of how many of the newest settled rollouts the reward is missing, and of how many.

        Those that began after the oldest that still waits are not counted: of them only the
        quick rewards are known.

        Args:
            of: So many of the newest are looked at.
        """
        ...

    def newest_totals(self, within: tuple[float, float] | None, *, of: int, without: str) -> Totals:
        """Return what the last ``of`` rollouts that became ready were worth.

        Args:
            within: The lowest and highest that a rollout can be worth; ``None`` if nobody said.
            of: So many of the newest are looked at.
            without: Rollouts with a reward from this source are left out.
        """
        ...

    def newest_by_name(self, *, of: int, without: str) -> dict[str, tuple[float, float]]:
        """Return the lowest and highest of the last ``of`` numbers that were given, by name.

        Args:
            of: So many of the newest are looked at.
            without: Rewards from this source are left out.
        """
        ...

    def waiting(self, *, limit: int | None = None) -> int:
        """Return how many finished rollouts wait for their reward, counted up to ``limit``."""
        ...

    def newest_at(self) -> float | None:
        """Return when the newest reward was given, in epoch seconds; ``None`` before the first."""
        ...

    def became_ready(self) -> int:
        """Return how many rollouts have become ready so far; those forgotten since count too."""
        ...

    def ready_points(self) -> list[str]:
        """Return every decision point that has decisions in ready rollouts, sorted."""
        ...

    def ready_count(
        self, point: str, *, after: int, upto: int | None = None, limit: int | None = None
    ) -> int:
        """Return how many ready rollouts behind ``after`` have a decision at ``point``.

        Only those up to ``upto``, and counted no further than ``limit``. An empty point counts
        the ready rollouts without any decision.
        """
        ...

    def ready_rollouts(
        self, point: str, *, after: int, limit: int, newest: bool = False, upto: int | None = None
    ) -> list[LearnableRollout]:
        """Return ready rollouts with ``after < ready_seq <= upto``, by ``ready_seq``.

        With their decisions at every point. ``newest`` takes the last ``limit`` of them instead
        of the first (still in ascending order). An empty point asks for those without a decision.
        """
        ...

    def passed(
        self, point: str, *, after: int, limit: int, newest: bool = False, upto: int | None = None
    ) -> Passed:
        """Return what there is to say of ``ready_rollouts`` without reading any of them."""
        ...
