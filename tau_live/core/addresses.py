"""Addresses of databases, each with a private file that stands for it on this machine.

Whatever belongs to a store on one machine lies beside it: the kill switch, the status document, the
log of calls. A database has no folder; so its address is kept in a file, whose path is the store's
in all settings. A file that somebody else has written, such as a secret of a container, does too.

Such a file is known by its name alone. Any other may be a store of SQLite, which must never be
opened and closed beside it: that gives away the locks of the whole process.
"""

import os
import re
from hashlib import blake2b
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tau_live.core.files import make_folders, write_whole

SCHEMES = ("postgresql://", "postgres://")

SUFFIX = ".address"
"""How the name of a file ends that holds an address."""

LOCAL = frozenset({"", "localhost", "127.0.0.1", "::1"})
"""Hosts that are this machine."""

WHERE = frozenset({"host", "hostaddr", "port", "dbname", "user", "service", "tenant", "options"})
"""The parameters of an address that say which store it is."""

TENANT = re.compile(r"[a-z][a-z0-9_]{0,44}")
"""What a tenant of a database is named: a schema, whose name needs no quotes and fits in roles'."""

MOST_BYTES = 4096
"""A longer file holds no address."""


def is_address(text: str) -> bool:
    """Return whether a text is the address of a database."""
    return text.startswith(SCHEMES)


def file_of(address: str) -> Path:
    """Return the file that stands for a database on this machine."""
    parts = urlsplit(address)
    where = re.sub(r"[^\w.-]+", "_", f"{parts.hostname or 'localhost'}{parts.path}")
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    digest = blake2b(address.encode(), digest_size=4).hexdigest()
    return Path(state).expanduser() / "tau-live" / f"{where}-{digest}" / f"store{SUFFIX}"


def is_remote(address: str) -> bool:
    """Return whether a database is on another machine: neither on loopback nor on a socket."""
    parts = urlsplit(address)
    own = parse_qs(parts.query)
    hosts = own.get("host") or [parts.hostname or own.get("hostaddr", [""])[-1]]
    return not all(host in LOCAL or host.startswith("/") for host in hosts[-1].split(","))


def where_in(address: str) -> str:
    """Return what an address says of where a store is, and no secret: who logs in to what."""
    parts = urlsplit(address)
    user, _, hosts = parts.netloc.rpartition("@")
    login = f"{user.partition(':')[0]}@" if user else ""
    own = sorted(part for part in parts.query.split("&") if part.partition("=")[0] in WHERE)
    query = f"?{'&'.join(own)}" if own else ""
    return f"postgresql://{login}{hosts}{parts.path}{query}"


def split_own(address: str, name: str) -> tuple[str, str]:
    """Return an address without a parameter that is not PostgreSQL's, and its value, if any.

    Raises:
        ValueError: It has more than one.
    """
    head, _, query = address.partition("?")
    parts = query.split("&")
    values = [part.partition("=")[2] for part in parts if part.startswith(f"{name}=")]
    if not values:
        return address, ""
    if len(values) > 1:
        raise ValueError(f"expected one {name}, got {', '.join(values)}")
    others = "&".join(part for part in parts if not part.startswith(f"{name}="))
    return f"{head}?{others}" if others else head, values[0]


def split_tenant(address: str) -> tuple[str, str]:
    """Return an address without ``tenant=NAME``, and the name; empty where it names none.

    Raises:
        ValueError: It names more than one, or what cannot be one.
    """
    others, name = split_own(address, "tenant")
    if others != address and not TENANT.fullmatch(name):
        raise ValueError(f"a tenant is {TENANT.pattern}, got {name!r}")
    return others, name


def with_tenant(address: str, name: str) -> str:
    """Return an address that names no tenant with one."""
    return f"{address}{'&' if '?' in address else '?'}tenant={name}"


def keep(address: str) -> Path:
    """Write the file that stands for a database, and return it.

    Raises:
        OSError: It cannot be written.
    """
    file = file_of(address)
    if address_in(file) != address:
        make_folders(file.parent)
        write_whole(file, address.encode() + b"\n")
    return file


def address_in(file: Path) -> str | None:
    """Return the address that a file holds; ``None`` if it holds none."""
    try:
        if file.suffix != SUFFIX or not file.is_file() or file.stat().st_size > MOST_BYTES:
            return None
        text = file.read_text("utf-8").strip()
    except (OSError, ValueError):
        return None
    return text if is_address(text) else None
