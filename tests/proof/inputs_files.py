"""Spoiled files on their way into a store, and each command that takes a file with bad ones."""

import os
import random
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from click.testing import CliRunner

from tau_live.cli import main
from tau_live.core.errors import TauLiveError
from tau_live.core.settings import Settings
from tau_live.runtime.importing.log import LogSource, import_log
from tau_live.runtime.replay import replay_file
from tests.proof.inputs_lines import CSV, OTEL, ROWS, lines_of, recordings, spoiled
from tests.proof.inputs_tally import Tally

LINES = 40
EXITS = frozenset({0, 1, 2, 3, 4})
"""The documented exit codes of the command line."""

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("replay", "FILE"), ("import-log", "FILE"), ("ingest", "FILE"), ("evaluate", "--log", "FILE"),
    ("show", "x", "--store", "FILE"), ("why", "x", "--store", "FILE"), ("config",),
    ("reward", "x", "1", "--store", "FILE"), ("learn", "--once", "--store", "FILE"),
    *((name, "--store", "FILE") for name in (
        "status", "rollouts", "doctor", "export", "gate", "updates", "policy", "evaluate", "gc",
    )),
)  # fmt: skip


def file_cases(tally: Tally, seed: int, cases: range, folder: Path) -> Mapping[str, object]:
    """Make cases: a file of spoiled lines each; and once every command with every bad file."""
    settings = Settings(store=folder / "store.sqlite")
    lost = 0
    for number in cases:
        rng = random.Random(f"{seed}:{number}")
        tally.case = f"--only {number}"
        lost += _taken(tally, rng, folder, settings)
    with sqlite3.connect(settings.store) as store:
        sound = store.execute("pragma integrity_check").fetchone()[0]
    store.close()
    tally.check(sound == "ok", "odd", f"integrity: {sound}")
    if cases.start == 0:
        _commands(tally, folder)
    return {"lost": lost}


def _taken(tally: Tally, rng: random.Random, folder: Path, settings: Settings) -> int:
    """Store one file; return how many of its lines are accounted for neither as good nor as bad."""
    kind = rng.choice(("recording", "jsonl", "csv", "otel"))
    whole = {
        "recording": recordings(),
        "jsonl": lines_of(ROWS),
        "csv": CSV[1:],
        "otel": lines_of([OTEL]),
    }[kind]
    chosen = [rng.choice(whole) for _ in range(LINES)]
    chosen = [spoiled(rng, line) if rng.random() < 0.4 else line for line in chosen]
    path = folder / f"some.{'csv' if kind == 'csv' else 'jsonl'}"
    path.write_bytes(b"\n".join([*CSV[: kind == "csv"], *chosen]) + b"\n")
    content = path.read_bytes()
    lost = 0

    def read() -> None:
        nonlocal lost
        if kind == "recording":
            report = replay_file(path, settings, progress=lambda _done, _of: None)
            lines = sum(bool(line.strip()) for line in content.split(b"\n"))
            lost = lines - report.events - report.bad_lines
        else:
            log = import_log(LogSource(path=str(path)), settings, progress=lambda _a, _b: None)
            lost = content.count(b"\n") - log.lines

    try:
        tally.timed(_allowed, read)
    finally:
        path.unlink()
    return abs(lost)


def _allowed(read: Callable[[], None]) -> None:
    with suppress(TauLiveError):
        read()


def _bad_files(folder: Path) -> list[Path]:
    contents = {
        "empty": b"",
        "zeros": bytes(5_000),
        "binary": bytes(range(256)) * 40,
        "deep.jsonl": b"[" * 100_000,
        "deeper.jsonl": b'{"a":' * 100_000 + b"\n" + b'{"event":' * 50_000,
        "wide.csv": b"a," * 100_000 + b"\n" + b"1," * 100_000,
        "long.jsonl": b'{"option": "' + b"x" * 5_000_000 + b'"}\n',
        "no text.toml": b"\xff\xfe\0a = 1",
        "half.sqlite": b"SQLite format 3\0" + b"\1" * 4_000,
        "quotes.csv": b'option\n"' + b"x\n" * 5_000,
        "numbers.jsonl": b'{"option": 1e999, "propensity": NaN}\n' * 5,
        "our own.jsonl": b"\n".join(recordings()[:50]),
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    other = sqlite3.connect(folder / "other.sqlite")
    other.execute("create table rollouts (a)")
    other.close()
    (folder / "a folder").mkdir()
    (folder / "loop").symlink_to(folder / "loop")
    names = (*contents, "other.sqlite", "a folder", "loop", "missing", "name\n\x1b[31m", "x" * 300)
    return [folder / name for name in names]


def _commands(tally: Tally, folder: Path) -> None:
    inside = folder / "files"
    inside.mkdir()
    for command in COMMANDS:
        for path in _bad_files_of(inside):
            arguments = [str(path) if word == "FILE" else word for word in command]
            if "--store" not in arguments and command[0] != "config":
                arguments += ["--store", str(folder / "cli.sqlite")]
            tally.cases += 1
            tally.case = f"tau-live {' '.join(command)} with {path.name[:40]!r}"
            more = {"TAU_LIVE_RL_CONFIG": str(path)} if command[0] == "config" else {}
            done = CliRunner().invoke(main, arguments, env={**os.environ, **more})
            error = done.exception
            odd = error is not None and not isinstance(error, SystemExit)
            tally.check(not odd, "raised", repr(error)[:200])
            tally.check(done.exit_code in EXITS, "odd", f"exit code {done.exit_code}")
            tally.check("Traceback" not in done.output, "odd", "a traceback")


def _bad_files_of(inside: Path) -> list[Path]:
    """Return the bad files, made anew: a command may have put one right."""
    for path in inside.iterdir():
        path.rmdir() if path.is_dir() else path.unlink()
    return _bad_files(inside)
