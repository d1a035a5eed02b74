"""``tau-live power``: how many runs, and days, until a difference is proven."""

from collections.abc import Sequence
from dataclasses import asdict

import click
from rich.text import Text

from tau_live.cli.engines import engine_of, engine_options
from tau_live.cli.options import epilog, json_option, settings_of
from tau_live.cli.output import facts_of, print_all, print_json, progress_bar, table_of
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Settings
from tau_live.learn.promotion.power import MOST, STREAMS, Experiment, Power, power_of
from tau_live.operate.report.facts import Mean
from tau_live.record.rewards import reward_range


@click.command(
    epilog=epilog(
        "power",
        "tau-live power --difference 0.05 --runs-per-day 400",
        "tau-live power --difference 0.1 --mean 0.6 --control-share 0.1 --missing 0.2",
        "tau-live power --difference 2 --mean 5 --spread 3 --reward-range -10 20 --ladder",
    )
)
@click.option(
    "--difference", type=float, required=True,
    help="The learner's mean reward minus the control's that you hope for, in units of reward.",
)  # fmt: skip
@click.option("--mean", type=float, help="The control's mean reward.  [default: mid-range]")
@click.option(
    "--spread", type=float,
    help="Standard deviation of one run's reward.  [default: that of success and failure]",
)  # fmt: skip
@click.option(
    "--reward-range", "range_", type=(float, float), metavar="LOW HIGH",
    help="Lowest and highest reward.  [default: as set or declared, else 0 1]",
)  # fmt: skip
@click.option(
    "--control-share", type=float,
    help="Share of runs that the control decides.  [default: as set, else 0.5]",
)  # fmt: skip
@click.option(
    "--missing", type=float, default=0.0, show_default=True,
    help="Share of runs whose reward never arrives.",
)  # fmt: skip
@click.option(
    "--ladder", is_flag=True, help="Start in shadow and climb the ladder, as adapters do."
)
@click.option("--runs-per-day", type=float, help="Also estimate the days.")
@engine_options
@json_option
def power(
    *, as_json: bool, runs_per_day: float | None, engine: str, workers: int | None,
    **options: object,
) -> None:  # fmt: skip
    """Estimate how many runs it takes to prove a difference.

    Simulates the test that decides promotions, with its real bounds and schedule.
    """
    if runs_per_day is not None and not 0.0 < runs_per_day < float("inf"):
        raise click.BadParameter("expected a number above 0", param_hint="--runs-per-day")
    experiment = _experiment(settings_of(None), **options)  # type: ignore[arg-type]  # click has checked each
    with engine_of(engine, workers) as chosen, progress_bar(quiet=as_json) as bar:
        task = bar.add_task("simulated tests", total=STREAMS * len(experiment.stages()))
        stages, total = power_of(experiment, engine=chosen, advance=lambda: bar.advance(task))
    if as_json:
        print_json(_document(experiment, stages, total, runs_per_day))
    else:
        _print(experiment, stages, total, runs_per_day)


def _experiment(  # noqa: PLR0913  # one for each option
    settings: Settings,
    *,
    difference: float,
    mean: float | None,
    spread: float | None,
    range_: tuple[float, float] | None,
    control_share: float | None,
    missing: float,
    ladder: bool,
) -> Experiment:
    low, high = range_ or reward_range(settings) or (0.0, 1.0)
    if control_share is None:
        control_share = settings.control_share or (0.0 if ladder else 0.5)
    try:
        return Experiment(
            difference=difference,
            mean=(low + high) / 2 if mean is None else mean,
            spread=spread,
            reward_range=(low, high),
            control_share=control_share,
            missing=missing,
            margin=settings.promote_margin,
            ladder=ladder,
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _days(runs: int | None, runs_per_day: float | None) -> float | None:
    return None if runs is None or runs_per_day is None else runs / runs_per_day


def _document(
    experiment: Experiment, stages: list[Power], total: Power, runs_per_day: float | None
) -> JsonObject:
    return {
        **asdict(experiment),
        "stages": [
            {**power.stage._asdict(), "median": power.median, "ninetieth": power.ninetieth}
            for power in stages
        ],
        "median": total.median,
        "ninetieth": total.ninetieth,
        "median_days": _days(total.median, runs_per_day),
        "ninetieth_days": _days(total.ninetieth, runs_per_day),
    }


def _print(
    experiment: Experiment, stages: list[Power], total: Power, runs_per_day: float | None
) -> None:
    low, high = experiment.reward_range
    spread = "success and failure" if experiment.spread is None else f"{experiment.spread:g}"
    print_all(
        facts_of(
            [
                ("difference", f"{experiment.difference:+g} on rewards from {low:g} to {high:g}"),
                ("control", f"mean {experiment.mean:g}, spread {spread}"),
                ("proven in half of the cases within", _runs(total.median, runs_per_day)),
                ("proven in nine of ten within", _runs(total.ninetieth, runs_per_day)),
            ]
        )
    )
    if experiment.ladder:
        print_all(
            "",
            table_of(
                ("learner decides", "half within#", "nine of ten within#"),
                [
                    (f"{stage.stage.share:.0%}", _runs(stage.median), _runs(stage.ninetieth))
                    for stage in stages
                ],
            ),
        )


def _runs(runs: int | None, runs_per_day: float | None = None) -> str:
    if runs is None:
        return f"more than {MOST:,} runs"
    days = _days(runs, runs_per_day)
    return f"{runs:,} runs" + ("" if days is None else f" ({days:,.1f} days)")


def curve(means: Sequence[Mean], *, width: int, rows: int = 4) -> list[Text]:
    """Return a curve, row by row from the top, with its highest and lowest value at the left.

    The interval of each mean is shaded; unknown values are empty.

    Args:
        means: The points, from left to right; the last ones if not all fit.
        width: The most characters of a row, with the labels.
        rows: The number of rows.
    """
    ends = [end for mean in means for end in (mean.lower, mean.mean, mean.upper) if end is not None]
    if all(mean.mean is None for mean in means):
        return []
    low, high = min(ends), max(ends)
    if low == high:  # half of one around it
        low, high = low - 0.5, high + 0.5
    margin = max(len(f"{high:.3g}"), len(f"{low:.3g}"))
    room = max(1, width - margin - 2)
    points = means[-room:]
    each = max(1, min(4, room // len(points)))  # characters of one point
    labels = [f"{high:.3g}", *[""] * (rows - 2), f"{low:.3g}"]
    lines = []
    for label, row in zip(labels, reversed(range(rows)), strict=True):
        line = Text.assemble((f"{label:>{margin}} │", "dim"))
        for mean in points:
            first, at, last = (
                None
                if end is None
                else min(rows - 1, max(0, int((end - low) / (high - low) * rows)))
                for end in (mean.lower, mean.mean, mean.upper)
            )
            if at == row:
                line.append("█" * each, "cyan")
            elif at is not None and first is not None and last is not None and first <= row <= last:
                line.append("░" * each, "cyan dim")
            else:
                line.append(" " * each)
        lines.append(line)
    return lines
