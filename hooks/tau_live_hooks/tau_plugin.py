"""Makes the reference host known to ``tau-live ingest``."""

from collections.abc import Callable

from tau_live.hookspecs import Register, Translator, hookimpl


@hookimpl
def register_hosts(register: Register) -> None:
    """Register ``tau``."""
    register("tau", _translator)


def _translator(stream: str, clock: Callable[[], float]) -> Translator:
    from tau_live_hooks.tau import TauStream  # a host's process never needs it

    return TauStream(stream, clock=clock)
