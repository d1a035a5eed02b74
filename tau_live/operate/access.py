"""Access control of commands, and audit entries that wait for the store.

A JSON file declares who may do what: ``{"schema_version": 1, "team_mode": true, "bindings":
[{"principal": ..., "roles": [...]}], "roles": {"name": {"allow": [...], "deny": [...]}}}``. Any
part of the names of actions and principals may be ``*``. An action that a role denies is denied,
whatever others allow. Where a file is named, but cannot be read or parsed, no action that changes
anything is allowed.

Source: the policy of the reference's control plane, its schema version 1.

Audit entries that the store cannot take wait in a file beside the kill switch. The next process
that has the store open for writing stores them.
"""

import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from errno import EEXIST
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import asdict, replace

from tau_live.core.errors import AccessError, TauLiveError
from tau_live.core.files import give_to_owner_of_folder, make_folders
from tau_live.core.records import AuditEntry
from tau_live.core.settings import Settings
from tau_live.operate.stops import kill_file
from tau_live.store.opening import open_at
from tau_live.store.roles import Store

ACTION = "control:rl:"
"""Prefix of the name of every action; the rest is the name of the command."""

ACTORS = ("TAU_RBAC_LOCAL_ACTOR", "USER", "LOGNAME")
"""The variables that name a principal where no setting does, by precedence."""

LIMIT = 2**20
VERSION = 1
_FIELDS = {"schema_version", "team_mode", "bindings", "roles"}


class Ruling(StrEnum):
    """Why something is allowed or denied."""

    TEAM_MODE_DISABLED = "allow_team_mode_disabled"
    PRINCIPAL_MISSING = "deny_principal_missing"
    UNBOUND_PRINCIPAL = "deny_unbound_principal"
    DENIED = "deny_role_policy"
    ALLOWED = "allow_role_policy"
    NO_MATCHING_ALLOW = "deny_no_matching_allow"

    @property
    def allows(self) -> bool:
        """Whether the action is allowed."""
        return self.value.startswith("allow")


class Role(NamedTuple):
    """The actions that a role allows and denies.

    Attributes:
        allow: Names or patterns of actions.
        deny: Names or patterns of actions that are denied, whatever is allowed.
    """

    allow: Sequence[str]
    deny: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may do what.

    Attributes:
        team_mode: Whether the rules are in force.
        bindings: Names or patterns of principals, each with the names of its roles.
        roles: The roles by name.
    """

    team_mode: bool = False
    bindings: Sequence[tuple[str, Sequence[str]]] = ()
    roles: Mapping[str, Role]

    def ruling(self, principal: str, action: str) -> Ruling:
        """Return whether a principal may do an action, and why."""
        if not self.team_mode:
            return Ruling.TEAM_MODE_DISABLED
        if not principal.strip():
            return Ruling.PRINCIPAL_MISSING
        bound = [names for pattern, names in self.bindings if _matches(pattern, principal)]
        if not bound:
            return Ruling.UNBOUND_PRINCIPAL
        roles = [self.roles[name] for names in bound for name in names]
        if any(_matches(pattern, action) for role in roles for pattern in role.deny):
            return Ruling.DENIED
        if any(_matches(pattern, action) for role in roles for pattern in role.allow):
            return Ruling.ALLOWED
        return Ruling.NO_MATCHING_ALLOW


def principal_of(environ: Mapping[str, str], named: str | None) -> str:
    """Return the calling principal: the one named by a setting, or this machine's user."""
    if named is not None:
        return named
    actors = (environ.get(name, "").strip() for name in ACTORS)
    return f"local:{next(filter(None, actors), 'operator')}"


def check(path: Path | None, principal: str, action: str) -> Ruling:
    """Return why a principal may do an action.

    Args:
        path: The file of access rules; ``None`` allows everybody everything.
        principal: The caller.
        action: The name of the action.

    Raises:
        AccessError: The principal may not, or the file is unusable.
    """
    ruling = (Access(roles={}) if path is None else load_access(path)).ruling(principal, action)
    if not ruling.allows:
        raise AccessError(
            f"unauthorized rl lifecycle action: principal={principal} action={action} "
            f"reason_code={ruling.value} (ask the maintainer of '{path}')"
        )
    return ruling


def load_access(path: Path) -> Access:
    """Return the access that a file declares.

    Raises:
        AccessError: It cannot be read or parsed, or every user may write to it.
    """
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):  # reading a pipe may never end
            raise _unusable(path, "it is not a file")
        if info.st_mode & stat.S_IWOTH:
            raise _unusable(path, "every user may write to it: run chmod o-w on it")
        if info.st_size > LIMIT:
            raise _unusable(path, f"it is longer than {LIMIT} bytes")
        text = path.read_bytes().decode()
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise _unusable(path, "it is not UTF-8") from error
    try:
        return parse_access(text)
    except ValueError as error:
        raise _unusable(path, str(error)) from error


def parse_access(text: str) -> Access:
    """Return the access that a text declares.

    Raises:
        ValueError: It is not JSON, or not of this schema.
    """
    try:
        document = json.loads(text, object_pairs_hook=_unique_fields)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    fields = _object(document, "the file", _FIELDS)
    version = fields.get("schema_version")
    if version != VERSION or isinstance(version, bool):
        raise ValueError(f"unsupported schema version {version!r} (expected {VERSION})")
    team_mode = fields.get("team_mode", False)
    if not isinstance(team_mode, bool):
        raise ValueError(  # noqa: TRY004  # of the text
            f"team_mode must be true or false, got {team_mode!r}"
        )
    roles = {
        name: _role(name, role)
        for name, role in _object(fields.get("roles", {}), "roles", None).items()
    }
    bindings = [
        _binding(binding, roles) for binding in _list(fields.get("bindings", []), "bindings")
    ]
    return Access(team_mode=team_mode, bindings=bindings, roles=roles)


def _binding(value: object, roles: Mapping[str, Role]) -> tuple[str, Sequence[str]]:
    fields = _object(value, "a binding", {"principal", "roles"})
    principal = fields.get("principal")
    if not isinstance(principal, str) or not principal.strip():
        raise ValueError(f"a binding needs a principal, got {principal!r}")
    names = _names(fields.get("roles", []), f"roles of {principal!r}")
    unknown = [name for name in names if name not in roles]
    if unknown:
        raise ValueError(f"{principal!r} is bound to the role {unknown[0]!r}, which does not exist")
    return principal, names


def _role(name: str, value: object) -> Role:
    fields = _object(value, f"the role {name!r}", {"allow", "deny"})
    return Role(*(_names(fields.get(key, []), f"{key} of {name!r}") for key in Role._fields))


def _names(value: object, what: str) -> list[str]:
    names = _list(value, what)
    if not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError(f"{what} must be names, got {_excerpt(value)}")
    return [str(name) for name in names]


def _list(value: object, what: str) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"{what} must be a list, got {_excerpt(value)}")  # noqa: TRY004  # of the text
    return value


def _object(value: object, what: str, fields: set[str] | None) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be an object, got {_excerpt(value)}")  # noqa: TRY004  # as above
    unknown = sorted(value.keys() - fields) if fields is not None else []
    if unknown:
        raise ValueError(f"{what} cannot have {unknown[0]!r}")
    return value


def _unique_fields(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object; refuse a name that appears twice, which would hide its first value."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} appears twice")
    return fields


def _excerpt(value: object) -> str:
    return repr(value)[:80]


def _matches(pattern: str, name: str) -> bool:
    parts = (re.escape(part) for part in pattern.split("*"))
    return re.fullmatch(".*".join(parts), name, re.DOTALL) is not None


def _unusable(path: Path, why: str) -> AccessError:
    return AccessError(f"'{path}' cannot be read, so nothing may be changed: {why}")


MOST_BYTES = 2**20
"""Largest file of waiting entries that ``store_waiting`` stores; ``record_entry`` stores any."""

_BEGINNING = b'{"at":'
"""The beginning of every line."""


def record_entry(settings: Settings, entry: AuditEntry) -> str | None:
    """Record an audit entry; return a warning where the store cannot take it.

    Never raises: the command has already taken effect.
    """
    log = _log_of(settings)
    try:
        if not settings.store.exists():
            raise TauLiveError(  # noqa: TRY301  # as any other failure
                f"there is no store at {settings.store}: if your agents use another, set "
                "--store or TAU_LIVE_RL_STORE"
            )
        _store_entry(settings, log, entry)
    except (TauLiveError, OSError) as error:
        return _append(log, entry, why=str(error))
    return None


def store_waiting(store: Store, settings: Settings) -> int:
    """Store the entries that wait in the file; return how many there were.

    A file that is locked, or that is not ours, is left for the next time, and where this login may
    not write the audit, for one that may.

    Raises:
        StoreUnavailableError: The store cannot take them; they keep waiting.
    """
    log = _log_of(settings)
    if not os.path.lexists(log):  # the usual case
        return 0
    try:
        with _locked_file(log, os.O_RDONLY, wait=False) as file:
            if file is None or not _is_trusted(os.fstat(file)) or not store.audit.may_add():
                return 0
            entries = [*_entries_in(file)]
            with store.begin():
                _add(store, entries)
            log.unlink(missing_ok=True)
            return len(entries)
    except OSError:
        return 0


def _log_of(settings: Settings) -> Path:
    switch = kill_file(settings.store, settings.kill_file)
    return switch.with_name(f"{switch.name}.log")


def _is_trusted(info: os.stat_result) -> bool:
    """Whether nobody else could have written it, so that nobody can forge an operator's entry."""
    ours = info.st_uid in {0, os.geteuid()} and not info.st_mode & 0o022
    return ours and stat.S_ISREG(info.st_mode) and info.st_size <= MOST_BYTES


def _add(store: Store, entries: Sequence[AuditEntry]) -> None:
    """Add the entries that the store does not have yet; called in a transaction."""
    # a process may have died after storing an entry and before deleting the file
    known = {_key(entry) for entry in store.audit.entries(limit=1_000)}
    for entry in entries:
        if _key(entry) not in known:
            store.audit.add(entry)
            known.add(_key(entry))


def _key(entry: AuditEntry) -> bytes:
    return msgspec.json.encode(replace(entry, seq=0), order="sorted")


def _store_entry(settings: Settings, log: Path, entry: AuditEntry) -> None:
    with _locked_file(log, os.O_RDONLY) as file:
        # a command must not wait long for a locked store
        store = open_at(settings.store, busy_timeout_s=0.5, key_file=settings.audit_key_file)
        with closing(store), store.begin():
            if file is not None:
                _add(store, [*_entries_in(file)])
            store.audit.add(entry)
        if file is not None:
            log.unlink(missing_ok=True)


@contextmanager
def _locked_file(log: Path, flags: int, *, wait: bool = True) -> Iterator[int | None]:
    """Open and lock the file, so that nobody else adds to it or deletes it.

    ``None`` if it does not exist or holds something else: its name follows that of the kill file,
    which a setting may choose freely.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # opening a pipe may never return
    while True:
        try:
            file = os.open(log, flags, 0o600)
        except FileNotFoundError:
            yield None
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if os.fstat(file).st_nlink:  # else another process has stored and deleted it
                yield file if _is_log(file) else None
                return
        finally:
            os.close(file)


def _is_log(file: int) -> bool:
    first = os.pread(file, len(_BEGINNING), 0) if stat.S_ISREG(os.fstat(file).st_mode) else b""
    return _BEGINNING.startswith(first.partition(b"\n")[0])  # a full disk cuts a line off anywhere


def _entries_in(file: int) -> Iterator[AuditEntry]:
    with open(file, "rb", closefd=False) as opened:
        lines = opened.read().splitlines()
    for line in lines:
        try:
            yield msgspec.json.decode(line, type=AuditEntry)
        except msgspec.DecodeError:  # cut off by a full disk
            continue


def _append(log: Path, entry: AuditEntry, *, why: str) -> str:
    try:
        make_folders(log.parent)
        with _locked_file(log, os.O_RDWR | os.O_APPEND | os.O_CREAT) as file:
            if file is None:
                raise FileExistsError(EEXIST, f"'{log}' holds something else")
            size = os.fstat(file).st_size
            # a full disk may have cut the last line off
            is_cut = size and os.pread(file, 1, size - 1) != b"\n"
            os.write(file, (b"\n" if is_cut else b"") + msgspec.json.encode(asdict(entry)) + b"\n")
        give_to_owner_of_folder(log)
    except OSError as error:
        return f"the audit log has no entry of this: {why}; {error.strerror or error}"
    return f"the store cannot record its audit entry yet ({why}); it waits in {log}"
