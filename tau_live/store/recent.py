"""The newest rows of a store, for diagnosis: bounded, whatever its size."""

import json
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tau_live.store.sqlite.connection import connect

WAIT_S = 1.0


class Offered(NamedTuple):
    """The columns of a decision that show whether something is wrong with it.

    Attributes:
        point: The decision point.
        options: What might be chosen.
        unexplored: Those of them that are never tried out.
        applied: What the host did; ``None`` if unknown.
        why_not: Why the policy did not decide, or was not followed.
        propensity: With which probability it had been chosen; ``None`` if unknown.
        at: Epoch seconds.
    """

    point: str
    options: tuple[str, ...]
    unexplored: tuple[str, ...]
    applied: str | None
    why_not: str | None
    propensity: float | None
    at: float


class Given(NamedTuple):
    """Who gave a reward, and when.

    Attributes:
        source: Who.
        at: Epoch seconds.
    """

    source: str
    at: float


class Lately(NamedTuple):
    """The newest rows, the newest first.

    Attributes:
        decisions: Of all points.
        rewards: Numbers of any name.
    """

    decisions: list[Offered]
    rewards: list[Given]


DECISIONS = """
select point, options, allowed, exploit_only, applied, why_not, propensity, at
from decisions order by seq desc limit ?
"""
REWARDS = """
select source, at from (select source, at, value from rewards order by seq desc limit ?)
where value is not null
"""
"""Of the newest: where nearly all rewards are texts, looking for numbers would have no bound."""


def lately(file: Path, *, limit: int) -> Lately:
    """Return the newest rows of a store, at most ``limit`` of each kind.

    Raises:
        StoreUnavailableError: It cannot be read.
    """
    with closing(connect(file, busy_timeout_s=WAIT_S, read_only=True)) as connection:
        decisions = [
            Offered(
                row["point"],
                _names(row["allowed"]) if row["allowed"] is not None else _names(row["options"]),
                _names(row["exploit_only"]),
                row["applied"],
                row["why_not"],
                row["propensity"],
                row["at"],
            )
            for row in connection.rows(DECISIONS, (limit,))
        ]
        rewards = [Given(row["source"], row["at"]) for row in connection.rows(REWARDS, (limit,))]
    return Lately(decisions, rewards)


def _names(text: str | None) -> tuple[str, ...]:
    """Return the names that a column holds; none where it is damaged, which others look for."""
    try:
        names = json.loads(text or "[]")
    except ValueError:
        return ()
    return tuple(map(str, names)) if isinstance(names, list) else ()
