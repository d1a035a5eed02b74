"""Setting context variables so that a finaliser may do so in the middle of it."""

from contextvars import ContextVar, Token, copy_context
from typing import TypeVar

T = TypeVar("T")


def put(variable: ContextVar[T], value: T) -> Token[T]:
    """Set a variable.

    Python 3.11 collects garbage while it sets one, and a finaliser that sets one too, by beginning
    a run say, frees what is being read: the process crashes. Nothing is freed that a copy holds.

    Source:
        ``contextvar_set`` in CPython's ``context.c``, which borrows ``ctx->ctx_vars``.
    """
    held = copy_context()  # noqa: F841  # until the variable is set
    return variable.set(value)


def put_back(variable: ContextVar[T], token: Token[T]) -> None:
    """Give a variable back the value that it had before ``put``.

    Raises:
        ValueError: It was set in another context.
    """
    held = copy_context()  # noqa: F841  # until the variable is set
    variable.reset(token)
