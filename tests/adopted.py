"""Prompts as ``tau-live optimize`` adopts them, and agents that are offered them."""

from pathlib import Path
from typing import Any

import numpy as np

from tau_live.core.events import PromptArm
from tau_live.core.prompts import prompt_version, trial_of_prompt
from tau_live.core.records import Trial
from tau_live.core.settings import Learner, Settings
from tau_live.core.settings.tables import DeclaredDecision, DeclaredReward
from tau_live.store.records import Candidate, Optimization
from tau_live.store.roles import Store
from tests.contracts.making import begun, decision
from tests.trialled import end
from tests.writes import writes

KEY = "system_prompt"
FIRST, BETTER, OTHER = "{instructions} Be brief.", "{instructions} Be exact.", "Be someone else."
PROMPTS = DeclaredDecision(point="prompt", options_from="resources")


def settings_with(path: Path, **more: Any) -> Settings:
    """Return settings of an agent whose prompts come from the resources."""
    given: dict[str, Any] = {
        "store": path, "decisions": (PROMPTS,), "learner": Learner.FLUSH,
        "decide_deadline_ms": 60_000.0, "rewards": (DeclaredReward(name="good", range=(0.0, 1.0)),),
    }  # fmt: skip
    return Settings(**{**given, **more})


def publish(store: Store, text: str, *, at: float = 10.0) -> str:
    """Publish a prompt that no optimization adopted."""
    store.resources.publish({KEY: text}, at=at)
    return prompt_version(text)


def adopt(store: Store, text: str, *, at: float = 20.0, state: str = "adopted") -> str:
    """Publish a prompt as an optimization that adopts it."""
    version = publish(store, text, at=at)
    run = store.optimizations.create(
        Optimization(
            run_id="", config_digest="ab" * 32, config_path="/tasks.json", config={},
            model_ref="test/any", store_path="s", created_at=at, incumbent="p-1",
        )
    )  # fmt: skip
    store.optimizations.keep(
        Candidate(
            run_id=run.run_id, label="r1-p1-c1", version=version, text=text, state=state,
            made_at=at,
        )
    )  # fmt: skip
    return version


def state_of(store: Store, version: str) -> str:
    """Return the state of a prompt."""
    return store.optimizations.prompt_states()[version]


def trial_of(store: Store, version: str) -> Trial:
    """Return the trial of a prompt."""
    return store.trials.trial(trial_of_prompt(version))


def offer(  # what a stream of rollouts is
    store: Store,
    version: str,
    number: int,
    *,
    offered: float,
    withheld: float,
    share: float = 0.5,
    seed: int = 1,
    cost: bool = False,
) -> None:
    """Write rollouts that a prompt was offered to, or withheld from, with how often each is good.

    With ``cost``, the next reward of each that used the prompt is the harm of a violation.
    """
    rng = np.random.default_rng(seed)
    with store.begin():
        for at in range(number):
            name = f"{version}-{seed}-{at}"
            is_offered = bool(rng.random() < share)
            good = float(rng.random() < (offered if is_offered else withheld))
            begun(store, name)
            arm = PromptArm(version, is_offered, share)
            writes(store).add_decision(decision(1, name, point="prompt"), prompts=(arm,))
            end(store, name, good)
