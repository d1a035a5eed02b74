"""A real Ray gives the results of the caller's thread, whoever dies meanwhile."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tau_live.core.errors import EngineError
from tau_live.engines.local import RETRIES
from tau_live.rl.engine import InProcess
from tests.engines.work import Deadly, bootstrapped, die, process_of, refuse, square

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'tau-live[ray]'")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[1, 2])
def workers(request: pytest.FixtureRequest) -> Iterator[int]:
    yield request.param
    ray.shutdown()


def test_it_says_that_it_is_started_once_and_where_there_is_no_cluster() -> None:
    from tau_live.engines.ray import Ray

    starts: list[str] = []
    engine = Ray(1, tell=lambda: starts.append("started"))

    with pytest.raises(EngineError, match="Ray cannot be started"):
        list(Ray(1, address="auto").map(square, [1]))
    results = [list(engine.map(square, [number])) for number in range(2)]

    assert results == [[0], [1]]
    assert (starts, engine.is_started) == (["started"], True)
    assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    engine.close()
    assert not ray.is_initialized()


def test_results_come_in_the_order_of_shards(workers: int) -> None:
    from tau_live.engines.ray import Ray

    for shards in (0, 1, 40):
        results = list(Ray(workers).map(square, range(shards)))

        assert results == [number * number for number in range(shards)]


def test_its_workers_take_part_and_no_more_than_were_wanted(workers: int) -> None:
    from tau_live.engines.ray import Ray

    taking_part = {*Ray(workers).map(process_of, range(200))}

    assert 1 <= len(taking_part) <= workers
    assert os.getpid() not in taking_part


def test_it_draws_the_same_bits(workers: int) -> None:
    from tau_live.engines.ray import Ray

    assert bootstrapped(Ray(workers)).estimates == bootstrapped(InProcess()).estimates


def test_a_killed_worker_changes_no_bit(workers: int, tmp_path: Path) -> None:
    from tau_live.engines.ray import Ray

    mark = tmp_path / "mark"

    found = bootstrapped(Deadly(Ray(workers), mark))

    assert mark.exists()
    assert found.estimates == bootstrapped(InProcess()).estimates


def test_a_shard_that_kills_every_worker_ends_the_work(workers: int, tmp_path: Path) -> None:
    from tau_live.engines.ray import Ray

    attempts = tmp_path / "attempts"

    with pytest.raises(EngineError, match=f"shard 1 of 1: Ray lost it {RETRIES + 1} times"):
        list(Ray(workers).map(partial(die, attempts), [0]))

    assert attempts.read_text() == "x" * (1 + RETRIES)


def test_an_error_of_the_function_is_raised_and_not_tried_again(
    workers: int, tmp_path: Path
) -> None:
    from tau_live.engines.ray import Ray

    attempts = tmp_path / "attempts"

    with pytest.raises(EOFError, match="no shard 7"):
        list(Ray(workers).map(partial(refuse, attempts), [7]))

    assert attempts.read_text() == "x"
