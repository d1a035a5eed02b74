"""One part of the proof in a process of its own, which has to survive and print its result.

python -m tests.proof.inputs_child live --seed 5 --cases 10000     as the proof runs it
python -m tests.proof.inputs_child live --seed 5 --only 1234       one of its cases again
"""

import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import click

from tests.proof.collected import watch
from tests.proof.inputs_tally import Tally

SEED = 5


def live(tally: Tally, seed: int, cases: range, folder: Path) -> Mapping[str, object]:
    """Fuzz what hosts and adapters call."""
    from tests.proof.inputs_attached import attached_cases

    return attached_cases(tally, seed, cases, folder)


def readers(tally: Tally, seed: int, cases: range, folder: Path) -> Mapping[str, object]:
    """Fuzz what reads files, lines, settings and checkpoints."""
    from tests.proof.inputs_readers import reader_cases

    return reader_cases(tally, seed, cases, folder)


def bombs(tally: Tally, seed: int, cases: range, folder: Path) -> Mapping[str, object]:
    """Read checkpoint files that were made to harm."""
    from tests.proof.inputs_bombs import bomb_cases

    return bomb_cases(tally, seed, cases, folder)


def twin(tally: Tally, seed: int, cases: range, folder: Path) -> Mapping[str, object]:
    """Compare what is served with and without poisoned events."""
    from tests.proof.inputs_twin import twin_cases

    return twin_cases(tally, seed, cases, folder)


def files(tally: Tally, seed: int, cases: range, folder: Path) -> Mapping[str, object]:
    """Store spoiled files, and give every bad one to every command."""
    from tests.proof.inputs_files import file_cases

    return file_cases(tally, seed, cases, folder)


PARTS: Mapping[str, Callable[[Tally, int, range, Path], Mapping[str, object]]] = {
    "live": live,
    "readers": readers,
    "bombs": bombs,
    "twin": twin,
    "files": files,
}


@click.command()
@click.argument("part", type=click.Choice([*PARTS]))
@click.option("--seed", default=SEED, show_default=True)
@click.option("--cases", default=1_000, show_default=True)
@click.option("--only", type=int, default=None, help="This case alone.")
def main(part: str, seed: int, cases: int, only: int | None) -> None:
    """Run one PART of the proof and print its result as a JSON object."""
    sys.unraisablehook = lambda _: None  # a finaliser that raises is among the bad values
    os.environ["TAU_LIVE_RL"] = "1"
    numbers = range(cases) if only is None else range(only, only + 1)
    tally = Tally()
    watch()
    with tempfile.TemporaryDirectory() as folder:
        more = PARTS[part](tally, seed, numbers, Path(folder))
    gc.enable()
    click.echo(json.dumps({**tally.to_dict(), **more}, default=str))


if __name__ == "__main__":
    main()
