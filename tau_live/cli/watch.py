"""A store that is read again and again, whatever happens to it."""

import time
from collections.abc import Iterator, Mapping

from rich.console import Console, Group, RenderableType
from rich.text import Text

from tau_live.cli.opening import is_enabled
from tau_live.cli.output import safe
from tau_live.cli.screen import heading, lines_of, screen_of
from tau_live.errors import StoreUnavailableError, TauLiveError
from tau_live.operators.kill_switch import kill_file, now_killed
from tau_live.reporting.glance import Glance, glance_of
from tau_live.settings import Settings
from tau_live.store.sqlite import SqliteStore
from tau_live.switch import SWITCH

WAIT_S = 0.5
"""So long a look waits for a store that is locked."""

REST = 4.0
"""Between two looks, as a multiple of how long one took: at most a fifth of the time is reading."""


class Watch:
    """Looks at a store again and again, and keeps what it saw last.

    Args:
        settings: Where the store is.
        console: What it is drawn for.

    Attributes:
        console: The same.
        took_s: How long the last look took.
    """

    def __init__(self, settings: Settings, console: Console) -> None:
        self.console = console
        self.took_s = 0.0
        self._settings = settings
        self._last: Glance | None = None
        self._problem: str | None = None
        self._missing = False
        self._at = 0.0

    def look(self) -> None:
        """Look at the store; it is opened each time, because it may have been replaced."""
        began, self._at = time.perf_counter(), time.time()
        try:
            self._last, self._problem = self._seen(), None
        except (TauLiveError, OSError) as error:
            self._problem = str(error)
        self.took_s = time.perf_counter() - began

    def _seen(self) -> Glance:
        file = self._settings.store
        self._missing = not file.exists()
        if self._missing:
            self._last = None  # what was there is not the past of what will be
            raise StoreUnavailableError(f"no store at {file} yet")
        store = SqliteStore.open(file, read_only=True, busy_timeout_s=WAIT_S)
        try:
            return glance_of(store, self._settings, now=self._at, enabled=is_enabled())
        finally:
            store.close()

    def plain(self) -> Mapping[str, object]:
        """Return what `status --json` says, or what keeps it from being known."""
        if self._problem is None and self._last is not None:
            return {**self._last.status, "problem": None}
        return {"at": self._at, "store": str(self._settings.store), "problem": self._problem}

    def pause_s(self, every_s: float) -> float:
        """Return how long to rest after a look, of which one is to begin every so many seconds."""
        return max(every_s - self.took_s, REST * self.took_s)

    def drawn(self, *, height: int | None) -> RenderableType:
        """Return the screen, or what keeps it from being seen and what was seen last."""
        if self._problem is None and self._last is not None:
            return screen_of(self._last, self.console, height=height)
        first = Group(*self._trouble())
        if self._last is None:
            return first
        left = None if height is None else height - lines_of(first, self.console) - 1
        return Group(first, "", screen_of(self._last, self.console, height=left))

    def _trouble(self) -> Iterator[Text]:
        file = self._settings.store
        yield heading(str(file), at=self._at, width=self.console.width)
        yield safe(self._problem or "", "bold red")
        killed = now_killed(kill_file(file, self._settings.kill_file))
        if killed is not None:
            yield safe(f"The kill switch is on: {killed}", "bold red")
        if self._missing:
            yield safe(f"Run your agent with {SWITCH}=1, or try {SWITCH}=1 tau-live demo")
        else:
            yield safe("Find out why: tau-live doctor")
        if self._last is not None:
            yield safe("Last known state:", "dim")
