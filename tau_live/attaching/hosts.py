"""The hosts of this process: which are there, and what the adapter of each is doing.

An adapter attaches right after its host was imported, or at once where that has happened before.
One that does not fit is disabled with one line that names host, version and what was missing; the
host goes on as if tau-live were not there.
"""

import importlib
import sys
import threading
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from importlib import metadata

import wrapt

from tau_live.adapters import Adapter, Detach, InForce
from tau_live.attaching.reloading import Reloads
from tau_live.errors import pass_on, suppress
from tau_live.guard import logger, text_of

Load = Callable[[], Adapter]
"""Returns an adapter; imports what holds it."""


NOT_HERE = "tau-live does not run here"
"""Why an adapter does not attach that fits: settings were refused, or children are left alone."""

DETACHED = "detached"
"""Why an adapter is disabled that was attached."""


class HostState(StrEnum):
    """What an adapter is doing: its host was not imported yet, it works, or it cannot."""

    WAITING = "waiting"
    ATTACHED = "attached"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """How the adapter of one host stands.

    Attributes:
        host: The host's name.
        module: The import that makes it attach.
        state: What it is doing.
        version: The host's version; ``None`` where nobody tells it, or it was not imported.
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
        in_force: What adapters ask for the running system.
        changed: Called with the standing of a host whenever it has changed.
        dormant: Says whether there is no running system for now only; adapters attach then too,
            because they ask for it at every call.
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
        self._loads: dict[str, Load] = {}
        self._homes: dict[str, str] = {}
        self._tried: set[str] = set()
        self._undo: dict[str, Detach] = {}
        self._reloads = Reloads(self._loosened, self._fastened)
        self.detached = False

    def add(self, host: str, module: str, load: Load) -> None:
        """Attach an adapter as soon as ``module`` has been imported; the first of a host counts."""
        with self._lock:
            if host in self._standings:
                return
            self._standings[host] = Standing(host=host, module=module)
            self._loads[host] = load
        wrapt.register_post_import_hook(partial(self._imported, host), module)

    def standings(self) -> list[Standing]:
        """Return how every adapter stands, by host."""
        with self._lock:
            return [self._standings[host] for host in sorted(self._standings)]

    def forked(self) -> None:
        """Take a lock of a forked child's own: a thread that it does not have may hold this one."""
        self._lock = threading.RLock()

    def detach(self) -> None:
        """Put every host back as it was; none attaches again in this process."""
        self._reloads.stop()
        with self._lock:
            self.detached = True
            undo, self._undo = self._undo, {}
            self._tried |= self._standings.keys()
            waiting = [host for host, one in self._standings.items() if host not in undo]
        for host, detach in undo.items():
            problem = DETACHED
            try:
                detach()
            except Exception as error:  # noqa: BLE001  # the border to an adapter
                pass_on(error)
                problem = f"detaching raised {_said(error)}"
            self._stand(host, HostState.DISABLED, problem=problem)
        for host in waiting:
            self._stand(host, HostState.DISABLED, problem=DETACHED)

    def doubt(self, host: str, problem: str | None) -> None:
        """Note what keeps the runs of a host from being seen, or that nothing does any more."""
        if self.detached:
            return
        if problem is not None:
            logger().warning("host_unseen", host=host, problem=problem)
        self._stand(host, self._standings[host].state, problem=problem)

    def _imported(self, host: str, module: object) -> None:
        """Attach; called by the import of the host, which nothing here may make fail."""
        with self._lock:  # not for longer: attaching waits for the locks of imports
            if host in self._tried:
                return
            self._tried.add(host)
        self._tried_to(self._attach_first, host, module)

    def _attach_first(self, host: str, module: object) -> None:
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            importlib.import_module(self._standings[host].module)  # waits for another thread
        self._reloads.watch(host, self._standings[host].module)
        self._attach(host, version_of(host, module))

    def _loosened(self, host: str) -> None:
        """Detach for as long as the host is executed anew: it is to find itself as it was."""
        self._tried_to(self._undo_of, host)

    def _undo_of(self, host: str) -> None:
        self._undo.pop(host, _nothing)()

    def _fastened(self, host: str) -> None:
        """Attach once more, after the host was executed anew."""
        if not self.detached:
            module = sys.modules.get(self._standings[host].module)
            _forget(self._homes.get(host, ""))
            self._tried_to(self._attach, host, version_of(host, module))

    def _tried_to(self, step: Callable[..., None], host: str, *args: object) -> None:
        try:
            step(host, *args)
        except Exception as error:  # noqa: BLE001  # the border to the host
            pass_on(error)
            with suppress(Exception):
                self._disable(host, None, f"attaching raised {_said(error)}")

    def _attach(self, host: str, version: str | None) -> None:
        try:
            adapter = self._loads[host]()
            self._homes[host] = str(getattr(adapter.attach, "__module__", ""))
        except Exception as error:  # noqa: BLE001  # other people's code
            pass_on(error)
            return self._disable(host, version, f"its adapter cannot be imported: {_said(error)}")
        try:
            missing = adapter.probe()
        except Exception as error:  # noqa: BLE001  # an unknown layout
            pass_on(error)
            missing = f"probing raised {_said(error)}"
        if missing is not None:
            return self._disable(host, version, missing)
        if self._in_force() is None and not self._dormant():
            return self._stand(host, HostState.DISABLED, version=version, problem=NOT_HERE)
        try:
            self._undo[host] = adapter.attach(self._in_force)
        except Exception as error:  # noqa: BLE001  # other people's code
            pass_on(error)
            return self._disable(host, version, f"attaching raised {_said(error)}")
        return self._stand(host, HostState.ATTACHED, version=version)

    def _disable(self, host: str, version: str | None, missing: str) -> None:
        missing = " ".join(missing.split())
        logger().warning("adapter_disabled", host=host, version=version, missing=missing)
        self._stand(host, HostState.DISABLED, version=version, problem=missing)

    def _stand(
        self, host: str, state: HostState, *, version: str | None = None, problem: str | None = None
    ) -> None:
        with self._lock:
            before = self._standings[host]
            version = version or before.version
            found = Standing(
                host=host, module=before.module, state=state, version=version, problem=problem
            )
            self._standings[host] = found
        try:
            self._changed(found)
        except Exception as error:  # noqa: BLE001  # a full disk must not look like a bad adapter
            pass_on(error)
            logger().warning("host_not_noted", host=host, error=text_of(error))


def as_data(standing: Standing) -> dict[str, str | None]:
    """Return a standing as JSON data."""
    return asdict(standing)


def built_in(name: str) -> Adapter:
    """Import the adapter ``tau_live_hooks.<name>``.

    Raises:
        TypeError: The module declares none.
        ImportError: It cannot be imported.
    """
    return declared(getattr(importlib.import_module(f"tau_live_hooks.{name}"), "ADAPTER", None))


ADAPTERS = "tau_live_hosts"
"""The group of entry points by which packages declare adapters; each by the import that it is for,
so that none of them is imported before."""


def entered(point: metadata.EntryPoint, off: Collection[str]) -> Adapter:
    """Import the adapter that an entry point names.

    Raises:
        TypeError: It names none.
        ImportError: It cannot be imported, or is among those that are ``off``.
    """
    if point.name in off:
        raise ImportError("excluded by TAU_LIVE_RL_PLUGINS_OFF")
    return declared(point.load())


def declared(adapter: object) -> Adapter:
    """Return what was declared as an adapter.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(adapter, Adapter):
        raise TypeError(f"expected an Adapter, got {type(adapter).__name__}")
    return adapter


def version_of(host: str, module: object) -> str | None:
    """Return a host's version as its package, or else its module, tells it."""
    name = str(getattr(module, "__name__", ""))
    for package in dict.fromkeys([host, name.replace(".", "-"), "-".join(name.split(".")[:2])]):
        with suppress(Exception):  # metadata may be missing or broken
            return metadata.version(package)
    top = sys.modules.get(name.partition(".")[0])
    version = getattr(top, "__version__", None)
    return version if isinstance(version, str) else None


def _forget(module: str) -> None:
    """Let an adapter of ours be imported anew, with its parts.

    They may have taken classes from the host, which has others since it was reloaded.
    """
    if module.startswith("tau_live_hooks."):
        for name in [one for one in sys.modules if one == module or one.startswith(f"{module}_")]:
            del sys.modules[name]


def _nothing() -> None:
    """Put nothing back."""


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {text_of(error)}"
