"""``tau-live kill``, ``unkill``, ``pause`` and ``resume``: stop everything at once, or a part."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import click

from tau_live.cli.options import (
    epilog,
    json_option,
    open_store,
    operator,
    reason_option,
    settings_of,
    stops,
    store_option,
    warn_of_stops,
)
from tau_live.cli.output import moment, print_json, printable
from tau_live.core.errors import SettingsError, TauLiveError
from tau_live.core.reasons import MEANS, Part
from tau_live.core.records import AuditEntry
from tau_live.core.settings import Settings, place_paths
from tau_live.core.switch import PREFIX, killed_by
from tau_live.operate.access import record_entry
from tau_live.operate.stops import (
    SUFFIX,
    Stop,
    kill_file,
    pause_parts,
    pauses_by_part,
    resume_parts,
)
from tau_live.operate.stops import kill as switch_off
from tau_live.operate.stops import unkill as switch_on
from tau_live.store.roles import Store


@click.command(epilog=epilog("kill", 'tau-live kill --reason "customers see nonsense"'))
@reason_option
@store_option
@json_option
def kill(path: Path | None, as_json: bool, reason: str) -> None:
    """Stop everything within a second: nothing is recorded, learned or decided until `unkill`.

    It is a file beside the store, so it works while the store is locked, full, damaged or gone;
    `touch` does the same. Open runs end as interrupted. It survives restarts.
    """
    settings, who, at = _placed_settings(path), operator(), time.time()
    file = kill_file(settings.store, settings.kill_file)
    before = switch_off(file, reason, who=who, at=at)
    details = {"file": str(file), "idempotent": before is not None}
    problem = record_entry(
        settings, AuditEntry(at=at, who=who, action="kill", reason=reason, details=details)
    )
    if as_json:
        now = before or Stop(reason, who, at)
        changed = before is None
        print_json({"changed": changed, "file": str(file), "kill_switch": now, "audit": problem})
        return
    if before is None and os.path.exists(settings.store):  # noqa: PTH110  # no access is no error
        click.echo(
            f"kill switch on (created {printable(file)}); every process stops within a second"
        )
    elif before is None:
        click.echo(
            f"created {printable(file)}, but no store is at {printable(settings.store)}: "
            "this stops only processes that use that very path"
        )
    else:
        since = f"since {moment(before.at)}: {printable(before)}"
        click.echo(f"no change: the kill switch was already on, {since}")
    if problem is not None:
        click.echo(f"note: {printable(problem)}", err=True)


def _placed_settings(path: Path | None) -> Settings:
    """Return the settings with absolute paths, which tell in which folder everything stops.

    Where a setting is wrong, ``--store`` is enough: in an emergency no other file need be right.
    The kill switch's file is then that of the environment, or the one beside the store.

    Raises:
        SettingsError: One is wrong, and no store was given; the message tells what works.
        AccessError: The caller may not change anything.
    """
    try:
        return place_paths(settings_of(path, changes=True))
    except SettingsError as error:
        if path is not None:
            click.echo(
                f"warning: no setting is read, a kill-file among them: {printable(str(error))}",
                err=True,
            )
            named = os.environ.get(f"{PREFIX}KILL_FILE", "").strip()
            return place_paths(Settings(store=path, kill_file=Path(named) if named else None))
        raise SettingsError(
            f"{error} (`touch` on the store's name with {SUFFIX} behind it works all the same)"
        ) from error


@click.command(epilog=epilog("unkill", 'tau-live unkill --reason "prompt is fixed"'))
@reason_option
@store_option
@json_option
def unkill(path: Path | None, as_json: bool, reason: str) -> None:
    """Turn the kill switch off; every running process resumes within a second."""
    settings, who, at = settings_of(path, changes=True), operator(), time.time()
    file = kill_file(settings.store, settings.kill_file)
    try:
        before = switch_on(file)
    except OSError as error:
        why = error.strerror or str(error)
        by_hand = "`rmdir`" if file.is_dir() else "`rm`, as its owner"
        raise TauLiveError(
            f"the kill switch stays on: {file} cannot be removed: {why}; remove it with {by_hand}"
        ) from error
    details = {"file": str(file), "idempotent": before is None}
    problem = record_entry(
        settings, AuditEntry(at=at, who=who, action="unkill", reason=reason, details=details)
    )
    if as_json:
        changed = before is not None
        print_json({"changed": changed, "file": str(file), "was": before, "audit": problem})
        return
    if before is None:
        click.echo(f"no change: the kill switch was off ({printable(file)} does not exist)")
    else:
        click.echo(f"everything resumes within a second (it was stopped: {printable(before)})")
    for note in filter(None, (problem, killed_by(os.environ))):
        click.echo(f"note: {printable(note)}", err=True)


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
    with open_store(path, write=True) as (store, settings):
        changed = pause_parts(store, wanted, reason=reason, who=operator(), at=time.time())
        paused = store.pauses.pauses()
        warn_of_stops(store, settings, without=wanted)
    if as_json:
        print_json({"changed": changed, "paused": pauses_by_part(paused)})
        return
    for part in wanted:
        if part in changed:
            click.echo(f"{part} is paused: {MEANS[part]}")
        else:
            was = paused[part]
            since = f"since {moment(was.at)} by {printable(was.who)}: {printable(was.reason)}"
            click.echo(f"no change: {part} was already paused, {since}")


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
    with open_store(path, write=True) as (store, settings):
        wanted = named or _paused_parts(store, settings)
        changed = resume_parts(store, wanted, reason=reason, who=operator(), at=time.time())
        paused = store.pauses.pauses()
        warn_of_stops(store, settings)
    if as_json:
        print_json({"changed": changed, "paused": pauses_by_part(paused)})
        return
    for part in wanted:
        click.echo(f"{part} is resumed" if part in changed else f"{part} was not paused")


def _paused_parts(store: Store, settings: Settings) -> Sequence[Part]:
    """Return the parts that are paused.

    Raises:
        TauLiveError: Nothing is; the message tells what stops tau-live instead, if anything does.
    """
    parts = tuple(store.pauses.pauses())
    if not parts:
        others = "; ".join(stops(store, settings)) or "see `tau-live status`"
        raise TauLiveError(f"nothing is paused, so there is nothing to resume; {others}")
    return parts
