"""What else stops tau-live: a note for changes that have no effect because of it."""

import time
from collections.abc import Iterator
from contextlib import suppress

import click

from tau_live.cli.text import shown
from tau_live.errors import TauLiveError
from tau_live.gate import memory_holds
from tau_live.operators.kill_switch import ended_by, kill_file, now_killed
from tau_live.operators.killed_processes import killed_inside
from tau_live.pauses import Part
from tau_live.settings import Settings
from tau_live.store.roles import Store
from tau_live.store.sqlite import SqliteStore


def stops(store: Store, settings: Settings) -> Iterator[str]:
    """Yield what keeps tau-live from acting, each with the command that ends it."""
    killed = now_killed(kill_file(settings.store, settings.kill_file)) or killed_inside(
        store.leases, now=time.time()
    )
    if killed is not None:
        ended = ended_by(killed.reason).replace('"', "")
        yield f"the kill switch is on: {killed}: {ended}"
    gate = store.gate.load()
    if gate.state != "pass":
        yield f"the gate holds: {gate.reason}: `tau-live gate reset --reason ...`"
    for hold in memory_holds(settings.store):
        yield f"process {hold.pid} holds in memory: {hold.reason}: `tau-live doctor`"
    for part, pause in store.pauses.pauses().items():
        yield f"{part} is paused: {pause.reason}: `tau-live resume {part} --reason ...`"


def warn_of_stops(store: Store, settings: Settings, *, without: tuple[Part, ...] = ()) -> None:
    """Say on standard error what else stops tau-live."""
    own = tuple(f"{part} is paused" for part in without)
    for stop in stops(store, settings):
        if not own or not stop.startswith(own):
            click.echo(f"note: {shown(stop)}", err=True)


def warn_before(settings: Settings) -> None:
    """Say the same before a command that opens the store itself, which will say what fails."""
    if not settings.store.exists():
        return
    with suppress(TauLiveError):
        store = SqliteStore.open(settings.store, read_only=True)
        try:
            warn_of_stops(store, settings)
        finally:
            store.close()
