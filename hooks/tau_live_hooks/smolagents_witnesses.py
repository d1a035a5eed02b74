"""Streams of a run and of a model, seen piece by piece; nothing at import needs the host."""

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tau_live.errors import suppress
from tau_live_hooks.smolagents_places import at, within
from tau_live_hooks.smolagents_run import HostRun, Place

Safely = Callable[..., Any]
"""Does a step of ours and returns what it returns, or ``None`` if it fails."""


class RunStream:
    """A run whose steps are read one by one.

    Args:
        run: The run.
        ended: Is told what it answered, or what it raised; must not raise.
    """

    def __init__(self, run: HostRun, ended: Callable[[Any, BaseException | None], object]) -> None:
        self._run = run
        self._ended = ended
        self._answer: Any = None

    def step(self) -> AbstractContextManager[object]:
        """Be in the run, while it is not its reader's turn."""
        return within(Place(self._run))

    def said(self, item: object) -> None:
        """Keep the answer, which comes last."""
        if type(item).__name__ == "FinalAnswerStep":
            self._answer = item

    def over(self, error: BaseException | None, result: object = None) -> None:
        """End the run; cancelled if nobody read it to its end."""
        self._ended(getattr(self._answer, "output", result), error)


class ModelStream:
    """An answer of a model that comes in pieces.

    Args:
        place: Where it is asked.
        answered: Is told the whole answer at the end.
        refused: Is told the error instead.
        heard: Is told that a piece came.
        safely: Does what of ours may fail.
    """

    def __init__(
        self,
        place: Place,
        *,
        answered: Callable[[Any], None],
        refused: Callable[[BaseException], None],
        heard: Callable[[], None],
        safely: Safely,
    ) -> None:
        self._place = place
        self._answered = answered
        self._refused = refused
        self._heard = heard
        self._safely = safely
        self._pieces: list[Any] = []

    def step(self) -> AbstractContextManager[object]:
        """Be in the request, so that a model inside this one is not another request."""
        return at(self._place)

    def said(self, item: object) -> None:
        """Keep a piece."""
        if not self._pieces:
            self._safely(self._heard)
        self._pieces.append(item)

    def over(self, error: BaseException | None, result: object = None) -> None:  # noqa: ARG002  # a generator's
        """Tell the answer, or why there is none."""
        if error is not None:
            self._safely(self._refused, error)
        else:
            self._safely(self._tell)

    def _tell(self) -> None:
        from smolagents.models import agglomerate_stream_deltas

        self._answered(agglomerate_stream_deltas(self._pieces))


def is_streaming(result: object, given: Any) -> bool:
    """Say whether a run returned its steps to be read: an answer may be a generator too."""
    with suppress(Exception):
        return bool(given.get("stream")) and inspect.isgenerator(result)
    return False
