"""A batch of events: its rollouts are loaded, and their changes written, all at once.

Each statement releases the interpreter and, beside a thread that computes all the time, waits five
milliseconds (Python's switch interval) to get it back. So a batch is a few statements for hundreds
of runs, whether they began in it or before; the effect of an event on a run is decided in
``lifecycle``. It is used inside a transaction that has the write lock.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache, partial
from itertools import chain, repeat
from math import inf

import msgspec
from msgspec.structs import replace

from tau_live.core.errors import OddRowError, StoreError, UnknownError
from tau_live.core.events import PromptArm
from tau_live.core.reasons import LEFT_OUT, WhyNot
from tau_live.core.records import (
    Amendment,
    Attempt,
    AttemptStatus,
    Decision,
    Reason,
    Reward,
    Rollout,
    RolloutConfig,
    RolloutStatus,
    Span,
    WholeRollout,
    attempt_id_of,
)
from tau_live.core.sanitize import Limits, plain
from tau_live.rl.throttle import yield_between, yield_gil
from tau_live.store.records import RolloutCopy
from tau_live.store.sql.connection import (
    Connection,
    Parameters,
    Row,
    Value,
    json_of,
    next_number,
)
from tau_live.store.sql.lifecycle import (
    WAITING,
    RewardsState,
    RolloutState,
    SpanState,
    key_of,
)
from tau_live.store.sql.operations import COUNT
from tau_live.store.sql.rows import (
    ATTEMPT,
    INSERT_DECISION,
    INSERT_REWARD,
    INSERT_ROLLOUT,
    attempt_of,
    report,
    reward_of,
    rollout_of,
    sound,
    span_of,
    values_of_decision,
    values_of_reward,
    values_of_rollout,
)

OUTPUT = Limits(items=100_000, nodes=1_000_000, chars=10_000_000, total_chars=100_000_000)
"""How much is kept of an output that is no JSON data."""

NEAR = 32
"""How many of the newest attempts of a rollout are loaded with it."""

SIZES = (1, 8, 64, 512)
"""How many rows one statement looks up; few sizes, so that SQLite caches the statements."""

_ATTEMPT = f"""
{ATTEMPT}, (
    select max(ordinal) from decisions
    where decisions.rollout_seq = attempts.rollout_seq and decisions.attempt = attempts.number
) as decided
"""

LOAD = f"""
select rollouts.*, awaiting.until,
    exists (select 1 from rewards where rewards.rollout_id = rollouts.rollout_id) as rewarded,
    (select json_group_array(point) from arms where arms.rollout_seq = seq) as assigned,
    {_ATTEMPT}
from rollouts
left join awaiting on awaiting.rollout_seq = rollouts.seq
left join attempts on attempts.rollout_seq = rollouts.seq
    and attempts.number > rollouts.attempt_count - {NEAR}
where rollouts.rollout_id in ({{}})
"""

REWARDED = "select distinct rollout_id from rewards where rollout_id in ({})"

ATTEMPTS = f"select {_ATTEMPT} from attempts where rollout_seq = ?"

OPEN_ATTEMPTS = f"{ATTEMPTS} and status in ('preparing', 'running')"

SPANS = "select * from recorded_spans where rollout_seq = ? order by seq"

OPEN_SPANS = """
select * from recorded_spans
where rollout_seq = ? and attempt = ? and ended_at is null order by seq
"""

SPANS_AT = """
with wanted (rollout_seq, attempt, span_id) as (values {})
select recorded_spans.* from wanted join recorded_spans
    on recorded_spans.rollout_seq = wanted.rollout_seq
    and recorded_spans.attempt = wanted.attempt and recorded_spans.span_id = wanted.span_id
"""

REWARD = """
rollout_id = ? and decision_id = ? and name = ? and source = ? and key = ?
"""

DELETE_REWARD = f"delete from rewards where {REWARD}"

DATE_REWARD = f"update rewards set at = ? where {REWARD}"

POINTS = "select distinct rollout_seq, point from decisions where rollout_seq in ({})"

LEARNED = """
select (select coalesce(max(last_ready), 0) from updates where point = :point) as learned,
    exists (
        select 1 from ready_points where rollout_seq = :rollout_seq and point = :point
    ) as placed
"""

WRITE_ATTEMPT = """
insert into attempts (
    rollout_seq, number, status, execution, worker_id, started_at, last_heartbeat_at, ended_at,
    error_message, timeout_at, unresponsive_s, owner
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (rollout_seq, number) do update set
    owner = excluded.owner,
    status = excluded.status, worker_id = excluded.worker_id,
    last_heartbeat_at = excluded.last_heartbeat_at,
    ended_at = excluded.ended_at, error_message = excluded.error_message
"""

WRITE_SPAN = """
insert into recorded_spans (
    rollout_seq, attempt, span_id, parent_span_id, kind, name, status, attributes, started_at,
    ended_at, reported
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (rollout_seq, attempt, span_id) do update set
    parent_span_id = excluded.parent_span_id, status = excluded.status,
    attributes = excluded.attributes, started_at = excluded.started_at,
    ended_at = excluded.ended_at, reported = excluded.reported
"""

ASSIGN = "insert into arms (rollout_seq, point, arm, share, agreed) values (?, ?, ?, ?, ?)"

WRITE_READY = """
insert into ready_points (rollout_seq, point, ready_seq) values (?, ?, ?)
on conflict (rollout_seq, point) do nothing
"""

DELETE_PLACE = "delete from ready_points where rollout_seq = ? and point = ''"

DELETE_AWAITING = "delete from awaiting where rollout_seq = ?"

DELETE_QUEUE = "delete from queue where rollout_seq = ?"

WRITE_AWAITING = """
insert into awaiting (rollout_seq, until) values (?, ?)
on conflict (rollout_seq) do update set until = excluded.until
"""

WRITE_QUEUE = """
insert into queue (rollout_seq, at, name, due_at) values (?, ?, ?, ?)
on conflict (rollout_seq) do nothing
"""

INSERT_NAME = """
insert into names (name_id, rollout_seq) values (?, ?)
on conflict (name_id, rollout_seq) do nothing
"""

NAMED = """
select rollout_id, parent_id from names join rollouts on seq = rollout_seq
where name_id = ? order by seq
"""

NEWEST = 64
"""How many runs of a session are searched for hosts that share it."""

OUTERMOST = """
select host, rollout_id from rollouts as one
where session_id = :session_id and (:host is null or host = :host)
and not exists (
    select 1 from rollouts as outer_one
    where outer_one.rollout_id = one.parent_id and outer_one.session_id = :session_id
)
order by seq desc limit :limit
"""

FREE_WORKER = """
update workers set active_rollout_id = null, active_attempt = null, status = ?, idle_at = ?
where active_rollout_id = ?
"""

OWN = (WRITE_ATTEMPT, WRITE_SPAN, INSERT_DECISION, ASSIGN, WRITE_READY)
"""The statements for a rollout's own rows, each after the ones it refers to."""

_TEXTS = msgspec.json.Decoder(list[str])


class Batch(AbstractContextManager["Batch"]):
    """A batch of events; its changes are written when it is left without an error.

    Args:
        connection: A connection in a transaction that has the write lock.
        ids: All ids of the rollouts that it may concern; others are loaded when they are needed.
    """

    def __init__(self, connection: Connection, ids: Collection[str] = ()) -> None:
        self._connection = connection
        self._states: dict[str, RolloutState | None] = {}
        self._odd: dict[str, OddRowError] = {}
        self._rewards: dict[str, RewardsState] = {}
        self._names: dict[str, dict[str, None]] = {}
        self._counts: Counter[str] = Counter()
        self._last_ready = 0
        self._load(ids)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._write()

    def begin_rollout(self, rollout: Rollout) -> bool:
        """Store a new rollout; ``False`` if its id is already stored."""
        rollout_id = rollout.rollout_id
        if self._find(rollout_id) is not None:
            return False
        self._begin(rollout)
        return True

    def add_whole(self, whole: WholeRollout) -> bool:
        """Store a rollout that has ended and of which nothing is stored yet, without settling it.

        ``False`` if anything of it is known, even a reward: then it has to be stored step by step.
        """
        rollout_id = whole.rollout.rollout_id
        if self._find(rollout_id) is not None or self.rewards(rollout_id):
            return False
        state = self._begin(whole.rollout)
        state.attempts[whole.attempt.number] = whole.attempt
        state.changed_attempts[whole.attempt.number] = None
        state.whole.add(whole.attempt.number)
        for decision in whole.decisions:
            state.add_decision(decision, assigned=True)
        for reward in whole.rewards:
            self.add_reward(reward)
        return True

    def take_in(self, copy: RolloutCopy) -> bool:
        """Store what another store holds of a rollout; ``False`` if all of it is stored here.

        Its times stay as they are, its places are given here. Rewards may be of any rollout. What
        of it came before stays; a rollout that was enqueued here moves as its worker moves it.
        """
        changed = False
        if copy.rollout is not None:
            known = self._find(copy.rollout_id)
            state = known or self._begin(copy.rollout)
            self._take_rows(state, copy)
            if known and copy.rollout.attempt_count >= known.rollout.attempt_count:
                known.catch_up(copy.rollout)
            changed = state.is_changed()
            for name in copy.names:
                self.add_name(name, copy.rollout_id)
        kinds = {self.add_reward(reward) for reward in copy.rewards}
        return changed or not kinds.isdisjoint({"new", "replaced"})

    def forgotten(self, ids: Iterable[str]) -> dict[str, float]:  # noqa: ARG002  # a file keeps none
        """Return when those rollouts of ``ids`` were deleted that were, in epoch seconds.

        Only what others have copies of keeps that, a database: for 30 days, or until the rollout
        is stored again.
        """
        return {}

    def _take_rows(self, state: RolloutState, copy: RolloutCopy) -> None:
        """Add the rows of a copy that are not here to its rollout."""
        if state.seq:
            self.attempts(copy.rollout_id)  # loads all of them, and all spans
            self.spans(copy.rollout_id)
        state.take_attempts(copy.attempts)
        state.take_spans(copy.spans)
        for decision in copy.decisions:
            if not self._has_decision(state, decision.attempt, decision.ordinal):
                self.add_decision(decision, assigned=False)
        state.take_arms(copy.arms)

    def put_off(self, rollout_id: str, by_s: float) -> None:
        """Let a rollout that waits for its reward wait longer."""
        state = self._state(rollout_id)
        if state.until is not None:
            state.until += by_s

    def set_status(  # noqa: PLR0913  # keyword-only but for two
        self,
        rollout_id: str,
        new: RolloutStatus,
        *,
        at: float,
        reason: Reason | None = None,
        error_type: str | None = None,
        error_message: str | None = None,
        due_at: float | None = None,
    ) -> bool:
        """Move a rollout on, if its lifecycle allows it; ``False`` if it was there already.

        An end sets ``ended_at`` once, and a default reason; a failed rollout that goes on has
        neither any more. A rollout that was once enqueued is in the queue while it is queuing or
        requeuing, and only then. No attempt outlives its rollout: an end or a requeue ends those
        that are open, as succeeded or else as failed, with the error message.

        Raises:
            UnknownError: No such rollout is stored.
            InvalidTransitionError: Its status cannot become ``new``.
        """
        if due_at is not None and new not in WAITING:
            raise ValueError(f"due_at is for a status that waits, got {new!r}")
        state = self._state(rollout_id)
        if not state.may_move(new):
            return False
        if state.floor > 0:
            self._take_attempts(state, self._connection.rows(OPEN_ATTEMPTS, (state.seq,)))
        state.move(
            new, at=at, reason=reason, error_type=error_type, error_message=error_message,
            due_at=due_at,
        )  # fmt: skip
        return True

    def amend_rollout(self, rollout_id: str, amendment: Amendment) -> None:
        """Fill in fields from a late start, or a later attempt's end. Raises: UnknownError.

        Known fields stay, except for metadata that is amended ``later``, and an earlier start.
        """
        self._state(rollout_id).amend(amendment)

    def take_over(self, rollout_id: str, owner: str | None) -> None:
        """Make another process the owner of a rollout. Raises: UnknownError."""
        state = self._state(rollout_id)
        state.rollout = replace(state.rollout, owner=owner)

    def attempt(self, rollout_id: str, number: int) -> Attempt:
        """Return one attempt. Raises: UnknownError."""
        return self._state_of_attempt(rollout_id, number)[1]

    def begin_attempt(self, attempt: Attempt) -> bool:
        """Store an attempt; ``False`` if its number is already stored."""
        state = self._state(attempt.rollout_id)
        if self._attempt(state, attempt.number) is not None:
            return False
        state.begin_attempt(attempt)
        return True

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
        state, attempt = self._state_of_attempt(rollout_id, number)
        return state.move_attempt(attempt, new, at=at, error=error_message)

    def recover(self, rollout_id: str, number: int) -> bool:
        """Let an unresponsive attempt go on; ``False`` if that does not count any more."""
        state, attempt = self._state_of_attempt(rollout_id, number)
        if attempt.status is not AttemptStatus.UNRESPONSIVE or not state.may_recover(attempt):
            return False
        state.recover(attempt)
        return True

    def set_output(self, rollout_id: str, output: object) -> None:
        """Store the result of a rollout; of what is no JSON data, as much as can be stored.

        A text of a model may hold half a character: the work must not be lost for that.
        """
        state = self._state(rollout_id)
        try:
            state.output = None if output is None else json_of(output)
        except StoreError:
            state.output = json_of(plain(output, limits=OUTPUT))
        read = None if state.output is None else msgspec.json.decode(state.output)
        state.rollout = replace(state.rollout, output=read)

    def touch(
        self,
        rollout_id: str,
        number: int,
        *,
        at: float,
        worker_id: str | None,
        owner: str | None = None,
    ) -> bool:
        """Record a heartbeat; ``False`` if the attempt is over, another worker's or unknown."""
        state = self._find(rollout_id)
        attempt = None if state is None else self._attempt(state, number)
        if state is None or attempt is None:
            return False
        attempt = state.adopt(attempt, worker_id, owner=owner)
        if attempt.worker_id != worker_id:
            return False
        return state.touch(attempt, at=at)

    def is_queued(self, rollout_id: str) -> bool:
        """Return whether a rollout was ever put into the queue."""
        return self._state(rollout_id).rollout.queue is not None

    def add_spans(self, spans: Sequence[Span], *, at: float | None = None) -> int:
        """Store spans, or their other ends; return how many were new or completed one.

        A span is a heartbeat of its attempt and moves a preparing attempt (and its rollout) to
        running. The same span id again within the attempt is ignored and counted
        (``duplicate_spans``), except that a closed form of an open span closes it.

        Args:
            spans: The spans.
            at: Epoch seconds at which they arrived, a sign of life; ``None`` takes their own
                times, as of a recording.

        Raises:
            UnknownError: An attempt is not stored; then none of the spans is.
        """
        by_rollout: dict[str, list[Span]] = {}
        for span in spans:
            by_rollout.setdefault(span.rollout_id, []).append(span)
        self._load(by_rollout)
        states = {}
        for rollout_id, own in by_rollout.items():
            for number in {span.attempt for span in own}:
                states[rollout_id], _ = self._state_of_attempt(rollout_id, number)
        self._load_spans([(states[id_], own) for id_, own in by_rollout.items()])
        added = sum(states[id_].add_spans(own, at=at) for id_, own in by_rollout.items())
        if added < len(spans):
            self._counts["duplicate_spans"] += len(spans) - added
        return added

    def close_spans(self, rollout_id: str, number: int, *, status: str, at: float) -> int:
        """End every open span of an attempt; return how many there were."""
        state = self._find(rollout_id)
        if state is None:
            return 0
        if not state.all_spans and number not in state.whole:
            rows = self._connection.rows(OPEN_SPANS, (state.seq, number))
            self._take_spans({state.seq: state}, rows)
        return state.close_spans(number, status=status, at=at)

    def rollout(self, rollout_id: str) -> Rollout:
        """Return one rollout. Raises: UnknownError."""
        return self._state(rollout_id).rollout

    def find_rollout(self, rollout_id: str) -> Rollout | None:
        """Return one rollout, or ``None``."""
        state = self._find(rollout_id)
        return None if state is None else state.rollout

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
            rollout_id: The rollout.
            newest: How many, those with the highest numbers; ``None`` returns all.
            unended: Whether to return only those that have not ended.
            execution: The execution they belong to, resumed or not; ``None`` is any.
        """
        state = self._find(rollout_id)
        if state is None:
            return []
        attempts = state.matching_attempts(newest=newest, unended=unended, execution=execution)
        if attempts is None:
            self._take_attempts(state, self._connection.rows(ATTEMPTS, (state.seq,)))
            state.floor = 0
            attempts = state.matching_attempts(newest=newest, unended=unended, execution=execution)
        return attempts or []

    def spans(self, rollout_id: str, number: int | None = None) -> list[Span]:
        """Return the recorded spans of a rollout (or of one attempt) in the order of arrival."""
        state = self._find(rollout_id)
        if state is None:
            return []
        if not state.all_spans:
            recent, state.spans = state.spans, {}
            self._take_spans({state.seq: state}, self._connection.rows(SPANS, (state.seq,)))
            state.spans |= recent
            state.all_spans = True
        return [
            span.span
            for (attempt, _), span in state.spans.items()
            if number is None or attempt == number
        ]

    def add_decision(
        self, decision: Decision, *, assigned: bool = True, prompts: Sequence[PromptArm] = ()
    ) -> bool:
        """Store a decision; ``False`` if its ordinal in the attempt is taken, which is counted.

        With ``assigned``, the outcome of its arm is evidence, and so are those of the prompts that
        were offered or withheld. A decision that comes after its
        rollout became ready gets the rollout's ``ready_seq`` at its point. If that point has
        learned beyond it already, the decision is kept, never learned from, and counted
        (``late_decisions``).
        """
        state, attempt = self._state_of_attempt(decision.rollout_id, decision.attempt)
        if self._has_decision(state, decision.attempt, decision.ordinal):
            self._counts["duplicate_decisions"] += 1
            return False
        ready = state.rollout.ready_seq
        if ready is not None and decision.point not in state.places:
            known: Parameters = {"point": decision.point, "rollout_seq": state.seq}
            [row] = self._connection.rows(LEARNED, known)
            if not row["placed"] and ready <= row["learned"]:
                self._counts["late_decisions"] += 1
        state.add_decision(decision, assigned=assigned)
        if assigned:
            state.add_prompts(prompts)
        if state.rollout.queue is not None:  # a sign of life of a claimed attempt
            state.touch(attempt, at=decision.at)
        return True

    def add_reward(self, reward: Reward) -> str:
        """Store a reward; return ``new``, ``same``, ``replaced`` or ``older``.

        One (target, name, source, key) is one reward. The same value again is ``same``; another
        value replaces it if its ``at`` is not earlier. Both that and ``older`` are counted
        (``conflicting_rewards``).

        The order of arrival does not matter, except between values of the very same time, of
        which the later to arrive is kept. A replacement gets a new ``seq``, so that readers of all
        rewards after a ``seq`` see the correction too.
        """
        state, key = self._rewards_of(reward.rollout_id), key_of(reward)
        if not state.whole and key not in state.rewards:
            row = self._connection.row(
                f"select * from rewards where {REWARD}", (reward.rollout_id, *key)
            )
            if row is not None:
                state.rewards[key] = reward_of(row)
        if reward.decision_id == "":
            reward = replace(reward, decision_id=None)
        kind = state.add(key, reward)
        if kind in {"replaced", "older"}:
            self._counts["conflicting_rewards"] += 1
        return kind

    def rewards(self, rollout_id: str) -> list[Reward]:
        """Return the rewards of a rollout and of its decisions, in the order of arrival."""
        state = self._rewards_of(rollout_id)
        if not state.whole:
            rows = self._connection.rows(
                "select * from rewards where rollout_id = ? order by seq", (rollout_id,)
            )
            state.load({key_of(reward): reward for reward in sound(rows, reward_of)})
        return [*state.rewards.values()]

    def mark_ready(
        self, rollout_id: str, *, total_reward: float, run_reward: float | None = None
    ) -> bool:
        """Give a rollout its ``ready_seq``, by which it is learned from; ``False`` if it has one.

        One that has a mode, or that arrived late, never gets a number: the live learner takes none
        of its kind. One that has a number keeps it, but takes the new ``total_reward``, and of it
        the ``run_reward`` (``None``: all of it). The number comes from a row of its own, not from
        the largest in use: retention may have deleted that one, and a number used twice would lie
        behind a watermark.
        """
        state = self._state(rollout_id)
        never = state.rollout.mode is not None or state.left_out == WhyNot.ARRIVED_LATE
        if never or state.rollout.ready_seq is not None:
            state.earn(total_reward, run_reward=run_reward, ready_seq=None)
            return False
        if not state.all_points:
            self._load_points()
        state.earn(total_reward, run_reward=run_reward, ready_seq=self._next_ready(state))
        return True

    def await_reward(self, rollout_id: str, *, until: float) -> None:
        """Record until when a finished rollout waits for its reward, in epoch seconds.

        One that is ready already does not wait.
        """
        state = self._state(rollout_id)
        if state.rollout.ready_seq is None:
            state.until = until

    def leave_out(self, rollout_id: str, reason: str | None) -> None:
        """Record why a rollout is left out of learning; ``None`` if it no longer is.

        One that arrived late is for ever.
        The counter ``left_out_<reason>`` holds the current number of such rollouts.
        """
        state = self._find(rollout_id)
        if state is None or state.left_out in {reason, WhyNot.ARRIVED_LATE}:
            return
        for counted, by in ((state.left_out, -1), (reason, 1)):
            if counted is not None:
                self._counts[f"{LEFT_OUT}{counted}"] += by
        state.left_out = reason

    def add_name(self, name_id: str, rollout_id: str) -> int:
        """Record another id of a rollout; return how many rewards had waited for that id.

        They become the rollout's, as if they came now. The id is given as the rollout id that would
        be derived from it, under which rewards that came before are stored.

        Raises:
            UnknownError: No such rollout is stored.
        """
        self._load((name_id, rollout_id))
        self._state(rollout_id)
        self._names.setdefault(name_id, {})[rollout_id] = None
        waiting = [] if self._states[name_id] else self.rewards(name_id)
        known = {key_of(reward) for reward in self.rewards(rollout_id)} if waiting else set()
        moved = [reward for reward in waiting if key_of(reward) not in known]
        for reward in moved:
            self.add_reward(replace(reward, rollout_id=rollout_id))
        if moved:
            self._rewards[name_id].clear()
        return len(moved)

    def rollouts_of(self, name_id: str) -> list[str]:
        """Return the rollouts that have this other id, without descendants of each other.

        In the order in which rollouts began.
        """
        stored = [row["rollout_id"] for row in self._connection.rows(NAMED, (name_id,))]
        ids = dict.fromkeys([*stored, *self._names.get(name_id, ())])
        self._load(ids)
        outer = [id_ for id_ in ids if self._state(id_).rollout.parent_id not in ids]
        if len(outer) > 1:
            places = {id_: place for place, id_ in enumerate(self._states)}
            outer.sort(key=lambda id_: (self._state(id_).seq or inf, places[id_]))
        return outer

    def last_of(self, session_id: str, host: str | None = None) -> dict[str, str]:
        """Return the last outermost rollout of a session, by host.

        Searches the newest runs of the session; with ``host``, all of that host.
        """
        self._write_meanwhile()
        limit = NEWEST if host is None else 1
        parameters: Parameters = {"session_id": session_id, "host": host, "limit": limit}
        by_host: dict[str, str] = {}
        for row in self._connection.rows(OUTERMOST, parameters):
            by_host.setdefault(row["host"], row["rollout_id"])
        return by_host

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        self._counts[name] += by

    def _begin(self, rollout: Rollout) -> RolloutState:
        """Add the state of a new rollout; rollouts are numbered in this order."""
        state = RolloutState.begin(rollout)
        del self._states[rollout.rollout_id]
        self._states[rollout.rollout_id] = state
        return state

    def readable(self, ids: Iterable[str]) -> list[str]:
        """Return those ids whose rollout is not odd; the others are reported."""
        self._load(ids)
        for id_ in self._odd.keys() & {*ids}:
            report(self._odd[id_])
        return [id_ for id_ in ids if id_ not in self._odd]

    def _find(self, rollout_id: str) -> RolloutState | None:
        if rollout_id not in self._states:
            self._load([rollout_id])
        if rollout_id in self._odd:
            raise self._odd[rollout_id]
        return self._states[rollout_id]

    def _state(self, rollout_id: str) -> RolloutState:
        state = self._states.get(rollout_id) or self._find(rollout_id)
        if state is None:
            raise UnknownError("rollout", rollout_id)
        return state

    def _state_of_attempt(self, rollout_id: str, number: int) -> tuple[RolloutState, Attempt]:
        state = self._find(rollout_id)
        attempt = None if state is None else self._attempt(state, number)
        if state is None or attempt is None:
            raise UnknownError("attempt", attempt_id_of(rollout_id, number))
        return state, attempt

    def _attempt(self, state: RolloutState, number: int) -> Attempt | None:
        attempt = state.attempts.get(number)
        if attempt is None and number <= state.floor:
            self._take_attempts(
                state, self._connection.rows(f"{ATTEMPTS} and number = ?", (state.seq, number))
            )
            attempt = state.attempts.get(number)
        return attempt

    def _has_decision(self, state: RolloutState, attempt: int, ordinal: int) -> bool:
        if (attempt, ordinal) in state.decisions:
            return True
        last = state.decided.get(attempt)
        return (
            last is not None
            and ordinal <= last
            and self._connection.row(
                "select 1 from decisions where rollout_seq = ? and attempt = ? and ordinal = ?",
                (state.seq, attempt, ordinal),
            )
            is not None
        )

    def _rewards_of(self, rollout_id: str) -> RewardsState:
        if rollout_id not in self._rewards:
            self._find(rollout_id)
        return self._rewards[rollout_id]

    def _load(self, ids: Iterable[str]) -> None:
        """Load the rollouts with these ids, and whether there are rewards for them."""
        wanted = [id_ for id_ in dict.fromkeys(ids) if id_ not in self._states]
        self._connection.hold(wanted)
        for row in self._look_up(LOAD, [*zip(wanted)]):
            try:
                self._load_row(row)
            except OddRowError as error:  # raised where the rollout is used
                self._odd[row["rollout_id"]] = error
        absent = [id_ for id_ in wanted if id_ not in self._states]
        if not absent:
            return
        for id_ in absent:
            self._states[id_] = None
            self._rewards[id_] = RewardsState(whole=True)
        for row in self._look_up(REWARDED, [*zip(absent)]):
            self._rewards[row["rollout_id"]].whole = False

    def _load_row(self, row: Row) -> None:
        """Load a row of ``LOAD``: a rollout with one of its attempts."""
        state = self._states.get(row["rollout_id"])
        if state is None:
            rollout = rollout_of(row)
            state = RolloutState(rollout=rollout, input=row["input"], metadata=row["metadata"])
            state.take_stored(row)
            state.assigned.update(_TEXTS.decode(row["assigned"]))
            state.floor = max(0, rollout.attempt_count - NEAR)
            self._states[rollout.rollout_id] = state
            self._rewards[rollout.rollout_id] = RewardsState(whole=not row["rewarded"])
        if row["number"] is not None:
            self._take_attempts(state, [row])

    def _look_up(self, statement: str, wanted: Sequence[Sequence[Value]]) -> list[Row]:
        """Return the rows that a statement finds for ``wanted``, looked up in blocks."""
        rows: list[Row] = []
        for at in range(0, len(wanted), SIZES[-1]):
            some = wanted[at : at + SIZES[-1]]
            size = SIZES[bisect_left(SIZES, len(some))]
            filled = chain(some, repeat(some[-1], size - len(some)))
            values = [*chain.from_iterable(filled)]
            rows += self._connection.rows(_of_size(statement, size, len(some[0])), values)
        return rows

    def _take_attempts(self, state: RolloutState, rows: Iterable[Row]) -> None:
        for row in rows:
            number = row["number"]
            if number not in state.attempts:
                state.attempts[number] = attempt_of(row[-10:-1], state.rollout.rollout_id)
                if row["decided"] is not None:
                    state.decided[number] = row["decided"]

    def _load_spans(self, groups: Sequence[tuple[RolloutState, Sequence[Span]]]) -> None:
        """Load the stored states of these spans, of each rollout."""
        wanted: dict[Sequence[Value], None] = {}
        states = {}
        for state, spans in groups:
            if state.all_spans:
                continue
            states[state.seq] = state
            for span in spans:
                if (span.attempt, span.span_id) not in state.spans and (
                    span.attempt not in state.whole
                ):
                    wanted[state.seq, span.attempt, span.span_id] = None
        if wanted:
            self._take_spans(states, self._look_up(SPANS_AT, [*wanted]))

    def _take_spans(self, states: Mapping[int, RolloutState], rows: Iterable[Row]) -> None:
        for row in rows:
            state, key = states[row["rollout_seq"]], (row["attempt"], row["span_id"])
            if key in state.spans:
                continue
            rollout_id = state.rollout.rollout_id
            for span in sound([row], partial(span_of, rollout_id=rollout_id)):
                state.spans[key] = SpanState(span, row["attributes"], row["reported"])

    def _load_points(self) -> None:
        """Load the points of the decisions of all rollouts here, of which many become ready."""
        states = {
            state.seq: state
            for state in self._states.values()
            if state is not None and not state.all_points and state.rollout.ready_seq is None
        }
        for row in self._look_up(POINTS, [*zip(states)]):
            states[row["rollout_seq"]].points.add(row["point"])
        for state in states.values():
            state.all_points = True

    def _write_meanwhile(self) -> None:
        """Write the changes so far, so that the store can be queried."""
        self._write()
        for state in self._states.values():
            if state is not None:
                state.mark_written()
        for rewards in self._rewards.values():
            rewards.mark_written()

    def _write(self) -> None:
        states = [*filter(None, self._states.values())]
        self._connection.take_turn()
        self._write_rollouts(states)
        for sql, block in self._own_rows(states).items():
            is_new = sql in (INSERT_DECISION, ASSIGN)
            store = self._connection.insert_new if is_new else self._connection.insert
            store(sql, block)
        self._write_waiting(states)
        rewards = self._write_rewards()
        if rewards:
            self._connection.insert_new(INSERT_REWARD, rewards)
        self._write_others()

    def _write_others(self) -> None:
        """Write other ids of rollouts, the numbering, and counts."""
        if self._last_ready:
            last, self._last_ready = self._last_ready, 0
            self._connection.change("update sequences set value = ? where name = 'ready'", (last,))
        if self._names:
            names, self._names = self._names, {}
            rows = [(name, self._state(id_).seq) for name, ids in names.items() for id_ in ids]
            self._connection.insert(INSERT_NAME, rows)
        counts, self._counts = self._counts, Counter()
        if counts:
            self._connection.change_many(COUNT, [*counts.items()])

    def _next_ready(self, state: RolloutState) -> int:  # noqa: ARG002  # of whom numbers are later
        """Return the next ``ready_seq``, for a rollout that becomes ready."""
        if self._last_ready:
            self._last_ready += 1
        else:
            self._connection.take_turn()
            self._last_ready = next_number(self._connection, "ready")
        return self._last_ready

    def _write_rollouts(self, states: Sequence[RolloutState]) -> None:
        new, changed = [], defaultdict[str, list[Sequence[Value]]](list)
        for state in states:
            changes = self._changes_of(state)
            if not state.seq:
                new.append(state)
            elif changes:
                changed[_update(tuple(changes))].append((*changes.values(), state.seq))
            if state.places and state.was_ready and "" not in state.places:
                changed[DELETE_PLACE].append((state.seq,))
        self._change(changed)
        if new:
            for state, seq in zip(new, self._insert_rollouts(new), strict=True):
                state.seq = seq
                state.rollout = replace(state.rollout, seq=seq)

    def _changes_of(self, state: RolloutState) -> Mapping[str, Value]:
        """Return the columns to be changed of a stored rollout."""
        return state.changes()

    def _insert_rollouts(self, states: Sequence[RolloutState]) -> Sequence[int]:
        """Insert rollouts, and return their numbers."""
        rows = [row_of_state(state) for state in yield_between(states)]
        return self._connection.insert_new(INSERT_ROLLOUT, rows)

    def _own_rows(self, states: Sequence[RolloutState]) -> dict[str, list[Sequence[Value]]]:
        """Return the rows of rollouts by the statement that inserts one, if there are any."""
        rows: dict[str, list[Sequence[Value]]] = {sql: [] for sql in OWN}
        for state in states:
            _add_rows(rows, state)
            yield_gil()
        return {sql: block for sql, block in rows.items() if block}

    def _write_waiting(self, states: Sequence[RolloutState]) -> None:
        """Write what rollouts wait for: their reward, or a worker."""
        changed = defaultdict[str, list[Sequence[Value]]](list)
        awaiting, queued = list[Sequence[Value]](), list[Sequence[Value]]()
        for state in states:
            if state.until != state.stored_until:
                if state.until is None:
                    changed[DELETE_AWAITING].append((state.seq,))
                else:
                    awaiting.append((state.seq, state.until))
            if state.unqueued:
                changed[DELETE_QUEUE].append((state.seq,))
            if state.queued_at is not None:
                queued.append((state.seq, state.queued_at, state.rollout.queue, state.due_at))
            if state.freed is not None:
                rollout_id = state.rollout.rollout_id
                changed[FREE_WORKER].append((state.freed, state.freed_at, rollout_id))
        self._change(changed)
        self._connection.insert(WRITE_QUEUE, queued)
        self._connection.insert(WRITE_AWAITING, awaiting)

    def _write_rewards(self) -> list[Sequence[Value]]:
        """Write changes of rewards; return the rows of those to be inserted."""
        new, changed = list[Sequence[Value]](), defaultdict[str, list[Sequence[Value]]](list)
        for rollout_id, state in self._rewards.items():
            changed[DELETE_REWARD] += [(rollout_id, *key) for key in state.gone]
            changed[DATE_REWARD] += [
                (state.rewards[key].at, rollout_id, *key) for key in state.later
            ]
            new += [values_of_reward(state.rewards[key]) for key in state.new]
        self._change(changed)
        return new

    def _change(self, changed: Mapping[str, Sequence[Parameters]]) -> None:
        """Run each statement for its rows, no two of which concern the same row of a table."""
        for sql, rows in changed.items():
            if rows:
                self._connection.change_many(sql, rows)


def row_of_state(state: RolloutState) -> Sequence[Value]:
    """Return the parameters of ``INSERT_ROLLOUT``."""
    return values_of_rollout(
        state.rollout,
        input_=state.input,
        metadata=state.metadata,
        output=state.output,
        left_out=state.left_out,
    )


def _add_rows(rows: Mapping[str, list[Sequence[Value]]], state: RolloutState) -> None:
    """Add the rows to be written for a rollout, each to its statement's."""
    seq, rollout = state.seq, state.rollout
    if state.changed_attempts:
        attempts, config = state.attempts, rollout.config
        rows[WRITE_ATTEMPT].extend(
            [values_of_attempt(attempts[number], seq, config) for number in state.changed_attempts]
        )
    if state.changed_spans:
        spans = state.spans
        rows[WRITE_SPAN].extend([spans[key].values(seq) for key in state.changed_spans])
    if state.decisions:
        rows[INSERT_DECISION].extend(
            [values_of_decision(decision, seq) for decision in state.decisions.values()]
        )
    rows[ASSIGN].extend([(seq, *arm) for arm in state.arms.values()])
    rows[WRITE_READY].extend([(seq, point, rollout.ready_seq) for point in state.places])


def values_of_attempt(attempt: Attempt, rollout_seq: int, config: RolloutConfig) -> Sequence[Value]:
    """Return the parameters of ``WRITE_ATTEMPT``: an attempt with its rollout's limits."""
    return (
        rollout_seq,
        attempt.number,
        attempt.status,
        attempt.execution,
        attempt.worker_id,
        attempt.started_at,
        attempt.last_heartbeat_at,
        attempt.ended_at,
        attempt.error_message,
        None if config.timeout_s is None else attempt.started_at + config.timeout_s,
        config.unresponsive_s,
        attempt.owner,
    )


@cache
def _of_size(statement: str, size: int, width: int) -> str:
    """Return a statement that looks up ``size`` values, or rows of ``width`` values."""
    mark = "?" if width == 1 else f"({', '.join('?' * width)})"
    return statement.format(", ".join([mark] * size))


@cache
def _update(columns: Sequence[str]) -> str:
    return f"update rollouts set {', '.join(f'{name} = ?' for name in columns)} where seq = ?"
