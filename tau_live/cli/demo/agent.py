"""An agent that answers a question in several steps: search this way or that, accept, or give up.

It knows nothing of tau-live. The caller reads ``context()`` and ``options()`` and calls
``choose()``, until it ``is_over``; ``result()`` then returns how well it did.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tau_live.cli.demo.questions import Question
from tau_live.cli.demo.strategies import PRICES, Hit, Library, Strategy

ACCEPT = "accept"
GIVE_UP = "give_up"

MAX_SEARCHES = 3
"""The most searches; after them the agent can only accept or give up."""

RIGHT = 1.0
WRONG = -0.5


class Result(NamedTuple):
    """The result of a way to answer, on one question or on average.

    Attributes:
        reward: In ``[-1, 1]``: the worth of the end minus the cost.
        success: Share answered right, or rightly given up.
        cost: Cost of the searches.
    """

    reward: float
    success: float
    cost: float


class Episode:
    """One question, from start to end.

    Attributes:
        findings: The best hits of the searches so far, in order; ``None`` where one had none.
        answer: The name that was accepted; ``None`` before the end and after giving up.
        is_over: Whether the agent has accepted or given up.
    """

    def __init__(self, question: Question, library: Library) -> None:
        self.findings: dict[Strategy, Hit | None] = {}
        self.answer: str | None = None
        self.is_over = False
        self._question = question
        self._library = library
        self._features = library.describe(question.text)

    @property
    def cost(self) -> float:
        """The cost of the searches so far."""
        return sum(PRICES[strategy] for strategy in self.findings)

    def context(self) -> dict[str, float | str]:
        """Return what the agent knows now: features of the question and of its searches' hits."""
        known = dict(self._features)
        known["step"] = float(len(self.findings))
        for strategy, hit in self.findings.items():
            known[f"{strategy}_found"] = float(hit is not None)
            if hit is not None:
                known |= {f"{strategy}_score": hit.score, f"{strategy}_margin": hit.margin}
        best = best_of(self.findings)
        known["best_by"] = best[0] if best else "none"
        if best:
            known |= {"best_score": best[1].score, "best_margin": best[1].margin}
            names = [hit.name for hit in self.findings.values() if hit is not None]
            known["agreeing"] = float(names.count(best[1].name))
        return known

    def options(self) -> dict[str, dict[str, float]]:
        """Return the options, each with its price; none once it has ended."""
        if self.is_over:
            return {}
        offered: dict[str, dict[str, float]] = {}
        if len(self.findings) < MAX_SEARCHES:
            offered = {s.value: {"cost": PRICES[s]} for s in Strategy if s not in self.findings}
        if best_of(self.findings):
            offered[ACCEPT] = {"cost": 0.0}
        offered[GIVE_UP] = {"cost": 0.0}
        return offered

    def choose(self, option: str) -> None:
        """Apply an option.

        Raises:
            ValueError: The option is not offered now.
        """
        if option not in self.options():
            raise ValueError(f"expected one of {list(self.options())}, got {option!r}")
        if option not in {ACCEPT, GIVE_UP}:
            strategy = Strategy(option)
            self.findings[strategy] = self._library.search(strategy, self._question.text)
            return
        self.is_over = True
        best = best_of(self.findings)
        if option == ACCEPT and best:
            self.answer = best[1].name

    def play(self, choose: "Callable[[Episode], str]") -> "Episode":
        """Play it to its end, making every choice with ``choose``; return it."""
        while not self.is_over:
            self.choose(choose(self))
        return self

    def result(self) -> Result:
        """Return the result.

        Raises:
            ValueError: The episode has not ended.
        """
        if not self.is_over:
            raise ValueError("the reward is known at the end, this episode has not ended")
        return result_of(self._question, self.answer, self.cost)


def worth(question: Question, answer: str | None) -> float:
    """Return the worth of an end before costs; ``answer`` is None for giving up."""
    if answer is not None:
        return RIGHT if answer in question.answers else WRONG
    # Giving up where there is nothing to find beats a wrong answer, but nobody was served.
    return 0.0 if question.answers else 0.2


def result_of(question: Question, answer: str | None, cost: float) -> Result:
    """Return the result of an answer; ``answer`` is None for giving up."""
    is_right = answer in question.answers if answer is not None else not question.answers
    return Result(worth(question, answer) - cost, is_right, cost)


def default_choice(episode: Episode) -> str:
    """Return the choice that a sensible developer would have hard-coded.

    Search by words, accept what is found, give up if there is nothing.
    """
    if not episode.findings:
        return Strategy.WORDS
    return ACCEPT if best_of(episode.findings) else GIVE_UP


def best_of(findings: Mapping[Strategy, Hit | None]) -> tuple[Strategy, Hit] | None:
    """Return the hit whose name most searches agree on, then the one with the highest score."""
    hits = [(strategy, hit) for strategy, hit in findings.items() if hit is not None]
    names = [hit.name for _, hit in hits]
    return max(hits, key=lambda item: (names.count(item[1].name), item[1].score), default=None)


SCORES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
MARGINS = (0.0, 0.02, 0.05, 0.1, 0.2)
"""The thresholds that a cascade is tuned over, every pair of them at every stage."""

LONGEST = 3
"""The most stages of a cascade."""

Array = NDArray[np.float64]


class Stage(NamedTuple):
    """One search of a cascade, and the least score and margin at which its hit is accepted."""

    strategy: Strategy
    score: float
    margin: float


class Comparison(NamedTuple):
    """Every baseline on one list of questions.

    Attributes:
        fixed: Each search alone, its hit accepted.
        host_default: The host's own choice.
        cascade: The stages that earned most in training.
        tuned_in_training: The result of these stages.
        tuned_in_hindsight: The result of a cascade tuned on the measured questions themselves.
        oracle: The upper bound of every policy.
    """

    fixed: dict[Strategy, Result]
    host_default: Result
    cascade: tuple[Stage, ...]
    tuned_in_training: Result
    tuned_in_hindsight: Result
    oracle: Result


def compare_baselines(
    training: Sequence[Question], held_out: Sequence[Question], library: Library
) -> Comparison:
    """Return the result of every baseline on held-out questions; only the cascades were tuned."""
    stages, _ = best_cascade(training, library)
    in_hindsight, _ = best_cascade(held_out, library)
    return Comparison(
        fixed={
            strategy: cascade(held_out, library, stages=[Stage(strategy, 0.0, 0.0)])
            for strategy in Strategy
        },
        host_default=play(held_out, library, default_choice),
        cascade=stages,
        tuned_in_training=cascade(held_out, library, stages=stages),
        tuned_in_hindsight=cascade(held_out, library, stages=in_hindsight),
        oracle=oracle(held_out, library),
    )


def play(
    questions: Iterable[Question], library: Library, choose: Callable[[Episode], str]
) -> Result:
    """Return the mean result of an agent that makes every choice with ``choose``."""
    return _mean([Episode(question, library).play(choose).result() for question in questions])


def cascade(questions: Iterable[Question], library: Library, *, stages: Sequence[Stage]) -> Result:
    """Return the mean result of a cascade.

    It accepts the first hit that reaches the thresholds of its stage; if none does, it gives up.
    """
    results = []
    for question in questions:
        answer, cost = None, 0.0
        for stage in stages:
            hit = library.search(stage.strategy, question.text)
            cost += PRICES[stage.strategy]
            if hit is not None and hit.score >= stage.score and hit.margin >= stage.margin:
                answer = hit.name
                break
        results.append(result_of(question, answer, cost))
    return _mean(results)


def best_cascade(
    questions: Sequence[Question], library: Library
) -> tuple[tuple[Stage, ...], float]:
    """Return the cascade of up to three searches that earns most, and what it earns."""
    gave_up = np.array([worth(question, None) for question in questions])
    tables = {strategy: _Table(strategy, questions, library) for strategy in Strategy}
    best: tuple[tuple[Stage, ...], float] = ((), -np.inf)
    for length in range(1, LONGEST + 1):
        for order in permutations(Strategy, length):
            stages, reward = _tune([tables[strategy] for strategy in order], gave_up)
            if reward > best[1] + 1e-12:  # the shorter of two equal ones
                best = stages, reward
    return best


def oracle(questions: Sequence[Question], library: Library) -> Result:
    """Return the mean result of knowing every answer: the upper bound of every policy.

    It takes the cheapest search that is right, and if none is, gives up at once.
    """
    results = []
    for question in questions:
        hits = {strategy: library.search(strategy, question.text) for strategy in Strategy}
        ends = [
            result_of(question, hit.name, PRICES[strategy])
            for strategy, hit in hits.items()
            if hit is not None
        ]
        results.append(max([result_of(question, None, 0.0), *ends]))
    return _mean(results)


class _Table:
    """One strategy on all questions: the worth of its hits, and the thresholds that accept them."""

    def __init__(self, strategy: Strategy, questions: Sequence[Question], library: Library) -> None:
        hits = [library.search(strategy, question.text) for question in questions]
        scores = np.array([-1.0 if hit is None else hit.score for hit in hits])
        margins = np.array([-1.0 if hit is None else hit.margin for hit in hits])
        self.stages = [Stage(strategy, score, margin) for score in SCORES for margin in MARGINS]
        self.accepted = np.array(
            [(scores >= stage.score) & (margins >= stage.margin) for stage in self.stages],
            dtype=np.float64,
        )
        self.worths = np.array(
            [
                0.0 if hit is None else worth(question, hit.name)
                for question, hit in zip(questions, hits, strict=True)
            ]
        )
        self.price = PRICES[strategy]


def _tune(tables: Sequence[_Table], gave_up: Array) -> tuple[tuple[Stage, ...], float]:
    """Return the best cascade of one order of searches, and its mean reward.

    The reward of the last stage is linear in the questions that reach it, so all thresholds of the
    stages before it (rows) meet all of its own (columns) in one matrix product.
    """
    *before, last = tables
    reached = np.ones((1, len(gave_up)))
    earned = np.zeros(1)
    chosen: list[tuple[Stage, ...]] = [()]
    for table in before:
        arriving = reached[:, None, :]
        accepted = arriving * table.accepted
        earned = (earned[:, None] + accepted @ table.worths - table.price * arriving.sum(2)).ravel()
        reached = (arriving - accepted).reshape(-1, len(gave_up))
        chosen = [(*stages, stage) for stages in chosen for stage in table.stages]
    ends = last.accepted * last.worths + (1 - last.accepted) * gave_up - last.price
    totals = earned[:, None] + reached @ ends.T
    row, column = np.unravel_index(int(totals.argmax()), totals.shape)
    reward = float(totals[row, column]) / len(gave_up)
    return (*chosen[row], last.stages[column]), reward


def _mean(results: Sequence[Result]) -> Result:
    return Result(*np.array(results, dtype=np.float64).mean(axis=0).tolist())
