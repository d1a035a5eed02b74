"""``tau-live init``: propose settings for the project in this folder, and write them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click

from tau_live.cli.opening import epilog, json_option
from tau_live.cli.output import facts_of, print_all, print_json, safe
from tau_live.cli.text import shown
from tau_live.errors import SettingsError, TauLiveError
from tau_live.privacy.redaction import scrubbed
from tau_live.projects.findings import Finding, Kind
from tau_live.projects.frameworks import FRAMEWORKS
from tau_live.projects.project import Project, looked_at
from tau_live.projects.proposal import Proposal, next_command, proposed
from tau_live.projects.toml_text import fragment
from tau_live.projects.writing import SettingsFile, settings_file
from tau_live.settings import Settings
from tau_live.settings.places import here

SHOWN, LISTED = 60, 8
NAMED = (Kind.AGENT, Kind.MODEL, Kind.PROMPT, Kind.TOOL, Kind.REWARD, Kind.POINT)


class Plan(NamedTuple):
    """What was found, what is proposed, and what the file would hold."""

    project: Project
    proposal: Proposal
    file: SettingsFile
    after: str

    @property
    def lacks(self) -> bool:
        """Whether anything is proposed."""
        return bool(self.proposal.additions)


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
    plan = _planned(folder, os.environ)
    if not as_json:
        _show(plan)
    writes = plan.lacks and not dry_run and (yes or (not as_json and _confirmed(plan)))
    if writes:
        plan.file.write(plan.after)
    if as_json:
        print_json(_facts(plan, written=writes))
        return
    if writes:
        click.echo(f"written: {shown(plan.file.path)}")
    elif not plan.lacks:
        click.echo("no change: the settings are complete")
    else:
        click.echo("nothing was written")
    _show_next(next_command(plan.project))


def _show_next(command: str) -> None:
    click.echo(f"next: {shown(command)}")
    if " python " in command:
        click.echo("      followed by your agent's own arguments, if it takes any")


def _planned(folder: Path, environ: Mapping[str, str]) -> Plan:
    """Return what would be done.

    Raises:
        SettingsError: The settings file cannot be read, or cannot be added to.
    """
    file = settings_file(folder, environ)
    project = looked_at(folder)
    try:
        Settings.from_env(environ, directory=folder)
    except SettingsError as error:
        doubt = f"{error}: fix it, nothing starts until then"
        project = replace(project, doubts=(*project.doubts, doubt))
    proposal = proposed(project, file.own, environ)
    return Plan(project, proposal, file, file.after(proposal.additions))


def _confirmed(plan: Plan) -> bool:
    try:
        return click.confirm(f"Write this to {shown(plan.file.path)}?")
    except click.Abort:
        raise TauLiveError(
            "nothing was written: `tau-live init --yes` writes it without a prompt"
        ) from None


def _show(plan: Plan) -> None:
    print_all(facts_of(_rows(plan.project)))
    for line in plan.file.diff(plan.after):
        print_all(safe(line, {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")))
    for text in plan.proposal.left_alone:
        click.echo(f"left alone: {shown(text)}")
    for text in plan.proposal.said:
        click.echo(f"note: {shown(text)}")
    for text in plan.project.doubts:
        click.echo(f"warning: {shown(text)}", err=True)


def _rows(project: Project) -> Iterator[tuple[str, object]]:
    hosts = [f"{one.host} {one.version or 'not installed here'}" for one in project.hosts]
    yield "hosts", ", ".join(hosts) or "none"
    for kind in NAMED:
        found = _once(project.of(kind))
        if found:
            told = [_told(one) for one in found[:LISTED]]
            more = f", and {len(found) - LISTED} more" if len(found) > LISTED else ""
            yield f"{kind}s", ", ".join(told) + more
    unread = [f"{len(of)} {why} ({of[0]})" for why, of in project.unread.items()]
    yield "files", ", ".join([f"{project.read:,} read", *unread])


def _once(found: Sequence[Finding]) -> list[Finding]:
    """Return each by its first place; what has no name may be another each time."""
    seen = {one.text or f"{one.path}:{one.line}": one for one in reversed(found)}
    return [one for one in found if one in seen.values()]


def _told(one: Finding) -> str:
    text = " ".join(scrubbed(one.text).split()) or "unnamed"
    named = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    return f"{named} ({one.path}:{one.line})".strip()


def _facts(plan: Plan, *, written: bool) -> dict[str, object]:
    project, proposal = plan.project, plan.proposal
    return {
        "file": str(plan.file.path),
        "state": "written" if written else "proposed" if plan.lacks else "complete",
        "diff": plan.file.diff(plan.after),
        "fragment": fragment(proposal.additions, plan.file.at),
        "left_alone": proposal.left_alone,
        "said": proposal.said,
        "doubts": project.doubts,
        "hosts": [
            {
                "host": one.host,
                "version": one.version,
                "declared": one.declared,
                "imported": one.imported,
                "points": FRAMEWORKS[one.host].points,
            }
            for one in project.hosts
        ],
        "found": [
            {
                "kind": one.kind,
                "text": scrubbed(one.text)[:SHOWN],
                "host": one.host,
                "path": one.path,
                "line": one.line,
            }
            for one in project.found
            if one.kind in NAMED
        ],
        "read": project.read,
        "unread": [{"why": why, "files": files} for why, files in project.unread.items()],
        "next": next_command(project),
    }
