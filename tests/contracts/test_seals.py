"""What is sealed when it is stored, and what is found when others change it."""

from collections.abc import Callable
from random import Random

import pytest

from tau_live.core.records import AuditEntry, RolloutStatus, Trial
from tau_live.core.settings import Settings
from tau_live.operate.verification import verify_store
from tau_live.store.roles import Store
from tests.bench.fleet import store_batch
from tests.contracts.conftest import OpenStore
from tests.contracts.making import begun, decision, policy, reward, update
from tests.writes import writes

Edit = Callable[[str], None]

LIVED = 12


def fill(store: Store) -> None:
    """Store rollouts that were learned from, and what learners and operators do."""
    store_batch(store, [f"live-{number}" for number in range(LIVED)])
    begun(store, "open-1")
    writes(store).add_decision(decision(1, "open-1"))
    writes(store).add_reward(reward(0.5, "open-1"))
    writes(store).leave_out("open-1", "reward_missing")
    writes(store).add_reward(reward(0.5, "nobody"))
    store.policies.add_update(update(LIVED), policy(1))
    store.trials.save(Trial(point="model", revision=1))
    store.audit.add(AuditEntry(at=1.0, who="ada", action="note", reason="x", details={}))


def found(store: Store) -> list[str]:
    """Return the codes of what is found in a store, which has no checkpoints."""
    findings = verify_store(store, Settings(store=store.path)).findings
    return [finding.code for finding in findings if finding.code != "checkpoint"]


def test_a_store_that_nobody_else_touched_is_sound(store: Store) -> None:
    fill(store)

    assert found(store) == []
    assert store.seals.count() > 5


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("update decisions set propensity = 0.9", "edited"),
        ("update decisions set applied = 'large' where seq = 1", "edited"),
        ("delete from decisions", "removed"),
        ("update rewards set value = 2.0", "edited"),
        ("delete from rewards where rollout_id = 'live-3'", "removed"),
        ("delete from rewards where rollout_id = 'nobody'", "removed"),
        (
            (
                "insert into rewards (rollout_id, decision_id, name, value, source, key, at) "
                "values ('live-1', '', 'more', 1.0, 'api', '', 1.0)"
            ),
            "added",
        ),
        ("update arms set arm = 'control'", "edited"),
        ("delete from arms where rollout_seq = 3", "removed"),
        ("update rollouts set total_reward = 9.0 where ready_seq = 1", "edited"),
        ("update rollouts set status = 'failed' where ready_seq = 1", "edited"),
        ("update rollouts set metadata = '{\"a\": 1}' where ready_seq = 2", "edited"),
        ("update rollouts set left_out = null where left_out is not null", "edited"),
        ("update rollouts set ready_seq = null where ready_seq = 3", "edited"),
        ("delete from rollouts where ready_seq = 4", "removed"),
        ("update updates set samples = 99", "edited"),
        ("update policies set sha256 = 'x'", "edited"),
        ("delete from policies", "removed"),
        ("update in_service set version = 0", "edited"),
        ("update trials set exposure = 0.1", "edited"),
        ("delete from trials", "removed"),
        ("update audit set reason = 'nothing'", "edited"),
        ("delete from audit", "removed"),
        ("insert into audit values (99, 1.0, 'x', 'y', 'z', '{}')", "added"),
        ("update ready_points set ready_seq = ready_seq + 99", "ready"),
        ("delete from ready_points where rollout_seq = 5", "not_ready"),
        ("update rollouts set status = 'running' where ready_seq = 1", "status"),
        ("update sequences set value = 1 where name = 'ready'", "sequence"),
        ("update sequences set value = 9 where name = 'policy'", "sequence"),
        ("delete from sequences where name = 'policy'", "sequence"),
        ("create table mine (a integer)", "schema"),
        ("drop index rewards_by_time", "schema"),
        ("create view mine as select 1 as one", "schema"),
        ("delete from seals", "added"),
        ("delete from seals where place = (select min(place) from seals)", "no_beginning"),
        ("update seals set key_id = 'x' where place = (select min(place) from seals)", "other_key"),
    ],
)
def test_what_others_did_is_found(statement: str, code: str, store: Store, edit: Edit) -> None:
    fill(store)
    edit(statement)

    assert code in found(store)


def test_what_was_taken_back_is_not_sealed(store: Store) -> None:
    fill(store)
    with pytest.raises(ValueError, match="back"), store.begin():
        writes(store).add_reward(reward(0.1, "live-1", name="lost"))
        raise ValueError("back")
    with store.begin():
        writes(store).add_reward(reward(0.2, "live-1", name="kept"))
        with pytest.raises(ValueError, match="back"), store.begin():
            writes(store).add_reward(reward(0.3, "live-1", name="lost"))
            raise ValueError("back")

    assert found(store) == []


def test_a_row_that_changes_again_and_again_is_sealed_as_it_is(store: Store) -> None:
    fill(store)
    for revision in range(2, 6):
        store.trials.save(Trial(point="model", revision=revision, exposure=revision / 10))
    for value in (0.1, 0.2, 0.1):
        writes(store).add_reward(reward(value, "open-1", at=value))
    writes(store).mark_ready("open-1", total_reward=0.1)
    writes(store).set_status("open-1", RolloutStatus.FAILED, at=9.0)
    writes(store).set_status("open-1", RolloutStatus.REQUEUING, at=9.0)

    assert not {*found(store)} - {"status"}  # no queue of its own


def test_several_who_write_beside_each_other_are_sound(opened: OpenStore) -> None:
    stores = [opened() for _ in range(3)]
    for turn in range(4):
        for number, one in enumerate(stores):
            store_batch(one, [f"of-{number}-{turn}-{place}" for place in range(3)])
            writes(one).add_reward(reward(0.5, "of-0-0-0", name=f"late-{number}-{turn}"))

    assert found(stores[0]) == []


def test_what_is_forgotten_and_restored_is_sound(store: Store, elsewhere: OpenStore) -> None:
    fill(store)
    rows = [*store.export()]

    assert store.retention.forget(["live-1", "live-7"]) == 2
    assert found(store) == []
    store.restore(rows)
    assert found(store) == []
    other = elsewhere()
    other.restore(rows)
    assert found(other) == []
    store.retention.forget(["live-1"])
    assert found(store) == []


@pytest.mark.parametrize("order", ["as they came", "shuffled"])
def test_seals_go_with_what_they_sealed(order: str, store: Store) -> None:
    ids = [f"live-{number}" for number in range(96)]
    for number in range(3):
        begun(store, f"kept-{number}")
        writes(store).leave_out(f"kept-{number}", "reward_missing")
    for first in range(0, 96, 4):
        store_batch(store, ids[first : first + 4])
    store.policies.add_update(update(96), policy(1))
    for number in range(3):
        writes(store).leave_out(f"kept-{number}", "reward_not_finite")  # its second seal counts
    count = store.seals.count()
    if order == "shuffled":
        Random(3).shuffle(ids)
    counts = []
    for first in range(0, 96, 12):
        store.retention.forget(ids[first : first + 12])
        counts.append(store.seals.count())
        assert found(store) == []

    assert max(counts) <= 2 * count
    assert counts[-1] <= count / 2


def test_a_row_that_was_edited_is_found_though_its_seal_was_moved(store: Store, edit: Edit) -> None:
    store_batch(store, [f"live-{place}" for place in range(40)])
    edit("update rewards set value = 7 where rollout_id = 'live-39'")
    for first in range(0, 36, 12):
        store.retention.forget([f"live-{first + place}" for place in range(12)])

    assert found(store) == ["edited"]


def test_heads_may_be_kept_at_any_time(opened: OpenStore) -> None:
    one, other = opened(), opened()
    for turn in range(3):
        store_batch(one, [f"live-{turn}"])
        other.seals.keep_heads()

    assert found(one) == []
