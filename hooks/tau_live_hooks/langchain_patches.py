"""How names of the host are given something of ours, and given back."""

from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

from tau_live.adapters import Detach
from tau_live.errors import suppress


def replaced(owner: Any, ours: dict[str, Any]) -> Detach:
    """Put what is ours in the place of what the host has; whoever wraps it after us keeps that."""
    kept = {name: vars(owner)[name] for name in ours}
    for name, one in ours.items():
        setattr(owner, name, one)

    def undo() -> None:
        for name, one in ours.items():
            if vars(owner).get(name) is one:
                setattr(owner, name, kept[name])

    return undo


def when_whole(name: str, take: Callable[[Any], None]) -> None:
    """Call ``take`` with a module once it is imported, also if that goes on right now.

    A module of the host's upper floors imports the lowest one first, and with that comes the
    adapter: the module is then there, but has nothing in it yet.
    """
    import wrapt

    def imported(module: Any) -> None:
        spec = getattr(module, "__spec__", None)
        if getattr(spec, "_initializing", False) and type(spec) is ModuleSpec:
            _Watched.watch(spec, module, take)
        else:
            take(module)

    wrapt.register_post_import_hook(imported, name)


class _Watched(ModuleSpec):
    """What is known of a module while it is imported; the import says so when that is over."""

    @classmethod
    def watch(cls, spec: ModuleSpec, module: Any, take: Callable[[Any], None]) -> None:
        """Be told when an import is over."""
        spec.__dict__["_tau_live"] = (module, take)
        spec.__class__ = cls

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "_initializing" or value:
            super().__setattr__(name, value)
            return
        module, take = self.__dict__.pop("_tau_live", (None, None))
        self.__class__ = ModuleSpec  # type: ignore[assignment]  # it is one again
        self._initializing = value
        if take is not None:
            with suppress(Exception):  # the border to the host's import
                take(module)
