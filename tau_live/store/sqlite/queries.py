"""Queries for rollouts: by filter, and by their ``seq`` for a report."""

from collections.abc import Sequence
from functools import partial

from tau_live.core.records import RolloutQuery
from tau_live.store.records import ORDERS, Assignment, Choice, RolloutColumns
from tau_live.store.sqlite.connection import Connection, Value, json_of
from tau_live.store.sqlite.rows import columns_of_row, sound


def total_of(query: RolloutQuery) -> str:
    """Return the statement that counts the rollouts; by status alone the counts are kept."""
    where = where_of(query, page=False)
    if where in {"", where_of(RolloutQuery(statuses=query.statuses), page=False)}:
        return f"select coalesce(sum(total), 0) from status_counts{where}"
    return f"select count(*) from rollouts{where}"


def sql_of(query: RolloutQuery) -> tuple[str, dict[str, Value]]:
    """Return the statement that finds the page, and its parameters."""
    if query.order_by not in ORDERS:
        raise ValueError(f"order_by must be one of {', '.join(ORDERS)}, got {query.order_by!r}")
    direction = "desc" if query.descending else "asc"
    order = f"seq {direction}"
    if query.order_by != "seq":
        order = f"{query.order_by} {direction}, {order}"
    parameters: dict[str, Value] = {
        "statuses": json_of(query.statuses),
        "mode": query.mode,
        "ids": json_of(query.ids),
        "host": query.host,
        "name": query.name,
        "session_id": query.session_id,
        "parent_id": query.parent_id,
        "since": query.since,
        "until": query.until,
        "after": query.after,
        "limit": -1 if query.limit is None else query.limit,
        "offset": query.offset,
    }
    where = where_of(query, page=True)
    return f"select * from rollouts{where} order by {order} limit :limit offset :offset", parameters


def where_of(query: RolloutQuery, *, page: bool) -> str:
    """Return the condition of a page or of its total.

    It names only the columns needed, so that their index is used.
    """
    conditions = [
        (query.statuses, "status in (select value from json_each(:statuses))"),
        (query.mode, "mode = :mode"),
        (query.ids, "rollout_id in (select value from json_each(:ids))"),
        (query.host is not None, "host = :host"),
        (query.name is not None, "name = :name"),
        (query.session_id is not None, "session_id = :session_id"),
        (query.parent_id is not None, "parent_id = :parent_id"),
        (query.since is not None, "started_at >= :since"),
        (query.until is not None, "started_at < :until"),
        (page and query.after is not None, "seq > :after"),
    ]
    needed = [condition for is_needed, condition in conditions if is_needed]
    return f" where {' and '.join(needed)}" if needed else ""


LONGEST_CONTEXT = 4096

ROLLOUTS = """
select seq, status, started_at, ended_at, total_reward, left_out,
    iif(json_valid(metadata), iif(json_type(metadata, '$.cost_usd') in ('integer', 'real'),
        cast(json_extract(metadata, '$.cost_usd') as real), null), null)
from rollouts where seq in (select value from json_each(?)) order by seq
"""

CHOICES = f"""
select rollout_seq, {", ".join(Choice._fields[1:-1])},
    iif(length(context) <= {LONGEST_CONTEXT}, context, '')
from decisions where rollout_seq in (select value from json_each(?))
order by rollout_seq, attempt, ordinal limit ?
"""

ASSIGNMENTS = """
select rollout_seq, point, arm = 'learner', share from arms
where rollout_seq in (select value from json_each(?)) order by rollout_seq, point
"""


class SqliteSurveys:
    """Reads the columns that a report needs of rollouts, by their ``seq``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def span(self) -> tuple[int, int] | None:
        """Return the ``seq`` of the first and of the last rollout; ``None`` without any."""
        # In one statement with both, SQLite reads the whole table.
        row = self._connection.row(
            "select (select min(seq) from rollouts), (select max(seq) from rollouts)"
        )
        return None if row is None or row[0] is None else (row[0], row[1])

    def places(self, *, limit: int) -> list[int]:
        """Return the ``seq`` of the first ``limit`` rollouts, in their order."""
        rows = self._connection.rows("select seq from rollouts order by seq limit ?", (limit,))
        return [row[0] for row in rows]

    def rollouts(self, seqs: Sequence[int]) -> list[RolloutColumns]:
        """Return those of the rollouts that are stored, by ``seq``."""
        rows = self._connection.rows(ROLLOUTS, (json_of(seqs),))
        return sound(rows, partial(columns_of_row, RolloutColumns, "rollouts"))

    def choices(self, seqs: Sequence[int], *, limit: int) -> list[Choice]:
        """Return at most ``limit`` of their decisions, in their order."""
        rows = self._connection.rows(CHOICES, (json_of(seqs), limit))
        return sound(rows, partial(columns_of_row, Choice, "decisions"))

    def assignments(self, seqs: Sequence[int]) -> list[Assignment]:
        """Return their assignments, at every point."""
        rows = self._connection.rows(ASSIGNMENTS, (json_of(seqs),))
        return sound(rows, partial(columns_of_row, Assignment, "arms"))
