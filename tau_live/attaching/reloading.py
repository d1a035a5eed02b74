"""When a module of a host is executed once more, by ``importlib.reload`` or a second import.

What was wrapped in it is gone then. ``wrapt`` tells of a module's first import alone.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Around = Callable[[str], None]
"""Takes a host, right before one of its modules is executed once more, or right after it."""


class Reloads:
    """Finds modules of watched hosts as the other finders do, and tells when they are executed.

    Args:
        before: Called while everything still is as it was.
        after: Called whether or not the module could be executed.
    """

    def __init__(self, before: Around, after: Around) -> None:
        self._before = before
        self._after = after
        self._hosts: dict[str, str] = {}
        self._tops: frozenset[str] = frozenset()
        self._busy = threading.local()

    def watch(self, host: str, module: str) -> None:
        """Tell of the second import of a module, and of every reload in its package."""
        self._hosts = {**self._hosts, module: host}
        self._tops = frozenset(map(_top, self._hosts))
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Tell nothing any more."""
        self._hosts, self._tops = {}, frozenset()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return how to execute a watched module; ``None`` for every other one, at once."""
        if target is None and fullname not in self._hosts:
            return None
        if _top(fullname) not in self._tops or getattr(self._busy, "finding", False):
            return None
        self._busy.finding = True  # the other finders may ask all of them
        try:
            spec = _found_by_others(self, fullname, path, target)
        finally:
            self._busy.finding = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            told: Any = _Told(spec.loader, self._hosts_of(fullname), self._before, self._after)
            spec.loader = told
        return spec

    def _hosts_of(self, fullname: str) -> list[str]:
        return [host for module, host in self._hosts.items() if _top(module) == _top(fullname)]


class _Told:
    """A loader that tells when it executes a module, and is gone from it by then."""

    def __init__(self, loader: Any, hosts: Sequence[str], before: Around, after: Around) -> None:  # noqa: ANN401  # any loader
        self._loader = loader
        self._hosts = hosts
        self._before = before
        self._after = after

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # whatever the loader has
        return getattr(self._loader, name)

    def exec_module(self, module: Any) -> None:  # noqa: ANN401  # a module, maybe of a class of its own
        """Execute a module."""
        if getattr(module.__spec__, "loader", None) is self:
            module.__spec__.loader = self._loader
        if getattr(module, "__loader__", None) is self:
            module.__loader__ = self._loader
        for host in self._hosts:
            self._before(host)
        try:
            self._loader.exec_module(module)
        finally:
            for host in self._hosts:
                self._after(host)


def _found_by_others(
    own: object, fullname: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    for finder in [*sys.meta_path]:
        find = getattr(finder, "find_spec", None)
        if find is None or finder is own:
            continue
        spec: ModuleSpec | None = find(fullname, path, target)
        if spec is not None:
            return spec
    return None


def _top(module: str) -> str:
    return module.partition(".")[0]
