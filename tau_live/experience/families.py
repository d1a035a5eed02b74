"""Families of tasks that need no download: each draws its tasks from a seed, a split at a time."""

import calendar
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from tau_live.core.sanitize import JsonObject

GOODS = ("rope", "cable", "ribbon", "hose", "fence", "pipe", "chain", "tape", "cloth", "wire")
PEOPLE = ("Ada", "Bo", "Cem", "Dana", "Eli", "Fay", "Gus", "Hana", "Ivo", "Jun", "Kim", "Lea")
CITIES = ("Oslo", "Lima", "Kyoto", "Quito", "Turin", "Accra", "Perth", "Lyon", "Izmir", "Hanoi")
LENGTHS = {"mm": 1, "cm": 10, "m": 1000}
"""Units of length in millimetres."""


class Drawn(NamedTuple):
    """A drawn task.

    Attributes:
        prompt: The question.
        expected: The answer as text.
        checks: Its checks.
    """

    prompt: str
    expected: str
    checks: Sequence[JsonObject]


def units(rng: random.Random) -> Drawn:
    """Return a sum of lengths in different units, to be answered in one of them."""
    unit, other = rng.sample(sorted(LENGTHS), 2)
    count, first = rng.randint(2, 9), rng.randint(2, 60) * 10
    second = rng.randint(2, 60) * 10
    good = rng.choice(GOODS)
    total = (count * first * LENGTHS[unit] + second * LENGTHS[other]) / LENGTHS[unit]
    prompt = (
        f"{rng.choice(PEOPLE)} has {count} pieces of {good}, {first} {unit} each, and one more of "
        f"{second} {other}. How long is all {good} in {unit}?"
    )
    return Drawn(
        prompt, f"{total:g} {unit}",
        [
            {"kind": "number", "name": "value", "value": total, "hard": True, "tolerance": 1e-6},
            {"kind": "regex", "name": "unit", "value": rf"\d\s*{unit}\b"},
        ],
    )  # fmt: skip


def dates(rng: random.Random) -> Drawn:
    """Return a question for a date, some of them beside a leap day or the end of a month."""
    start = date(rng.randint(1996, 2031), rng.randint(1, 12), rng.randint(1, 28))
    if rng.random() < 0.4:
        start = start.replace(month=2, day=rng.randint(24, 28))
    days = rng.randint(2, 75)
    person, city = rng.choice(PEOPLE), rng.choice(CITIES)
    if rng.random() < 0.5:
        end = start + timedelta(days=days)
        prompt = (
            f"{person} arrives in {city} on {start} and stays {days} days. When does she leave?"
        )
    else:
        last = calendar.monthrange(start.year, start.month)[1]
        end = start.replace(day=last)
        prompt = f"{person} pays the rent in {city} on the last day of {start:%B %Y}. Which date?"
    return Drawn(
        f"{prompt} Answer as YYYY-MM-DD.", str(end),
        [{"kind": "contains", "name": "date", "value": str(end), "hard": True}],
    )  # fmt: skip


class _Function(NamedTuple):
    """A small function to write: what it does, and what it returns for arguments."""

    text: str
    solve: Callable[..., object]
    draw: Callable[[random.Random], list[object]]


def _numbers(rng: random.Random) -> list[object]:
    return [[rng.randint(-20, 20) for _ in range(rng.randint(0, 7))]]


def _words(rng: random.Random) -> list[object]:
    return [" ".join(rng.choice(GOODS) for _ in range(rng.randint(0, 5)))]


FUNCTIONS: Sequence[_Function] = (
    _Function(
        "the sum of all numbers above {n}",
        lambda own, n: sum(number for number in own if number > n),
        _numbers,
    ),
    _Function(
        "how many numbers can be divided by {n}",
        lambda own, n: sum(number % n == 0 for number in own),
        _numbers,
    ),
    _Function(
        "the numbers without repeats, times {n}",
        lambda own, n: [number * n for number in dict.fromkeys(own)],
        _numbers,
    ),
    _Function(
        "the largest number plus {n}, or null without any",
        lambda own, n: max(own) + n if own else None,
        _numbers,
    ),
    _Function(
        "the words of at least {n} letters, sorted",
        lambda own, n: sorted(word for word in own.split() if len(word) >= n),
        _words,
    ),
    _Function(
        "the first letters of all words, {n} times",
        lambda own, n: "".join(word[0] for word in own.split()) * n,
        _words,
    ),
)


def functions(rng: random.Random) -> Drawn:
    """Return a function to write, with hidden tests."""
    kind, n = rng.choice(FUNCTIONS), rng.randint(2, 99)
    name = f"{rng.choice(GOODS)}_{rng.randint(10, 9999)}"
    cases = [kind.draw(rng) for _ in range(8)]
    kind_of = "list of integers" if kind.draw is _numbers else "text"
    prompt = (
        f"Write a Python function {name}(values) for a {kind_of} that returns "
        f"{kind.text.format(n=n)}."
    )
    tested = [[own, kind.solve(*own, n)] for own in cases]
    return Drawn(
        prompt, "", [{"kind": "tests", "value": {"function": name, "cases": tested}}]
    )  # fmt: skip


def extraction(rng: random.Random) -> Drawn:
    """Return a note to be read into a JSON object; a field that it does not name is null."""
    person, city, good = rng.choice(PEOPLE), rng.choice(CITIES), rng.choice(GOODS)
    amount, order = rng.randint(2, 99), rng.randint(10_000, 99_999)
    parts = [f"Order {order}: {person} wants {amount} m of {good}"]
    fields: dict[str, object] = {
        "order": order, "person": person, "amount": amount, "city": None, "express": False
    }  # fmt: skip
    if rng.random() < 0.6:
        parts.append(f"to {city}")
        fields["city"] = city
    if rng.random() < 0.4:
        parts.append(rng.choice(("as soon as possible", "it is urgent", "by express")))
        fields["express"] = True
    prompt = (
        f"{', '.join(parts)}. Return JSON for order {order} with order, person, amount, city, "
        "express."
    )
    return Drawn(prompt, "", [{"kind": "fields", "value": fields}])


FAMILIES: Mapping[str, Callable[[random.Random], Drawn]] = {
    "units": units,
    "dates": dates,
    "functions": functions,
    "extraction": extraction,
}
"""How a task of each family is drawn."""


def generate(family: str, split: str, count: int, *, seed: int) -> Iterator[JsonObject]:
    """Yield tasks of a family for a split; no prompt comes twice in all splits.

    Args:
        family: One of ``FAMILIES``.
        split: The split, which has a part of all prompts to itself.
        count: How many tasks.
        seed: Of the draws.
    """
    rng = random.Random(f"{family} {split} {seed}")  # noqa: S311  # tasks, not secrets
    splits = ("train", "validation", "test", "transfer")
    known: set[str] = set()
    while len(known) < count:
        drawn = FAMILIES[family](rng)
        own = random.Random(drawn.prompt).randrange(len(splits))  # noqa: S311  # likewise
        if splits[own] != split or drawn.prompt in known:
            continue
        known.add(drawn.prompt)
        yield {
            "query_id": f"{family}-{split}-{len(known)}",
            "prompt": drawn.prompt,
            "domain": family,
            "family": family,
            "split": split,
            "checks": [dict(check) for check in drawn.checks],
            "expected": drawn.expected or None,
        }
