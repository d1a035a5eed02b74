"""Decisions and trials in SQLite."""

import re

from tau_live.core.errors import OddRowError, UnknownError
from tau_live.core.records import Assigned, Decision, Shadowed, Trial
from tau_live.store.sql.connection import Connection, Row, Value
from tau_live.store.sql.rows import (
    DECISION,
    assigned_of,
    columns_of,
    decision_of,
    record_of,
    report,
    shadowed_of,
    sound,
    sound_page,
)

MOST_CHANGES = 2**40
"""A row of a trial that counts more changes is odd."""

ODD = "its row in the store is odd: see `tau-live doctor`"
"""Why a learner is stopped whose trial cannot be read."""

SAVE = f"""
insert into trials (
    point, ladder, exposure, champion, previous, kept, stopped, watermark, since, watched, test,
    evidence, tally, finding, changed_at, revision
)
select :point, :ladder, :exposure, :champion, :previous, :kept, :stopped, :watermark, :since,
    :watched, :test, :evidence, :tally, :finding, :changed_at, :revision
where :revision - 1 = coalesce(
    (select revision from trials where point = :point and revision between 0 and {MOST_CHANGES}), 0
)
on conflict (point) do update set ladder = excluded.ladder, exposure = excluded.exposure,
    champion = excluded.champion, previous = excluded.previous, kept = excluded.kept,
    stopped = excluded.stopped, watermark = excluded.watermark, since = excluded.since,
    watched = excluded.watched, test = excluded.test, evidence = excluded.evidence,
    tally = excluded.tally, finding = excluded.finding, changed_at = excluded.changed_at,
    revision = excluded.revision
"""

ASSIGNED = """
select rollouts.*, place, arm, share, agreed, until, (
    select policy_version from decisions
    where decisions.rollout_seq = arms.rollout_seq and decisions.point = arms.point
    order by attempt, ordinal limit 1
) as decided_by from arms
join rollouts on rollouts.seq = arms.rollout_seq
left join awaiting on awaiting.rollout_seq = arms.rollout_seq
where point = :point and place > :after order by place
"""

DELAYS = """
select started_at, case when ready_seq is not null then max(
    ended_at,
    coalesce((
        select max(at) from rewards
        where rewards.rollout_id = rollouts.rollout_id and value is not null
    ), ended_at)
) - started_at end as delay
from arms join rollouts on rollouts.seq = arms.rollout_seq
where point = ? and started_at is not null order by place desc limit ?
"""

UNCOUNTED = """
select count(*) from (select 1 from arms where point = ? and place > ? limit ?) as uncounted
"""

REWARDED = """
select rewards.seq, rewards.rollout_id from rewards
join rollouts on rollouts.rollout_id = rewards.rollout_id
join arms on arms.rollout_seq = rollouts.seq and arms.point = ? and arm = 'learner'
where rewards.seq > ? order by rewards.seq limit ?
"""

POINTS = """
with recursive points (point) as (
    select (select min(point) from arms)
    union all
    select (select min(point) from arms where point > points.point)
    from points where points.point is not null
)
select point from points where point is not null order by point
"""


class Trials:
    """The learner of each decision point against its control.

    A rollout is assigned by its first decision with an arm and a share at the point; later ones
    change nothing.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def trials(self) -> dict[str, Trial]:
        """Return every trial by its point."""
        rows = self._connection.rows("select * from trials order by point")
        return {trial.point: trial for trial in map(self._trial_of, rows)}

    def trial(self, point: str) -> Trial:
        """Return the trial of a point; one of revision 0 if none is stored.

        Where its row is odd the learner is stopped, and nothing up to now is evidence: an operator
        who starts it again writes a new row.
        """
        row = self._connection.row("select * from trials where point = ?", (point,))
        return Trial(point=point) if row is None else self._trial_of(row)

    def _trial_of(self, row: Row) -> Trial:
        try:
            return record_of(Trial, row)
        except OddRowError as error:
            report(error)
        point, revision = str(row["point"]), row["revision"]
        place = self.newest_place(point)
        return Trial(
            point=point,
            stopped=ODD,
            watermark=place,
            since=place,
            watched=self.newest_reward(),
            revision=revision if isinstance(revision, int) and 0 <= revision <= MOST_CHANGES else 0,
        )

    def save(self, trial: Trial) -> bool:
        """Store a trial if its revision is still ``trial.revision - 1``; ``False`` if not."""
        return self._connection.change(SAVE, columns_of(trial)) > 0

    def points(self) -> list[str]:
        """Return every decision point at which a rollout was assigned, sorted."""
        return [row["point"] for row in self._connection.rows(POINTS)]

    def assignments(self, point: str, *, after: int, limit: int) -> list[Assigned]:
        """Return assignments with a ``place`` greater than ``after``, in their order."""
        where: dict[str, Value] = {"point": point, "after": after}
        return sound_page(self._connection, ASSIGNED, where, assigned_of, limit=limit)

    def delays(self, point: str, *, limit: int) -> list[tuple[float, float | None]]:
        """Return the start and the reward delay of the newest assigned rollouts of a point.

        Each as epoch seconds, and the seconds from there until it had ended and its last reward
        was given; ``None`` if its reward is unknown.
        """
        rows = self._connection.rows(DELAYS, (point, limit))
        return [(row["started_at"], row["delay"]) for row in rows]

    def uncounted_size(self, point: str, *, after: int, limit: int) -> int:
        """Return the number of assignments at a point after ``after``, counted up to ``limit``."""
        return self._connection.count(UNCOUNTED, (point, after, limit))

    def newest_place(self, point: str) -> int:
        """Return the ``place`` of the newest assignment at a point; 0 before the first."""
        return self._connection.count(
            "select coalesce(max(place), 0) from arms where point = ?", (point,)
        )

    def rewards_after(self, point: str, *, after: int, limit: int) -> list[tuple[int, str]]:
        """Return rewards after ``after`` of rollouts that the learner decides at a point.

        Each as its ``seq`` and the id of its rollout, in their order.
        """
        rows = self._connection.rows(REWARDED, (point, after, limit))
        return [(row["seq"], row["rollout_id"]) for row in rows]

    def newest_reward(self) -> int:
        """Return the ``seq`` of the newest reward; 0 before the first."""
        return self._connection.count("select coalesce(max(seq), 0) from rewards")


DECISION_ID = re.compile(r"(?s)(.*):attempt-([0-9]{1,18}):decision-([0-9]{1,18})")

IN_SHADOW = "propensity is null and applied is not null and probabilities <> '[]'"
"""The policy made a choice, and the host applied its own; an index covers these alone."""

SHADOW_POINTS = f"""
with recursive points (point) as (
    select (select min(point) from decisions where {IN_SHADOW})
    union all
    select (select min(point) from decisions where {IN_SHADOW} and point > points.point)
    from points where points.point is not null
)
select point from points where point is not null order by point
"""
"""Steps from one point to the next: ``select distinct`` reads the whole index."""

SHADOWED = f"""
select seq, options, applied, probabilities from decisions
where {IN_SHADOW} and point = ? order by seq desc limit ?
"""


class Decisions:
    """Decisions."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def decision(self, decision_id: str) -> Decision:
        """Return one decision. Raises: UnknownError."""
        parts = DECISION_ID.fullmatch(decision_id)
        row = parts and self._connection.row(
            f"""
            select {DECISION} from decisions
            where rollout_seq = (select seq from rollouts where rollout_id = ?)
            and attempt = ? and ordinal = ?
            """,
            (parts[1], int(parts[2]), int(parts[3])),
        )
        if not parts or row is None:
            raise UnknownError("decision", decision_id)
        return decision_of(row, parts[1])

    def decisions(self, rollout_id: str) -> list[Decision]:
        """Return the decisions of a rollout, by attempt and ordinal."""
        rows = self._connection.rows(
            f"""
            select {DECISION} from decisions
            where rollout_seq = (select seq from rollouts where rollout_id = ?)
            order by attempt, ordinal
            """,
            (rollout_id,),
        )
        return sound(rows, lambda row: decision_of(row, rollout_id))

    def shadow_points(self) -> list[str]:
        """Return every decision point that has decisions in shadow, sorted."""
        return [row["point"] for row in self._connection.rows(SHADOW_POINTS)]

    def shadow_decisions(self, point: str, *, limit: int) -> list[Shadowed]:
        """Return the newest decisions in shadow at a point, the newest first."""
        return sound(self._connection.rows(SHADOWED, (point, limit)), shadowed_of)
