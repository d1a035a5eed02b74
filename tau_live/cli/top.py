"""``tau-live top``: the screen of ``tau-live status``, live."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.live import Live

from tau_live.cli.keyboard import Keyboard
from tau_live.cli.opening import epilog, json_option, settings_of, store_option
from tau_live.cli.output import console_of, print_json, print_on
from tau_live.cli.signals import stopping
from tau_live.cli.watch import Watch
from tau_live.settings.places import placed

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
    placed(settings)
    console = console_of(sys.stdout.isatty())
    looking = Looking(Watch(settings, console), every_s=every_s, frames=frames)
    with stopping(looking.stop):
        if as_json:
            looking.printed(_print_line)
        elif _has_screen(console):
            looking.live()
        else:
            looking.printed(_print_screen)


def _has_screen(console: Console) -> bool:
    """Say whether the output is a terminal that can be drawn on with our signs."""
    is_plain = console.is_dumb_terminal or not console.encoding.startswith("utf")
    return sys.stdout.isatty() and not is_plain


class Looking:
    """Looks again and again, until it is asked to stop or has looked often enough.

    Args:
        watch: What looks.
        every_s: Seconds between refreshes.
        frames: So many looks; ``None`` is no limit.

    Attributes:
        stop: Set when it is to end.
    """

    def __init__(self, watch: Watch, *, every_s: float, frames: int | None) -> None:
        self.stop = threading.Event()
        self._suspended = threading.Event()
        self._watch = watch
        self._every_s = every_s
        self._left = frames

    def printed(self, show: Callable[[Watch], None]) -> None:
        """Print each look."""
        while self._looked():
            show(self._watch)
            sys.stdout.flush()
            if self._left != 0:
                self.stop.wait(self._watch.pause_s(self._every_s))

    def live(self) -> None:
        """Draw each look over the one before; Ctrl-Z gives the terminal back for a while."""
        with _noticed(self._suspended):
            while self._drawn():
                self._suspended.clear()
                os.kill(os.getpid(), signal.SIGSTOP)

    def _looked(self) -> bool:
        """Look once more; ``False`` if it is over."""
        if self.stop.is_set() or self._left == 0:
            return False
        if self._left is not None:
            self._left -= 1
        self._watch.look()
        return True

    def _drawn(self) -> bool:
        """Draw looks until it is over; ``True`` if it is merely suspended."""
        console = self._watch.console
        with (
            Keyboard() as keyboard,
            Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False) as live,
        ):
            while self._looked():
                live.update(self._watch.drawn(height=console.height), refresh=True)
                if self._left == 0 or not self._waited(live, keyboard):
                    break
        return self._suspended.is_set()

    def _waited(self, live: Live, keyboard: Keyboard) -> bool:
        """Wait for the next look; ``False`` if there is to be none now.

        A terminal that has another size is drawn at once.
        """
        console = self._watch.console
        until, size = time.monotonic() + self._watch.pause_s(self._every_s), console.size
        while not self.stop.is_set() and not self._suspended.is_set():
            left = until - time.monotonic()
            if left <= 0.0:
                return True
            if keyboard.asks_to_quit(min(LOOK_S, left)):
                return False
            if console.size != size:
                size = console.size
                live.update(self._watch.drawn(height=console.height), refresh=True)
        return False


@contextmanager
def _noticed(suspended: threading.Event) -> Iterator[None]:
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


def _print_line(watch: Watch) -> None:
    print_json(watch.plain())


def _print_screen(watch: Watch) -> None:
    print_on(watch.console, watch.drawn(height=None), "")
