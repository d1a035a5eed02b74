"""``tau-live set-aside``: keep a store that cannot be used, and begin another."""

import codecs
import time
from contextlib import closing
from pathlib import Path

import click

from tau_live.cli.options import (
    epilog,
    json_option,
    operator,
    reason_option,
    settings_of,
    store_option,
)
from tau_live.cli.output import moment, print_json, printable, suggest
from tau_live.core.errors import StoreBusyError, StoreError, StoreUnavailableError
from tau_live.core.gate import HoldReason
from tau_live.core.gate_keeper import GateKeeper
from tau_live.core.records import AuditEntry
from tau_live.core.settings import Settings
from tau_live.store import files
from tau_live.store.opening import open_at

CHECK_S = 30.0
"""How long to check for damage; `tau-live doctor` takes a tenth of that."""

SET_ASIDE = "set_aside"
STORE_SUFFIXES = {".sqlite", ".sqlite3", ".db"}
"""Suffixes that mean a store even where the file holds text instead."""

_START = 4_096
NEVERTHELESS = "--even-if-sound starts an empty one anyway"


@click.command(
    "set-aside",
    epilog=epilog("set-aside", 'tau-live set-aside --reason "damaged by the power cut"'),
)
@click.option("--even-if-sound", is_flag=True, help="Also if nothing is wrong with it.")
@reason_option
@store_option
@json_option
def set_aside(path: Path | None, as_json: bool, reason: str, even_if_sound: bool) -> None:
    """Rename the store's files and policies, and begin an empty store whose gate holds.

    For a damaged store: nothing is deleted, and what was readable stays
    readable. Running processes switch to the new store within seconds; nothing is recorded, learned
    or decided there until `tau-live gate reset`. An intact store is refused, including the one
    that this command started.
    """
    settings = settings_of(path, changes=True)
    kept = start_anew(
        settings, who=operator(), reason=reason, at=time.time(), even_if_sound=even_if_sound
    )
    if as_json:
        print_json({"store": str(settings.store), "kept": [str(file) for file in kept]})
        return
    for file in kept:
        click.echo(f"kept as {printable(str(file))}")
    reset = suggest('tau-live gate reset --reason "..."')
    click.echo(f"an empty store is in place, and its gate holds: {reset}")


def start_anew(
    settings: Settings, *, who: str, reason: str, at: float, even_if_sound: bool
) -> list[Path]:
    """Set a store and its policies aside, and begin another; return the files that are kept.

    Raises:
        StoreUnavailableError: There is none, it cannot be renamed, or nothing is wrong with it.
    """
    path = settings.store.absolute()
    try:
        with files.alone_in(path.parent, timeout_s=5.0):
            refusal = None if even_if_sound else _refusal_of_text(path) or refusal_of(path)
            if refusal:
                raise StoreUnavailableError(refusal)
            kept = files.set_aside(path, folder=files.policies_of(path), quiet=True)
    except OSError as error:
        raise StoreUnavailableError(f"store '{path}' cannot be set aside: {error}") from error
    if not kept:
        raise StoreUnavailableError(f"no store at {path}: there is nothing to set aside")
    with closing(open_at(path)) as store:
        keeper = GateKeeper(limit=settings.max_failure_streak, who=who)
        keeper.refresh(store.gate)
        keeper.hold(HoldReason.STORE_REPLACED, at=at, detail=f"set aside: {reason}", who=who)
        keeper.refresh(store.gate)
        store.audit.add(
            AuditEntry(
                at=at,
                who=who,
                action=SET_ASIDE,
                reason=reason,
                details={"kept": [file.name for file in kept]},
            )
        )
    return kept


def refusal_of(path: Path) -> str | None:
    """Return why a store must not be set aside, and what to do; ``None`` if it may.

    A second call would set aside the empty store of the first.
    """
    if not path.exists():
        return None
    try:
        with closing(open_at(path, read_only=True)) as store:
            damage = store.damage(deadline=time.monotonic() + CHECK_S)
            last, gate = store.audit.entries(limit=1), store.gate.load()
    except StoreBusyError as error:
        return f"cannot check whether it is damaged: {error}: end what does; {NEVERTHELESS}"
    except StoreError:
        return None
    if damage:
        return None
    if last and last[0].action == SET_ASIDE and gate.state != "pass":
        when, why = moment(last[0].at), printable(last[0].reason)
        return (
            f"store '{path}' is the empty one that was started at {when} UTC ({why}): "
            f'let its gate pass, `tau-live gate reset --reason "..."`; {NEVERTHELESS}'
        )
    state = f"no damage was found within {CHECK_S:g} s" if damage is None else "it is intact"
    return (
        f"store '{path}' stays: {state}. `tau-live doctor` checks for other causes, and "
        f"`tau-live gate hold` stops all that uses it; {NEVERTHELESS}"
    )


def _refusal_of_text(path: Path) -> str | None:
    """Return why a file must stay that begins like text, as no store does, however damaged."""
    if path.suffix in STORE_SUFFIXES or not path.is_file():
        return None
    with path.open("rb") as file:
        start = file.read(_START)
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return None
    if not text or not all(char.isprintable() or char.isspace() for char in text):
        return None
    return f"'{path}' is a text file, not a store: check the path; {NEVERTHELESS}"
