"""The demo's proof: the learned policy against the host's own choice, on held-out questions."""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import cache

from tau_live.cli.demo.agent import Episode, default_choice
from tau_live.cli.demo.corpus import standard_library
from tau_live.cli.demo.live import Progress, point_of, run_demo
from tau_live.cli.demo.questions import Question, QuestionKind, questions, split_entries
from tau_live.cli.demo.strategies import Library
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Settings
from tau_live.evidence.artifacts import Names, Root
from tau_live.evidence.proving import Proved, prove
from tau_live.evidence.running import Frozen, freeze, store_of
from tau_live.evidence.subjects import agent_ref
from tau_live.evidence.suites import Case, Output, Suite, suite_bytes

TRAINING, HELD_OUT = 1200, 200
SEEDS = (1, 2, 3)
NOTHING = "(nothing)"
"""Stands for the answers of a question that has none."""

WRONG_ANSWER = 0.5
"""The safety penalty of a wrong answer: whoever reads it believes it."""

_HERE = "tau_live.cli.demo.proof"


def prove_demo(
    root: Root, settings: Settings, *, seed: int, training: int, held_out: int, show: Progress
) -> Proved:
    """Learn, freeze, run, compare, prove and validate; a demo that was interrupted continues.

    Args:
        root: Where the artifacts are written.
        settings: Those of the store.
        seed: Determines questions, choices and outcomes.
        training: How many questions to learn from.
        held_out: How many others to measure on.
        show: Called with the progress.

    Raises:
        TauLiveError: The demo cannot run, or a file cannot be written.
    """
    run_id = f"m24-demo-{seed}"
    if not root.place(Names(run_id).inputs).exists():
        run_demo(settings, seed=seed, training=training, held_out=8, progress=show)
        suite = suite_of(seed, held_out)
        path = f"tasks/suites/{suite.suite_id}.json"
        place = root.place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(suite_bytes(suite))
        with closing(store_of(settings)) as store:
            serving = store.policies.in_service().get(point_of(seed))
            version = 0 if serving is None else serving.version
            plan = Frozen(
                path, "host", f"policy:{point_of(seed)}@{version}", SEEDS,
                model_ref=agent_ref(f"{_HERE}:answer"),
            )  # fmt: skip
            freeze(root, run_id, plan, store=store, settings=settings)
    return prove(
        root, run_id, settings=replace(settings, seed=seed),
        show=lambda done, total: show("measuring on held-out questions", done, total, ()),
    )  # fmt: skip


def suite_of(seed: int, count: int) -> Suite:
    """Return held-out questions of a seed as a suite."""
    parts = split_entries(standard_library(), seed=seed)
    held_out = questions(parts.held_out, count=count, seed=seed)
    return Suite(
        suite_id=f"demo-questions-{seed}",
        suite_version="1",
        family="tool_use",
        description=f"Held-out questions of the demo with the seed {seed}.",
        cases=[
            Case(
                case_id=f"question-{number:03}",
                seed=seed + 1,
                prompt=question.text,
                expected_outcome="\n".join(sorted(question.answers)) or NOTHING,
                scoring_rubric={f"{_HERE}:scaled_reward": 1.0},
                context={"demo_seed": seed},
            )
            for number, question in enumerate(held_out, start=1)
        ],
    )


@cache
def _library(seed: int) -> Library:
    return Library(split_entries(standard_library(), seed=seed).indexed)


def answer(case: Case, decide: Callable[..., str]) -> JsonObject:
    """Answer a question, step by step; ``decide`` makes every choice."""
    answers = frozenset(case.expected_outcome.splitlines()) - {NOTHING}
    question = Question(text=case.prompt, kind=QuestionKind.NAME, answers=answers)
    seed = int(case.context["demo_seed"])
    episode = Episode(question, _library(seed)).play(
        lambda now: decide(
            point_of(seed), now.options(), context=now.context(), default=default_choice(now)
        )
    )
    is_wrong = episode.answer is not None and episode.answer not in answers
    return {
        "output": json.dumps({"answer": episode.answer, "reward": episode.result().reward}),
        "safety_penalty": WRONG_ANSWER if is_wrong else 0.0,
    }


def scaled_reward(case: Case, output: Output) -> float:
    """Return the demo's reward of an answer, from ``[-1, 1]`` to ``[0, 1]``."""
    del case
    return float((json.loads(output.text)["reward"] + 1.0) / 2.0)
