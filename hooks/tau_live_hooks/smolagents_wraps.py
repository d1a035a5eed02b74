"""Wraps of the host's classes that can be taken back, each once, whoever else wraps them too."""

import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import wrapt

Wrapper = Callable[[Callable[..., Any], Any, tuple[Any, ...], dict[str, Any]], Any]
"""Gets the wrapped function, the object it is bound to, and the arguments of a call."""


class _Put(NamedTuple):
    """One wrap: on what, under which name, what was there and what is there now."""

    owner: "weakref.ref[Any]"
    name: str
    original: Any
    ours: Any


class Wraps:
    """The wraps of one attachment.

    Attributes:
        live: Whether it is attached. Others may have wrapped what we wrapped; then ours stays
            inside theirs when it is detached, and must do nothing any more.
    """

    def __init__(self) -> None:
        self.live = True
        self._lock = threading.Lock()
        self._put: list[_Put] = []

    def put(self, owner: Any, name: str, wrapper: Wrapper) -> None:
        """Wrap what stands under a name in a class or module, unless one of us has done so."""
        with self._lock:
            original = vars(owner)[name]
            inside = getattr(original, "_self_wraps", None)
            if not self.live or (isinstance(inside, Wraps) and inside.live):
                return
            ours: Any = wrapt.FunctionWrapper(original, wrapper)
            ours._self_wraps = self  # noqa: SLF001  # so named, it is kept by the wrapper
            setattr(owner, name, ours)
            self._put.append(_Put(weakref.ref(owner), name, original, ours))

    def put_where_defined(self, kind: type, name: str, wrapper: Wrapper) -> None:
        """Wrap a method in the class that an object of this kind has it from."""
        owner = next((base for base in kind.__mro__ if name in vars(base)), None)
        if owner is not None:
            self.put(owner, name, wrapper)

    def undo(self) -> None:
        """Put everything back where nobody has wrapped it after us; nothing the second time."""
        with self._lock:
            self.live = False
            undone, self._put = self._put, []
        for owner, name, original, ours in reversed(undone):
            found = owner()
            if found is not None and _is(vars(found).get(name), ours):
                setattr(found, name, original)


def _is(found: Any, ours: Any) -> bool:
    """Say whether this is ours, also where others took it from its class and put it back."""
    return found is ours or getattr(found, "_self_parent", None) is ours
