"""Rewards in SQLite, and the rollouts that they make ready to be learned from."""

import math

from tau_live.core.errors import OddRowError
from tau_live.core.reasons import WhyNot
from tau_live.core.records import (
    LearnableRollout,
    Passed,
    Reward,
    Rollout,
    RolloutStatus,
    Totals,
)
from tau_live.rl.throttle import yield_between
from tau_live.store.sql.connection import Connection, Parameters, Row, json_of
from tau_live.store.sql.rows import (
    DECISION,
    decision_of,
    odd_row,
    report,
    reward_of,
    rollout_of,
    sound,
)

OVERDUE = """
select rollout_seq, rollout_id from awaiting join rollouts on seq = rollout_seq
where until <= ? order by until, rollout_seq limit ?
"""

PASSED_OVER = "select rollout_seq from awaiting where until > :before and until <= :after"

OF_THE_FUTURE = """
select rollout_seq, ended_at from awaiting join rollouts on seq = rollout_seq
where ended_at > :after
"""

GIVEN = """coalesce(nullif(max(
    coalesce((select value from sequences where name = 'ready'), 0),
    coalesce((
        select ready_seq from rollouts where ready_seq is not null order by ready_seq desc limit 1
    ), 0)
), 0), 9e18)"""
"""The last ``ready_seq`` that was given.

A watermark beyond it is odd, and would end learning; a place beyond it would be due for ever.
"""

UPTO = f"coalesce(:upto, {GIVEN})"
"""The last place that counts."""

READY_COUNT = f"""
select count(*) from (
    select 1 from ready_points
    where point = :point and ready_seq > :after and ready_seq <= {UPTO} limit :limit
) as ready
"""

LEARNABLE_COUNT = """
select count(*) from (
    select rollout_seq from ready_points where point = :point and ready_seq > :after limit :limit
) as ready
where exists (
    select 1 from decisions
    where rollout_seq = ready.rollout_seq and point = :point and propensity is not null
)
"""

WAITING = """
select count(*) from (select 1 from awaiting where until > -1e300 limit ?) as waiting
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
"""How many of the newest rollouts are searched for settled ones."""


def finite(column: str) -> str:
    """Return the condition that a column holds a finite number."""
    return f"typeof({column}) = 'real' and abs({column}) < 9e999"


TOTALS = f"""
select count(*) as number, sum(total_reward < :low or total_reward > :high) as outside,
    min(total_reward) as lowest, max(total_reward) as highest
from (
    select rollout_id, total_reward from rollouts
    where ready_seq is not null and {finite("total_reward")}
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
    ) as newest
    where ready_seq is not null or left_out = '{WhyNot.REWARD_MISSING}' limit :of
) as settled
"""

BY_NAME = f"""
select name, min(value) as lowest, max(value) as highest from (
    select name, value, source from rewards order by seq desc limit :of
) as newest
where {finite("value")} and source <> :without group by name order by name
"""


class Rewards:
    """Rewards, joined by id whenever they come, and the rollouts that they make ready."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rewards(self, rollout_id: str) -> list[Reward]:
        """Return the rewards of a rollout and of its decisions, in the order of arrival."""
        rows = self._connection.rows(
            "select * from rewards where rollout_id = ? order by seq", (rollout_id,)
        )
        return sound(rows, reward_of)

    def after(self, seq: int, *, limit: int) -> list[Reward]:
        """Return the rewards that arrived after one, in the order of arrival.

        Args:
            seq: Its number; 0 for all.
            limit: The most rewards.
        """
        rows = self._connection.rows(
            "select * from rewards where seq > ? order by seq limit ?", (seq, limit)
        )
        return sound(rows, reward_of)

    def redate(self, *, before: float, after: float) -> int:
        """Correct the waits of rollouts after a jump of the clock; return how many were moved.

        After a jump forward, waits that would have ended in between are prolonged by it. After a
        jump back, rollouts that ended in the future now have ended ``after``. Of several processes
        that notice the same jump, the first moves all of them.

        Args:
            before: Epoch seconds that the clock would show without the jump.
            after: Epoch seconds that it shows.
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
        """Return how many of the newest settled rollouts lack a reward, and how many were counted.

        Rollouts that began after the oldest one that still waits are not counted: of them only
        the quick rewards are known.

        Args:
            of: The most rollouts to count.
        """
        row = self._connection.row(MISSING, {"of": of})
        return (0, 0) if row is None else (row["missing"], row["settled"])

    def newest_totals(self, within: tuple[float, float] | None, *, of: int, without: str) -> Totals:
        """Return the totals of the last ``of`` rollouts that became ready.

        Args:
            within: The lowest and highest possible total of a rollout; ``None`` if undeclared.
            of: The most rollouts to count.
            without: Rollouts with a reward from this source are left out.
        """
        low, high = within or (-math.inf, math.inf)
        parameters: Parameters = {"low": low, "high": high, "of": of, "without": without}
        row = self._connection.row(TOTALS, parameters)
        if row is None:
            return Totals(0, 0, None, None)
        return Totals(row["number"], row["outside"] or 0, row["lowest"], row["highest"])

    def newest_by_name(self, *, of: int, without: str) -> dict[str, tuple[float, float]]:
        """Return the lowest and highest value among the last ``of`` rewards, by name.

        Args:
            of: The most rewards to look at.
            without: Rewards from this source are left out.
        """
        rows = self._connection.rows(BY_NAME, {"of": of, "without": without})
        return {row["name"]: (row["lowest"], row["highest"]) for row in rows}

    def waiting(self, *, limit: int | None = None) -> int:
        """Return how many finished rollouts wait for their reward, counted up to ``limit``."""
        most = -1 if limit is None else limit
        return self._connection.count(WAITING, (most,))

    def became_ready(self) -> int:
        """Return how many rollouts have become ready so far, including those deleted since."""
        row = self._connection.row(
            """
            select max(value, 0) as value from sequences
            where name = 'ready' and typeof(value) = 'integer'
            """
        )
        return row["value"] if row else 0

    def newest_at(self) -> float | None:
        """Return when the newest reward was given, in epoch seconds; ``None`` before the first."""
        row = self._connection.row(
            """
            select iif(typeof(at) = 'real', at, null) as at from rewards
            where seq = (select max(seq) from rewards)
            """
        )
        return row["at"] if row else None

    def ready_points(self) -> list[str]:
        """Return every decision point that has decisions in ready rollouts, sorted."""
        return [row["point"] for row in self._connection.rows(READY_POINTS)]

    def ready_count(
        self, point: str, *, after: int, upto: int | None = None, limit: int | None = None
    ) -> int:
        """Return how many ready rollouts after ``after`` have a decision at ``point``.

        Only those up to ``upto``, and counted no further than ``limit``. An empty point counts
        the ready rollouts without any decision.
        """
        most = -1 if limit is None else limit
        parameters: Parameters = {"point": point, "after": after, "upto": upto, "limit": most}
        return self._connection.count(READY_COUNT, parameters)

    def learnable_count(self, point: str, *, after: int, limit: int) -> int:
        """Return how many of the ``limit`` ready rollouts after ``after`` the policy decided in.

        In the others the host made its own choice at ``point``, as it does in shadow.
        """
        parameters: Parameters = {"point": point, "after": after, "limit": limit}
        return self._connection.count(LEARNABLE_COUNT, parameters)

    def ready_rollouts(
        self, point: str, *, after: int, limit: int, newest: bool = False, upto: int | None = None
    ) -> list[LearnableRollout]:
        """Return ready rollouts with ``after < ready_seq <= upto``, by ``ready_seq``.

        With their decisions at every point. ``newest`` takes the last ``limit`` of them instead
        of the first (still in ascending order). An empty point asks for those without a decision.

        One with an odd row, of its own or of a decision or reward, is there without a total,
        decisions and rewards: nothing is learned from it, and a watermark goes past it.
        """
        with self._connection.reading():
            ready = self._connection.rows(
                ready_sql("rollouts.*", newest=newest),
                {"point": point, "after": after, "upto": upto, "limit": limit},
            )
            ready.sort(key=lambda row: row["place"])
            keys = [row["seq"] for row in ready], [row["rollout_id"] for row in ready]
            decisions = self._group(DECISIONS_OF, json_of(keys[0]), "rollout_seq")
            rewards = self._group(REWARDS_OF, json_of(keys[1]), "rollout_id")
        return [
            learnable_of(row, decisions.get(row["seq"], []), rewards.get(row["rollout_id"], []))
            for row in yield_between(ready)
        ]

    def ready_summary(
        self, point: str, *, after: int, limit: int, newest: bool = False, upto: int | None = None
    ) -> Passed:
        """Return a summary of ``ready_rollouts`` without reading any of them."""
        ready = ready_sql(PLACES, newest=newest)
        [summary] = self._connection.rows(
            PASSED.format(ready), {"point": point, "after": after, "upto": upto, "limit": limit}
        )
        return Passed(*summary)

    def _group(self, sql: str, keys: str, column: str) -> dict[object, list[Row]]:
        groups: dict[object, list[Row]] = {}
        for row in yield_between(self._connection.rows(sql, (keys,))):
            groups.setdefault(row[column], []).append(row)
        return groups


def learnable_of(row: Row, decisions: list[Row], rewards: list[Row]) -> LearnableRollout:
    """Return a ready rollout from its row, with its place, and the rows of its own."""
    try:
        if row["rollout_id"] is None:
            missing = ValueError("it belongs to no row of rollouts")
            raise odd_row("ready_points", row["rollout_seq"], missing, column="rollout_seq")
        rollout = rollout_of(row)
        if rollout.ready_seq != row["place"]:
            problem = ValueError(f"it is {rollout.ready_seq}, and {row['place']} in ready_points")
            raise odd_row("rollouts", rollout.rollout_id, problem, column="ready_seq")
        return LearnableRollout(
            rollout,
            [decision_of(decision, rollout.rollout_id) for decision in decisions],
            [reward_of(reward) for reward in rewards],
        )
    except OddRowError as error:
        report(error)
    name = str(row["rollout_id"] or f"#{row['rollout_seq']}")
    odd = Rollout(
        rollout_id=name,
        status=RolloutStatus.FAILED,
        seq=row["rollout_seq"],
        ready_seq=row["place"],
    )
    return LearnableRollout(odd, [], [])


DECISIONS_OF = f"""
select {DECISION.replace("context, features", "'{}', '{}'")}
from decisions where rollout_seq in (select value from json_each(?))
order by rollout_seq, attempt, ordinal
"""

REWARDS_OF = """
select * from rewards where rollout_id in (select value from json_each(?)) order by seq
"""


def mean_sql(*, newest: bool) -> str:
    """Return the statement for the mean of the first or last totals."""
    return f"""
    select avg(total_reward) as mean from (
        select total_reward from rollouts
        where ready_seq is not null and {finite("total_reward")}
        order by ready_seq {"desc" if newest else "asc"} limit ?
    ) as totals
    """


PASSED = """
select count(*), coalesce(min(place), 0), coalesce(max(place), 0), coalesce(max(known_at), 0.0)
from ({}) as ready
"""

PLACES = """
max(
    coalesce(ended_at, 0.0),
    coalesce(
        (select max(at) from rewards where rewards.rollout_id = rollouts.rollout_id), ended_at, 0.0
    )
) as known_at
"""


def ready_sql(columns: str, *, newest: bool) -> str:
    """Return the statement that finds ready rollouts at a point, without their decisions."""
    return f"""
    select {columns}, rollout_seq, ready_points.ready_seq as place from ready_points
    left join rollouts on seq = rollout_seq
    where point = :point and ready_points.ready_seq > :after
    and ready_points.ready_seq <= {UPTO}
    order by ready_points.ready_seq {"desc" if newest else "asc"} limit :limit
    """
