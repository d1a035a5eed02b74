"""What has to hold of a store and the files beside it, wherever a process died."""

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tau_live.core.errors import TauLiveError
from tau_live.core.settings import Settings
from tau_live.decisions.policies import check_policy
from tau_live.operate.verification import gate_contradictions
from tau_live.store.files import policies_of
from tau_live.store.roles import Store
from tau_live.store.sealing import SEALED, Sealer
from tau_live.store.sqlite.store import SqliteStore

ALERTS = frozenset({"alerts", "alert_marks"})
PASSING = ALERTS | {"leases", "_sqlite_migrations", "sqlite_sequence", "sqlite_stat1"}
"""Tables whose rows tell of processes, or of the moment: alerts of when somebody looked."""

TOLD_AGAIN = ("duplicate_", "lease")
"""How counters of what was told more than once begin, and the number of the last lease."""

UNSAID = frozenset({"owner", "revision", "who", "seal"})
"""Columns that tell of the process, how often something was written, or what is derived of such."""


def state(folder: Path, store: str) -> str:
    """Return what a store holds, as a digest; one without tables, or none, holds nothing."""
    path = folder / store
    if not path.exists():
        return ""
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        found = database.execute("select name from sqlite_master where type = 'table'").fetchall()
        tables = sorted({row["name"] for row in found} - PASSING)
        if not tables:
            return ""
        digest = hashlib.sha256()
        for table in tables:
            found = database.execute(f'select * from "{table}"').fetchall()
            rows = [_said(row) for row in found if not str(row[0]).startswith(TOLD_AGAIN)]
            if table == "seals":  # a row that changed twice is sealed twice; `problems` reads them
                rows = [*{f"{row['kind']} {row['row']}" for row in found}]
            digest.update(json.dumps([table, sorted(rows)]).encode())
    return digest.hexdigest()


def _said(row: sqlite3.Row) -> str:
    known = {name: row[name] for name in row.keys() if name not in UNSAID}  # noqa: SIM118  # a row's
    report = known.get("report")
    if isinstance(report, str):
        known["report"] = {**json.loads(report), "duration_s": None}
    return json.dumps(known, sort_keys=True, default=bytes.hex)


def problems(settings: Settings) -> list[str]:
    """Return everything that is wrong with a store that was opened again."""
    store = SqliteStore.open(settings.store)
    try:
        return [
            *_of_sqlite(store),
            *_of_seals(store),
            *problems_of_learning(store),
            *problems_of_policies(store),
        ]
    finally:
        store.close()


def _of_sqlite(store: SqliteStore) -> Iterator[str]:
    rows = store._connection.rows("pragma integrity_check")
    if [row[0] for row in rows] != ["ok"]:
        yield f"integrity: {[row[0] for row in rows]}"
    if store._connection.rows("pragma foreign_key_check"):
        yield "a row refers to one that is not there"


def _of_seals(store: SqliteStore) -> Iterator[str]:
    yield from (str(found) for found in store.seals.broken_links(Sealer()) if found)
    yield from map(str, store.seals.changed_rows(SEALED))
    yield from map(str, store.seals.contradictions())
    yield from map(str, gate_contradictions(store))


def problems_of_learning(store: Store) -> Iterator[str]:
    learned: dict[str, int] = {}
    for update in reversed(store.policies.updates()):
        if update.last_ready <= learned.get(update.point, 0):
            yield f"update {update.update} has looked at what was looked at before"
        learned[update.point] = update.last_ready
        if update.executed and update.version is None:
            yield f"update {update.update} has made nothing"
    for point, upto in learned.items():
        if store.policies.watermark(point) != upto:
            yield f"the watermark of {point!r} is not that of its last update"
    made = [update.version for update in store.policies.updates() if update.version]
    known = [row.version for row in store.policies.versions()]
    if sorted(made) != known:
        yield f"updates made {sorted(made)}, known are {known}"


def problems_of_policies(store: Store) -> Iterator[str]:
    for serving in store.policies.in_service().values():
        if not serving.version:
            continue
        try:
            check_policy(store.checkpoints, store.policies.version(serving.version))
        except TauLiveError as error:
            yield f"what serves {serving.point!r} is not whole: {error}"


def orphans(settings: Settings) -> list[str]:
    """Return the files in and beside a store that belong to nothing."""
    folder = policies_of(settings.store)
    store = SqliteStore.open(settings.store)
    known = {row.file for row in store.policies.versions()}
    store.close()
    name, spool = settings.store.name, "spool.sqlite"
    beside = {name, f"{name}-wal", f"{name}-shm", f"{name}.held"}
    beside |= {spool, f"{spool}-wal", f"{spool}-shm"}
    beside |= {"status.json", "events.jsonl", folder.name}
    beside |= {".tau", "tasks", "smaller.json"}  # evidence and its suite have tests of their own
    found = [path.name for path in settings.store.parent.iterdir() if path.name not in beside]
    if folder.is_dir():
        found += [path.name for path in folder.iterdir() if path.name not in known]
    return sorted(found)
