"""What an adapter declares: its host, what makes it attach, what it needs, and how it attaches.

An adapter is a module ``tau_live_hooks/<host>.py`` that holds one ``ADAPTER``. It is imported once
its host is, and imports its host in the functions alone. Third parties register theirs by the hook
``register_hosts``: ``register("their-host", adapter=ADAPTER)``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tau_live.runtime import Runtime

InForce = Callable[[], "Runtime | None"]
"""Returns the running system, or ``None`` while there is none, and then the host is on its own.

Ask at every call, and keep no answer: a forked child, and an ``attach`` after a ``detach``, have
another. It takes a microsecond.
"""

Detach = Callable[[], None]
"""Puts everything back as it was; calling it twice is the same as once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """How one host is attached.

    Attributes:
        host: The host's name, as its package index has it where it is a package: ``pydantic-ai``.
        module: The import that makes it attach: ``pydantic_ai``; may be dotted.
        probe: Says what of the host's layout is missing, or ``None`` if all is there; called when
            the host has been imported, and before ``attach``. One that raises is one that failed.
        attach: Wraps the host and returns what undoes it. Called once, and once more whenever a
            module of the host was reloaded or the host imported anew, after what the last one
            did was undone. One that raises has undone what it did; the adapter is then disabled
            with one line in the log.
    """

    host: str
    module: str
    probe: Callable[[], str | None]
    attach: Callable[[InForce], Detach]
