"""What importing a log takes, as a whole command with its start, beside the least that is possible.

The peer parses the same lines and stores the same facts with plain ``sqlite3``: no features to
learn from, no search for secrets, no seals, and nothing that would find a line given twice.
"""

import json
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.bench.timing import Measured, Timed, command, interleaved

ROWS = 20_000
PEER = "`sqlite3`, the same facts"

PLAIN = '''
import json, sqlite3, sys
source, path = sys.argv[1:]
raw = sqlite3.connect(path)
raw.executescript("""
    pragma journal_mode = wal;
    create table rollouts (seq integer primary key, id text unique, at real, reward real) strict;
    create table decisions (
        seq integer primary key, rollout_seq integer, point text, options text, option text,
        propensity real, at real, context text
    ) strict;
    create table rewards (seq integer primary key, rollout_seq integer, value real, at real) strict;
""")
rows = [*map(json.loads, open(source))]
with raw:
    raw.executemany(
        "insert into rollouts values (?, ?, ?, ?)",
        ((n, row["run"], row["at"], row["reward"]) for n, row in enumerate(rows)),
    )
    raw.executemany(
        "insert into decisions values (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                n, n, "model", json.dumps(row["options"]), row["option"], row["propensity"],
                row["at"], json.dumps(row["context"]),
            )
            for n, row in enumerate(rows)
        ),
    )
    raw.executemany(
        "insert into rewards values (?, ?, ?, ?)",
        ((n, n, row["reward"], row["at"]) for n, row in enumerate(rows)),
    )
raw.close()
'''


def measure(rounds: int, *, rows: int = ROWS) -> list[Measured]:
    """Measure a row of a log."""
    with tempfile.TemporaryDirectory(prefix="tau-live-bench-") as folder:
        place = Path(folder)
        log = place / "log.jsonl"
        _write(log, rows)
        arguments = ["import-log", str(log), "--point", "model", "--json", "--store"]
        return [
            interleaved(
                f"a row of a log, {rows:,} at once",
                _each([sys.executable, "-m", "tau_live.cli", *arguments], place / "ours", rows),
                _each([sys.executable, "-c", PLAIN, str(log)], place / "theirs", rows),
                peer=PEER,
                rounds=rounds,
                goal=None,
            )
        ]


def _write(log: Path, rows: int) -> None:
    rng = random.Random(0)
    options = ["small", "medium", "large"]
    with log.open("w") as file:
        for number in range(rows):
            context = {
                "kind": rng.choice(["sum", "fact", "code"]),
                "words": rng.randrange(400),
                "score": round(rng.random(), 4),
            }
            row = {
                "at": 1.7e9 + number / 2,
                "run": f"run-{number:07}",
                "options": options,
                "option": rng.choice(options),
                "propensity": 0.3333,
                "reward": round(rng.random(), 4),
                "context": context,
            }
            file.write(json.dumps(row) + "\n")


def _each(arguments: Sequence[str], folder: Path, count: int) -> Timed:
    """Return what each of ``count`` takes of a process that stores them in a new file."""

    def took() -> float:
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=folder.name) as place:
            before = _used()
            subprocess.run(
                [*arguments, f"{place}/store.sqlite"], check=True, stdout=subprocess.DEVNULL
            )
            return (_used() - before) / count

    return took


def _used() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


main = command("importing", "What importing a log takes", measure)

if __name__ == "__main__":
    main()
