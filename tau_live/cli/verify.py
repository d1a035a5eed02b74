"""``tau-live verify``: what was edited, removed or added behind tau-live's back."""

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click

from tau_live.cli.opening import (
    epilog,
    json_option,
    opened,
    operator,
    settings_of,
    store_option,
    valid_reason,
)
from tau_live.cli.output import print_json, progress_bar
from tau_live.cli.text import number, shown
from tau_live.errors import CheckpointError, TauLiveError
from tau_live.guard import text_of
from tau_live.operators.kept_history import gate_contradictions, pause_contradictions
from tau_live.policies.files import check_policy, checkpoint_folder, required_versions
from tau_live.settings import Settings
from tau_live.store.records import AuditEntry
from tau_live.store.sealing import (
    NOT_SEALED,
    SEALED,
    Begins,
    Sealer,
    keep_beginning,
    key_in,
    known_beginning,
)
from tau_live.store.sqlite import SqliteStore
from tau_live.store.sqlite_seals import Finding, Head

SHOWN = 100
TOLD_EVERY = 1000
_HEAD = re.compile(r"([0-9]{1,18}):([0-9a-f]{32})")


class Verified(NamedTuple):
    """What was looked at, and what was found."""

    findings: list[Finding]
    seals: int
    without_key: int
    head: Head
    checkpoints: int


@click.command(
    epilog=epilog(
        "verify",
        "tau-live verify",
        "tau-live verify --head 1200:9f86d081884c7d65...",
        'tau-live verify --adopt --reason "restored from the backup of Monday"',
    )
)
@click.option(
    "--head", "known", metavar="PLACE:LINK",
    help="An earlier head, kept elsewhere: the chain must still contain it.",
)  # fmt: skip
@click.option(
    "--adopt", is_flag=True,
    help="First adopt a store whose seals begin without the key; needs --reason.",
)  # fmt: skip
@click.option("--reason", callback=valid_reason, help="Why; recorded in the audit log.")
@store_option
@json_option
@click.pass_context
def verify(  # one for each option
    ctx: click.Context,
    path: Path | None,
    *,
    as_json: bool,
    known: str | None,
    adopt: bool,
    reason: str | None,
) -> None:
    """Detect rows that were edited, removed or added from outside, and damaged checkpoints.

    Decisions, rewards, totals, assignments, updates, trials, versions and which of them serve,
    alerts and the audit are sealed when they are stored, each seal bound to the one before. Without
    a key (TAU_LIVE_RL_AUDIT_KEY_FILE), anyone who can write the file can also reseal it; and only a
    head that was kept elsewhere shows that the end of the chain was cut off together with its
    numbering. A store that the key had sealed and that begins without it is not written to until
    --adopt takes it over. Exit code 1 means that something was detected.
    """
    anchor = None if known is None else _head_of(known)
    if adopt != (reason is not None):
        raise click.UsageError("--adopt and --reason belong together", ctx)
    if adopt and reason is not None:
        _adopt(path, reason)
    with opened(path) as (store, settings), progress_bar(quiet=as_json) as bar:
        seals = store.seals.count()
        task = bar.add_task("seals", total=seals)
        found = verified(
            store, settings, anchor=anchor, told=lambda done: bar.update(task, completed=done)
        )
    if as_json:
        print_json(
            {
                "at": time.time(),
                "sound": not found.findings,
                "findings": [finding._asdict() for finding in found.findings],
                "seals": found.seals,
                "without_key": found.without_key,
                "not_covered": NOT_SEALED,
                "checkpoints": found.checkpoints,
                "head": str(found.head),
                "key_id": found.head.key_id or None,
            }
        )
    else:
        _print(found)
    ctx.exit(1 if found.findings else 0)


def verified(
    store: SqliteStore,
    settings: Settings,
    *,
    anchor: tuple[int, str] | None = None,
    told: Callable[[int], None] = lambda _: None,
) -> Verified:
    """Look at the whole chain, every sealed row, what has to agree with them, every checkpoint.

    Args:
        store: Open, for reading.
        settings: Where the key and the checkpoints are.
        anchor: Place and link of an earlier head.
        told: Called now and then with how many seals were looked at.

    Raises:
        StoreUnavailableError: The store or the key cannot be read.
    """
    key_file = settings.audit_key_file
    sealer = Sealer(key_in(key_file))
    findings: list[Finding] = []
    begins = known_beginning(key_file, store.path)
    for n, finding in enumerate(store.seals.broken_links(sealer, begins=begins)):
        if finding is not None:
            findings.append(finding)
        if n % TOLD_EVERY == 0:
            told(n)
    for table in SEALED:
        findings += store.seals.changed_rows(table)
    findings += store.consistency.contradictions()
    with store.reading():  # one moment: between two, the gate may have been held
        findings += [Finding("gate", *found) for found in gate_contradictions(store)]
        findings += [Finding("pauses", *found) for found in pause_contradictions(store)]
    findings += _against(store, anchor)
    files = list(_checkpoints(store, checkpoint_folder(settings)))
    findings += [finding for finding in files if finding is not None]
    without = store.seals.count_without(sealer)
    return Verified(findings, store.seals.count(), without, store.seals.head(), len(files))


def _adopt(path: Path | None, reason: str) -> None:
    """Take over a store whose seals begin without the key, and record who did and why."""
    settings_of(path, changes=True)
    with opened(path) as (store, settings):
        head, key_file = store.seals.head(), settings.audit_key_file
    if key_file is None:
        raise TauLiveError("no key to adopt it with: set TAU_LIVE_RL_AUDIT_KEY_FILE")
    try:
        key_in(key_file, make=True)
        keep_beginning(key_file, settings.store, Begins(head.place, head.link))
    except OSError as error:
        raise TauLiveError(f"cannot keep beside '{key_file}' what it seals: {error}") from error
    with opened(path, write=True) as (store, settings):
        store.audit.add(
            AuditEntry(
                at=time.time(), who=operator(), action="adopt", reason=reason,
                details={"head": str(head), "key_id": head.key_id or None},
            )
        )  # fmt: skip


def _against(store: SqliteStore, anchor: tuple[int, str] | None) -> Iterator[Finding]:
    """Yield that the chain does not lead through a head that was kept elsewhere."""
    if anchor is None or anchor == (0, "0" * 32):  # of an empty chain
        return
    place, link = anchor
    held, head = store.seals.link_at(place), store.seals.head()
    if held == link:
        return
    if place > head.place:
        detail = f"the chain ends before it, at {head.place}"
    elif held is None:
        detail = "retention deleted that part of the chain; keep a newer head"
    else:
        detail = "the chain is another one there"
    yield Finding("not_the_head", f"seal {place}", detail)


def _checkpoints(store: SqliteStore, folder: Path) -> Iterator[Finding | None]:
    """Yield, for each version whose file should be there or is, what is wrong with it."""
    try:
        required, versions = required_versions(store), store.policies.versions()
    except (TauLiveError, ValueError) as error:  # edited rows may hold anything
        yield Finding("unreadable", "versions of policies", text_of(error))
        return
    for row in versions:
        if row.version not in required and not os.path.lexists(folder / row.file):
            continue  # its file was given up, as keep_checkpoints says
        try:
            check_policy(folder, row)
        except CheckpointError as error:
            yield Finding("checkpoint", f"version {row.version}", str(error))
        else:
            yield None


def _head_of(text: str) -> tuple[int, str]:
    found = _HEAD.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(
            f"{text!r} is not a head as `tau-live verify` prints it", param_hint="--head"
        )
    return int(found[1]), found[2]


def _print(found: Verified) -> None:
    for finding in found.findings[:SHOWN]:
        click.echo(f"{shown(finding.what)}: {shown(finding.detail)}")
    if len(found.findings) > SHOWN:
        click.echo(f"and {number(len(found.findings) - SHOWN)} more; --json lists them")
    sealed = f"sealed with the key {found.head.key_id}" if found.head.key_id else "without a key"
    if found.head.key_id and found.without_key:
        sealed += f", {number(found.without_key)} of them from before it had one"
    said = f"{number(len(found.findings))} found" if found.findings else "no sealed row was changed"
    click.echo(
        f"{said}: {number(found.seals)} seals, {sealed}, {number(found.checkpoints)} checkpoints; "
        f"not covered: {NOT_SEALED}"
    )
    click.echo(f"head {found.head}")
