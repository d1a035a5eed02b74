"""Nothing listens, nothing leaves, nothing unsafe is loaded; files are private, names are data."""

import json
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TypedDict

from tests.proof.closed_life import HOSTILE
from tests.proof.figures import Figure, Progress, Tier

ROOT = Path(__file__).parents[2]
POLL_S = 0.002


class Life(TypedDict):
    """The output of the life."""

    runs: int
    flushed: bool
    version: dict[str, int]
    output: str
    doors: dict[str, int]
    control: dict[str, int]
    where: list[str]


def prove(tier: Tier, progress: Progress) -> Iterator[Figure]:
    """Live once, watched from inside and outside."""
    progress(0, 1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "kept"
        life, looks, wide = _lived(folder)
        doors = life["doors"]
        yield Figure(8, "sockets made, bound or connected in a full life", doors.get("net", 0),
                     at_most=0)  # fmt: skip
        yield Figure(8, "processes started in it", doors.get("processes", 0), at_most=0)
        yield Figure(7, "pickles, marshalled code, exec and eval outside of imports",
                     doors.get("unsafe", 0), at_most=0)  # fmt: skip
        yield Figure(7, "files opened for writing outside of its folder", doors.get("outside", 0),
                     at_most=0)  # fmt: skip
        yield Figure(8, "kinds of doors that are seen when opened on purpose",
                     len(life["control"]), at_least=4)  # fmt: skip
        yield Figure(7, "looks at every file and folder while it lived, umask 0", looks,
                     at_least=20)  # fmt: skip
        yield Figure(7, "of them, files or folders that others could use", wide, at_most=0)
        yield from _names(folder, life)
    progress(1, 1)


def _lived(folder: Path) -> tuple[Life, int, int]:
    log = folder.with_name("log")
    with log.open("w+") as out, subprocess.Popen(
        [sys.executable, "-m", "tests.proof.closed_life", str(folder)],
        cwd=ROOT, env=_environ(folder), stdout=out,
    ) as process:  # fmt: skip
        looks = wide = 0
        while process.poll() is None:
            modes = _modes(folder)
            looks += bool(modes)
            wide += sum(bool(mode & 0o077) for mode in modes)
            time.sleep(POLL_S)
        out.seek(0)
        if process.returncode:
            raise RuntimeError("the life ended early")
        life: Life = json.loads(out.read().splitlines()[-1])
    for line in life["where"]:
        print(line, file=sys.stderr)
    wide += sum(bool(mode & 0o077) for mode in _modes(folder))
    return life, looks, wide


def _modes(folder: Path) -> list[int]:
    modes = []
    for path in [folder, *folder.rglob("*")]:
        try:
            modes.append(stat.S_IMODE(path.lstat().st_mode))
        except FileNotFoundError:  # it was renamed into place meanwhile
            continue
    return modes


def _names(folder: Path, life: Life) -> Iterator[Figure]:
    """Look for what hostile names have done, and whether they are still what they were."""
    with closing(sqlite3.connect(folder / "store.sqlite")) as db:
        sessions = {row[0] for row in db.execute("select session_id from rollouts")}
        decisions = db.execute("select count(*) from decisions").fetchone()[0]
    with (folder / "export.jsonl").open() as file:
        exported = {row.get("session_id") for row in map(json.loads, file)}
    lost = sum(name not in sessions or name not in exported for name in HOSTILE)
    steering = sum(
        not character.isprintable() and character != "\n" for character in life["output"]
    )
    strays = [*ROOT.glob("evil*"), *folder.glob("**/evil*")]
    yield Figure(7, "hostile names: SQL, paths, terminals, spreadsheets, markup, prompts",
                 len(HOSTILE), at_least=20)  # fmt: skip
    yield Figure(7, "of them not stored and exported as they were given", lost, at_most=0)
    yield Figure(7, "decisions stored under them", decisions, at_least=2 * life["runs"])
    yield Figure(7, "characters in the output of commands that steer a terminal", steering,
                 at_most=0)  # fmt: skip
    yield Figure(7, "files that a name has made", len(strays), at_most=0)
    yield Figure(5, "versions that this life made and served", max(life["version"].values()),
                 at_least=1)  # fmt: skip


def _environ(folder: Path) -> dict[str, str]:
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("TAU_LIVE")},
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "hooks")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TAU_LIVE_RL": "1",
        "TAU_LIVE_RL_STORE": str(folder / "store.sqlite"),
        "TAU_LIVE_RL_RECORD": str(folder / "events.jsonl"),
        "TAU_LIVE_RL_AUDIT_KEY_FILE": str(folder / "key"),
        "TAU_LIVE_RL_DECIDE_DEADLINE_MS": "60000",
    }
