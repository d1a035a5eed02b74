"""``tau-live top``: the screen of ``tau-live status``, live."""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import click
import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from tau_live.cli.options import epilog, is_enabled, json_option, settings_of, store_option
from tau_live.cli.output import console_of, print_json, print_on, safe, suggest
from tau_live.cli.status import heading, lines_of, screen_of
from tau_live.cli.terminal import Keyboard, stopping
from tau_live.core.errors import StoreUnavailableError, TauLiveError
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Settings, place_paths
from tau_live.core.switch import SWITCH
from tau_live.operate.report.summary import Glance, glance_of
from tau_live.operate.stops import kill_file, now_killed
from tau_live.store.opening import open_at

REST = 4.0
"""The least pause after a read, in multiples of its duration: a fifth of the time is reading."""


class Watch:
    """Reads a store again and again, and keeps the last state.

    Args:
        settings: The settings, with the path of the store.
        console: The console that it is drawn on.
        every_s: Seconds between reads.
        frames: The number of reads; ``None`` is no limit.

    Attributes:
        console: The same.
        took_s: The duration of the last read, in seconds.
        stop: Set it to end.
    """

    def __init__(
        self,
        settings: Settings,
        console: Console,
        *,
        every_s: float = 1.0,
        frames: int | None = None,
    ) -> None:
        self.console = console
        self.took_s = 0.0
        self.stop = threading.Event()
        self._suspended = threading.Event()
        self._every_s = every_s
        self._left = frames
        self._settings = settings
        self._last: Glance | None = None
        self._problem: str | None = None
        self._missing = False
        self._at = 0.0

    def look(self) -> None:
        """Read the store; it is opened each time, because it may have been replaced."""
        start, self._at = time.perf_counter(), time.time()
        try:
            self._last, self._problem = self._read_store(), None
        except (TauLiveError, OSError) as error:
            self._problem = str(error)
        self.took_s = time.perf_counter() - start

    def _read_store(self) -> Glance:
        file = self._settings.store
        self._missing = not file.exists()
        if self._missing:
            self._last = None  # the next store there is another one
            raise StoreUnavailableError(f"no store at {file} yet")
        with closing(open_at(file, read_only=True, busy_timeout_s=0.5)) as store:
            return glance_of(store, self._settings, now=self._at, enabled=is_enabled())

    def plain(self) -> JsonObject:
        """Return the data of `status --json`, or the problem that prevents it."""
        if self._problem is None and self._last is not None:
            return {**msgspec.to_builtins(self._last.status), "problem": None}
        return {"at": self._at, "store": str(self._settings.store), "problem": self._problem}

    def pause_s(self, every_s: float) -> float:
        """Return the seconds to wait after a read, for one every ``every_s`` seconds at most."""
        return max(every_s - self.took_s, REST * self.took_s)

    def render(self, *, height: int | None) -> RenderableType:
        """Return the screen, or the problem and the last screen."""
        if self._problem is None and self._last is not None:
            return screen_of(self._last, self.console, height=height)
        first = Group(*self._trouble())
        if self._last is None:
            return first
        rest = None if height is None else height - lines_of(first, self.console) - 1
        return Group(first, "", screen_of(self._last, self.console, height=rest))

    def _trouble(self) -> Iterator[Text]:
        file = self._settings.store
        yield heading(str(file), at=self._at, width=self.console.width)
        yield safe(self._problem or "", "bold red")
        killed = now_killed(kill_file(file, self._settings.kill_file))
        if killed is not None:
            yield safe(f"The kill switch is on: {killed}", "bold red")
        if self._missing:
            demo = suggest("tau-live demo")
            yield safe(f"Run your agent with {SWITCH}=1, or try {SWITCH}=1 {demo}")
        else:
            yield safe(f"Find out why: {suggest('tau-live doctor')}")
        if self._last is not None:
            yield safe("Last known state:", "dim")

    def print_each(self, *, as_json: bool) -> None:
        """Print each state, as a line of JSON or as plain text."""
        while self._next():
            if as_json:
                print_json(self.plain())
            else:
                print_on(self.console, self.render(height=None), "")
            sys.stdout.flush()
            if self._left != 0:
                self.stop.wait(self.pause_s(self._every_s))

    def live(self) -> None:
        """Draw each state over the one before; Ctrl-Z gives the terminal back for a while."""
        with _suspend_on_signal(self._suspended):
            while self._draw():
                self._suspended.clear()
                os.kill(os.getpid(), signal.SIGSTOP)

    def _next(self) -> bool:
        """Read once more; ``False`` if it is over."""
        if self.stop.is_set() or self._left == 0:
            return False
        if self._left is not None:
            self._left -= 1
        self.look()
        return True

    def _draw(self) -> bool:
        """Draw states until it is over; ``True`` if it is merely suspended."""
        with (
            Keyboard() as keyboard,
            Live(
                console=self.console, screen=True, auto_refresh=False, redirect_stderr=False
            ) as live,
        ):
            while self._next():
                live.update(self.render(height=self.console.height), refresh=True)
                if self._left == 0 or not self._wait(live, keyboard):
                    break
        return self._suspended.is_set()

    def _wait(self, live: Live, keyboard: Keyboard) -> bool:
        """Wait for the next read; ``False`` if there is to be none now.

        A terminal that changes its size is drawn at once.
        """
        until, size = time.monotonic() + self.pause_s(self._every_s), self.console.size
        while not self.stop.is_set() and not self._suspended.is_set():
            left = until - time.monotonic()
            if left <= 0.0:
                return True
            # keys, signals and the size of the window are checked ten times a second
            if keyboard.asks_to_quit(min(0.1, left)):
                return False
            if self.console.size != size:
                size = self.console.size
                live.update(self.render(height=self.console.height), refresh=True)
        return False


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
    help="Seconds between refreshes.",
)
@click.option("--frames", type=click.IntRange(1), help="Exit after this many refreshes.")
@store_option
@json_option
def top(*, path: Path | None, as_json: bool, every_s: float, frames: int | None) -> None:
    """Show the `status` screen and refresh it; q or Ctrl-C exits.

    The store is only read, and may appear, vanish, be locked or be replaced meanwhile. If the
    output is not a terminal, each refresh is printed as plain text; with --json, as one line.
    """
    settings = settings_of(path)
    place_paths(settings)
    console = console_of(sys.stdout.isatty())
    watch = Watch(settings, console, every_s=every_s, frames=frames)
    # a terminal that cannot be drawn on with our characters
    is_plain = console.is_dumb_terminal or not console.encoding.startswith("utf")
    with stopping(watch.stop):
        if sys.stdout.isatty() and not (as_json or is_plain):
            watch.live()
        else:
            watch.print_each(as_json=as_json)


@contextmanager
def _suspend_on_signal(suspended: threading.Event) -> Iterator[None]:
    """Set an event on Ctrl-Z instead of stopping with the terminal as it is."""
    number = getattr(signal, "SIGTSTP", None)  # not there on every system
    if number is None:
        yield
        return
    before = signal.signal(number, lambda *_: suspended.set())
    try:
        yield
    finally:
        signal.signal(number, before)
