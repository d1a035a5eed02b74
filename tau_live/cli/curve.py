"""A curve with its confidence band, drawn with characters."""

from collections.abc import Sequence
from typing import NamedTuple

from rich.text import Text

from tau_live.reporting.facts import Mean

MEAN, BAND, NOTHING = "█", "░", " "
ROWS = 4
WIDEST = 4
"""So many characters one point may take."""


class Scale(NamedTuple):
    """Which numbers the rows stand for.

    Attributes:
        low: The lower end of the lowest.
        high: The upper end of the highest.
        rows: How many there are.
    """

    low: float
    high: float
    rows: int

    def row(self, value: float) -> int:
        """Return in which row a number is, from 0 at the bottom."""
        share = (value - self.low) / (self.high - self.low)
        return min(self.rows - 1, max(0, int(share * self.rows)))


def curve(means: Sequence[Mean], *, width: int, rows: int = ROWS) -> list[Text]:
    """Return a curve, row by row from the top, with the numbers of its ends at the left.

    What lies within the interval of a mean is shaded; where nothing is known it is empty.

    Args:
        means: From left to right.
        width: So many characters wide at most, the numbers too.
        rows: So many rows high.
    """
    known = [(n, one.mean) for n, one in enumerate(means) if one.mean is not None]
    if not known:
        return []
    scale = _scale(means, rows)
    ends = [f"{value:.3g}" for value in (scale.high, scale.low)]
    margin = max(map(len, ends))
    room = max(1, width - margin - 2)
    shown = means[-room:]
    each = max(1, min(WIDEST, room // len(shown)))
    labels = [ends[0], *[""] * (rows - 2), ends[1]]
    return [
        Text.assemble((f"{label:>{margin}} │", "dim"), _row(shown, scale, row, each))
        for label, row in zip(labels, reversed(range(rows)), strict=True)
    ]


def _scale(means: Sequence[Mean], rows: int) -> Scale:
    """Return what has room for every interval; where all is the same, half of one around it."""
    ends = [end for one in means for end in (one.lower, one.mean, one.upper) if end is not None]
    low, high = min(ends), max(ends)
    return Scale(low, high, rows) if high > low else Scale(low - 0.5, high + 0.5, rows)


def _row(means: Sequence[Mean], scale: Scale, row: int, each: int) -> Text:
    line = Text()
    for one in means:
        mark, style = _mark(one, scale, row)
        line.append(mark * each, style)
    return line


def _mark(one: Mean, scale: Scale, row: int) -> tuple[str, str]:
    if one.mean is None:
        return NOTHING, ""
    if scale.row(one.mean) == row:
        return MEAN, "cyan"
    if one.lower is None or one.upper is None:
        return NOTHING, ""
    within = scale.row(one.lower) <= row <= scale.row(one.upper)
    return (BAND, "cyan dim") if within else (NOTHING, "")
