"""Lines come in from files, pipes and sockets, each as soon as it is there."""

import errno
import os
import queue
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.record import lines as line_sources
from tau_live.record.lines import file_lines, serve_unix
from tau_live.record.recording import Line

Told = tuple[int, bytes | None]


class Serving:
    """A socket that is served, and what it was told."""

    def __init__(self, path: Path, future: "Future[None]", stop: threading.Event) -> None:
        self.path = path
        self.future = future
        self.stop = stop
        self.told: queue.Queue[Told] = queue.Queue()

    def connect(self) -> socket.socket:
        """Connect as soon as it listens."""
        while True:
            peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                peer.connect(os.fspath(self.path))
                return peer
            except (FileNotFoundError, ConnectionRefusedError):
                peer.close()
                if self.future.done():
                    self.future.result()

    def next(self, number: int = 1) -> list[Told]:
        return [self.told.get(timeout=10) for _ in range(number)]


@contextmanager
def serving(path: Path, limit: int = 1_000) -> Iterator[Serving]:
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        future: Future[None] = Future()
        server = Serving(path, future, stop)

        def tell(number: int, line: bytes | None) -> None:
            server.told.put((number, line))

        server.future = pool.submit(serve_unix, path, tell, stop, limit=limit)
        try:
            yield server
        finally:
            stop.set()


def test_a_line_comes_as_soon_as_it_is_there(tmp_path: Path) -> None:
    with serving(tmp_path / "s") as server, server.connect() as peer:
        peer.sendall(b"one\ntw")
        first = server.next()
        peer.sendall(b"o\n")

        assert first + server.next() == [(1, b"one"), (1, b"two")]


def test_many_connections_at_once_are_kept_apart(tmp_path: Path) -> None:
    barrier = threading.Barrier(20)

    with serving(tmp_path / "s") as server:

        def send(name: int) -> None:
            with server.connect() as peer:
                barrier.wait()
                for number in range(50):
                    peer.sendall(f"{name}:{number}\n".encode())

        with ThreadPoolExecutor(20) as pool:
            list(pool.map(send, range(20)))
        told = server.next(20 * 51)
        server.stop.set()
        server.future.result()

    by_connection: dict[int, list[bytes | None]] = {}
    for number, line in told:
        by_connection.setdefault(number, []).append(line)
    names = [lines[0].split(b":")[0] for lines in by_connection.values() if lines[0]]
    assert sorted(map(int, names)) == [*range(20)]
    for name, lines in zip(names, by_connection.values(), strict=True):
        assert lines == [*(b"%s:%d" % (name, number) for number in range(50)), None]


def test_more_connections_than_are_served_at_once_wait_for_their_turn(tmp_path: Path) -> None:
    with serving(tmp_path / "s") as server:
        peers = [server.connect() for _ in range(line_sources.CONNECTIONS + 5)]
        for peer in peers:
            peer.sendall(b"x\n")
            peer.close()

        told = server.next(2 * len(peers))

    assert sorted(number for number, line in told if line) == [*range(1, len(peers) + 1)]


def test_a_line_too_long_is_skipped(tmp_path: Path) -> None:
    with serving(tmp_path / "s", limit=10) as server, server.connect() as peer:
        peer.sendall(b"x" * 300_000 + b"\n" + b"y" * 10 + b"\n" + b"z" * 11 + b"\nlast\n")
        told = server.next(2)
        server.stop.set()
        server.future.result()

    assert told == [(1, b"y" * 10), (1, b"last")]


def test_a_last_line_without_a_newline_is_told(tmp_path: Path) -> None:
    with serving(tmp_path / "s") as server:
        with server.connect() as peer:
            peer.sendall(b"one\ntw")

        assert server.next(3) == [(1, b"one"), (1, b"tw"), (1, None)]


def test_a_last_line_too_long_is_not_told(tmp_path: Path) -> None:
    with serving(tmp_path / "s", limit=10) as server:
        with server.connect() as peer:
            peer.sendall(b"x" * 11)

        assert server.next() == [(1, None)]


@pytest.mark.timed
def test_stop_takes_in_what_was_sent_and_ends_promptly(tmp_path: Path) -> None:
    with serving(tmp_path / "s") as server, server.connect() as peer:
        peer.sendall(b"hello\n")
        server.next()
        peer.sendall(b"late\n")
        began = time.monotonic()
        server.stop.set()
        server.future.result(timeout=5)

        assert time.monotonic() - began < 2.0
    assert server.next(2) == [(1, b"late"), (1, None)]
    assert not server.path.exists()


def test_only_the_owner_can_reach_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "s"

    with serving(path) as server, server.connect():
        modes = [stat.S_IMODE(one.stat().st_mode) for one in (path.parent, path)]

    assert modes == [0o700, 0o600]


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(os.fspath(path))

    with serving(path) as server, server.connect() as peer:
        peer.sendall(b"x\n")

        assert server.next() == [(1, b"x")]


def test_a_socket_that_is_served_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with serving(path) as server:
        server.connect().close()

        with pytest.raises(OSError, match="another process is already listening") as raised:
            serve_unix(path, lambda number, line: None, threading.Event())

        with server.connect() as peer:
            peer.sendall(b"still here\n")
            while (told := server.next()[0])[1] is None:
                pass
        assert raised.value.errno == errno.EADDRINUSE
        assert told[1] == b"still here"


def test_of_two_that_start_at_once_one_serves(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(os.fspath(path))
    barrier, stop = threading.Barrier(2), threading.Event()
    done: queue.Queue[int] = queue.Queue()

    def start() -> int:
        barrier.wait()
        try:
            serve_unix(path, lambda number, line: None, stop)
        except OSError as error:
            done.put(error.errno or 0)
            return -1
        return 0

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(start), pool.submit(start)]
        refused = done.get(timeout=10)
        stop.set()

    assert refused == errno.EADDRINUSE
    assert min(one.result() for one in both) == -1
    assert max(one.result() for one in both) == 0


def test_a_file_that_is_no_socket_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("data")

    with pytest.raises(FileExistsError, match="it is not a socket"):
        serve_unix(path, lambda number, line: None, threading.Event())

    assert path.read_text() == "data"


def test_what_the_handler_raises_ends_the_serving_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s"

    def fail(number: int, line: bytes | None) -> None:
        raise RuntimeError(f"no {line!r}")

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(serve_unix, path, fail, threading.Event())
        with Serving(path, future, threading.Event()).connect() as peer:
            peer.sendall(b"x\n")

            with pytest.raises(RuntimeError, match="no b'x'"):
                future.result(timeout=10)
    assert not path.exists()


@pytest.mark.slow
@given(
    st.lists(st.binary(max_size=9).filter(lambda line: b"\n" not in line), max_size=8),
    st.lists(st.integers(1, 7), max_size=30),
    st.integers(1, 9),
)
def test_however_the_bytes_are_cut_the_lines_are_the_same(
    sent: list[bytes], cuts: list[int], limit: int
) -> None:
    data = b"".join(line + b"\n" for line in sent)
    ours, theirs = socket.socketpair()
    connection = line_sources._Connection(1, ours)

    found: list[bytes] = []
    for size in [*cuts, len(data)]:
        found += connection.lines(data[:size], limit)
        data = data[size:]
    ours.close()
    theirs.close()

    assert found == [line for line in sent if len(line) <= limit]


def test_a_files_lines(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one\ntwo")

    assert [*file_lines(path)] == [Line(1, b"one"), Line(2, b"two", whole=False)]


READER = """
from tau_live.record.lines import stdin_lines
for line in stdin_lines():
    print(line.data.decode(), flush=True)
"""


@pytest.mark.slow
def test_a_pipe_is_read_line_by_line(request: pytest.FixtureRequest) -> None:
    reader = subprocess.Popen(
        [sys.executable, "-c", READER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=request.config.rootpath,
        env={**os.environ, "PYTHONPATH": str(request.config.rootpath)},
    )
    assert reader.stdin is not None
    assert reader.stdout is not None
    with reader:
        for line in (b"one\n", b"two\n"):
            reader.stdin.write(line)
            reader.stdin.flush()

            assert reader.stdout.readline() == line  # while the pipe is still open
        reader.stdin.close()
    assert reader.returncode == 0
