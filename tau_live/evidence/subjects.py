"""Subjects: what is measured, and how each makes something of a case."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tau_live.core.callables import load_callable
from tau_live.core.errors import TauLiveError
from tau_live.core.guard import text_of
from tau_live.core.prompts import canonical_json, prompt_version
from tau_live.core.records import Claim, Decision
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Settings
from tau_live.decisions.checkpoints import Checkpoint, load
from tau_live.decisions.decider import LEARNER, Decider, PolicyChoice
from tau_live.decisions.policies import load_policy, policy_config
from tau_live.evidence.artifacts import ArtifactError, Fault, Root, digest
from tau_live.evidence.records import Episode, Subject
from tau_live.evidence.suites import Case, Output, Suite
from tau_live.prompts.budget import Prices
from tau_live.prompts.models import ask
from tau_live.rl.policy import Policy
from tau_live.rl.state import LearnerState
from tau_live.store.checkpoints import FolderCheckpoints
from tau_live.store.roles import Store

SEED = "{seed}"
"""Stands in a subject for the seed of an episode: each seed then has a subject of its own."""

FORMS = ("policy:POINT@VERSION", "checkpoint:FILE", "prompt:VERSION",
         "python:package.module:callable", "host")  # fmt: skip
"""The forms of a subject."""

UNTRAINED = "0"
MAX_TOKENS = 1024


AGENT = "agent/"
"""Begins a model that is an agent of yours: ``agent/package.module:callable#DIGEST``."""


class Decided(NamedTuple):
    """A decision that was made in an episode.

    Attributes:
        point: The decision point.
        choice: The policy's choice.
        options: The options with their features.
        context: The context.
        default: The index of the host's own choice; ``None`` if it has none.
    """

    point: str
    choice: PolicyChoice
    options: Mapping[str, JsonObject]
    context: JsonObject
    default: int | None


class Made(NamedTuple):
    """The output of a subject for a case.

    Attributes:
        output: Its output.
        decisions: What a policy decided, in order.
    """

    output: Output
    decisions: Sequence[Decided] = ()


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
    """The surroundings in which subjects are executed.

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


def subject_of(reference: str, around: Surroundings) -> Measured:
    """Return the subject of a reference.

    Raises:
        TauLiveError: There is no such subject.
    """
    makers = {
        "policy": _policy, "checkpoint": _policy, "prompt": _prompt, "python": _python,
        "host": _host,
    }  # fmt: skip
    if not is_reference(reference):
        raise TauLiveError(f"a subject is one of {', '.join(FORMS)}, got {reference!r}")
    return makers[reference.partition(":")[0]](reference, around)


def is_reference(text: str) -> bool:
    """Return whether a text has one of the forms of a subject."""
    kind, _, rest = text.partition(":")
    return kind in {form.partition(":")[0] for form in FORMS} and bool(rest) is (kind != "host")


def check_fit(measured_: Measured, suite: Suite, model_ref: str | None) -> None:
    """Refuse a subject that could do nothing with the cases of a suite.

    Raises:
        TauLiveError: It needs options, an agent or a model, and there are none.
    """
    kind, ref = measured_.subject.kind, measured_.subject.subject
    has_agent = model_ref is not None and model_ref.startswith(AGENT)
    has_model = model_ref is not None and not has_agent
    without = next((case.case_id for case in suite.cases if not case.options), None)
    if kind in {"policy", "checkpoint"} and without is not None and not has_agent:
        raise TauLiveError(f"{ref} needs an agent: `{without}` has no options to choose from")
    if kind == "host" and without is not None and model_ref is None:
        raise TauLiveError(f"{ref} needs an agent or a model: `{without}` has no options")
    if kind == "prompt" and not has_model:
        raise TauLiveError(f"{ref} needs a model: name one with --model")


def has_subject_per_seed(reference: str) -> bool:
    """Return whether a subject is another one for each seed."""
    return SEED in reference


# Policies


class Decide:
    """Chooses for an agent, in one episode.

    Args:
        point: The decision point of the policy.
        decider: The policy; ``None`` is the host's own choice everywhere.
        case: The case.
        episode: The episode.

    Attributes:
        point: The decision point of the policy.
        made: The decisions of the policy so far.
    """

    def __init__(self, point: str, decider: Decider | None, case: Case, episode: Episode) -> None:
        self.point = point
        self._decider = decider
        self._key = (case.case_id, case.seed, episode.seed, episode.repeat)
        self.made = list[Decided]()

    def __call__(
        self,
        point: str,
        options: Mapping[str, JsonObject],
        *,
        context: JsonObject | None = None,
        default: str | None = None,
    ) -> str:
        """Return the name of one of ``options``; at other points the host's own choice.

        Args:
            point: The decision point.
            options: The options with their features.
            context: The context.
            default: The host's own choice; ``None`` takes the first option for it.

        Raises:
            ValueError: There is no option.
        """
        names = [*options]
        if not names:
            raise ValueError(f"the decision {point!r} has no options")
        own = names[0] if default is None else default
        if self._decider is None or point != self.point:
            return own
        choice = self._decider.choose(
            canonical_json([*self._key, len(self.made)]).decode(),  # both roles draw alike
            point=point,
            options=list(options.items()),
            context=context or {},
            default=names.index(own) if own in names else None,
        )
        place = names.index(own) if own in names else None
        self.made.append(Decided(point, choice, options, context or {}, place))
        return names[choice.place]


def _policy(reference: str, around: Surroundings) -> Measured:
    """Return a policy of the store or of a file; it decides for an agent, or on cases alone."""
    kind, _, rest = reference.partition(":")
    texts = {seed: rest.replace(SEED, str(seed)) for seed in around.seeds}
    loaded = {text: _load_policy(kind, text, around) for text in dict.fromkeys(texts.values())}
    own = [loaded[text].sha256 for text in texts.values()]
    agent = _agent(around)
    joined = joined_digest(own)

    def execute(case: Case, episode: Episode) -> Made:
        policy = loaded[texts[episode.seed]]
        return _deciding(agent, Decide(policy.point, policy.decider, case, episode), case)

    return Measured(Subject(subject=reference, policy_sha256=joined, kind=kind), execute)  # type: ignore[arg-type]  # one of two literals


def joined_digest(digests: Sequence[str]) -> str:
    """Return the digest of a subject that is another one for each seed."""
    return digests[0] if len({*digests}) == 1 else digest(canonical_json(digests))


class _Loaded(NamedTuple):
    """A policy: its decision point, the decider, and its digest."""

    point: str
    decider: Decider
    sha256: str


def checkpoint_at(root: Root, path: str) -> Checkpoint:
    """Return the checkpoint in a file of a project. Raises: TauLiveError."""
    file = root.place(path)
    return load(FolderCheckpoints(file.parent), file.name)


def _load_policy(kind: str, text: str, around: Surroundings) -> _Loaded:
    if kind == "checkpoint":
        checkpoint = checkpoint_at(around.root, text)
        policy = LearnerState.from_arrays(checkpoint.arrays).policy
        return _Loaded(checkpoint.point, _decider(checkpoint.point, policy), checkpoint.sha256)
    point, _, version = text.rpartition("@")
    if not point or not version.isdigit():
        raise TauLiveError(f"a policy is policy:POINT@VERSION, got 'policy:{text}'")
    if version == UNTRAINED:
        policy = Policy.initial(policy_config(around.settings))
        own = Checkpoint(version=0, point=point, parent=0, parent_sha256="", arrays=policy.arrays())
        return _Loaded(point, _decider(point, policy), own.sha256)
    row = around.store.policies.version(int(version))
    if row.point != point:
        raise TauLiveError(f"version {version} is a policy of {row.point!r}, not of {point!r}")
    policy = load_policy(around.store.checkpoints, row)
    return _Loaded(point, _decider(point, policy), row.sha256)


def _decider(point: str, policy: Policy) -> Decider:
    decider = Decider(policy, seed=0)
    decider.serve(point, 1, policy)
    return decider


class _Agent(NamedTuple):
    """An agent whose decisions are measured, and the digest of its source."""

    function: Callable[..., object]
    sha256: str


def _agent(around: Surroundings) -> _Agent | None:
    """Return the agent that a run names in the place of a model."""
    if around.model_ref is None or not around.model_ref.startswith(AGENT):
        return None
    name, _, frozen = around.model_ref.removeprefix(AGENT).partition("#")
    function = load_callable(name)
    own = _source_digest(name, function)
    if frozen and frozen != own:
        text = f"the agent {name} is not the one that was frozen: its code has changed since"
        raise ArtifactError(Fault("inputs_mismatch", "/model_ref", text))
    return _Agent(function, own)


def agent_ref(name: str) -> str:
    """Return the reference of an agent, with the digest of its source.

    Raises:
        TauLiveError: It cannot be imported.
    """
    return f"{AGENT}{name}#{_source_digest(name, load_callable(name))}"


def _deciding(agent: _Agent | None, decide: Decide, case: Case) -> Made:
    """Return what an agent makes of a case, or the option that is chosen for it."""
    if agent is not None:
        output = _output_of(agent.function(case, decide))
        return Made(output, decide.made)
    if not case.options:
        raise ValueError("the case has no options: freeze with an agent that decides")
    chosen = decide(decide.point, case.options, context=case.context)
    return Made(Output(text=chosen), decide.made)


def decision_of(made: Decided, number: int, *, claim: Claim, run_id: str, at: float) -> Decision:
    """Return a decision of an episode as the store keeps it.

    Args:
        made: The decision.
        number: Its place among those of the episode, from 1.
        claim: The attempt.
        run_id: The run.
        at: Epoch seconds.
    """
    names, choice = tuple(made.options), made.choice
    return Decision(
        rollout_id=claim.rollout.rollout_id, attempt=claim.attempt.number, ordinal=number,
        point=f"{made.point}@{run_id}", options=names, chosen=names[choice.place],
        applied=names[choice.place],
        default=None if made.default is None else names[made.default],
        propensity=choice.propensity, probabilities=choice.probabilities, value=choice.value,
        policy_version=0, arm=LEARNER, at=at, context=made.context,
        features={name: own for name, own in made.options.items() if own},
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
    """Return the host's own choices: of an agent, of a case's options, or of the model alone."""
    agent = _agent(around)
    source = None if agent is None else agent.sha256
    own = digest(canonical_json(["host", around.model_ref, around.temperature, source]))
    ask_model = _asking("", around)

    def execute(case: Case, episode: Episode) -> Made:
        if agent is not None or case.options:
            return _deciding(agent, Decide("", None, case, episode), case)
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
    own = _source_digest(name, function)

    def execute(case: Case, episode: Episode) -> Made:
        return Made(_output_of(function(case, episode.seed)))

    return Measured(Subject(subject=reference, policy_sha256=own, kind="python"), execute)


def _source_digest(name: str, function: Callable[..., object]) -> str:
    """Return the digest of the file that a function is written in, and of its name."""
    path = inspect.getsourcefile(inspect.unwrap(function))
    own = inspect.unwrap(function)
    name = f"{own.__module__}:{own.__qualname__}" if inspect.isroutine(own) else name
    return digest(canonical_json([name, digest(Path(path).read_bytes() if path else b"")]))


MOST = 1e9
"""The largest number that a subject may report."""

_OWN_KEYS = ("safety_penalty", "cost_usd", "tokens")


def _output_of(returned: object) -> Output:
    """Return what a function gave: a text, or an object with ``output`` and what it reports."""
    if isinstance(returned, str):
        returned = {"output": str.__str__(returned)}
    if not isinstance(returned, Mapping) or not isinstance(returned.get("output"), str):
        raise ValueError(  # noqa: TRY004  # its value is wrong, not our call
            f"must return a text, or an object with a text 'output', got {type(returned).__name__}"
        )
    unknown = sorted(map(str, returned.keys() - {"output", *_OWN_KEYS}))
    if unknown:
        raise ValueError(
            f"must return no other keys than output, {', '.join(_OWN_KEYS)}, got "
            f"{', '.join(unknown)[:80]}"
        )
    own = {key: returned[key] for key in _OWN_KEYS if returned.get(key) is not None}
    for key, value in own.items():
        kinds = (int,) if key == "tokens" else (int, float)
        if type(value) not in kinds or not 0 <= value <= MOST:
            what = "a whole number" if key == "tokens" else "a number"
            raise ValueError(f"{key} must be {what} from 0 to {MOST:g}, got {value!r}")
    returned["output"].encode()  # half a surrogate cannot be stored
    return Output(text=returned["output"], **own)


def why(error: BaseException) -> str:
    """Return why something failed, on one line."""
    return f"{type(error).__name__}: {text_of(error)}"[:500].replace("\n", " ")
