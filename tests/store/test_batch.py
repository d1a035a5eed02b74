"""A batch of many calls answers, and in the end stores, what batches of one call each would."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tau_live.core.errors import TauLiveError
from tau_live.core.records import (
    Amendment,
    Attempt,
    AttemptStatus,
    Decision,
    Reason,
    Reward,
    Rollout,
    RolloutConfig,
    RolloutStatus,
    Span,
)
from tau_live.store.roles import Batch
from tau_live.store.sqlite.store import SqliteStore
from tests.store.everything import everything

IDS = ("live-1", "live-2", "live-3")
STORED = "live-0"
"""A rollout that began before the batch."""
Call = tuple[str, Sequence[Any], Mapping[str, Any]]
"""The method, and what it is called with."""

any_id = st.sampled_from([*2 * IDS[:1], *IDS, STORED])
id_ = st.sampled_from([*3 * IDS[:1], IDS[1], STORED])  # these have begun, with two attempts each
number = st.sampled_from([1, 2])
at = st.integers(0, 9).map(float)
text = st.sampled_from(["", "a", "b"])
maybe = st.none() | text
data = st.dictionaries(text, st.integers(0, 2), max_size=2)
points = st.sampled_from(["model", "tool"])
arms = st.sampled_from([("learner", 0.5), ("control", 0.5), ("control", 1.0), ("import", None)])


def call(name: str, *args: st.SearchStrategy[Any], **named: Any) -> st.SearchStrategy[Call]:
    return st.tuples(st.just(name), st.tuples(*args), st.fixed_dictionaries(named))


def decisions() -> st.SearchStrategy[Decision]:
    return arms.flatmap(
        lambda arm: st.builds(
            Decision, rollout_id=id_, attempt=number, ordinal=number, point=points,
            options=st.just(("x", "y")), chosen=st.just("x"), applied=st.sampled_from("xy"),
            propensity=st.none() | st.just(0.5), arm=st.just(arm[0]), share=st.just(arm[1]), at=at,
            context=data, encoded=st.binary(max_size=2),
        )
    )  # fmt: skip


def rollouts(*statuses: RolloutStatus) -> st.SearchStrategy[Rollout]:
    return st.builds(
        Rollout, rollout_id=any_id, host=text, session_id=maybe, parent_id=maybe, name=text,
        status=st.sampled_from(statuses), input=maybe, metadata=data, started_at=st.none() | at,
        config=st.builds(RolloutConfig, timeout_s=st.none() | st.just(5.0)),
    )  # fmt: skip


def attempts(*statuses: AttemptStatus) -> st.SearchStrategy[Attempt]:
    return st.builds(
        Attempt, rollout_id=id_, number=st.sampled_from([2, 3]), execution=text, started_at=at,
        last_heartbeat_at=at, status=st.sampled_from(statuses), error_message=maybe,
    )  # fmt: skip


SPANS = st.builds(
    Span, rollout_id=id_, attempt=number, span_id=text, parent_span_id=maybe, kind=st.just("tool"),
    name=text, status=text, attributes=data, started_at=at, ended_at=st.none() | at,
)  # fmt: skip
AMENDMENTS = st.builds(
    Amendment, name=text, session_id=maybe, parent_id=maybe, input=maybe, metadata=data,
    started_at=st.none() | at, later=st.booleans(),
)  # fmt: skip
REWARDS = st.builds(
    Reward, rollout_id=any_id, decision_id=maybe, name=text, value=st.none() | at, label=maybe,
    source=text, at=at,
)  # fmt: skip
ENDS = st.sampled_from([RolloutStatus.FAILED, RolloutStatus.SUCCEEDED, RolloutStatus.CANCELLED])

USUAL = st.one_of(
    call("begin_rollout", rollouts(RolloutStatus.RUNNING)),
    call("begin_attempt", attempts(AttemptStatus.RUNNING)),
    call("add_spans", st.lists(SPANS, min_size=1, max_size=3)),
    call("amend_rollout", id_, AMENDMENTS),
    call(
        "set_attempt_status", id_, number, st.just(AttemptStatus.FAILED),
        at=at, error_message=maybe,
    ),
    call(
        "set_status", id_, ENDS,
        at=at, reason=st.none() | st.sampled_from(Reason), error_type=maybe,
    ),
    call("close_spans", id_, number, status=text, at=at),
    call("find_rollout", any_id),
    call("attempts", any_id),
    call("spans", any_id),
    call("add_decision", decisions(), assigned=st.booleans()),
    call("add_decision", decisions()),
    call("add_reward", REWARDS),
    call("rewards", any_id),
    call("mark_ready", id_, total_reward=at, run_reward=st.none() | at),
    call("await_reward", id_, until=at),
    call("leave_out", id_, maybe),
    call("add_name", any_id, id_),
    call("count", text, st.integers(1, 3)),
)  # fmt: skip
RARE = st.one_of(
    call("begin_rollout", rollouts(RolloutStatus.PREPARING)),
    call("begin_attempt", attempts(AttemptStatus.PREPARING)),
    call("set_attempt_status", id_, number, st.sampled_from(AttemptStatus), at=at),
    call("set_status", id_, st.sampled_from(RolloutStatus), at=at),
    call("take_over", id_, maybe),
    call("rollouts_of", any_id),
    call("last_of", text),
)
CALLS = st.integers(0, 15).flatmap(lambda drawn: USUAL if drawn else RARE)


def begun(rollout_id: str) -> list[Call]:
    """Return what most calls need, so that few of them fail."""
    tried = Attempt(
        rollout_id=rollout_id, number=1, status=AttemptStatus.RUNNING, started_at=1.0,
        last_heartbeat_at=1.0,
    )  # fmt: skip
    return [
        (
            "begin_rollout",
            (Rollout(rollout_id=rollout_id, status=RolloutStatus.RUNNING),),
            {},
        ),
        ("begin_attempt", (tried,), {}),
        ("begin_attempt", (replace(tried, number=2),), {}),
    ]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqliteStore]:
    folder: Path = tmp_path_factory.mktemp("batch")
    with closing(SqliteStore.open(folder / "store.sqlite")) as opened:
        yield opened


class UndoneError(Exception):
    """Ends a transaction, so that nothing of it is kept."""


def answer(batch: Batch, made: Call) -> object:
    """Return what a call answers, without the numbers of rows."""
    name, args, named = made
    do: Callable[..., object] = getattr(batch, name)
    found = do(*args, **named)
    return [_public(one) for one in found] if isinstance(found, list) else _public(found)


def _public(found: object) -> object:
    kind = type(found)
    names = getattr(kind, "__struct_fields__", ())
    return {name: getattr(found, name) for name in names if name != "seq"} or found


def lived(store: SqliteStore, calls: Sequence[Call], *, at_once: bool) -> list[object]:
    """Return what calls answer, up to the first error, and behind the last what is stored."""
    answers: list[object] = []
    with suppress(UndoneError), store.begin():
        with store.batch([]) as before:
            for made in begun(STORED):
                answer(before, made)
        try:
            for some in [calls] if at_once else [[made] for made in calls]:
                with store.batch([*IDS, STORED] if at_once else []) as batch:
                    answers.extend(answer(batch, made) for made in some)
        except TauLiveError as error:  # nothing of its transaction would be kept
            answers.append(f"{type(error).__name__}: {error}")
        else:
            answers.append(everything(store._connection))
        raise UndoneError
    return answers


@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(CALLS, min_size=16, max_size=40).map(
        lambda rest: [*begun(IDS[0]), *begun(IDS[1]), *rest]
    )
)
@example(
    [
        *begun(IDS[0]), *begun(IDS[1]), ("add_name", (IDS[1], IDS[1]), {}),
        ("add_name", (IDS[1], IDS[0]), {}), ("rollouts_of", (IDS[1],), {}),
    ]
)  # fmt: skip
def test_a_batch_answers_and_stores_what_the_store_does(
    store: SqliteStore, calls: list[Call]
) -> None:
    one_by_one = lived(store, calls, at_once=False)

    together = lived(store, calls, at_once=True)

    assert together == one_by_one


def test_a_batch_that_fails_stores_nothing(store: SqliteStore) -> None:
    with pytest.raises(UndoneError), store.begin(), store.batch(IDS) as batch:
        batch.begin_rollout(Rollout(rollout_id="live-1", status=RolloutStatus.RUNNING))
        raise UndoneError

    assert store.rollouts.find_rollout("live-1") is None
