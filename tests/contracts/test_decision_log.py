"""Decisions."""

import pytest
from msgspec.structs import replace

from tau_live.core.errors import UnknownError
from tau_live.core.records import Decision, Shadowed
from tau_live.store.roles import Store
from tests.contracts.making import LIVE, attempt, begun, decision, ready, update
from tests.writes import writes

BARE = Decision(
    rollout_id=LIVE,
    attempt=1,
    ordinal=9,
    point="tools",
    options=(),
    chosen=None,
    applied=None,
    at=1.0,
)


MASKED = replace(decision(), allowed=("small",))
HELD = replace(decision(), exploit_only=("large",))


@pytest.mark.parametrize(
    "given", [decision(), BARE, MASKED, HELD], ids=["full", "bare", "masked", "held"]
)
def test_a_decision_comes_back_as_it_was_given(store: Store, given: Decision) -> None:
    begun(store)

    stored = writes(store).add_decision(given)

    found = store.decisions.decision(given.decision_id)
    assert stored
    assert replace(found, seq=0) == given
    assert found.seq > 0


def test_a_place_in_an_attempt_is_taken_once_and_counted(store: Store) -> None:
    begun(store)
    writes(store).add_decision(decision(1))

    again = writes(store).add_decision(replace(decision(1), applied="large"))

    assert not again
    assert [d.applied for d in store.decisions.decisions(LIVE)] == ["small"]
    assert store.counters.counts() == {"duplicate_decisions": 1}


def test_decisions_are_in_the_order_of_their_places(store: Store) -> None:
    begun(store)
    writes(store).begin_attempt(attempt(number=2))
    for number, ordinal in [(2, 1), (1, 10), (1, 2)]:
        writes(store).add_decision(decision(ordinal, number=number))

    found = [(d.attempt, d.ordinal) for d in store.decisions.decisions(LIVE)]

    assert found == [(1, 2), (1, 10), (2, 1)]


def test_a_decision_needs_its_attempt(store: Store) -> None:
    with pytest.raises(UnknownError, match="attempt 'live-1:attempt-1' not found"):
        writes(store).add_decision(decision())


@pytest.mark.parametrize(
    "decision_id",
    [
        "live-1:attempt-1:decision-2",
        "live-2:attempt-1:decision-1",
        "live-1:attempt-1",
        "",
        "live-1:attempt-1:decision-1'",
        f"live-1:attempt-{10**30}:decision-1",
    ],
)
def test_an_unknown_decision_is_an_error(store: Store, decision_id: str) -> None:
    begun(store)
    writes(store).add_decision(decision())

    with pytest.raises(UnknownError) as raised:
        store.decisions.decision(decision_id)

    assert (raised.value.kind, raised.value.id) == ("decision", decision_id)


def test_a_decision_of_a_rollout_with_a_strange_id_is_found(store: Store) -> None:
    strange = "a:attempt-1:decision-1\n:attempt-2"
    begun(store, strange)
    writes(store).add_decision(decision(rollout_id=strange))

    found = store.decisions.decision(f"{strange}:attempt-1:decision-1")

    assert found.rollout_id == strange


def test_a_decision_that_comes_after_its_rollout_was_ready_joins_it(store: Store) -> None:
    ready(store, LIVE)
    before = (store.rewards.ready_count("", after=0), store.rewards.ready_count("model", after=0))

    writes(store).add_decision(decision(1))
    writes(store).add_decision(decision(2))

    after = (store.rewards.ready_count("", after=0), store.rewards.ready_count("model", after=0))
    assert (before, after) == ((1, 0), (0, 1))
    assert store.counters.counts() == {}


def test_a_decision_behind_its_points_watermark_is_kept_and_counted(store: Store) -> None:
    for number in (1, 2, 3):
        ready(store, f"live-{number}", "tools")
    store.policies.add_update(update(2, "model", executed=False), None)

    for number in (1, 2, 3):
        writes(store).add_decision(decision(2, f"live-{number}", point="model"))

    assert len(store.decisions.decisions("live-1")) == 2
    assert store.counters.counts() == {"late_decisions": 2}
    assert store.rewards.ready_count("model", after=store.policies.watermark("model")) == 1


def test_decisions_in_shadow_are_those_that_the_policy_was_asked_for_and_the_host_made(
    store: Store,
) -> None:
    begun(store)
    shadow = replace(decision(), propensity=None)
    others = [
        decision(10),
        replace(shadow, ordinal=11, applied=None),
        replace(shadow, ordinal=12, probabilities=()),
    ]
    mine = [
        replace(shadow, ordinal=n, point=point, applied=applied)
        for n, (point, applied) in enumerate(
            [("tools", "large"), ("model", "small"), ("model", "large"), ("model", "small")],
            start=1,
        )
    ]

    for one in [*mine, *others]:
        writes(store).add_decision(one)

    assert store.decisions.shadow_points() == ["model", "tools"]
    assert [one.applied for one in store.decisions.shadow_decisions("model", limit=2)] == [
        "small",
        "large",
    ]
    assert store.decisions.shadow_decisions("tools", limit=9) == [
        Shadowed(("small", "large"), "large", (0.25, 0.75))
    ]
    assert store.decisions.shadow_decisions("unheard of", limit=9) == []
