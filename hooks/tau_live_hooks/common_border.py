"""The border to a host: what of ours fails there is told to the runtime, and goes no further."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tau_live.adapters import InForce
from tau_live.errors import pass_on, suppress
from tau_live.gate import Kind

if TYPE_CHECKING:
    from tau_live.runtime import Runtime


class Border:
    """Takes steps of ours in a host's call path.

    Args:
        in_force: Returns the running system.
    """

    def __init__(self, in_force: InForce) -> None:
        self.in_force = in_force

    def safely(self, step: Callable[..., Any], *args: object, kind: Kind = Kind.COLLECTION) -> Any:
        """Return what a step returns, or ``None`` if it fails.

        A cancellation goes through, and whatever else interrupts us.
        """
        try:
            return step(*args)
        except Exception as error:  # noqa: BLE001  # the border to the host
            pass_on(error)
            with suppress(Exception):
                runtime = self.in_force()
                if runtime is not None:
                    tell(runtime, kind, error)
            return None


def tell(runtime: "Runtime", kind: Kind, error: Exception) -> None:
    """Tell what failed: tau-live, which the gate counts, or the reading of the host's objects.

    An adapter does nothing but read its host and tell the runtime. So what never came as far as
    the runtime is something of the host's that is not as it was, lacks something or raises when it
    is looked at; three such objects in a row must not end the learning of a process.
    """
    pass_on(error)
    unread = not _is_ours(error)
    if unread:
        runtime.count("host_objects_unread")
    runtime.failed(kind, error, unread=unread)


def _is_ours(error: BaseException) -> bool:
    at = error.__traceback__
    while at is not None:
        name = at.tb_frame.f_globals.get("__name__")
        if isinstance(name, str) and name.startswith("tau_live."):
            return True
        at = at.tb_next
    return False
