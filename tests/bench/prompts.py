"""Prompts: who finds the rules of a house that no prompt names yet, and with how many calls?

Every optimizer begins with the same prompt, has the same rows, task model and model that reflects,
and as many task calls. What counts is the prompt that it returns, on rows that it has not seen.
"""

import json
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog

from tau_live.core.settings import Settings
from tau_live.prompts.config import read_config
from tau_live.prompts.demo import PROMPT
from tau_live.prompts.optimizer import begin, lead, prices_of
from tau_live.store.opening import open_at
from tests.bench.harness import Bench, Contestant, Figures, main
from tests.bench.prompt_worlds import FAMILIES, Outcome, World, score, world

BUDGET = 500
"""The most task calls of a search."""

MINIBATCHES = (3, 8, 16)
"""Rows that GEPA reflects on; 3 is its default."""

Search = Callable[[World, int, int], Outcome]
"""Searches a world, with a seed and a budget of task calls."""


def play(family: str, search: Search, seed: int, *, budget: int = BUDGET) -> Figures:
    """Return the score on rows not seen, and the calls that it took."""
    drawn = world(family, seed)
    outcome = search(drawn, seed, budget)
    return {
        family: score(outcome.prompt, drawn.test),
        f"{family}, task calls": outcome.task_calls,
        f"{family}, reflections": outcome.reflection_calls,
    }


def unchanged(world: World, seed: int, budget: int) -> Outcome:
    """Return the prompt that everybody begins with."""
    return Outcome(PROMPT, 0, 0)


def by_gepa(minibatch: int, merge: bool, world: World, seed: int, budget: int) -> Outcome:
    """Search by GEPA."""
    from tests.bench.peer_gepa import play_gepa

    return play_gepa(world, seed, budget, minibatch=minibatch, merge=merge)


def by_tau(algorithm: str, world: World, seed: int, budget: int) -> Outcome:
    """Search by ``tau-live optimize``: what it adopts, or the first prompt if it adopts none.

    The evidence on the rows to choose by takes its part of the calls.
    """
    here = "function/tau_live.prompts.demo:"
    config = {
        "optimize": [*world.train],
        "validate": [*world.validate],
        "resources": {"system_prompt": PROMPT},
        "model": f"{here}task_model",
        "seed": seed,
        "budget": {"rollouts": budget},
        "search": {
            "algorithm": algorithm,
            "patience": 50,
            "examples_per_critique": 16,
            "minibatch": 16,
            "rounds": 50,
            "iterations": 40,
            "critic_model": f"{here}critic_model",
            "editor_model": f"{here}editor_model",
        },
        **FAST,
    }
    with TemporaryDirectory() as name, structlog.testing.capture_logs():
        folder = Path(name)
        file = folder / "tasks.json"
        file.write_text(json.dumps(config))
        settings = Settings(store=folder / "store.sqlite")
        with closing(open_at(settings.store)) as store:
            loaded = read_config(file, model=None)
            run = begin(store, loaded, file, store_path="", prices=prices_of(settings))
            run = lead(store, run, loaded, settings=settings, who="bench", show=lambda _: None)
            prompt = store.resources.latest()["system_prompt"].content
            candidates = store.optimizations.candidates(run.run_id)
    proposals = [known for known in candidates if known.parent is not None]
    return Outcome(str(prompt), run.rollouts, len(proposals))


FAST = {"poll_interval_ms": 1, "completion_poll_interval_ms": 1, "heartbeat_interval_ms": 60_000}
"""How a stub that answers at once is waited for."""


def by_infer_rules(world: World, seed: int, budget: int) -> Outcome:
    """Search by DSPy's InferRules."""
    from tests.bench.peer_dspy import play_infer_rules

    return play_infer_rules(world, seed, budget)


BENCH = Bench(
    name="prompts",
    needs=(),
    contestants=tuple(
        contestant
        for family in FAMILIES
        for contestant in (
            *(
                Contestant(
                    f"tau-live, {algorithm}",
                    partial(play, family, partial(by_tau, algorithm)),
                    part=family,
                )
                for algorithm in ("beam", "reflective")
            ),
            Contestant("first prompt", partial(play, family, unchanged), part=family),
            Contestant(
                "DSPy, InferRules", partial(play, family, by_infer_rules), ("dspy",), family
            ),
            *(
                Contestant(
                    f"GEPA, {minibatch} rows{' and merge' if merge else ''}",
                    partial(play, family, partial(by_gepa, minibatch, merge)),
                    ("gepa",),
                    family,
                )
                for merge in (False, True)
                for minibatch in MINIBATCHES
            ),
        )
    ),
    note=(
        f"At most {BUDGET} task calls; GEPA ends the iteration in which it reaches them. Of its "
        "settings the best in hindsight counts. InferRules is shown labels alone, and writes "
        "several rules at once. A reflection criticizes a prompt and writes another."
    ),
)

if __name__ == "__main__":
    main(BENCH)
