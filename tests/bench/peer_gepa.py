"""GEPA as a peer: its search of prompts, with the stub models that everybody has here."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import gepa
from gepa.core.adapter import EvaluationBatch

from tau_live.prompts.demo import PROMPT
from tests.bench.prompt_worlds import Outcome, Row, World, executed, reflect

COMPONENT = "system_prompt"
TEMPLATE = """\
Write the instructions of an assistant anew, so that it gets more of these examples right.

<<<
<curr_param>
>>>

<<<
<side_info>
>>>"""


class Triage:
    """GEPA's adapter: executes a prompt on rows, and shows what came of it.

    Attributes:
        calls: How often the task model was called.
    """

    propose_new_texts = None

    def __init__(self) -> None:
        self.calls = 0

    def evaluate(
        self, batch: Sequence[Row], candidate: Mapping[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[Mapping[str, object], str]:
        self.calls += len(batch)
        examples = executed(candidate[COMPONENT], batch)
        return EvaluationBatch(
            [str(each["output"]) for each in examples],
            [float(each["score"] == 1.0) for each in examples],
            examples if capture_traces else None,
        )

    def make_reflective_dataset(
        self,
        candidate: Mapping[str, str],
        eval_batch: EvaluationBatch[Mapping[str, object], str],
        components_to_update: Sequence[str],
    ) -> dict[str, list[dict[str, Any]]]:
        return {
            COMPONENT: [{"Example": json.dumps(each)} for each in eval_batch.trajectories or ()]
        }


class Reflection:
    """GEPA's model that reflects: our critic and our editor, in one call.

    Attributes:
        calls: How often it was called; each has a seed of its own, as a model's answers vary.
    """

    def __init__(self, seed: int) -> None:
        self.calls = 0
        self._seed = seed

    def __call__(self, text: str) -> str:
        self.calls += 1
        prompt = text.partition("<<<\n")[2].partition("\n>>>")[0]
        written = reflect(prompt, text, seed=1_000 * self._seed + self.calls)
        return f"```\n{written}\n```"


class Silence:
    """GEPA's logger, that says nothing."""

    def log(self, message: str) -> None:
        """Say nothing."""


def play_gepa(world: World, seed: int, budget: int, *, minibatch: int, merge: bool) -> Outcome:
    """Let GEPA search a world.

    Args:
        world: The house and its tickets; ``test`` is not looked at.
        seed: Of the search, and of the model that reflects.
        budget: The most task calls; GEPA ends the iteration in which it reaches them.
        minibatch: Rows that it reflects on; 3 is its default.
        merge: Whether it also merges prompts.
    """
    adapter, reflection = Triage(), Reflection(seed)
    found = gepa.optimize(
        seed_candidate={COMPONENT: PROMPT},
        trainset=list(world.train),
        valset=list(world.validate),
        adapter=adapter,
        reflection_lm=reflection,
        reflection_prompt_template=TEMPLATE,
        reflection_minibatch_size=minibatch,
        use_merge=merge,
        max_metric_calls=budget,
        logger=Silence(),
        seed=seed,
    )
    return Outcome(found.best_candidate[COMPONENT], adapter.calls, reflection.calls)
