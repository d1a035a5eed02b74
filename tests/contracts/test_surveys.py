"""What a report asks of a store."""

from msgspec.structs import replace

from tau_live.core.records import Amendment, Reason, RolloutStatus
from tau_live.store.records import Assignment, Choice, RolloutColumns
from tau_live.store.roles import Store
from tests.contracts.conftest import OpenStore
from tests.contracts.making import attempt, decision, rollout
from tests.writes import writes


def begun(store: Store, number: int) -> str:
    rollout_id = f"live-{number}"
    writes(store).begin_rollout(rollout(rollout_id, started_at=float(number)))
    writes(store).begin_attempt(attempt(rollout_id))
    return rollout_id


def test_an_empty_store_has_no_span(opened: OpenStore) -> None:
    surveys = opened().surveys

    assert surveys.span() is None
    assert surveys.places(limit=9) == []


def test_the_span_goes_from_the_first_to_the_last(opened: OpenStore) -> None:
    store = opened()
    for number in range(1, 5):
        begun(store, number)

    assert store.surveys.span() == (1, 4)
    assert store.surveys.places(limit=3) == [1, 2, 3]


def test_rollouts_are_found_by_place_and_those_that_are_not_there_left_out(
    opened: OpenStore,
) -> None:
    store = opened()
    for number in range(1, 4):
        begun(store, number)
    writes(store).amend_rollout("live-2", Amendment(metadata={"cost_usd": 0.25}))
    writes(store).set_status("live-2", RolloutStatus.FAILED, at=9.0, reason=Reason.ERROR)
    writes(store).mark_ready("live-2", total_reward=0.5)

    found = store.surveys.rollouts([3, 2, 77])

    assert found == [
        RolloutColumns(2, "failed", 2.0, 9.0, 0.5, None, 0.25),
        RolloutColumns(3, "running", 3.0, None, None, None, None),
    ]


def test_a_cost_that_is_no_number_is_not_known(opened: OpenStore) -> None:
    store = opened()
    for number, cost in enumerate(("0.25", None, True, [1.0]), start=1):
        writes(store).amend_rollout(begun(store, number), Amendment(metadata={"cost_usd": cost}))

    assert [one.cost_usd for one in store.surveys.rollouts([1, 2, 3, 4])] == [None] * 4


def test_choices_come_in_their_order_and_no_more_than_asked_for(opened: OpenStore) -> None:
    store = opened()
    for number in (1, 2):
        rollout_id = begun(store, number)
        for ordinal in (1, 2):
            told = replace(decision(ordinal, rollout_id), context={"n": number})
            writes(store).add_decision(told)

    found = store.surveys.choices([1, 2], limit=3)

    assert [one.rollout for one in found] == [1, 1, 2]
    assert found[2] == Choice(2, "model", "small", found[2].latency_us, '{"n":2}')


def test_a_context_that_is_too_long_is_not_read(opened: OpenStore) -> None:
    store = opened()
    told = replace(decision(1, begun(store, 1)), context={"text": "x" * 5000})
    writes(store).add_decision(told)

    assert [one.context for one in store.surveys.choices([1], limit=9)] == [""]


def test_assignments_say_who_decided_with_which_probability(opened: OpenStore) -> None:
    store = opened()
    for number, arm in ((1, "learner"), (2, "control")):
        told = replace(decision(1, begun(store, number)), arm=arm, share=0.75)
        writes(store).add_decision(told)

    assert store.surveys.assignments([1, 2, 3]) == [
        Assignment(1, "model", True, 0.75),
        Assignment(2, "model", False, 0.75),
    ]
