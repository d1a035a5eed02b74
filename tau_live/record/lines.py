"""Sources of another process's lines: a file, a pipe, a Unix socket."""

import errno
import fcntl
import os
import selectors
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tau_live.core.files import make_folders
from tau_live.record.recording import LINE_LIMIT, Line, lines

CONNECTIONS = 128
"""How many are served at once; more wait in the system's queue."""

_CHUNK = 65_536
_POLL_S = 0.1


def file_lines(path: Path, *, limit: int = LINE_LIMIT) -> Iterator[Line]:
    """Yield the lines of a file.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb") as file:
        yield from lines(file, limit=limit)


def stdin_lines(*, limit: int = LINE_LIMIT) -> Iterator[Line]:
    """Yield each line of the standard input as soon as it is complete."""
    yield from lines(sys.stdin.buffer, limit=limit)


class _Connection:
    """A connection, and the beginning of its last line."""

    def __init__(self, number: int, peer: socket.socket) -> None:
        self.number = number
        self.peer = peer
        self._parts = bytearray()
        self._skipping = False

    def lines(self, data: bytes, limit: int) -> Iterator[bytes]:
        """Yield the lines completed by more bytes, without those that are too long."""
        *ended, rest = data.split(b"\n")
        for piece in ended:
            self._extend(piece, limit)
            if not self._skipping:
                yield bytes(self._parts)
            self._parts.clear()
            self._skipping = False
        self._extend(rest, limit)

    def rest(self) -> bytes:
        """Return the last line of a closed connection, if no newline ended it."""
        return bytes(self._parts)

    def _extend(self, piece: bytes, limit: int) -> None:
        if self._skipping:
            return
        self._parts += piece
        if len(self._parts) > limit:
            self._parts.clear()
            self._skipping = True


class _Server:
    """Serves connections in the thread that calls it, one event at a time."""

    def __init__(
        self, listener: socket.socket, handle_line: Callable[[int, bytes | None], None], limit: int
    ) -> None:
        self._listener = listener
        self._handle = handle_line
        self._limit = limit
        self._selector = selectors.DefaultSelector()
        self._open: dict[int, _Connection] = {}
        self._listening = False
        self._numbers = count(1)

    def run(self, stop: threading.Event) -> None:
        try:
            self._listen()
            while not stop.is_set():
                for key, _ in self._selector.select(_POLL_S):
                    if key.data is None:
                        self._accept()
                    else:
                        self._receive(key.data)
            for connection in [*self._open.values()]:
                self._drain(connection)
        finally:
            for connection in self._open.values():
                connection.peer.close()
            self._selector.close()

    def _listen(self) -> None:
        if not self._listening and len(self._open) < CONNECTIONS:
            self._selector.register(self._listener, selectors.EVENT_READ, None)
            self._listening = True

    def _accept(self) -> None:
        try:
            peer, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):  # the peer is gone again
            return
        peer.setblocking(False)
        connection = _Connection(next(self._numbers), peer)
        self._open[connection.number] = connection
        self._selector.register(peer, selectors.EVENT_READ, connection)
        if len(self._open) >= CONNECTIONS:
            self._selector.unregister(self._listener)
            self._listening = False

    def _receive(self, connection: _Connection) -> bool:
        """Take the received lines; return whether there may be more."""
        try:
            data = connection.peer.recv(_CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # the peer was killed
            data = b""
        for line in connection.lines(data, self._limit):
            self._handle(connection.number, line)
        if not data:
            self._close(connection)
        return bool(data)

    def _drain(self, connection: _Connection) -> None:
        """Take all lines that the peer has sent by now, and close the connection."""
        for _ in range(1 + self._limit // _CHUNK):
            if not self._receive(connection):
                break
        if connection.number in self._open:
            self._close(connection)

    def _close(self, connection: _Connection) -> None:
        self._selector.unregister(connection.peer)
        connection.peer.close()
        del self._open[connection.number]
        if connection.rest():
            self._handle(connection.number, connection.rest())
        self._handle(connection.number, None)
        self._listen()


def serve_unix(
    path: Path,
    handle_line: Callable[[int, bytes | None], None],
    stop: threading.Event,
    *,
    limit: int = LINE_LIMIT,
) -> None:
    """Serve a Unix socket until ``stop`` is set, which takes at most a tenth of a second.

    Lines sent by then are still taken. Only the socket's owner can connect. A stale socket is
    replaced.

    Args:
        path: The socket; a missing folder is created, for its owner alone.
        handle_line: Called in this thread with the number of a connection, from 1, and a line of
            it, or ``None`` at its end; an exception ends the serving.
        stop: Set to end it.
        limit: Bytes beyond which a line is skipped.

    Raises:
        FileExistsError: ``path`` exists and is not a socket.
        OSError: Another process listens there (``EADDRINUSE``), or it cannot be created.
    """
    with _bind(path) as listener:
        _Server(listener, handle_line, limit).run(stop)


@contextmanager
def _bind(path: Path) -> Iterator[socket.socket]:
    make_folders(path.parent)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)  # two starting servers must not replace each other
            _remove_stale(path)
            os.fchmod(listener.fileno(), 0o600)  # so that it is never open to others (Linux)
            listener.bind(os.fspath(path))
            path.chmod(0o600)
            listener.listen(CONNECTIONS)
        finally:
            os.close(folder)
        listener.setblocking(False)
        own = path.stat().st_ino
        try:
            yield listener
        finally:
            if path.is_socket() and path.stat().st_ino == own:
                path.unlink()


def _remove_stale(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise FileExistsError(errno.EEXIST, "it is not a socket", str(path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise OSError(errno.EADDRINUSE, "another process is already listening there", str(path))
