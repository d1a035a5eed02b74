"""``tau-live start``: a pipeline that the settings declare."""

from collections.abc import Callable, Mapping
from pathlib import Path

import click

from tau_live.cli.experience import start_lessons
from tau_live.cli.optimize import store_option
from tau_live.cli.options import epilog, json_option

PIPELINES: Mapping[str, Callable[..., None]] = {"tfgrpo-learning": start_lessons}
"""What each pipeline starts."""


@click.command(
    epilog=epilog(
        "start",
        "tau-live start --pipeline tfgrpo-learning",
        "tau-live start --pipeline tfgrpo-learning --dry-run",
    )
)
@click.option(
    "--pipeline",
    type=click.Choice([*PIPELINES]),
    required=True,
    help="The pipeline, as in [tool.tau-live.pipelines.NAME].",
)
@click.option("--dry-run", is_flag=True, help="Check everything and print what it takes.")
@click.option("--resume", "resumed", metavar="RUN", help="Resume a run, or the `latest`.")
@store_option
@json_option
def start(*, pipeline: str, dry_run: bool, resumed: str | None, path: Path, as_json: bool) -> None:
    """Start a pipeline: `tfgrpo-learning` is `tau-live experience run`."""
    PIPELINES[pipeline](path=path, dry_run=dry_run, resumed=resumed, as_json=as_json)
