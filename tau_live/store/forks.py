"""The stores that a process has open, and what a fork does to them.

Source:
    sqlite.org/howtocorrupt.html, section 2.6; ``unixInodeInfo`` in SQLite's ``os_unix.c``.
"""

import threading
import time
import weakref
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from tau_live.store.roles import Store

S = TypeVar("S", bound=Store)

STILL_S = 1.0
"""How long a fork waits at most for all stores together, in seconds; a batch takes some 50 ms."""


class _Held(NamedTuple):
    """The stores that one fork holds.

    Attributes:
        opening: Whether the lock on opening stores is held.
        still: The stores in which no statement runs.
        busy: The others.
    """

    opening: bool
    still: list[Store]
    busy: list[Store]


class Forks:
    """The open stores of a process, for all of its life."""

    def __init__(self) -> None:
        self._stores: dict[int, weakref.ref[Store]] = {}
        self._opening = threading.RLock()
        self._held: dict[int, list[_Held]] = {}  # by thread: several may fork at once

    def open(self, open_: Callable[[], S], *, connects: bool = False) -> S:
        """Open a store; a fork and others that open a file wait for it.

        Args:
            open_: Opens it.
            connects: Whether that may wait for a network, which nobody else then waits for.
        """
        if connects:
            return self._add(open_())
        with self._opening:
            return self._add(open_())

    def _add(self, store: S) -> S:
        with self._opening:
            self._stores = {
                key: reference for key, reference in self._stores.items() if reference() is not None
            }
            self._stores[id(store)] = weakref.ref(store)
        return store

    def before(self) -> None:
        """Wait until no statement runs, and let none start."""
        until = time.monotonic() + STILL_S
        held = _Held(self._opening.acquire(timeout=STILL_S), [], [])
        for store in filter(None, [known() for known in self._stores.copy().values()]):
            still = store.hold_still(max(0.0, until - time.monotonic()))
            (held.still if still else held.busy).append(store)
        self._held.setdefault(threading.get_ident(), []).append(held)

    def in_parent(self) -> None:
        """Let all stores go on."""
        held = self._pop()
        for store in held.still:
            store.go_on()
        if held.opening:
            self._opening.release()

    def in_child(self) -> bool:
        """Close the inherited stores; ``False`` if the child must not open a store any more.

        That is so if a statement ran during the fork: its store is left alone.
        """
        held = self._pop()
        self._opening = threading.RLock()  # another thread may have held it
        self._stores, self._held = {}, {}
        for store in held.still:
            store.close_inherited()
        for store in held.busy:
            store.abandon()
        return held.opening and not held.busy

    def _pop(self) -> _Held:
        own = self._held.get(threading.get_ident(), [])
        return own.pop() if own else _Held(opening=False, still=[], busy=[])
