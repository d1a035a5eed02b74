"""Going in and out of places in runs, for as long as a piece of the host's own work takes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

from tau_live import door
from tau_live.errors import suppress
from tau_live_hooks.smolagents_run import Place, here

if TYPE_CHECKING:
    from contextvars import Token


@contextmanager
def at(place: Place | None) -> Iterator[None]:
    """Be at a place in a run."""
    token = here.set(place)
    try:
        yield
    finally:
        _left(token)


@contextmanager
def within(place: Place) -> Iterator[None]:
    """Be in a run, so that what runs inside is its child and rewards are its own."""
    entered = None
    with suppress(Exception):
        entered = door.enter(place.run.book.handle)
    try:
        with at(place):
            yield
    finally:
        if entered is not None:
            _left(entered)


def carried(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is where this is called, in whatever thread it runs.

    Nothing else is carried over: the host's tools see there what they see without us.
    """
    place, run = here.get(), door.current()
    if place is None:
        return function
    handle = None if run is None else run.handle

    @wraps(function)
    def there(*args: Any, **kwargs: Any) -> Any:
        entered = None
        with suppress(Exception):
            entered = None if handle is None else door.enter(handle)
        try:
            with at(place):
                return function(*args, **kwargs)
        finally:
            if entered is not None:
                _left(entered)

    return there


def _left(token: "Token[Any]") -> None:
    with suppress(ValueError):  # left in another context than it was entered in
        token.var.reset(token)
