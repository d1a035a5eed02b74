"""The changes of an attachment to its host, and how they are undone; knows no host."""

import threading
import weakref
from collections.abc import Callable
from functools import partial
from importlib.machinery import ModuleSpec
from typing import Any

import wrapt

from tau_live.core.errors import suppress
from tau_live.runtime.adapters import Detach, InForce

Wrapper = Callable[[Callable[..., Any], Any, Any, Any], Any]
"""Gets the wrapped function, the object it is bound to, and the arguments of a call."""

MARK = "_self_tau_live"
"""A wrapper's attribute with its ``Patches``; ``wrapt`` keeps such names on the wrapper itself."""


class Patches:
    """The changes that one attachment makes to its host, undone together; also if attaching raises.

    Others may wrap what is wrapped here. Their wrapper stays when ours is undone, with ours inside,
    which must then do nothing.

    Attributes:
        live: Whether the changes are in place.
    """

    def __init__(self) -> None:
        self.live = True
        self._lock = threading.RLock()
        self._undo: list[Detach] = []

    def __enter__(self) -> "Patches":
        return self

    def __exit__(self, _kind: object, error: object, _traceback: object) -> None:
        if error is not None:
            self.undo()

    def while_live(self, in_force: InForce) -> InForce:
        """Return an ``in_force`` that answers ``None`` once all is undone."""
        return lambda: in_force() if self.live else None

    def wrap(self, owner: Any, name: str, wrapper: Wrapper, *, again: bool = False) -> None:
        """Wrap an attribute of a class or a module.

        Args:
            owner: The class or module that has it itself; it is not kept alive.
            name: The attribute's name.
            wrapper: Called in its place.
            again: Whether to wrap it even where another live attachment has wrapped it.
        """
        with self._lock:
            original = vars(owner)[name]
            other = getattr(original, MARK, None)
            is_wrapped = isinstance(other, Patches) and other.live
            if not self.live or (is_wrapped and not again):
                return
            ours = wrapt.FunctionWrapper(original, wrapper)
            setattr(ours, MARK, self)
            setattr(owner, name, ours)
            self._undo.append(partial(_restore, weakref.ref(owner), name, original, ours))

    def wrap_where_defined(self, kind: type, name: str, wrapper: Wrapper) -> None:
        """Wrap a method in the class that defines it for objects of this kind."""
        owner = next((base for base in kind.__mro__ if name in vars(base)), None)
        if owner is not None:
            self.wrap(owner, name, wrapper)

    def when(self, module: str, change: Callable[[Any], None]) -> None:
        """Call ``change`` with a module once it is imported, unless all is undone by then."""

        def on_import(imported_module: Any) -> None:
            with suppress(Exception):  # the border to the host's import
                if self.live:
                    change(imported_module)

        when_imported(module, on_import)

    def add(self, undo: Detach) -> None:
        """Undo something else too."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Put everything back, the last change first; nothing the second time."""
        with self._lock:
            self.live = False
            undos, self._undo = self._undo, []
        for undo in reversed(undos):
            undo()


def _restore(owner: "weakref.ref[Any]", name: str, original: object, ours: object) -> None:
    """Put back what was there, unless somebody has wrapped it after us."""
    target = owner()
    present = None if target is None else vars(target).get(name)
    if present is ours or getattr(present, "_self_parent", None) is ours:  # taken from it and back
        setattr(target, name, original)


def when_imported(name: str, change: Callable[[Any], None]) -> None:
    """Call ``change`` with a module once it is imported in full, also if that is under way.

    One of the host's upper modules imports the lowest one first, and that attaches the adapter:
    the upper module then exists already, but is still empty.
    """

    def on_import(module: Any) -> None:
        spec = getattr(module, "__spec__", None)
        if getattr(spec, "_initializing", False) and type(spec) is ModuleSpec:
            _WatchedSpec.watch(spec, module, change)
        else:
            change(module)

    wrapt.register_post_import_hook(on_import, name)


class _WatchedSpec(ModuleSpec):
    """The spec of a module while it is imported, which notices the end of the import."""

    @classmethod
    def watch(cls, spec: ModuleSpec, module: Any, change: Callable[[Any], None]) -> None:
        """Call ``change`` with the module at the end of its import."""
        spec.__dict__["_tau_live"] = (module, change)
        spec.__class__ = cls

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "_initializing" or value:
            super().__setattr__(name, value)
            return
        module, change = self.__dict__.pop("_tau_live", (None, None))
        self.__class__ = ModuleSpec  # type: ignore[assignment]  # it is one again
        self._initializing = value
        if change is not None:
            with suppress(Exception):  # the border to the host's import
                change(module)
