"""Nothing is imported in the middle of a host's work, and nothing heavy for a line of a log."""

from pathlib import Path

import pytest

from tests.live.running import done, process

IMPORTS = """
import sys, tau_live
assert tau_live.attach() is not None
before = set(sys.modules)
with tau_live.run("first") as run:
    run.decide("point", {"a": {"x": 1.0}, "b": {"x": 2.0}}, context={"n": 1, "s": "text"},
               allowed=["a"], default="a")
    run.reward(1.0)
from tau_live.core.guard import logger
logger().warning("a line", number=1)
print(sorted(set(sys.modules) - before))
"""


@pytest.mark.slow
def test_the_first_decision_and_the_first_line_import_nothing(path: Path) -> None:
    with process(IMPORTS, path) as importing:
        out = done(importing)

    assert out == "[]\n"
