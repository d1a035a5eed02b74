"""Pauses of parts, the kill switch, and the plugins that failed.

Each pause or resume is one transaction with its audit row; running processes see it within a
second. A command without effect is recorded all the same.

While the file of the kill switch exists, nothing is recorded, learned or decided on its store. It
works for everyone who can make a file there, also with ``touch``: its contents are for people.

The kill switch may also be a variable inside a running process, which cannot be seen from outside,
nor can a process see the disabled plugins of another. So each process publishes both in the store.
"""

import json
import os
import stat
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from tau_live.core.errors import TauLiveError, pass_on
from tau_live.core.files import give_to_owner_of_folder, make_folders, write_whole
from tau_live.core.processes import PROCESSES, is_alive
from tau_live.core.reasons import Part, Pause
from tau_live.core.records import AuditEntry
from tau_live.core.switch import KILL, PREFIX
from tau_live.core.sync import Latch

if TYPE_CHECKING:  # a kill loads no store
    from tau_live.core.plugins import PluginReport
    from tau_live.core.settings import Settings
    from tau_live.store.roles import Leases, Store


def pause_parts(
    store: "Store", parts: Sequence[Part], *, reason: str, who: str, at: float
) -> list[Part]:
    """Pause parts until they are resumed, and return those that were not paused.

    Those paused already keep their reason.
    """
    with store.begin():
        pauses = [Pause(part=part, reason=reason, who=who, at=at) for part in parts]
        changed = [pause.part for pause in pauses if store.pauses.begin(pause)]
        store.audit.add(_parts_entry("pause", parts, changed, reason=reason, who=who, at=at))
    return changed


def resume_parts(
    store: "Store", parts: Sequence[Part], *, reason: str, who: str, at: float
) -> list[Part]:
    """Resume parts, and return those that were paused."""
    with store.begin():
        changed = [part for part in parts if store.pauses.end(part)]
        store.audit.add(_parts_entry("resume", parts, changed, reason=reason, who=who, at=at))
    return changed


def pauses_by_part(pauses: Mapping[Part, Pause]) -> dict[str, "Stop"]:
    """Return the pauses as ``status`` shows them, by part."""
    return {part.value: Stop(pause.reason, pause.who, pause.at) for part, pause in pauses.items()}


def _parts_entry(
    action: str,
    parts: Sequence[Part],
    changed: Sequence[Part],
    *,
    reason: str,
    who: str,
    at: float,
) -> AuditEntry:
    details = {"parts": [part.value for part in parts], "idempotent": not changed}
    return AuditEntry(at=at, who=who, action=action, reason=reason, details=details)


SUFFIX = ".off"
SETTING = f"{PREFIX}KILL_FILE"

THREAD = "tau-live-kill-switch"


class Stop(msgspec.Struct, frozen=True):
    """A stop of everything by the kill switch, or of a part by an operator.

    Attributes:
        reason: Why; of a kill switch, from its file, or else that it exists.
        who: Who stopped it; empty if unknown.
        at: Since when; epoch seconds, UTC.
    """

    reason: str
    who: str
    at: float

    def __str__(self) -> str:
        """Return the reason and who gave it, on one line."""
        return f"{self.reason} ({self.who})" if self.who else self.reason


def kill_file(store: Path, named: Path | None) -> Path:
    """Return the file of the kill switch: the one that a setting names, or one beside the store.

    All addresses of a database have one.
    """
    from tau_live.core.addresses import shared_name  # a kill of a file needs none

    return store.with_name(shared_name(store.name) + SUFFIX) if named is None else named


def kill_state(path: Path) -> Stop | None:
    """Return the state of the switch; ``None`` while there is no file.

    Raises:
        OSError: The file cannot be accessed.
    """
    try:
        info = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _read_file(path, at=info.st_mtime)


def kill(path: Path, reason: str, *, who: str, at: float) -> Stop | None:
    """Make the file of the kill switch; return the state of an existing one, which stays as it is.

    Where the disk is full the file is empty, which is enough.

    Raises:
        OSError: The file could not be made.
    """
    before = kill_state(path)
    if before is None:
        make_folders(path.parent)
        content = {"reason": reason, "who": who, "at": at}
        try:
            write_whole(path, json.dumps(content).encode() + b"\n")
        except OSError:
            path.touch(mode=0o600)
        give_to_owner_of_folder(path)
    return before


def unkill(path: Path) -> Stop | None:
    """Remove the file; return its state, ``None`` if there was none.

    Raises:
        TauLiveError: There is something else, which a setting names by mistake.
        OSError: It could not be removed.
    """
    before = kill_state(path)
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
    """Return what is there in place of a kill file; ``None`` for a kill file, and for nothing.

    A file with our suffix is a kill file unless it is a database. A file that a setting names may
    belong to somebody: it is a kill file if it is empty, or was written by ``kill``.
    """
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return None if path.name.endswith(SUFFIX) else "no file"
        return _foreign_content(path, _text(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"unreadable ({error.strerror or error})"


def _foreign_content(path: Path, text: str) -> str | None:
    if text.startswith("SQLite format 3\0"):
        return "a database"
    ours = not text or path.name.endswith(SUFFIX) or _parse(text) is not None
    return None if ours else "a file that holds something else"


class KillWatch:
    """Checks the file four times a second, in a thread that waits for nothing else.

    Not even for the store: a writer may wait for seconds while another process has it locked.

    Args:
        path: The file.
        stop_reason: Returns why everything must stop although there is no file, or ``None``.
        changed: Called with the new state of the switch; must not raise.

    Attributes:
        killed: The state of the switch; ``None`` while it is off.
        by_variable: The same, where it is on without a file.
    """

    def __init__(
        self,
        path: Path,
        *,
        stop_reason: Callable[[], str | None],
        changed: Callable[[Stop | None], None],
    ) -> None:
        self._path = path
        self._stop_reason = stop_reason
        self._changed = changed
        self._stopping = Latch()
        self._thread = threading.Thread(target=self._loop, name=THREAD, daemon=True)
        self.killed: Stop | None = None
        self.by_variable: Stop | None = None

    def start(self) -> None:
        """Check once, and keep checking in the thread."""
        self.check()
        self._thread.start()

    def stop(self) -> None:
        """Stop checking; does not wait for the thread."""
        self._stopping.set()

    def check(self) -> None:
        """Check now; where the file cannot be accessed, the switch stays as it was."""
        try:
            state = kill_state(self._path)
        except (OSError, ValueError) as error:
            pass_on(error)
            state = None if self.by_variable else self.killed
        why = self._stop_reason() if state is None else None
        if why is None:
            self.by_variable = None
        elif self.by_variable is None or self.by_variable.reason != why:
            self.by_variable = Stop(why, "", time.time())
        state = state or self.by_variable
        if state != self.killed:
            self.killed = state
            self._changed(state)

    def _loop(self) -> None:
        while not self._stopping.wait(0.25):
            with suppress(Exception):  # nothing may end this thread
                self.check()


def _read_file(path: Path, *, at: float) -> Stop:
    """Return the state of an existing file; an unreadable one switches everything off too."""
    plain = Stop(f"{path.name} exists", "", at)
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):  # reading a pipe may never end
            return plain
        text = _text(path)
    except OSError:
        return plain
    what = _foreign_content(path, text)
    if what is not None:
        return replace(plain, reason=f"{path} exists, and is {what}, not a kill file")
    parsed = _parse(text)
    if parsed is not None:
        return parsed if isfinite(parsed.at) else replace(parsed, at=at)
    return replace(plain, reason=" ".join(text.split())[:200]) if text else plain


def _text(path: Path) -> str:
    """Return the beginning of a file; a link is not followed, as it may point to a secret."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        return file.read(4096).decode(errors="replace").strip()


def _parse(text: str) -> Stop | None:
    """Return the state from a text that ``kill`` has written; ``None`` for any other text."""
    try:
        content = json.loads(text)
        reason, who = (" ".join(str(content[name]).split()) for name in ("reason", "who"))
        return Stop(reason, who, float(content["at"]))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def ended_by(reason: str) -> str:
    """Return how to end a kill: the command, or the variable to unset."""
    if reason.startswith(KILL):
        return f"unset {KILL} there, or restart those processes without it"
    return '`tau-live unkill --reason "..."`'


def now_killed(path: Path) -> Stop | None:
    """Return the state of the switch; a file that cannot be accessed counts as on."""
    try:
        return kill_state(path)
    except OSError as error:
        return Stop(f"{path} cannot be accessed: {error.strerror or error}", "", time.time())


def killed_of(store: "Store", settings: "Settings") -> Stop | None:
    """Return the state of the switch, by the file or by the variable inside processes."""
    switch = kill_file(settings.store, settings.kill_file)
    return now_killed(switch) or killed_inside(store.leases)


STOPPED = "killed:"
"""Prefix of the name of the lease that a process holds while the variable stops it."""

RENEW_S = 5.0
TTL_S = 20.0
_MOST_NAMED = 3


DISABLED = "plugin-disabled:"
"""Prefix of the name of the lease that a process holds for each of its disabled plugins."""


class Notices:
    """Publishes in the store what stops this process or its plugins, for other processes to see.

    Args:
        owner: This process.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._written: Mapping[str, str] = {}
        self._written_at = float("-inf")

    def publish(
        self,
        leases: "Leases",
        killed: Stop | None,
        reports: "Collection[PluginReport]" = (),
        *,
        now: float,
    ) -> None:
        """Publish, renew or withdraw the notices; most often there is nothing to do.

        Args:
            leases: The leases of the store.
            killed: The state of the switch by the variable; ``None`` if that is not set.
            reports: The plugins, of which some may be disabled.
            now: Epoch seconds, UTC.

        Raises:
            StoreUnavailableError: The store cannot be written; the next call tries again.
        """
        notices = {
            f"{DISABLED}{self._owner}:{report.name}": json.dumps(
                {
                    "plugin": report.name,
                    "hooks": list(report.hooks),
                    "problem": report.problem,
                    "process": self._owner,
                }
            )
            for report in reports
            if report.disabled
        }
        if killed is not None:
            notices[STOPPED + self._owner] = f"{killed.at} {self._owner}"
        for name in self._written.keys() - notices.keys():
            leases.release(name, self._written[name])
        if notices != self._written or not 0.0 <= now - self._written_at < RENEW_S:
            for name, holder in notices.items():
                leases.acquire(name, holder, ttl_s=TTL_S)
            self._written, self._written_at = notices, now


def killed_inside(leases: "Leases") -> Stop | None:
    """Return the state by the variable inside attached processes; ``None`` if it stops none."""
    holders = leases.holders(STOPPED).values()
    stopped = [
        (owner, at) for at, owner in map(_split_holder, holders) if is_alive(owner) is not False
    ]
    if not stopped:
        return None
    attached = leases.holders(PROCESSES).values()
    alive = {owner for owner in attached if is_alive(owner) is not False}
    alive |= {owner for owner, _ in stopped}
    named = ", ".join(sorted(owner for owner, _ in stopped)[:_MOST_NAMED])
    more = "" if len(stopped) <= _MOST_NAMED else ", ..."
    reason = f"{KILL} is set inside {len(stopped)} of {len(alive)} attached processes: "
    return Stop(f"{reason}{named}{more}", "", min(at for _, at in stopped))


def _split_holder(holder: str) -> tuple[float, str]:
    at, _, owner = holder.partition(" ")
    try:
        return float(at), owner
    except ValueError:
        return 0.0, owner


class DisabledPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin that a process no longer calls.

    Attributes:
        plugin: Its name.
        hooks: Its hooks. With ``redact`` or ``redact_text`` among them the process keeps no text,
            and leaves decisions to the host.
        problem: Why.
        process: The process.
    """

    plugin: str
    hooks: Sequence[str] = ()
    problem: str
    process: str


def disabled_plugins(leases: "Leases") -> list[DisabledPlugin]:
    """Return the disabled plugins of all processes."""
    plugins: list[DisabledPlugin] = []
    for holder in leases.holders(DISABLED).values():
        with suppress(msgspec.DecodeError):  # an edited row
            plugin = msgspec.json.decode(holder, type=DisabledPlugin)
            if is_alive(plugin.process) is not False:
                plugins.append(plugin)
    return sorted(plugins, key=lambda plugin: (plugin.plugin, plugin.process))
