"""The model of the bench of lessons: it knows a rule, and follows it once it is told.

Nothing but the standard library is imported, so that a peer's Python can run it.
"""

import json
import random
import re
from collections.abc import Mapping

RULE = "Write the unit after the number."
RATES: Mapping[str, tuple[float, float]] = {
    "helps": (0.4, 0.95),
    "nothing": (0.4, 0.4),
    "harms": (0.4, 0.05),
}
"""The share of right answers without the rule in the prompt and with it, by world."""


def tasks(split: str, count: int, first: int) -> list[tuple[str, str]]:
    """Return questions with their answers."""
    return [
        (f"Pole {n} of {split} is {n} cm. How long is it?", f"{n} cm")
        for n in range(first, first + count)
    ]


def attempt(world: str, prompt: str, question: str, seed: object) -> str:
    """Answer a question: right at the rate of the world, by a chance that any other prompt changes.

    Were it by seed and question alone, a lesson that changes nothing would change no answer, and no
    false alarm could be raised.
    """
    length = re.search(r"(\d+) cm", question)
    value = "" if length is None else length[1]
    is_right = (
        random.Random(f"{seed}\0{question}\0{prompt}").random() < RATES[world][RULE in prompt]
    )
    return f"{value} cm" if is_right else value


def share_right(world: str, prompt: str, split: list[tuple[str, str]], seed: int) -> float:
    """Return the share of right answers to held-out questions."""
    right = [attempt(world, prompt, question, seed) == answer for question, answer in split]
    return sum(right) / len(right)


def reply(world: str, system: str, user: str, seed: object) -> str:
    """Answer as the published method asks: what its prompts want is told from their tags."""
    if "<Experiences>" in system:
        return f"<Experiences>\n1. {RULE}\n</Experiences>"
    if "JSON array" in system:
        known = RULE in user.partition("<New Experiences>")[0].partition("Operations without")[0]
        op = {"operation": "NONE" if known else "ADD", "id": None, "content": RULE}
        return f"```json\n{json.dumps([op])}\n```"
    if "trajectory" in system.casefold():
        return "Gave an answer, with or without its unit."
    question = re.findall(r"Pole \d+ of \w+ is \d+ cm\. How long is it\?", user)[-1]
    return attempt(world, f"{system}\n{user}", question, seed)
