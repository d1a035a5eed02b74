"""Agents of the tests of the phase ``policy``: right, or not, by their prompt and their choices."""

import time
from collections.abc import Mapping

from tau_live.prompts.items import Item
from tau_live.prompts.policy import ItemRun
from tau_live.prompts.rows import Row
from tests.prompts.agents import gate, note

CHOOSERS = __name__
OLD, NEW, OTHER = "Old.", "New.", "Other."


def second(row: Row, resources: Mapping[str, object], item: Item) -> str:
    """Be right with the second prompt only."""
    if isinstance(item.run, ItemRun):
        gate(f"row-{row.index}")
    note("executed", item.rollout_id)
    return "yes" if item.prompt == NEW else "no"


def slow(row: Row, resources: Mapping[str, object], item: Item) -> str:
    if isinstance(item.run, ItemRun):
        time.sleep(0.05)
    return second(row, resources, item)


def deciding(row: Row, resources: Mapping[str, object], item: Item) -> str:
    """Decide three times: an answer is right by the share of what was decided well."""
    if isinstance(item.run, ItemRun):
        gate(f"row-{row.index}")
    note("executed", item.rollout_id)
    first = item.run.decide("style", ["short", "long"], context={"n": row.index}, default="long")
    again = item.run.decide("tone", {"kind": {"cost": 1.0}, "rude": {"cost": 0.5}})
    third = item.run.decide("style", ["short", "long"], context={"step": "two"})
    return "".join(str(choice.option)[0] for choice in (first, again, third))


def share(output: str, row: object) -> float:
    return sum(a == b for a, b in zip(output, "sks", strict=True)) / 3


def lone(row: Row, resources: Mapping[str, object], item: Item) -> str:
    """Decide where there is nothing to choose."""
    item.run.decide("style", ["short"])
    return "yes" if row.index % 2 else "no"


def even(row: Row, resources: Mapping[str, object], item: Item) -> str:
    return "yes" if row.index % 2 else "no"


def same(row: Row, resources: Mapping[str, object], item: Item) -> str:
    return "yes"


def unsafe(row: Row, resources: Mapping[str, object], item: Item) -> Mapping[str, object]:
    """Be right with the second prompt only, and leak a secret by that."""
    is_new = item.prompt == NEW
    codes = ["secret_leak.openai_api_key"] if is_new else []
    return {"output": "yes" if is_new else "no", "reason_codes": codes}


def raising(row: Row, resources: Mapping[str, object], item: Item) -> str:
    if isinstance(item.run, ItemRun):
        raise ValueError("cannot answer")  # noqa: TRY004  # of an agent
    return "yes"
