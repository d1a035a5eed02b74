"""The border to a host: what of ours fails there is told to the runtime, and goes no further."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tau_live.adapters import InForce
from tau_live.gate import Kind


class Border:
    """Takes steps of ours in a host's call path.

    Args:
        in_force: Returns the running system.
    """

    def __init__(self, in_force: InForce) -> None:
        self.in_force = in_force

    def safely(self, step: Callable[..., Any], *args: object, kind: Kind = Kind.COLLECTION) -> Any:
        """Return what a step returns, or ``None`` if it fails; a cancellation goes through."""
        try:
            return step(*args)
        except Exception as error:  # noqa: BLE001  # the border to the host
            with suppress(Exception):
                runtime = self.in_force()
                if runtime is not None:
                    runtime.failed(kind, error)
            return None
