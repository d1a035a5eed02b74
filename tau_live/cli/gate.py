"""``tau-live gate``: show it, hold it, reset it, read its history."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tau_live.cli.options import (
    epilog,
    json_option,
    open_store,
    operator,
    reason_option,
    run_default,
    store_option,
    warn_of_stops,
)
from tau_live.cli.output import (
    ago,
    facts_of,
    fitting,
    moment,
    print_all,
    print_json,
    printable,
    records_of,
    seconds,
    status_text,
    suggest,
    table_of,
)
from tau_live.core.errors import StoreDamagedError, StoreUnavailableError
from tau_live.core.gate import GateEntry, GateRow, HoldReason
from tau_live.core.gate_keeper import GateKeeper
from tau_live.core.memory_holds import MemoryHold, memory_holds
from tau_live.core.records import AuditEntry
from tau_live.core.settings import Settings, reach_s
from tau_live.operate.stops import Stop, ended_by, killed_of
from tau_live.store.lean import CHECK_S
from tau_live.store.roles import Store

if TYPE_CHECKING:
    from tau_live.operate.records import HostHold, Unaware

HOLD = "gate_hold"
RESET = 'tau-live gate reset --reason "..."'
MOST_NAMED = 10
"""How many processes of a fleet are named; there may be a thousand."""


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
    run_default(ctx, show, path, as_json=as_json)


@gate.command("show", epilog=epilog("gate show", "tau-live gate show --json"))
@store_option
@json_option
@click.pass_context
def show(ctx: click.Context, path: Path | None, as_json: bool) -> None:
    """Show the gate. Exit code 0 means pass.

    Exit code 1 also means that a page of the store is damaged, as far as a tenth of a second
    suffices to look at them; `doctor` looks at all.

    Exit code 3 means hold, in the store or in the memory of a process that cannot write to it, or
    that the kill switch is on. A process of a fleet that its own failures hold is named; the others
    go on, so the exit code is 0.
    """
    with open_store(path) as (store, settings):
        row = store.gate.load()
        killed = killed_of(store, settings)
        newest = store.gate.log(limit=1)
        holds = memory_holds(settings.store)
        hosts, unaware = _fleet(store, settings, revision=row.revision)
        damage = store.damage(deadline=time.monotonic() + CHECK_S)
    if as_json:
        changed = {"since": row.since or None, "kill_switch": killed, "held_in_memory": holds}
        reach = {"reaches_within_s": reach_s(settings), "not_acknowledged": unaware}
        print_json({**asdict(row), **changed, "hosts_holding": hosts, **reach})
    else:
        now = time.time()
        facts = [*_facts(row, killed, newest, holds, now=now), *_host_facts(hosts, now=now)]
        if hosts and row.state == "pass":  # else the gate has it
            facts.append(("next step", suggest(RESET)))
        print_all(facts_of([*facts, *_reach(reach_s(settings)), *_unaware_facts(unaware)]))
    if damage:
        raise StoreDamagedError(f"store '{settings.store}' is damaged: {damage}")
    ctx.exit(0 if row.state == "pass" and killed is None and not holds else 3)


@gate.command("reset", epilog=epilog("gate reset", 'tau-live gate reset --reason "disk replaced"'))
@reason_option
@store_option
@json_option
def reset(path: Path | None, as_json: bool, reason: str) -> None:
    """Let the gate pass again in every running process, within a second."""
    who, at = operator(), time.time()
    with open_store(path, write=True) as (store, settings):
        was = store.gate.load()
        hosts, _ = _fleet(store, settings, revision=was.revision)
        row = reset_gate(store, settings, reason=reason, who=who, at=at)
        warn_of_stops(store, settings)
    if as_json:
        print_json(
            {
                "state": row.state,
                "was": was.state,
                "hosts_held": len(hosts),
                "reason": reason,
                "who": who,
                "at": at,
                "revision": row.revision,
            }
        )
    else:
        passed = "no change: the gate already passed" if was.state == "pass" else "the gate passes"
        if hosts:
            held = f"{len(hosts)} {'process' if len(hosts) == 1 else 'processes'}"
            passed = f"the gate passes, also in {held} that held alone"
        click.echo(f"{passed}; recorded in the audit log as {who}")


@gate.command("hold", epilog=epilog("gate hold", 'tau-live gate hold --reason "audit today"'))
@reason_option
@store_option
@json_option
def hold(path: Path | None, as_json: bool, reason: str) -> None:
    """Hold the gate in every running process, within a second, until `gate reset`."""
    who, at = operator(), time.time()
    with open_store(path, write=True) as (store, settings):
        was = store.gate.load()
        row = hold_gate(store, settings, reason=reason, who=who, at=at)
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
            f"{suggest('the gate holds until `tau-live gate reset`')}; recorded in the audit log "
            f"as {printable(who)}"
        )
    else:
        since = f"since {moment(was.since)}: {was.reason}: {was.detail}"
        click.echo(f"no change: the gate already held, {printable(since)}")


@gate.command("log", epilog=epilog("gate log", "tau-live gate log --limit 5"))
@click.option(
    "--limit", type=click.IntRange(1), default=50, show_default=True, help="Show at most this many."
)
@store_option
@json_option
def log(path: Path | None, as_json: bool, limit: int) -> None:
    """Show the history of the gate, newest first."""
    with open_store(path) as (store, _):
        entries = store.gate.log(limit=limit)
        words = {
            (entry.at, entry.who): entry.reason
            for entry in store.audit.entries(limit=1_000)  # older holds are shown without a reason
            if entry.action == HOLD
        }
    reasons = [words.get((entry.at, entry.who)) for entry in entries]
    if as_json:
        history = [
            {**asdict(entry), "detail": of} for entry, of in zip(entries, reasons, strict=True)
        ]
        print_json({"entries": history})
        return
    rows = [
        (moment(entry.at), status_text(entry.state), entry.event, entry.kind or "", entry.who,
         ": ".join(filter(None, (entry.reason, of))))
        for entry, of in zip(entries, reasons, strict=True)
    ]  # fmt: skip
    columns = ("when (UTC)", "state", "event", "kind", "who", "reason")
    if rows:
        print_all(fitting(table_of(columns, rows), records_of(columns, rows)))
    else:
        click.echo("the gate has never changed")


def _reach(within_s: float) -> list[tuple[str, object]]:
    """Return when a hold reaches hosts that do not hear the database, if there may be any."""
    if within_s <= 1.0:
        return []
    return [("reaches", f"hosts in 1 s; one without the database within {seconds(within_s)}")]


def _fleet(
    store: Store, settings: Settings, *, revision: int
) -> tuple[Sequence["HostHold"], Sequence["Unaware"]]:
    """Return the processes of a fleet that hold alone, and those that act by no such revision."""
    if not store.is_shared:
        return (), ()
    from tau_live.operate.status import hosts_holding, unaware_processes  # which loads numpy

    return hosts_holding(store), unaware_processes(store, settings, revision=revision)


def _host_facts(hosts: Sequence["HostHold"], *, now: float) -> Iterator[tuple[str, object]]:
    """Yield the processes that hold alone, each with why."""
    for each in hosts[:MOST_NAMED]:
        why = ": ".join(text for text in (each.reason, each.detail) if text)
        yield "holds alone", f"{each.process} since {ago(each.since, now=now)}: {why}"
    if len(hosts) > MOST_NAMED:
        yield "holds alone", f"{len(hosts) - MOST_NAMED} more; --json has all"


def _unaware_facts(processes: Sequence["Unaware"]) -> Iterator[tuple[str, object]]:
    """Yield the processes that have not acknowledged the newest order."""
    for each in processes[:MOST_NAMED]:
        yield "not acknowledged", f"by {each.process}, silent for {seconds(each.silent_s)}"
    if len(processes) > MOST_NAMED:
        yield "not acknowledged", f"by {len(processes) - MOST_NAMED} more; --json has all"


def reset_gate(store: Store, settings: Settings, *, reason: str, who: str, at: float) -> GateRow:
    """Reset the gate, record who and why in the audit, and return the stored gate.

    Raises:
        StoreUnavailableError: It could not be written; the gate is as it was.
    """
    keeper = GateKeeper(limit=settings.max_failure_streak, who=who)
    with store.begin():
        before = store.gate.load()
        if before.reason == HoldReason.GATE_REMOVED:  # so that the history has it
            entry = GateEntry(
                at=at, event="hold", state=before.state, kind=None, reason=before.reason, who=who
            )
            store.gate.save(replace(before, since=at, revision=before.revision + 1), entry=entry)
        keeper.reset(reason, who=who, at=at)
        keeper.refresh(store.gate)
        if keeper.has_unsaved or keeper.store_error:
            raise StoreUnavailableError(f"the gate was not reset: {keeper.store_error}")
        hosts, _ = _fleet(store, settings, revision=before.revision)
        streaks = any(before.streaks.values()) or bool(hosts)
        details = {"was": before.state, "idempotent": before.state == "pass" and not streaks}
        store.audit.add(
            AuditEntry(at=at, who=who, action="gate_reset", reason=reason, details=details)
        )
        return store.gate.load()


def hold_gate(store: Store, settings: Settings, *, reason: str, who: str, at: float) -> GateRow:
    """Let the gate hold, record who and why in the audit, and return the stored gate.

    A gate that holds already keeps its own reason.

    Raises:
        StoreUnavailableError: It could not be written; the gate is as it was.
    """
    keeper = GateKeeper(limit=settings.max_failure_streak, who=who)
    with store.begin():
        was = store.gate.load().state
        keeper.refresh(store.gate)
        keeper.hold(HoldReason.OPERATOR, at=at, detail=reason, who=who)
        keeper.refresh(store.gate)
        if keeper.has_unsaved or keeper.store_error:
            raise StoreUnavailableError(f"the gate was not held: {keeper.store_error}")
        details = {"was": was, "idempotent": was != "pass"}
        store.audit.add(AuditEntry(at=at, who=who, action=HOLD, reason=reason, details=details))
        return store.gate.load()


def _facts(
    row: GateRow,
    killed: Stop | None,
    newest: Sequence[GateEntry],
    holds: Sequence[MemoryHold],
    *,
    now: float,
) -> list[tuple[str, object]]:
    streaks = ", ".join(f"{kind} {count}" for kind, count in row.streaks.items() if count)
    is_held = row.state != "pass"
    # nobody knows who removed the row of a gate
    setters = newest if is_held and row.reason != HoldReason.GATE_REMOVED else ()
    return [
        ("gate", status_text("hold" if holds else row.state)),
        ("since", ago(row.since, now=now) if row.since else None),
        ("failures in a row", streaks or "none"),
        ("last error" if streaks or not is_held else "detail", row.detail or None),
        ("reason", row.reason or "no reason given" if is_held else None),
        *(("set by", entry.who) for entry in setters if entry.event == "hold"),
        ("next step", suggest(RESET) if is_held else None),
        *(
            (
                "held in memory",
                f"by process {hold.pid} since {ago(hold.since, now=now)}: {hold.reason}",
            )
            for hold in holds
        ),
        ("next step", suggest("tau-live doctor") if holds else None),
        ("kill switch", f"on since {ago(killed.at, now=now)}: {killed}" if killed else None),
        ("next step", suggest(ended_by(killed.reason).strip("`")) if killed else None),
    ]
