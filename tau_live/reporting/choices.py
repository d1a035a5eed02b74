"""What choices depend on: how often each option was applied, by context."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from tau_live.reporting.facts import Habit, Habits
from tau_live.store.surveys import Choice

OPTIONS = 8
"""So many options are told apart; the others are counted together."""

OTHERS = "(others)"
KEYS = 32
"""So many things that the policy was told are looked at."""

SHOWN = 4
"""So many of them are shown."""

VALUES = 8
"""So many values of each."""

MOST_VALUES = 64
"""What has more values than that, and is no number, is not what a figure could show."""

CELLS = MOST_VALUES * OPTIONS
"""So many pairs of value and option are counted of each."""

NUMBERS = 20_000
"""So many numbers of each key are kept, to be cut into ranges."""

FEWEST = 16
TEXT = 60

_DECODER = msgspec.json.Decoder(dict[str, object])


class Tally:
    """Counts what was applied at a point, by what the policy was told; bounded in size."""

    def __init__(self) -> None:
        self.decisions = 0
        self.applied: Counter[str] = Counter()
        self._words: dict[str, Counter[tuple[str, str]]] = {}
        self._numbers: dict[str, list[tuple[float, str]]] = {}

    def add(self, choice: Choice) -> None:
        """Count a decision."""
        self.decisions += 1
        if choice.applied is None:
            return
        self.applied[choice.applied] += 1
        for key, value in _told(choice.context).items():
            if _is_number(value) and _has_room(self._numbers, key, KEYS):
                numbers = self._numbers.setdefault(key, [])
                if len(numbers) < NUMBERS:
                    numbers.append((float(str(value)), choice.applied))
            elif isinstance(value, str | bool) and _has_room(self._words, key, KEYS):
                words, cell = self._words.setdefault(key, Counter()), (_word(value), choice.applied)
                if _has_room(words, cell, CELLS):
                    words[cell] += 1

    def options(self) -> list[str]:
        """Return what was applied, the most frequent first; what is rare is together."""
        ranked = sorted(self.applied, key=lambda option: (-self.applied[option], option))
        return ranked if len(ranked) <= OPTIONS else [*ranked[: OPTIONS - 1], OTHERS]

    def habits(self) -> list[Habits]:
        """Return what choices hang on, what tells most first."""
        named = self.options()
        found = [
            *(_habits(key, _cells(words.items()), named) for key, words in self._words.items()),
            *(_habits(key, _ranges(pairs), named) for key, pairs in self._numbers.items()),
        ]
        known = [one for one in found if one is not None]
        return sorted(known, key=lambda one: (-one.information, one.key))[:SHOWN]


def grouped(options: Mapping[str, int], named: Sequence[str]) -> dict[str, int]:
    """Return how often each named option was applied, all others together."""
    found = {name: options.get(name, 0) for name in named if name != OTHERS}
    if OTHERS in named:
        found[OTHERS] = sum(options.values()) - sum(found.values())
    return found


def _has_room(table: Collection[object], key: object, most: int) -> bool:
    """Say whether something may be counted: it is there already, or there is room for it."""
    return key in table or len(table) < most


def _told(context: str) -> dict[str, object]:
    try:
        return _DECODER.decode(context)
    except (msgspec.DecodeError, ValueError):
        return {}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _word(value: str | bool) -> str:
    text = str(value).lower() if isinstance(value, bool) else value
    return text if len(text) <= TEXT else f"{text[: TEXT - 1]}…"


def _cells(counts: Iterable[tuple[tuple[str, str], int]]) -> dict[str, Counter[str]]:
    cells: dict[str, Counter[str]] = {}
    for (value, option), count in counts:
        cells.setdefault(value, Counter())[option] += count
    ranked = sorted(cells.items(), key=lambda cell: (-cell[1].total(), cell[0]))
    return dict(ranked)


def _ranges(pairs: Sequence[tuple[float, str]]) -> dict[str, Counter[str]]:
    """Return counts by value where there are few, else by quarters of the numbers."""
    numbers = np.array([number for number, _ in pairs])
    values = np.unique(numbers)
    if len(values) <= VALUES:
        names = {value: f"{value:g}" for value in values.tolist()}
        cells: dict[str, Counter[str]] = {name: Counter() for name in names.values()}
        for number, option in pairs:
            cells[names[number]][option] += 1
        return cells
    ends = np.unique(np.quantile(numbers, [0.0, 0.25, 0.5, 0.75, 1.0]))
    places = np.clip(np.searchsorted(ends, numbers, side="right") - 1, 0, len(ends) - 2)
    labels = [f"{low:.4g} to {high:.4g}" for low, high in pairwise(ends)]
    cells = {label: Counter() for label in labels}
    for place, (_, option) in zip(places.tolist(), pairs, strict=True):
        cells[labels[place]][option] += 1
    return cells


def _habits(key: str, cells: Mapping[str, Counter[str]], named: Sequence[str]) -> Habits | None:
    total = sum(cell.total() for cell in cells.values())
    if total < FEWEST or not 1 < len(cells) <= MOST_VALUES:
        return None
    values = [
        Habit(value=value, decisions=cell.total(), options=grouped(cell, named))
        for value, cell in list(cells.items())[:VALUES]
    ]
    return Habits(key=_word(key), information=_information(cells), values=values)


def _information(cells: Mapping[str, Counter[str]]) -> float:
    """Return the mutual information of value and option, as a share of the option's entropy.

    Less what chance alone would make of so many cells: Miller 1955, "Note on the bias of
    information estimates".
    """
    options = sorted({option for cell in cells.values() for option in cell})
    table = np.array([[cell[option] for option in options] for cell in cells.values()], float)
    total = float(table.sum())
    joint = table / total
    alone = joint.sum(axis=0)
    apart = joint.sum(axis=1, keepdims=True) * alone
    with np.errstate(divide="ignore", invalid="ignore"):
        shared = float(np.nansum(joint * np.log(joint / apart)))
        entropy = -float(np.nansum(alone * np.log(alone)))
    chance = (len(cells) - 1) * (len(options) - 1) / (2.0 * total)
    return min(1.0, max(0.0, shared - chance) / entropy) if entropy > 0.0 else 0.0
