"""The demo: an agent that gets better at a real task, through the whole loop and a real store."""

import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from tau_live.cli.demo.agent import (
    GIVE_UP,
    Comparison,
    Episode,
    Result,
    compare_baselines,
    default_choice,
)
from tau_live.cli.demo.corpus import Entry, standard_library
from tau_live.cli.demo.questions import (
    Outcome,
    Outcomes,
    Question,
    QuestionKind,
    due_after,
    questions,
    split_entries,
)
from tau_live.cli.demo.strategies import Hit, Library, Strategy
from tau_live.core.errors import TauLiveError
from tau_live.core.settings import Learner, Settings
from tau_live.decisions.decider import Decider
from tau_live.decisions.policies import load_policy, policy_config
from tau_live.rl.policy import Policy
from tau_live.runtime import api
from tau_live.store.opening import open_at

ROUND = 8
CURVE = 100
"""The number of questions of each point of the live curve."""


Progress = Callable[[str, int, int, Sequence[float]], None]
"""Called with the current phase, the steps done and their total, and the curve so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of the demo.

    Attributes:
        seed: Its seed.
        store: The store's path.
        baselines: The baselines, on the held-out questions.
        before: The untrained policy on the held-out questions.
        after: The policy that serves at the end, on the same.
        curve: Mean reward of each ``CURVE`` questions while it learned.
        version: The version that serves at the end.
        habits: Its habits, by kind of question.
        outcomes: The numbers of outcomes that came at once, late and never.
        snapshot: The snapshot of the running system at the end.
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
    """The policy's habits with one kind of question.

    Attributes:
        questions: The number of such questions.
        first: The option that it most often chooses first.
        first_share: The share of questions with that first choice.
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


def run_demo(
    settings: Settings,
    *,
    seed: int,
    training: int,
    held_out: int,
    progress: Progress,
) -> Report:
    """Run the demo, or continue one that was stopped, and compare the policy with baselines.

    Args:
        settings: The settings, with the path of the store; updates are made between rounds, so
            that a seed determines everything.
        seed: Determines questions, choices and outcomes.
        training: The number of questions to learn from.
        held_out: The number of questions to compare on.
        progress: Called with the progress.

    Raises:
        TauLiveError: The standard library's sources or SQLite's full-text search are missing, or
            the store cannot be used.
    """
    settings = replace(settings, seed=seed, learner=Learner.FLUSH, decide_deadline_ms=1000.0)
    progress("reading the standard library's docstrings", 0, 1, ())
    parts = split_entries(standard_library(), seed=seed)
    training_set = questions(parts.training, count=training, seed=seed)
    test_set = questions(parts.held_out, count=held_out, seed=seed)
    with (
        closing(Library(parts.indexed)) as library,
        _baselines(parts.indexed, training_set, test_set) as baselines_and_hits,
    ):
        api.detach()
        if api.attach(settings) is None:
            raise TauLiveError("the demo needs tau-live: set TAU_LIVE_RL=1")
        try:
            outcomes = _learn(training_set, library, settings, progress)
            snapshot = api.snapshot()
        finally:
            api.detach()
        progress("measuring every fixed strategy", 0, 1, ())
        baselines, hits = baselines_and_hits()
        library.hits.update(hits)
        untrained = Policy.initial(policy_config(settings))
        version, policy = _serving(settings, untrained)
        before, _ = _play(untrained, test_set, library, settings)
        after, habits = _play(policy, test_set, library, settings)
    timings = Counter(
        "never" if o.due is None else "late" if o.due > o.question // ROUND else "at once"
        for o in outcomes
    )
    return Report(
        seed=seed,
        store=settings.store,
        baselines=baselines,
        before=before,
        after=after,
        curve=curve_of(outcomes),
        version=version,
        habits=habits,
        outcomes=dict(timings),
        snapshot=snapshot,
    )


Measured = tuple[Comparison, Mapping[tuple[Strategy, str], Hit | None]]
"""The baselines, and the hits of all questions."""


@contextmanager
def _baselines(
    entries: Sequence[Entry], training_set: Sequence[Question], test_set: Sequence[Question]
) -> Iterator[Callable[[], Measured]]:
    """Compare the baselines in another process meanwhile; yield a call that waits for the result.

    Raises:
        TauLiveError: That process ended early.
    """
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(
        target=_compare, args=(sender, entries, training_set, test_set), daemon=True
    )
    child.start()
    sender.close()
    try:
        yield receiver.recv
    except EOFError as error:
        raise TauLiveError("the process that measures the fixed strategies ended early") from error
    finally:
        child.kill()
        child.join()
        receiver.close()


def _compare(
    sender: Connection,
    entries: Sequence[Entry],
    training_set: Sequence[Question],
    test_set: Sequence[Question],
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the demo ends this process when it is stopped
    with closing(Library(entries)) as library:
        sender.send((compare_baselines(training_set, test_set, library), library.hits))


def _learn(
    training_set: Sequence[Question],
    library: Library,
    settings: Settings,
    progress: Progress,
) -> list[Outcome]:
    """Answer the remaining questions, round by round, and return all outcomes.

    Outcomes are noted and sent only once their rollouts are stored, so that a demo that is killed
    anywhere has noted and sent nothing that its store does not have.
    """
    store = open_at(settings.store, read_only=True)
    outcomes = Outcomes(
        settings.store.with_name(f"{settings.store.stem}-{settings.seed}.outcomes"),
        stored=lambda run_id: store.rollouts.find_rollout(run_id) is not None,
        round_=ROUND,
    )
    try:
        done = len(outcomes.known)
        _send(outcomes.due((done - 1) // ROUND, since=0))
        for begin in range(done, len(training_set), ROUND):
            numbers = range(begin, min(begin + ROUND, len(training_set)))
            round_ = [_answer(n, training_set[n], library, seed=settings.seed) for n in numbers]
            _flush()
            outcomes.add(round_)
            _send(outcomes.due(begin // ROUND, since=begin // ROUND))
            progress("learning", numbers[-1] + 1, len(training_set), curve_of(outcomes.known))
        return outcomes.known
    finally:
        outcomes.close()
        store.close()


def _answer(number: int, question: Question, library: Library, *, seed: int) -> Outcome:
    """Let the agent answer one question; every step is a decision of the policy."""
    episode = Episode(question, library)
    with api.run("demo", key=f"{seed}/{number}", session=f"demo-{seed}") as run_:
        episode.play(
            lambda episode: (
                run_.decide(
                    point_of(seed),
                    episode.options(),
                    context=episode.context(),
                    default=default_choice(episode),
                ).option
            )
        )
    result = episode.result()
    return Outcome(
        question=number,
        run=run_.id,
        reward=result.reward,
        succeeded=bool(result.success),
        cost=result.cost,
        due=due_after(number, round_=number // ROUND, seed=seed),
    )


def _send(outcomes: Iterable[Outcome]) -> None:
    for outcome in outcomes:
        api.reward(outcome.reward, run=outcome.run, name="answer", source="user")
    _flush()


def _flush() -> None:
    if not api.flush(timeout_s=60.0):
        raise TauLiveError("tau-live did not finish within a minute; see `tau-live doctor`")


def curve_of(outcomes: Sequence[Outcome]) -> tuple[float, ...]:
    """Return the mean reward of each ``CURVE`` questions in order; the last may be of fewer."""
    rewards = [outcome.reward for outcome in outcomes]
    parts = [rewards[at : at + CURVE] for at in range(0, len(rewards), CURVE)]
    return tuple(sum(part) / len(part) for part in parts)


def _serving(settings: Settings, untrained: Policy) -> tuple[int, Policy]:
    with closing(open_at(settings.store, read_only=True)) as store:
        serving = store.policies.in_service().get(point_of(settings.seed))
        if serving is None or not serving.version:
            return 0, untrained
        row = store.policies.version(serving.version)
        return serving.version, load_policy(store.checkpoints, row)


def _play(
    policy: Policy, test_set: Sequence[Question], library: Library, settings: Settings
) -> tuple[Result, dict[str, Habit]]:
    """Return the results of a version on held-out questions; it draws choices as it does live."""
    decider = Decider(policy, seed=settings.seed)
    results: list[Result] = []
    by_kind: dict[str, list[Episode]] = {kind.value: [] for kind in QuestionKind}
    for number, question in enumerate(test_set):
        choose = partial(_decide, decider, number)
        by_kind[question.kind].append(Episode(question, library).play(choose))
        results.append(by_kind[question.kind][-1].result())
    habits = {kind: _habit(episodes) for kind, episodes in by_kind.items() if episodes}
    return Result(*(sum(column) / len(results) for column in zip(*results, strict=True))), habits


def _decide(decider: Decider, number: int, episode: Episode) -> str:
    """Return the choice of a version in an episode on the question of that number."""
    options = list(episode.options().items())
    names = [name for name, _ in options]
    default = default_choice(episode)
    decision = decider.choose(
        f"held-out-{number}-{len(episode.findings)}",
        point="",
        options=options,
        context=episode.context(),
        default=names.index(default) if default in names else None,
    )
    return names[decision.place]


def _habit(episodes: Sequence[Episode]) -> Habit:
    firsts = Counter(next(iter(episode.findings), GIVE_UP) for episode in episodes)
    first, count = firsts.most_common(1)[0]
    return Habit(
        questions=len(episodes),
        first=first,
        first_share=count / len(episodes),
        steps=sum(len(episode.findings) for episode in episodes) / len(episodes),
        success=sum(episode.result().success for episode in episodes) / len(episodes),
    )
