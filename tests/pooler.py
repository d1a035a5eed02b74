"""A real PgBouncer before a server of the tests, in transaction mode with few sessions."""

import os
import shutil
import signal
import subprocess
import time

import pytest

from tests.postgres import Server, why_absent

SESSIONS = 3

INI = """
[databases]
* = host={folder} port={port}
[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = {folder}
pool_mode = transaction
default_pool_size = {sessions}
max_client_conn = 200
server_idle_timeout = 1
ignore_startup_parameters = {ignored}
auth_type = trust
auth_file = {folder}/users
logfile = {folder}/pooler.log
pidfile = {folder}/pooler.pid
"""


def program() -> str | None:
    """Return the path of PgBouncer; ``None`` where it is not installed."""
    return shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")


def _why_absent() -> str | None:
    return why_absent() or (None if program() else "no PgBouncer here: install Debian's pgbouncer")


needs_pooler = pytest.mark.skipif(_why_absent() is not None, reason=_why_absent() or "")


class Pooler:
    """A pooler before a server, in its folder, until it is stopped.

    Args:
        server: The server.
        logins: Its logins that may use the pooler.
        ignored: What of an address is dropped; anything else that it does not know is refused.
    """

    def __init__(self, server: Server, *logins: str, ignored: str = "options") -> None:
        self._folder = server.folder
        users, own = self._folder / "users", self._folder / "pooler.ini"
        users.write_text("".join(f'"{login}" ""\n' for login in ("tau", *logins)))
        own.write_text(
            INI.format(folder=self._folder, port=server.port, sessions=SESSIONS, ignored=ignored)
        )
        command = [program() or "", "--quiet", str(own)]
        if os.getuid() == 0:
            for file in (users, own):
                shutil.chown(file, "postgres", "postgres")
            command = [
                "setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", *command,
            ]  # fmt: skip
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        socket, end = self._folder / ".s.PGSQL.6432", time.monotonic() + 10.0
        while not socket.exists():
            assert self._process.poll() is None and time.monotonic() < end, self._log()
            time.sleep(0.01)

    def _log(self) -> str:
        log = self._folder / "pooler.log"
        return log.read_text() if log.exists() else ""

    def address(self, address: str) -> str:
        """Return the address of a database past the pooler as one that goes through it."""
        return f"{address}&port=6432"

    def stop(self) -> None:
        """Stop it."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(10.0)
        assert self._process.stderr is not None
        self._process.stderr.close()
