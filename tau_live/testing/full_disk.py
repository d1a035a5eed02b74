"""A disk that is full while a scenario is played: really, in a process of its own."""

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tau_live.adapters import Adapter
from tau_live.settings import Learner, Settings
from tau_live.system import start
from tau_live.testing.named import named
from tau_live.testing.scenarios import Play, Scenario

_LIMIT = 4_096
_WAIT_S = 5.0
_CODE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from tau_live.testing.full_disk import main
main(sys.argv[2:])
"""


def full_disk_faults(
    adapter: str, play: str, scenario: Scenario, *, folder: Path, timeout_s: float = 120.0
) -> list[str]:
    """Return what is different for the host while no file can grow, one sentence each.

    A process of its own plays the scenario without us and then with us, both after its limit on
    the size of files was set to 4,096 bytes, which the store is larger than.

    Args:
        adapter: Where it is found: ``tau_live_hooks.pydantic_ai:ADAPTER``.
        play: Likewise.
        scenario: What is played.
        folder: Where a store may be made.
        timeout_s: How long that may take.
    """
    path = json.dumps([str(Path(one).resolve()) for one in sys.path])
    done = subprocess.run(  # noqa: S603  # our own code
        [sys.executable, "-c", _CODE, path, adapter, play, scenario.value, str(folder)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        return [f"the process ended with {done.returncode}: {done.stderr}"]
    told = json.loads(done.stdout.splitlines()[-1])
    found = []
    if told["seen"] != told["expected"]:
        found.append(f"the host shows {told['seen']!r} instead of {told['expected']!r}")
    if told["stored"]:
        found.append("the disk was not full: everything was stored")
    return found


def main(arguments: Sequence[str]) -> None:
    """Play a scenario without and with an adapter while no file can grow; print what was seen."""
    adapter, play, scenario, folder = arguments
    settings = Settings(store=Path(folder) / "store.sqlite", learner=Learner.FLUSH)
    shown = _shown(
        named(adapter, Adapter), named(play, object), Scenario(scenario), settings=settings
    )
    sys.stdout.write(f"\n{json.dumps(shown)}\n")


def _shown(
    adapter: Adapter, play: object, scenario: Scenario, *, settings: Settings
) -> dict[str, object]:
    if not callable(play):
        raise TypeError(f"expected a play, got {play!r}")
    played: Play = play
    runtime = start({}, settings)
    if runtime is None or not runtime.flush(_WAIT_S):
        raise RuntimeError("tau-live did not start; see its log")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LIMIT, hard))
    expected = played(scenario)
    detach = adapter.attach(lambda: runtime)
    seen = played(scenario)
    detach()
    stored = runtime.flush(_WAIT_S)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    runtime.close(_WAIT_S)
    return {"seen": seen, "expected": expected, "stored": stored}
