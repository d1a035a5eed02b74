"""A store that has lived: it learned, was held, drifted, and met names that are no markup."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tau_live
from tau_live.core.gate import GateEntry
from tau_live.core.records import Amendment, AuditEntry, RolloutQuery
from tau_live.core.settings import Learner, Settings
from tau_live.store.sql.connection import json_of
from tau_live.store.sqlite.store import SqliteStore
from tests.writes import writes

ROLLOUTS = 192
ATTACK = "<script>alert(1)</script>$x^2$"
"""An option, a context's value and a reason that must be shown as they are."""

ALARM = {
    "option": "small",
    "direction": "worse",
    "seen": 90,
    "since": 30,
    "shift": -0.8,
    "ready_seq": 120,
}


def live(path: Path, *, rollouts: int = ROLLOUTS) -> None:
    """Let an agent live with tau-live, in the order of keys, so that each run is alike."""
    patch = pytest.MonkeyPatch()
    patch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    tau_live.attach(
        Settings(
            store=path,
            learner=Learner.FLUSH,
            decide_deadline_ms=60_000.0,
            exploration=0.5,
            control_share=0.3,
            reward_range=(0.0, 1.0),
            update_interval=32,
        )
    )
    rng = np.random.default_rng(5)
    for key in range(rollouts):
        with tau_live.run("triage", key=key) as run:
            lang = ("de", "en", ATTACK)[key % 3]
            context = {"lang": lang, "words": int(rng.integers(5, 300))}
            choice = run.decide("model", ["small", ATTACK], default="small", context=context)
            is_right = (choice.option == ATTACK) == (lang == "de")
            run.reward(float(rng.random() < (0.9 if is_right else 0.3)))
        if key % 32 == 31:
            assert tau_live.flush(30)
    assert tau_live.flush(30)
    tau_live.detach()
    patch.undo()
    store = SqliteStore.open(path)
    with store.begin():
        _add_marks(store)
        _add_costs(store)
    store.close()


def _add_marks(store: SqliteStore) -> None:
    alarms = json_of({"alarms": [ALARM]})
    store._connection.change("update monitors set alarms = ? where point = 'model'", (alarms,))
    times = [row.started_at or 0.0 for row in store.surveys.rollouts(range(48, 192, 24))]
    for event, state, at in (("hold", "hold", times[0]), ("reset", "pass", times[1])):
        row = replace(
            store.gate.load(), state=state, since=at, revision=store.gate.load().revision + 1
        )
        entry = GateEntry(at=at, event=event, state=state, kind=None, reason=ATTACK, who="anna")
        store.gate.save(row, entry=entry)
    actions = ("champion_frozen", "policy_rollback", "exposure_climbed", "learner_stopped")
    for action, at in zip(actions, times[2:], strict=False):
        details = {"point": "model"}
        store.audit.add(
            AuditEntry(at=at, who="anna", action=action, reason=ATTACK, details=details)
        )
    store.counters.add({"dropped_queue_full": 3})


def _add_costs(store: SqliteStore) -> None:
    page = store.rollouts.query(RolloutQuery())
    for row in page.rollouts[::2]:
        cost = {"cost_usd": 0.001 * (1 + row.seq % 7)}
        writes(store).amend_rollout(row.rollout_id, Amendment(metadata=cost))
