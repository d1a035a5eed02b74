"""One ``boot()`` behind every door: attaches to each host of this process as it is imported.

Nothing but the switch is looked at while tau-live is off, and nothing here raises into a host.
"""

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from tau_live.switching import is_on

if TYPE_CHECKING:
    from tau_live.hosts import Hosts, Standing


class _State:
    """What was booted in this process."""

    hosts: "Hosts | None" = None
    doors: tuple[str, ...] = ()
    booting: bool = False


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
        return is_on() and _booted(door)
    except Exception as error:  # noqa: BLE001  # the border to the host
        with suppress(Exception):
            import logging

            logging.getLogger("tau_live").warning(
                "boot_failed: %s: %s", type(error).__name__, error
            )
        return False


def booted() -> tuple[tuple[str, ...], "list[Standing]"]:
    """Return which doors have fired in this process, and how its hosts stand."""
    return _State.doors, _State.hosts.standings() if _State.hosts is not None else []


def detach_hosts() -> None:
    """Put every host of this process back as it was."""
    if _State.hosts is not None:
        _State.hosts.detach()


def _booted(door: str) -> bool:
    if door not in _State.doors:
        _State.doors = (*_State.doors, door)
    if _State.hosts is not None or _State.booting:
        return True
    from functools import partial

    from tau_live.door import in_force
    from tau_live.hosts import Hosts, built_in
    from tau_live_hooks import HOSTS

    _State.booting = True  # what a plugin imports may boot too
    try:
        hosts = Hosts(in_force, changed=_changed)
        _State.hosts = hosts
        for module, (host, trigger) in HOSTS.items():
            hosts.add(host, trigger, partial(built_in, module))
        _add_registered(hosts)
    finally:
        _State.booting = False
    return True


def _add_registered(hosts: "Hosts") -> None:
    """Add the adapters that plugins register; without any plugin, nothing is imported for it."""
    from importlib import metadata

    if not metadata.entry_points(group="tau_live"):
        return
    from functools import partial
    from pathlib import Path

    from tau_live.guard import logger
    from tau_live.hosts import declared
    from tau_live.plugins import Plugins
    from tau_live.settings import Settings

    settings = Settings.from_env(os.environ, directory=Path.cwd()).settings
    plugins = Plugins(off=settings.plugins_off)
    plugins.load()
    for name, adapter in plugins.adapters().items():
        try:
            found = declared(adapter)
        except TypeError as error:
            logger().warning("adapter_refused", host=name, error=str(error))
        else:
            hosts.add(name, found.module, partial(declared, found))


def _changed(standing: "Standing") -> None:
    """Let the snapshot and ``tau-live doctor`` know how a host stands."""
    from tau_live.door import running

    runtime = running()
    if runtime is None:
        return
    runtime.hosts[standing.host] = standing.state.value
    from tau_live.attachments import note
    from tau_live.processes import this_process

    note(runtime.settings.store, this_process(), *booted())
