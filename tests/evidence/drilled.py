"""A real drill, copied for each forgery, and what a forger may edit consistently."""

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from tau_live.evidence.artifacts import Root, digest, parse
from tau_live.evidence.drill import drill_faults
from tau_live.evidence.drill.documents import NAMED_POINT, Paths

RUN_ID = "m24-recovery-1"
STATE = "state"
PATHS = Paths(RUN_ID, f"{STATE}/{RUN_ID}")
LOGS = {"events_log": PATHS.events, "operator_log": PATHS.operator_log}


class Forgery:
    """A copy of a drill, to be edited.

    Args:
        drill: The folder of the drill.
        folder: A folder that does not exist yet.
    """

    def __init__(self, drill: Path, folder: Path) -> None:
        shutil.copytree(drill, folder, symlinks=True)
        self.root = Root(folder)
        self.document: Any = parse(self.root.read(PATHS.artifact))

    def edit(self, pointer: str, value: object) -> None:
        """Set a field of the artifact."""
        *parents, name = pointer.strip("/").split("/")
        at = self.document
        for parent in parents:
            at = at[parent]
        at[name] = value

    def edit_lines(self, log: str, change: Callable[[list[Any]], list[Any]]) -> None:
        """Change the lines of a log, and give the artifact its new digest."""
        lines = [json.loads(line) for line in self.root.read(LOGS[log]).splitlines()]
        text = "".join(
            json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n"
            for line in change(lines)
        )
        self.place(LOGS[log]).write_text(text)
        self.edit(f"/evidence/{log}_sha256", digest(text.encode()))

    def edit_store(self, sql: str, *, store: str = NAMED_POINT) -> None:
        """Change a store behind tau-live's back."""
        with closing(sqlite3.connect(self.place(PATHS.store(store)))) as database:
            assert database.execute(sql).rowcount > 0
            database.commit()

    def place(self, path: str) -> Path:
        """Return where a file is."""
        return self.root.place(path)

    def codes(self) -> set[str]:
        """Return the codes of its faults."""
        return {fault.code for fault in drill_faults(self.document, self.root)}
