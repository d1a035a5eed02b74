"""Who may do what: principals, their roles, and what these allow and deny.

A file of JSON says it: ``{"schema_version": 1, "team_mode": true, "bindings": [{"principal": ...,
"roles": [...]}], "roles": {"name": {"allow": [...], "deny": [...]}}}``. Of names of actions and of
principals any part may be ``*``. What a role denies is denied, whatever others allow. Where a
file is named, but cannot be read or understood, nothing that changes anything is allowed.

Source: the policy of the reference's control plane, its schema version 1.
"""

import json
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from tau_live.errors import AccessError

ACTION = "control:rl:"
"""Begins the name of every action; the rest is the name of the command."""

ACTORS = ("TAU_RBAC_LOCAL_ACTOR", "USER", "LOGNAME")
"""The variables that name a principal where no setting does, the first goes first."""

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
        """Whether it may be done."""
        return self.value.startswith("allow")


class Role(NamedTuple):
    """What a role may do.

    Attributes:
        allow: Names or patterns of actions.
        deny: Those that it may not, whatever is allowed.
    """

    allow: Sequence[str]
    deny: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may do what.

    Attributes:
        team_mode: Whether any of it counts.
        bindings: Names or patterns of principals, each with the names of its roles.
        roles: The roles by name.
    """

    team_mode: bool = False
    bindings: Sequence[tuple[str, Sequence[str]]] = ()
    roles: Mapping[str, Role]

    def ruling(self, principal: str, action: str) -> Ruling:
        """Return whether a principal may do something, and why."""
        if not self.team_mode:
            return Ruling.TEAM_MODE_DISABLED
        if not principal.strip():
            return Ruling.PRINCIPAL_MISSING
        bound = [names for pattern, names in self.bindings if _fits(pattern, principal)]
        if not bound:
            return Ruling.UNBOUND_PRINCIPAL
        roles = [self.roles[name] for names in bound for name in names]
        if any(_fits(pattern, action) for role in roles for pattern in role.deny):
            return Ruling.DENIED
        if any(_fits(pattern, action) for role in roles for pattern in role.allow):
            return Ruling.ALLOWED
        return Ruling.NO_MATCHING_ALLOW


NOBODY_SAYS = Access(roles={})
"""What is in force where no file is named: everybody may do everything."""


def principal_of(environ: Mapping[str, str], named: str | None) -> str:
    """Return who calls: the one that a setting names, or who this machine says it is."""
    if named is not None:
        return named
    actors = (environ.get(name, "").strip() for name in ACTORS)
    return f"local:{next(filter(None, actors), 'operator')}"


def check(path: Path | None, principal: str, action: str) -> Ruling:
    """Return why a principal may do something.

    Raises:
        AccessError: It may not, or the file cannot be understood.
    """
    ruling = (NOBODY_SAYS if path is None else read(path)).ruling(principal, action)
    if not ruling.allows:
        raise AccessError(
            f"unauthorized rl lifecycle action: principal={principal} action={action} "
            f"reason_code={ruling.value} (ask the maintainer of '{path}')"
        )
    return ruling


def read(path: Path) -> Access:
    """Return what a file says.

    Raises:
        AccessError: It cannot be read, is no such file, or everybody may write it.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # to read a pipe may never end
            raise _unusable(path, "it is not a file")
        if found.st_mode & stat.S_IWOTH:
            raise _unusable(path, "every user may write to it: run chmod o-w on it")
        if found.st_size > LIMIT:
            raise _unusable(path, f"it is longer than {LIMIT} bytes")
        text = path.read_bytes().decode()
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise _unusable(path, "it is not UTF-8") from error
    try:
        return parsed(text)
    except ValueError as error:
        raise _unusable(path, str(error)) from error


def parsed(text: str) -> Access:
    """Return what the text of a file says.

    Raises:
        ValueError: It is not JSON, or says what it cannot say.
    """
    try:
        said = json.loads(text, object_pairs_hook=_once)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    fields = _object(said, "the file", _FIELDS)
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
    bindings = [_binding(one, roles) for one in _list(fields.get("bindings", []), "bindings")]
    return Access(team_mode=team_mode, bindings=bindings, roles=roles)


def _binding(said: object, roles: Mapping[str, Role]) -> tuple[str, Sequence[str]]:
    fields = _object(said, "a binding", {"principal", "roles"})
    principal = fields.get("principal")
    if not isinstance(principal, str) or not principal.strip():
        raise ValueError(f"a binding needs a principal, got {principal!r}")
    names = _names(fields.get("roles", []), f"roles of {principal!r}")
    unknown = [name for name in names if name not in roles]
    if unknown:
        raise ValueError(f"{principal!r} is bound to the role {unknown[0]!r}, which does not exist")
    return principal, names


def _role(name: str, said: object) -> Role:
    fields = _object(said, f"the role {name!r}", {"allow", "deny"})
    return Role(
        _names(fields.get("allow", []), f"allow of {name!r}"),
        _names(fields.get("deny", []), f"deny of {name!r}"),
    )


def _names(said: object, what: str) -> list[str]:
    names = _list(said, what)
    if not all(isinstance(name, str) and name.strip() for name in names):
        raise ValueError(f"{what} must be names, got {_cut(said)}")
    return [str(name) for name in names]


def _list(said: object, what: str) -> list[object]:
    if not isinstance(said, list):
        raise ValueError(f"{what} must be a list, got {_cut(said)}")  # noqa: TRY004  # of the text
    return said


def _object(said: object, what: str, fields: set[str] | None) -> dict[str, object]:
    if not isinstance(said, dict):
        raise ValueError(f"{what} must be an object, got {_cut(said)}")  # noqa: TRY004  # as above
    unknown = sorted(said.keys() - fields) if fields is not None else []
    if unknown:
        raise ValueError(f"{what} cannot have {unknown[0]!r}")
    return said


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object; a name that stands there twice would hide what it said first."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} appears twice")
    return found


def _cut(said: object) -> str:
    return repr(said)[:80]


def _fits(pattern: str, name: str) -> bool:
    parts = (re.escape(part) for part in pattern.split("*"))
    return re.fullmatch(".*".join(parts), name, re.DOTALL) is not None


def _unusable(path: Path, why: str) -> AccessError:
    return AccessError(f"'{path}' cannot be read, so nothing may be changed: {why}")
