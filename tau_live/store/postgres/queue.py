"""The queues in PostgreSQL, whose workers claim beside each other."""

from collections.abc import Mapping, Sequence

from tau_live.core.errors import OddRowError, StoreBusyError
from tau_live.core.records import Claim
from tau_live.store.postgres.connection import PostgresConnection
from tau_live.store.sql.connection import Value, json_of
from tau_live.store.sql.queue import OVERDUE_ATTEMPTS, POLL_S, Queue
from tau_live.store.sql.rows import rollout_of

WAITED_SHARE, LONGEST_POLL_S = 0.1, 0.5
"""Who waits for results looks so late at most: by a share of the time waited, and in seconds."""

FREE = """
select rollout_id, seq from (
    select rollout_seq, position from queue where name = %b and due_at <= %b
    order by position limit %b for update skip locked
) as first join rollouts on seq = rollout_seq order by position
"""
"""The first rollouts of a queue that nobody else is about to take, locked.

The join comes after the limit, or a server that expects few rows sorts the whole queue: 48 ms where
20,000 wait.
"""

KEEP = """
with made as (
    insert into ids (rollout_id) select unnest(%b::text[]) on conflict do nothing
    returning rollout_id
)
select rollout_id from made union all
select * from (
    select rollout_id from ids where rollout_id = any (%b) for update skip locked
) as locked
"""
"""Locks rollouts, but those that a batch is about to change: it may wait for what is locked here.
"""

TAKE = """
update rollouts set status = 'preparing', worker_id = :worker_id,
    started_at = coalesce(started_at, :at), attempt_count = attempt_count + 1
where seq in (select value from json_each(:seqs)) and status in ('queuing', 'requeuing')
returning *
"""


class PostgresQueue(Queue):
    """The queues: each rollout is claimed by one worker, and none waits for another's claim.

    First in, first out holds for one worker; of several, the second takes the second rollout.
    """

    _connection: PostgresConnection

    def _poll_s(self, waited_s: float) -> float:
        """Return the pause between two looks: a tenth of the time waited, for the server's sake."""
        return min(max(POLL_S, waited_s * WAITED_SHARE), LONGEST_POLL_S)

    def _claim_beside(
        self, wanted: Mapping[str, Value], names: Sequence[str], *, at: float, limit: int
    ) -> list[Claim]:
        """Take the first rollouts of one queue that are free; none may be because others hold them.

        Also where attempts are overdue, which are ended first.
        """
        if len(names) != 1 or self._connection.rows(OVERDUE_ATTEMPTS, {"now": at}):
            return []
        try:
            with self._connection.begin():
                self._connection.hold(())
                free = self._connection.rows_bound(FREE, (names[0], at, limit))
                ids = sorted(id_ for id_, _ in free)
                kept = {id_ for (id_,) in self._connection.rows_bound(KEEP, (ids, ids))}
                seqs = {seq: place for place, (id_, seq) in enumerate(free) if id_ in kept}
                rows = self._connection.rows(TAKE, {**wanted, "seqs": json_of([*seqs])})
                if not rows:
                    return []
                self._take_out(rows)
                rows.sort(key=lambda row: seqs[row["seq"]])
                return self._begin_attempts([*map(rollout_of, rows)], at=at, claimed_at=at)
        except (OddRowError, StoreBusyError):  # whoever claims alone meets it, too, and reports it
            return []
