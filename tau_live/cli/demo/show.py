"""The demo's report, as plain data and for the terminal."""

import shlex
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from tau_live.cli.demo.agent import Result
from tau_live.cli.demo.live import CURVE, Habit, Report
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Settings

BARS = "▁▂▃▄▅▆▇█"


def as_data(report: Report) -> JsonObject:
    """Return the report as plain data."""
    baselines = report.baselines
    best_name, best = best_fixed(report)
    return {
        "seed": report.seed,
        "store": str(report.store),
        "held_out": {
            "policy": report.after._asdict(),
            "untrained": report.before._asdict(),
            "best_fixed": {"name": best_name, **best._asdict()},
            "fixed": {name.value: result._asdict() for name, result in baselines.fixed.items()},
            "host_default": baselines.host_default._asdict(),
            "cascade": baselines.tuned_in_training._asdict(),
            "cascade_stages": [stage._asdict() for stage in baselines.cascade],
            "cascade_in_hindsight": baselines.tuned_in_hindsight._asdict(),
            "oracle": baselines.oracle._asdict(),
        },
        "curve": {"questions_each": CURVE, "mean_reward": list(report.curve)},
        "policy_version": report.version,
        "habits": {kind: habit._asdict() for kind, habit in report.habits.items()},
        "outcomes": report.outcomes,
        "snapshot": report.snapshot,
        "next": next_commands(report),
    }


def best_fixed(report: Report) -> tuple[str, Result]:
    """Return the fixed strategy that earned most on the held-out questions."""
    name, result = max(report.baselines.fixed.items(), key=lambda item: item[1].reward)
    return name.value, result


def next_commands(report: Report) -> list[str]:
    """Return the commands to try next."""
    usual = report.store == Settings().store
    at = "" if usual else f" --store {shlex.quote(str(report.store))}"
    return [
        f"tau-live status{at}",
        f"tau-live rollouts --sort total_reward --limit 5{at}",
        f"tau-live updates --limit 5{at}",
        f"tau-live policy list{at}",
    ]


def sparkline(values: Sequence[float]) -> str:
    """Return one block for each value, from the smallest to the largest."""
    if not values:
        return ""
    low, high = min(values), max(values)
    spread = (high - low) or 1.0
    return "".join(BARS[round((value - low) / spread * (len(BARS) - 1))] for value in values)


def render(report: Report) -> RenderableType:
    """Return the report for a terminal."""
    _, best = best_fixed(report)
    gate = report.snapshot.get("gate")
    state = gate.get("state") if isinstance(gate, dict) else "unknown"
    outcomes = ", ".join(f"{count} {when}" for when, count in sorted(report.outcomes.items()))
    curve = report.curve
    parts: list[RenderableType] = [
        _table(report),
        Text(),
        Text.assemble(
            ("while it learned  ", "bold"),
            (sparkline(curve), "green"),
            f"  {curve[0]:+.2f} to {curve[-1]:+.2f} a question, {CURVE} questions a bar"
            if curve
            else "",
        ),
        Text.assemble(("outcomes          ", "bold"), outcomes),
        Text.assemble(
            ("difference        ", "bold"),
            f"{report.after.reward - best.reward:+.3f} over the best fixed strategy, "
            f"{report.after.reward - report.baselines.host_default.reward:+.3f} over the host's "
            "own choice",
        ),
        Text(),
        Text("What was learned", style="bold"),
        *(Text(f"  {line}") for line in in_words(report.habits)),
        Text(),
        Text.assemble(("gate   ", "bold"), str(state)),
        Text.assemble(("store  ", "bold"), str(report.store)),
        Text(),
        Text("Try next", style="bold"),
        *(Text(f"  {command}") for command in next_commands(report)),
    ]
    return Group(*parts)


def in_words(habits: dict[str, Habit]) -> Iterable[str]:
    """Yield a sentence on each kind of question."""
    for kind, habit in habits.items():
        yield (
            f"{kind.replace('_', ' ')}: {habit.first.replace('_', ' ')} first "
            f"({habit.first_share:.0%}), {habit.steps:.1f} searches, {habit.success:.0%} right"
        )


def _table(report: Report) -> Table:
    table = Table(title="Held-out questions, never learned from", title_justify="left")
    table.add_column("who chooses")
    for name in ("reward", "right", "cost"):
        table.add_column(name, justify="right")
    baselines = report.baselines
    rows = [
        *((f"always {strategy.value}", result, "") for strategy, result in baselines.fixed.items()),
        ("the host's own choice", baselines.host_default, ""),
        ("best fixed cascade, tuned in training", baselines.tuned_in_training, ""),
        ("best fixed cascade, in hindsight", baselines.tuned_in_hindsight, ""),
        ("tau-live before learning", report.before, ""),
        (f"tau-live, version {report.version}", report.after, "bold green"),
        ("best achievable", baselines.oracle, "dim"),
    ]
    for index, (name, result, style) in enumerate(rows, start=-len(rows)):
        numbers = f"{result.reward:+.3f}", f"{result.success:.1%}", f"{result.cost:.3f}"
        # A line below the baselines, and one below what tau-live learned.
        table.add_row(name, *numbers, style=style, end_section=index in {-4, -2})
    return table
