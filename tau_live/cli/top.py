"""``tau-live top``: the screen of ``tau-live status``, live."""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from tau_live.cli.keyboard import Keyboard
from tau_live.cli.opening import (
    epilog,
    is_enabled,
    json_option,
    settings_of,
    store_option,
)
from tau_live.cli.output import console_of, print_json, print_on, safe
from tau_live.cli.screen import heading, lines_of, screen_of
from tau_live.cli.signals import stopping
from tau_live.errors import TauLiveError
from tau_live.kill_switch import kill_file, now_killed
from tau_live.reporting.glance import Glance, glance_of
from tau_live.settings import Settings
from tau_live.settings.places import placed
from tau_live.store.sqlite import SqliteStore
from tau_live.switch import SWITCH

WAIT_S = 0.5
"""So long a frame waits for a store that is locked; the last one stays on the screen meanwhile."""

REST = 4.0
"""Between two looks, as a multiple of how long one took: at most a fifth of the time is reading."""

LOOK_S = 0.1
"""How often keys, signals and the size of the window are looked at."""


@click.command(
    epilog=epilog(
        "top", "tau-live top", "tau-live top --every 5", "tau-live top --frames 10 | tee log.txt"
    )
)
@click.option(
    "--every",
    "every_s",
    type=click.FloatRange(0.1, 3600.0),
    default=1.0,
    show_default=True,
    help="Seconds from one look to the next.",
)
@click.option("--frames", type=click.IntRange(1), help="End after so many looks.")
@store_option
@json_option
def top(*, path: Path | None, as_json: bool, every_s: float, frames: int | None) -> None:
    """Show the screen of `status` again and again; q or Ctrl-C ends it.

    The store is only read, and it may come, go, be locked or be replaced meanwhile. Where the
    output is no terminal, each look is printed as plain text; with --json, as a line of its own.
    """
    settings = settings_of(path)
    placed(settings)
    console = console_of(sys.stdout.isatty())
    watch = Watch(settings, console)
    stop = threading.Event()
    with stopping(stop):
        if as_json:
            _printed(watch, stop, _print_line, every_s=every_s, frames=frames)
        elif sys.stdout.isatty() and not console.is_dumb_terminal:
            _live(watch, stop, every_s=every_s, frames=frames)
        else:
            _printed(watch, stop, _print_screen, every_s=every_s, frames=frames)


class Watch:
    """Looks at a store again and again, and keeps what it saw last.

    Args:
        settings: Where the store is.
        console: What it is drawn for.
    """

    def __init__(self, settings: Settings, console: Console) -> None:
        self.console = console
        self.took_s = 0.0
        self._settings = settings
        self._last: Glance | None = None
        self._problem: str | None = None
        self._at = 0.0

    def look(self) -> None:
        """Look at the store; each time anew, because it may have been replaced."""
        began, self._at = time.perf_counter(), time.time()
        try:
            self._last, self._problem = self._seen(), None
        except (TauLiveError, OSError) as error:
            self._problem = str(error)
        self.took_s = time.perf_counter() - began

    def _seen(self) -> Glance:
        file = self._settings.store
        if not file.exists():
            self._last = None  # what was there is not this one's past
            raise TauLiveError(f"no store at {file} yet")
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
        if file.exists():
            advice = "Find out why: tau-live doctor"
        else:
            advice = f"Run your agent with {SWITCH}=1, or try {SWITCH}=1 tau-live demo"
        yield safe(advice)
        if self._last is not None:
            yield safe("This is what was seen before:", "dim")


def _printed(
    watch: Watch,
    stop: threading.Event,
    show: Callable[[Watch], None],
    *,
    every_s: float,
    frames: int | None,
) -> None:
    for seen in count(1):
        watch.look()
        show(watch)
        sys.stdout.flush()
        if seen == frames or stop.wait(_pause(watch, every_s)):
            return


def _print_line(watch: Watch) -> None:
    print_json(watch.plain())


def _print_screen(watch: Watch) -> None:
    print_on(watch.console, watch.drawn(height=None), "")


def _live(watch: Watch, stop: threading.Event, *, every_s: float, frames: int | None) -> None:
    console = watch.console
    with (
        Keyboard() as keyboard,
        Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False) as live,
    ):
        for seen in count(1):
            watch.look()
            live.update(watch.drawn(height=console.height), refresh=True)
            for_s = _pause(watch, every_s)
            if seen == frames or not _waited(watch, live, keyboard, stop, for_s=for_s):
                return


def _waited(
    watch: Watch, live: Live, keyboard: Keyboard, stop: threading.Event, *, for_s: float
) -> bool:
    """Wait for the next look; ``False`` if there is to be none. A new size is drawn at once."""
    until, size = time.monotonic() + for_s, watch.console.size
    while not stop.is_set():
        left = until - time.monotonic()
        if left <= 0.0:
            return True
        if keyboard.asks_to_quit(min(LOOK_S, left)):
            return False
        if watch.console.size != size:
            size = watch.console.size
            live.update(watch.drawn(height=watch.console.height), refresh=True)
    return False


def _pause(watch: Watch, every_s: float) -> float:
    """Return how long to rest after a look."""
    return max(every_s - watch.took_s, REST * watch.took_s)
