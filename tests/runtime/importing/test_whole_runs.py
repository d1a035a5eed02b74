"""Whole runs in blocks are stored, and sealed, as their events one by one would be."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pytest

from tau_live.core.redaction import Redactor
from tau_live.core.sanitize import Limits
from tau_live.core.settings import Learner, Settings
from tau_live.record.whole_runs import RecordItem, singly
from tau_live.runtime.importing.runs import Reader, Records, Runs
from tau_live.runtime.replay import Offline
from tests.faults.whole import problems
from tests.live.running import exported, opened
from tests.store.everything import everything

Split = Callable[[Iterable[RecordItem]], Iterable[Sequence[RecordItem]]]


def row_of(number: int) -> dict[str, object]:
    """Return a row; every third is a run of its own, and the others go on among one another."""
    run = f"run-{number}" if number % 3 == 0 else f"long-{number % 7}"
    row = {"at": 1.7e9 + number, "run": run, "option": "small", "propensity": 0.5}
    if number % 5:
        row["reward"] = number / 300
    if number % 11 == 0:
        row["end"] = True
    if number % 13 == 0:
        row["step"] = 1
    return {**row, "context": {"words": number, "kind": "sum" if number % 2 else "fact"}}


def store_rows(path: Path, split: Split) -> None:
    """Store the rows of a log, each batch split as given."""
    settings = Settings(store=path, learner=Learner.OFF)
    reader = Reader({}, point="model", offered=("small", "large"), cells=False)
    records = Records(width=256, limits=Limits(), redactor=Redactor(), reward="reward")
    runs = Runs("log", default_at=1.7e9, records=records)
    offline = Offline(settings)
    logged = [(reader.decision(row_of(number)), number) for number in range(300)]
    for batch in (*runs.take(logged), *runs.finish()):
        for some in split(batch):
            offline.store(some)
    offline.finish()
    offline.close()


@pytest.mark.slow  # a transaction for each event
def test_whole_runs_are_stored_as_their_events_would_be(tmp_path: Path) -> None:
    whole, alone = tmp_path / "whole.sqlite", tmp_path / "alone.sqlite"
    store_rows(whole, lambda batch: [[*batch]])

    store_rows(alone, lambda batch: ([event] for event in singly(batch)))

    assert exported(whole) == exported(alone)
    with opened(whole) as one, opened(alone) as other:
        assert everything(one._connection) == everything(other._connection)
    assert problems(Settings(store=whole)) == problems(Settings(store=alone)) == []
