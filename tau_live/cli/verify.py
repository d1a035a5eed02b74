"""``tau-live verify``: detects rows edited, removed or added behind tau-live's back."""

import re
import time
from pathlib import Path

import click

from tau_live.cli.options import (
    epilog,
    json_option,
    open_store,
    operator,
    settings_of,
    store_option,
    valid_reason,
)
from tau_live.cli.output import number, print_json, printable, progress_bar
from tau_live.core.errors import TauLiveError
from tau_live.core.records import AuditEntry
from tau_live.operate.verification import Verification, verify_store
from tau_live.store.sealing import (
    ChainStart,
    keep_beginning,
    key_in,
)

LISTED = 100


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
    with open_store(path) as (store, settings), progress_bar(quiet=as_json) as bar:
        seals = store.seals.count()
        task = bar.add_task("seals", total=seals)
        verification = verify_store(
            store,
            settings,
            anchor=anchor,
            report_progress=lambda done: bar.update(task, completed=done),
        )
    if as_json:
        print_json(
            {
                "at": time.time(),
                "sound": not verification.findings,
                "findings": [finding._asdict() for finding in verification.findings],
                "seals": verification.seals,
                "without_key": verification.without_key,
                "not_covered": store.seals.not_covered,
                "checkpoints": verification.checkpoints,
                "head": str(verification.head),
                "key_id": verification.head.key_id or None,
            }
        )
    else:
        _print(verification, store.seals.not_covered)
    ctx.exit(1 if verification.findings else 0)


def _adopt(path: Path | None, reason: str) -> None:
    """Take over a store whose seals begin without the key, and record who did and why."""
    settings_of(path, changes=True)
    with open_store(path) as (store, settings):
        head, key_file = store.seals.head(), settings.audit_key_file
    if key_file is None:
        raise TauLiveError("no key to adopt it with: set TAU_LIVE_RL_AUDIT_KEY_FILE")
    try:
        key_in(key_file, make=True)
        keep_beginning(key_file, settings.store, ChainStart(place=head.place, link=head.link))
    except OSError as error:
        raise TauLiveError(f"cannot keep beside '{key_file}' what it seals: {error}") from error
    with open_store(path, write=True) as (store, settings):
        store.seals.keep_heads()
        store.audit.add(
            AuditEntry(
                at=time.time(), who=operator(), action="adopt", reason=reason,
                details={"head": str(head), "key_id": head.key_id or None},
            )
        )  # fmt: skip


def _head_of(text: str) -> tuple[int, str]:
    match = re.fullmatch(r"([0-9]{1,18}):([0-9a-f]{32})", text.strip())
    if match is None:
        raise click.BadParameter(
            f"{text!r} is not a head as `tau-live verify` prints it", param_hint="--head"
        )
    return int(match[1]), match[2]


def _print(verification: Verification, not_covered: str) -> None:
    for finding in verification.findings[:LISTED]:
        click.echo(f"{printable(finding.what)}: {printable(finding.detail)}")
    if len(verification.findings) > LISTED:
        click.echo(f"and {number(len(verification.findings) - LISTED)} more; --json lists them")
    sealed = (
        f"sealed with the key {verification.head.key_id}"
        if verification.head.key_id
        else "without a key"
    )
    if verification.head.key_id and verification.without_key:
        sealed += f", {number(verification.without_key)} of them from before it had one"
    summary = (
        f"{number(len(verification.findings))} found"
        if verification.findings
        else "no sealed row was changed"
    )
    click.echo(
        f"{summary}: {number(verification.seals)} seals, {sealed}, "
        f"{number(verification.checkpoints)} checkpoints; "
        f"not covered: {not_covered}"
    )
    click.echo(f"head {verification.head}")
