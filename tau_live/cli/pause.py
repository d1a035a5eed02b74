"""``tau-live pause``: pause collection, learning or deciding."""

import time
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
from tau_live.cli.standing import warn_of_stops
from tau_live.cli.text import moment, shown
from tau_live.operators.parts import paused
from tau_live.pauses import MEANS, Part, told

PARTS = click.Choice([part.value for part in Part])


@click.command(
    epilog=epilog(
        "pause",
        'tau-live pause learning --reason "rewards look odd"',
        'tau-live pause deciding collection --reason "load test until six"',
    )
)
@click.argument("parts", nargs=-1, required=True, type=PARTS, metavar="PART...")
@reason_option
@store_option
@json_option
def pause(parts: tuple[str, ...], path: Path | None, as_json: bool, reason: str) -> None:
    """Pause PART in every running process within a second, and after restarts, until `resume`.

    collection: new runs are neither recorded nor decided; runs in progress continue to their
    end, and rewards are accepted.

    learning: no updates; rollouts are kept and learned from later. An update in progress
    is finished, and the serving version is still compared with the control.

    deciding: the host's own choice is served, and recorded as `paused`.
    """
    wanted = tuple(dict.fromkeys(Part(part) for part in parts))
    with opened(path, write=True) as (store, settings):
        done = paused(store, wanted, reason=reason, who=operator(), at=time.time())
        warn_of_stops(store, settings, without=wanted)
    if as_json:
        print_json({"changed": done.changed, "paused": told(done.paused)})
        return
    for part in wanted:
        if part in done.changed:
            click.echo(f"{part} is paused: {MEANS[part]}")
        else:
            was = done.paused[part]
            since = f"since {moment(was.at)} by {shown(was.who)}: {shown(was.reason)}"
            click.echo(f"no change: {part} was already paused, {since}")
