"""What mistakes are made with: a store that is written to, and packages that seem installed."""

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from msgspec.structs import replace

from tau_live.core.records import Decision
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import begun
from tests.writes import writes


@contextmanager
def writing(file: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore.open(file)) as store, store.begin():
        yield store


def decide(file: Path, times: int, like: Decision) -> None:
    """Store decisions of one new rollout."""
    with writing(file) as store:
        begun(store, "live-many")
        for ordinal in range(1, times + 1):
            one = replace(like, ordinal=ordinal, rollout_id="live-many", at=time.time())
            writes(store).add_decision(one)


def installed(folder: Path, name: str, version: str, entry_points: str = "") -> Path:
    """Write what an installer writes of a package."""
    info = folder / "site" / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entry_points)
    return folder / "site"
