"""Child processes that are started inside a run learn which run it was, by their environment."""

from collections.abc import Callable, Mapping
from typing import Any

import wrapt

from tau_live.core.errors import suppress
from tau_live.core.processes import Link, linked_environ

_ENV_PLACE = 10
"""Where ``subprocess.Popen`` takes the environment by its place."""


class _State:
    """Whether this process is wrapped; wrapping twice would link twice."""

    done: bool = False


def link_children(inside: Callable[[], Link | None], environ: Mapping[str, str]) -> None:
    """Link the children that ``subprocess`` starts, and with it ``asyncio`` and ``os.popen``.

    Once in a process.

    Args:
        inside: Returns the innermost run of the calling thread or task.
        environ: What children inherit.
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
            if link is not None and len(args) <= _ENV_PLACE:
                given = kwargs.get("env")
                kwargs = {
                    **kwargs,
                    "env": linked_environ(environ if given is None else given, link),
                }
        return wrapped(*args, **kwargs)

    with suppress(Exception):  # another layout: its children are not linked
        wrapt.wrap_function_wrapper(module, "Popen.__init__", start_child)
