"""Rollouts that begin in a transaction: kept in memory, and stored at its end by few statements."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

import msgspec

from tau_live.rollouts import Rollout, RolloutStatus
from tau_live.store.connection import Connection, Value
from tau_live.store.fresh import Fresh
from tau_live.store.json_text import json_of
from tau_live.store.many_rows import insert, insert_new
from tau_live.store.records import WholeRollout
from tau_live.store.sqlite_counters import SqliteCounters
from tau_live.store.sqlite_numbers import next_number
from tau_live.store.sqlite_rewards import INSERT_REWARD
from tau_live.store.sqlite_rollouts import INSERT_SPAN
from tau_live.store.sqlite_rows import (
    INSERT_DECISION,
    INSERT_ROLLOUT,
    values_of_decision,
    values_of_reward,
    values_of_rollout,
)
from tau_live.store.sqlite_trials import ASSIGN

KNOWN = """
select
    (select json_group_array(rollout_id) from rollouts
     where rollout_id in (select value from json_each(:ids))),
    (select json_group_array(rollout_id) from rewards
     where rollout_id in (select value from json_each(:ids)))
"""
"""In one row: SQLite lets go of the interpreter for each."""

INSERT_ATTEMPT = """
insert into attempts (
    rollout_seq, number, status, execution, worker_id, started_at, last_heartbeat_at, ended_at,
    error_message, timeout_at, unresponsive_s
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
INSERT_READY = "insert into ready_points (rollout_seq, point, ready_seq) values (?, ?, ?)"
INSERT_AWAITING = "insert into awaiting (rollout_seq, until) values (?, ?)"
INSERT_NAME = """
insert into names (name_id, rollout_seq) values (?, ?)
on conflict (name_id, rollout_seq) do nothing
"""

_IDS = msgspec.json.Decoder(list[str])


class Stage:
    """Rollouts that began in a transaction and are not stored yet, with all that is theirs.

    Args:
        connection: In a transaction.
        ids: The rollouts that may be told of, by all ids they may have.
    """

    def __init__(self, connection: Connection, ids: Collection[str]) -> None:
        self._connection = connection
        [(begun, rewarded)] = connection.rows(KNOWN, {"ids": json_of(list(ids))})
        self._begun = set(_IDS.decode(begun))
        self._absent = set(ids).difference(self._begun, _IDS.decode(rewarded))
        self._ready: int | None = None
        self._fresh: dict[str, Fresh] = {}
        self._names: dict[str, list[str]] = {}
        self._counts: Counter[str] = Counter()

    def begin(self, rollout: Rollout) -> bool:
        """Keep a rollout that begins here; ``False`` for one that the store is to be asked about.

        That is written behind all that began before it.
        """
        rollout_id = rollout.rollout_id
        if rollout_id in self._absent and rollout.status is RolloutStatus.RUNNING:
            self._fresh[rollout_id] = Fresh(rollout)
            self._absent.remove(rollout_id)
            return True
        if rollout_id not in self._begun:
            self._absent.discard(rollout_id)
            self.write()
        return False

    def add(self, whole: WholeRollout) -> bool:
        """Keep a rollout that has ended; ``False`` if something of it is known."""
        rollout_id = whole.rollout.rollout_id
        if rollout_id not in self._absent:
            return False
        self._fresh[rollout_id] = Fresh.of(whole)
        self._absent.remove(rollout_id)
        return True

    def get(self, rollout_id: str) -> Fresh | None:
        """Return a rollout that began here, and is not stored yet."""
        return self._fresh.get(rollout_id)

    def is_absent(self, rollout_id: str) -> bool:
        """Say whether nothing is stored or kept here under this id, not even a reward."""
        return rollout_id in self._absent

    def leave(self, rollout_id: str) -> None:
        """Leave a rollout to the store, which also takes what comes before one begins."""
        self._absent.discard(rollout_id)
        if rollout_id in self._fresh:
            self.write()

    def name(self, name_id: str, rollout_id: str) -> bool:
        """Note another id of a rollout; ``False`` if the store is to be asked about either."""
        if rollout_id not in self._fresh or not (name_id in self._absent or name_id in self._fresh):
            return False
        self._names.setdefault(name_id, []).append(rollout_id)
        return True

    def is_name(self, name_id: str) -> bool:
        """Say whether this is another id of a rollout that is kept here."""
        return name_id in self._names

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        self._counts[name] += by

    def next_place(self) -> int:
        """Return the next place among the rollouts that are ready."""
        last = self._ready
        self._ready = next_number(self._connection, "ready") if last is None else last + 1
        return self._ready

    def write_place(self) -> None:
        """Store which place was given last, so that the store may give the next."""
        if self._ready is not None:
            self._connection.change(
                "update sequences set value = ? where name = 'ready'", (self._ready,)
            )
            self._ready = None

    def write(self) -> None:
        """Store everything; what comes now for it goes to the store."""
        kept, names, counts = self._fresh, self._names, self._counts
        self._fresh, self._names, self._counts = {}, {}, Counter()
        self._begun |= kept.keys()
        self._write_rollouts(list(kept.values()), names)
        self.write_place()
        SqliteCounters(self._connection).add(counts)

    def _write_rollouts(self, kept: Sequence[Fresh], names: Mapping[str, Sequence[str]]) -> None:
        if not kept:
            return
        store, store_new = partial(insert, self._connection), partial(insert_new, self._connection)
        seqs = store_new(
            INSERT_ROLLOUT,
            (values_of_rollout(f.rollout, settled=True, left_out=f.left_out) for f in kept),
        )
        rows = [*zip(seqs, kept, strict=True)]
        store(INSERT_ATTEMPT, (values for row in rows for values in _attempts(*row)))
        store(INSERT_SPAN, (told.values(seq) for seq, f in rows for told in f.spans.values()))
        store_new(
            INSERT_DECISION,
            (values_of_decision(one, seq) for seq, f in rows for one in f.decisions.values()),
        )
        store_new(ASSIGN, ((seq, *arm) for seq, f in rows for arm in f.arms.values()))
        store_new(
            INSERT_REWARD, (values_of_reward(one) for f in kept for one in f.rewards.values())
        )
        store(INSERT_READY, (values for row in rows for values in _places(*row)))
        store(INSERT_AWAITING, ((seq, f.until) for seq, f in rows if f.until is not None))
        known = {fresh.rollout.rollout_id: seq for seq, fresh in rows} if names else {}
        store(INSERT_NAME, ((name, known[one]) for name, ids_ in names.items() for one in ids_))


def _attempts(rollout_seq: int, fresh: Fresh) -> Iterator[Sequence[Value]]:
    """Yield the parameters of ``INSERT_ATTEMPT`` for each attempt."""
    limits = fresh.rollout.config
    for attempt in fresh.attempts.values():
        yield (
            rollout_seq,
            attempt.number,
            attempt.status,
            attempt.execution,
            attempt.worker_id,
            attempt.started_at,
            attempt.last_heartbeat_at,
            attempt.ended_at,
            attempt.error_message,
            None if limits.timeout_s is None else attempt.started_at + limits.timeout_s,
            limits.unresponsive_s,
        )


def _places(rollout_seq: int, fresh: Fresh) -> Iterator[Sequence[Value]]:
    """Yield the parameters of ``INSERT_READY`` for each point; for none if it has no decision."""
    ready_seq = fresh.rollout.ready_seq
    if ready_seq is not None:
        points = {decision.point: None for decision in fresh.decisions.values()} or {"": None}
        yield from ((rollout_seq, point, ready_seq) for point in points)
