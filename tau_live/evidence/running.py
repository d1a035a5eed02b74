"""Running: inputs are frozen, episodes executed, and each becomes a record and a rollout."""

import contextvars
import platform
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, nullcontext, suppress
from typing import Literal, NamedTuple
from uuid import uuid5

import msgspec
import numpy as np

import tau_live
from tau_live.core import fault
from tau_live.core.errors import DuplicateError, TauLiveError, UnknownError
from tau_live.core.prompts import canonical_json
from tau_live.core.records import (
    NAMESPACE,
    AttemptStatus,
    Claim,
    Reward,
    Rollout,
    RolloutMode,
    RolloutQuery,
    Span,
)
from tau_live.core.redaction import scrub_text
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Settings
from tau_live.core.version import this_version
from tau_live.evidence.artifacts import (
    ArtifactError,
    Fault,
    Names,
    Root,
    check,
    digest,
    hold,
    plain,
    timestamp,
)
from tau_live.evidence.records import (
    ROLES,
    Environment,
    Episode,
    Inputs,
    Lines,
    Record,
    RecordFile,
    Role,
    Subjects,
    SuiteRef,
    plan,
    sealed_inputs,
)
from tau_live.evidence.subjects import (
    AGENT,
    Made,
    Measured,
    Surroundings,
    check_fit,
    decision_of,
    has_subject_per_seed,
    subject_of,
    why,
)
from tau_live.evidence.suites import (
    SHIPPED,
    Case,
    Output,
    Suite,
    contaminations,
    load_suite,
    penalty_of,
    reward_of,
    score,
    scorer_of,
    suite_content,
    suite_names,
)
from tau_live.prompts.budget import Prices
from tau_live.prompts.models import StoppedError, classify
from tau_live.rl.criteria import LEAST_PAIRS, Criteria
from tau_live.rl.stability import FEWEST_SEEDS
from tau_live.store.opening import open_at
from tau_live.store.roles import Store

SUITES = "tasks/suites"
"""Where a suite that ships is copied to, so that a stranger finds it in the root."""

HOST = "evidence"
SOURCE = "evidence"
SCORE, PENALTY = "score", "safety_penalty"
TRIES = 3
RETRY_S = 0.2
TIMEOUT_S = 120.0
LONGEST_ERROR = 500
PAGE = 500


class Frozen(NamedTuple):
    """The plan of a run, as an operator gives it.

    Attributes:
        suite: The path of the suite from the root, or the name of one that ships.
        baseline: The baseline's subject.
        trained: The trained subject.
        seeds: The seeds of the episodes.
        episodes: Episodes of each role; ``None`` is one for each case and seed.
        model_ref: The model; ``None`` if no subject asks one.
        temperature: Of the model.
        criteria: What a pass needs.
    """

    suite: str
    baseline: str
    trained: str
    seeds: Sequence[int]
    episodes: int | None = None
    model_ref: str | None = None
    temperature: float = 0.0
    criteria: Criteria = Criteria()


def freeze(root: Root, run_id: str, wanted: Frozen, *, store: Store, settings: Settings) -> Inputs:
    """Write the frozen inputs of a run, and return them.

    Raises:
        TauLiveError: They exist already, a subject is none, or the number of episodes does not fit.
        SuiteError: The suite breaks a rule.
    """
    names = Names(run_id)
    if root.place(names.inputs).exists():
        raise TauLiveError(f"{names.inputs} exists: inputs that are frozen never change")
    path = _suite_path(root, wanted.suite)
    loaded = load_suite(path, root)
    cases = len(loaded.suite.cases)
    repeats = _repeats(cases, wanted)
    _check_plan(loaded.suite, wanted)
    around = surroundings(root, store, settings, wanted)
    own = [subject_of(reference, around) for reference in (wanted.baseline, wanted.trained)]
    for each in own:
        check_fit(each, loaded.suite, wanted.model_ref)
    subjects = Subjects(baseline=own[0].subject, trained=own[1].subject)
    if subjects.baseline.policy_sha256 == subjects.trained.policy_sha256:
        text = f"{wanted.baseline} and {wanted.trained} are one subject"
        raise ArtifactError(Fault("same_policy", "/roles", text))
    per_seed = has_subject_per_seed(wanted.baseline) or has_subject_per_seed(wanted.trained)
    inputs = sealed_inputs(
        Inputs(
            run_id=run_id,
            generated_at=timestamp(time.time()),
            suite=SuiteRef(
                suite_id=loaded.suite.suite_id, suite_version=loaded.suite.suite_version,
                family=loaded.suite.family, path=path, sha256=loaded.sha256, cases=cases,
            ),
            model_ref=wanted.model_ref,
            episodes=cases * len(wanted.seeds) * repeats,
            seeds=[*wanted.seeds],
            repeats=repeats,
            temperature=wanted.temperature,
            planned_pairs=cases,
            criteria=wanted.criteria,
            roles=subjects,
            seed_kind="training" if per_seed else "evaluation",
            environment=Environment(
                tau_live=this_version(), python=platform.python_version(), numpy=np.__version__,
                platform=f"{platform.system()} {platform.machine()}",
            ),
            inputs_sha256="0" * 64,
        )
    )  # fmt: skip
    faults = check(plain(inputs), Inputs)
    if faults:
        raise ArtifactError(*faults)
    root.write(names.inputs, inputs)
    return inputs


def _suite_path(root: Root, suite: str) -> str:
    """Return the path of a suite from the root; one that ships is copied there first."""
    if suite.removeprefix(SHIPPED) not in suite_names():
        return root.relative(root.folder / suite)
    name = suite.removeprefix(SHIPPED)
    content, path = suite_content(SHIPPED + name, root), f"{SUITES}/{name}.json"
    place = root.place(path)
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    elif place.read_bytes() != content:
        raise TauLiveError(f"{path} is not the suite {name} that ships: name another file")
    return path


def _check_plan(suite: Suite, wanted: Frozen) -> None:
    """Refuse a plan that could never pass, or a scorer that is not there."""
    if len(suite.cases) < LEAST_PAIRS:
        raise TauLiveError(
            f"{suite.suite_id} has {len(suite.cases)} cases: nothing is proven on fewer than "
            f"{LEAST_PAIRS}"
        )
    seeds = len(wanted.seeds)
    if wanted.criteria.require_seed_reproducibility and seeds < FEWEST_SEEDS:
        raise TauLiveError(
            f"name at least {FEWEST_SEEDS} seeds, or let the criteria not require that seeds "
            f"agree (require_seed_reproducibility), got {seeds}"
        )
    for dimension in dict.fromkeys(name for case in suite.cases for name in case.scoring_rubric):
        scorer_of(dimension)


def _repeats(cases: int, wanted: Frozen) -> int:
    """Return how often each case is executed with each seed."""
    seeds = len(wanted.seeds)
    if not seeds or len({*wanted.seeds}) < seeds:
        raise TauLiveError("name each seed once, and at least one")
    least = cases * seeds
    if wanted.episodes is None:
        return 1
    if wanted.episodes < least or wanted.episodes % least:
        raise TauLiveError(
            f"episodes must be a multiple of {least} ({cases} cases with {seeds} seeds), "
            f"got {wanted.episodes}"
        )
    return wanted.episodes // least


def surroundings(
    root: Root, store: Store, settings: Settings, wanted: Frozen | Inputs
) -> Surroundings:
    """Return what the subjects of a run are executed with."""
    return Surroundings(
        root=root, store=store, settings=settings,
        prices=Prices(settings.prices, settings.known_prices),
        model_ref=wanted.model_ref, temperature=wanted.temperature, seeds=tuple(wanted.seeds),
        timeout_s=TIMEOUT_S,
    )  # fmt: skip


def store_of(settings: Settings, *, read_only: bool = False) -> Store:
    """Return the store of a run, sealed as its settings have it."""
    return open_at(
        settings.store, read_only=read_only, traceless=read_only, key_file=settings.audit_key_file
    )


class Ran(NamedTuple):
    """The episodes that a run executed.

    Attributes:
        executed: Episodes that were executed now.
        recorded: All records of each role.
        torn: Roles whose file ended in a torn line, which was dropped.
    """

    executed: int
    recorded: Mapping[Role, int]
    torn: list[Role]


def run(
    root: Root,
    inputs: Inputs,
    roles: Sequence[Role],
    *,
    settings: Settings,
    workers: int = 1,
    show: Callable[[int, int], None] = lambda *_: None,
) -> Ran:
    """Execute the episodes that have no record yet.

    Args:
        root: The project.
        inputs: The frozen inputs.
        roles: The roles whose episodes are executed; of both, in turn by case.
        settings: Those of the store.
        workers: How many episodes are executed at once.
        show: Takes how many of the episodes are done, and how many there are.

    Raises:
        ArtifactError: Suite, subjects or records are not those that were frozen.
        TauLiveError: A record cannot be written, or a provider refuses every call.
    """
    place = root.place(Names(inputs.run_id).inputs)
    with (
        hold(place, f"another process executes {inputs.run_id}"),
        closing(store_of(settings)) as store,
    ):
        runner = Runner(root, inputs, store, settings)
        todo = runner.todo(roles)
        total = inputs.episodes * len(roles)
        done = total - len(todo)
        show(done, total)
        try:
            with ThreadPoolExecutor(workers, thread_name_prefix="tau-live-cases") as pool:
                futures = [pool.submit(runner.execute, role, episode) for role, episode in todo]
                try:
                    for future in as_completed(futures):
                        future.result()
                        done += 1
                        show(done, total)
                except BaseException:  # what is under way is recorded
                    pool.shutdown(wait=False, cancel_futures=True)
                    raise
        finally:
            runner.close()
    recorded = {role: len(runner.files[role].read().records) for role in roles}
    return Ran(len(todo), recorded, runner.torn)


class Runner:
    """Executes the episodes of a run; each thread has its own connection.

    Args:
        root: The project.
        inputs: The frozen inputs.
        store: The store, in this thread.
        settings: Its settings.
    """

    def __init__(self, root: Root, inputs: Inputs, store: Store, settings: Settings) -> None:
        self._inputs = inputs
        self._settings = settings
        self._suite = frozen_suite(root, inputs)
        around = surroundings(root, store, settings, inputs)
        self._measured: dict[Role, Measured] = {
            role: _frozen_subject(inputs, role, around) for role in ROLES
        }
        hits = contaminations(self._suite, inputs_trained_on(store))
        if hits:
            text = f"training has read the cases {', '.join(hits[:5])}"
            raise ArtifactError(Fault("contaminated_case", "", text))
        self.files = {role: RecordFile(root, Names(inputs.run_id).records(role)) for role in ROLES}
        self.torn = list[Role]()
        self._writing = threading.Lock()
        self._local = threading.local()
        self._stores = list[Store]()

    def todo(self, roles: Sequence[Role]) -> list[tuple[Role, Episode]]:
        """Return the episodes without a record; of both roles in turn, the other first by case."""
        known: dict[Role, set[int]] = {}
        for role in roles:
            lines = self.files[role].read()
            if lines.torn:
                self.torn.append(role)
            _check_records(lines, self._inputs, role)
            known[role] = {record.episode for record in lines.records}
        return [
            (role, episode)
            for episode in plan(self._inputs)
            for role in (roles if episode.case % 2 == 0 else [*reversed(roles)])
            if episode.number not in known[role]
        ]

    def close(self) -> None:
        """Close the connections of all threads."""
        for store in self._stores:
            with suppress(TauLiveError):
                store.close()

    def _store(self) -> Store:
        store: Store | None = getattr(self._local, "store", None)
        if store is None:
            store = self._local.store = store_of(self._settings)
            with self._writing:
                self._stores.append(store)
        return store

    def execute(self, role: Role, episode: Episode) -> None:
        """Execute an episode, store its rollout, and append its record."""
        case = self._suite.cases[episode.case]
        store, rollout_id = self._store(), rollout_id_of(self._inputs, role, episode)
        record = _record_in(store, rollout_id)
        if record is None:
            claim = self._claim(store, rollout_id, case, role)
            record = self._measure(store, claim, case, role=role, episode=episode)
        fault.point("evidence.stored")
        with self._writing:
            self.files[role].append(record)
        fault.point("evidence.recorded")

    def _claim(self, store: Store, rollout_id: str, case: Case, role: Role) -> Claim:
        rollout = Rollout(
            rollout_id=rollout_id, host=HOST, name=f"{self._inputs.run_id} {role}",
            mode=RolloutMode.TEST, run_id=rollout_id, queue=self._inputs.run_id,
            input={"case_id": case.case_id},
            metadata={"run_id": self._inputs.run_id, "role": role, "case_id": case.case_id},
        )  # fmt: skip
        try:
            return store.queue.begin(rollout, None)
        except DuplicateError:  # an episode that was killed
            return store.queue.retry(rollout_id, None)

    def _measure(
        self, store: Store, claim: Claim, case: Case, *, role: Role, episode: Episode
    ) -> Record:
        """Return the record of an episode, stored with its decision and its rewards."""
        is_python = self._measured[role].subject.kind == "python"
        result = list[Record]()
        with (
            suppress(_NotScoredError),
            tau_live.run(claim=claim) if is_python else nullcontext(),
        ):
            began, clock = time.time(), time.perf_counter()
            attempt = self._try(role, case, episode)
            latency_ms = (time.perf_counter() - clock) * 1000
            record = self._record(role, case, episode, attempt, began=began, latency_ms=latency_ms)
            result.append(record)
            _keep(store, claim, record, attempt.made, began=began)
            if record.status != "scored":
                raise _NotScoredError
        return result[0]

    def _is_own_code(self, own: Measured) -> bool:
        """Return whether a user's function runs: its errors are not those of a provider."""
        ref = self._inputs.model_ref
        return own.subject.kind == "python" or (ref is not None and ref.startswith(AGENT))

    def _record(
        self, role: Role, case: Case, episode: Episode, attempt: "_Attempt", *, began: float,
        latency_ms: float,
    ) -> Record:  # fmt: skip
        inputs, subject = self._inputs, self._inputs.subject(role)
        output = None if attempt.made is None else attempt.made.output
        is_missing = attempt.status == "missing"
        reward = reward_of(case, attempt.scores) if attempt.status == "scored" else 0.0
        return Record(
            run_id=inputs.run_id, role=role, inputs_sha256=inputs.inputs_sha256,
            suite_sha256=inputs.suite.sha256, case_id=case.case_id, case_sha256=case.sha256,
            seed=episode.seed, repeat=episode.repeat, episode=episode.number,
            rollout_id=rollout_id_of(inputs, role, episode), status=attempt.status,
            reward=None if is_missing else reward, dimensions=attempt.scores,
            safety_penalty=penalty_of(case, Output(text="") if output is None else output)
            if not is_missing else None,
            cost_usd=None if output is None else output.cost_usd,
            tokens=None if output is None else output.tokens,
            latency_ms=None if is_missing else round(latency_ms, 6),
            subject=subject.subject, policy_sha256=subject.policy_sha256,
            output_sha256=None if output is None else digest(output.text.encode()),
            started_at=timestamp(began), ended_at=timestamp(time.time()), error=attempt.error,
        )  # fmt: skip

    def _try(self, role: Role, case: Case, episode: Episode) -> "_Attempt":
        """Execute a subject; what its surroundings fail at is tried again."""
        own = self._measured[role]
        for tries in range(1, TRIES + 1):
            try:
                made = _within(TIMEOUT_S, lambda: own.execute(case, episode))
                break
            except Exception as error:  # the border to subjects
                kind = classify(error, by_agent=self._is_own_code(own))
                if isinstance(kind, StoppedError):
                    raise kind from error
                if kind is None or isinstance(error, _OverdueError):
                    return _Attempt(None, {}, "failed", _excerpt(why(error)))
                if tries == TRIES:
                    return _Attempt(None, {}, "missing", _excerpt(str(kind)))
                time.sleep(RETRY_S * 2**tries)
        try:
            return _Attempt(made, score(case, made.output), "scored", None)
        except TauLiveError as error:
            return _Attempt(made, {}, "missing", _excerpt(str(error)))


def _within(timeout_s: float, execute: Callable[[], Made]) -> Made:
    """Return what a subject makes, in a thread of its own: one that blocks does not end a run.

    Raises:
        _OverdueError: It took longer, and is left alone, or it ended itself.
        Exception: Whatever the subject raises.
    """
    box: list[Made | BaseException] = []

    def work() -> None:
        try:
            box.append(execute())
        except BaseException as error:  # noqa: BLE001  # raised again where it is waited for
            box.append(error)

    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(work,), daemon=True)
    thread.start()
    thread.join(timeout_s)
    if not box:
        raise _OverdueError(f"took longer than {timeout_s:g} s")
    if isinstance(box[0], Exception):
        raise box[0]
    if isinstance(box[0], BaseException):  # such as SystemExit, which is its own business
        raise _OverdueError(f"ended itself: {type(box[0]).__name__}")
    return box[0]


class _OverdueError(Exception):
    """A subject took too long, or ended its thread: its own failure."""


class _Attempt(NamedTuple):
    """An attempt at a case, and its end."""

    made: Made | None
    scores: dict[str, float]
    status: Literal["scored", "failed", "missing"]
    error: str | None


class _NotScoredError(Exception):
    """Ends the run of an episode without a score."""


def _excerpt(text: str) -> str:
    return scrub_text(text)[:LONGEST_ERROR] or "unknown"


def rollout_id_of(inputs: Inputs, role: Role, episode: Episode) -> str:
    """Return the id of the rollout of an episode."""
    name = canonical_json([inputs.run_id, inputs.inputs_sha256, role, episode.number])
    return f"evidence-{uuid5(NAMESPACE, name.decode())}"


def _record_in(store: Store, rollout_id: str) -> Record | None:
    """Return the record of an episode that was stored before its writer was killed."""
    with suppress(UnknownError, msgspec.ValidationError):
        rollout = store.rollouts.rollout(rollout_id)
        if rollout.output is not None:
            return msgspec.convert(rollout.output, Record)
    return None


def _keep(store: Store, claim: Claim, record: Record, made: Made | None, *, began: float) -> None:
    """Store what came of an episode: its span, decision, rewards and end are one transaction."""
    rollout_id, now = record.rollout_id, time.time()
    is_scored = record.status == "scored"
    span = Span(
        rollout_id=rollout_id, attempt=claim.attempt.number, span_id="episode", kind="episode",
        name=record.subject, status="ok" if is_scored else "error",
        attributes={"case_id": record.case_id, "seed": record.seed}, started_at=began, ended_at=now,
    )  # fmt: skip
    rewards = {SCORE: record.reward, PENALTY: record.safety_penalty}
    with store.begin():
        with store.batch([rollout_id]) as batch:
            batch.add_spans([span], at=now)
            for number, decided in enumerate(() if made is None else made.decisions, start=1):
                decision = decision_of(decided, number, claim=claim, run_id=record.run_id, at=now)
                batch.add_decision(decision, assigned=False)
            for name, value in rewards.items():
                if value is not None:  # the seal of the reward is that of the record
                    batch.add_reward(
                        Reward(
                            rollout_id=rollout_id, name=name, value=value, source=SOURCE, at=now,
                            comment=record.sha256,
                        )
                    )  # fmt: skip
        claim.finish(
            AttemptStatus.SUCCEEDED if is_scored else AttemptStatus.FAILED,
            output=plain(record),
            error_message=record.error,
        )


def frozen_suite(root: Root, inputs: Inputs) -> Suite:
    """Return the suite of frozen inputs. Raises: ArtifactError, SuiteError."""
    loaded = load_suite(inputs.suite.path, root)
    if loaded.sha256 != inputs.suite.sha256:
        text = f"{inputs.suite.path} is not the suite that was frozen"
        raise ArtifactError(Fault("suite_hash_mismatch", "/suite/sha256", text))
    return loaded.suite


def _frozen_subject(inputs: Inputs, role: Role, around: Surroundings) -> Measured:
    frozen = inputs.subject(role)
    now = subject_of(frozen.subject, around)
    if now.subject != frozen:
        text = (
            f"{frozen.subject} is not the {role} subject that was frozen: its code, text or policy "
            "has changed since, or this is another store"
        )
        raise ArtifactError(Fault("inputs_mismatch", f"/roles/{role}/policy_sha256", text))
    return now


def _check_records(lines: Lines, inputs: Inputs, role: Role) -> None:
    """Raise an ``ArtifactError`` if there are records of another run."""
    foreign = [
        record.episode
        for record in lines.records
        if record.inputs_sha256 != inputs.inputs_sha256 or record.role != role
    ]
    if foreign:
        text = f"records of {role} hold episodes of another run: {foreign[:5]}"
        raise ArtifactError(*lines.faults, Fault("records_foreign_run", "", text))
    if lines.faults:
        raise ArtifactError(*lines.faults)


def inputs_trained_on(store: Store) -> Iterator[JsonObject]:
    """Yield the inputs of rollouts that prompts were searched or chosen on."""
    for mode in (RolloutMode.TRAIN, RolloutMode.VAL):
        after: int | None = 0
        while after is not None:
            query = RolloutQuery(mode=mode, after=after, limit=PAGE)
            rollouts = store.rollouts.query(query).rollouts
            for rollout in rollouts:
                if isinstance(rollout.input, dict):
                    yield rollout.input
            after = rollouts[-1].seq if rollouts else None
