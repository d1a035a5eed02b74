"""``tau-live demo``: a real agent on real input, without key or network."""

from collections.abc import Sequence
from pathlib import Path

import click

from tau_live.cli.options import enabled_or_refuse, epilog, json_option, settings_of, store_option
from tau_live.cli.output import print_all, print_json, progress_bar

TRAINING = 1200
HELD_OUT = 400


@click.command(epilog=epilog("demo", "TAU_LIVE_RL=1 tau-live demo"))
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Random seed; the same seed gives the same run.",
)
@click.option(
    "--questions",
    type=click.IntRange(8, 20_000),
    default=TRAINING,
    show_default=True,
    help="How many questions to learn from.",
)
@click.option(
    "--held-out",
    type=click.IntRange(8, 2_000),
    default=HELD_OUT,
    show_default=True,
    help="How many other questions to measure on.",
)
@store_option
@json_option
def demo(*, path: Path | None, as_json: bool, seed: int, questions: int, held_out: int) -> None:
    """Watch an agent learn to answer questions about Python's standard library.

    Runs the whole loop with a real store, in about a minute. A demo that was interrupted continues
    where it stopped; the seed determines everything.
    """
    from tau_live.cli.demo.live import run_demo
    from tau_live.cli.demo.show import as_data, render, sparkline

    enabled_or_refuse("demo")
    with progress_bar(quiet=as_json) as bar:
        task = bar.add_task("", total=None)

        def update_bar(phase: str, done: int, total: int, curve: Sequence[float]) -> None:
            description = f"{phase} {sparkline(curve)}".rstrip()
            bar.update(task, description=description, completed=done, total=total)

        report = run_demo(
            settings_of(path),
            seed=seed,
            training=questions,
            held_out=held_out,
            progress=update_bar,
        )
    print_json(as_data(report)) if as_json else print_all(render(report))
