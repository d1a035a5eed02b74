"""Workers of multiprocessing, which leave without running what is registered for the exit."""

from pathlib import Path

import pytest

from tests.live.running import done, process, rollouts

WORKERS = """
import multiprocessing, tau_live

def work(number):
    with tau_live.run("work", key=number) as run:
        run.decide("p", ["a", "b"])
        run.reward(1.0)

if __name__ == "__main__":
    fork = multiprocessing.get_context("fork")
    workers = [fork.Process(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print([worker.exitcode for worker in workers], flush=True)
"""


@pytest.mark.slow
def test_what_forked_workers_did_is_stored_when_they_leave(path: Path) -> None:
    with process(WORKERS, path) as parent:
        codes = done(parent)

    found = rollouts(path)
    assert codes.strip() == "[0, 0, 0, 0]"
    assert [row.status for row in found] == ["succeeded"] * 4
    assert all(row.total_reward == 1.0 for row in found)
