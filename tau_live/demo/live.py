"""The demo: an agent that gets better at a real task, through the whole loop and a real store."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import tau_live
from tau_live.deciding.decider import Decider
from tau_live.demo.agent import Episode, default_choice
from tau_live.demo.baselines import Comparison, Result, ResultCache, compared
from tau_live.demo.corpus import standard_library
from tau_live.demo.outcomes import Outcome, Outcomes, due_after
from tau_live.demo.questions import Kind, Question, Split, questions, split
from tau_live.demo.strategies import Library, Strategy
from tau_live.errors import TauLiveError
from tau_live.policies.files import checkpoint_folder, load_policy, policy_config
from tau_live.rl.policy import Policy
from tau_live.settings import Learner, Settings
from tau_live.store.sqlite import SqliteStore

ROUND = 8
CURVE = 100
"""The live curve shows the mean reward of so many questions."""


class Progress(NamedTuple):
    """How far the demo is.

    Attributes:
        phase: What it is doing, for people.
        done: How many of it.
        total: Of how many.
        curve: Mean reward of each ``CURVE`` questions so far.
    """

    phase: str
    done: int
    total: int
    curve: Sequence[float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the demo came to.

    Attributes:
        seed: Its seed.
        store: The store's path.
        baselines: Everything to compare with, on the held-out questions.
        before: The untrained policy on the held-out questions.
        after: The policy that serves at the end, on the same.
        curve: Mean reward of each ``CURVE`` questions while it learned.
        version: The version that serves at the end.
        habits: What it does first, by kind of question.
        outcomes: How many outcomes were told at once, late and never.
        snapshot: What an operator sees at the end.
    """

    seed: int
    store: Path
    baselines: Comparison
    before: Result
    after: Result
    curve: tuple[float, ...]
    version: int
    habits: dict[str, "Habit"]
    outcomes: dict[str, int]
    snapshot: dict[str, object]


class Habit(NamedTuple):
    """What the policy does with one kind of question.

    Attributes:
        questions: How many there were.
        first: What it tries first most often.
        first_share: How often that is.
        steps: Mean number of searches.
        success: Share answered right, or rightly given up.
    """

    questions: int
    first: str
    first_share: float
    steps: float
    success: float


def point_of(seed: int) -> str:
    """Return the decision point of a seed's demo; demos of two seeds teach each other nothing."""
    return f"search-{seed}"


def run(
    settings: Settings,
    *,
    seed: int,
    training: int,
    held_out: int,
    progress: Callable[[Progress], None],
) -> Report:
    """Run the demo, or go on with one that was stopped, and compare what it learned.

    Args:
        settings: Where the store is; updates are made between rounds, so that a seed determines
            everything.
        seed: Determines questions, choices and outcomes.
        training: How many questions it learns from.
        held_out: How many it is compared on.
        progress: Told how far it is.

    Raises:
        TauLiveError: The standard library's sources or SQLite's full-text search are missing, or
            the store cannot be used.
    """
    settings = replace(settings, seed=seed, learner=Learner.FLUSH, decide_deadline_ms=1000.0)
    progress(Progress("reading the standard library's docstrings", 0, 1, ()))
    parts = split(standard_library(), seed=seed)
    library = Library(parts.indexed)
    try:
        cache = ResultCache(library)
        asked, kept = _asked(parts, seed=seed, training=training, held_out=held_out)
        baselines = _compared(asked, kept, cache, progress)
        tau_live.detach()
        if tau_live.attach(settings) is None:
            raise TauLiveError("the demo needs tau-live: set TAU_LIVE_RL=1")
        try:
            outcomes = _learn(asked, cache, settings, progress)
            snapshot = tau_live.snapshot()
        finally:
            tau_live.detach()
        return _report(settings, baselines, outcomes, snapshot, kept=kept, cache=cache)
    finally:
        library.close()


def _asked(
    parts: Split, *, seed: int, training: int, held_out: int
) -> tuple[list[Question], list[Question]]:
    return (
        questions(parts.training, count=training, seed=seed),
        questions(parts.held_out, count=held_out, seed=seed),
    )


def _compared(
    asked: Sequence[Question],
    kept: Sequence[Question],
    cache: ResultCache,
    progress: Callable[[Progress], None],
) -> Comparison:
    everything = [*asked, *kept]
    for done, question in enumerate(everything):
        for strategy in Strategy:
            cache.search(strategy, question.text)
        if done % 16 == 0:
            progress(Progress("measuring every fixed strategy", done, len(everything), ()))
    progress(Progress("tuning the best cascade", 0, 1, ()))
    return compared(asked, kept, cache)


def _learn(
    asked: Sequence[Question],
    cache: ResultCache,
    settings: Settings,
    progress: Callable[[Progress], None],
) -> list[Outcome]:
    """Answer what is not answered yet, round by round, and return the outcomes of everything.

    Outcomes are noted when their rollouts are stored, and told only then, so that a demo that is
    killed anywhere has told and noted nothing that its store does not have.
    """
    store = SqliteStore.open(settings.store, read_only=True)
    outcomes = Outcomes(
        settings.store.with_name(f"{settings.store.stem}-{settings.seed}.outcomes"),
        stored=lambda run_id: store.rollouts.find_rollout(run_id) is not None,
        round_=ROUND,
    )
    try:
        answered = len(outcomes.known)
        _tell(outcomes.due((answered - 1) // ROUND, since=0))
        for begin in range(answered, len(asked), ROUND):
            numbers = range(begin, min(begin + ROUND, len(asked)))
            round_ = [_answered(n, asked[n], cache, seed=settings.seed) for n in numbers]
            _flush()
            outcomes.add(round_)
            _tell(outcomes.due(begin // ROUND, since=begin // ROUND))
            progress(Progress("learning", numbers[-1] + 1, len(asked), curve_of(outcomes.known)))
        return outcomes.known
    finally:
        outcomes.close()
        store.close()


def _answered(number: int, question: Question, cache: ResultCache, *, seed: int) -> Outcome:
    """Let the agent answer one question; every step is a decision of the policy."""
    episode = Episode(question, cache)
    with tau_live.run("demo", key=f"{seed}/{number}", session=f"demo-{seed}") as run_:
        while not episode.ended:
            choice = run_.decide(
                point_of(seed),
                episode.options(),
                context=episode.context(),
                default=default_choice(episode),
            )
            episode.choose(choice.option)
        rollout_id = run_.id
    return Outcome(
        question=number,
        run=rollout_id,
        reward=episode.reward(),
        succeeded=episode.succeeded(),
        cost=episode.cost,
        due=due_after(number, round_=number // ROUND, seed=seed),
    )


def _tell(outcomes: Iterable[Outcome]) -> None:
    for outcome in outcomes:
        tau_live.reward(outcome.reward, run=outcome.run, name="answer", source="user")
    _flush()


def _flush() -> None:
    if not tau_live.flush(timeout_s=60.0):
        raise TauLiveError("tau-live did not finish within a minute; see `tau-live doctor`")


def curve_of(outcomes: Sequence[Outcome]) -> tuple[float, ...]:
    """Return the mean reward of each ``CURVE`` questions in order; the last may be of fewer."""
    rewards = [outcome.reward for outcome in outcomes]
    parts = [rewards[at : at + CURVE] for at in range(0, len(rewards), CURVE)]
    return tuple(sum(part) / len(part) for part in parts)


def _report(
    settings: Settings,
    baselines: Comparison,
    outcomes: Sequence[Outcome],
    snapshot: dict[str, object],
    *,
    kept: Sequence[Question],
    cache: ResultCache,
) -> Report:
    untrained = Policy.untrained(policy_config(settings))
    version, policy = _serving(settings, untrained)
    before, _ = _played(untrained, kept, cache, settings)
    after, habits = _played(policy, kept, cache, settings)
    told = Counter(
        "never" if o.due is None else "late" if o.due > o.question // ROUND else "at once"
        for o in outcomes
    )
    return Report(
        seed=settings.seed,
        store=settings.store,
        baselines=baselines,
        before=before,
        after=after,
        curve=curve_of(outcomes),
        version=version,
        habits=habits,
        outcomes=dict(told),
        snapshot=snapshot,
    )


def _serving(settings: Settings, untrained: Policy) -> tuple[int, Policy]:
    store = SqliteStore.open(settings.store, read_only=True)
    try:
        serving = store.policies.in_service().get(point_of(settings.seed))
        if serving is None or not serving.version:
            return 0, untrained
        row = store.policies.version(serving.version)
        return serving.version, load_policy(checkpoint_folder(settings), row)
    finally:
        store.close()


def _played(
    policy: Policy, kept: Sequence[Question], cache: ResultCache, settings: Settings
) -> tuple[Result, dict[str, Habit]]:
    """Return how a version does on held-out questions, drawing its choices as it does live."""
    decider = Decider(policy, seed=settings.seed)
    played = [(q, _drawn(decider, Episode(q, cache), number)) for number, q in enumerate(kept)]
    habits = {}
    for kind in Kind:
        own = [steps for question, steps in played if question.kind is kind]
        if own:
            habits[kind.value] = _habit(own)
    episodes = [steps.episode for _, steps in played]
    return Result(
        reward=sum(e.reward() for e in episodes) / len(episodes),
        success=sum(e.succeeded() for e in episodes) / len(episodes),
        cost=sum(e.cost for e in episodes) / len(episodes),
    ), habits


class _Steps(NamedTuple):
    first: str
    episode: Episode


def _drawn(decider: Decider, episode: Episode, number: int) -> _Steps:
    first = ""
    step = 0
    while not episode.ended:
        options = list(episode.options().items())
        names = [name for name, _ in options]
        default = default_choice(episode)
        decided = decider.choose(
            f"held-out-{number}-{step}",
            point="",
            options=options,
            context=episode.context(),
            default=names.index(default) if default in names else None,
        )
        first = first or names[decided.place]
        episode.choose(names[decided.place])
        step += 1
    return _Steps(first, episode)


def _habit(own: Sequence[_Steps]) -> Habit:
    first, count = Counter(steps.first for steps in own).most_common(1)[0]
    return Habit(
        questions=len(own),
        first=first,
        first_share=count / len(own),
        steps=sum(len(steps.episode.findings) for steps in own) / len(own),
        success=sum(steps.episode.succeeded() for steps in own) / len(own),
    )
