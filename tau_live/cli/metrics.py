"""``tau-live metrics``: figures for Prometheus."""

import time
from collections.abc import Iterable
from pathlib import Path

import click

from tau_live.cli.options import (
    epilog,
    is_enabled,
    json_option,
    open_store,
    refuse_store,
    store_option,
)
from tau_live.cli.output import print_json
from tau_live.core.errors import TauLiveError
from tau_live.core.files import opened_output
from tau_live.core.version import packages_for, this_version
from tau_live.operate.metrics import Family, families, text_of
from tau_live.operate.status import status_of


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
    with open_store(path) as (store, settings):
        if out is not None:
            refuse_store(out, settings)
        status = status_of(store, settings, now=time.time(), enabled=is_enabled())
        last_raised = store.alerts.last_raised()
    all_families = families(status, version=this_version(), last_raised=last_raised)
    text = b"" if as_json and out is None else _text(all_families)
    if out is not None:
        try:
            # node exporter runs as another user, and has to read the file
            with opened_output(out, mode=0o644) as file:
                file.write(text)
        except BrokenPipeError:
            raise
        except OSError as error:
            why = error.strerror or str(error)
            raise TauLiveError(f"{out} could not be written and is unchanged: {why}") from error
    if as_json:
        rows = [
            {
                "name": family.name,
                "type": family.type,
                "help": family.help,
                "values": [{"labels": labels, "value": value} for labels, value in family.values],
            }
            for family in all_families
        ]
        print_json({"metrics": rows, "output": None if out is None else str(out)})
    elif out is None:
        click.echo(text.decode(), nl=False)


def _text(all_families: Iterable[Family]) -> bytes:
    try:
        return text_of(all_families)
    except ImportError as error:
        raise TauLiveError(
            f"Prometheus' text needs prometheus-client ({error}): "
            f"pip install {packages_for('metrics')}; --json does not"
        ) from error
