"""``tau-live resume``: resume what was paused."""

import time
from collections.abc import Sequence
from pathlib import Path

import click

from tau_live.cli.opening import (
    epilog,
    json_option,
    opened,
    operator,
    reason_option,
    store_option,
)
from tau_live.cli.output import print_json
from tau_live.cli.pause import PARTS
from tau_live.cli.standing import stops, warn_of_stops
from tau_live.errors import TauLiveError
from tau_live.operators.parts import resumed
from tau_live.pauses import Part, told
from tau_live.settings import Settings
from tau_live.store.roles import Store


@click.command(
    epilog=epilog(
        "resume",
        'tau-live resume learning --reason "rewards are right again"',
        'tau-live resume --reason "load test is over"',
    )
)
@click.argument("parts", nargs=-1, type=PARTS, metavar="[PART]...")
@reason_option
@store_option
@json_option
def resume(parts: tuple[str, ...], path: Path | None, as_json: bool, reason: str) -> None:
    """Resume PART in every running process within a second; without PART, everything paused.

    What was not recorded meanwhile stays missing; rollouts that were kept are learned from now.
    """
    named = tuple(dict.fromkeys(Part(part) for part in parts))
    with opened(path, write=True) as (store, settings):
        wanted = named or _all_of(store, settings)
        done = resumed(store, wanted, reason=reason, who=operator(), at=time.time())
        warn_of_stops(store, settings)
    if as_json:
        print_json({"changed": done.changed, "paused": told(done.paused)})
        return
    for part in wanted:
        click.echo(f"{part} is resumed" if part in done.changed else f"{part} was not paused")


def _all_of(store: Store, settings: Settings) -> Sequence[Part]:
    """Return what is paused.

    Raises:
        TauLiveError: Nothing is; says what stops tau-live instead, if anything does.
    """
    found = tuple(store.pauses.pauses())
    if not found:
        others = "; ".join(stops(store, settings)) or "see `tau-live status`"
        raise TauLiveError(f"nothing is paused, so there is nothing to resume; {others}")
    return found
