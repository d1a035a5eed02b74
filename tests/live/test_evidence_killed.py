"""Evidence that is being counted when its process is really killed."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from tau_live.core.records import AuditEntry, InService, Trial
from tau_live.learn.promotion.promoter import Promoter
from tests.live.running import done, go, integrity, line, opened, process, until
from tests.trialled import NOW, Arms, fill, serve, settings_of

ROLLOUTS = 3_000

COUNTS = """
import sys
from pathlib import Path
from tau_live.learn.promotion import promoter as promoting
from tau_live.core.processes import this_process
from tau_live.store.sqlite.store import SqliteStore
from tests.trialled import NOW, settings_of
promoting.PAGE = 8
if sys.argv[2] == "without a lease":
    promoting.Promoter._has_lease = lambda _self, _name: True
path = Path(sys.argv[1])
store = SqliteStore.open(path)
promoter = promoting.Promoter(store, settings_of(path), holder=this_process())
print("ready", flush=True)
sys.stdin.readline()
saved = []
save = store.trials.save
store.trials.save = lambda trial: saved.append(save(trial)) or saved[-1]
promoter.advance(now=NOW)
store.close()
print(sum(saved), flush=True)
"""


def filled(path: Path) -> Path:
    """Fill a store with a learner that is better at first, and a control that then is."""
    settings = settings_of(path)
    with opened(path) as store:
        serve(store, settings, 1)
        fill(store, 600, Arms(learner=0.6, control=0.1, lost=0.1), seed=1)
        fill(store, 2_400, Arms(learner=0.6, control=1.0, lost=0.1), seed=2, start=600)
    return path


def known(path: Path) -> tuple[Trial, list[AuditEntry], dict[str, InService]]:
    """Return all that evidence and what followed from it left in a store."""
    with opened(path) as store:
        trial = replace(store.trials.trial("model"), revision=0)
        entries = [replace(entry, who="") for entry in store.audit.entries()]
        return trial, entries, store.policies.in_service()


def beyond(path: Path, place: int) -> Callable[[], bool]:
    def is_beyond() -> bool:
        with opened(path) as store:
            return store.trials.trial("model").watermark > place

    return is_beyond


@pytest.mark.slow
def test_killed_while_counting_and_resumed_the_evidence_is_the_same_bit_for_bit(
    path: Path,
) -> None:
    whole = Path(shutil.copy(filled(path), path.with_name("whole.sqlite")))
    with opened(whole) as store:
        Promoter(store, settings_of(whole), holder="test").advance(now=NOW)

    stops = []
    for _ in range(5):
        with opened(path) as store:
            place = store.trials.trial("model").watermark
        with process(COUNTS, path, path, "alone") as counting:
            assert line(counting) == "ready"
            go(counting)
            until(beyond(path, place + 100))
            os.kill(counting.pid, signal.SIGKILL)
            counting.wait()
        with opened(path) as store:
            stops.append(store.trials.trial("model").watermark)
    with process(COUNTS, path, path, "alone") as counting:
        assert line(counting) == "ready"
        go(counting)
        done(counting)

    assert len(set(stops)) == 5
    assert stops[-1] < ROLLOUTS
    assert known(path) == known(whole)
    assert [entry.action for entry in known(path)[1]][::-1][:2] == [
        "champion_frozen",
        "champion_returned",
    ]
    assert integrity(path) == "ok"


@pytest.mark.slow
def test_processes_that_count_at_once_count_every_rollout_once(path: Path) -> None:
    whole = Path(shutil.copy(filled(path), path.with_name("whole.sqlite")))
    with opened(whole) as store:
        Promoter(store, settings_of(whole), holder="test").advance(now=NOW)

    arguments = (COUNTS, path, path, "without a lease")
    with process(*arguments) as one, process(*arguments) as other:
        for counting in (one, other):
            assert line(counting) == "ready"
        for counting in (one, other):
            go(counting)
        both = [int(done(counting).split()[-1]) for counting in (one, other)]

    assert all(both), "one of them had nothing to do"
    assert known(path) == known(whole)
