"""``tau-live report``: an overview of a store, as one HTML file or as JSON."""

import time
from dataclasses import replace
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
from tau_live.cli.output import print_json, progress_bar, suggest
from tau_live.cli.page.document import Draw, page_of, sections_of
from tau_live.core.errors import TauLiveError
from tau_live.core.files import opened_output
from tau_live.core.version import packages_for
from tau_live.operate.report.report import report_facts


@click.command(
    epilog=epilog(
        "report",
        "tau-live report --html report.html",
        "tau-live report --json | jq .summary.next",
    )
)
@click.option(
    "-o", "--out", "--html", "page", metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write one HTML file that needs no network (needs matplotlib).",
)  # fmt: skip
@store_option
@json_option
def report(path: Path | None, as_json: bool, page: Path | None) -> None:
    """Draw what the store holds: reward, exposure, choices, calibration, cost, drift, drops.

    The page opens from disk, loads nothing and runs nothing. --json prints the same facts;
    give --html, --json or both.
    """
    if page is None and not as_json:
        raise click.UsageError("give --html FILE, --json, or both")
    draw = None if page is None else drawing()
    with progress_bar(quiet=page is None) as bar:
        task = bar.add_task("reading", total=None)

        def advance(steps: int) -> None:
            bar.update(task, advance=steps)

        with open_store(path) as (store, settings):
            facts = report_facts(
                store,
                settings,
                now=time.time(),
                enabled=is_enabled(),
                tell=advance,
                expect=lambda steps: bar.reset(task, total=steps),
            )
        advice = [suggest(step) for step in facts.summary.next]
        facts = replace(facts, summary=replace(facts.summary, next=advice))
        if page is not None and draw is not None:
            refuse_store(page, settings)
            sections = sections_of(facts)
            bar.reset(task, description="drawing", total=sum(len(s.figures) for s in sections))
            html = page_of(facts, sections, draw, advance=advance)
            with opened_output(page) as file:
                file.write(html)
    if as_json:
        print_json(facts)
    if page is not None:
        click.echo(f"written to {page}", err=True)


def drawing(what: str = "--html") -> Draw:
    """Return the function that turns a chart into an ``svg`` element.

    Args:
        what: What needs it, in the message.

    Raises:
        TauLiveError: matplotlib is not installed.
    """
    try:
        from tau_live.cli.page.drawing import svg_of  # the one module that needs it
    except ImportError as error:
        raise TauLiveError(
            f"{what} needs matplotlib ({error}): pip install {packages_for('report')}"
        ) from error
    return svg_of
