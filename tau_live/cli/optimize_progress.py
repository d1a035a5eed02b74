"""The progress of an optimization: a bar on a terminal, elsewhere a line for each phase."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from tau_live.cli.output import plural
from tau_live.prompts.budget import Preflight
from tau_live.prompts.lead import Shown
from tau_live.store.records import OptimizationState

AHEAD: Mapping[str, tuple[str, ...]] = {
    "confirm": ("confirm_items", "policy_items", "test_items"),
    "policy": ("policy_items", "test_items"),
    "final": ("test_items",),
}
"""The figures of the preflight that are still ahead as a phase begins; all before the first."""

WIDE = 76
"""In fewer columns there is neither a bar nor the elapsed time."""

FIRST = Shown("", OptimizationState.RUNNING, 0, 0, 0.0, 0)


class Items:
    """Knows how many items a run has at most: what a phase did not need is not ahead any more.

    Args:
        most: What it takes at most.
    """

    def __init__(self, most: Preflight) -> None:
        self._most = most
        self._phase = ""
        self._ahead = most.items
        self._before = self._total = 0

    def at_most(self, shown: Shown) -> int:
        """Return the number, by the progress."""
        if shown.phase != self._phase and shown.phase in AHEAD:
            self._before = self._total
            figures = self._most._asdict()
            self._ahead = sum(figures[name] for name in AHEAD[shown.phase])
        self._phase, self._total = shown.phase, shown.total
        return max(self._before + self._ahead, shown.total)


@contextmanager
def showing(most: Preflight, *, quiet: bool) -> Iterator[Callable[[Shown], None]]:
    """Yield what shows the progress of a run, on standard error.

    Args:
        most: What the run takes at most.
        quiet: Whether nothing is shown.
    """
    if quiet:
        yield lambda _: None
    elif not sys.stderr.isatty() or os.environ.get("NO_COLOR"):
        yield _lines()
    else:
        with _bar() as bar:
            task = bar.add_task(
                _phase(FIRST), total=most.items or None, figures=_figures(FIRST, most)
            )
            items, done = Items(most), 0

            def show(shown: Shown) -> None:
                nonlocal done
                done = shown.done
                bar.update(
                    task, completed=done, total=items.at_most(shown) or None,
                    description=_phase(shown), figures=_figures(shown, most),
                )  # fmt: skip

            yield show
            bar.update(task, total=done)  # less than at most: it has ended


def _bar() -> Progress:
    console = Console(stderr=True, highlight=False)
    is_wide = console.width >= WIDE
    bar = [BarColumn(bar_width=None)] if is_wide else []
    elapsed = [TextColumn("elapsed"), TimeElapsedColumn()] if is_wide else []
    return Progress(
        TextColumn("{task.description:<10}"),
        *bar,
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}"),
        *elapsed,
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    )


def _phase(shown: Shown) -> str:
    return shown.phase or "preparing" if shown.state == "running" else shown.state


def _figures(shown: Shown, most: Preflight) -> str:
    """Return calls and US dollars, as wide as they may become."""
    width = len(f"{most.calls or 100_000:,} calls")
    calls = f"{plural(shown.calls, 'call'):>{width}}"
    is_known = most.usd is not None or shown.usd > 0.0
    return f"{calls} {f'${shown.usd:.4f}':>9}" if is_known else calls


def _lines() -> Callable[[Shown], None]:
    seen = set[str]()

    def show(shown: Shown) -> None:
        if shown.phase and shown.phase not in seen:
            seen.add(shown.phase)
            counts = f"{plural(shown.done, 'item')}, {plural(shown.calls, 'call')} so far"
            click.echo(f"{shown.phase}: {counts}", err=True)

    return show
