"""Bad values from hosts, adapters and files: nobody is hurt, and all is accounted for.

Each part runs in a process of its own, which has to survive; one case is repeated by
``python -m tests.proof.inputs_child PART --seed SEED --only NUMBER``, as a faulty one prints.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.proof.figures import Figure, Progress, Tier

ROOT = Path(__file__).parents[2]
DEADLINE_S = 3_600.0


class Part(NamedTuple):
    """One child.

    Attributes:
        name: The name of the part.
        seed: The seed of its cases.
        cases: The number of cases that are drawn; the structured ones come on top.
    """

    name: str
    seed: int
    cases: int


PARTS: Mapping[Tier, tuple[Part, ...]] = {
    Tier.QUICK: (
        Part("live", 5, 600),
        Part("readers", 5, 9_000),
        Part("twin", 5, 250),
        Part("bombs", 5, 1),
        Part("files", 5, 4),
    ),
    Tier.LONG: (
        *(Part("live", seed, 20_000) for seed in range(5, 7)),
        *(Part("readers", seed, 250_000) for seed in range(5, 9)),
        *(Part("twin", seed, 5_000) for seed in range(5, 8)),
        Part("bombs", 5, 1),
        Part("files", 5, 300),
    ),
}
LEAST: Mapping[Tier, int] = {Tier.QUICK: 10_000, Tier.LONG: 1_000_000}


def prove(tier: Tier, progress: Progress) -> Iterator[Figure]:
    """Run every part, and sum up their results."""
    parts = PARTS[tier]
    results: list[tuple[Part, dict[str, Any]]] = []
    for done, part in enumerate(parts):
        progress(done, len(parts))
        results.append((part, _run(part)))
    progress(len(parts), len(parts))
    everything = [result for _, result in results]
    live = [result for part, result in results if part.name in ("live", "twin")]
    wrong = {kind: sum(result["wrong"].get(kind, 0) for result in everything) for kind in WRONG}

    yield Figure(1, "cases of bad input", _sum(everything, "cases"), at_least=LEAST[tier])
    yield Figure(1, "processes that did not live", _sum(everything, "died"), at_most=0)
    for kind, (promise, words) in WRONG.items():
        yield Figure(promise, words, wrong[kind], at_most=0)
    yield Figure(1, "longest call with bad input, ms of CPU in the host's thread",
                 max(result["longest_ms"] for result in live), at_most=50)  # fmt: skip
    yield Figure(1, "99th percentile of calls with bad input, ms of CPU in the host's thread",
                 max(result["p99_ms"] for result in live), at_most=5)  # fmt: skip
    yield Figure(1, "the longest that Python's garbage collector took in one, which is apart, ms",
                 max(result.get("collected_ms", 0.0) for result in live))  # fmt: skip
    yield Figure(3, "decisions compared with a twin's that got no poison",
                 _sum(everything, "compared"), at_least=1)  # fmt: skip
    yield Figure(
        3, "probabilities changed by poisoned events", _sum(everything, "changed"), at_most=0
    )
    yield Figure(
        4, "lines of spoiled files that are not accounted for", _sum(everything, "lost"), at_most=0
    )
    yield from _bombs(everything)


def _bombs(everything: list[dict[str, Any]]) -> Iterator[Figure]:
    yield Figure(5, "checkpoint bombs refused", _sum(everything, "bombs"), at_least=20)
    most = max(result.get("most_mb", 0.0) for result in everything)
    yield Figure(5, "most memory that refusing a checkpoint bomb took, MB", most, at_most=32)
    longest = max(result.get("most_ms", 0.0) for result in everything)
    yield Figure(5, "longest that refusing a checkpoint bomb took, ms", longest, at_most=500)


WRONG: Mapping[str, tuple[int, str]] = {
    "raised": (1, "exceptions that reached the host or the reader's caller"),
    "mutated": (1, "host's values changed"),
    "not offered": (1, "decisions that are none of the options"),
    "not counted": (4, "sums of offered, stored, refused and dropped that do not add up"),
    "odd": (1, "other faults: gate, integrity, results, a good event that is not stored"),
}
"""The kinds of faults: the promise that each would break, and its figure."""


def _sum(results: list[dict[str, Any]], name: str) -> int:
    return sum(result.get(name, 0) for result in results)


def _run(part: Part) -> dict[str, Any]:
    """Run a part in a process of its own; its faults are printed, so that they can be repeated."""
    roots = os.pathsep.join([str(ROOT), str(ROOT / "hooks")])
    own = {name: value for name, value in os.environ.items() if not name.startswith("TAU_LIVE")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.proof.inputs_child", part.name,
         "--seed", str(part.seed), "--cases", str(part.cases)],
        cwd=ROOT, env={**own, "PYTHONPATH": roots}, capture_output=True, text=True, check=False,
        timeout=DEADLINE_S,
    )  # fmt: skip
    where = f"python -m tests.proof.inputs_child {part.name} --seed {part.seed}"
    if done.returncode:
        print(f"{where}: {done.returncode}\n{done.stderr[-2_000:]}", file=sys.stderr)
        return {"cases": 0, "died": 1, "wrong": {}, "longest_ms": 0.0, "p99_ms": 0.0}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    for words in result["words"]:
        print(f"{where}: {words}", file=sys.stderr)
    return result
