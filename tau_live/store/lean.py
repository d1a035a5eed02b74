"""Reads the gate and adds a line to the audit without the imports of an open store."""

import sqlite3

TYPE_CHECKING = False

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA_VERSION = 12
"""The same as in ``store.sqlite.schema``."""

GateColumns = tuple[str, "str | None", "str | None", float, str, int]
"""State, reason, detail, since, streaks and revision."""

CHECK_S = 0.1
"""How long pages are looked at for damage, in seconds: those of some 100 MB."""


def read_gate(store: "Path") -> GateColumns | None:
    """Return the gate of a store that is sound; ``None`` if not, or the kill switch is on."""
    from threading import Timer

    try:
        db = sqlite3.connect(f"{store.as_uri()}?mode=ro", uri=True, timeout=5.0)
        try:
            version = db.execute("pragma user_version").fetchone()[0]
            names = "state, reason, detail, since, streaks, revision"
            row: GateColumns | None = db.execute(f"select {names} from gate").fetchone()
            removed = row is None and db.execute("select 1 from gate_log").fetchone()
            stopped = db.execute("select 1 from leases where name like 'killed:%'").fetchone()
            end = Timer(CHECK_S, db.interrupt)
            end.start()
            try:
                pages = db.execute("pragma quick_check(1)").fetchone()[0]
            except sqlite3.OperationalError as error:
                pages = "ok" if "interrupted" in str(error) else None
            finally:
                end.cancel()
                end.join()
        finally:
            db.close()
    except (sqlite3.Error, ValueError):
        return None
    if version != SCHEMA_VERSION or removed or stopped is not None or pages != "ok":
        return None
    return row or ("pass", None, None, 0.0, "{}", 0)


def add_line(store: "Path", line: tuple[float, str, str, str]) -> bool:
    """Add a line to the audit of a store sealed without a key; ``False`` if it was not added."""
    from tau_live.core.errors import TauLiveError
    from tau_live.store.sealing import Sealer
    from tau_live.store.sqlite.connection import connect

    try:
        connection = connect(store, busy_timeout_s=0.5, read_only=False)
    except TauLiveError:
        return False
    try:
        pending = "select 1 from sequences where name = 'to_seal'"
        if connection.count("pragma user_version") != SCHEMA_VERSION or connection.rows(pending):
            return False
        newest = connection.row("select key_id from seals order by place desc limit 1")
        if newest is not None and newest["key_id"]:
            return False
        connection.keep_lost_commits()
        connection.prepare(synchronous="normal", busy_timeout_s=0.5)
        connection.seal_with(Sealer())
        connection.change(
            "insert into audit (at, who, action, reason, details) values (?, ?, 'kill', ?, ?)",
            line,
        )
    except (TauLiveError, sqlite3.Error):
        return False
    finally:
        connection.close()
    return True
