"""The effect of somebody who lies about rewards: undefended, with a cap, and with a list."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean

from tests.proof.figures import Figure, Progress, Tier

ROOT = Path(__file__).parents[2]
SEEDS: Mapping[Tier, int] = {Tier.QUICK: 1, Tier.LONG: 10}
LIES = 0.6
"""The share of rewards that lie: more than half, so that believing them turns the policy over."""

CAP = 0.1
NO_CAP: Mapping[str, str] = {}
CAPPED = {"TAU_LIVE_RL_SOURCE_CAPS": json.dumps({"user:*": CAP})}
LISTED = {"TAU_LIVE_RL_REWARD_SOURCES": "checked"}


def prove(tier: Tier, progress: Progress) -> Iterator[Figure]:
    """Live four times, and compare how often the worse option is chosen."""
    seeds = range(SEEDS[tier])
    percentages: dict[str, float] = {}
    refused = 0.0
    for number, (name, lies, settings) in enumerate(
        (
            ("honest", 0.0, NO_CAP),
            ("believed", LIES, NO_CAP),
            ("capped", LIES, CAPPED),
            ("listed", LIES, LISTED),
        )
    ):
        progress(number, 4)
        lives = [_lived(lies, seed, settings) for seed in seeds]
        percentages[name] = 100.0 * mean(life["bad"] for life in lives)
        refused = mean(life["refused"] for life in lives)
    yield Figure(7, "choices of the worse option at last, nobody lies, in percent",
                 percentages["honest"], at_most=30.0)  # fmt: skip
    yield Figure(7, f"the same where {LIES:.0%} of rewards lie and all are believed",
                 percentages["believed"], at_least=50.0)  # fmt: skip
    yield Figure(7, f"more of them than honest, each liar capped at {CAP:.0%} of an update",
                 percentages["capped"] - percentages["honest"], at_most=25.0)  # fmt: skip
    yield Figure(7, "more of them than honest, liars not on the list of sources",
                 percentages["listed"] - percentages["honest"], at_most=15.0)  # fmt: skip
    yield Figure(7, "rewards refused and counted for it, per life", refused, at_least=60.0)


def _lived(lies: float, seed: int, settings: Mapping[str, str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "tests.proof.poisoned_life", str(lies), str(seed)],
            cwd=ROOT,
            env={
                **{name: v for name, v in os.environ.items() if not name.startswith("TAU_LIVE")},
                "PYTHONPATH": str(ROOT),
                "TAU_LIVE_RL": "1",
                "TAU_LIVE_RL_LEARNER": "flush",
                "TAU_LIVE_RL_UPDATE_INTERVAL": "20",
                "TAU_LIVE_RL_STORE": str(Path(folder) / "store.sqlite"),
                "TAU_LIVE_RL_DECIDE_DEADLINE_MS": "60000",
                **settings,
            },
            stdout=subprocess.PIPE,
            check=True,
        )
    life: dict[str, float] = json.loads(done.stdout)
    return life
