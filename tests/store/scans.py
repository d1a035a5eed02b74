"""Finding, among statements that were run, those that read a whole table."""

import re
import sqlite3
from collections.abc import Iterable

ALLOWED = re.compile(
    r"SCAN (json_each|wanted|CONSTANT ROW|points|\(subquery-\d+\)|\d+ CONSTANT ROWS?)"
    r"|SCAN (found|ready|settled|newest|old|waiting|uncounted|totals)$"
    r"|USING INDEX rollouts_by_owner|USING COVERING INDEX rollouts_by_owner"
)
"""What is no table, and the index that holds open rollouts alone."""

BIG = re.compile(
    r"SCAN (rollouts|attempts|recorded_spans|decisions|arms|rewards|ready_points|awaiting|queue"
    r"|names|updates|policies|seals|one|outer_one|s|t)\b"
)
"""What has as many rows as rollouts were stored, or as updates were made."""

BOUNDED = re.compile(
    r"(select [\w, ()]+ from \( )?"
    r"select [\w, *]+ from \w+ order by (seq|number) (desc|asc) limit [0-9]+( |$)"
)
"""The first or last few in the order of their numbers, or what is made of them alone."""

LITERAL = re.compile(r"'(?:[^']|'')*'|x'[0-9a-f]*'|\b[0-9.e+-]+\b")
INFINITE = re.compile(r"\bInf\b")
"""As SQLite tells of an infinite number, and does not read it."""

KINDS = frozenset({"select", "insert", "update", "delete", "with"})


class Ran:
    """Statements as SQLite tells of them, one example of each."""

    def __init__(self) -> None:
        self._examples: dict[str, str] = {}

    def note(self, statement: str) -> None:
        """Take a statement; given to ``set_trace_callback``."""
        self._examples.setdefault(LITERAL.sub("?", statement), statement)

    @property
    def asked(self) -> list[str]:
        """Those that read or write rows."""
        return [one for one in self._examples.values() if one.split()[0].lower() in KINDS]


def scans(raw: sqlite3.Connection, statements: Iterable[str]) -> list[str]:
    """Return what reads a whole table that grows, and in which statement."""
    return [
        f"{row[3]}: {' '.join(one.split())}"
        for one in statements
        for row in raw.execute(f"explain query plan {INFINITE.sub('9e999', one)}")
        if BIG.search(row[3]) and not ALLOWED.search(row[3])
        if not BOUNDED.match(" ".join(one.split()))
    ]
