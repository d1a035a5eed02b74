"""``tau-live learn``: the learner in a process of its own."""

import os
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click

from tau_live.cli.options import (
    enabled_or_refuse,
    epilog,
    json_option,
    settings_of,
    store_option,
    warn_before,
)
from tau_live.cli.output import print_json, printable, suggest
from tau_live.cli.terminal import stopping
from tau_live.core.processes import this_process
from tau_live.core.reasons import Part
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Settings
from tau_live.operate.status import now_learning
from tau_live.operate.stops import killed_of
from tau_live.store.opening import open_at
from tau_live.store.roles import Store


@click.command(
    epilog=epilog(
        "learn",
        "TAU_LIVE_RL=1 tau-live learn",
        "TAU_LIVE_RL=1 tau-live learn --once --json | jq .version",
    )
)
@click.option("--once", is_flag=True, help="Run every update that is due, then exit.")
@store_option
@json_option
def learn(path: Path | None, as_json: bool, once: bool) -> None:
    """Run updates as they become due, until Ctrl-C, with one line of output each.

    Rewards that are overdue are settled as well, with their defaults or as missing.

    Set TAU_LIVE_RL_LEARNER=off in the agent's processes. Several learners share the decision
    points: a lease lets one at a time learn at each.
    """
    from tau_live.runtime.learner_process import learn_until

    enabled_or_refuse("learn")
    stop = threading.Event()

    def print_update(report: JsonObject) -> None:
        if as_json:
            print_json(report)
            return
        outcome = f"made version {report['version']}" if report["executed"] else "skipped"
        why = f": {report['skipped_reason']}" if report["skipped_reason"] else ""
        data = f"{report['trajectories']} rollouts, {report['samples']} decisions"
        click.echo(
            f"update {report['update']} of {report['point']!r}: {outcome}{printable(why)} ({data})"
        )

    settings = settings_of(path, changes=True)
    warn_before(settings)
    with stopping(stop):
        made = learn_until(stop, settings, once=once, report=print_update, environ=os.environ)
    if once and not made and not as_json:
        with closing(open_at(settings.store, read_only=True)) as store:
            reasons = "; ".join(reasons_for_none(store, settings))
        click.echo(f"no update was made: {printable(suggest(reasons))}")


def reasons_for_none(store: Store, settings: Settings) -> Iterator[str]:
    """Yield why no update is made now."""
    other = now_learning(store)
    if killed_of(store, settings) is not None:
        yield "the kill switch is on"
    elif store.gate.load().state != "pass":
        yield "the gate holds"
    elif Part.LEARNING in store.pauses.pauses():
        yield "learning is paused"
    elif other not in {None, this_process()}:
        yield f"{other} is learning"
    else:
        yield from _reasons_by_point(store, settings.update_interval)


def _reasons_by_point(store: Store, least: int) -> Iterator[str]:
    rewards, policies = store.rewards, store.policies
    points = (*rewards.ready_points(), "")
    ready = {
        point: rewards.ready_count(point, after=policies.watermark(point), limit=least)
        for point in points
    }
    for point, count in ready.items():
        where = f"at {point!r}" if point else "of runs without decisions"
        if count >= least:
            yield f"the one {where} failed: see the log, and `tau-live gate`"
        elif count:
            yield (
                f"{where}, {count} of the {least} new rollouts are ready that it takes "
                "(TAU_LIVE_RL_UPDATE_INTERVAL)"
            )
    if not any(ready.values()):
        waiting = rewards.waiting()
        yield "no new rollout has a reward" + (f", and {waiting:,} wait for one" if waiting else "")
