"""Processes that are started inside a run learn which run it was, so that theirs are linked to it.

A child inherits the environment, and with it the door through which its parent was attached. What
differs from child to child is the run, so the environment of each is told it when it starts.
"""

import threading
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any

import wrapt

from tau_live.lineage import PARENT, Link, carried
from tau_live.switch import switched_on

Inside = Callable[[], Link | None]
"""Returns the innermost run of the calling thread or task."""

_ENV_PLACE = 10
"""Where ``subprocess.Popen`` takes the environment by its place."""


class _State:
    """Whether this process is wrapped; wrapping twice would link twice."""

    done: bool = False
    lock = threading.Lock()


def link_children(inside: Inside, environ: MutableMapping[str, str]) -> None:
    """Tell children of ``subprocess``, ``asyncio`` and spawned workers the run they began in.

    Once in a process; what the wrappers cannot do leaves the call as it was.

    Args:
        inside: Asked whenever a process is started.
        environ: What children inherit.
    """
    if _State.done:
        return
    _State.done = True

    def started(
        wrapped: Callable[..., Any], _: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:  # noqa: ANN401  # whatever the host's call returns
        with suppress(Exception):
            link = inside()
            if link is not None and len(args) <= _ENV_PLACE:
                kwargs = _linked(kwargs, environ, link)
        return wrapped(*args, **kwargs)

    def spawned(
        wrapped: Callable[..., Any], _: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:  # noqa: ANN401
        link = inside()
        if link is None:
            return wrapped(*args, **kwargs)
        with _State.lock:
            before = environ.get(PARENT)
            environ[PARENT] = carried(link)
            try:
                return wrapped(*args, **kwargs)
            finally:
                if before is None:
                    environ.pop(PARENT, None)
                else:
                    environ[PARENT] = before

    _wrap("subprocess", "Popen.__init__", started)
    _wrap("multiprocessing.popen_spawn_posix", "Popen._launch", spawned)


def _wrap(module: str, name: str, wrapper: Callable[..., Any]) -> None:
    def imported(found: Any) -> None:  # noqa: ANN401  # a module
        with suppress(Exception):  # another layout: its children are not linked
            wrapt.wrap_function_wrapper(found, name, wrapper)

    wrapt.register_post_import_hook(imported, module)


def _linked(kwargs: dict[str, Any], environ: Mapping[str, str], link: Link) -> dict[str, Any]:
    """Return the arguments with the run told; not to a child that is given the switch as off."""
    given = kwargs.get("env")
    if given is None:
        return {**kwargs, "env": {**environ, PARENT: carried(link)}}
    if not switched_on(given):
        return kwargs
    return {**kwargs, "env": {**given, PARENT: carried(link)}}
