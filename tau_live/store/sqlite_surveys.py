"""Queries of a report, in SQLite: rows are found by number, so their total does not matter."""

from collections.abc import Sequence

from tau_live.store.connection import Connection
from tau_live.store.json_text import json_of
from tau_live.store.surveys import Assignment, Choice, Surveyed

LONGEST_CONTEXT = 4096

ROLLOUTS = """
select seq, status, started_at, ended_at, total_reward, left_out,
    iif(json_type(metadata, '$.cost_usd') in ('integer', 'real'),
        cast(json_extract(metadata, '$.cost_usd') as real), null)
from rollouts where seq in (select value from json_each(?)) order by seq
"""

CHOICES = f"""
select rollout_seq, point, applied, latency_us,
    iif(length(context) <= {LONGEST_CONTEXT}, context, '')
from decisions where rollout_seq in (select value from json_each(?))
order by rollout_seq, attempt, ordinal limit ?
"""

ASSIGNMENTS = """
select rollout_seq, point, arm = 'learner', share from arms
where rollout_seq in (select value from json_each(?)) order by rollout_seq, point
"""


class SqliteSurveys:
    """Implements ``Surveys``."""

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
        """Return the ``seq`` of the first so many rollouts, in their order."""
        rows = self._connection.rows("select seq from rollouts order by seq limit ?", (limit,))
        return [row[0] for row in rows]

    def rollouts(self, seqs: Sequence[int]) -> list[Surveyed]:
        """Return those rollouts that are there, by ``seq``."""
        return [Surveyed(*row) for row in self._connection.rows(ROLLOUTS, (json_of(seqs),))]

    def choices(self, seqs: Sequence[int], *, limit: int) -> list[Choice]:
        """Return at most so many of their decisions, in their order."""
        rows = self._connection.rows(CHOICES, (json_of(seqs), limit))
        return [Choice(*row) for row in rows]

    def assignments(self, seqs: Sequence[int]) -> list[Assignment]:
        """Return who decided them, at every point."""
        rows = self._connection.rows(ASSIGNMENTS, (json_of(seqs),))
        return [Assignment(row[0], row[1], bool(row[2]), row[3]) for row in rows]
