"""Run proofs, print their figures, and keep those of the long tier for the page.

python -m tests.proof                        every proof, quickly
python -m tests.proof kills --tier long      one of them, at length
python -m tests.proof --tier long --keep     all of it, into docs/reliability.json
"""

import json
import sys

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.proof.figures import Proven, Tier
from tests.proof.report import keep, machine, names, proven


@click.command()
@click.argument("wanted", nargs=-1, type=click.Choice(names()))
@click.option(
    "--tier",
    type=click.Choice([tier.value for tier in Tier]),
    default=Tier.QUICK.value,
    show_default=True,
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
@click.option("--keep", "keeping", is_flag=True, help="Keep the figures for the page.")
def main(wanted: tuple[str, ...], tier: str, as_json: bool, keeping: bool) -> None:
    """Prove what docs/reliability.md promises; exit code 1 if a figure does not hold."""
    results = [_run(name, Tier(tier)) for name in wanted or names()]
    if keeping:
        keep(results, Tier(tier))
    if as_json:
        click.echo(json.dumps(_as_data(results), indent=2))
    else:
        _print(results)
    if not all(result.holds for result in results):
        sys.exit(1)


def _run(name: str, tier: Tier) -> Proven:
    columns = (TextColumn(name), BarColumn(bar_width=20), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr)) as progress:
        task = progress.add_task("", total=None)
        return proven(name, tier, lambda done, of: progress.update(task, completed=done, total=of))


def _as_data(results: list[Proven]) -> dict[str, object]:
    return {
        "machine": machine(),
        "proofs": {
            result.name: {
                "seconds": result.seconds,
                "holds": result.holds,
                "figures": [
                    {**figure._asdict(), "holds": figure.holds} for figure in result.figures
                ],
            }
            for result in results
        },
    }


def _print(results: list[Proven]) -> None:
    table = Table("proof", "promise", "what", "found", "bound", "", title=machine())
    for result in results:
        for figure in result.figures:
            mark = "" if figure.holds else "FAILS"
            table.add_row(
                result.name,
                str(figure.promise),
                figure.what,
                f"{figure.found:.6g}",
                figure.bound,
                mark,
            )
    Console(soft_wrap=True, width=None if sys.stdout.isatty() else 160).print(table)


if __name__ == "__main__":
    main()
