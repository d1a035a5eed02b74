"""DSPy's InferRules as a peer: rules inferred from labels, several times; the best are kept.

DSPy's own GEPA is the package ``gepa``, which takes part by itself.
"""

import io
import json
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout

import dspy
from dspy.teleprompt import InferRules

from tau_live.prompts.demo import PROMPT, triage
from tests.bench.prompt_worlds import Outcome, Row, World, executed, reflect

WRITINGS = 5
"""How often the model that reflects is called for a list of rules."""


class Triage(dspy.Module):  # type: ignore[misc]  # DSPy is not there to be checked
    """DSPy's program: the task model, with the instructions of its predictor."""

    def __init__(self, answer: Callable[[str, str], str]) -> None:
        super().__init__()
        self.predict = dspy.Predict(dspy.Signature("ticket -> reply", PROMPT))
        self.answer = answer

    def forward(self, ticket: str) -> dspy.Prediction:
        return dspy.Prediction(reply=self.answer(self.predict.signature.instructions, ticket))


class Rules(InferRules):  # type: ignore[misc]  # likewise
    """InferRules with our model that reflects; it knows itself what it would have answered."""

    def __init__(self, candidates: int, seed: int) -> None:
        super().__init__(
            num_candidates=candidates,
            num_threads=1,
            metric=_is_right,
            max_bootstrapped_demos=0,
            max_labeled_demos=0,
        )
        self.calls = 0
        self._seed = seed

    def update_program_instructions(
        self, predictor: dspy.Predict, natural_language_rules: str
    ) -> None:
        # DSPy 3.4.1 writes into the signature that all copies share, and so returns the last one.
        predictor.signature = predictor.signature.with_instructions(
            f"{predictor.signature.instructions}\n\n"
            "Please adhere to the following rules when making your prediction:\n"
            f"{natural_language_rules}"
        )

    def induce_natural_language_rules(
        self, predictor: dspy.Predict, trainset: Sequence[dspy.Example]
    ) -> str:
        rows = [{"prompt": each.ticket, "expected": each.reply} for each in trainset]
        examples = f"<<<\n{json.dumps(executed(PROMPT, rows))}\n>>>"
        prompt = PROMPT
        for _ in range(WRITINGS):
            self.calls += 1
            prompt = reflect(prompt, examples, seed=1_000 * self._seed + self.calls)
        return "\n".join(line for line in prompt.split("\n") if line not in PROMPT)


def play_infer_rules(world: World, seed: int, budget: int) -> Outcome:
    """Let InferRules search a world, with as many candidates as the budget has room for."""
    calls: list[str] = []

    def answer(prompt: str, ticket: str) -> str:
        calls.append(ticket)
        return triage(prompt, ticket)

    rules = Rules(budget // len(world.validate), seed)
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        program = rules.compile(
            Triage(answer), trainset=_examples(world.train), valset=_examples(world.validate)
        )
    return Outcome(program.predict.signature.instructions, len(calls), rules.calls)


def _examples(rows: Sequence[Row]) -> list[dspy.Example]:
    return [
        dspy.Example(ticket=row["prompt"], reply=row["expected"]).with_inputs("ticket")
        for row in rows
    ]


def _is_right(example: dspy.Example, prediction: dspy.Prediction, trace: object = None) -> bool:
    return bool(example.reply == prediction.reply)
