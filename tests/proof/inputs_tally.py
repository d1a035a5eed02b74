"""The tally of cases: what was raised, changed or not offered, and how long each took."""

import time
from array import array
from collections.abc import Callable
from typing import Any, TypeVar

from tests.proof.collected import collected_s
from tests.proof.inputs_values import state_of

T = TypeVar("T")
KEPT = 20
"""The most faults of each kind that are reported in words."""


class Tally:
    """Counts cases and their faults.

    Attributes:
        cases: The number of calls.
        wrong: The number of faults, by kind.
        words: The first faults of each kind, so that they can be repeated.
    """

    def __init__(self) -> None:
        self.cases = 0
        self.wrong = {"raised": 0, "mutated": 0, "not offered": 0, "not counted": 0, "odd": 0}
        self.words: list[str] = []
        self._took = array("d")
        self._longest = (0.0, "")
        self._collected = 0.0
        self.case = ""

    def timed(self, function: Callable[..., T], *args: Any, **named: Any) -> T | None:
        """Call a function as a host does; time it, and count an exception as a fault.

        The time is the thread's own, because others share the machine; waiting is not in it, and
        Python's garbage collector is counted apart (see ``collected``).
        """
        self.cases += 1
        before = [state_of(value) for value in (*args, *named.values())]
        gone, began = collected_s(), time.thread_time()
        try:
            result: T | None = function(*args, **named)
        except Exception as error:  # it is what is looked for
            self.add("raised", f"{type(error).__name__} at {_place(error)}")
            result = None
        took, gone = time.thread_time() - began, collected_s() - gone
        took = (took - gone) * 1e3
        self._collected = max(self._collected, gone * 1e3)
        self._took.append(took)
        if took > self._longest[0]:
            self._longest = (took, self.case)
        if before != [state_of(value) for value in (*args, *named.values())]:
            self.add("mutated", "")
        return result

    def check(self, holds: bool, kind: str, words: str) -> None:
        """Count a fault if something does not hold."""
        if not holds:
            self.add(kind, words)

    def add(self, kind: str, words: str) -> None:
        """Count a fault."""
        self.wrong[kind] += 1
        if self.wrong[kind] <= KEPT:
            self.words.append(f"{kind}: {self.case}: {words}")

    def to_dict(self) -> dict[str, object]:
        """Return everything as plain data; times in milliseconds."""
        took = sorted(self._took)
        return {
            "cases": self.cases,
            "wrong": self.wrong,
            "words": self.words,
            "longest_ms": self._longest[0],
            "longest": self._longest[1],
            "collected_ms": self._collected,
            "p99_ms": took[int(0.99 * (len(took) - 1))] if took else 0.0,
            "p50_ms": took[len(took) // 2] if took else 0.0,
        }


def _place(error: BaseException) -> str:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "" if at is None else f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}"
