"""The hosts of this process, and the state of each host's adapter.

An adapter attaches right after its host was imported, or at once where that has happened before.
One that does not fit is disabled with one line that names host, version and what was missing; the
host goes on as if tau-live were not there.

A reload of a host drops the wrappers in it, and ``wrapt`` reports a module's first import alone;
so ``Reloads`` watches for the others.
"""

import importlib
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from importlib import metadata
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import wrapt

from tau_live.core.entry_points import host_of
from tau_live.core.errors import pass_on, suppress
from tau_live.core.guard import logger, text_of
from tau_live.runtime.adapters import Adapter, Detach, InForce


class Reloads:
    """A finder that finds modules of watched hosts as the others do, and notices their execution.

    Args:
        before: Called with a host right before one of its modules is executed once more.
        after: Called with it right after that, whether or not the module could be executed.
    """

    def __init__(self, before: Callable[[str], None], after: Callable[[str], None]) -> None:
        self._before = before
        self._after = after
        self._hosts: dict[str, str] = {}
        self._tops: frozenset[str] = frozenset()
        self._busy = threading.local()

    def watch(self, host: str, module: str) -> None:
        """Watch for the second import of a module, and for every reload in its package."""
        self._hosts = {**self._hosts, module: host}
        self._tops = frozenset(map(_top, self._hosts))
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def stop(self) -> None:
        """Stop watching."""
        self._hosts, self._tops = {}, frozenset()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the spec of a watched module; ``None`` for every other one, at once."""
        if target is None and fullname not in self._hosts:
            return None
        if _top(fullname) not in self._tops or getattr(self._busy, "finding", False):
            return None
        self._busy.finding = True  # the other finders may ask all of them
        try:
            spec = _spec_of_others(self, fullname, path, target)
        finally:
            self._busy.finding = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            top = _top(fullname)
            hosts = [host for module, host in self._hosts.items() if _top(module) == top]
            loader: Any = _WatchedLoader(spec.loader, hosts, self._before, self._after)
            spec.loader = loader
        return spec


class _WatchedLoader:
    """A loader that reports the execution of a module, and removes itself from it before."""

    def __init__(
        self,
        loader: Any,  # noqa: ANN401  # any loader
        hosts: Sequence[str],
        before: Callable[[str], None],
        after: Callable[[str], None],
    ) -> None:
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


def _spec_of_others(
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


NOT_HERE = "tau-live does not run here"
"""Why a fitting adapter does not attach: settings were refused, or children are left alone."""

DETACHED = "detached"
"""Why an adapter is disabled that was attached before."""


class HostState(StrEnum):
    """The state of an adapter: its host was not imported yet, it works, or it cannot."""

    WAITING = "waiting"
    ATTACHED = "attached"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The standing of one host's adapter.

    Attributes:
        host: The host's name.
        module: The import that makes it attach.
        state: Its state.
        version: The host's version; ``None`` if unknown, or not imported yet.
        problem: Why it is disabled, or sees no runs all the same; ``None`` if neither.
    """

    host: str
    module: str
    state: HostState = HostState.WAITING
    version: str | None = None
    problem: str | None = None


class Hosts:
    """The adapters of this process, by host.

    Args:
        in_force: Returns the running system to adapters.
        changed: Called with the standing of a host whenever it has changed.
        dormant: Returns whether the running system is absent for now only; adapters attach then
            too, because they ask for it at every call.
    """

    def __init__(
        self,
        in_force: InForce,
        *,
        changed: Callable[[Standing], None],
        dormant: Callable[[], bool] = lambda: False,
    ) -> None:
        self._in_force = in_force
        self._changed = changed
        self._dormant = dormant
        self._lock = threading.RLock()
        self._standings: dict[str, Standing] = {}
        self._loads: dict[str, Callable[[], Adapter]] = {}
        self._homes: dict[str, str] = {}
        self._attempted: set[str] = set()
        self._undo: dict[str, Detach] = {}
        self._reloads = Reloads(self._before_reload, self._after_reload)
        self.detached = False

    def add(self, host: str, module: str, load: Callable[[], Adapter]) -> None:
        """Attach an adapter as soon as ``module`` has been imported; the first of a host counts."""
        with self._lock:
            if host in self._standings:
                return
            self._standings[host] = Standing(host=host, module=module)
            self._loads[host] = load
        wrapt.register_post_import_hook(partial(self._on_import, host), module)

    def standings(self) -> list[Standing]:
        """Return the standing of every adapter, sorted by host."""
        with self._lock:
            return [self._standings[host] for host in sorted(self._standings)]

    def reset_child(self) -> None:
        """Give a forked child a new lock: a thread of its parent's may hold this one."""
        self._lock = threading.RLock()

    def detach(self) -> None:
        """Put every host back as it was; none attaches again in this process."""
        self._reloads.stop()
        with self._lock:
            self.detached = True
            undo, self._undo = self._undo, {}
            self._attempted |= self._standings.keys()
            waiting = [host for host, name in self._standings.items() if host not in undo]
        for host, detach in undo.items():
            problem = DETACHED
            try:
                detach()
            except Exception as error:  # noqa: BLE001  # the border to an adapter
                pass_on(error)
                problem = f"detaching raised {_describe(error)}"
            self._update(host, HostState.DISABLED, problem=problem)
        for host in waiting:
            self._update(host, HostState.DISABLED, problem=DETACHED)

    def doubt(self, host: str, problem: str | None) -> None:
        """Note why the runs of a host are not seen, or with ``None`` that they are again."""
        if self.detached:
            return
        if problem is not None:
            logger().warning("host_unseen", host=host, problem=problem)
        self._update(host, self._standings[host].state, problem=problem)

    def _on_import(self, host: str, module: object) -> None:
        """Attach; called by the import of the host, which nothing here may make fail."""
        with self._lock:  # no longer than this: attaching waits for the locks of imports
            if host in self._attempted:
                return
            self._attempted.add(host)
        self._guard(self._attach_first, host, module)

    def _attach_first(self, host: str, module: object) -> None:
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            importlib.import_module(self._standings[host].module)  # waits for another thread
        self._reloads.watch(host, self._standings[host].module)
        self._attach(host, version_of(host, module))

    def _before_reload(self, host: str) -> None:
        """Detach while the host is executed anew, so that it finds itself unpatched."""
        undo = self._undo.pop(host, None)
        if undo is not None:
            self._guard(lambda _host: undo(), host)

    def _after_reload(self, host: str) -> None:
        """Attach once more, after the host was executed anew."""
        if not self.detached:
            module = sys.modules.get(self._standings[host].module)
            _drop_modules(self._homes.get(host, ""))
            self._guard(self._attach, host, version_of(host, module))

    def _guard(self, step: Callable[..., None], host: str, *args: object) -> None:
        try:
            step(host, *args)
        except Exception as error:  # noqa: BLE001  # the border to the host
            pass_on(error)
            with suppress(Exception):
                self._disable(host, None, f"attaching raised {_describe(error)}")

    def _attach(self, host: str, version: str | None) -> None:
        try:
            adapter = self._loads[host]()
            self._homes[host] = str(getattr(adapter.attach, "__module__", ""))
        except Exception as error:  # noqa: BLE001  # other people's code
            pass_on(error)
            return self._disable(
                host, version, f"its adapter cannot be imported: {_describe(error)}"
            )
        try:
            missing = adapter.probe()
        except Exception as error:  # noqa: BLE001  # an unknown layout
            pass_on(error)
            missing = f"probing raised {_describe(error)}"
        if missing is not None:
            return self._disable(host, version, missing)
        if self._in_force() is None and not self._dormant():
            return self._update(host, HostState.DISABLED, version=version, problem=NOT_HERE)
        try:
            self._undo[host] = adapter.attach(self._in_force)
        except Exception as error:  # noqa: BLE001  # other people's code
            pass_on(error)
            return self._disable(host, version, f"attaching raised {_describe(error)}")
        return self._update(host, HostState.ATTACHED, version=version)

    def _disable(self, host: str, version: str | None, missing: str) -> None:
        missing = " ".join(missing.split())
        logger().warning("adapter_disabled", host=host, version=version, missing=missing)
        self._update(host, HostState.DISABLED, version=version, problem=missing)

    def _update(
        self, host: str, state: HostState, *, version: str | None = None, problem: str | None = None
    ) -> None:
        with self._lock:
            before = self._standings[host]
            standing = self._standings[host] = replace(
                before, state=state, version=version or before.version, problem=problem
            )
        try:
            self._changed(standing)
        except Exception as error:  # noqa: BLE001  # a full disk must not look like a bad adapter
            pass_on(error)
            logger().warning("host_not_noted", host=host, error=text_of(error))


def load_adapter(point: metadata.EntryPoint, off: Collection[str]) -> Adapter:
    """Import the adapter that an entry point names.

    Raises:
        TypeError: It does not name one.
        ImportError: It cannot be imported, or its host is among those that are ``off``.
    """
    if host_of(point)[0] in off:
        raise ImportError("excluded by TAU_LIVE_RL_PLUGINS_OFF")
    return checked_adapter(point.load())


def checked_adapter(adapter: object) -> Adapter:
    """Return a declared adapter.

    Raises:
        TypeError: It is not an ``Adapter``.
    """
    if not isinstance(adapter, Adapter):
        raise TypeError(f"expected an Adapter, got {type(adapter).__name__}")
    return adapter


def version_of(host: str, module: object) -> str | None:
    """Return a host's version, from its package or else from its module."""
    name = str(getattr(module, "__name__", ""))
    for package in dict.fromkeys([host, name.replace(".", "-"), "-".join(name.split(".")[:2])]):
        with suppress(Exception):  # metadata may be missing or broken
            return metadata.version(package)
    top = sys.modules.get(name.partition(".")[0])
    version = getattr(top, "__version__", None)
    return version if isinstance(version, str) else None


def _drop_modules(module: str) -> None:
    """Let an adapter of ours be imported anew, with its parts.

    They may hold classes of the host, which has others since it was reloaded.
    """
    if module.startswith("tau_live_hooks."):
        for name in [
            known for known in sys.modules if known == module or known.startswith(f"{module}_")
        ]:
            del sys.modules[name]


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {text_of(error)}"
