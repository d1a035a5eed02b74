"""Passes the current run to child processes, by their environment."""

from collections.abc import Callable, Mapping
from typing import Any

import wrapt

from tau_live.core.errors import suppress
from tau_live.core.processes import Link, linked_environ

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
    if not _State.done:
        _State.done = True
        wrapt.register_post_import_hook(lambda module: _wrap(module, inside, environ), "subprocess")


def _wrap(module: Any, inside: Callable[[], Link | None], environ: Mapping[str, str]) -> None:  # noqa: ANN401  # a module
    def start_child(
        wrapped: Callable[..., Any], _: object, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:  # noqa: ANN401  # whatever the host's call returns
        with suppress(Exception):
            link = inside()
            if link is not None and len(args) <= _ENV_INDEX:
                env = kwargs.get("env")
                kwargs = {**kwargs, "env": linked_environ(environ if env is None else env, link)}
        return wrapped(*args, **kwargs)

    with suppress(Exception):  # an unknown layout: children are not linked
        wrapt.wrap_function_wrapper(module, "Popen.__init__", start_child)
