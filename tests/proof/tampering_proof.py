"""Whatever is changed behind its back is found, and nothing else; what sealing costs."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from statistics import median

from tau_live.core.records import AuditEntry, RolloutStatus
from tau_live.core.settings import Settings
from tau_live.operate.verification import verify_store
from tau_live.store.sealing import SEALED, digest_of, number_of
from tau_live.store.sqlite.connection import connect
from tau_live.store.sqlite.schema import migrate
from tau_live.store.sqlite.sealing import parts_of
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import begun, decision, policy, reward, update
from tests.proof.figures import Figure, Progress, Tier
from tests.writes import forget_old, writes

ROOT = Path(__file__).parents[2]
ROLLOUTS = 60
TRIES: Mapping[Tier, int] = {Tier.QUICK: 70, Tier.LONG: 5_000}
KILLED: Mapping[Tier, int] = {Tier.QUICK: 1, Tier.LONG: 20}
WRITERS = 4

WRITE = """
import sys
from pathlib import Path
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import begun, decision, reward
from tests.writes import writes
store = SqliteStore.open(sys.argv[1], busy_timeout_s=30.0, key_file=Path(sys.argv[2]))
print("writing", flush=True)
for number in range(int(sys.argv[4])):
    name = f"{sys.argv[3]}-{number}"
    with store.begin():
        begun(store, name)
        writes(store).add_decision(decision(1, name))
        writes(store).add_decision(decision(2, name))
        writes(store).add_reward(reward(1.0, name))
"""


def prove(tier: Tier, progress: Progress) -> Iterator[Figure]:
    """Tamper, verify, count; then time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = Settings(store=folder / "store.sqlite", audit_key_file=folder / "key")
        _filled(settings)
        yield from _detections(settings, tier, progress)
        yield from _left_alone(folder, tier)
        yield from _cost(folder)


def _filled(settings: Settings) -> None:
    store = SqliteStore.open(settings.store, key_file=settings.audit_key_file)
    for number in range(ROLLOUTS):
        name = f"live-{number}"
        with store.begin():
            begun(store, name)
            for ordinal in range(1, 4):
                writes(store).add_decision(decision(ordinal, name))
            writes(store).add_reward(reward(1.0, name))
            writes(store).set_status(name, RolloutStatus.SUCCEEDED, at=float(number))
            writes(store).mark_ready(name, total_reward=1.0)
        if number % 10 == 9:
            store.policies.add_update(update(number), policy(number // 10 + 1))
            store.audit.add(AuditEntry(at=1.0, who="me", action="a", reason="r", details={}))
    store.close()


def _sound(settings: Settings) -> bool:
    """Return whether rows and chain are as they were stored; the filled one has no checkpoints."""
    store = SqliteStore.open(settings.store, read_only=True)
    findings = verify_store(store, settings).findings
    store.close()
    return all(finding.code == "checkpoint" for finding in findings)


def _detections(settings: Settings, tier: Tier, progress: Progress) -> Iterator[Figure]:
    rng = random.Random(7)
    tries, detected = TRIES[tier], 0
    copy = Settings(store=settings.store.with_name("copy"), audit_key_file=settings.audit_key_file)
    yield Figure(5, "alarms over a store that nobody touched", int(not _sound(settings)), at_most=0)
    for number in range(tries):
        progress(number, tries)
        shutil.copyfile(settings.store, copy.store)
        with closing(sqlite3.connect(copy.store)) as db, db:
            WAYS[number % len(WAYS)](db, rng)
        detected += not _sound(copy)
    yield Figure(5, "changes made behind its back: edited, removed, added, moved, resealed", tries)
    yield Figure(5, "of which verify found, in percent", 100.0 * detected / tries, at_least=100.0)


def _row(db: sqlite3.Connection, rng: random.Random) -> tuple[str, str, int]:
    table = rng.choice(["decisions", "rewards", "updates", "policies", "audit"])
    number = SEALED[table].number
    rows = db.execute(f"select {number} from {table}").fetchall()
    return table, number, int(rng.choice(rows)[0])


def _edit(db: sqlite3.Connection, rng: random.Random) -> None:
    table, number, row = _row(db, rng)
    kept = {number, "rollout_seq", *(["at"] if table == "rewards" else [])}
    columns = [(c[1], c[2]) for c in db.execute(f"pragma table_info({table})") if c[1] not in kept]
    column, kind = rng.choice(columns)
    new = {"TEXT": "'~'", "REAL": "-7.25", "INTEGER": "987654", "BLOB": "x'00ff'"}[kind]
    db.execute(f"update {table} set {column} = {new} where {number} = ?", (row,))


def _delete(db: sqlite3.Connection, rng: random.Random) -> None:
    table, number, row = _row(db, rng)
    db.execute(f"delete from {table} where {number} = ?", (row,))


def _add(db: sqlite3.Connection, rng: random.Random) -> None:
    db.execute(
        "insert into rewards (rollout_id, decision_id, name, value, source, key, at) "
        "values (?, '', 'mine', 1.0, 'user', ?, 1.0)",
        (f"live-{rng.randrange(ROLLOUTS)}", str(rng.random())),
    )


def _swap(db: sqlite3.Connection, rng: random.Random) -> None:
    """Let two decisions change places, seals and all."""
    first, second = rng.sample(range(1, ROLLOUTS * 3), 2)
    for table, column in (("decisions", "seq"), ("seals", "place")):
        for old, new in ((first, -1), (second, first), (-1, second)):
            db.execute(f"update {table} set {column} = ? where {column} = ?", (new, old))


def _cut(db: sqlite3.Connection, rng: random.Random) -> None:
    """Remove the newest rows with their seals."""
    end = rng.randrange(2, 200)
    rows = db.execute("select kind, row from seals where place > ?", (end,)).fetchall()
    for table, row in rows:
        if table in SEALED:
            db.create_function("numbered", 1, number_of)
            db.execute(f"delete from {table} where {SEALED[table].number} = ?", (row,))
    db.execute("delete from seals where place > ?", (end,))


def _behead(db: sqlite3.Connection, rng: random.Random) -> None:
    """Remove the oldest rows with their seals, as if retention had been at them."""
    end = rng.randrange(2, 200)
    rows = db.execute("select kind, row from seals where place < ?", (end,)).fetchall()
    for table, row in rows:
        if table in SEALED:
            db.create_function("numbered", 1, number_of)
            db.execute(f"delete from {table} where {SEALED[table].number} = ?", (row,))
    db.execute("delete from seals where place < ?", (end,))


def _reseal(db: sqlite3.Connection, rng: random.Random) -> None:
    """Edit a row and give its seal the right digest, without the key."""
    db.create_function("row_digest", -1, digest_of)
    table, number, row = _row(db, rng)
    column = {"policies": "rollouts", "updates": "samples", "audit": "at"}.get(table, "value")
    db.execute(f"update {table} set {column} = 77 where {number} = ?", (row,))
    parts = parts_of(db, table, "t")
    sql = f"select row_digest({parts}) from {table} as t where {number} = ?"
    digest = db.execute(sql, (row,)).fetchone()[0]
    where = "where kind = ? and row = ?"
    seal = db.execute(f"select seal from seals {where}", (table, row)).fetchone()[0]
    db.execute(f"update seals set seal = ? {where}", (digest + seal[16:], table, row))


WAYS: list[Callable[[sqlite3.Connection, random.Random], None]] = [
    _edit, _delete, _add, _swap, _cut, _behead, _reseal,
]  # fmt: skip


def _left_alone(folder: Path, tier: Tier) -> Iterator[Figure]:
    """Let processes write, some of them killed, and retention forget: all of it is sound."""
    rng = random.Random(8)
    alarms = lost = long = 0
    for round_ in range(KILLED[tier]):
        settings = Settings(store=folder / f"many-{round_}", audit_key_file=folder / "key")
        writers = [_writer(settings, name) for name in range(WRITERS)]
        time.sleep(rng.uniform(0.1, 0.4))
        for writer in writers[: WRITERS // 2]:
            os.kill(writer.pid, signal.SIGKILL)
        for writer in writers:
            writer.communicate(timeout=60)
        alarms += not _sound(settings)
        lost += _unsealed(settings)
        retained = _after_retention(settings)
        alarms, long = alarms + retained[0], long + retained[1]
    yield Figure(
        5, f"rounds of {WRITERS} processes on one chain, half of them killed", KILLED[tier]
    )
    yield Figure(5, "alarms over what they and retention left", alarms, at_most=0)
    yield Figure(5, "chains longer than what they sealed, after retention", long, at_most=0)
    yield Figure(5, "rows without a seal", lost, at_most=0)


def _writer(settings: Settings, name: int) -> subprocess.Popen[str]:
    count = 100_000 if name < WRITERS // 2 else 100
    command = [sys.executable, "-c", WRITE, settings.store, settings.audit_key_file, name, count]
    writer = subprocess.Popen(
        [str(part) for part in command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    if writer.stdout is not None:
        writer.stdout.readline()
    return writer


def _unsealed(settings: Settings) -> int:
    with closing(sqlite3.connect(settings.store)) as db:
        sql = "select (select count(*) from decisions) + (select count(*) from rewards) - count(*)"
        return abs(
            int(
                db.execute(f"{sql} from seals where kind in ('decisions', 'rewards')").fetchone()[0]
            )
        )


def _after_retention(settings: Settings) -> tuple[int, bool]:
    """Let everything go, step by step; return the alarms, and whether the chain stays."""
    store = SqliteStore.open(settings.store, key_file=settings.audit_key_file)
    with store.begin():
        for rollout in [row["rollout_id"] for row in store.export() if row["table"] == "rollouts"]:
            writes(store).set_status(str(rollout), RolloutStatus.SUCCEEDED, at=5.0)
    alarms = 0
    while forget_old(store, before=9.0, limit=1000):
        alarms += not _sound(settings)
    is_long = store.seals.count() > 10
    store.close()
    return alarms, is_long


def _cost(folder: Path) -> Iterator[Figure]:
    """Measure a decision's way into the store with seals and without, in turns."""
    times: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(6):
        sealing = turn % 2 == 0
        times[sealing].append(_timed(folder / f"cost-{turn}", sealing=sealing))
    plain, sealed = median(times[False]), median(times[True])
    yield Figure(5, "microseconds to store a decision, without seals", plain)
    yield Figure(5, "microseconds to store a decision, with seals", sealed)
    yield Figure(5, "microseconds that a seal costs", sealed - plain, at_most=40.0)


def _timed(path: Path, *, sealing: bool) -> float:
    if sealing:
        store = SqliteStore.open(path)
    else:
        connection = connect(path, busy_timeout_s=5.0, read_only=False)
        connection.prepare(synchronous="normal", busy_timeout_s=5.0)
        migrate(connection)
        store = SqliteStore(connection)
    rows = [decision(ordinal, "live-1") for ordinal in range(1, 1001)]
    with store.begin():
        begun(store, "live-1")
        began = time.thread_time()
        with store.batch(["live-1"]) as batch:
            for row in rows:
                batch.add_decision(row)
        took = time.thread_time() - began
    store.close()
    return 1e6 * took / len(rows)
