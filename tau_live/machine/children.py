"""Processes that are started inside a run learn which run it was, so that theirs are linked to it.

A child inherits the environment, and with it the door through which its parent was attached. What
differs from child to child is the run, so the environment of each is told it when it starts. A
worker that is older than the run, such as a pool's, is told it with each task.
"""

import os
import shlex
from collections.abc import Callable, Mapping, MutableMapping
from functools import wraps
from typing import Any

import wrapt

from tau_live.errors import suppress
from tau_live.machine.lineage import ATTACHED, PARENT, Link, carried
from tau_live.switch import switched_on

Inside = Callable[[], Link | None]
"""Returns the innermost run of the calling thread or task."""

_ENV_PLACE = 10
"""Where ``subprocess.Popen`` takes the environment by its place."""

_SPAWN_ENV_PLACE = 2
"""Where ``os.posix_spawn`` and ``os.execve`` do."""

ADOPT = "import os; [os.environ.update({n: v}) if v else os.environ.pop(n, 0) for n, v in {told!r}]"
"""What a worker executes before anything else: it may be of a Python without tau-live."""

TAKE = (
    "(__import__('importlib.util', fromlist=['util']).find_spec('tau_live') and "
    "__import__('tau_live.tasked', fromlist=['begin']).begin(link, "
    "__import__('os').environ), work)[1]"
)
"""What a worker evaluates to get what it is to do: that itself, after it was told the run."""


class _State:
    """Whether this process is wrapped; wrapping twice would link twice."""

    done: bool = False


class Told:
    """Tells a process the run inside which it is started, when it reads this from a pickle."""

    def __init__(self, told: Mapping[str, str]) -> None:
        self._told = told

    def __reduce__(self) -> tuple[Any, ...]:
        return exec, (ADOPT.replace("{told!r}", repr([*self._told.items()])),)


class Task:
    """What a worker is to do; what it reads from a pickle is that itself, as it was given.

    Nothing stands between it and its caller, so no line is added to what its errors tell.
    """

    def __init__(self, work: Callable[..., Any], link: str) -> None:
        self._work = work
        self._link = link

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Do it in this process, where somebody hands it over without a pickle."""
        return self._work(*args, **kwargs)

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, (TAKE, {"work": self._work, "link": self._link})


def link_children(
    inside: Inside, environ: MutableMapping[str, str], *, wanted: bool = True
) -> None:
    """Tell the processes that this one starts the run they begin in.

    Those of ``subprocess`` and with it ``asyncio`` and ``os.popen``, of ``os.system``,
    ``os.posix_spawn``, ``os.spawn...`` and ``os.exec...``, and the workers and tasks of
    ``multiprocessing`` and ``concurrent.futures``. Once in a process; what the wrappers cannot do
    leaves the call as it was.

    Args:
        inside: Asked whenever a process is started.
        environ: What children inherit.
        wanted: Whether children are attached; else workers only learn that they are not.
    """
    if _State.done:
        return
    _State.done = True
    _wrap("multiprocessing.spawn", "get_preparation_data", _prepared(inside, environ))
    if not wanted:
        return
    _wrap("subprocess", "Popen.__init__", _started(inside, environ))
    for method in ("apply_async", "_map_async", "imap", "imap_unordered"):
        _wrap("multiprocessing.pool", f"Pool.{method}", _tasked(inside, environ))
    _wrap("concurrent.futures.process", "ProcessPoolExecutor.submit", _tasked(inside, environ))
    _replace("system", _commanded(inside))
    _replace("execv", _executed(inside, environ))
    for name in ("posix_spawn", "posix_spawnp", "execve"):
        _replace(name, _given(inside, environ))


def _started(inside: Inside, environ: Mapping[str, str]) -> Callable[..., Any]:
    def started(
        wrapped: Callable[..., Any], _: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:  # noqa: ANN401  # whatever the host's call returns
        with suppress(Exception):
            link = inside()
            if link is not None and len(args) <= _ENV_PLACE:
                kwargs = {**kwargs, "env": _linked(kwargs.get("env"), environ, link)}
        return wrapped(*args, **kwargs)

    return started


def _prepared(inside: Inside, environ: Mapping[str, str]) -> Callable[..., Any]:
    """Tell a worker by what it is prepared with; a fork server is older than the run."""

    def prepared(
        wrapped: Callable[..., Any], _: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:  # noqa: ANN401  # whatever the host's call returns
        data = wrapped(*args, **kwargs)
        with suppress(Exception):
            own = {name: environ.get(name, "") for name in (PARENT, ATTACHED)}
            link = inside()
            data["tau_live"] = Told({**own, PARENT: carried(link)} if link else own)
        return data

    return prepared


def _tasked(inside: Inside, environ: Mapping[str, str]) -> Callable[..., Any]:
    def tasked(
        wrapped: Callable[..., Any], pool: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:  # noqa: ANN401  # whatever the host's call returns
        with suppress(Exception):
            if args and type(pool).__name__ != "ThreadPool":  # whose tasks stay here
                link = inside()
                told = carried(link) if link else environ.get(PARENT, "")
                args = (Task(args[0], told), *args[1:])
        return wrapped(*args, **kwargs)

    return tasked


def _commanded(inside: Inside) -> Callable[..., Callable[..., Any]]:
    """Tell a shell in its command: the environment is everybody's while the command runs."""

    def of(original: Callable[..., Any]) -> Callable[..., Any]:
        def system(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            with suppress(Exception):
                link = inside()
                if link is not None and len(args) == 1 and isinstance(args[0], str):
                    args = (f"export {PARENT}={shlex.quote(carried(link))}; {args[0]}",)
            return original(*args, **kwargs)

        return system

    return of


def _executed(
    inside: Inside, environ: MutableMapping[str, str]
) -> Callable[..., Callable[..., Any]]:
    """Tell what takes the place of this process, which shares its environment with nobody."""

    def of(original: Callable[..., Any]) -> Callable[..., Any]:
        def execv(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            before = environ.get(PARENT)
            with suppress(Exception):
                link = inside()
                if link is not None:
                    environ[PARENT] = carried(link)
            try:
                return original(*args, **kwargs)
            finally:  # there was nothing to be executed
                with suppress(Exception):
                    if before is None:
                        environ.pop(PARENT, None)
                    else:
                        environ[PARENT] = before

        return execv

    return of


def _given(inside: Inside, environ: Mapping[str, str]) -> Callable[..., Callable[..., Any]]:
    """Tell what is started with an environment of its own."""

    def of(original: Callable[..., Any]) -> Callable[..., Any]:
        def given(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            with suppress(Exception):
                link = inside()
                if link is not None and len(args) > _SPAWN_ENV_PLACE:
                    linked = _linked(args[_SPAWN_ENV_PLACE], environ, link)
                    args = (*args[:_SPAWN_ENV_PLACE], linked, *args[_SPAWN_ENV_PLACE + 1 :])
                elif link is not None and "env" in kwargs:
                    kwargs = {**kwargs, "env": _linked(kwargs["env"], environ, link)}
            return original(*args, **kwargs)

        return given

    return of


def _wrap(module: str, name: str, wrapper: Callable[..., Any]) -> None:
    def imported(found: Any) -> None:  # noqa: ANN401  # a module
        with suppress(Exception):  # another layout: its children are not linked
            wrapt.wrap_function_wrapper(found, name, wrapper)

    wrapt.register_post_import_hook(imported, module)


def _replace(name: str, of: Callable[..., Callable[..., Any]]) -> None:
    """Replace a function of ``os`` by one that can be pickled, as they all can."""
    original = getattr(os, name, None)
    if original is not None:
        found = wraps(original)(of(original))
        found.__module__, found.__qualname__ = "os", name
        setattr(os, name, found)


def _linked(given: Any, environ: Mapping[str, str], link: Link) -> Any:  # noqa: ANN401  # an environment
    """Return the environment with the run told; not to a child that is given the switch as off."""
    if given is None:
        return {**environ, PARENT: carried(link)}
    return {**given, PARENT: carried(link)} if switched_on(given) else given
