"""``tau-live ingest`` and ``replay``: events as they arrive, and recordings."""

import threading
from pathlib import Path

import click

from tau_live.cli.options import epilog, json_option, plugins, settings_of, store_option
from tau_live.cli.output import print_json, print_report, progress_bar
from tau_live.cli.terminal import stopping
from tau_live.core.errors import TauLiveError


@click.command(
    epilog=epilog(
        "ingest",
        "tail -f events.jsonl | tau-live ingest -",
        "tau-live ingest unix:/run/agent/events.sock",
    )
)
@click.argument("source", metavar="FILE|-|unix:PATH")
@click.option(
    "--host",
    default="tau",
    show_default=True,
    metavar="NAME",
    help="The host whose lines these are, if not tau-live's own events; plugins can add hosts.",
)
@click.option("--stream", metavar="NAME", help="Name of the stream, from which ids are derived.")
@store_option
@json_option
def ingest(source: str, *, host: str, stream: str | None, path: Path | None, as_json: bool) -> None:
    """Store events as they arrive, until the source ends or Ctrl-C.

    Reads recordings of tau-live and the events of hosts that write JSON Lines.
    """
    from tau_live.runtime.ingesting import ingest as ingest_source

    hosts = plugins().hosts()
    if host not in hosts:
        raise click.BadParameter(f"{host!r} is none of {', '.join(sorted(hosts)) or 'none'}")
    stop = threading.Event()
    with stopping(stop), progress_bar(quiet=as_json) as bar:
        task = bar.add_task("events", total=None)
        report = ingest_source(
            source,
            settings_of(path, changes=True),
            translate=hosts[host],
            stream=stream,
            stop=stop,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    print_json(report) if as_json else print_report(report)
    if report.nothing():
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(report.bad.items()))
        raise TauLiveError(f"none of {report.lines} lines of '{source}' could be read: {why}")


@click.command(epilog=epilog("replay", "tau-live replay events.jsonl --store again.sqlite"))
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@store_option
@json_option
def replay(file: Path, path: Path | None, as_json: bool) -> None:
    """Store FILE, a recording made with TAU_LIVE_RL_RECORD, and learn from it.

    Into an empty store the result is always the same, byte for byte. Events that the store
    already has are skipped.
    """
    from tau_live.runtime.replay import replay_file

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
