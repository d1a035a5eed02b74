"""Where the demo's outcomes come from: a reviewer who rates the answers, mostly later.

What was decided about each answer stands in a file of its own, as it would in a ticket system, so
that a demo that was killed goes on where it stopped.
"""

import fcntl
import json
import os
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from tau_live.errors import TauLiveError

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
    """The outcomes so far, in a file that belongs to one demo at a time.

    Args:
        path: The file; its folder must be there.
        stored: Says whether a rollout is in the store: outcomes of others are forgotten, and
            what came after them.
        round_: So many questions make a round; one that is not whole is forgotten too.

    Raises:
        TauLiveError: Another demo of this seed runs on this store.
    """

    def __init__(self, path: Path, *, stored: Callable[[str], bool], round_: int) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise TauLiveError("another demo with this seed is running on this store") from error
        known = list(takewhile(lambda outcome: stored(outcome.run), _read(path)))
        self.known = known[: len(known) - len(known) % round_]
        os.ftruncate(self._file, 0)
        self._write(self.known)

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Note outcomes whose rollouts are stored."""
        self.known += outcomes
        self._write(outcomes)

    def due(self, round_: int, *, since: int) -> list[Outcome]:
        """Return what is told after the rounds from ``since`` to ``round_``, by question."""
        return [o for o in self.known if o.due is not None and since <= o.due <= round_]

    def close(self) -> None:
        """Let another demo have the file."""
        os.close(self._file)

    def _write(self, outcomes: Sequence[Outcome]) -> None:
        lines = "".join(json.dumps(outcome._asdict()) + "\n" for outcome in outcomes)
        os.write(self._file, lines.encode())


def _read(path: Path) -> Iterator[Outcome]:
    """Yield the outcomes of a file up to the first line that is torn or no outcome of ours."""
    for line in path.read_bytes().split(b"\n"):
        try:
            outcome = Outcome(**json.loads(line))
        except (ValueError, TypeError):
            return
        yield outcome
