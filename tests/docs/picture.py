"""Draws the picture of the README from a real run of the demo.

``TAU_LIVE_RL=1 python -m tests.docs.picture docs/_static/demo.svg``; takes about a minute.
"""

import io
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tau_live.cli.demo import HELD_OUT, TRAINING
from tau_live.cli.demo.live import CURVE, run_demo
from tau_live.cli.demo.show import render
from tau_live.core.settings import Settings

WIDTH = 84
HEIGHT = 6
BLOCKS = " ▁▂▃▄▅▆▇█"


def picture(folder: Path) -> str:
    """Return the demo's report, with its learning curve, as an SVG that loads nothing."""
    store = folder / "store.sqlite"
    settings = Settings(store=store)
    report = run_demo(settings, seed=0, training=TRAINING, held_out=HELD_OUT, progress=ignored)
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(render(report))
    console.print()
    console.print(Text(f"mean reward of each {CURVE} questions while it learned", style="bold"))
    console.print(chart(report.curve))
    title = "TAU_LIVE_RL=1 tau-live demo"
    drawn = console.export_svg(title=title, unique_id="tau-live-demo")
    shown = drawn.replace(str(store), ".tau/live/store.sqlite")
    return re.sub(r"@font-face\s*{.*?}", "", shown, flags=re.DOTALL)  # those are on the network


def ignored(*_: object) -> None:
    """Do nothing about progress."""


def chart(values: Sequence[float]) -> Text:
    """Return a bar for each value, with the lowest and highest beside it."""
    low, high = min(0.0, *values), max(values)
    eighths = [round((value - low) / (high - low) * HEIGHT * 8) for value in values]
    drawn = Text()
    for row in reversed(range(HEIGHT)):
        label = f"{high:+.2f} " if row == HEIGHT - 1 else f"{low:+.2f} " if row == 0 else " " * 6
        bars = "".join(BLOCKS[min(8, max(0, eighth - 8 * row))] * 4 + " " for eighth in eighths)
        drawn.append(label, style="dim")
        drawn.append(bars + "\n", style="green")
    return drawn


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        Path(sys.argv[1]).write_text(picture(Path(folder)))
