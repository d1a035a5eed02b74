"""The kill switch: a file beside the store that stops everything, whatever state the store is in.

While it is there, nothing is recorded, learned or decided on that store. Whoever can make a file
there can use it, with ``touch`` too: it counts that it is there, and what it holds is for people.
"""

import json
import os
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from tau_live.errors import TauLiveError, pass_on
from tau_live.machine.latch import Latch
from tau_live.machine.private_files import give_to_owner_of_folder, make_folders
from tau_live.machine.whole_files import write_whole
from tau_live.switch import KILL, PREFIX

SUFFIX = ".off"
SETTING = f"{PREFIX}KILL_FILE"
LOOK_S = 0.25
"""How often a running process looks for the file."""

READ_LIMIT = 4096
_DATABASE = "SQLite format 3\0"
THREAD = "tau-live-kill-switch"


class Killed(NamedTuple):
    """That the kill switch is on.

    Attributes:
        reason: Why, as far as the file says so.
        who: Who says so; empty where the file does not tell.
        at: Since when; epoch seconds, UTC.
    """

    reason: str
    who: str
    at: float

    def __str__(self) -> str:
        """Return it in words, on one line."""
        return f"{self.reason} ({self.who})" if self.who else self.reason


def kill_file(store: Path, named: Path | None) -> Path:
    """Return the file of the kill switch: the one that a setting names, or one by the store."""
    return store.with_name(store.name + SUFFIX) if named is None else named


def killed(path: Path) -> Killed | None:
    """Return that the switch is on, and why; ``None`` where no such file is.

    Raises:
        OSError: It cannot be told whether it is there.
    """
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _read(path, at=found.st_mtime)


def kill(path: Path, reason: str, *, who: str, at: float) -> Killed | None:
    """Switch everything off; return what the file said before, which then stays as it is.

    Where the disk is full the file is empty: that it is there is enough.

    Raises:
        OSError: The file could not be made.
    """
    before = killed(path)
    if before is None:
        make_folders(path.parent)
        said = {"reason": reason, "who": who, "at": at}
        try:
            write_whole(path, json.dumps(said).encode() + b"\n")
        except OSError:
            path.touch(mode=0o600)
        give_to_owner_of_folder(path)
    return before


def unkill(path: Path) -> Killed | None:
    """Take the file away; return what it said, ``None`` if there was none.

    Raises:
        TauLiveError: What is there is something else, which a setting names by mistake.
        OSError: It could not be removed.
    """
    before = killed(path)
    if before is not None:
        what = mistaken(path)
        if what is not None:
            raise TauLiveError(
                f"the kill switch stays on: {path} is {what}, not a kill file, and was left as it "
                f"is: correct {SETTING}, or remove it by hand"
            )
        path.unlink(missing_ok=True)
    return before


def mistaken(path: Path) -> str | None:
    """Return what stands there in place of a kill file; ``None`` for one, and for nothing.

    What has the name that is ours is one unless it is a database, whatever it holds. What a setting
    names may be somebody's: it is one if it is empty, or holds what ``kill`` has written.
    """
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return None if path.name.endswith(SUFFIX) else "no file"
        return _mistaken(path, _text(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"unreadable ({error.strerror or error})"


def _mistaken(path: Path, text: str) -> str | None:
    if text.startswith(_DATABASE):
        return "a database"
    ours = not text or path.name.endswith(SUFFIX) or _said(text) is not None
    return None if ours else "a file that holds something else"


class KillWatch:
    """Looks for the file four times a second, in a thread that waits for nothing else.

    Not even for the store: a writer may wait for seconds where another process has locked it.

    Args:
        path: The file.
        said: Returns why everything is to stop although it is not there; ``None`` if it is not.
        changed: Told what the switch says whenever that is another; must not raise.

    Attributes:
        killed: What the switch says; ``None`` while it is off.
        by_word: The same, where it is on although there is no file.
    """

    def __init__(
        self,
        path: Path,
        *,
        said: Callable[[], str | None],
        changed: Callable[[Killed | None], None],
    ) -> None:
        self._path = path
        self._said = said
        self._changed = changed
        self._stopping = Latch()
        self._thread = threading.Thread(target=self._run, name=THREAD, daemon=True)
        self.killed: Killed | None = None
        self.by_word: Killed | None = None

    def start(self) -> None:
        """Look once, and go on looking."""
        self.look()
        self._thread.start()

    def stop(self) -> None:
        """Look no more; does not wait."""
        self._stopping.set()

    def look(self) -> None:
        """Look now; where that cannot be told, the switch stays as it was."""
        try:
            found = killed(self._path)
        except (OSError, ValueError) as error:
            pass_on(error)
            found = None if self.by_word else self.killed
        why = self._said() if found is None else None
        if why is None:
            self.by_word = None
        elif self.by_word is None or self.by_word.reason != why:
            self.by_word = Killed(why, "", time.time())
        found = found or self.by_word
        if found != self.killed:
            self.killed = found
            self._changed(found)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_S):
            with suppress(Exception):  # nothing may end this thread
                self.look()


def _read(path: Path, *, at: float) -> Killed:
    """Return what a file that is there says; one that nobody can read counts all the same."""
    plain = Killed(f"{path.name} exists", "", at)
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):  # to read a pipe may never end
            return plain
        text = _text(path)
    except OSError:
        return plain
    what = _mistaken(path, text)
    if what is not None:
        return plain._replace(reason=f"{path} exists, and is {what}, not a kill file")
    said = _said(text)
    if said is not None:
        return said if isfinite(said.at) else said._replace(at=at)
    return plain._replace(reason=" ".join(text.split())[:200]) if text else plain


def _text(path: Path) -> str:
    """Return how a file begins; whoever may make a link there may not read by our eyes."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        return file.read(READ_LIMIT).decode(errors="replace").strip()


def _said(text: str) -> Killed | None:
    """Return what ``kill`` has written; ``None`` for any other text."""
    try:
        said = json.loads(text)
        reason, who = (" ".join(str(said[name]).split()) for name in ("reason", "who"))
        return Killed(reason, who, float(said["at"]))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def ended_by(reason: str) -> str:
    """Return how a switch that says so is ended: the command, or what to do about a variable."""
    if reason.startswith(KILL):
        return f"unset {KILL} there, or restart those processes without it"
    return '`tau-live unkill --reason "..."`'


def now_killed(path: Path) -> Killed | None:
    """Return that the switch is on; also where that cannot be told."""
    try:
        return killed(path)
    except OSError as error:
        return Killed(f"{path} cannot be accessed: {error.strerror or error}", "", time.time())
