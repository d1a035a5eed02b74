"""Records of every kind, found by their fields and by members of their JSON data."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tau_live.core.records import Attempt, Resource, Rollout, RolloutConfig, Span, Worker
from tau_live.store.records import Condition
from tau_live.store.roles import Store
from tests.contracts.making import LIVE, begun, claimed, queued, span
from tests.writes import writes

CUSTOMERS = ("acme inc", "acme ltd", "other")


def _filled(store: Store) -> None:
    for number, customer in enumerate(CUSTOMERS):
        metadata = {"customer": customer, "deep": {"place": 9 - number, "flag": number == 1}}
        config = RolloutConfig(max_attempts=number + 1)
        store.queue.enqueue(
            replace(queued(f"q-{number}", config), metadata=metadata, input=[number]), at=5.0
        )


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Condition("metadata.customer", "is", "other"), "2"),
        (Condition("metadata.customer", "contains", "acme"), "01"),
        (Condition("metadata.customer", "in", ["other", "acme inc"]), "02"),
        (Condition("metadata.deep.place", "from", 8), "01"),
        (Condition("metadata.deep.place", "before", 8), "2"),
        (Condition("metadata.deep.flag", "is", value=True), "1"),
        (Condition("metadata.deep.absent", "is", None), "012"),
        (Condition("metadata.customer.name", "is", "other"), ""),
        (Condition("input.0", "is", 0), ""),
        (Condition("output.sum", "is", None), "012"),
        (Condition("config.max_attempts", "from", 2), "12"),
    ],
    ids=str,
)
def test_rollouts_are_found_by_members_of_their_data(
    store: Store, condition: Condition, expected: str
) -> None:
    _filled(store)

    found = store.find(Rollout, condition)

    assert "".join(rollout.rollout_id[-1] for rollout in found.records) == expected
    assert found.total == len(expected)


def test_every_kind_with_data_is_found_by_a_member_of_it(store: Store) -> None:
    begun(store)
    spans = [span("a", attributes={"trace_id": "x"}), span("b", attributes={"trace_id": "y"})]
    writes(store).add_spans(spans)
    store.workers.register("w-1", at=1.0, stats={"gpu": 0.5})
    store.resources.publish({"prompt": {"text": "be brief"}, "rate": 3}, at=1.0)

    [one] = store.find(Span, Condition("attributes.trace_id", "is", "y")).records
    workers = store.find(Worker, Condition("stats.gpu", "from", 0.4)).total
    [prompt] = store.find(Resource, Condition("content.text", "contains", "brief")).records

    assert (one.span_id, workers, prompt.name) == ("b", 1, "prompt")


def test_a_member_is_an_order_too_and_goes_with_conditions_and_pages(store: Store) -> None:
    _filled(store)

    found = store.find(
        Rollout,
        Condition("metadata.customer", "contains", "acme"),
        any_of=[Condition("metadata.deep.place", "is", 8), Condition("rollout_id", "is", "q-0")],
        order_by="metadata.deep.place",
        limit=1,
    )
    newest = store.find(Rollout, order_by="metadata.deep.place", descending=True)

    assert ([rollout.rollout_id for rollout in found.records], found.total) == (["q-1"], 2)
    assert [rollout.rollout_id for rollout in newest.records] == ["q-0", "q-1", "q-2"]


def test_a_dot_may_be_part_of_a_members_name(store: Store) -> None:
    begun(store)
    flat, deep = {"gen_ai.request.model": "m"}, {"gen_ai": {"request": {"model": "m"}}}
    writes(store).add_spans([span("flat", attributes=flat), span("deep", attributes=deep)])

    found = store.find(Span, Condition("attributes.gen_ai.request.model", "is", "m"))

    assert [one.span_id for one in found.records] == ["flat", "deep"]


@pytest.mark.parametrize(
    "name",
    [
        *("'", '"', "\\", '\\"', "$", "a'b", 'a"]b', "[0]", "#", "?", "{}", "{0}", "%s", "a b"),
        *("') or 1=1 --", "'; drop table spans; --", "ключ", "\u2603", "\t", " ", ".", "..", "a."),
        *("value", "key", "MEMBER", ".".join("abcdefgh"), ".".join(["deep"] * 5_000)),
    ],
)
def test_a_name_is_data_whatever_it_holds(store: Store, name: str) -> None:
    begun(store)
    writes(store).add_spans([span("a", attributes={name: "x"}), span("b", attributes={"x": name})])

    found = store.find(Span, Condition(f"attributes.{name}", "is", "x"))
    ordered = store.find(Span, order_by=f"attributes.{name}", descending=True, limit=1)

    assert [one.span_id for one in (*found.records, *ordered.records)] == ["a", "a"]
    assert store.find(Span).total == 3


def test_damaged_data_has_no_members_and_hides_no_others(
    store: Store, edit: Callable[[str], None]
) -> None:
    _filled(store)
    edit("update rollouts set metadata = '{' where rollout_id = 'q-0'")

    found = store.find(Rollout, Condition("metadata.customer", "contains", "acme"))

    assert [rollout.rollout_id for rollout in found.records] == ["q-1"]


@pytest.mark.parametrize(
    ("kind", "field", "near"),
    [
        (Rollout, "statos", "status"),
        (Rollout, "meta_data.customer", "metadata.MEMBER"),
        (Rollout, "metadata", "metadata.MEMBER"),
        (Rollout, "metadata.", "metadata.MEMBER"),
        (Rollout, "config.max_attempt", "config.max_attempts"),
        (Span, "attribute.trace_id", "attributes.MEMBER"),
        (Attempt, "rollout", "rollout_id"),
        (Worker, "status; drop", "status"),
    ],
)
@pytest.mark.parametrize("ordered", [True, False], ids=["order", "condition"])
def test_of_an_unknown_field_the_nearest_is_named(
    store: Store, kind: type[Rollout], field: str, near: str, *, ordered: bool
) -> None:
    with pytest.raises(ValueError, match="field must be one of") as raised:
        if ordered:
            store.find(kind, order_by=field)
        else:
            store.find(kind, Condition(field, "is", "x"))

    assert str(raised.value).endswith(f"got {field!r}, did you mean {near!r}?")


def test_what_is_found_comes_in_the_order_in_which_it_came(store: Store) -> None:
    for name in ("q-2", "q-1"):
        store.queue.enqueue(queued(name), at=5.0)
        claimed(store, f"w-{name}", at=6.0)
    store.workers.register("w-0", at=7.0)
    for at, name in enumerate(("b", "a", "b")):
        store.resources.publish({name: at}, at=float(at))
    begun(store, LIVE)

    kinds = {
        Rollout: [rollout.rollout_id for rollout in store.find(Rollout).records],
        Attempt: [attempt.rollout_id for attempt in store.find(Attempt).records],
        Worker: [worker.worker_id for worker in store.find(Worker).records],
        Resource: [f"{one.name}{one.version}" for one in store.find(Resource).records],
    }

    assert kinds == {
        Rollout: ["q-2", "q-1", LIVE],
        Attempt: ["q-2", "q-1", LIVE],
        Worker: ["w-q-1", "w-q-2", "w-0"],  # of one moment by their ids
        Resource: ["b1", "a1", "b2"],
    }
