"""Recordings of each scenario that are kept, compared with what is recorded today, and replayed.

``python -m tau_live.testing ADAPTER PLAY FOLDER`` makes them all, for example::

    python -m tau_live.testing tau_live_hooks.pydantic_ai:ADAPTER \
        tests.hooks.conformance.pydantic_ai_play:play tests/hooks/golden/pydantic-ai
"""

import difflib
import json
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import NamedTuple

from tau_live.adapters import Adapter
from tau_live.replay import replay_file
from tau_live.settings import Content, Learner, Settings
from tau_live.system import start
from tau_live.testing.named import named
from tau_live.testing.normalised import RANDOM, normalised
from tau_live.testing.scenarios import Play, Recorded, Scenario, recorded_in
from tau_live.testing.strands import Row

VERSION_FILE = "host-version.txt"
"""Holds the version of the host that the recordings of a folder were made with."""

_STREAM = "golden"
_WAIT_S = 30.0
_SHOWN = 40


class Made(NamedTuple):
    """What came of a play.

    Attributes:
        lines: The recording, without what is different each time.
        outline: What was stored, likewise.
    """

    lines: list[str]
    outline: list[str]


def golden_faults(
    adapter: Adapter, play: Play, scenario: Scenario, *, golden: Path, folder: Path
) -> list[str]:
    """Return where the recording of a play differs from the one that is kept, as lines.

    Args:
        adapter: What is looked at; it must not be attached already.
        play: Plays a scenario.
        scenario: Which one.
        golden: The folder of the recordings that are kept.
        folder: Where stores may be made.
    """
    kept = golden_file(golden, scenario)
    if not kept.exists():
        return [f"there is no recording of {scenario.value}: there is no {kept.name}"]
    made = made_of(adapter, play, scenario, folder=folder)
    return _differences(kept.read_text().splitlines(), made.lines)


def replay_faults(
    adapter: Adapter, play: Play, scenario: Scenario, *, golden: Path, folder: Path
) -> list[str]:
    """Return where a replay of the kept recording stores something else than a play, as lines.

    The arguments are those of ``golden_faults``.
    """
    made = made_of(adapter, play, scenario, folder=folder)
    settings = Settings(store=folder / "replayed.sqlite", learner=Learner.OFF)
    replayed = replay_file(
        golden_file(golden, scenario), settings, progress=lambda _done, _of: None
    )
    refused = [f"line {bad.number}: {bad.reason}" for bad in replayed.bad]
    refused += [f"refused: {why}" for why in replayed.refused]
    return refused or _differences(made.outline, outline(recorded_in(settings)))


def write_golden(adapter: Adapter, play: Play, *, golden: Path, cannot: Sequence[str] = ()) -> int:
    """Record every scenario anew, but those that the host cannot play; return how many it were."""
    golden.mkdir(parents=True, exist_ok=True)
    scenarios = [scenario for scenario in Scenario if scenario not in cannot]
    for scenario in scenarios:
        with tempfile.TemporaryDirectory() as folder:
            made = made_of(adapter, play, scenario, folder=Path(folder))
        golden_file(golden, scenario).write_text("".join(f"{line}\n" for line in made.lines))
    (golden / VERSION_FILE).write_text(f"{host_version(adapter)}\n")
    return len(scenarios)


def golden_file(golden: Path, scenario: Scenario) -> Path:
    """Return where the recording of a scenario is kept."""
    return golden / f"{scenario.value}.jsonl"


def golden_version(golden: Path) -> str:
    """Return the version of the host that recordings were made with; empty if there are none."""
    file = golden / VERSION_FILE
    return file.read_text().strip() if file.exists() else ""


def host_version(adapter: Adapter) -> str:
    """Return the installed version of an adapter's host; empty if it is no installed package."""
    packages = metadata.packages_distributions().get(adapter.module.partition(".")[0], [])
    return metadata.version(packages[0]) if packages else ""


def made_of(adapter: Adapter, play: Play, scenario: Scenario, *, folder: Path) -> Made:
    """Play a scenario with an adapter, and return what was recorded and stored."""
    settings = Settings(
        store=folder / "played.sqlite",
        record=folder / "played.jsonl",
        stream=_STREAM,
        learner=Learner.FLUSH,
        content=Content.REDACTED,
    )
    runtime = start({}, settings)
    if runtime is None:
        raise RuntimeError("tau-live did not start; see its log")
    detach = adapter.attach(lambda: runtime)
    try:
        play(scenario)
    finally:
        detach()
        runtime.flush(_WAIT_S)
        runtime.close(_WAIT_S)
    recorded = (folder / "played.jsonl").read_text().splitlines()
    rows = normalised((json.loads(line) for line in recorded), stream=_STREAM)
    lines = [json.dumps(_told(row), ensure_ascii=False) for row in rows]
    return Made(lines, outline(recorded_in(settings)))


def outline(recorded: Sequence[Recorded]) -> list[str]:
    """Return what was stored of runs, as sorted lines without times and ids."""
    runs = {one.rollout.rollout_id: one for one in recorded}
    found = []
    for one in recorded:
        rollout = one.rollout
        parent = runs.get(rollout.parent_id or "")
        head = {
            "name": RANDOM.sub("id", rollout.name),
            "status": rollout.status,
            "reason": rollout.reason,
            "inside": None if parent is None else parent.rollout.name,
            "session": rollout.session_id is not None,
            "attempts": [[attempt.number, attempt.status] for attempt in one.attempts],
            "turns": rollout.metadata.get("turns"),
            "usage": rollout.metadata.get("usage"),
        }
        steps = sorted(
            json.dumps([span.attempt, span.kind, RANDOM.sub("id", span.name), span.status])
            for span in one.spans
        )
        found.append(json.dumps([head, steps], sort_keys=True))
    return [line for run in sorted(found) for line in _spread(run)]


def _told(row: Row) -> Row:
    """Return an event without the fields that say nothing; reading it fills them in."""
    return {name: value for name, value in row.items() if value not in (None, "", [], {})}


def _spread(run: str) -> list[str]:
    head, steps = json.loads(run)
    return [json.dumps(head), *(f"  {step}" for step in steps)]


def _differences(expected: Sequence[str], found: Sequence[str]) -> list[str]:
    lines = [*difflib.unified_diff(expected, found, "kept", "today", lineterm="", n=0)]
    return lines[:_SHOWN]


def cannot_of(play: str) -> list[str]:
    """Return the scenarios that a play, such as ``package.module:play_code``, cannot play.

    ``CANNOT`` of its module holds for each of the module's plays. What one of them cannot play
    besides stands under its own name, without ``play_``: ``CANNOT_CODE`` is of ``play_code``.
    """
    name, _, function = play.partition(":")
    own = f"CANNOT_{function.removeprefix('play_').upper()}"
    module = import_module(name)
    return [scenario for table in ("CANNOT", own) for scenario in getattr(module, table, ())]


def main() -> None:
    """Record every scenario of a play anew, but those that its module says it cannot play."""
    parser = ArgumentParser(
        prog="python -m tau_live.testing",
        description="Play every scenario on an adapter's host, and store the recordings.",
        epilog="Scenarios in a module's CANNOT are skipped; for its play_code, CANNOT_CODE too. "
        "Example: python -m tau_live.testing theirs:ADAPTER tests.their_play:play golden",
    )
    parser.add_argument("adapter", help="module:name of the adapter")
    parser.add_argument("play", help="module:name of what plays its scenarios")
    parser.add_argument("golden", type=Path, help="folder of the recordings")
    asked = parser.parse_args()
    module = import_module(asked.play.partition(":")[0])
    number = write_golden(
        named(asked.adapter, Adapter),
        getattr(module, asked.play.partition(":")[2]),
        golden=asked.golden,
        cannot=cannot_of(asked.play),
    )
    sys.stdout.write(f"{number} scenarios recorded in {asked.golden}\n")
