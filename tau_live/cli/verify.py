"""``tau-live verify``: what was edited, removed or added behind tau-live's back."""

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click

from tau_live.cli.opening import epilog, json_option, opened, store_option
from tau_live.cli.output import print_json, progress_bar
from tau_live.cli.text import number, shown
from tau_live.errors import CheckpointError, TauLiveError
from tau_live.guard import text_of
from tau_live.pauses import Part
from tau_live.policies.files import check_policy, checkpoint_folder, needed_versions
from tau_live.settings import Settings
from tau_live.store.sealing import SEALED, Sealer, key_in
from tau_live.store.sqlite import SqliteStore
from tau_live.store.sqlite_seals import Finding, Head

SHOWN = 100
TOLD_EVERY = 1000
_HEAD = re.compile(r"([0-9]{1,18}):([0-9a-f]{32})")


class Verified(NamedTuple):
    """What was looked at, and what was found."""

    findings: list[Finding]
    seals: int
    head: Head
    checkpoints: int


@click.command(
    epilog=epilog("verify", "tau-live verify", "tau-live verify --head 1200:9f86d081884c7d65...")
)
@click.option(
    "--head", "known", metavar="PLACE:LINK",
    help="An earlier head, kept elsewhere: the chain must still lead through it.",
)  # fmt: skip
@store_option
@json_option
@click.pass_context
def verify(ctx: click.Context, path: Path | None, as_json: bool, known: str | None) -> None:
    """Find rows that were edited, removed or added by others, and damaged checkpoints.

    Every decision, reward, update, version and line of the audit is sealed when it is stored, each
    seal bound to the one before. Without a key (TAU_LIVE_RL_AUDIT_KEY_FILE) whoever can write the
    file can also seal anew; and only a head that was kept elsewhere shows that the end of the chain
    was cut off together with its numbering. Exit code 1 means that something was found.
    """
    anchor = None if known is None else _head_of(known)
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
    """Look at the whole chain, at every sealed row and at every checkpoint.

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
    for n, finding in enumerate(store.seals.broken_links(sealer)):
        if finding is not None:
            findings.append(finding)
        if n % TOLD_EVERY == 0:
            told(n)
    for table in SEALED:
        findings += store.seals.changed_rows(table)
    findings += _of_gate(store)
    findings += _of_pauses(store)
    findings += _against(store, anchor)
    files = list(_checkpoints(store, checkpoint_folder(settings)))
    findings += [finding for finding in files if finding is not None]
    return Verified(findings, store.seals.count(), store.seals.head(), len(files))


def _of_gate(store: SqliteStore) -> Iterator[Finding]:
    """Yield that the gate is not what its history, which is sealed, ends with."""
    state = store.gate.load().state
    last = next((entry.state for entry in store.gate.log(limit=1)), "pass")
    if state != last:
        yield Finding("gate", "the gate", f"it is on {state}, and its history ends with {last}")


def _of_pauses(store: SqliteStore) -> Iterator[Finding]:
    """Yield what rests, or does not, although the audit, which is sealed, says otherwise."""
    said: dict[object, str] = {}
    for entry in store.audit.entries():
        parts = entry.details.get("parts") if entry.action in {"pause", "resume"} else None
        for part in parts if isinstance(parts, list) else []:
            said.setdefault(part, entry.action)  # the newest comes first
    rests = store.pauses.pauses()
    for part in Part:
        if (part in rests) != (said.get(part.value) == "pause"):
            is_now = "is paused" if part in rests else "is not paused"
            yield Finding("pauses", part.value, f"it {is_now}, and the audit says otherwise")


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
        detail = "retention has forgotten that part of the chain; keep a newer head"
    else:
        detail = "the chain is another one there"
    yield Finding("not_the_head", f"seal {place}", detail)


def _checkpoints(store: SqliteStore, folder: Path) -> Iterator[Finding | None]:
    """Yield, for each version whose file should be there or is, what is wrong with it."""
    try:
        needed, versions = needed_versions(store), store.policies.versions()
    except (TauLiveError, ValueError) as error:  # edited rows may hold anything
        yield Finding("unreadable", "versions of policies", text_of(error))
        return
    for row in versions:
        if row.version not in needed and not os.path.lexists(folder / row.file):
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
            f"{text!r} is no head like `tau-live verify` prints", param_hint="--head"
        )
    return int(found[1]), found[2]


def _print(found: Verified) -> None:
    for finding in found.findings[:SHOWN]:
        click.echo(f"{shown(finding.what)}: {shown(finding.detail)}")
    if len(found.findings) > SHOWN:
        click.echo(f"and {number(len(found.findings) - SHOWN)} more; --json lists them")
    sealed = f"sealed with the key {found.head.key_id}" if found.head.key_id else "without a key"
    said = f"{number(len(found.findings))} found" if found.findings else "nothing was changed"
    click.echo(
        f"{said}: {number(found.seals)} seals, {sealed}, {number(found.checkpoints)} checkpoints"
    )
    click.echo(f"head {found.head}")
