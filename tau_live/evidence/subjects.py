"""Subjects: what is measured, and how each makes something of a case."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from tau_live.core.errors import TauLiveError
from tau_live.core.guard import text_of
from tau_live.core.prompts import canonical_json, prompt_version
from tau_live.core.records import Claim, Decision
from tau_live.core.settings import Settings
from tau_live.decisions import checkpoints
from tau_live.decisions.decider import LEARNER, Decider, PolicyChoice
from tau_live.decisions.policy_files import checkpoint_folder, load_policy, policy_config
from tau_live.evidence.artifacts import Root, digest
from tau_live.evidence.records import Episode, Subject
from tau_live.evidence.suites import Case, Output
from tau_live.prompts.budget import Prices
from tau_live.prompts.models import ask
from tau_live.prompts.scorers import load_callable
from tau_live.rl.policy import Policy
from tau_live.rl.state import LearnerState
from tau_live.store.roles import Store

SEED = "{seed}"
"""Stands in a subject for the seed of an episode: each seed then has a subject of its own."""

UNTRAINED = "0"
MAX_TOKENS = 1024


class Made(NamedTuple):
    """What a subject made of a case.

    Attributes:
        output: Its output.
        decision: What a policy decided, without its rollout; ``None`` for other subjects.
    """

    output: Output
    decision: "Decided | None" = None


class Decided(NamedTuple):
    """A decision of a policy.

    Attributes:
        point: The decision point.
        choice: The choice.
    """

    point: str
    choice: PolicyChoice


Execute = Callable[[Case, Episode], Made]


class Measured(NamedTuple):
    """A subject, ready to be executed.

    Attributes:
        subject: The subject, as it is frozen.
        execute: Executes it on a case.
    """

    subject: Subject
    execute: Execute


class Surroundings(NamedTuple):
    """What subjects are executed with.

    Attributes:
        root: The project.
        store: The store of policies and prompts.
        settings: The settings of the store.
        prices: Prices of tokens.
        model_ref: The model; ``None`` if none is named.
        temperature: Of the model.
        seeds: The seeds of the run.
        timeout_s: The longest time of one episode, in seconds.
    """

    root: Root
    store: Store
    settings: Settings
    prices: Prices
    model_ref: str | None
    temperature: float
    seeds: tuple[int, ...]
    timeout_s: float


def measured(reference: str, around: Surroundings) -> Measured:
    """Return the subject of a reference.

    Raises:
        TauLiveError: There is no such subject.
    """
    kind, _, rest = reference.partition(":")
    makers = {
        "policy": _policy, "checkpoint": _policy, "prompt": _prompt, "python": _python,
        "host": _host,
    }  # fmt: skip
    if kind not in makers or bool(rest) is (kind == "host"):
        raise TauLiveError(
            f"a subject is policy:POINT@VERSION, checkpoint:FILE, prompt:VERSION, host, or "
            f"python:package.module:callable, got {reference!r}"
        )
    return makers[kind](reference, around)


def has_subject_per_seed(reference: str) -> bool:
    """Return whether a subject is another one for each seed."""
    return SEED in reference


# Policies


def _policy(reference: str, around: Surroundings) -> Measured:
    """Return a policy of the store or of a file; it decides on the options of a case."""
    kind, _, rest = reference.partition(":")
    texts = {seed: rest.replace(SEED, str(seed)) for seed in around.seeds}
    loaded = {
        text: _loaded(kind, text, around) for text in dict.fromkeys(texts.values())
    }  # a file is read once
    own = [loaded[text][2] for text in texts.values()]
    joined = own[0] if len({*own}) == 1 else digest(canonical_json(own))

    def execute(case: Case, episode: Episode) -> Made:
        point, decider, _ = loaded[texts[episode.seed]]
        if not case.options:
            raise ValueError("the case has no options, and a policy only chooses among options")
        choice = decide(decider, point, case, episode)
        return Made(Output(text=[*case.options][choice.place]), Decided(point, choice))

    return Measured(Subject(subject=reference, policy_sha256=joined, kind=kind), execute)  # type: ignore[arg-type]  # one of two literals


def _loaded(kind: str, text: str, around: Surroundings) -> tuple[str, Decider, str]:
    """Return decision point, decider and digest of a policy."""
    if kind == "checkpoint":
        path = around.root.place(around.root.relative(around.root.folder / text))
        checkpoint = checkpoints.load(path)
        state = LearnerState.from_arrays(checkpoint.arrays)
        return checkpoint.point, _decider(checkpoint.point, state.policy), checkpoint.sha256
    point, _, version = text.rpartition("@")
    if not point or not version.isdigit():
        raise TauLiveError(f"a policy is policy:POINT@VERSION, got 'policy:{text}'")
    if version == UNTRAINED:
        policy = Policy.initial(policy_config(around.settings))
        arrays = policy.arrays()
        own = checkpoints.Checkpoint(
            version=0, point=point, parent=0, parent_sha256="", arrays=arrays
        )
        return point, _decider(point, policy), own.sha256
    row = around.store.policies.version(int(version))
    if row.point != point:
        raise TauLiveError(f"version {version} is a policy of {row.point!r}, not of {point!r}")
    policy = load_policy(checkpoint_folder(around.settings), row)
    return point, _decider(point, policy), row.sha256


def _decider(point: str, policy: Policy) -> Decider:
    decider = Decider(policy, seed=0)
    decider.serve(point, 1, policy)
    return decider


def decide(decider: Decider, point: str, case: Case, episode: Episode) -> PolicyChoice:
    """Return a policy's choice among a case's options; both roles have the same draw."""
    return decider.choose(
        canonical_json([case.case_id, case.seed, episode.seed, episode.repeat]).decode(),
        point=point,
        options=list(case.options.items()),
        context=case.context,
        default=0,
    )


def decision_of(made: Decided, case: Case, *, claim: Claim, run_id: str, at: float) -> Decision:
    """Return the decision of an episode as the store keeps it."""
    names = tuple(case.options)
    choice = made.choice
    return Decision(
        rollout_id=claim.rollout.rollout_id, attempt=claim.attempt.number, ordinal=1,
        point=f"{made.point}@{run_id}",
        options=names, chosen=names[choice.place], applied=names[choice.place], default=names[0],
        propensity=choice.propensity, probabilities=choice.probabilities, value=choice.value,
        policy_version=0, arm=LEARNER, at=at, context=case.context, features=case.options,
        encoded=choice.encoded,
    )  # fmt: skip


# Prompts, and the host's own


def _prompt(reference: str, around: Surroundings) -> Measured:
    version = reference.partition(":")[2]
    texts = _texts(around.store)
    matching = [known for known in texts if known.startswith(version)]
    if len(matching) != 1:
        what = "no prompt" if not matching else "more than one prompt"
        raise TauLiveError(f"{what} in the store has the version {version!r}")
    text = texts[matching[0]]
    own = digest(canonical_json(["prompt", text, around.model_ref, around.temperature]))
    subject = Subject(subject=f"prompt:{matching[0]}", policy_sha256=own, kind="prompt")
    return Measured(subject, _asking(text, around))


def _texts(store: Store) -> dict[str, str]:
    """Return the texts of all prompts in a store, by version."""
    texts = {}
    for name in store.resources.latest():
        for resource in store.resources.versions(name):
            if isinstance(resource.content, str):
                texts[prompt_version(resource.content)] = resource.content
    for candidate in store.optimizations.candidates():
        if candidate.text:
            texts[prompt_version(candidate.text)] = candidate.text
    return texts


def _host(reference: str, around: Surroundings) -> Measured:
    """Return the host's own choice: the first option of a case, or the model without a prompt."""
    own = digest(canonical_json(["host", around.model_ref, around.temperature]))
    ask_model = _asking("", around)

    def execute(case: Case, episode: Episode) -> Made:
        if case.options:
            return Made(Output(text=next(iter(case.options))))
        return ask_model(case, episode)

    return Measured(Subject(subject=reference, policy_sha256=own, kind="host"), execute)


def _asking(system: str, around: Surroundings) -> Execute:
    def execute(case: Case, episode: Episode) -> Made:
        if around.model_ref is None:
            raise TauLiveError("the case has no options, and no model is named: freeze with one")
        answer = ask(
            around.model_ref, system=system, user=case.prompt,
            seed=(case.seed + episode.seed + episode.repeat) % 2**31,
            temperature=around.temperature, max_tokens=MAX_TOKENS, prices=around.prices,
            timeout_s=around.timeout_s,
        )  # fmt: skip
        return Made(Output(text=answer.text, cost_usd=answer.usd, tokens=answer.tokens or None))

    return execute


# Functions


def _python(reference: str, around: Surroundings) -> Measured:
    del around
    name = reference.partition(":")[2]
    function = load_callable(name)
    path = inspect.getsourcefile(inspect.unwrap(function))
    source = Path(path).read_bytes() if path else b""
    own = digest(canonical_json([name, digest(source)]))

    def execute(case: Case, episode: Episode) -> Made:
        return Made(_output_of(function(case, episode.seed)))

    return Measured(Subject(subject=reference, policy_sha256=own, kind="python"), execute)


_OWN_KEYS = ("scores", "safety_penalty", "cost_usd", "tokens")


def _output_of(returned: object) -> Output:
    """Return what a function gave: a text, or an object with ``output`` and what it reports."""
    if isinstance(returned, str):
        return Output(text=returned)
    if not isinstance(returned, Mapping) or not isinstance(returned.get("output"), str):
        raise ValueError(  # noqa: TRY004  # its value is wrong, not our call
            f"must return a text, or an object with a text 'output', got {returned!r}"
        )
    unknown = sorted(map(str, returned.keys() - {"output", *_OWN_KEYS}))
    if unknown:
        raise ValueError(f"must return no other keys than output, {_OWN_KEYS}, got {unknown}")
    return Output(text=returned["output"], **{k: returned[k] for k in _OWN_KEYS if k in returned})


def why(error: BaseException) -> str:
    """Return why something failed, on one line."""
    return f"{type(error).__name__}: {text_of(error)}"[:500].replace("\n", " ")
