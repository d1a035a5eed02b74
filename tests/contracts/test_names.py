"""Other ids of rollouts, and which run of a session was the last."""

import pytest
from msgspec.structs import replace

from tau_live.core.errors import UnknownError
from tau_live.store.roles import Store
from tests.contracts.making import LIVE, reward, rollout
from tests.writes import forget_old, writes


def begin(
    store: Store, rollout_id: str, session: str, *, host: str = "tests", inside: str | None = None
) -> None:
    one = replace(rollout(rollout_id), session_id=session, parent_id=inside, host=host)
    assert writes(store).begin_rollout(one)


def test_a_rollout_is_found_by_its_other_ids(store: Store) -> None:
    writes(store).begin_rollout(rollout())

    added = [writes(store).add_name(name, LIVE) for name in ("a", "b", "a")]

    assert added == [0, 0, 0]
    assert [writes(store).rollouts_of(name) for name in ("a", "b", "c")] == [[LIVE], [LIVE], []]


def test_an_id_of_nested_rollouts_is_the_outermosts(store: Store) -> None:
    begin(store, "live-outer", "s")
    begin(store, "live-inner", "s", inside="live-outer")
    begin(store, "live-other", "s")
    for rollout_id in ("live-inner", "live-outer"):
        writes(store).add_name("nested", rollout_id)
    for rollout_id in ("live-inner", "live-other"):
        writes(store).add_name("shared", rollout_id)

    found = [writes(store).rollouts_of(name) for name in ("nested", "shared")]

    assert found == [["live-outer"], ["live-inner", "live-other"]]


def test_rewards_that_waited_for_an_id_become_the_rollouts(store: Store) -> None:
    writes(store).add_reward(reward(1.0, rollout_id="early"))
    before = store.trials.newest_reward()
    writes(store).begin_rollout(rollout())

    moved = writes(store).add_name("early", LIVE)

    assert moved == 1
    assert store.rewards.rewards("early") == []
    assert [(one.rollout_id, one.value) for one in store.rewards.rewards(LIVE)] == [(LIVE, 1.0)]
    assert store.trials.newest_reward() > before  # whoever watches sees that it came


def test_rewards_of_a_rollout_stay_its_own(store: Store) -> None:
    writes(store).begin_rollout(rollout())
    writes(store).begin_rollout(rollout("live-2"))
    writes(store).add_reward(reward(1.0, rollout_id="live-2"))

    moved = writes(store).add_name("live-2", LIVE)

    assert moved == 0
    assert len(store.rewards.rewards("live-2")) == 1


def test_a_name_for_nothing_is_refused(store: Store) -> None:
    with pytest.raises(UnknownError, match="nobody"):
        writes(store).add_name("a", "nobody")


def test_a_rollout_that_is_forgotten_takes_its_names_along(store: Store) -> None:
    from tau_live.core.records import RolloutStatus

    writes(store).begin_rollout(rollout(status=RolloutStatus.SUCCEEDED, ended_at=1.0))
    writes(store).add_name("a", LIVE)

    forget_old(store, before=9.0, limit=9)

    assert writes(store).rollouts_of("a") == []


def test_the_last_run_of_a_session_is_the_one_that_began_last(store: Store) -> None:
    begin(store, "live-1", "s")
    begin(store, "live-2", "s")
    begin(store, "live-2-inside", "s", inside="live-2")
    begin(store, "live-3", "another")

    found = writes(store).last_of("s")

    assert found == {"tests": "live-2"}
    assert writes(store).last_of("s", "tests") == {"tests": "live-2"}


def test_a_run_inside_one_of_another_session_is_the_last_of_its_own(store: Store) -> None:
    begin(store, "live-outer", "user")
    begin(store, "live-inner", "conversation", inside="live-outer")

    found = writes(store).last_of("conversation")

    assert found == {"tests": "live-inner"}


def test_hosts_that_share_a_session_are_told_apart(store: Store) -> None:
    begin(store, "live-1", "s", host="one")
    begin(store, "live-2", "s", host="two")

    found = writes(store).last_of("s")

    assert found == {"one": "live-1", "two": "live-2"}
    assert writes(store).last_of("s", "one") == {"one": "live-1"}
    assert writes(store).last_of("s", "three") == {}
    assert writes(store).last_of("nobody") == {}
