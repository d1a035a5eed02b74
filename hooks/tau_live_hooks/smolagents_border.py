"""The border to the host: what of ours fails is told to the runtime and goes no further."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tau_live.adapters import InForce
from tau_live.gate import Kind
from tau_live.runtime import Runtime
from tau_live_hooks.smolagents_wraps import Wraps


class Border:
    """What every step of ours passes.

    Args:
        in_force: Returns the running system.
        wraps: Through which the host is seen.
    """

    def __init__(self, in_force: InForce, wraps: Wraps) -> None:
        self._in_force = in_force
        self._wraps = wraps

    def runtime(self) -> Runtime | None:
        """Return the running system, or ``None`` when all is detached; may raise."""
        return self._in_force() if self._wraps.live else None

    def safely(self, step: Callable[..., Any], *args: Any, kind: Kind = Kind.COLLECTION) -> Any:
        """Return what a step of ours returns, or ``None`` if it fails."""
        try:
            return step(*args)
        except Exception as error:  # noqa: BLE001  # the border to the host
            with suppress(Exception):
                runtime = self._in_force()
                if runtime is not None:
                    runtime.failed(kind, error)
            return None
