from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.experience.pool import EMPTY, Pool, PoolError, pool_version
from tau_live.experience.records import Operation

HEAD: dict[str, Any] = {
    "run_id": "tfg-1", "epoch": 1, "step": 0, "pool_before": "", "pool_after": "", "evidence": [],
    "reason": "", "by": "system", "created_unix_ms": 0, "key_id": "0" * 12, "prev_stamp": "0" * 64,
    "stamp_signature": "0" * 64,
}  # fmt: skip


def operations(*parts: dict[str, Any]) -> list[Operation]:
    return [Operation(**{**HEAD, "seq": seq, **own}) for seq, own in enumerate(parts, start=1)]


def add(number: int) -> dict[str, Any]:
    return {"op": "ADD", "id": f"x-00000{number}", "version": 1}


def update(number: int, version: int) -> dict[str, Any]:
    return {"op": "UPDATE", "id": f"x-00000{number}", "version": version}


def test_a_pool_is_named_by_its_content() -> None:
    assert pool_version({}) == EMPTY == "E-4f53cda18c2b"
    assert pool_version({"x-000002": 3, "x-000001": 1}) == "E-7653e6f3115c"


def test_lessons_enter_change_join_and_leave() -> None:
    merge = {"op": "MERGE", "id": "x-000003", "version": 1, "ids": ["x-000001", "x-000002"]}

    pool = Pool.fold(operations(add(1), add(2), update(1, 1), merge, add(4)))
    pool.apply(operations({"op": "PRUNE", "id": "x-000004"})[0])

    assert pool.lessons == {"x-000003": 1}
    assert pool.newest == {"x-000001": 2, "x-000002": 1, "x-000003": 1, "x-000004": 1}
    assert ("x-000003", 1) in pool
    assert pool.refused == []


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (add(1), "duplicate_id"),
        (update(1, 2), "stale_version"),
        (update(2, 1), "unknown_id"),
        ({"op": "DELETE", "id": "x-000009"}, "unknown_id"),
        ({"op": "QUARANTINE"}, "unknown_id"),
        ({"op": "MERGE", "id": "x-000003", "ids": ["x-000001", "x-000009"]}, "unknown_id"),
        ({"op": "MERGE", "id": "x-000003", "ids": ["x-000001", "x-000001"]}, "unknown_id"),
        ({"op": "ROLLBACK", "pool_after": "E-000000000000"}, "unknown_pool"),
    ],
)
def test_an_operation_that_does_not_fit_changes_nothing(
    operation: dict[str, Any], reason: str
) -> None:
    pool = Pool.fold(operations(add(1)))

    with pytest.raises(PoolError) as raised:
        pool.apply(operations(operation)[0])

    assert raised.value.reason == reason
    assert Pool.fold(operations(add(1), operation)).refused == [(2, reason)]
    assert pool.lessons == {"x-000001": 1}


def test_a_merge_of_a_known_id_is_refused_and_nothing_leaves() -> None:
    again = {"op": "MERGE", "id": "x-000001", "version": 1, "ids": ["x-000001", "x-000002"]}

    pool = Pool.fold(operations(add(1), add(2), again))

    assert pool.refused == [(3, "duplicate_id")]
    assert pool.lessons == {"x-000001": 1, "x-000002": 1}


def test_a_rollback_restores_a_pool_by_its_content() -> None:
    accepted = Pool.fold(operations(add(1))).version

    pool = Pool.fold(
        operations(
            add(1), {"op": "ACCEPT"}, update(1, 1), add(2),
            {"op": "ROLLBACK", "pool_after": accepted},
        )
    )  # fmt: skip

    assert pool.version == pool.best == accepted
    assert pool.lessons == {"x-000001": 1}
    assert pool.newest["x-000001"] == 2


ANY = st.builds(
    lambda op, id_, version, ids: {"op": op, "id": id_, "version": version, "ids": ids},
    st.sampled_from(["ADD", "UPDATE", "MERGE", "DELETE", "PRUNE", "KEEP", "ACCEPT"]),
    st.sampled_from([f"x-00000{n}" for n in range(6)]),
    st.integers(1, 3),
    st.lists(st.sampled_from([f"x-00000{n}" for n in range(6)]), max_size=3),
)


@given(st.lists(ANY, max_size=30))
def test_the_fold_of_the_log_is_the_pool(parts: Sequence[dict[str, Any]]) -> None:
    pool, log = Pool(), []
    for operation in operations(*parts):
        before = dict(pool.lessons)
        try:
            pool.apply(operation)
        except PoolError:
            assert pool.lessons == before
        else:
            log.append(operation)

    again = Pool.fold(log)

    assert again.refused == []
    assert (again.version, again.best, again.newest) == (pool.version, pool.best, pool.newest)
    assert all(pool.newest[id_] >= version for id_, version in pool.lessons.items())
