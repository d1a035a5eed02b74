"""One ``boot()`` behind every door: attaches to each host of this process as it is imported.

While tau-live is off, only the switch is read; and nothing here raises into a host.
"""

import _thread  # and nothing slow: while tau-live is off, all of this is for nothing
import os

from tau_live.core.errors import release
from tau_live.core.switch import is_on, log_failure, log_line

TYPE_CHECKING = False

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from tau_live.boot.hosts import Hosts, Standing
    from tau_live.core.settings import Settings
    from tau_live.runtime.adapters import Adapter


class _State:
    """The boot of this process."""

    hosts: "Hosts | None" = None
    doors: tuple[str, ...] = ()
    booting: bool = False
    lock = _thread.RLock()


UNLISTED = "tau-live: no host is listed in the metadata of its package: install tau-live again"
"""Why no host can be attached, such as a package that was copied without its metadata."""

WAIT_S = 1.0
"""The longest wait for another thread that boots; two may wait for each other."""


def boot(door: str) -> bool:
    """Attach to every known host, now or when it is imported; a second call does nothing more.

    The running system is started by the first host, not before: a process without one costs some
    milliseconds and leaves nothing behind.

    Args:
        door: The caller, for ``tau-live doctor``: ``autostart``, ``run``, ``auto``, or a host.

    Returns:
        Whether tau-live is switched on here and waits for hosts.
    """
    try:
        return is_on() and not _is_unwanted() and _boot_once(door)
    except Exception as error:  # noqa: BLE001  # the border to the host
        log_failure("boot_failed", error)
        return False


def _is_unwanted() -> bool:
    if "TAU_LIVE_ATTACHED" not in os.environ:  # the usual case; the full check costs an import
        return False
    from tau_live.core.processes import is_unwanted_child

    return is_unwanted_child(os.environ)


class Instrumentor:
    """Attaches where ``opentelemetry-instrument`` would instrument; it loads this by its name.

    It sets no provider, and imports nothing of OpenTelemetry.
    """

    def instrument(self, **_: object) -> None:
        """Attach to every known host, as every other door does."""
        boot("opentelemetry")

    def uninstrument(self, **_: object) -> None:
        """Put every host back as it was."""
        detach_hosts()


def boot_state() -> tuple[tuple[str, ...], "list[Standing]"]:
    """Return the doors that have fired in this process, and the standings of its hosts."""
    return _State.doors, _State.hosts.standings() if _State.hosts is not None else []


def detach_hosts() -> None:
    """Put every host of this process back as it was."""
    if _State.hosts is not None:
        _State.hosts.detach()


def _boot_once(door: str) -> bool:
    try:
        if not _State.lock.acquire(timeout=WAIT_S):
            return True  # another thread boots
        if door not in _State.doors:
            _State.doors = (*_State.doors, door)
        if not _State.booting and (_State.hosts is None or _State.hosts.detached):
            _boot()
    finally:
        release(_State.lock)
    return True


def _boot() -> None:
    from functools import partial

    import wrapt

    from tau_live.boot.hosts import Hosts
    from tau_live.runtime.api import in_force, is_detached

    _State.booting = True  # the imports of a plugin may boot too
    try:
        hosts = Hosts(in_force, changed=_publish, dormant=is_detached)
        if _State.hosts is None:
            os.register_at_fork(after_in_child=_reset_child)
        _State.hosts = hosts
        _add_installed(hosts)
        wrapt.register_post_import_hook(partial(_watch_api, hosts), "opentelemetry.trace")
    finally:
        _State.booting = False


def _watch_api(hosts: "Hosts", api: object) -> None:
    """Watch for agents' spans of OpenTelemetry that no provider takes."""
    from functools import partial

    from tau_live.core.errors import suppress
    from tau_live.runtime.api import running

    def is_native(host: str) -> bool:
        runtime = running()
        return runtime is not None and runtime.hosts.get(host) == "attached"

    with suppress(Exception):  # another layout than was known
        from tau_live_hooks.opentelemetry import Unseen

        Unseen(api, doubt=partial(hosts.doubt, "opentelemetry"), native=is_native).watch()


def _reset_child() -> None:
    """Give a forked child a new lock, so that it does not wait for a thread of its parent's."""
    _State.lock, _State.booting = _thread.RLock(), False
    if _State.hosts is not None:
        _State.hosts.reset_child()


def _add_installed(hosts: "Hosts") -> None:
    """Add the adapters of all packages: by entry points of their own, or registered by plugins.

    The first are not imported yet; plugins of other packages are, since only they know.
    """
    from functools import partial

    from tau_live.boot.hosts import checked_adapter
    from tau_live.core.entry_points import host_of, read_entry_points

    points = read_entry_points()
    if not points.lists_ours:
        log_line(UNLISTED)
    for point in points.adapters:
        hosts.add(*host_of(point), partial(_load, point))
    plugins = points.foreign_plugins
    if not plugins:
        return
    from tau_live.core.guard import logger
    from tau_live.core.plugins import Plugins

    registry = Plugins(off=_settings().plugins_off)
    registry.load(plugins)
    for name, adapter in registry.adapters().items():
        try:
            known = checked_adapter(adapter)
        except TypeError as error:
            logger().warning("adapter_refused", host=name, error=str(error))
        else:
            hosts.add(name, known.module, partial(checked_adapter, known))


def _load(point: "EntryPoint") -> "Adapter":
    """Import an adapter; invalid settings exclude none."""
    from tau_live.boot.hosts import load_adapter
    from tau_live.core.errors import SettingsError

    try:
        off = _settings().plugins_off
    except SettingsError:  # the running system logs it
        off = ()
    return load_adapter(point, off)


def _settings() -> "Settings":
    from tau_live.core.settings import in_force

    return in_force(os.environ).settings


def _publish(standing: "Standing") -> None:
    """Publish the standing of a host to the snapshot and to ``tau-live doctor``."""
    from tau_live.boot.attachments import note
    from tau_live.boot.hosts import DETACHED, NOT_HERE
    from tau_live.core.processes import this_process
    from tau_live.core.settings import place_paths
    from tau_live.runtime.api import running
    from tau_live.runtime.process import State

    runtime = running()
    if runtime is not None:
        runtime.hosts[standing.host] = standing.state.value
        settings = place_paths(runtime.settings, State.folder)
    elif standing.problem in {NOT_HERE, DETACHED}:
        return
    else:  # the adapter does not fit, so nothing was started: that is worth a record
        settings = _settings()
    note(settings.store, this_process(), *boot_state())
