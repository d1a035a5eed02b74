"""``tau-live metrics``: figures for Prometheus."""

import time
from pathlib import Path

import click

from tau_live import __version__
from tau_live.cli.opening import epilog, is_enabled, json_option, opened, refuse_store, store_option
from tau_live.cli.output import print_json
from tau_live.errors import TauLiveError
from tau_live.machine.whole_files import opened_output
from tau_live.metrics import families, text_of
from tau_live.status import status_of

READABLE = 0o644
"""Node exporter is somebody else; it has to read the file."""


@click.command(
    epilog=epilog(
        "metrics",
        "tau-live metrics",
        "tau-live metrics --out /var/lib/node_exporter/textfile/tau_live.prom",
    )
)
@click.option(
    "-o", "--out", "out", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="Replace this file atomically instead of printing; it is readable by all users.",
)  # fmt: skip
@store_option
@json_option
def metrics(path: Path | None, as_json: bool, out: Path | None) -> None:
    """Print the metrics of a store in the Prometheus text format.

    --out writes them for the textfile collector of node exporter, which reads files that
    end in .prom; run it once a minute from cron or a timer.
    """
    with opened(path) as (store, settings):
        if out is not None:
            refuse_store(out, settings)
        status = status_of(store, settings, now=time.time(), enabled=is_enabled())
        last_told: dict[str, float] = {}
        for (kind, _), at in store.alerts.last_told().items():
            last_told[kind] = max(at, last_told.get(kind, at))
    found = families(status, version=__version__, last_told=last_told)
    if out is not None:
        try:
            with opened_output(out, mode=READABLE) as file:
                file.write(text_of(found).encode())
        except BrokenPipeError:
            raise
        except OSError as error:
            why = error.strerror or str(error)
            raise TauLiveError(f"{out} could not be written and is unchanged: {why}") from error
    if as_json:
        told = [
            {
                "name": one.name,
                "type": one.type,
                "help": one.help,
                "values": [{"labels": labels, "value": value} for labels, value in one.values],
            }
            for one in found
        ]
        print_json({"metrics": told, "output": None if out is None else str(out)})
    elif out is None:
        click.echo(text_of(found), nl=False)
