"""What to compare a learned policy with: fixed searches, the host's choice, cascades, the bound."""

from collections.abc import Callable, Iterable, Sequence
from itertools import permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tau_live.demo.agent import Episode, default_choice, is_right, worth
from tau_live.demo.questions import Question
from tau_live.demo.strategies import PRICES, Hit, Search, Strategy

SCORES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
MARGINS = (0.0, 0.02, 0.05, 0.1, 0.2)
"""The thresholds that a cascade is tuned over, every pair of them at every stage."""

LONGEST = 3
"""A cascade has at most so many stages."""

Array = NDArray[np.float64]


class Result(NamedTuple):
    """How one way to answer did on a list of questions.

    Attributes:
        reward: Mean reward of a question, in ``[-1, 1]``.
        success: Share answered right, or rightly given up.
        cost: Mean cost of a question.
    """

    reward: float
    success: float
    cost: float


class Stage(NamedTuple):
    """One search of a cascade, and from which score and margin on its hit is accepted."""

    strategy: Strategy
    score: float
    margin: float


class Cascade(NamedTuple):
    """Searches in a fixed order, each with its thresholds.

    Attributes:
        stages: What is tried, in order.
        reward: Mean reward on the questions that it was tuned on.
    """

    stages: tuple[Stage, ...]
    reward: float


class Comparison(NamedTuple):
    """Every baseline on one list of questions.

    Attributes:
        fixed: Each search alone, its hit accepted.
        host_default: The host's own choice.
        cascade: The stages that earned most in training.
        tuned_in_training: How these stages do here.
        tuned_in_hindsight: The cascade that was tuned on the measured questions themselves.
        oracle: The bound of every policy.
    """

    fixed: dict[Strategy, Result]
    host_default: Result
    cascade: tuple[Stage, ...]
    tuned_in_training: Result
    tuned_in_hindsight: Result
    oracle: Result


class ResultCache:
    """Runs each search at most once for each text, for real, and remembers what it found."""

    def __init__(self, library: Search) -> None:
        self._library = library
        self._hits: dict[tuple[Strategy, str], Hit | None] = {}

    def search(self, strategy: Strategy, text: str) -> Hit | None:
        """Return what the library finds."""
        key = strategy, text
        if key not in self._hits:
            self._hits[key] = self._library.search(strategy, text)
        return self._hits[key]

    def described(self, text: str) -> dict[str, float | str]:
        """Return what the library says of a text."""
        return self._library.described(text)


def compared(
    training: Sequence[Question], held_out: Sequence[Question], library: Search
) -> Comparison:
    """Return how every baseline does on held-out questions; only the named ones were tuned."""
    stages = best_cascade(training, library).stages
    in_hindsight = best_cascade(held_out, library).stages
    return Comparison(
        fixed=fixed(held_out, library),
        host_default=host_default(held_out, library),
        cascade=stages,
        tuned_in_training=cascade(held_out, library, stages=stages),
        tuned_in_hindsight=cascade(held_out, library, stages=in_hindsight),
        oracle=oracle(held_out, library),
    )


def played(
    questions: Iterable[Question], library: Search, choose: Callable[[Episode], str]
) -> Result:
    """Return how an agent does that makes every choice with ``choose``."""
    episodes = []
    for question in questions:
        episode = Episode(question, library)
        while not episode.ended:
            episode.choose(choose(episode))
        episodes.append(episode)
    return _mean([(e.reward(), e.succeeded(), e.cost) for e in episodes])


def host_default(questions: Sequence[Question], library: Search) -> Result:
    """Return how the host's own choice does."""
    return played(questions, library, default_choice)


def fixed(questions: Sequence[Question], library: Search) -> dict[Strategy, Result]:
    """Return how each single search does whose hit, if it has any, is accepted."""
    return {
        strategy: cascade(questions, library, stages=[Stage(strategy, 0.0, 0.0)])
        for strategy in Strategy
    }


def cascade(questions: Iterable[Question], library: Search, *, stages: Sequence[Stage]) -> Result:
    """Return how a cascade does.

    The first stage whose hit reaches its thresholds is accepted; where none does, it gives up.
    """
    rows = []
    for question in questions:
        answer, cost = None, 0.0
        for stage in stages:
            hit = library.search(stage.strategy, question.text)
            cost += PRICES[stage.strategy]
            if hit is not None and hit.score >= stage.score and hit.margin >= stage.margin:
                answer = hit.name
                break
        rows.append((worth(question, answer) - cost, is_right(question, answer), cost))
    return _mean(rows)


def best_cascade(questions: Sequence[Question], library: Search) -> Cascade:
    """Return the cascade of up to three searches that earns most on these questions."""
    gave_up = np.array([worth(question, None) for question in questions])
    tables = {strategy: _Table(strategy, questions, library) for strategy in Strategy}
    best = Cascade((), -np.inf)
    for length in range(1, LONGEST + 1):
        for order in permutations(Strategy, length):
            tuned = _tuned([tables[strategy] for strategy in order], gave_up)
            if tuned.reward > best.reward + 1e-12:  # of equals the shorter one
                best = tuned
    return best


def oracle(questions: Sequence[Question], library: Search) -> Result:
    """Return what could be reached by knowing every answer: the bound of every policy.

    It takes the cheapest search that is right, and where none is, gives up at once.
    """
    rows = []
    for question in questions:
        ends = [(worth(question, None), is_right(question, None), 0.0)]
        for strategy in Strategy:
            hit = library.search(strategy, question.text)
            if hit is not None:
                price = PRICES[strategy]
                gain = worth(question, hit.name) - price
                ends.append((gain, is_right(question, hit.name), price))
        rows.append(max(ends))
    return _mean(rows)


class _Table:
    """One strategy on all questions: what its hits are worth, and which thresholds take them."""

    def __init__(self, strategy: Strategy, questions: Sequence[Question], library: Search) -> None:
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


def _tuned(tables: Sequence[_Table], gave_up: Array) -> Cascade:
    """Return the best cascade of one order of searches.

    What the last stage earns is linear in which questions reach it, so all thresholds of the
    stages before it (rows) meet all of its own (columns) in one product of matrices.
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
    return Cascade((*chosen[row], last.stages[column]), reward)


def _mean(rows: Sequence[tuple[float, bool, float]]) -> Result:
    reward, success, cost = np.array(rows, dtype=np.float64).mean(axis=0).tolist()
    return Result(reward, success, cost)
