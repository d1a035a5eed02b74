"""Addresses of databases, each with a private file that stands for it on this machine.

Whatever belongs to a store on one machine lies beside it: the kill switch, the status document, the
log of calls. A database has no folder; so its address is kept in a file, whose path is the store's
in all settings. A file that somebody else has written, such as a secret of a container, does too.
The files of all addresses of a database, which may differ in their logins, are in one folder.

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

APART, PORT = "@", "5432"
"""What separates the name of a file from what tells addresses apart; and PostgreSQL's own port."""

_ALMOST = re.compile(
    r"jdbc:|postgres(ql)?:|(host|hostaddr|dbname|service)=|\w+://|[^/]*@[^/:]+:\d+/|[\w.-]+:\d+/",
    re.IGNORECASE,
)

MISTYPED = "looks like an address: that of a database is postgresql://HOST/DATABASE"
"""What is wrong with a text that is mistyped; without it, as it may hold a secret."""

MOST_BYTES = 4096
"""A longer file holds no address."""


def is_address(text: str) -> bool:
    """Return whether a text is the address of a database."""
    return text.startswith(SCHEMES)


def is_mistyped(text: str) -> bool:
    """Return whether a text is no address, but looks like one, and hardly is a path."""
    return not is_address(text) and _ALMOST.match(text) is not None


def file_of(address: str) -> Path:
    """Return the file that stands for a database on this machine, for one of its addresses."""
    host, *others = database = _database_in(address)
    where = re.sub(r"[^\w.-]+", "_", f"{host}/{others[1]}")
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    folder = Path(state).expanduser() / "tau-live" / f"{where}-{_digest(' '.join(database))}"
    return folder / f"store{APART}{_digest(address)}{SUFFIX}"


def shared_name(name: str) -> str:
    """Return the name of a store's file without what tells addresses of its database apart."""
    stem, mark, _ = name.partition(APART)
    return f"{stem}{SUFFIX}" if mark and name.endswith(SUFFIX) else name


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=4).hexdigest()


def _database_in(address: str) -> tuple[str, ...]:
    """Return which database an address leads to, whoever logs in and how.

    Its host, port, name, tenant, and the service that may name them.
    """
    parts = urlsplit(address)
    own = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    host, _, port = parts.netloc.rpartition("@")[2].rpartition(":")
    if not port.isdigit():  # none is named, or several servers are
        host, port = parts.netloc.rpartition("@")[2], ""
    host = own.get("host") or host or own.get("hostaddr", "")
    port = own.get("port") or port or PORT
    direct_host, _, direct_port = own.get("direct", "").rpartition(":")
    host, port = direct_host or host, direct_port or port
    name = own.get("dbname") or parts.path.strip("/") or own.get("user") or parts.username or ""
    host = "localhost" if host in LOCAL else host
    return host, port, name, own.get("tenant", ""), own.get("service", "")


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
