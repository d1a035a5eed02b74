"""Families of prompt tasks, made by seed: tickets of houses whose rules no prompt names yet.

The task model and the model that reflects are the stubs of the demo, the same for all optimizers.
"""

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tau_live.prompts.demo import critique, edit, triage
from tau_live.prompts.tickets import (
    CIRCUMSTANCES,
    PRIORITIES,
    PROBLEMS,
    QUEUES,
    Rule,
    reply,
    says,
    ticket,
)

TRAIN, VALIDATE, TEST = 30, 40, 200
NOISE = 0.15
"""The share of noisy rows that have a wrong label."""

TEMPTATION = 0.6
"""The share of a rule's tickets to learn from that one company has; it has no others there."""

CONFUSION = 0.25
"""The share of wrong labels where no rule helps."""

Row = Mapping[str, str]


class World(NamedTuple):
    """A house and its tickets.

    Attributes:
        family: Which kind of task this is.
        seed: By which it was drawn.
        rules: The rules of the house; nobody is told.
        train: Rows that an optimizer may show to its models, ``{"prompt": ..., "expected": ...}``.
        validate: Rows to choose or confirm by.
        test: Rows that no optimizer sees.
    """

    family: str
    seed: int
    rules: Sequence[Rule]
    train: Sequence[Row]
    validate: Sequence[Row]
    test: Sequence[Row]


class Outcome(NamedTuple):
    """The result of an optimizer in a world.

    Attributes:
        prompt: The prompt that it returned.
        task_calls: How often it had the task model called.
        reflection_calls: How often it had a prompt criticized or written.
    """

    prompt: str
    task_calls: int
    reflection_calls: int


def executed(prompt: str, rows: Sequence[Row]) -> list[dict[str, object]]:
    """Return what a critic is shown of rows: input, what is expected, output and score."""
    outputs = [triage(prompt, row["prompt"]) for row in rows]
    return [
        {
            "input": row["prompt"],
            "expected": row["expected"],
            "output": output,
            "score": float(output == row["expected"]),
        }
        for row, output in zip(rows, outputs, strict=True)
    ]


def reflect(prompt: str, examples: str, *, seed: int) -> str:
    """Return a prompt written anew: the model that reflects is the critic, then the editor.

    Args:
        prompt: The prompt as it is.
        examples: Executed rows, between markers: a JSON array, or an object a line.
        seed: A model's answers vary by it.
    """
    remarks = critique(examples, seed=seed)
    blocks = (f"<<<\n{json.dumps(text)}\n>>>" for text in (prompt, remarks))
    return edit("\n\n".join(blocks), seed=seed)


def score(prompt: str, rows: Sequence[Row]) -> float:
    """Return the share of rows that are answered as expected."""
    return sum(triage(prompt, row["prompt"]) == row["expected"] for row in rows) / len(rows)


def world(family: str, seed: int) -> World:
    """Return a world of a family."""
    return FAMILIES[family](random.Random(f"{family} {seed}"), seed)


def independent(rng: random.Random, seed: int) -> World:
    """Return a world with five rules, each of which helps by itself."""
    return _drawn("independent", rng, seed, _several(rng))


def together(rng: random.Random, seed: int) -> World:
    """Return a world with pairs of rules for the same tickets: one alone makes no answer right."""
    rules = [
        rule
        for cue in rng.sample(list(PROBLEMS), 2)
        for rule in (
            Rule("queue", rng.choice(("refunds", "legal", "sales")), (cue,)),
            Rule("priority", rng.choice(("low", "high", "urgent")), (cue,)),
        )
    ]
    return _drawn("together", rng, seed, rules)


def tempting(rng: random.Random, seed: int) -> World:
    """Return a world in whose train rows one company has most tickets of a rule, and no others."""
    rules = [
        Rule("queue", "legal", (rng.choice(list(PROBLEMS)),)),
        Rule("priority", "urgent", (rng.choice(list(CIRCUMSTANCES)),)),
    ]
    drawn = _drawn("tempting", rng, seed, rules)
    tempters = dict(zip(("Initech", "Vandelay"), rules, strict=True))
    return drawn._replace(train=[_tempted(rng, row, tempters) for row in drawn.train])


def noisy(rng: random.Random, seed: int) -> World:
    """Return a world with five rules; rows to learn and to choose by are wrong at times."""
    drawn = _drawn("noisy", rng, seed, _several(rng))
    return drawn._replace(
        train=_mislabelled(rng, drawn.train, NOISE),
        validate=_mislabelled(rng, drawn.validate, NOISE),
    )


def hopeless(rng: random.Random, seed: int) -> World:
    """Return a world in which the first prompt is right, but for labels drawn by chance."""
    drawn = _drawn("hopeless", rng, seed, [])
    return drawn._replace(
        train=_mislabelled(rng, drawn.train, CONFUSION),
        validate=_mislabelled(rng, drawn.validate, CONFUSION),
        test=_mislabelled(rng, drawn.test, CONFUSION),
    )


FAMILIES: Mapping[str, Callable[[random.Random, int], World]] = {
    "independent": independent,
    "together": together,
    "tempting": tempting,
    "noisy": noisy,
    "hopeless": hopeless,
}


def _several(rng: random.Random) -> list[Rule]:
    queues = zip(rng.sample(list(PROBLEMS), 2), ("refunds", "legal"), strict=True)
    priorities = zip(rng.sample(list(CIRCUMSTANCES), 2), ("urgent", "low"), strict=True)
    return [
        *(Rule("queue", queue, (cue,)) for cue, queue in queues),
        *(Rule("priority", priority, (cue,)) for cue, priority in priorities),
        Rule("amount", "24.50 EUR"),
    ]


def _drawn(family: str, rng: random.Random, seed: int, rules: Sequence[Rule]) -> World:
    frequent = {cue for rule in rules for cue in rule.cues}
    texts = [ticket(rng, 1000 + n, frequent) for n in range(TRAIN + VALIDATE + TEST)]
    rows = [{"prompt": text, "expected": reply(text, rules)} for text in texts]
    return World(
        family, seed, rules,
        rows[:TRAIN], rows[TRAIN : TRAIN + VALIDATE], rows[TRAIN + VALIDATE :],
    )  # fmt: skip


def _tempted(rng: random.Random, row: Row, tempters: Mapping[str, Rule]) -> Row:
    companies = [name for name, rule in tempters.items() if says(row["prompt"], rule.cues[0])]
    company = companies[0] if companies and rng.random() < TEMPTATION else "Acme"
    return {**row, "prompt": re.sub("Company: .*", f"Company: {company}", row["prompt"])}


def _mislabelled(rng: random.Random, rows: Sequence[Row], share: float) -> list[Row]:
    return [_wrong(rng, row) if rng.random() < share else row for row in rows]


def _wrong(rng: random.Random, row: Row) -> Row:
    field, values = rng.choice((("queue", QUEUES), ("priority", PRIORITIES)))
    others = [value for value in values if f"{field}={value}" not in row["expected"]]
    label = re.sub(rf"{field}=\w+", f"{field}={rng.choice(others)}", row["expected"])
    return {**row, "expected": label}
