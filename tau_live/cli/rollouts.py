"""``tau-live rollouts``: a filtered, sorted, paged list."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict, Unpack

import click
from rich.table import Table

from tau_live.cli import completing
from tau_live.cli.opening import epilog, json_option, opened, store_option
from tau_live.cli.output import print_all, print_json, safe, stdout_width, styled, table_of
from tau_live.cli.text import moment, number, seconds, when
from tau_live.rollouts import Reward, RewardSource, Rollout, RolloutMode, RolloutStatus
from tau_live.store.records import RolloutQuery
from tau_live.store.sqlite_query import ORDERS

SHORT = 13
"""So many characters of an id are shown where there is no room for all: ``live-`` and eight."""

COLUMNS: Sequence[tuple[str, int, Callable[[Rollout], object]]] = (
    ("name", 60, lambda rollout: rollout.name),
    ("started (UTC)", 80, lambda rollout: moment(rollout.started_at)),
    ("took#", 80, lambda rollout: seconds(took(rollout.started_at, rollout.ended_at))),
    ("host", 100, lambda rollout: rollout.host),
    ("why", 130, lambda rollout: rollout.error_type or rollout.reason or ""),
    ("session", 150, lambda rollout: rollout.session_id or ""),
)
"""Further columns: name, how wide the terminal has to be, and what stands there."""


class Asked(TypedDict):
    """What the options say, by their names."""

    status: tuple[str, ...]
    mode: str | None
    host: str | None
    name: str | None
    session: str | None
    parent: str | None
    since: float | None
    until: float | None
    sort: str
    ascending: bool
    limit: int
    page: int


@click.command(
    epilog=epilog(
        "rollouts",
        "tau-live rollouts --status failed --since 2h",
        "tau-live rollouts --name triage --sort total_reward --ascending --limit 5",
    )
)
@click.option(
    "--status",
    multiple=True,
    type=click.Choice([status.value for status in RolloutStatus]),
    help="Only with this status; repeatable.",
)
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in RolloutMode]),
    help="Only queued rollouts of this mode.",
)
@click.option("--host", help="Only of this host.")
@click.option("--name", help="Only of this name.")
@click.option("--session", help="Only of this session.")
@click.option(
    "--parent", metavar="ROLLOUT", help="Only rollouts that ran inside this one.",
    shell_complete=completing.rollouts,
)  # fmt: skip
@click.option(
    "--since", metavar="WHEN", type=when, help="Only rollouts that started at or after this time."
)
@click.option(
    "--until", metavar="WHEN", type=when, help="Only rollouts that started before this time."
)
@click.option(
    "--sort", type=click.Choice(ORDERS), default="seq", show_default=True, help="Sort key."
)
@click.option("--ascending", is_flag=True, help="Oldest or smallest first.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="Rollouts per page.",
)
@click.option("--page", type=click.IntRange(1), default=1, show_default=True, help="Page to show.")
@store_option
@json_option
def rollouts(path: Path | None, as_json: bool, **asked: Unpack[Asked]) -> None:
    """List rollouts, newest first.

    A time is 2026-01-31T12:00 (UTC), or 2h for two hours ago. A rollout can be named
    by the beginning of its id.
    """
    limit, page = asked["limit"], asked["page"]
    with opened(path) as (store, _):
        found = store.rollouts.query(query_of(asked))
        origins = {
            one.rollout_id: made_up(store.rewards.rewards(one.rollout_id)) for one in found.rollouts
        }
    if as_json:
        rows = [
            {**asdict(one), "reward_made_up": origins[one.rollout_id]} for one in found.rollouts
        ]
        listed = {"total": found.total, "page": page, "limit": limit, "rollouts": rows}
        print_json(listed)
        return
    pages = max(1, -(-found.total // limit))
    footer = safe(f"page {page} of {pages}, {number(found.total)} rollouts in all", "dim")
    print_all(*([rollout_table(found.rollouts, origins)] if found.rollouts else []), footer)


def query_of(asked: Asked) -> RolloutQuery:
    """Return the store's question that the options mean."""
    return RolloutQuery(
        statuses=[RolloutStatus(status) for status in asked["status"]],
        mode=None if asked["mode"] is None else RolloutMode(asked["mode"]),
        host=asked["host"],
        name=asked["name"],
        session_id=asked["session"],
        parent_id=asked["parent"],
        since=asked["since"],
        until=asked["until"],
        order_by=asked["sort"],
        descending=not asked["ascending"],
        limit=asked["limit"],
        offset=asked["limit"] * (asked["page"] - 1),
    )


def made_up(rewards: Sequence[Reward]) -> str | None:
    """Return that nobody gave any of some rewards: ``inferred`` or ``default``; else ``None``."""
    sources = {reward.source for reward in rewards if reward.value is not None}
    if not sources or not sources <= {RewardSource.INFERRED, RewardSource.DEFAULT}:
        return None
    return str(max(sources))  # inferred, where both are


def rollout_table(found: Sequence[Rollout], origins: Mapping[str, str | None]) -> Table:
    """Return a list of rollouts, as much of it as fits the terminal.

    Args:
        found: The rollouts.
        origins: Which rewards nobody gave, by rollout; see ``made_up``.
    """
    width = stdout_width()
    shown = [column for column in COLUMNS if column[1] <= width]
    room = len(max((rollout.rollout_id for rollout in found), key=len)) if width >= 110 else SHORT
    return table_of(
        ("rollout", "status", "reward#", *(name for name, _, _ in shown)),
        [
            (
                rollout.rollout_id[:room],
                styled(rollout.status),
                _reward(rollout, origins[rollout.rollout_id]),
                *(cell(rollout) for _, _, cell in shown),
            )
            for rollout in found
        ],
    )


def _reward(rollout: Rollout, origin: str | None) -> str:
    said = number(rollout.total_reward)
    return f"{said} ({origin})" if origin and rollout.total_reward is not None else said


def took(began: float | None, ended: float | None) -> float | None:
    """Return how long something took; ``None`` while it does."""
    return None if began is None or ended is None else ended - began
