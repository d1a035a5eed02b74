"""Updates that were made, and the programs of processes that make them."""

from pathlib import Path

from tau_live.core.records import PolicyVersion, Update
from tau_live.core.settings import Settings
from tau_live.learn.learner import Learner
from tests.live.running import opened

LEARNS = """
import sys, threading
from pathlib import Path
from tau_live.runtime.learner_process import learn_until
from tau_live.core.settings import Settings
settings = Settings(store=Path(sys.argv[1]))
print("ready", flush=True)
learn_until(threading.Event(), settings, once=False, report=lambda found: None)
"""


def updates(path: Path) -> list[Update]:
    """Return the updates of a store, oldest first."""
    with opened(path) as store:
        return store.policies.updates()[::-1]


def versions(path: Path) -> list[PolicyVersion]:
    with opened(path) as store:
        return store.policies.versions()


def due(path: Path) -> bool:
    with opened(path) as store:
        return bool(Learner(store, Settings(store=path), holder="looks").due())
