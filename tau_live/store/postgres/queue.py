"""The queues in PostgreSQL, whose workers claim beside each other."""

from collections.abc import Mapping, Sequence

from tau_live.core.errors import OddRowError, StoreBusyError
from tau_live.core.records import Claim
from tau_live.store.postgres.connection import PostgresConnection
from tau_live.store.sql.connection import Value
from tau_live.store.sql.queue import OVERDUE_ATTEMPTS, POLL_S, Queue

WAITED_SHARE, LONGEST_POLL_S = 0.1, 0.5
"""Who waits for results looks so late at most: by a share of the time waited, and in seconds."""

FREE = """
select rollout_id, seq from queue join rollouts on seq = rollout_seq
where queue.name = %b and due_at <= %b and status in ('queuing', 'requeuing')
order by position limit 1 for update of queue skip locked
"""
"""The first rollout of a queue that nobody else is about to take, locked."""

KEEP = """
with made as (insert into ids values (%b) on conflict do nothing returning 1)
select 1 from made union all
select * from (select 1 from ids where rollout_id = %b for update skip locked) as locked
"""
"""Locks a rollout, unless a batch is about to change it, which may wait for what is locked here."""

TAKE = """
update rollouts set status = 'preparing', worker_id = :worker_id,
    started_at = coalesce(started_at, :at), attempt_count = attempt_count + 1
where seq = :seq and status in ('queuing', 'requeuing')
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
        self, wanted: Mapping[str, Value], names: Sequence[str], *, at: float
    ) -> Claim | None:
        """Take the first rollout of one queue that is free; ``None`` may be because others hold it.

        Also where attempts are overdue, which are ended first.
        """
        if len(names) != 1 or self._connection.rows(OVERDUE_ATTEMPTS, {"now": at}):
            return None
        try:
            with self._connection.begin():
                self._connection.hold(())
                for id_, seq in self._connection.rows_bound(FREE, (names[0], at)):
                    if not self._connection.rows_bound(KEEP, (id_, id_)):
                        return None
                    row = self._connection.row(TAKE, {**wanted, "seq": seq})
                    if row is not None:
                        self._take_out(row)
                        return self._claim_of(row, at=at)
        except (OddRowError, StoreBusyError):  # whoever claims alone meets it, too, and reports it
            pass
        return None
