"""One ``boot()`` behind every door: attaches to each host of this process as it is imported.

Nothing but the switch is looked at while tau-live is off, and nothing here raises into a host.
"""

import _thread  # and nothing that takes long: while tau-live is off, all of this is for nothing
import os

from tau_live.errors import release
from tau_live.process_switch import is_on, log_failure

TYPE_CHECKING = False

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from tau_live.adapters import Adapter
    from tau_live.attaching.hosts import Hosts, Standing
    from tau_live.settings import Settings


class _State:
    """What was booted in this process."""

    hosts: "Hosts | None" = None
    doors: tuple[str, ...] = ()
    booting: bool = False
    lock = _thread.RLock()


WAIT_S = 1.0
"""How long a thread waits at most for another that boots; they may wait for each other."""


def boot(door: str) -> bool:
    """Attach to every known host, now or when it is imported; the same again does nothing more.

    The running system is started by the first host, not before: a process without one costs some
    milliseconds and leaves nothing behind.

    Args:
        door: Who calls, for ``tau-live doctor``: ``autostart``, ``run``, ``auto``, or a host.

    Returns:
        Whether tau-live is switched on here and waits for hosts.
    """
    try:
        return is_on() and not _is_unwanted() and _booted(door)
    except Exception as error:  # noqa: BLE001  # the border to the host
        log_failure("boot_failed", error)
        return False


def _is_unwanted() -> bool:
    if "TAU_LIVE_ATTACHED" not in os.environ:  # most often; what tells more costs an import
        return False
    from tau_live.machine.lineage import is_unwanted_child

    return is_unwanted_child(os.environ)


def booted() -> tuple[tuple[str, ...], "list[Standing]"]:
    """Return which doors have fired in this process, and how its hosts stand."""
    return _State.doors, _State.hosts.standings() if _State.hosts is not None else []


def detach_hosts() -> None:
    """Put every host of this process back as it was."""
    if _State.hosts is not None:
        _State.hosts.detach()


def _booted(door: str) -> bool:
    try:
        if not _State.lock.acquire(timeout=WAIT_S):
            return True  # by another thread
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

    from tau_live.attaching.hosts import Hosts, built_in
    from tau_live.door import in_force, is_detached
    from tau_live_hooks import HOSTS

    _State.booting = True  # what a plugin imports may boot too
    try:
        hosts = Hosts(in_force, changed=_changed, dormant=is_detached)
        if _State.hosts is None:
            os.register_at_fork(after_in_child=_forked)
        _State.hosts = hosts
        for module, (host, trigger) in HOSTS.items():
            hosts.add(host, trigger, partial(built_in, module))
        _add_registered(hosts)
        wrapt.register_post_import_hook(partial(_watch_api, hosts), "opentelemetry.trace")
    finally:
        _State.booting = False


def _watch_api(hosts: "Hosts", api: object) -> None:
    """Notice where agents make spans of OpenTelemetry that nobody takes."""
    from functools import partial

    from tau_live.door import running
    from tau_live.errors import suppress

    def is_native(host: str) -> bool:
        runtime = running()
        return runtime is not None and runtime.hosts.get(host) == "attached"

    with suppress(Exception):  # another layout than was known
        from tau_live_hooks.opentelemetry_unseen import Unseen

        Unseen(api, doubt=partial(hosts.doubt, "opentelemetry"), native=is_native).watch()


def _forked() -> None:
    """Let a forked child wait for none of its parent's threads, which it does not have."""
    _State.lock, _State.booting = _thread.RLock(), False
    if _State.hosts is not None:
        _State.hosts.forked()


def _add_registered(hosts: "Hosts") -> None:
    """Add the adapters of others: by entry points of their own, or registered by plugins.

    The first are not imported yet; plugins are, all of them, to be asked.
    """
    from functools import partial
    from importlib import metadata

    from tau_live.attaching.hosts import ADAPTERS, declared

    points = metadata.entry_points()  # reading them takes longer than anything else here
    for point in points.select(group=ADAPTERS):
        hosts.add(point.name, point.name, partial(_entered, point))
    offered = points.select(group="tau_live")
    if not offered:
        return
    from tau_live.guard import logger
    from tau_live.plugins import Plugins

    plugins = Plugins(off=_settings().plugins_off)
    plugins.load(offered)
    for name, adapter in plugins.adapters().items():
        try:
            found = declared(adapter)
        except TypeError as error:
            logger().warning("adapter_refused", host=name, error=str(error))
        else:
            hosts.add(name, found.module, partial(declared, found))


def _entered(point: "EntryPoint") -> "Adapter":
    from tau_live.attaching.hosts import entered

    return entered(point, _settings().plugins_off)


def _settings() -> "Settings":

    from tau_live.settings import Settings
    from tau_live.settings.places import here

    return Settings.from_env(os.environ, directory=here()).settings


def _changed(standing: "Standing") -> None:
    """Let the snapshot and ``tau-live doctor`` know how a host stands."""
    from tau_live.attaching.attachments import note
    from tau_live.attaching.hosts import DETACHED, NOT_HERE
    from tau_live.door import running
    from tau_live.machine.processes import this_process

    runtime = running()
    if runtime is not None:
        runtime.hosts[standing.host] = standing.state.value
        settings = runtime.settings
    elif standing.problem in {NOT_HERE, DETACHED}:
        return
    else:  # the adapter does not fit, so nothing was started: that is what is to be known
        settings = _settings()
    note(settings.store, this_process(), *booted())
