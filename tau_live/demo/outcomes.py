"""Where the demo's outcomes come from: somebody who looks at the answers, mostly later.

What was decided about each answer stands in a file of its own, as it would in a ticket system, so
that a demo that was killed goes on where it stopped.
"""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

AT_ONCE = 0.5
NEVER = 0.1
LATEST = 4
"""An outcome that is late comes after one to so many more rounds."""


class Outcome(NamedTuple):
    """What one answer was worth.

    Attributes:
        question: The number of the question, from 0.
        run: The id of its rollout.
        reward: In ``[-1, 1]``.
        succeeded: Whether the answer was right.
        cost: What the searches cost.
        due: The round after which it is told; ``None`` for never.
    """

    question: int
    run: str
    reward: float
    succeeded: bool
    cost: float
    due: int | None


def due_after(question: int, *, round_: int, seed: int) -> int | None:
    """Return the round after which an outcome is told: mostly at once, some late, some never."""
    rng = random.Random(f"{seed}:{question}")  # noqa: S311  # no secret hangs on it
    drawn = rng.random()
    if drawn < NEVER:
        return None
    return round_ if drawn < NEVER + AT_ONCE else round_ + rng.randint(1, LATEST)


class Outcomes:
    """The outcomes so far, appended to a file line by line.

    Args:
        path: The file; its folder must be there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.known = list(_read(path))

    def add(self, outcome: Outcome) -> None:
        """Note an outcome."""
        self.known.append(outcome)
        with os.fdopen(
            os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a"
        ) as f:
            f.write(json.dumps(outcome._asdict()) + "\n")

    def due(self, round_: int, *, since: int) -> list[Outcome]:
        """Return what is told after the rounds from ``since`` to ``round_``, by question."""
        return [o for o in self.known if o.due is not None and since <= o.due <= round_]


def _read(path: Path) -> Iterator[Outcome]:
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return
    whole, torn = lines[:-1], lines[-1]
    if torn:  # the process was killed while it wrote
        path.write_bytes(b"".join(line + b"\n" for line in whole))
    for line in whole:
        yield Outcome(**json.loads(line))
