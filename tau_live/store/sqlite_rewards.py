"""Rewards in SQLite, and what they make ready to be learned from."""

import math
from sqlite3 import Row

from tau_live.errors import UnknownError
from tau_live.reasons import LEFT_OUT, WhyNot
from tau_live.rollouts import Reward
from tau_live.store.connection import Connection, Parameters
from tau_live.store.json_text import json_of
from tau_live.store.records import LearnableRollout, Passed, Totals
from tau_live.store.sqlite_counters import count
from tau_live.store.sqlite_numbers import next_number
from tau_live.store.sqlite_rows import (
    DECISION,
    decision_of,
    reward_of,
    rollout_of,
    values_of_reward,
)

INSERT_REWARD = """
insert into rewards (
    rollout_id, decision_id, name, value, label, comment, source, key, at, decisions_before
) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict (rollout_id, decision_id, name, source, key) do nothing
"""

SAME_REWARD = """
where rollout_id = :rollout_id and decision_id = :decision_id and name = :name
and source = :source and key = :key
"""

OVERDUE = """
select rollout_seq, rollout_id from awaiting join rollouts on seq = rollout_seq
where until <= ? order by until, rollout_seq limit ?
"""

PASSED_OVER = "select rollout_seq from awaiting where until > :before and until <= :after"

OF_THE_FUTURE = """
select rollout_seq, ended_at from awaiting join rollouts on seq = rollout_seq
where ended_at > :after
"""

READY_COUNT = """
select count(*) from (
    select 1 from ready_points
    where point = :point and ready_seq > :after and ready_seq <= coalesce(:upto, 9e18) limit :limit
)
"""

WAITING = """
select count(*) from (select 1 from awaiting where until > -1e300 limit ?)
"""

READY_POINTS = """
with recursive points (point) as (
    select (select min(point) from ready_points)
    union all
    select (select min(point) from ready_points where point > points.point)
    from points where points.point is not null
)
select point from points where point <> '' order by point
"""
"""Steps from one point to the next: ``select distinct`` reads the whole index."""


AMONG = 1_000
"""Among so many of the newest rollouts are looked for those that are settled."""

TOTALS = """
select count(*) as number, sum(total_reward < :low or total_reward > :high) as outside,
    min(total_reward) as lowest, max(total_reward) as highest
from (
    select rollout_id, total_reward from rollouts where ready_seq is not null
    order by ready_seq desc limit :of
) as newest
where not exists (
    select 1 from rewards
    where rewards.rollout_id = newest.rollout_id and source = :without
)
"""

MISSING = f"""
select coalesce(sum(missing), 0) as missing, count(*) as settled from (
    select ready_seq is null as missing from (
        select ready_seq, left_out from rollouts
        where seq < (select coalesce(min(rollout_seq), 9e18) from awaiting)
        order by seq desc limit {AMONG}
    )
    where ready_seq is not null or left_out = '{WhyNot.REWARD_MISSING}' limit :of
)
"""

BY_NAME = """
select name, min(value) as lowest, max(value) as highest from (
    select name, value, source from rewards order by seq desc limit :of
)
where value is not null and source <> :without group by name order by name
"""


class SqliteRewards:
    """Implements ``RewardLog``."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def add_reward(self, reward: Reward) -> str:
        """Store a reward; return ``new``, ``same``, ``replaced`` or ``older``.

        The order of arrival does not matter, except between values of the very same time, of
        which the later to arrive is kept. One that replaces another takes a new place, so that
        whoever watches for what has come behind a place sees the correction too.
        """
        values = values_of_reward(reward)
        with self._connection.begin():
            if self._connection.change(INSERT_REWARD, values):
                return "new"
            known: Parameters = {
                "rollout_id": reward.rollout_id,
                "decision_id": reward.decision_id or "",
                "name": reward.name,
                "value": reward.value,
                "label": reward.label,
                "comment": reward.comment,
                "source": reward.source,
                "key": reward.key,
                "at": reward.at,
            }
            same = self._connection.change(
                f"""
                update rewards set at = max(at, :at) {SAME_REWARD}
                and value is :value and label is :label and comment is :comment
                """,
                known,
            )
            if same:
                return "same"
            count(self._connection, "conflicting_rewards")
            replaced = self._connection.change(
                f"delete from rewards {SAME_REWARD} and at <= :at", known
            )
            if replaced:  # and anew: it has a place behind what anybody has looked at
                self._connection.change(INSERT_REWARD, values)
        return "replaced" if replaced else "older"

    def rewards(self, rollout_id: str) -> list[Reward]:
        """Return the rewards of a rollout and of its decisions, in the order of arrival."""
        rows = self._connection.rows(
            "select * from rewards where rollout_id = ? order by seq", (rollout_id,)
        )
        return [reward_of(row) for row in rows]

    def mark_ready(
        self, rollout_id: str, *, total_reward: float, run_reward: float | None = None
    ) -> bool:
        """Give a rollout its place among those that may be learned from; ``False`` if it has one.

        The place is given in the statement that checks that it has none. The number comes from a
        row of its own, not from the largest in use: retention may have deleted that one, and a
        number that is used twice would lie behind a watermark.
        """
        with self._connection.begin():
            rewards: Parameters = {
                "rollout_id": rollout_id,
                "total_reward": total_reward,
                "run_reward": total_reward if run_reward is None else run_reward,
                "place": next_number(self._connection, "ready"),
            }
            placed = self._connection.row(
                """
                update rollouts set total_reward = :total_reward, run_reward = :run_reward,
                    ready_seq = :place
                where rollout_id = :rollout_id and ready_seq is null
                returning seq, ready_seq
                """,
                rewards,
            )
            if placed is None:
                self._set_total(rollout_id, rewards)
                return False
            self._place(placed["seq"], placed["ready_seq"])
        return True

    def leave_out(self, rollout_id: str, reason: str | None) -> None:
        """Note why nothing is learned of a rollout; ``None`` if that is no longer so."""
        known: Parameters = {"rollout_id": rollout_id, "reason": reason, "prefix": LEFT_OUT}
        with self._connection.begin():
            self._connection.change(
                """
                update counters set value = value - 1 where name = (
                    select :prefix || left_out from rollouts
                    where rollout_id = :rollout_id and left_out is not :reason
                )
                """,
                known,
            )
            noted = self._connection.change(
                """
                update rollouts set left_out = :reason
                where rollout_id = :rollout_id and left_out is not :reason
                """,
                known,
            )
            if noted and reason is not None:
                count(self._connection, f"{LEFT_OUT}{reason}")

    def await_reward(self, rollout_id: str, *, until: float) -> None:
        """Note that a finished rollout waits for its reward, and until when.

        One that is ready already does not wait.
        """
        noted = self._connection.change(
            """
            insert into awaiting (rollout_seq, until)
            select seq, :until from rollouts where rollout_id = :rollout_id and ready_seq is null
            on conflict (rollout_seq) do update set until = excluded.until
            """,
            {"rollout_id": rollout_id, "until": until},
        )
        if not noted:
            self._check_known(rollout_id)

    def redate(self, *, before: float, after: float) -> int:
        """Let rollouts wait on whose time a clock has passed over that was set; return how many.

        Put forward: those whose wait would have ended in between end theirs as much later. Put
        back: those that ended in what is the future now have ended ``after``. Of several processes
        that notice the same, the first finds all of them.
        """
        forward = after > before
        with self._connection.begin():
            rows = self._connection.rows(
                PASSED_OVER if forward else OF_THE_FUTURE, {"before": before, "after": after}
            )
            moves = [
                (after - (before if forward else row["ended_at"]), row["rollout_seq"])
                for row in rows
            ]
            self._connection.change_many(
                "update awaiting set until = until + ? where rollout_seq = ?", moves
            )
            self._connection.change_many(
                "update rollouts set ended_at = ended_at + ? where seq = ?", moves
            )
        return len(rows)

    def overdue(self, now: float, *, limit: int) -> list[str]:
        """Return the finished rollouts whose wait is over, oldest first; they wait no longer."""
        with self._connection.begin():
            rows = self._connection.rows(OVERDUE, (now, limit))
            self._connection.change_many(
                "delete from awaiting where rollout_seq = ?", [(row[0],) for row in rows]
            )
        return [row["rollout_id"] for row in rows]

    def mean_reward(self, *, of: int, newest: bool) -> float | None:
        """Return the mean total of the first or last ``of`` rollouts that became ready."""
        row = self._connection.row(mean_sql(newest=newest), (of,))
        return row["mean"] if row else None

    def newest_missing(self, *, of: int) -> tuple[int, int]:
        """Return of how many of the newest settled rollouts the reward is missing, and of how many.

        Those that began after the oldest that still waits are not counted: of them only the
        quick rewards are known.
        """
        row = self._connection.row(MISSING, {"of": of})
        return (0, 0) if row is None else (row["missing"], row["settled"])

    def newest_totals(self, within: tuple[float, float] | None, *, of: int, without: str) -> Totals:
        """Return what the last ``of`` rollouts that became ready were worth."""
        low, high = within or (-math.inf, math.inf)
        asked: Parameters = {"low": low, "high": high, "of": of, "without": without}
        row = self._connection.row(TOTALS, asked)
        if row is None:
            return Totals(0, 0, None, None)
        return Totals(row["number"], row["outside"] or 0, row["lowest"], row["highest"])

    def newest_by_name(self, *, of: int, without: str) -> dict[str, tuple[float, float]]:
        """Return the lowest and highest of the last ``of`` numbers that were given, by name."""
        rows = self._connection.rows(BY_NAME, {"of": of, "without": without})
        return {row["name"]: (row["lowest"], row["highest"]) for row in rows}

    def waiting(self, *, limit: int | None = None) -> int:
        """Return how many finished rollouts wait for their reward, counted up to ``limit``."""
        most = -1 if limit is None else limit
        return self._connection.count(WAITING, (most,))

    def became_ready(self) -> int:
        """Return how many rollouts have become ready so far; those forgotten since count too."""
        return self._connection.count("select value from sequences where name = 'ready'")

    def newest_at(self) -> float | None:
        """Return when the newest reward was given, in epoch seconds; ``None`` before the first."""
        row = self._connection.row(
            "select at from rewards where seq = (select max(seq) from rewards)"
        )
        return row["at"] if row else None

    def ready_points(self) -> list[str]:
        """Return every decision point that has decisions in ready rollouts, sorted."""
        return [row["point"] for row in self._connection.rows(READY_POINTS)]

    def ready_count(
        self, point: str, *, after: int, upto: int | None = None, limit: int | None = None
    ) -> int:
        """Return how many ready rollouts behind ``after`` have a decision at ``point``.

        Only those up to ``upto``, and counted no further than ``limit``.
        """
        most = -1 if limit is None else limit
        asked: Parameters = {"point": point, "after": after, "upto": upto, "limit": most}
        return self._connection.count(READY_COUNT, asked)

    def ready_rollouts(
        self, point: str, *, after: int, limit: int, newest: bool = False, upto: int | None = None
    ) -> list[LearnableRollout]:
        """Return ready rollouts with ``after < ready_seq <= upto``, by ``ready_seq``.

        Of their decisions only what is learned from: the features are there encoded alone.
        """
        with self._connection.reading():
            ready = self._connection.rows(
                ready_sql("rollouts.*", newest=newest, bounded=upto is not None),
                {"point": point, "after": after, "upto": upto, "limit": limit},
            )
            ready.sort(key=lambda row: row["ready_seq"])
            rollouts = [rollout_of(row) for row in self._connection.breathing(ready)]
            ids = {rollout.seq: rollout.rollout_id for rollout in rollouts}
            decisions = self._grouped(DECISIONS_OF, json_of(list(ids)), "rollout_seq")
            rewards = self._grouped(REWARDS_OF, json_of(list(ids.values())), "rollout_id")
        return [
            LearnableRollout(
                rollout,
                [decision_of(row, rollout.rollout_id) for row in decisions.get(rollout.seq, [])],
                [reward_of(row) for row in rewards.get(rollout.rollout_id, [])],
            )
            for rollout in self._connection.breathing(rollouts)
        ]

    def passed(
        self, point: str, *, after: int, limit: int, newest: bool = False, upto: int | None = None
    ) -> Passed:
        """Return what there is to say of ``ready_rollouts`` without reading any of them."""
        ready = ready_sql(PLACES, newest=newest, bounded=upto is not None)
        [found] = self._connection.rows(
            PASSED.format(ready), {"point": point, "after": after, "upto": upto, "limit": limit}
        )
        return Passed(*found)

    def _grouped(self, sql: str, keys: str, column: str) -> dict[object, list[Row]]:
        groups: dict[object, list[Row]] = {}
        for row in self._connection.breathing(self._connection.rows(sql, (keys,))):
            groups.setdefault(row[column], []).append(row)
        return groups

    def _place(self, rollout_seq: int, ready_seq: int) -> None:
        self._connection.change("update sequences set value = ? where name = 'ready'", (ready_seq,))
        at_points: Parameters = {"seq": rollout_seq, "ready_seq": ready_seq}
        placed = self._connection.change(
            """
            insert into ready_points (rollout_seq, point, ready_seq)
            select distinct :seq, point, :ready_seq from decisions where rollout_seq = :seq
            """,
            at_points,
        )
        if not placed:
            self._connection.change(
                """
                insert into ready_points (rollout_seq, point, ready_seq)
                values (:seq, '', :ready_seq)
                """,
                at_points,
            )
        self._connection.change("delete from awaiting where rollout_seq = ?", (rollout_seq,))

    def _set_total(self, rollout_id: str, rewards: Parameters) -> None:
        if not self._connection.change(
            """
            update rollouts set total_reward = :total_reward, run_reward = :run_reward
            where rollout_id = :rollout_id
            """,
            rewards,
        ):
            raise UnknownError("rollout", rollout_id)

    def _check_known(self, rollout_id: str) -> None:
        if not self._connection.rows("select 1 from rollouts where rollout_id = ?", (rollout_id,)):
            raise UnknownError("rollout", rollout_id)


DECISIONS_OF = f"""
select {DECISION.replace("context, features", "'{}', '{}'")}
from decisions where rollout_seq in (select value from json_each(?))
order by rollout_seq, attempt, ordinal
"""

REWARDS_OF = """
select * from rewards where rollout_id in (select value from json_each(?)) order by seq
"""


def mean_sql(*, newest: bool) -> str:
    """Return the statement that takes the mean of the first or last totals."""
    return f"""
    select avg(total_reward) as mean from (
        select total_reward from rollouts where ready_seq is not null
        order by ready_seq {"desc" if newest else "asc"} limit ?
    )
    """


PASSED = """
select count(*), coalesce(min(place), 0), coalesce(max(place), 0), coalesce(max(known_at), 0.0)
from ({})
"""

PLACES = """
ready_points.ready_seq as place, max(
    coalesce(ended_at, 0.0),
    coalesce(
        (select max(at) from rewards where rewards.rollout_id = rollouts.rollout_id), ended_at, 0.0
    )
) as known_at
"""


def ready_sql(columns: str, *, newest: bool, bounded: bool) -> str:
    """Return the statement that finds ready rollouts at a point, without their decisions."""
    return f"""
    select {columns} from ready_points
    join rollouts on seq = rollout_seq
    where point = :point and ready_points.ready_seq > :after
    {"and ready_points.ready_seq <= :upto" if bounded else ""}
    order by ready_points.ready_seq {"desc" if newest else "asc"} limit :limit
    """
