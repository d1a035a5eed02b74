"""``tau-live init``: propose settings for the project in this folder, and write them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click

from tau_live.cli.init.findings import Finding, FindingKind, Reading
from tau_live.cli.init.frameworks import FRAMEWORKS
from tau_live.cli.init.project import Project, inspect_project
from tau_live.cli.init.proposal import next_command, propose
from tau_live.cli.init.writing import Addition, SettingsFile, fragment, settings_file
from tau_live.cli.options import epilog, json_option
from tau_live.cli.output import facts_of, print_all, print_json, printable, safe
from tau_live.core.errors import SettingsError, TauLiveError
from tau_live.core.redaction import scrub_text
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Settings, here

TEXT_CHARS, LISTED = 60, 8
NAMED = (
    FindingKind.AGENT,
    FindingKind.MODEL,
    FindingKind.PROMPT,
    FindingKind.TOOL,
    FindingKind.REWARD,
    FindingKind.POINT,
)


class Plan(NamedTuple):
    """A project, the proposal for it, and the settings file with it."""

    project: Project
    additions: Sequence[Addition]
    left_alone: Sequence[str]
    notes: Sequence[str]
    file: SettingsFile
    after: str


@click.command(epilog=epilog("init", "tau-live init --dry-run", "tau-live init --yes"))
@click.option("--yes", is_flag=True, help="Write without a prompt.")
@click.option("--dry-run", is_flag=True, help="Write nothing, and show no prompt.")
@json_option
def init(yes: bool, dry_run: bool, as_json: bool) -> None:
    """Inspect the project in this folder and propose settings.

    Sources are parsed, never run. Existing settings stay as they are, including comments and
    layout. With --json there is no prompt, and nothing is written without --yes.
    """
    if yes and dry_run:
        raise click.UsageError("--yes writes and --dry-run does not: give one of them")
    folder = here()
    if folder is None:
        raise TauLiveError("the current folder no longer exists: change to one that does")
    plan = _plan(folder, os.environ)
    if not as_json:
        _show(plan)
    writes = bool(plan.additions) and not dry_run and (yes or (not as_json and _confirm(plan)))
    if writes:
        plan.file.write(plan.after)
    if as_json:
        print_json(_facts(plan, written=writes))
        return
    if writes:
        click.echo(f"written: {printable(plan.file.path)}")
    elif not plan.additions:
        click.echo("no change: the settings are complete")
    else:
        click.echo("nothing was written")
    _show_next(next_command(plan.project))


def _show_next(command: str) -> None:
    click.echo(f"next: {printable(command)}")
    if " python " in command:
        click.echo("      followed by your agent's own arguments, if it takes any")


def _plan(folder: Path, environ: Mapping[str, str]) -> Plan:
    """Return the plan for a folder.

    Raises:
        SettingsError: The settings file cannot be read, or cannot be added to.
    """
    file = settings_file(folder, environ)
    project = inspect_project(Reading(folder))
    try:
        Settings.from_env(environ, directory=folder)
    except SettingsError as error:
        doubt = f"{error}: fix it, nothing starts until then"
        project = replace(project, doubts=(*project.doubts, doubt))
    additions, left_alone, notes = propose(project, file.own, environ)
    return Plan(project, additions, left_alone, notes, file, file.after(additions))


def _confirm(plan: Plan) -> bool:
    try:
        return click.confirm(f"Write this to {printable(plan.file.path)}?")
    except click.Abort:
        raise TauLiveError(
            "nothing was written: `tau-live init --yes` writes it without a prompt"
        ) from None


def _show(plan: Plan) -> None:
    print_all(facts_of(_rows(plan.project)))
    for line in plan.file.diff(plan.after):
        print_all(safe(line, {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")))
    for text in plan.left_alone:
        click.echo(f"left alone: {printable(text)}")
    for text in plan.notes:
        click.echo(f"note: {printable(text)}")
    for text in plan.project.doubts:
        click.echo(f"warning: {printable(text)}", err=True)


def _rows(project: Project) -> Iterator[tuple[str, object]]:
    hosts = [f"{host.host} {host.version or 'not installed here'}" for host in project.hosts]
    yield "hosts", ", ".join(hosts) or "none"
    for kind in NAMED:
        by_name: dict[str, Finding] = {}  # each at its first place; unnamed ones may differ
        for finding in project.of(kind):
            by_name.setdefault(finding.text or f"{finding.path}:{finding.line}", finding)
        findings = [*by_name.values()]
        if findings:
            names = [_place_text(finding) for finding in findings[:LISTED]]
            more = f", and {len(findings) - LISTED} more" if len(findings) > LISTED else ""
            yield f"{kind}s", ", ".join(names) + more
    unread = [f"{len(of)} {why} ({of[0]})" for why, of in project.unread.items()]
    yield "files", ", ".join([f"{project.read:,} read", *unread])


def _place_text(finding: Finding) -> str:
    text = " ".join(scrub_text(finding.text).split()) or "unnamed"
    short = text if len(text) <= TEXT_CHARS else f"{text[:TEXT_CHARS]}..."
    return f"{short} ({finding.path}:{finding.line})".strip()


def _facts(plan: Plan, *, written: bool) -> JsonObject:
    project = plan.project
    return {
        "file": str(plan.file.path),
        "state": "written" if written else "proposed" if plan.additions else "complete",
        "diff": plan.file.diff(plan.after),
        "fragment": fragment(plan.additions, plan.file.at),
        "left_alone": plan.left_alone,
        "notes": plan.notes,
        "doubts": project.doubts,
        "hosts": [
            {
                "host": host.host,
                "version": host.version,
                "declared": host.declared,
                "imported": host.imported,
                "points": FRAMEWORKS[host.host].points,
            }
            for host in project.hosts
        ],
        "found": [
            {
                "kind": finding.kind,
                "text": scrub_text(finding.text)[:TEXT_CHARS],
                "host": finding.host,
                "path": finding.path,
                "line": finding.line,
            }
            for finding in project.findings
            if finding.kind in NAMED
        ],
        "read": project.read,
        "unread": [{"why": why, "files": files} for why, files in project.unread.items()],
        "next": next_command(project),
    }
