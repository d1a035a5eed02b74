"""The script's short way: the same words and exit codes, at the price of what is done."""

import json
import os
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.core.redaction import scrub_text
from tau_live.operate.lean import is_plain
from tau_live.store.lean import SCHEMA_VERSION
from tau_live.store.sqlite.schema import SCHEMA_VERSION as NEWEST
from tau_live.store.sqlite.store import SqliteStore

LEAN = """
import sys
from tau_live.lean import main
try:
    main()
finally:
    print("click" in sys.modules, file=sys.stderr)
"""
REASON = "customers see nonsense"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store.sqlite"
    SqliteStore.open(path).close()
    return path


def _run(store: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    environ = {name: value for name, value in os.environ.items() if "TAU_LIVE" not in name}
    environ |= {"TAU_LIVE_RL_STORE": str(store), "PYTHONPATH": os.pathsep.join(sys.path)}
    environ.pop("COLUMNS", None)
    return subprocess.run(
        [sys.executable, *command], cwd=store.parent, env=environ, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def _both(
    store: Path, *arguments: str
) -> tuple["subprocess.CompletedProcess[str]", "subprocess.CompletedProcess[str]"]:
    whole = _run(store, "-m", "tau_live.cli", *arguments)
    return _run(store, "-c", LEAN, *arguments), whole


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [["gate"], ["gate", "show"], ["gate", "--json"], ["gate", "show", "--json"]]
)
def test_a_gate_that_passes_is_shown_without_the_command_line(
    arguments: list[str], store: Path
) -> None:
    lean, whole = _both(store, *arguments)

    assert (lean.stdout, lean.returncode) == (whole.stdout, whole.returncode)
    assert lean.stderr == "False\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["gate", "--help"],
        ["gate", "--json", "--nonsense"],
        ["gate", "log"],
        ["kill"],
        ["--version"],
    ],
)
def test_all_else_is_left_to_it(arguments: list[str], store: Path) -> None:
    lean, whole = _both(store, *arguments)

    assert (lean.stdout, lean.returncode) == (whole.stdout, whole.returncode)
    assert lean.stderr == f"{whole.stderr}True\n"


@pytest.mark.slow
@pytest.mark.parametrize("removed", [False, True])
def test_a_gate_that_holds_is_shown_as_ever(store: Path, *, removed: bool) -> None:
    _run(store, "-m", "tau_live.cli", "gate", "hold", "--reason", "x")
    if removed:
        with closing(sqlite3.connect(store)) as db, db:
            db.execute("delete from gate")

    lean, whole = _both(store, "gate", "show", "--json")

    assert (lean.stdout, lean.returncode) == (whole.stdout, 3)


@pytest.mark.slow
def test_a_gate_in_a_damaged_store_is_shown_with_the_damage_and_fails(store: Path) -> None:
    with closing(sqlite3.connect(store)) as db, db:
        page = db.execute(
            "select rootpage from sqlite_schema where name = 'recorded_spans'"
        ).fetchone()[0]
        size = db.execute("pragma page_size").fetchone()[0]
    content = bytearray(store.read_bytes())
    content[(page - 1) * size : page * size] = bytes(size)
    store.write_bytes(content)

    lean, whole = _both(store, "gate")

    assert (lean.returncode, whole.returncode) == (1, 1)
    assert lean.stdout == whole.stdout == "gate               pass\nfailures in a row  none\n"
    assert "is damaged" in whole.stderr
    assert "tau-live set-aside" in whole.stderr


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_everything_is_switched_off_and_recorded_as_ever(more: list[str], store: Path) -> None:
    lean = _run(store, "-c", LEAN, "kill", "--reason", REASON, *more)
    said = store.with_name("store.sqlite.off").read_text()
    _run(store, "-m", "tau_live.cli", "unkill", "--reason", "x")
    whole = _run(store, "-m", "tau_live.cli", "kill", "--reason", REASON, *more)

    def plain(text: str) -> object:
        found = json.loads(text) if text.startswith("{") else {"text": text}
        found.get("kill_switch", found).pop("at", None)
        return found

    assert lean.stderr == "False\n"
    assert (plain(lean.stdout), lean.returncode) == (plain(whole.stdout), 0)
    assert plain(said) == plain(store.with_name("store.sqlite.off").read_text())
    opened = SqliteStore.open(store, read_only=True)
    newest, _, oldest = opened.audit.entries()
    opened.close()
    assert (newest.who, newest.action, newest.reason, newest.details) == (
        oldest.who, oldest.action, oldest.reason, oldest.details,
    )  # fmt: skip
    assert _run(store, "-m", "tau_live.cli", "verify").returncode == 0


@pytest.mark.slow
def test_a_store_that_cannot_take_the_line_stops_nothing(store: Path) -> None:
    store.write_bytes(b"nonsense" * 100)

    lean = _run(store, "-c", LEAN, "kill", "--reason", REASON)

    assert lean.returncode == 0
    assert store.with_name("store.sqlite.off").exists()
    assert "the store cannot record its audit entry yet" in lean.stderr


def test_the_schema_is_the_newest() -> None:
    assert SCHEMA_VERSION == NEWEST


WORDS = st.sampled_from(
    ["password", "is", "login", "machine", "swordfish", "AbCdEfGh", "Bearer", "the", "token"]
) | st.text(st.characters(codec="ascii", categories=["Lu", "Ll"]), min_size=1, max_size=20)


@given(st.lists(WORDS, min_size=1, max_size=8).map(" ".join))
def test_a_plain_reason_holds_no_secret(reason: str) -> None:
    assert not is_plain(reason) or scrub_text(reason) == reason


@pytest.mark.slow
@pytest.mark.timed
def test_gate_and_kill_cost_at_most_ten_times_an_empty_python(store: Path) -> None:
    def cost(*command: str) -> float:
        store.with_name("store.sqlite.off").unlink(missing_ok=True)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        _run(store, *command)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    lean = "from tau_live.lean import main; main()"
    turns = [
        (cost("-c", "pass"), cost("-c", lean, "gate"), cost("-c", lean, "kill", "--reason", REASON))
        for _ in range(7)
    ]

    empty, gate, kill = (median(times) for times in zip(*turns, strict=True))
    assert gate <= 10 * empty  # measured: 3 times
    assert kill <= 10 * empty  # measured: 9 times


@pytest.mark.slow
def test_an_odd_row_and_a_name_too_long_end_in_a_line(store: Path) -> None:
    with closing(sqlite3.connect(store)) as db, db:
        db.execute("delete from gate")
        db.execute("insert into gate values (1, 'pass', null, null, 0.0, '[]', 1)")
    odd = _run(store, "-c", LEAN, "gate")
    far = _run(store, "-c", LEAN, "kill", "--reason", REASON, "--store", "a" * 300)

    assert (odd.returncode, far.returncode) == (3, 1)
    assert "Traceback" not in odd.stderr + far.stderr


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full disk at hand")
def test_everything_is_switched_off_where_nothing_can_be_printed(store: Path) -> None:
    environ = {**os.environ, "TAU_LIVE_RL_STORE": str(store)}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", LEAN, "kill", "--reason", REASON], cwd=store.parent,
            env=environ, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip

    assert store.with_name("store.sqlite.off").exists()
    assert done.returncode == 1
    assert "tau-live: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
