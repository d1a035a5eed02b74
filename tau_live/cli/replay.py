"""``tau-live replay``: a recording becomes rollouts, and what they teach."""

from pathlib import Path

import click

from tau_live.cli.opening import epilog, json_option, settings_of, store_option
from tau_live.cli.output import print_json, print_report, progress_bar
from tau_live.errors import TauLiveError


@click.command(epilog=epilog("replay", "tau-live replay events.jsonl --store again.sqlite"))
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@store_option
@json_option
def replay(file: Path, path: Path | None, as_json: bool) -> None:
    """Store FILE, a recording made with TAU_LIVE_RL_RECORD, and learn from it.

    Into an empty store the result is always the same, byte for byte. Events that the store
    already has are skipped.
    """
    from tau_live.replay import replay_file

    with progress_bar(quiet=as_json) as bar:
        task = bar.add_task("events", total=None)
        report = replay_file(
            file,
            settings_of(path, changes=True),
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    print_json(report) if as_json else print_report(report)
    if report.bad and not report.events:
        first = report.bad[0]
        raise TauLiveError(
            f"no line of '{file}' holds an event; line {first.number}: {first.reason}"
        )
