"""``tau-live top``: the screen of ``status`` again and again, whatever happens to the store."""

import json
import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tau_live.cli.output import console_of
from tau_live.cli.top import REST, Watch
from tau_live.core.settings import Settings
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Run
from tests.cli.filled import SOLVED, hold
from tests.cli.terminal import Step, Terminal, in_terminal

QUESTIONS = ("Is it on?", "Is it healthy?", "Is it learning?", "What next?")
ON_SCREEN, OFF_SCREEN, SHOWN_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


def watching(path: Path) -> Watch:
    return Watch(Settings(store=path), console_of(terminal=False))


def drawn(watch: Watch, *, height: int | None = None) -> str:
    watch.look()
    with watch.console.capture() as capture:
        watch.console.print(watch.render(height=height))
    return capture.get()


def test_in_a_pipe_each_look_is_plain_text(filled: Path, run: Run) -> None:
    result = run("top", "--frames", "2", "--every", "0.1", "--store", filled)

    assert result.exit_code == 0
    assert [result.stdout.count(asked) for asked in QUESTIONS] == [2] * 4
    assert all(character.isprintable() or character == "\n" for character in result.stdout)


def test_it_is_the_screen_of_status(filled: Path, run: Run) -> None:
    status = run("status", "--store", filled).stdout.splitlines()
    top = run("top", "--frames", "1", "--store", filled).stdout.splitlines()

    assert [line for line in top[1:] if "ago" not in line and line] == [
        line for line in status[1:] if "ago" not in line and line
    ]


def test_json_is_a_line_for_each_look_also_where_no_store_is(tmp_path: Path, run: Run) -> None:
    result = run(
        *("top", "--json", "--frames", "2", "--every", "0.1"),
        *("--store", tmp_path / "none.sqlite"),
    )

    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [one.keys() for one in found] == [{"at", "store", "problem"}] * 2
    assert found[0]["problem"].startswith("no store at ")


def test_a_store_that_comes_is_shown_and_one_that_goes_is_told(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    watch = watching(path)

    missing = drawn(watch)
    SqliteStore.open(path).close()
    there = drawn(watch)
    for file in tmp_path.iterdir():
        file.unlink()
    gone = drawn(watch)

    assert f"no store at {path} yet" in missing
    assert "TAU_LIVE_RL=1 tau-live demo" in missing
    assert all(asked in there for asked in QUESTIONS)
    assert gone.splitlines()[1:] == missing.splitlines()[1:]


@pytest.mark.timed
def test_a_store_that_is_locked_keeps_what_was_seen_and_says_so(filled: Path) -> None:
    watch = watching(filled)
    before = drawn(watch)

    with closing(sqlite3.connect(filled)) as db:
        db.execute("pragma locking_mode = exclusive")
        db.execute("begin exclusive")
        began = time.monotonic()
        locked = drawn(watch)
        took = time.monotonic() - began
        db.execute("rollback")
    after = drawn(watch)

    assert took < 2.0  # four times as long as a look waits for a locked store
    assert "another process locked it for too long" in locked
    assert "tau-live doctor" in locked
    assert all(line in locked for line in before.splitlines() if "ago" not in line)
    assert "kept it locked" not in after


def test_where_the_store_cannot_be_read_the_kill_switch_still_can(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    path.write_bytes(b"no database at all, but long enough to be one" * 50)
    Path(f"{path}.off").write_text('{"reason": "nonsense", "who": "ann", "at": 1.0}')

    told = drawn(watching(path))

    assert "it is not a SQLite database" in told
    assert "The kill switch is on: nonsense (ann)" in told


def test_it_reads_while_another_writes_and_changes_nothing(filled: Path) -> None:
    watch = watching(filled)
    with closing(sqlite3.connect(filled, isolation_level=None)) as db:
        db.execute("begin immediate")
        db.execute("insert into counters (name, value) values ('x', 1)")
        version = db.execute("pragma data_version").fetchone()

        told = drawn(watch)

        assert all(asked in told for asked in QUESTIONS)
        assert db.execute("pragma data_version").fetchone() == version
        db.execute("commit")


def test_however_long_a_look_takes_most_of_the_time_is_rest(filled: Path) -> None:
    watch = watching(filled)
    watch.took_s = 3.0

    long = watch.pause_s(1.0)
    watch.took_s = 0.1
    short = watch.pause_s(1.0)

    assert long == REST * 3.0
    assert short == pytest.approx(0.9)


@pytest.mark.parametrize("rows", [24, 16, 9])
def test_the_four_answers_have_room_in_a_low_terminal(rows: int, filled: Path) -> None:
    hold(filled)
    watch = Watch(Settings(store=filled), console_of(terminal=False))
    watch.console.width = 80

    told = drawn(watch, height=rows)

    assert all(asked in told for asked in QUESTIONS)
    assert len(told.splitlines()) <= rows


def pressing(keys: bytes) -> Step:
    """Press keys as soon as the screen is there."""

    def step(said: str, terminal: Terminal) -> bool:
        if QUESTIONS[-1] not in said:
            return False
        terminal.press(keys)
        return True

    return step


@pytest.mark.slow
@pytest.mark.parametrize("keys", [b"\x03", b"\x1b[Axq"], ids=["^C", "up x q"])
def test_it_ends_when_it_is_asked_to_and_leaves_the_terminal_as_it_was(
    keys: bytes, filled: Path
) -> None:
    ended = in_terminal("top", "--store", filled, steps=[pressing(keys)])

    assert (ended.code, ended.restored) == (0, True)
    assert OFF_SCREEN in ended.output
    assert SHOWN_CURSOR in ended.output
    assert "Traceback" not in ended.output


@pytest.mark.slow
def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(filled: Path) -> None:
    def stopped(said: str, terminal: Terminal) -> bool:
        if not terminal.is_stopped():
            return False
        os.kill(terminal.child, signal.SIGCONT)
        return True

    ended = in_terminal(
        "top", "--store", filled, steps=[pressing(b"\x1a"), stopped, pressing(b"q")]
    )

    assert (ended.code, ended.restored) == (0, True)
    assert ended.output.count(ON_SCREEN) == ended.output.count(OFF_SCREEN) == 2


@pytest.mark.slow
def test_a_terminal_of_another_size_is_drawn_at_once(filled: Path) -> None:
    def resized(said: str, terminal: Terminal) -> bool:
        if QUESTIONS[-1] not in said:
            return False
        terminal.resize(40, 60)
        return True

    ended = in_terminal(
        *("top", "--every", "600", "--store", filled), steps=[resized, pressing(b"q")]
    )

    assert ended.code == 0
    assert f"{QUESTIONS[0]}\x1b[0m  \x1b[" in ended.output  # what a narrow screen looks like


@pytest.mark.slow
def test_a_terminal_without_powers_gets_plain_text(filled: Path) -> None:
    ended = in_terminal("top", "--frames", "1", "--store", filled, TERM="dumb")

    assert ended.code == 0
    assert "\x1b" not in ended.output
    assert QUESTIONS[-1] in ended.output


@pytest.mark.slow
@pytest.mark.parametrize("command", ["status", "why"])
def test_no_color_means_no_control_characters_at_all(command: str, filled: Path) -> None:
    which = [f"{SOLVED}:1"] if command == "why" else []

    ended = in_terminal(command, *which, "--store", filled, NO_COLOR="1")

    assert ended.code == 0
    assert all(c.isprintable() or c in "\r\n" for c in ended.output)


@pytest.mark.slow
def test_status_has_room_in_the_terminal_that_it_is_in(filled: Path) -> None:
    ended = in_terminal("status", "--store", filled, rows=24)

    lines = ended.output.split("\r\n")
    assert len(lines) <= 24
    assert [any(asked in line for line in lines) for asked in QUESTIONS] == [True] * 4


@pytest.mark.slow
def test_an_output_that_knows_no_signs_beyond_ascii_gets_the_nearest(filled: Path) -> None:
    ended = in_terminal("top", "--frames", "1", "--store", filled, PYTHONIOENCODING="ascii")

    assert ended.code == 0
    assert ended.output.isascii()
