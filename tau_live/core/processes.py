"""The identity of processes, whether they live, and the run inside which each was started."""

import functools
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tau_live.core.errors import pass_on, suppress
from tau_live.core.files import is_running
from tau_live.core.switch import switched_on

if TYPE_CHECKING:  # a kill loads no events
    from tau_live.core.events import Event

PROCESSES = "process:"
"""Prefix of the name of the lease that every attached process holds."""

HOUSE = "house"
"""The lease of the process that keeps house for all that share a store between machines."""

_DEAD = frozenset({b"Z", b"X", b"x"})  # a zombie is dead, and only not reaped yet


def this_process() -> str:
    """Return a unique name of this process.

    It holds the machine, the pid and, where the kernel reports it, the start time, because pids are
    reused.
    """
    return _name_of(os.getpid())


@functools.cache  # each worker asks three times for each of its items
def _name_of(pid: int) -> str:
    return f"{_machine()}:{pid}:{_start_time(pid) or 'unknown'}"


if hasattr(os, "register_at_fork"):  # a child in another namespace may have its parent's pid
    os.register_at_fork(after_in_child=_name_of.cache_clear)


def is_alive(owner: str) -> bool | None:
    """Return whether a process that ``this_process`` named lives; ``None`` on another machine."""
    try:
        machine, pid, born = owner.rsplit(":", 2)
        number = int(pid)
    except ValueError as error:
        pass_on(error)
        return False
    if machine != _machine():
        return None
    if number < 1:
        return False  # these name groups of processes
    if not is_running(number):
        return False
    status = _status(number)
    if status and status[0] in _DEAD:
        return False
    now = _start_time(number)
    return now is None or born in {now, "unknown"}


def machine_of(owner: str) -> str:
    """Return the machine, or the container, of a process that ``this_process`` named."""
    return owner.rsplit(":", 2)[0]


def _machine() -> str:
    """Return the name of the pid namespace: a machine, or a container on one."""
    try:
        space = Path("/proc/self/ns/pid").readlink().name
    except OSError as error:
        pass_on(error)
        return socket.gethostname()
    return f"{socket.gethostname()}/{space.removeprefix('pid:')}"


def _start_time(pid: int) -> str | None:
    """Return when a process started, in ticks of one boot; ``None`` where it is unknown."""
    status = _status(pid)
    if len(status) < 20:
        return None
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError as error:
        pass_on(error)
        boot = ""
    return f"{status[19].decode()}-{boot[:8]}"


def _status(pid: int) -> list[bytes]:
    """Return the kernel's status fields of a process, from its state on; empty without any."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError as error:
        pass_on(error)
        return []
    return status[status.rfind(b")") + 2 :].split()


E = TypeVar("E", bound="Event")

PARENT = "TAU_LIVE_PARENT"
"""Variable of a child that is started inside a run: ``host:run_id`` of that run."""

ATTACHED = "TAU_LIVE_ATTACHED"
"""Variable with the name of an attached process whose children are not to be attached."""

FOLDER = "TAU_LIVE_FOLDER"
"""Variable with the folder to which relative paths of children refer, as those of an attached
process do, wherever either of them goes."""

_LONGEST = 2_000


class Link(NamedTuple):
    """A run as other processes know it.

    Attributes:
        host: The framework that runs it.
        run_id: The host's own key of it.
    """

    host: str
    run_id: str


def parent_of(environ: Mapping[str, str]) -> Link | None:
    """Return the run inside which this process was started, if any."""
    host, _, run_id = environ.get(PARENT, "").partition(":")
    if not host or not run_id or len(host) + len(run_id) > _LONGEST:
        return None
    return Link(host, run_id)


def link_text(link: Link) -> str:
    """Return a run as text for the environment, which ``parent_of`` reads."""
    return f"{link.host}:{link.run_id}"


def linked_environ(
    environ: Mapping[str, str], link: Link, *, own: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a child inside a run; unchanged where its switch is off.

    Args:
        environ: The environment that the child would have.
        link: The run.
        own: The environment of this process.
    """
    if not switched_on(environ):
        return {**environ}
    folder = {FOLDER: own[FOLDER]} if FOLDER in own else {}
    return {**environ, **folder, PARENT: link_text(link)}


def link_run(event: E, link: Link | None) -> E:
    """Return an event; the start of a run without a parent gets the run of ``link`` as parent."""
    if link is None:
        return event
    from msgspec.structs import replace

    from tau_live.core.events import RunStart

    if not isinstance(event, RunStart) or event.parent_run_id is not None:
        return event
    if link == (event.host, event.run_id):  # another attempt at that run is not inside it
        return event
    host = None if link.host == event.host else link.host
    return replace(event, parent_run_id=link.run_id, parent_host=host)


def is_unwanted_child(environ: Mapping[str, str]) -> bool:
    """Return whether a process that does not want its children attached started this one."""
    attached = environ.get(ATTACHED)
    return bool(attached) and attached != this_process()


_ENV_INDEX = 10
"""The index of ``env`` among the positional arguments of ``subprocess.Popen``."""


class _State:
    """Whether ``subprocess`` is wrapped; wrapping twice would link twice."""

    done: bool = False


def link_children(inside: Callable[[], Link | None], environ: Mapping[str, str]) -> None:
    """Link the children that ``subprocess`` starts, and with it ``asyncio`` and ``os.popen``.

    Once per process.

    Args:
        inside: Returns the innermost run of the calling thread or task.
        environ: The environment that children inherit.
    """
    import wrapt  # not where a command needs processes alone

    if not _State.done:
        _State.done = True
        wrapt.register_post_import_hook(lambda module: _wrap(module, inside, environ), "subprocess")


def _wrap(module: Any, inside: Callable[[], Link | None], environ: Mapping[str, str]) -> None:  # noqa: ANN401  # a module
    import wrapt

    def start_child(
        wrapped: Callable[..., Any], _: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:  # noqa: ANN401  # whatever the host's call returns
        with suppress(Exception):
            link = inside()
            if link is not None and len(args) <= _ENV_INDEX:
                env = kwargs.get("env")
                linked = linked_environ(environ if env is None else env, link, own=environ)
                kwargs = {**kwargs, "env": linked}
        return wrapped(*args, **kwargs)

    with suppress(Exception):  # an unknown layout: children are not linked
        wrapt.wrap_function_wrapper(module, "Popen.__init__", start_child)
