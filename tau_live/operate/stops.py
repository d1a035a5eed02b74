"""Pauses of parts, the kill switch, and the plugins that failed.

Each command is one transaction with its audit row; running processes see it within a second. A
command without effect is written down all the same.

While it is there, nothing is recorded, learned or decided on that store. Whoever can make a file
there can use it, with ``touch`` too: it counts that it is there, and what it holds is for people.

From outside nobody sees the variables of a process that runs, so whoever asks why nothing happens
would find a switch that is off.

Whoever asks from outside has plugins of its own, in which nothing has failed yet.
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
from typing import TYPE_CHECKING, NamedTuple

from tau_live.core.errors import TauLiveError, pass_on
from tau_live.core.files import give_to_owner_of_folder, make_folders, write_whole
from tau_live.core.processes import PROCESSES, is_alive
from tau_live.core.reasons import Part, Pause
from tau_live.core.records import AuditEntry
from tau_live.core.sanitize import mapping
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
        store.audit.add(_of_parts("pause", parts, changed, reason=reason, who=who, at=at))
    return changed


def resume_parts(
    store: "Store", parts: Sequence[Part], *, reason: str, who: str, at: float
) -> list[Part]:
    """Resume parts, and return those that were paused."""
    with store.begin():
        changed = [part for part in parts if store.pauses.end(part)]
        store.audit.add(_of_parts("resume", parts, changed, reason=reason, who=who, at=at))
    return changed


def _of_parts(
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


class KillState(NamedTuple):
    """The state of a kill switch that is on.

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


def kill_state(path: Path) -> KillState | None:
    """Return why the switch is on; ``None`` where there is no such file.

    Raises:
        OSError: The file cannot be accessed.
    """
    try:
        info = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _read_file(path, at=info.st_mtime)


def kill(path: Path, reason: str, *, who: str, at: float) -> KillState | None:
    """Switch everything off; return the contents of an existing file, which then stays as it is.

    Where the disk is full the file is empty: that it is there is enough.

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


def unkill(path: Path) -> KillState | None:
    """Remove the file; return its contents, ``None`` if there was none.

    Raises:
        TauLiveError: What is there is something else, which a setting names by mistake.
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
    """Return what is there in place of a kill file; ``None`` for one, and for nothing.

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
    if text.startswith("SQLite format 3\0"):
        return "a database"
    ours = not text or path.name.endswith(SUFFIX) or _parse(text) is not None
    return None if ours else "a file that holds something else"


class KillWatch:
    """Looks for the file four times a second, in a thread that waits for nothing else.

    Not even for the store: a writer may wait for seconds where another process has locked it.

    Args:
        path: The file.
        stop_reason: Returns why everything must stop although there is no file; ``None`` if not.
        changed: Called with the new state of the switch; must not raise.

    Attributes:
        killed: The state of the switch; ``None`` while it is off.
        by_variable: The same, where it is on although there is no file.
    """

    def __init__(
        self,
        path: Path,
        *,
        stop_reason: Callable[[], str | None],
        changed: Callable[[KillState | None], None],
    ) -> None:
        self._path = path
        self._stop_reason = stop_reason
        self._changed = changed
        self._stopping = Latch()
        self._thread = threading.Thread(target=self._loop, name=THREAD, daemon=True)
        self.killed: KillState | None = None
        self.by_variable: KillState | None = None

    def start(self) -> None:
        """Look once, and go on looking."""
        self.check()
        self._thread.start()

    def stop(self) -> None:
        """Look no more; does not wait."""
        self._stopping.set()

    def check(self) -> None:
        """Look now; where the file cannot be accessed, the switch stays as it was."""
        try:
            state = kill_state(self._path)
        except (OSError, ValueError) as error:
            pass_on(error)
            state = None if self.by_variable else self.killed
        why = self._stop_reason() if state is None else None
        if why is None:
            self.by_variable = None
        elif self.by_variable is None or self.by_variable.reason != why:
            self.by_variable = KillState(why, "", time.time())
        state = state or self.by_variable
        if state != self.killed:
            self.killed = state
            self._changed(state)

    def _loop(self) -> None:
        # how often a running process looks for the file
        while not self._stopping.wait(0.25):
            with suppress(Exception):  # nothing may end this thread
                self.check()


def _read_file(path: Path, *, at: float) -> KillState:
    """Return the state that an existing file means; an unreadable one counts all the same."""
    plain = KillState(f"{path.name} exists", "", at)
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):  # to read a pipe may never end
            return plain
        text = _text(path)
    except OSError:
        return plain
    what = _mistaken(path, text)
    if what is not None:
        return plain._replace(reason=f"{path} exists, and is {what}, not a kill file")
    parsed = _parse(text)
    if parsed is not None:
        return parsed if isfinite(parsed.at) else parsed._replace(at=at)
    return plain._replace(reason=" ".join(text.split())[:200]) if text else plain


def _text(path: Path) -> str:
    """Return how a file begins; whoever may make a link there may not read by our eyes."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
        return file.read(4096).decode(errors="replace").strip()


def _parse(text: str) -> KillState | None:
    """Return the state that ``kill`` has written; ``None`` for any other text."""
    try:
        content = json.loads(text)
        reason, who = (" ".join(str(content[name]).split()) for name in ("reason", "who"))
        return KillState(reason, who, float(content["at"]))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None


def ended_by(reason: str) -> str:
    """Return how to end a stop: the command, or what to do about a variable."""
    if reason.startswith(KILL):
        return f"unset {KILL} there, or restart those processes without it"
    return '`tau-live unkill --reason "..."`'


def now_killed(path: Path) -> KillState | None:
    """Return why the switch is on; a file that cannot be accessed counts as on."""
    try:
        return kill_state(path)
    except OSError as error:
        return KillState(f"{path} cannot be accessed: {error.strerror or error}", "", time.time())


def killed_of(store: "Store", settings: "Settings", *, now: float) -> KillState | None:
    """Return why everything is stopped: by the file, or by the variable inside processes."""
    switch = kill_file(settings.store, settings.kill_file)
    return now_killed(switch) or killed_inside(store.leases, now=now)


STOPPED = "killed:"
"""Begins the name of the lease that a process holds while the variable stops it."""

RENEW_S = 5.0
TTL_S = 20.0
_NAMED = 3


DISABLED = "plugin-disabled:"
"""Begins the name of the lease that a process holds for each plugin that it does not call."""


class Notices:
    """Says in the store what stops this process or its plugins, as nobody sees it from outside.

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
        killed: KillState | None,
        reports: "Collection[PluginReport]" = (),
        *,
        now: float,
    ) -> None:
        """Write it down, or take it back; most often there is nothing to do.

        Args:
            leases: Of the store.
            killed: That the variable stops this process; ``None`` if it does not.
            reports: The plugins, of which some may not be called any more.
            now: Epoch seconds, UTC.

        Raises:
            StoreUnavailableError: It cannot be written; the next call tries again.
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
                leases.acquire(name, holder, ttl_s=TTL_S, now=now)
            self._written, self._written_at = notices, now


def killed_inside(leases: "Leases", *, now: float) -> KillState | None:
    """Return that the variable stops processes which are attached; ``None`` if it stops none."""
    held = leases.holders(STOPPED, now=now).values()
    stopped = [
        (owner, at) for at, owner in map(_split_holder, held) if is_alive(owner) is not False
    ]
    if not stopped:
        return None
    attached = leases.holders(PROCESSES, now=now).values()
    alive = {owner for owner in attached if is_alive(owner) is not False}
    alive |= {owner for owner, _ in stopped}
    named = ", ".join(sorted(owner for owner, _ in stopped)[:_NAMED])
    more = "" if len(stopped) <= _NAMED else ", ..."
    reason = f"{KILL} is set inside {len(stopped)} of {len(alive)} attached processes: "
    return KillState(f"{reason}{named}{more}", "", min(at for _, at in stopped))


def _split_holder(holder: str) -> tuple[float, str]:
    at, _, owner = holder.partition(" ")
    try:
        return float(at), owner
    except ValueError:
        return 0.0, owner


def disabled_plugins(leases: "Leases", *, now: float) -> list[dict[str, object]]:
    """Return the plugins that processes do not call any more, each with hooks, cause and process.

    ``redact`` or ``redact_text`` among the hooks means that the process keeps no text, and leaves
    decisions to the host.
    """
    plugins: list[dict[str, object]] = []
    for holder in leases.holders(DISABLED, now=now).values():
        try:
            facts = dict(mapping(json.loads(holder)))
        except ValueError:  # somebody has spoiled it
            continue
        if is_alive(str(facts.get("process"))) is not False:
            plugins.append(facts)
    return sorted(
        plugins, key=lambda plugin: (str(plugin.get("plugin")), str(plugin.get("process")))
    )
