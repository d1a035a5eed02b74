"""Trials in SQLite: assignments, evidence, exposure, champions."""

from collections.abc import Sequence
from sqlite3 import Row

import msgspec

from tau_live.rollouts import Decision
from tau_live.store.connection import Connection, Value
from tau_live.store.json_text import json_of, mapping_of
from tau_live.store.records import Assigned, Trial
from tau_live.store.sqlite_rows import rollout_of

SAVE = """
insert into trials (
    point, ladder, exposure, champion, previous, kept, stopped, watermark, since, watched, test,
    evidence, tally, finding, changed_at, revision
)
select :point, :ladder, :exposure, :champion, :previous, :kept, :stopped, :watermark, :since,
    :watched, :test, :evidence, :tally, :finding, :changed_at, :revision
where :revision - 1 = coalesce((select revision from trials where point = :point), 0)
on conflict (point) do update set ladder = excluded.ladder, exposure = excluded.exposure,
    champion = excluded.champion, previous = excluded.previous, kept = excluded.kept,
    stopped = excluded.stopped, watermark = excluded.watermark, since = excluded.since,
    watched = excluded.watched, test = excluded.test, evidence = excluded.evidence,
    tally = excluded.tally, finding = excluded.finding, changed_at = excluded.changed_at,
    revision = excluded.revision
"""

ASSIGN = """
insert into arms (rollout_seq, point, arm, share, agreed) values (?, ?, ?, ?, ?)
on conflict (rollout_seq, point) do nothing
"""

ASSIGNED = """
select rollouts.*, place, arm, share, agreed, until, (
    select policy_version from decisions
    where decisions.rollout_seq = arms.rollout_seq and decisions.point = arms.point
    order by attempt, ordinal limit 1
) as decided_by from arms
join rollouts on rollouts.seq = arms.rollout_seq
left join awaiting on awaiting.rollout_seq = arms.rollout_seq
where point = ? and place > ? order by place limit ?
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
select count(*) from (select 1 from arms where point = ? and place > ? limit ?)
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


class SqliteTrials:
    """Implements ``Trials``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def trials(self) -> dict[str, Trial]:
        """Return every trial by its point."""
        rows = self._connection.rows("select * from trials order by point")
        return {row["point"]: trial_of(row) for row in rows}

    def trial(self, point: str) -> Trial:
        """Return the trial of a point; one of revision 0 if none is stored."""
        row = self._connection.row("select * from trials where point = ?", (point,))
        return Trial(point=point) if row is None else trial_of(row)

    def save(self, trial: Trial) -> bool:
        """Store a trial if its revision is still ``trial.revision - 1``; ``False`` if not."""
        saved = self._connection.change(
            SAVE,
            {
                "point": trial.point,
                "ladder": trial.ladder,
                "exposure": trial.exposure,
                "champion": trial.champion,
                "previous": trial.previous,
                "kept": trial.kept,
                "stopped": trial.stopped,
                "watermark": trial.watermark,
                "since": trial.since,
                "watched": trial.watched,
                "test": trial.test,
                "evidence": json_of(trial.evidence),
                "tally": json_of(trial.tally),
                "finding": json_of(trial.finding),
                "changed_at": trial.changed_at,
                "revision": trial.revision,
            },
        )
        return saved > 0

    def points(self) -> list[str]:
        """Return every decision point at which a rollout was assigned, sorted."""
        return [row["point"] for row in self._connection.rows(POINTS)]

    def assigned(self, point: str, *, after: int, limit: int) -> list[Assigned]:
        """Return assignments with a place behind ``after``, in their order."""
        rows = self._connection.rows(ASSIGNED, (point, after, limit))
        return [
            Assigned(
                place=row["place"],
                rollout=rollout_of(row),
                arm=row["arm"],
                share=row["share"],
                agreed=None if row["agreed"] is None else bool(row["agreed"]),
                until=row["until"],
                version=row["decided_by"],
            )
            for row in rows
        ]

    def delays(self, point: str, *, limit: int) -> list[tuple[float, float | None]]:
        """Return when the newest assigned rollouts of a point began, and how long rewards took."""
        rows = self._connection.rows(DELAYS, (point, limit))
        return [(row["started_at"], row["delay"]) for row in rows]

    def uncounted(self, point: str, *, after: int, limit: int) -> int:
        """Return how many assignments at a point are behind ``after``, counted up to ``limit``."""
        return self._connection.count(UNCOUNTED, (point, after, limit))

    def newest_place(self, point: str) -> int:
        """Return the place of the newest assignment at a point; 0 before the first."""
        return self._connection.count(
            "select coalesce(max(place), 0) from arms where point = ?", (point,)
        )

    def rewarded(self, point: str, *, after: int, limit: int) -> list[tuple[int, str]]:
        """Return rewards behind ``after`` of rollouts that the learner decides at a point."""
        rows = self._connection.rows(REWARDED, (point, after, limit))
        return [(row["seq"], row["rollout_id"]) for row in rows]

    def newest_reward(self) -> int:
        """Return the ``seq`` of the newest reward; 0 before the first."""
        return self._connection.count("select coalesce(max(seq), 0) from rewards")


def assign(connection: Connection, decision: Decision, rollout_seq: int) -> None:
    """Note the arm that decided a rollout at a point, if this is its first decision there."""
    arm = arm_of(decision)
    if arm is not None:
        connection.change(ASSIGN, (rollout_seq, *arm))


def arm_of(decision: Decision) -> Sequence[Value] | None:
    """Return the parameters of ``ASSIGN`` behind the rollout; ``None`` for an impossible arm."""
    share = decision.share
    if share is None or not _is_possible(decision.arm, share):
        return None
    is_known = None not in (decision.chosen, decision.applied) and decision.arm == "control"
    agreed = decision.chosen == decision.applied if is_known else None
    return decision.point, decision.arm, share, agreed


def trial_of(row: Row) -> Trial:
    """Return the trial that a row of ``trials`` holds."""
    return Trial(
        point=row["point"],
        ladder=bool(row["ladder"]),
        exposure=row["exposure"],
        champion=row["champion"],
        previous=row["previous"],
        kept=row["kept"],
        stopped=row["stopped"],
        watermark=row["watermark"],
        since=row["since"],
        watched=row["watched"],
        test=row["test"],
        evidence=msgspec.json.decode(row["evidence"], type=dict[str, float]),
        tally=msgspec.json.decode(row["tally"], type=dict[str, float]),
        finding=mapping_of(row["finding"]),
        changed_at=row["changed_at"],
        revision=row["revision"],
    )


def _is_possible(arm: str, share: float) -> bool:
    """Say whether that arm could have been assigned with that share."""
    return 0.0 < share <= 1.0 if arm == "learner" else arm == "control" and 0.0 <= share < 1.0
