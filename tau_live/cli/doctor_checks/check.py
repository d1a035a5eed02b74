"""The result of a check of `tau-live doctor`."""

from typing import NamedTuple

OK, WARN, FAIL = "ok", "warn", "fail"


class Check(NamedTuple):
    """One thing that was looked at.

    Attributes:
        check: What.
        state: ``ok``, ``warn`` or ``fail``.
        found: What was found.
        advice: What to do; ``None`` where nothing is to be done.
        mistake: Which of the known ones it is; ``None`` where all is well.
    """

    check: str
    state: str
    found: str
    advice: str | None = None
    mistake: str | None = None
