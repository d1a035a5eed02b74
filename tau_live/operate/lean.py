"""The commands `gate` and `kill` without the imports of click.

Monitors call those two every few seconds, and operators in an emergency. The plain case (no file of
settings, no plugin, a gate that passes) is handled here without importing the command line, and
ends as the command itself would; anything else is left to that, before anything was done.
"""

import os
import sys

from tau_live.core.standard_streams import ClosedOutput, open_closed

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PLAIN_SETTINGS = frozenset({"TAU_LIVE_RL_STORE"})
_CLI_VARIABLES = (
    "COLUMNS", "FORCE_COLOR", "TAU_LIVE_FOLDER", "TTY_COMPATIBLE", "_TAU_LIVE_COMPLETE"
)  # fmt: skip
_REASON_CHARS = 120
_WORD_CHARS = 16
_SECRET_HINTS = (
    *("pass", "pwd", "secret", "token", "key", "credential", "bearer", "basic", "auth", "cookie"),
    *("login", "curl", "identified", "echo", "http", "mysql", "mongo", "redis", "ldap", "zip"),
    *("vault", "smbclient", "docker", "podman", "sql", "session", "webhook"),
)
"""Words that may precede a secret."""


def run_plain(arguments: "Sequence[str]") -> int | None:
    """Run a plain `gate` or `kill` and return its exit code; ``None`` leaves it to click."""
    open_closed(arguments)
    try:
        code = _run_plain(arguments, os.environ)
        if code is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except OSError as error:  # a full disk; what was to be done is done
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stderr.write(f"tau-live: {error.strerror or error}\n")
        return 1
    return code


def _run_plain(arguments: "Sequence[str]", environ: "Mapping[str, str]") -> int | None:
    """Return the exit code; ``None`` leaves the call to the command line."""
    command, *rest = arguments or [""]
    if command == "gate" and rest[:1] == ["show"]:
        rest = rest[1:]
    if command not in {"gate", "kill"} or isinstance(sys.stdout.buffer, ClosedOutput):
        return None
    options = _options(rest, ("--store", "--reason") if command == "kill" else ("--store",))
    if options is None or any(name in environ for name in _CLI_VARIABLES):
        return None
    store = _store(options.get("--store"), environ)
    try:
        if store is None or not store.is_file() or store.stat().st_size < 512:
            return None
    except OSError:  # a folder that is closed to us, a name that is too long
        return None
    as_json = "--json" in options
    if command == "kill":
        return _kill(store, options.get("--reason", ""), as_json=as_json)
    return _gate(store, as_json=as_json)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def _options(rest: "Sequence[str]", valued: "Sequence[str]") -> dict[str, str] | None:
    options: dict[str, str] = {}
    words = iter(rest)
    for name in words:
        value = next(words, "") if name in valued else ""
        if name in options or (name in valued and (not value or value.startswith("-"))):
            return None
        if name not in (*valued, "--json"):
            return None
        options[name] = value
    return options


def _store(option: str | None, environ: "Mapping[str, str]") -> "Path | None":
    """Return the path of the store; ``None`` where more than that has been set."""
    from pathlib import Path

    from tau_live.core.switch import PREFIX, switched_on

    ours = {name for name in environ if name.startswith(PREFIX)}
    if not ours <= _PLAIN_SETTINGS or switched_on(environ).warnings:
        return None
    try:
        folder = Path.cwd()
        for parent in (folder, *folder.parents):
            file = parent / "pyproject.toml"
            if file.is_file() and b"tau-live" in (text := file.read_bytes()):
                import tomllib

                if "tau-live" in tomllib.loads(text.decode()).get("tool", {}):
                    return None
    except (OSError, ValueError, AttributeError, TypeError, RecursionError):
        return None
    path = option or environ.get("TAU_LIVE_RL_STORE", "").strip() or ".tau/live/store.sqlite"
    is_address = "://" in path or path.endswith(".address")
    if is_address or not path.isprintable() or {"~", "$"} & {*path}:
        return None
    return folder / path


def _gate(store: "Path", *, as_json: bool) -> int | None:
    """Print a gate that passes."""
    import json

    from tau_live.store.lean import read_gate

    beside = {end: store.with_name(store.name + end) for end in (".off", ".held")}
    if os.path.lexists(beside[".off"]) or _is_locked(beside[".held"]):
        return None
    row = read_gate(store)
    if row is None or row[0] != "pass":
        return None
    state, reason, detail, since, streaks, revision = row
    try:
        failures = json.loads(streaks)
        has_failed = any(failures.values())
    except (ValueError, AttributeError, RecursionError):
        return None
    if as_json:
        snapshot = {
            "state": state, "reason": reason, "detail": detail, "since": since or None,
            "streaks": failures, "revision": revision, "kill_switch": None, "held_in_memory": [],
            "hosts_holding": [], "reaches_within_s": 1.0, "not_acknowledged": [],
        }  # fmt: skip
        _print(json.dumps(snapshot))
        return 0
    if since or detail or has_failed or sys.stdout.isatty():
        return None
    _print("gate               pass\nfailures in a row  none")
    return 0


def _is_locked(file: "Path") -> bool:
    """Return whether a process may hold in memory, which it shows by a lock on this file."""
    if not os.path.lexists(file):
        return False
    if sys.platform != "linux":
        return True
    import fcntl
    import struct

    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            owner = struct.unpack("hhqqi4x", fcntl.fcntl(descriptor, fcntl.F_GETLK, lock))
        finally:
            os.close(descriptor)
    except OSError:
        return True
    return int(owner[0]) != fcntl.F_UNLCK


def _kill(store: "Path", reason: str, *, as_json: bool) -> int | None:
    """Switch everything off, then record it."""
    switch = store.with_name(f"{store.name}.off")
    if not is_plain(reason) or not is_plain(_user().replace("-", " ")) or _has_plugins():
        return None
    if os.path.lexists(switch) or os.path.lexists(f"{switch}.log"):
        return None
    import json
    import time

    from tau_live.operate.stops import kill

    who, at, reason = _operator(), time.time(), reason.strip()
    try:
        if kill(switch, reason, who=who, at=at) is not None:
            return None  # somebody was quicker, which the command reports
    except OSError:
        return None
    problem = _record(store, who=who, at=at, reason=reason)
    if as_json:
        killed = {"reason": reason, "who": who, "at": at}
        done = {"changed": True, "file": str(switch), "kill_switch": killed, "audit": problem}
        _print(json.dumps(done))
    else:
        _print(f"kill switch on (created {switch}); every process stops within a second")
        if problem is not None:
            sys.stderr.write(f"note: {problem}\n")
    return 0


def _operator() -> str:
    return f"{_user()}@{os.uname().nodename}"


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return f"uid {os.getuid()}"


def _record(store: "Path", *, who: str, at: float, reason: str) -> str | None:
    """Record that everything was switched off; return why the store cannot record it, if so."""
    import json

    from tau_live.store.lean import add_line

    details = {"file": f"{store}.off", "idempotent": False}
    if add_line(store, (at, who, reason, json.dumps(details, separators=(",", ":")))):
        return None
    from tau_live.core.records import AuditEntry
    from tau_live.core.settings import Settings
    from tau_live.operate.access import record_entry

    entry = AuditEntry(at=at, who=who, action="kill", reason=reason, details=details)
    return record_entry(Settings(store=store), entry)


def is_plain(reason: str) -> bool:
    """Return whether a reason consists of ordinary words, which cannot contain a secret."""
    words, low = reason.split(), reason.lower()
    return (
        bool(words)
        and len(reason) <= _REASON_CHARS
        and reason.isascii()
        and all(c.isalpha() or c in " .,?!" for c in reason)
        and all(len(word) <= _WORD_CHARS for word in words)
        and not any(hint in low for hint in _SECRET_HINTS)
    )


def _has_plugins() -> bool:
    """Return whether a foreign plugin may be installed, which may want to see a reason."""
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")  # noqa: PTH208  # names alone, at a third of the time
        except OSError:
            continue
        for name in names:
            if name.endswith((".dist-info", ".egg-info")) and not name.startswith("tau_live-"):
                try:
                    with open(os.path.join(folder, name, "entry_points.txt"), "rb") as file:  # noqa: PTH118, PTH123
                        if b"[tau_live]" in file.read():
                            return True
                except OSError:
                    continue
    return False
