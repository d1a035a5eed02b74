"""A recording is read back as it was written, whatever became of the file."""

import io
import os
import stat
import threading
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.core.events import Content, Event, Message, ToolEnd, encode
from tau_live.record.recording import BadLine, Line, Recorder, lines, read


def event(number: int) -> Event:
    return ToolEnd(host="h", run_id="r", at=float(number), seq=number, tool="t")


def stream(*parts: bytes) -> BinaryIO:
    return io.BytesIO(b"".join(parts))


EVENTS = st.builds(
    Message,
    host=st.just("h"),
    run_id=st.text(max_size=8),
    at=st.floats(0, 1e10),
    role=st.text(max_size=8),
    content=st.none() | st.builds(Content, text=st.text(max_size=20)),
    raw=st.dictionaries(st.text(max_size=4), st.integers(-9, 9) | st.text(max_size=4), max_size=3),
)


@pytest.mark.slow
@given(st.lists(EVENTS, max_size=5))
def test_what_is_written_is_read_back(events: list[Event]) -> None:
    written = stream(*(encode(one) + b"\n" for one in events))

    assert [*read(written)] == events


@pytest.mark.slow
@given(st.lists(st.binary(max_size=30) | EVENTS.map(encode), max_size=8))
def test_garbage_between_the_lines_costs_only_itself(pieces: list[bytes]) -> None:
    good = encode(event(1))
    data = b"\n".join([good, *pieces, good])

    found = [*read(io.BytesIO(data))]

    assert found[0] == found[-1] == event(1)
    assert all(isinstance(one, (Event, BadLine)) for one in found)


def test_a_recorder_appends_and_a_second_one_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "new" / "events.jsonl"
    with closing(Recorder(path)) as recorder:
        recorder.append([event(1), event(2)])
    with closing(Recorder(path)) as recorder:
        recorder.append([event(3)])

    with path.open("rb") as file:
        found = [*read(file)]

    assert found == [event(1), event(2), event(3)]


def test_only_the_owner_can_read_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "new" / "events.jsonl"

    Recorder(path).close()

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_torn_last_line_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(encode(event(1)) + b"\n" + encode(event(2))[:20])

    with closing(Recorder(path)) as recorder:
        recorder.append([event(3)])

    with path.open("rb") as file:
        found = [*read(file)]
    assert found[0] == event(1)
    assert isinstance(found[1], BadLine)
    assert found[1].number == 2
    assert found[2] == event(3)


def test_a_line_that_is_cut_off_at_the_end_says_so() -> None:
    (found,) = read(stream(encode(event(1))[:20]))

    assert isinstance(found, BadLine)
    assert found.reason.startswith("cut off: not an event")


def test_an_event_that_json_cannot_say_is_counted_and_the_rest_is_written(tmp_path: Path) -> None:
    odd = ToolEnd(host="h", run_id="\ud800", at=1.0)

    with closing(Recorder(tmp_path / "e.jsonl")) as recorder:
        written = recorder.append([event(1), odd, event(2)])

    assert (written, recorder.skipped) == (2, 1)


def test_a_full_disk_is_an_error_and_the_next_append_begins_a_new_line(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("the system has no /dev/full")
    recorder = Recorder(Path("/dev/full"))

    with pytest.raises(OSError, match="No space left"):
        recorder.append([event(1)])
    os.dup2(os.open(tmp_path / "e", os.O_RDWR | os.O_CREAT, 0o600), recorder._file)
    recorder.append([event(2)])

    assert (tmp_path / "e").read_bytes() == b"\n" + encode(event(2)) + b"\n"


def test_many_writers_of_one_file_do_not_tear_each_others_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    barrier = threading.Barrier(8)

    def write(number: int) -> None:
        with closing(Recorder(path)) as recorder:
            barrier.wait()
            for _ in range(25):
                recorder.append([event(number), event(number)])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with path.open("rb") as file:
        found = [one.seq for one in read(file) if isinstance(one, Event)]
    assert sorted(found) == sorted([*range(8)] * 50)


def test_a_line_too_long_is_skipped_without_reading_it_into_memory(tmp_path: Path) -> None:
    path = tmp_path / "long"
    with path.open("wb") as file:
        for _ in range(64):
            file.write(b"x" * 2**20)
        file.write(b"\n" + encode(event(1)) + b"\n")

    tracemalloc.start()
    with path.open("rb") as file:
        found = [*read(file, limit=100_000)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert found == [BadLine(1, "longer than 100000 bytes"), event(1)]
    assert peak < 1_000_000


@given(st.lists(st.binary(max_size=12).filter(lambda data: b"\n" not in data), max_size=6))
def test_lines_are_numbered_and_bounded(pieces: list[bytes]) -> None:
    data = b"".join(piece + b"\n" for piece in pieces)

    found = [*lines(io.BytesIO(data), limit=6)]

    assert found == [
        Line(number, b"" if len(piece) > 6 else piece, too_long=len(piece) > 6)
        for number, piece in enumerate(pieces, 1)
    ]


def test_a_line_of_a_pipe_comes_before_the_pipe_is_closed() -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as source:
        os.write(writer, b"one\ntw")

        found = next(lines(source))

        os.close(writer)
    assert found == Line(1, b"one")


def test_blank_lines_are_passed_over() -> None:
    assert [*read(stream(b"\n  \r\n", encode(event(1)), b"\n\n"))] == [event(1)]
