"""A finaliser may begin a run in the middle of another's beginning."""

import os
import subprocess
import sys
from contextvars import ContextVar

import pytest

from tau_live.core.sync import put_back, set_variable

COLLECTING = """
import gc, tau_live
tau_live.run, tau_live.decide  # imported here: an import in a finaliser in an import is Python's
gc.set_threshold(20)


class Cycle:
    def __init__(self):
        self.own = self

    def __del__(self):
        with tau_live.run("finaliser"):
            tau_live.decide("point", ["a", "b"])


for number in range(30_000):
    Cycle()
    with tau_live.run("run"), tau_live.run("inner"):
        pass
print("well")
"""


def test_a_variable_has_its_value_and_gets_back_the_one_before() -> None:
    variable: ContextVar[int] = ContextVar("number", default=0)

    token = set_variable(variable, 3)
    inside = variable.get()
    put_back(variable, token)

    assert (inside, variable.get()) == (3, 0)


@pytest.mark.slow
def test_a_finaliser_that_begins_a_run_does_not_crash_the_process() -> None:
    environ = {
        **os.environ,
        "TAU_LIVE_RL": "",
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }

    done = subprocess.run(
        [sys.executable, "-c", COLLECTING], env=environ, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr
