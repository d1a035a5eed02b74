"""An agent that answers a question in several steps: search this way or that, accept, or give up.

It knows nothing of tau-live. Whoever runs it asks for ``context()`` and ``options()``, and tells
it to ``choose()``, until it has ``ended``; ``reward()`` then says how well that was done.
"""

from collections.abc import Sequence
from typing import NamedTuple

from tau_live.demo.questions import Question
from tau_live.demo.strategies import PRICES, Hit, Search, Strategy

ACCEPT = "accept"
GIVE_UP = "give_up"

MAX_SEARCHES = 3
"""After so many searches only accepting or giving up is left."""

RIGHT = 1.0
WRONG = -0.5
GAVE_UP = 0.0
RIGHTLY_GAVE_UP = 0.2
"""Giving up where there is nothing to find is better than a wrong answer, but nobody was served."""


class Finding(NamedTuple):
    """What one search brought.

    Attributes:
        strategy: How it was searched.
        hit: What it found, None for nothing.
    """

    strategy: Strategy
    hit: Hit | None


class Episode:
    """One question, from the first look at it to the end."""

    def __init__(self, question: Question, library: Search) -> None:
        self._question = question
        self._library = library
        self._seen = library.described(question.text)
        self._findings: list[Finding] = []
        self._answer: str | None = None
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether the agent has accepted or given up."""
        return self._ended

    @property
    def answer(self) -> str | None:
        """The name that was accepted; None before the end and after giving up."""
        return self._answer

    @property
    def cost(self) -> float:
        """What the searches so far have cost."""
        return sum(PRICES[finding.strategy] for finding in self._findings)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was searched so far, in order."""
        return tuple(self._findings)

    @property
    def best(self) -> Finding | None:
        """What would be accepted: the name most searches agree on, then the highest score."""
        return best_of(self._findings)

    def context(self) -> dict[str, float | str]:
        """Return what the agent knows now: the question's looks and what its searches brought."""
        known = dict(self._seen)
        known["step"] = float(len(self._findings))
        for strategy, hit in self._findings:
            known[f"{strategy}_found"] = float(hit is not None)
            if hit is not None:
                known[f"{strategy}_score"] = hit.score
                known[f"{strategy}_margin"] = hit.margin
        best = self.best
        known["best_by"] = best.strategy if best else "none"
        if best and best.hit:
            known["best_score"] = best.hit.score
            known["best_margin"] = best.hit.margin
            known["agreeing"] = float(
                sum(hit is not None and hit.name == best.hit.name for _, hit in self._findings)
            )
        return known

    def options(self) -> dict[str, dict[str, float]]:
        """Return what may be done now, each with its price; nothing once it has ended."""
        if self._ended:
            return {}
        offered: dict[str, dict[str, float]] = {}
        tried = {finding.strategy for finding in self._findings}
        if len(tried) < MAX_SEARCHES:
            offered = {s.value: {"cost": PRICES[s]} for s in Strategy if s not in tried}
        if self.best is not None:
            offered[ACCEPT] = {"cost": 0.0}
        offered[GIVE_UP] = {"cost": 0.0}
        return offered

    def choose(self, option: str) -> None:
        """Do what was chosen.

        Raises:
            ValueError: The option is not offered now.
        """
        if option not in self.options():
            raise ValueError(f"expected one of {list(self.options())}, got {option!r}")
        if option in {ACCEPT, GIVE_UP}:
            self._ended = True
            best = self.best
            if option == ACCEPT and best is not None and best.hit is not None:
                self._answer = best.hit.name
        else:
            strategy = Strategy(option)
            hit = self._library.search(strategy, self._question.text)
            self._findings.append(Finding(strategy, hit))

    def reward(self) -> float:
        """Return how well it went, in ``[-1, 1]``: what the end was worth less what was spent.

        Raises:
            ValueError: The episode has not ended.
        """
        if not self._ended:
            raise ValueError("the reward is known at the end, this episode has not ended")
        return worth(self._question, self._answer) - self.cost

    def succeeded(self) -> bool:
        """Tell whether the answer was right, or giving up was."""
        return self._ended and is_right(self._question, self._answer)


def worth(question: Question, answer: str | None) -> float:
    """Return what an end is worth before costs; ``answer`` is None for giving up."""
    if answer is not None:
        return RIGHT if answer in question.answers else WRONG
    return GAVE_UP if question.answers else RIGHTLY_GAVE_UP


def is_right(question: Question, answer: str | None) -> bool:
    """Tell whether the answer is right, or giving up is."""
    return answer in question.answers if answer is not None else not question.answers


def default_choice(episode: Episode) -> str:
    """Return what a sensible developer would have hard coded.

    Search by words, accept what is found, give up if there is nothing.
    """
    if not episode.findings:
        return Strategy.WORDS
    return ACCEPT if episode.best is not None else GIVE_UP


def best_of(findings: Sequence[Finding]) -> Finding | None:
    """Return the finding whose name most searches agree on, then the one with the highest score."""
    found = [(finding, finding.hit) for finding in findings if finding.hit is not None]
    names = [hit.name for _, hit in found]
    ranked = sorted(found, key=lambda pair: (-names.count(pair[1].name), -pair[1].score))
    return ranked[0][0] if ranked else None
