"""``tau-live policy``: the versions, and which of them serve."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import click
from rich.text import Text

from tau_live.cli import completing
from tau_live.cli.opening import (
    default_command,
    epilog,
    json_option,
    opened,
    operator,
    reason_option,
    store_option,
)
from tau_live.cli.output import as_json as json_of
from tau_live.cli.output import (
    facts_of,
    fitting,
    print_all,
    print_json,
    records_of,
    safe,
    table_of,
)
from tau_live.cli.standing import warn_of_stops
from tau_live.cli.text import moment, shown
from tau_live.cli.trials import COMMANDS
from tau_live.errors import CheckpointError, PolicyError, UnknownError
from tau_live.operators.trials import state_of
from tau_live.policies import checkpoints
from tau_live.policies.files import check_policy, checkpoint_folder
from tau_live.settings import Settings
from tau_live.status import in_service
from tau_live.store.records import AuditEntry, InService, PolicyVersion, Trial
from tau_live.store.roles import Store
from tau_live.trials.rules import Serving

NEWEST = 10
"""So many versions are listed, and those in use."""


class Change(NamedTuple):
    """What an operator put into service, and why."""

    point: str
    version: int
    was: int
    pinned: bool
    revision: int
    reason: str
    who: str
    at: float


@click.group(
    invoke_without_command=True,
    epilog=epilog(
        "policy list",
        "tau-live policy",
        'tau-live policy rollback model --reason "too expensive"',
    ),
)
@store_option
@json_option
@click.pass_context
def policy(ctx: click.Context, path: Path | None, as_json: bool) -> None:
    """List policy versions (as `policy list`), or change which one decides and how much."""
    if default_command(ctx, path, as_json=as_json):
        ctx.invoke(list_, path=path, as_json=as_json, point=None, everything=False)


for made in COMMANDS:
    policy.add_command(made)


@policy.command("list", epilog=epilog("policy list", "tau-live policy list --point model"))
@click.option("--point", help="Only of this decision point.", shell_complete=completing.points)
@click.option("--all", "everything", is_flag=True, help="Show every version.")
@store_option
@json_option
def list_(path: Path | None, as_json: bool, point: str | None, everything: bool) -> None:
    """List the newest 10 versions and those in use: what serves, and the champions.

    --json lists every version.
    """
    with opened(path) as (store, settings):
        serving, trials = store.policies.in_service(), store.trials.trials()
        found = [
            version_of(row, serving, trials, folder=checkpoint_folder(settings))
            for row in store.policies.versions(point)
        ]
        points = {name: of for name, of in in_service(store).items() if point in (None, name)}
    if as_json:
        print_json({"versions": found, "in_service": points})
        return
    listed = found if everything else [*filter(_in_use, found[:-NEWEST]), *found[-NEWEST:]]
    rows = [
        (
            row["version"],
            row["point"],
            row["parent"] or "untrained",
            row["rollouts"],
            moment(row["created_at"] if isinstance(row["created_at"], float) else None),
            _use(row),
        )
        for row in listed
    ]
    rows += [
        (0, name, "", 0, "", safe("serves, pinned" if of["pinned"] else "serves", "green"))
        for name, of in points.items()
        if of["version"] == 0
    ]
    columns = ("version#", "point", "from#", "rollouts#", "made (UTC)")
    print_all(
        fitting(table_of((*columns, ""), rows), records_of((*columns, "state"), rows))
        if rows
        else safe("no versions yet: every decision point is untrained")
    )
    if len(listed) < len(found):
        click.echo(
            f"({len(found) - len(listed):,} older ones: tau-live policy list --all)", err=True
        )


def _in_use(row: Mapping[str, object]) -> bool:
    return bool(row["in_service"] or row["role"])


def _use(row: Mapping[str, object]) -> Text:
    """Return what a version is used for, and that its file is gone."""
    serves = ("serves, pinned" if row["pinned"] else "serves") if row["in_service"] else None
    gone = None if row["has_file"] else "file deleted"
    said = ", ".join(str(one) for one in (serves, row["role"], gone) if one)
    return safe(said, "green" if serves else "dim" if gone else "")


@policy.command("show", epilog=epilog("policy show", "tau-live policy show 3"))
@click.argument("version", type=click.IntRange(1), shell_complete=completing.versions)
@store_option
@json_option
def show(version: int, path: Path | None, as_json: bool) -> None:
    """Show VERSION: its origin, and whether its file exists and is intact."""
    with opened(path) as (store, settings):
        row = store.policies.version(version)
        found = {
            **version_of(
                row,
                store.policies.in_service(),
                store.trials.trials(),
                folder=checkpoint_folder(settings),
            ),
            "lineage": lineage_of(store, row),
            "checkpoint": checkpoint_of(settings, row),
        }
    if as_json:
        print_json(found)
    else:
        print_all(
            facts_of((name.replace("_", " "), _said(name, value)) for name, value in found.items())
        )


@policy.command(
    "use",
    epilog=epilog("policy use", 'tau-live policy use 3 --point model --reason "best so far" --pin'),
)
@click.argument("version", type=click.IntRange(0), shell_complete=completing.versions)
@click.option(
    "--point", required=True, help="The decision point.", shell_complete=completing.points
)
@reason_option
@click.option("--pin", is_flag=True, help="Keep it until `unpin`: updates do not replace it.")
@store_option
@json_option
def use(
    *, path: Path | None, as_json: bool, version: int, point: str, reason: str, pin: bool
) -> None:
    """Put VERSION into service at a point, in running processes too; 0 is the untrained policy."""
    with opened(path, write=True) as (store, settings):
        asked = Asked("policy_use", point, version, pin, reason)
        change = put_in_service(store, settings, asked, at=time.time())
        warn_of_stops(store, settings)
    _print_change(change, as_json=as_json)


class Asked(NamedTuple):
    """What an operator wants to serve a point.

    Attributes:
        action: The command, for the audit.
        point: The decision point.
        version: The version.
        pin: Whether updates leave it alone.
        reason: Why.
    """

    action: str
    point: str
    version: int
    pin: bool
    reason: str


def put_in_service(store: Store, settings: Settings, asked: Asked, *, at: float) -> Change:
    """Let a version decide, and write down who and why.

    One transaction, which takes the write lock at once: no update comes in between.

    Raises:
        PolicyError: The point is unknown, or the version is another point's.
        UnknownError: There is no such version.
        CheckpointError: Its file is missing or damaged.
    """
    point, who = asked.point, operator()
    with store.begin():
        serving = store.policies.in_service().get(point)
        was = serving.version if serving else 0
        version = asked.version
        _check(store, settings, point, version)
        now = store.policies.put_in_service(point, version, pinned=asked.pin, at=at)
        trial, before = (
            store.trials.trial(point),
            Serving(was, serving is not None and serving.pinned),
        )
        details = {
            "point": point,
            "version": version,
            "was": was,
            "pinned": asked.pin,
            "idempotent": before == (version, asked.pin),
            "before": state_of(trial, before),
            "after": state_of(trial, Serving(version, asked.pin)),
        }
        store.audit.add(
            AuditEntry(at=at, who=who, action=asked.action, reason=asked.reason, details=details)
        )
    return Change(point, version, was, asked.pin, now.revision, asked.reason, who, at)


def _check(store: Store, settings: Settings, point: str, version: int) -> None:
    if version:
        row = store.policies.version(version)
        if row.point != point:
            raise PolicyError(f"version {version} is for point {row.point!r}, not for {point!r}")
        check_policy(checkpoint_folder(settings), row)
        return
    known = {row.point for row in store.policies.versions()} | {*store.policies.in_service()}
    if point not in known:
        listed = ", ".join(repr(name) for name in sorted(known)) or "none yet"
        raise PolicyError(f"no policy decides at point {point!r}; known points: {listed}")


def version_of(
    row: PolicyVersion,
    serving: Mapping[str, InService],
    trials: Mapping[str, Trial],
    *,
    folder: Path,
) -> dict[str, object]:
    """Return a version for JSON, with what it is used for and whether its file is there."""
    here, trial = serving.get(row.point), trials.get(row.point)
    champion = None if trial is None else trial.champion
    previous = None if trial is None else trial.previous
    role = {previous: "previous champion", champion: "champion"}.get(row.version)
    serves = here is not None and here.version == row.version
    return {
        "version": row.version,
        "point": row.point,
        "parent": row.parent,
        "algorithm": row.algorithm,
        "sha256": row.sha256,
        "file": row.file,
        "rollouts": row.rollouts,
        "created_at": row.created_at,
        "metadata": dict(row.metadata),
        "in_service": serves,
        "pinned": serves and here is not None and here.pinned,
        "role": role,
        "has_file": (folder / row.file).exists(),
    }


def lineage_of(store: Store, row: PolicyVersion) -> list[int]:
    """Return a version and what it came from, as far as that is known; 0 is untrained."""
    line = [row.version]
    parent = row.parent
    while parent and parent not in line:
        line.append(parent)
        try:
            parent = store.policies.version(parent).parent
        except UnknownError:  # its row has been forgotten with its file
            return line
    return [*line, parent]


def checkpoint_of(settings: Settings, row: PolicyVersion) -> dict[str, object]:
    """Return where a version's file is and whether it is there and whole."""
    path = checkpoint_folder(settings) / row.file
    try:
        checkpoints.load(path, sha256=row.sha256)
    except CheckpointError as error:
        return {"path": str(path), "ok": False, "problem": str(error)}
    return {"path": str(path), "ok": True, "problem": None}


def _said(name: str, value: object) -> str:
    if name == "created_at" and isinstance(value, float):
        return moment(value)
    if name == "lineage" and isinstance(value, list):
        return " < ".join(str(version) if version else "untrained" for version in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return json_of(value) if isinstance(value, dict) else str(value)


def _print_change(change: Change, *, as_json: bool) -> None:
    if as_json:
        print_json(change._asdict())
        return
    pinned = ", pinned" if change.pinned else ""
    click.echo(
        f"{shown(change.point)}: version {change.version} serves now (before: {change.was})"
        f"{pinned}; recorded in the audit log as {shown(change.who)}"
    )
