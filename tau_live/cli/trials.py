"""``tau-live policy exposure|promote|reset|...``: who decides, and how much."""

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial, wraps
from pathlib import Path
from typing import TypeVar

import click

from tau_live.cli import completing
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
from tau_live.cli.text import percent, shown
from tau_live.operators import trials
from tau_live.operators.trials import Changed, Order
from tau_live.settings import Settings
from tau_live.settings.decisions import Point
from tau_live.store.roles import Store

Callback = TypeVar("Callback", bound=Callable[..., None])
Act = Callable[[Store, Settings, Order], Changed]


def share_of(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float:
    """Return a share of rollouts, said as ``0.25`` or ``25%``, as a number in ``[0, 1]``."""
    words = _alone(ctx, parameter) if value is None else value.strip()
    share = _share(words)
    if share is None:
        raise click.BadParameter(
            f"expected 0 to 1, or 0% to 100%, got {words!r}", ctx=ctx, param=parameter
        )
    return share


def _alone(ctx: click.Context, parameter: click.Parameter) -> str:
    """Return the share where it stands alone, and so was taken for the point."""
    words: str = ctx.params.get("point") or ""
    if _share(words) is None:
        raise click.MissingParameter(ctx=ctx, param=parameter)
    if ctx.params.get("point_option") is None:
        raise click.UsageError("Missing argument 'POINT', which comes before the share", ctx)
    ctx.params["point"] = None
    return words


def _share(words: str) -> float | None:
    try:
        share = float(words.removesuffix("%")) / (100.0 if words.endswith("%") else 1.0)
    except ValueError:
        return None
    return share if 0.0 <= share <= 1.0 else None


def point_argument(callback: Callback) -> Callback:
    """Add POINT, which may also be said as ``--point POINT``."""

    @wraps(callback)
    def named(*, point: str | None, point_option: str | None, **others: object) -> None:
        if (point is None) == (point_option is None):
            raise click.UsageError("give the decision point, once")
        callback(point=point or point_option, **others)

    argued = click.argument("point", required=False, shell_complete=completing.points)(named)
    return click.option("--point", "point_option", help="The same as POINT.")(argued)  # type: ignore[return-value]  # click's commands take keywords alone


def command(name: str, *examples: str) -> Callable[[Callback], click.Command]:
    """Make a command that changes a point: ``--reason``, ``--store``, ``--json`` and its end."""

    def made(callback: Callback) -> click.Command:
        with_options = reason_option(store_option(json_option(callback)))
        return click.command(name, epilog=epilog(f"policy {name}", *examples))(
            point_argument(with_options)
        )

    return made


@command(
    "exposure",
    'tau-live policy exposure model 25% --reason "looks good in shadow"',
    'tau-live policy exposure model 1.0 --reason "act from the first run on"',
)
@click.argument("share", callback=share_of, required=False, metavar="SHARE")
def exposure(*, point: str, share: float, reason: str, path: Path | None, as_json: bool) -> None:
    """Set the SHARE of rollouts that the learner decides at POINT; a stopped learner starts again.

    With 0 it decides none but runs in shadow, so that its agreement with the host is known.
    From there it climbs as the evidence allows. A decision point of a host (model, prompt, params,
    tools, tool_gate or retry) can be exposed before the first run.
    """
    _act(
        partial(trials.exposed, share=share),
        "policy_exposure",
        point,
        reason=reason,
        path=path,
        as_json=as_json,
        create=point in list(Point),
    )


@command("promote", 'tau-live policy promote model --reason "better in the review"')
def promote(*, point: str, reason: str, path: Path | None, as_json: bool) -> None:
    """Make the learner's version at POINT the champion, at full exposure.

    This is what evidence does at the top of the ladder. The previous champion keeps 5 percent for
    TAU_LIVE_RL_PROBATION rollouts, and returns by itself if it proves better.
    """
    _act(trials.promoted, "policy_promote", point, reason=reason, path=path, as_json=as_json)


@command("reset", 'tau-live policy reset model --reason "answers got too short"')
def reset(*, point: str, reason: str, path: Path | None, as_json: bool) -> None:
    """Take the learner's version at POINT out of service.

    Learning continues from the champion, or untrained if there is none, and the test restarts on
    the lowest rung. A champion on probation gives way to the previous one.
    """
    _act(trials.reset, "policy_reset", point, reason=reason, path=path, as_json=as_json)


@command("freeze", 'tau-live policy freeze model --reason "passed the review"')
def freeze(*, point: str, reason: str, path: Path | None, as_json: bool) -> None:
    """Make the learner's version at POINT the champion.

    The previous champion keeps 5 percent for TAU_LIVE_RL_PROBATION rollouts, and returns by
    itself if it proves better.
    """
    _act(trials.champion_frozen, "policy_freeze", point, reason=reason, path=path, as_json=as_json)


@command("rollback", 'tau-live policy rollback model --reason "too expensive"')
@click.option("--pin", is_flag=True, help="Keep it until `unpin`: updates do not replace it.")
def rollback(*, point: str, reason: str, path: Path | None, as_json: bool, pin: bool) -> None:
    """Roll back POINT, in running processes too.

    To the previous champion while it keeps a share, else to the champion; if that decides already
    or there is none, to the previous version. Without --pin the next update continues from there.
    Use `undo` to revert a command given by mistake.
    """
    _act(
        partial(trials.rolled_back, pin=pin),
        "policy_rollback",
        point,
        reason=reason,
        path=path,
        as_json=as_json,
    )


@command("pin", 'tau-live policy pin model --reason "wait for the review"')
def pin(*, point: str, reason: str, path: Path | None, as_json: bool) -> None:
    """Keep the learner's version at POINT: updates still learn but do not replace it."""
    _act(trials.pinned, "policy_pin", point, reason=reason, path=path, as_json=as_json)


@command("unpin", 'tau-live policy unpin model --reason "reviewed"')
def unpin(*, point: str, reason: str, path: Path | None, as_json: bool) -> None:
    """Put the newest version into service at POINT, and every one that updates make after it.

    A version that was rolled back or reset stays out of service; `use` puts it back.
    """
    _act(trials.unpinned, "policy_unpin", point, reason=reason, path=path, as_json=as_json)


@command("undo", 'tau-live policy undo model --reason "wrong point"')
def undo(*, point: str, reason: str, path: Path | None, as_json: bool) -> None:
    """Undo the last command at POINT: everything that it changed is restored.

    Later changes by updates and evidence stay. A second `undo` reverts the first.
    """
    _act(trials.undone, "policy_undo", point, reason=reason, path=path, as_json=as_json)


@command("stop", 'tau-live policy stop model --reason "complaints"')
def stop(*, point: str, reason: str, path: Path | None, as_json: bool) -> None:
    """Stop the learner at POINT: the control decides everything, until `exposure`."""
    _act(trials.stopped, "policy_stop", point, reason=reason, path=path, as_json=as_json)


COMMANDS = (exposure, promote, reset, freeze, rollback, pin, unpin, undo, stop)


def _act(  # noqa: PLR0913  # what every verb has, all keyword-only but three
    act: Act,
    action: str,
    point: str,
    *,
    reason: str,
    path: Path | None,
    as_json: bool,
    create: bool = False,
) -> None:
    order = Order(action, point, reason, operator(), time.time())
    with opened(path, write=True, create=create) as (store, settings):
        changed = act(store, settings, order)
        warn_of_stops(store, settings)
    if as_json:
        print_json(asdict(changed))
    else:
        click.echo(said(changed))


def said(changed: Changed) -> str:
    """Return a change in words, on one line."""
    version = f"version {changed.version}" if changed.version else "the untrained policy"
    learner = f"{version}{', pinned' if changed.pinned else ''}"
    if changed.was != changed.version:
        learner += f" (before: {changed.was})"
    control = "the host's own choice" if changed.champion is None else f"version {changed.champion}"
    share = "is stopped" if changed.stopped is not None else f"decides {percent(changed.exposure)}"
    already = "no change: " if changed.idempotent else ""
    return (
        f"{shown(changed.point)}: {already}the learner is {learner}, and {share}; "
        f"the champion is {control}; recorded in the audit log as {shown(changed.who)}"
    )
