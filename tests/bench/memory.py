"""What tau-live takes of memory: for a run that is open, for an event that waits, and over time.

Every figure is the memory that a process of its own holds, less what it held before.
"""

import json
import statistics
from typing import NamedTuple

import click
from rich.console import Console
from rich.table import Table

from tests.bench.living import lived
from tests.bench.timing import LEAST_ROUNDS, WIDTH, machine

OPEN, WAITING, EVENTS = 2_000, 20_000, 1_000_000
MB = 1e6


class Held(NamedTuple):
    """What was measured.

    Attributes:
        what: In words, with the unit.
        each: What was found, one for each round.
        most: What it may be.
    """

    what: str
    each: list[float]
    most: float

    @property
    def found(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.each)

    def as_data(self) -> dict[str, object]:
        """Return everything as plain data."""
        return {**self._asdict(), "found": self.found, "met": self.found <= self.most}


def measure(
    rounds: int, *, runs: int = OPEN, waiting: int = WAITING, events: int = EVENTS
) -> list[Held]:
    """Measure open runs, waiting events, and a long life."""
    opened = [lived("open", runs)["bytes_each"] for _ in range(rounds)]
    queued = [lived("queued", waiting)["bytes_each"] for _ in range(rounds)]
    soak = lived("soak", events)
    after = f"after {soak['events']:,.0f} events"
    return [
        Held("bytes for an open run", opened, 8_192.0),
        Held("bytes for an event that waits", queued, 2_048.0),
        Held(f"MB more {after}", [soak["rss_grown"] / MB], 10.0),
        Held(f"handles more {after}", [soak["handles_grown"]], 4.0),
        Held(f"threads more {after}", [soak["threads_grown"]], 1.0),
    ]


@click.command(name="memory", help="What tau-live takes of memory")
@click.option(
    "--rounds",
    default=LEAST_ROUNDS,
    show_default=True,
    type=click.IntRange(min=1),
    help="How many processes measure what a run or an event takes.",
)
@click.option("--events", default=EVENTS, show_default=True, help="Of the long life.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def main(rounds: int, events: int, as_json: bool) -> None:
    """Measure, and print a table."""
    found = measure(rounds, events=events)
    if as_json:
        data = {"bench": "memory", "measured": [one.as_data() for one in found], **machine()}
        click.echo(json.dumps(data, indent=2))
        return
    table = Table("what", "found", "to reach", "", title="What tau-live takes of memory")
    for one in found:
        met = "met" if one.found <= one.most else "missed"
        table.add_row(one.what, f"{one.found:,.3g}", f"<= {one.most:,g}", met)
    console = Console(width=WIDTH)
    console.print(table)
    console.print(json.dumps(machine()), highlight=False)


if __name__ == "__main__":
    main()
