"""The newest rows of a store, for diagnosis: bounded, whatever its size."""

import json
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tau_live.core.records import Finite
from tau_live.store.opening import reader
from tau_live.store.sql.connection import Row
from tau_live.store.sql.rows import columns_of_row, sound

WAIT_S = 1.0


class RecentDecision(NamedTuple):
    """The columns of a decision by which it is diagnosed.

    Attributes:
        point: The decision point.
        options: The options that were allowed.
        unexplored: The options that are never explored.
        applied: The option that the host applied; ``None`` if unknown.
        why_not: Why the policy did not decide, or was not followed.
        propensity: The probability with which ``applied`` was chosen; ``None`` if unknown.
        at: Epoch seconds, UTC.
    """

    point: str
    options: tuple[str, ...]
    unexplored: tuple[str, ...]
    applied: str | None
    why_not: str | None
    propensity: float | None
    at: Finite


class RecentReward(NamedTuple):
    """The columns of a reward by which it is diagnosed.

    Attributes:
        source: Who gave it.
        at: Epoch seconds, UTC.
    """

    source: str
    at: Finite


class RecentRows(NamedTuple):
    """The newest rows, newest first.

    Attributes:
        decisions: Decisions at all points.
        rewards: Numeric rewards of any name.
    """

    decisions: list[RecentDecision]
    rewards: list[RecentReward]


DECISIONS = """
select seq, point, options, allowed, exploit_only, applied, why_not, propensity, at
from decisions order by seq desc limit ?
"""
REWARDS = """
select seq, source, at
from (select seq, source, at, value from rewards order by seq desc limit ?) as newest
where value is not null
"""
"""Bounded before numbers are picked: where nearly all rewards are texts, that may have no end."""


def recent_rows(file: Path, *, limit: int) -> RecentRows:
    """Return the newest rows of a store, at most ``limit`` of each kind.

    Raises:
        StoreUnavailableError: It cannot be read.
    """
    with closing(reader(file, busy_timeout_s=WAIT_S)) as connection:
        decisions = sound(connection.rows(DECISIONS, (limit,)), _decision)
        rewards = sound(connection.rows(REWARDS, (limit,)), _reward)
    return RecentRows(decisions, rewards)


def _decision(row: Row) -> RecentDecision:
    allowed = row["options"] if row["allowed"] is None else row["allowed"]
    values = (
        row["point"],
        _names(allowed),
        _names(row["exploit_only"]),
        row["applied"],
        row["why_not"],
        row["propensity"],
        row["at"],
    )
    return columns_of_row(RecentDecision, "decisions", values, key=row["seq"])


def _reward(row: Row) -> RecentReward:
    return columns_of_row(RecentReward, "rewards", (row["source"], row["at"]), key=row["seq"])


def _names(text: str | bytes | None) -> tuple[str, ...]:
    """Return the names that a column holds; none if it is damaged, which ``verify`` reports."""
    try:
        names = json.loads(text or "[]")
    except (ValueError, RecursionError):
        return ()
    return tuple(map(str, names)) if isinstance(names, list) else ()
