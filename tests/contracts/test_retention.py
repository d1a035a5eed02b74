"""What may be forgotten, and what must not be."""

import pytest

from tau_live.core.errors import StoreError
from tau_live.core.records import RolloutQuery, RolloutStatus
from tau_live.store.retention import OLDEST, Kept, Place, Rows
from tau_live.store.roles import Store
from tests.contracts.making import begun, decision, ready, reward, span, steps, update
from tests.writes import forget_old, writes


def _ids(store: Store) -> list[str]:
    return [r.rollout_id for r in store.rollouts.query(RolloutQuery()).rollouts]


def _ended(store: Store, rollout_id: str, *, at: float) -> None:
    begun(store, rollout_id)
    writes(store).set_status(rollout_id, RolloutStatus.FAILED, at=at)


def test_the_oldest_ends_are_forgotten_first_and_no_more_than_asked(store: Store) -> None:
    for number, at in [(1, 30.0), (2, 10.0), (3, 20.0), (4, 99.0)]:
        _ended(store, f"live-{number}", at=at)

    deleted = [forget_old(store, before=50.0, limit=2) for _ in range(3)]

    assert deleted == [2, 1, 0]
    assert _ids(store) == ["live-4"]


def test_all_that_is_a_rollouts_own_goes_with_it(store: Store) -> None:
    for rollout_id in ("live-1", "live-2"):
        begun(store, rollout_id)
        writes(store).add_span(span(rollout_id=rollout_id))
        writes(store).add_decision(decision(rollout_id=rollout_id))
        writes(store).add_reward(reward(rollout_id=rollout_id))
        writes(store).add_reward(reward(rollout_id=rollout_id, name="late", at=60.0))
    writes(store).set_status("live-1", RolloutStatus.SUCCEEDED, at=5.0)

    deleted = forget_old(store, before=50.0, limit=9)

    assert deleted == 1
    for kept, rollout_id in [(0, "live-1"), (1, "live-2")]:
        assert len(store.rollouts.attempts(rollout_id)) == kept
        assert len(store.rollouts.spans(rollout_id)) == 3 * kept
        assert len(store.decisions.decisions(rollout_id)) == kept
        assert len(store.rewards.rewards(rollout_id)) == 2 * kept


def test_a_forgotten_rollout_may_come_again(store: Store) -> None:
    _ended(store, "live-1", at=5.0)
    forget_old(store, before=50.0, limit=9)

    begun(store, "live-1")
    writes(store).add_span(span())

    assert [s.span_id for s in steps(store, "live-1")] == ["s-1"]


def test_what_is_open_is_kept(store: Store) -> None:
    for status in ("queuing", "preparing", "running", "requeuing"):
        begun(store, f"live-{status}")
    writes(store).set_status("live-requeuing", RolloutStatus.FAILED, at=2.0)
    writes(store).set_status("live-requeuing", RolloutStatus.REQUEUING, at=3.0)

    assert forget_old(store, before=1e9, limit=9) == 0


def test_what_waits_for_its_reward_is_kept(store: Store) -> None:
    _ended(store, "live-1", at=5.0)
    writes(store).await_reward("live-1", until=1e9)

    kept = forget_old(store, before=50.0, limit=9)
    store.rewards.overdue(2e9, limit=9)
    let_go = forget_old(store, before=50.0, limit=9)

    assert (kept, let_go) == (0, 1)


def test_what_some_point_has_not_learned_from_is_kept(store: Store) -> None:
    ready(store, "live-1", "model", "tools")
    ready(store, "live-2", "model")
    ready(store, "live-3", "model")

    nobody = forget_old(store, before=50.0, limit=9)
    store.policies.add_update(update(2, "model"), None)
    first = forget_old(store, before=50.0, limit=9)
    remaining = _ids(store)
    store.policies.add_update(update(1, "tools"), None)
    second = forget_old(store, before=50.0, limit=9)

    assert (nobody, first, second) == (0, 1, 1)
    assert remaining == ["live-1", "live-3"]
    assert _ids(store) == ["live-3"]


def test_what_has_no_decision_need_not_be_learned_from(store: Store) -> None:
    ready(store, "live-1")

    assert forget_old(store, before=50.0, limit=9) == 1


def test_rewards_of_rollouts_that_never_came_are_forgotten_with_their_age(store: Store) -> None:
    begun(store, "live-1")
    writes(store).add_reward(reward(rollout_id="live-1", at=1.0))
    writes(store).add_reward(reward(rollout_id="never", at=1.0))
    writes(store).add_reward(reward(rollout_id="not yet", at=60.0))

    forget_old(store, before=50.0, limit=9)

    kept = [len(store.rewards.rewards(rollout_id)) for rollout_id in ("live-1", "never", "not yet")]
    assert kept == [1, 0, 1]


@pytest.mark.parametrize("rows", [0, 3])
def test_giving_space_back_loses_nothing(store: Store, rows: int) -> None:
    for number in range(rows):
        _ended(store, f"live-{number}", at=float(number))
    forget_old(store, before=1.0, limit=1)

    store.retention.vacuum()

    assert len(_ids(store)) == max(0, rows - 1)


def test_a_walk_goes_on_behind_what_has_to_be_kept(store: Store) -> None:
    for number in range(5):
        _ended(store, f"live-{number}", at=float(number))
    for kept in ("live-0", "live-1"):
        writes(store).await_reward(kept, until=1e9)

    first = store.retention.sweep(before=50.0, limit=9, look=3)
    assert first.place is not None
    second = store.retention.sweep(before=50.0, limit=9, look=3, after=first.place)

    assert (first.gone, first.until, first.place.at) == (1, 2.0, 2.0)
    assert (second.gone, second.place) == (2, None)
    assert _ids(store) == ["live-0", "live-1"]


def test_what_ended_in_one_moment_is_walked_through_in_order(store: Store) -> None:
    for number in range(5):
        _ended(store, f"live-{number}", at=7.0)

    place: Place | None = OLDEST
    gone = []
    while place is not None:
        swept = store.retention.sweep(before=50.0, limit=2, look=2, after=place)
        gone.append(swept.gone)
        place = swept.place

    assert gone == [2, 2, 1]


def test_what_keeps_rollouts_is_counted(store: Store) -> None:
    ready(store, "live-1", "model")
    _ended(store, "live-2", at=1.0)
    writes(store).await_reward("live-2", until=1e9)
    _ended(store, "live-3", at=2.0)
    begun(store, "live-4")

    kept = store.retention.obstacles(before=50.0, look=9)

    assert kept == Kept(looked_at=3, forgettable=1, waiting=1, unlearned=1, uncounted=0, open=0)


def test_the_size_grows_with_what_is_stored(store: Store) -> None:
    before = store.retention.size()
    for number in range(40):
        _ended(store, f"live-{number}", at=5.0)
        writes(store).set_output(f"live-{number}", "".join(map(str, range(number, number + 2000))))
    after = store.retention.size()

    assert (before.rollouts, after.rollouts) == (0, 40)
    assert after.used_bytes > before.used_bytes + 50_000


def test_nothing_is_forgotten_that_the_archive_did_not_take(store: Store) -> None:
    _ended(store, "live-1", at=5.0)

    def full(_rows: Rows) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        store.retention.sweep(before=50.0, limit=9, archive=full)

    assert _ids(store) == ["live-1"]


def test_what_changes_while_it_is_archived_is_archived_again(store: Store) -> None:
    begun(store, "live-1")
    writes(store).set_status("live-1", RolloutStatus.FAILED, at=5.0)
    taken: list[Rows] = []

    def late(rows: Rows) -> None:
        taken.append(rows)
        if len(taken) == 1:
            writes(store).add_reward(reward(rollout_id="live-1"))

    first = store.retention.sweep(before=50.0, limit=9, archive=late)
    assert first.place is not None
    second = store.retention.sweep(before=50.0, limit=9, after=first.place, archive=late)

    assert (first.gone, second.gone) == (0, 1)
    assert [row["table"] for row in taken[1]] == ["rollouts", "attempts", "rewards"]


def test_an_archive_that_holds_a_rollout_twice_means_the_later(store: Store) -> None:
    ready(store, "live-1", "model")
    writes(store).add_span(span(rollout_id="live-1", ended_at=4.0))
    store.policies.add_update(update(1, "model"), None)
    taken: list[Rows] = []
    store.retention.sweep(before=50.0, limit=9, archive=taken.append)
    [rows] = taken
    torn = [{**row, "name": "earlier"} for row in rows[:2]]

    counts = store.restore([*torn, *rows])

    assert counts["rollouts"] == 1
    assert store.rollouts.rollout("live-1").name == ""
    assert [one.ended_at for one in steps(store, "live-1")] == [4.0]


def test_what_comes_back_keeps_its_numbers_where_they_are_free(store: Store) -> None:
    ready(store, "live-1", "model")
    store.policies.add_update(update(1, "model"), None)
    was = store.rollouts.rollout("live-1")
    taken: list[Rows] = []
    store.retention.sweep(before=50.0, limit=9, archive=taken.append)
    rows = taken[0]
    others = [
        {**row, "rollout_id": "live-2", **({"run_id": "live-2"} if "run_id" in row else {})}
        for row in rows
    ]

    store.restore([*rows, *others])

    assert store.rollouts.rollout("live-1") == was
    assert store.rollouts.rollout("live-2").ready_seq == 2
    assert store.rewards.ready_count("model", after=1) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"status": "succeeded", "metadata": 7}, id="metadata"),
        pytest.param({"status": "succeeded", "started_at": [1]}, id="a list for a time"),
        pytest.param({"status": "succeeded", "max_attempts": "many"}, id="a word for a number"),
        pytest.param({"status": "succeeded", "mode": "sideways"}, id="an unknown mode"),
    ],
)
def test_a_row_that_could_not_be_read_later_is_not_put_back(
    store: Store, wrong: dict[str, object]
) -> None:
    _ended(store, "live-1", at=5.0)
    taken: list[Rows] = []
    store.retention.sweep(before=50.0, limit=9, archive=taken.append)

    with pytest.raises(StoreError):
        store.restore([{**taken[0][0], **wrong}])

    assert _ids(store) == []


def test_one_that_is_named_is_forgotten_whatever_waits_for_it(store: Store) -> None:
    for rollout_id in ("live-1", "live-2", "live-3"):
        begun(store, rollout_id)
        writes(store).add_decision(decision(rollout_id=rollout_id))
        writes(store).add_reward(reward(rollout_id=rollout_id))
        writes(store).set_status(rollout_id, RolloutStatus.SUCCEEDED, at=5.0)
    writes(store).await_reward("live-1", until=100.0)
    writes(store).mark_ready("live-2", total_reward=1.0)
    writes(store).add_reward(reward(rollout_id="never-came"))

    deleted = store.retention.forget(["live-1", "live-2", "never-came", "unknown"])

    assert (deleted, _ids(store)) == (2, ["live-3"])
    assert store.rewards.ready_count("model", after=0) == 0
    assert [store.rewards.rewards(id_) for id_ in ("live-1", "live-2", "never-came")] == [[]] * 3
    assert len(store.rewards.rewards("live-3")) == 1
    assert store.rewards.overdue(1_000.0, limit=9) == []


def test_of_those_that_are_named_none_is_forgotten_while_one_is_open(store: Store) -> None:
    _ended(store, "live-1", at=5.0)
    begun(store, "live-2")

    with pytest.raises(StoreError, match="live-2 has not ended"):
        store.retention.forget(["live-1", "live-2"])

    assert _ids(store) == ["live-1", "live-2"]
