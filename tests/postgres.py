"""A real PostgreSQL server for tests: in a folder of its own, reached by its socket alone."""

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from socket import socket
from typing import Any

import pytest

from tau_live.store.opening import open_at

TEMPLATE = "tau_live_template"
MEMORY = Path("/dev/shm")
ROOM = 8 << 30
"""Bytes that have to be free in memory for a server of many small databases."""
KEPT = 50
"""Databases of a server in memory; one more, and the oldest is dropped."""

_numbers = count()


def programs() -> Path | None:
    """Return the folder of the server's programs; ``None`` where it is not installed."""
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    return next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)


def why_absent() -> str | None:
    """Return why there is no server here; ``None`` if there can be one."""
    if programs() is None:
        return "no PostgreSQL server here: install Debian's postgresql"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "no psycopg here: `pip install 'tau-live[postgres]'`"
    return None


needs_postgres = pytest.mark.skipif(why_absent() is not None, reason=why_absent() or "")


class Server:
    """A server in a folder of its own, which is removed with it.

    Attributes:
        folder: The folder of its socket.
        data: The folder of its databases.
        port: Where it answers, once it listens.
    """

    port = 5432

    def __init__(self, *, in_memory: bool = False, connections: int = 200) -> None:
        self._connections = connections
        parent = MEMORY if in_memory else Path("/tmp")
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir=parent))  # sockets have short paths
        self.data = self.folder / "data"
        self._in_memory = in_memory
        self._databases: deque[str] = deque()
        if os.getuid() == 0:
            shutil.chown(self.folder, "postgres", "postgres")
        self.run("initdb", "-U", "tau", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        self.start()

    def start(self, listen: str = "") -> None:
        """Start it, and wait until it answers."""
        options = f"-k {self.folder} -c listen_addresses={listen}"
        options += f" -c max_connections={self._connections}"
        log = str(self.folder / "log")
        self.run("pg_ctl", "start", "--wait", "--log", log, "--options", options)

    def listen(self, *certified: Path) -> None:
        """Answer on this machine's network too; with a key and a certificate, encrypted."""
        for file in certified:
            copy = self.data / file.name
            shutil.copy(file, copy)
            copy.chmod(0o600)
            if os.getuid() == 0:
                shutil.chown(copy, "postgres", "postgres")
        with socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.stop()
        with (self.data / "postgresql.auto.conf").open("a") as own:
            own.write(f"port = {self.port}\n")
            if certified:
                key, certificate = (file.name for file in certified)
                own.write(f"ssl = on\nssl_key_file = '{key}'\nssl_cert_file = '{certificate}'\n")
        self.start("127.0.0.1")

    def stop(self, how: str = "immediate") -> None:
        """Stop it; ``immediate`` is as if it were killed."""
        self.run("pg_ctl", "stop", "--mode", how)

    def hang(self) -> None:
        """Stop all of its processes where they are, until ``go_on``; nothing is refused."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let them go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        for folder in self._processes():
            with suppress(OSError):
                os.kill(int(folder.name), number)

    def _processes(self) -> Iterator[Path]:
        """Yield what the kernel says of each of its processes, the main one first."""
        main = (self.data / "postmaster.pid").read_text().split()[0]
        yield Path("/proc") / main
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                if stat.read_text().rpartition(")")[2].split()[1] == main:
                    yield stat.parent

    def processor_s(self) -> float:
        """Return the seconds of processor time of all of its processes, ended ones included."""
        main, *others = self._processes()
        *_, user, system = (main / "stat").read_text().rpartition(")")[2].split()[:15]
        ended_s = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        spent_ns = 0
        for folder in (main, *others):
            with suppress(OSError):
                spent_ns += int((folder / "schedstat").read_text().split()[0])
        return ended_s + spent_ns / 1e9

    def back_up(self) -> None:
        """Keep a copy of all of its data, of this moment."""
        self.stop("fast")
        subprocess.run(["cp", "-a", str(self.data), str(self.folder / "copy")], check=True)
        self.start()

    def fail_over(self) -> None:
        """Go on from the copy, as a standby would that was promoted then."""
        self.stop()
        shutil.rmtree(self.data)
        (self.folder / "copy").rename(self.data)
        signal_file = self.data / "recovery.signal"
        signal_file.touch()
        if os.getuid() == 0:
            shutil.chown(signal_file, "postgres", "postgres")
        with (self.data / "postgresql.auto.conf").open("a") as own:
            own.write("restore_command = 'false'\n")
        self.start()

    def remove(self) -> None:
        """Stop it and remove its folder."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, program: str, *arguments: str) -> None:
        """Run one of its programs; not as root, which the server refuses."""
        folder = programs()
        assert folder is not None
        command: Sequence[str] = [str(folder / program), "--pgdata", str(self.data), *arguments]
        if os.getuid() == 0:
            own = ("--reuid=postgres", "--regid=postgres", "--clear-groups")
            command = ["setpriv", *own, *command]
        done = subprocess.run(
            command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert done.returncode == 0, done.stderr

    def address(self, database: str) -> str:
        """Return the address of a database."""
        return f"postgresql://tau@/{database}?host={self.folder}"

    def new_database(self, *, empty: bool = False) -> str:
        """Make a database, with the tables of a store unless it is ``empty``; its address."""
        import psycopg

        name = f"case_{next(_numbers)}"
        template = "template0" if empty else TEMPLATE
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            if not empty and not _is_there(connection, TEMPLATE):
                connection.execute(f"create database {TEMPLATE}")
                open_at(self.address(TEMPLATE)).close()
            made = f"create database {name} template {template}"
            if self._in_memory:  # both wait for a checkpoint, which a disk takes a second for
                if len(self._databases) == KEPT:
                    connection.execute(f"drop database {self._databases.popleft()} with (force)")
                self._databases.append(name)
                made += " strategy file_copy"
            connection.execute(made)
        return self.address(name)


def _is_there(connection: Any, database: str) -> bool:
    found = connection.execute("select 1 from pg_database where datname = %s", (database,))
    return found.fetchone() is not None


@cache
def server(*, in_memory: bool = False) -> Server:
    """Return the server of this process, started when it is first needed.

    One in memory, where that has room, is for tests that a disk adds nothing to but time. What is
    killed or measured is on a disk.
    """
    has_room = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM
    started = Server(in_memory=in_memory and has_room)
    atexit.register(started.remove)
    return started
