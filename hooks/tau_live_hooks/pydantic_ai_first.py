"""When the first piece of a streamed answer came, as the host's instrumentation gets to know it.

That is not public, so a host that has it elsewhere, or not at all, just tells no such time.
"""

from typing import TYPE_CHECKING, Any

from tau_live.errors import suppress

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class FirstChunk:
    """Listens, from now until ``over``, for when the first piece of an answer came.

    Args:
        request: The host's ``ModelRequestContext``.

    Attributes:
        after_s: So many seconds after the request was sent; ``None`` if nobody said so.
    """

    def __init__(self, request: Any) -> None:
        self.after_s: float | None = None
        self._capture: AbstractContextManager[None] | None = None
        with suppress(Exception):
            if getattr(request, "streaming", None) is False:
                return
            from pydantic_ai._instrumentation import model_response_span_capture

            capture: AbstractContextManager[None] = model_response_span_capture(
                request, self._captured
            )
            capture.__enter__()
            self._capture = capture

    def over(self) -> None:
        """Listen no longer; in another context than it began in, that is the host's to undo."""
        if self._capture is not None:
            with suppress(Exception):
                self._capture.__exit__(None, None, None)
            self._capture = None

    def _captured(self, _response: object, after_s: object = None) -> None:
        if isinstance(after_s, int | float):
            self.after_s = float(after_s)
