"""``tau-live gate``: show it, hold it, reset it, read its history."""

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import click

from tau_live.cli.opening import (
    default_command,
    epilog,
    json_option,
    opened,
    operator,
    reason_option,
    store_option,
)
from tau_live.cli.output import (
    facts_of,
    fitting,
    print_all,
    print_json,
    records_of,
    styled,
    table_of,
)
from tau_live.cli.standing import warn_of_stops
from tau_live.cli.text import ago, moment, shown
from tau_live.errors import StoreUnavailableError
from tau_live.gate import (
    GateEntry,
    GateKeeper,
    GateRow,
    HoldReason,
    MemoryHold,
    memory_holds,
)
from tau_live.operators.kill_switch import Killed, ended_by, kill_file, now_killed
from tau_live.operators.killed_processes import killed_inside
from tau_live.settings import Settings
from tau_live.store.records import AuditEntry
from tau_live.store.roles import Store

HELD = 3
HOLD = "gate_hold"
AUDITED = 1_000
"""Among so many of the newest audit entries is looked for what operators said of their holds."""


@click.group(
    invoke_without_command=True,
    epilog=epilog("gate show", "tau-live gate || tau-live gate log"),
)
@store_option
@json_option
@click.pass_context
def gate(ctx: click.Context, path: Path | None, as_json: bool) -> None:
    """Show the gate (as `gate show`), hold it, reset it, or list its history.

    While it holds, tau-live records, learns and decides nothing in your agents: they behave
    as if it were not installed, and `tau_live.reward` returns False. Commands still work,
    `tau-live reward` too. Exit code 0 means pass, 3 means hold.
    """
    if default_command(ctx, path, as_json=as_json):
        ctx.invoke(show, path=path, as_json=as_json)


@gate.command("show", epilog=epilog("gate show", "tau-live gate show --json"))
@store_option
@json_option
@click.pass_context
def show(ctx: click.Context, path: Path | None, as_json: bool) -> None:
    """Show the gate. Exit code 0 means pass.

    Exit code 3 means hold, in the store or in the memory of a process that cannot write to it, or
    that the kill switch is on.
    """
    with opened(path) as (store, settings):
        row = store.gate.load()
        killed = now_killed(kill_file(settings.store, settings.kill_file)) or killed_inside(
            store.leases, now=time.time()
        )
        newest = store.gate.log(limit=1)
        holds = memory_holds(settings.store)
    if as_json:
        switch = None if killed is None else killed._asdict()
        held = [hold._asdict() for hold in holds]
        changed = {"since": row.since or None, "kill_switch": switch, "held_in_memory": held}
        print_json({**asdict(row), **changed})
    else:
        print_all(facts_of(_facts(row, killed, newest, holds, now=time.time())))
    ctx.exit(0 if row.state == "pass" and killed is None and not holds else HELD)


@gate.command("reset", epilog=epilog("gate reset", 'tau-live gate reset --reason "disk replaced"'))
@reason_option
@store_option
@json_option
def reset(path: Path | None, as_json: bool, reason: str) -> None:
    """Let the gate pass again in every running process, within a second."""
    who, at = operator(), time.time()
    with opened(path, write=True) as (store, settings):
        was = store.gate.load()
        row = reset_of(store, settings, reason=reason, who=who, at=at)
        warn_of_stops(store, settings)
    if as_json:
        print_json(
            {
                "state": row.state,
                "was": was.state,
                "reason": reason,
                "who": who,
                "at": at,
                "revision": row.revision,
            }
        )
    else:
        passed = "no change: the gate already passed" if was.state == "pass" else "the gate passes"
        click.echo(f"{passed}; recorded in the audit log as {who}")


@gate.command("hold", epilog=epilog("gate hold", 'tau-live gate hold --reason "audit today"'))
@reason_option
@store_option
@json_option
def hold(path: Path | None, as_json: bool, reason: str) -> None:
    """Hold the gate in every running process, within a second, until `gate reset`."""
    who, at = operator(), time.time()
    with opened(path, write=True) as (store, settings):
        was = store.gate.load()
        row = held_of(store, settings, reason=reason, who=who, at=at)
    if as_json:
        print_json(
            {
                "state": row.state,
                "was": was.state,
                "reason": row.reason,
                "detail": row.detail,
                "who": who,
                "at": at,
                "revision": row.revision,
            }
        )
    elif was.state == "pass":
        click.echo(
            f"the gate holds until `tau-live gate reset`; recorded in the audit log as {shown(who)}"
        )
    else:
        since = f"since {moment(was.since)}: {was.reason}: {was.detail}"
        click.echo(f"no change: the gate already held, {shown(since)}")


@gate.command("log", epilog=epilog("gate log", "tau-live gate log --limit 5"))
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="Show at most this many."
)
@store_option
@json_option
def log(path: Path | None, as_json: bool, limit: int) -> None:
    """Show the history of the gate, newest first."""
    with opened(path) as (store, _):
        entries = store.gate.log(limit=limit)
        words = {
            (one.at, one.who): one.reason
            for one in store.audit.entries(limit=AUDITED)
            if one.action == HOLD
        }
    said = [words.get((entry.at, entry.who)) for entry in entries]
    if as_json:
        told = [{**asdict(one), "detail": of} for one, of in zip(entries, said, strict=True)]
        print_json({"entries": told})
        return
    rows = [
        (moment(entry.at), styled(entry.state), entry.event, entry.kind or "", entry.who,
         ": ".join(filter(None, (entry.reason, of))))
        for entry, of in zip(entries, said, strict=True)
    ]  # fmt: skip
    columns = ("when (UTC)", "state", "event", "kind", "who", "reason")
    if rows:
        print_all(fitting(table_of(columns, rows), records_of(columns, rows)))
    else:
        click.echo("the gate has never changed")


def reset_of(store: Store, settings: Settings, *, reason: str, who: str, at: float) -> GateRow:
    """Reset the gate, write down who and why, and return it as it is stored now.

    Raises:
        StoreUnavailableError: It could not be written; the gate is as it was.
    """
    keeper = GateKeeper(limit=settings.max_failure_streak, who=who)
    with store.begin():
        before = store.gate.load()
        if before.reason == HoldReason.GATE_REMOVED:  # so that the history tells of it
            entry = GateEntry(
                at=at, event="hold", state=before.state, kind=None, reason=before.reason, who=who
            )
            store.gate.save(replace(before, since=at, revision=before.revision + 1), entry=entry)
        keeper.reset(reason, who=who, at=at)
        keeper.refresh(store.gate, at=at)
        if keeper.unsaved or keeper.store_error:
            raise StoreUnavailableError(f"the gate was not reset: {keeper.store_error}")
        streaks = any(before.streaks.values())
        details = {"was": before.state, "idempotent": before.state == "pass" and not streaks}
        store.audit.add(
            AuditEntry(at=at, who=who, action="gate_reset", reason=reason, details=details)
        )
        return store.gate.load()


def held_of(store: Store, settings: Settings, *, reason: str, who: str, at: float) -> GateRow:
    """Let the gate hold, write down who and why, and return it as it is stored now.

    A gate that holds already keeps its own reason.

    Raises:
        StoreUnavailableError: It could not be written; the gate is as it was.
    """
    keeper = GateKeeper(limit=settings.max_failure_streak, who=who)
    with store.begin():
        was = store.gate.load().state
        keeper.refresh(store.gate, at=at)
        keeper.hold(HoldReason.OPERATOR, at=at, detail=reason, who=who)
        keeper.refresh(store.gate, at=at)
        if keeper.unsaved or keeper.store_error:
            raise StoreUnavailableError(f"the gate was not held: {keeper.store_error}")
        details = {"was": was, "idempotent": was != "pass"}
        store.audit.add(AuditEntry(at=at, who=who, action=HOLD, reason=reason, details=details))
        return store.gate.load()


def _facts(
    row: GateRow,
    killed: Killed | None,
    newest: Sequence[GateEntry],
    holds: Sequence[MemoryHold],
    *,
    now: float,
) -> list[tuple[str, object]]:
    streaks = ", ".join(f"{kind} {count}" for kind, count in row.streaks.items() if count)
    facts: list[tuple[str, object]] = [("gate", styled("hold" if holds else row.state))]
    if row.since:
        facts.append(("since", ago(row.since, now=now)))
    facts.append(("failures in a row", streaks or "none"))
    if row.detail:
        facts.append(("last error" if streaks or row.state == "pass" else "detail", row.detail))
    if row.state != "pass":
        facts.append(("reason", row.reason or "no reason given"))
        if row.reason != HoldReason.GATE_REMOVED:  # nobody says who did that
            facts += [("set by", entry.who) for entry in newest if entry.event == "hold"]
        facts.append(("next step", 'tau-live gate reset --reason "..."'))
    for hold in holds:
        when = ago(hold.since, now=now)
        facts.append(("held in memory", f"by process {hold.pid} since {when}: {hold.reason}"))
    if holds:
        facts.append(("next step", "tau-live doctor"))
    if killed is not None:
        facts.append(("kill switch", f"on since {ago(killed.at, now=now)}: {killed}"))
        facts.append(("next step", ended_by(killed.reason).strip("`")))
    return facts
