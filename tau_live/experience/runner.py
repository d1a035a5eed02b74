"""A run of lessons: groups attempt tasks, lessons are learned, measured, kept and proven."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tau_live.core.errors import TauLiveError
from tau_live.core.files import make_folders, write_whole
from tau_live.core.processes import this_process
from tau_live.core.prompts import canonical_json
from tau_live.core.records import ITEM, Rollout, RolloutConfig, RolloutMode, RolloutQuery, Span
from tau_live.core.records import Attempt as StoredAttempt
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Settings
from tau_live.experience.config import Config, Read
from tau_live.experience.credit import Uplift
from tau_live.experience.gates import LEAST_TEST, LEAST_VALIDATION, Verdict, accept, ship
from tau_live.experience.groups import Draw, draws, group_id, rollout_id, seed_of, withheld
from tau_live.experience.injection import Choice, Rules, block_of, choose
from tau_live.experience.learner import Attempt, Group, Learner, Member, Study
from tau_live.experience.log import LEASE, Change, Log, Place, now_ms, take_pool
from tau_live.experience.manifest import manifest_of, write_manifest
from tau_live.experience.metrics import epoch_row, evaluation_figures, figures_of, write_metrics
from tau_live.experience.packs import Pack, load_packs
from tau_live.experience.pool import EMPTY
from tau_live.experience.reconcile import Edit, Known, Reconciled, reconcile
from tau_live.experience.records import Experience, LessonVersion
from tau_live.experience.rewards import is_informative, rank_rewards
from tau_live.experience.tasks import SPLITS, Split, Task, Tasks, digest_of_split, load_tasks
from tau_live.experience.words import count_words
from tau_live.experience.worker import HEARTBEAT_S, Assignment, MemberExecutor, Plan
from tau_live.operate.optimizations import OWNER_DIED, state_now
from tau_live.prompts.budget import Prices, tokens_at_most
from tau_live.prompts.control import RESUMABLE
from tau_live.prompts.items import SILENT_AFTER, Workers
from tau_live.prompts.lead import WATCH_S, Lead, Pace, Show, take_lead
from tau_live.prompts.models import Models
from tau_live.rl.paired import t_interval
from tau_live.store.opening import open_at
from tau_live.store.records import Condition, Optimization, OptimizationState, StepRow
from tau_live.store.roles import Store
from tau_live.store.sealing import Keys

if TYPE_CHECKING:
    from tau_live.experience.telemetry import Telemetry

KIND = "experience"
IDS_AT_ONCE = 500
MAX_ATTEMPTS = 2
REJECTED_IN_A_ROW = 3
"""Pools in a row that are not accepted before the best one returns."""

MODES = {
    "train": RolloutMode.TRAIN,
    "validation": RolloutMode.VAL,
    "test": RolloutMode.TEST,
    "eval": RolloutMode.VAL,
}
NO_STUDY = Study({}, [], 0, Counter())

Tell = Callable[[str], None]
"""Takes a line about what has happened."""


class Loaded(NamedTuple):
    """Everything that a run needs, checked.

    Attributes:
        config: Its settings.
        tasks: Its tasks by split.
        packs: Its packs by domain.
        keys: The stamping keys.
        folder: The base of relative paths.
    """

    config: Config
    tasks: Tasks
    packs: Mapping[str, Pack]
    keys: Keys
    folder: Path

    @property
    def runs(self) -> Path:
        """The folder of the files of all runs of the task id."""
        return self.folder / self.config.runs_root / self.config.task_id

    @property
    def inputs(self) -> JsonObject:
        """The digests of everything that a run must find again to be resumed."""
        return {
            "config_sha256": self.config.digest,
            "splits": {
                split: {"tasks": len(self.tasks[split]), "sha256": digest_of_split(own)}
                for split in SPLITS
                if (own := self.tasks[split])
            },
            "packs": [
                {"id": pack.id, "domain": pack.domain, "digest": pack.digest, "stamp": pack.stamp}
                for pack in self.packs.values()
            ],
            "model_id": self.config.model_id,
            "learner_model_id": self.config.learner_model,
        }


class Preflight(NamedTuple):
    """The most that a run takes.

    Attributes:
        attempts: Attempts of groups, in all epochs.
        evaluations: Attempts that only measure.
        learner_calls: Calls of the learner, were every group informative.
        calls: All model calls, each attempt of one; ``None`` with an agent.
        tokens: All tokens; ``None`` likewise.
        usd: US dollars; ``None`` where a price is unknown.
    """

    attempts: int
    evaluations: int
    learner_calls: int
    calls: int | None
    tokens: int | None
    usd: float | None


def load(read: Read, keys: Keys) -> Loaded:
    """Return everything that a run needs, checked before any call.

    Raises:
        TauLiveError: Tasks or packs cannot be used, or a domain has no pack.
    """
    config = read.config
    tasks = load_tasks(config.tasks, read.folder, seed=config.seed, scenarios=config.scenarios)
    packs = load_packs([read.folder / name for name in config.pack], keys)
    missing = sorted({task.domain for own in tasks.values() for task in own} - {*packs})
    if missing:
        known = ", ".join(packs)
        raise TauLiveError(f"no prompt pack for the domain {missing[0]!r}: there are {known}")
    return Loaded(config, tasks, packs, keys, read.folder)


def preflight(loaded: Loaded, prices: Prices) -> Preflight:
    """Return what a run takes at most."""
    config = loaded.config
    groups = config.sample_size * config.epochs
    steps = -(-config.sample_size // config.batch_size) * config.epochs
    attempts = groups * config.group_size
    validated = 2 * steps * len(loaded.tasks["validation"]) * config.validation_repeats
    evaluations = validated + 2 * len(loaded.tasks["test"])
    learner = groups * (config.group_size + 2)
    if config.agent is not None:
        return Preflight(attempts, evaluations, learner, None, None, None)
    longest = max(tokens_at_most(task.prompt) for own in loaded.tasks.values() for task in own)
    system = max(tokens_at_most(*pack.texts.values()) for pack in loaded.packs.values())
    own = system + config.token_cap + longest
    calls = attempts + evaluations
    cost = prices.usd(config.model, own, config.max_tokens)
    learning = prices.usd(config.learner_model, own + 6 * config.max_tokens, config.max_tokens)
    return Preflight(
        attempts, evaluations, learner, calls + learner,
        calls * (own + config.max_tokens) + learner * (own + 7 * config.max_tokens),
        None if cost is None or learning is None else calls * cost + learner * learning,
    )  # fmt: skip


class Evaluation(msgspec.Struct, frozen=True):
    """What a run measures that learns nothing.

    Attributes:
        split: The tasks.
        pool: The version of the pool.
    """

    split: Split
    pool: str


def begin(
    store: Store, loaded: Loaded, before: Preflight, *, store_path: str,
    evaluation: Evaluation | None = None,
) -> Optimization:  # fmt: skip
    """Store a new run.

    Args:
        store: The store.
        loaded: Everything that it needs.
        before: What it takes at most.
        store_path: The store as the command was given it.
        evaluation: What it measures, if it learns nothing.

    Raises:
        LeaseLostError: Another run changes the pool.
        PoolError: The pool to be measured is not known.
    """
    take_pool(store)
    log = Log(store, loaded.keys)
    config = loaded.config
    if evaluation is not None:
        log.pool.of(evaluation.pool)
    return store.optimizations.create(
        Optimization(
            run_id="",
            kind=KIND,
            config_digest=config.digest,
            config_path=str(loaded.folder),
            config=config.plain,
            model_ref=config.model_id,
            store_path=store_path,
            owner=this_process(),
            created_at=time.time(),
            incumbent=log.pool.version,
            report={
                "inputs": loaded.inputs,
                "limits": config.limits._asdict(),
                "preflight": before._asdict(),
                "heads": {chain: msgspec.to_builtins(head) for chain, head in log.heads.items()},
                "evaluation": msgspec.to_builtins(evaluation),
            },
        )
    )


def resume(store: Store, run: Optimization, loaded: Loaded) -> Optimization:
    """Take over a run that was interrupted; one that is completed stays as it is.

    Raises:
        TauLiveError: It is in another state, or something differs from what it began with.
        LeaseLostError: Another process leads it.
    """
    state, why = state_now(run)
    if state is OptimizationState.COMPLETED:  # perhaps its process died before it wrote its files
        return run
    if state is not OptimizationState.FAILED or why not in RESUMABLE:
        raise TauLiveError(f"cannot resume a run that is {state}")
    known, now = run.report["inputs"], loaded.inputs
    differing = [key for key in now if not isinstance(known, dict) or known.get(key) != now[key]]
    if differing:
        raise TauLiveError(f"cannot resume {run.run_id}: {', '.join(differing)} differ")
    take_pool(store)
    log = Log(store, loaded.keys)
    seen = [step.content.get("seq") for step in store.experience.steps(run.run_id)]
    last = max((seq for seq in seen if isinstance(seq, int)), default=None)
    if last is not None and log.operator_seq > last:
        raise TauLiveError(f"cannot resume {run.run_id}: an operator has changed the pool since")
    take_lead(store, run.run_id)
    with store.begin():
        store.optimizations.change(
            run.run_id, states=[run.state], state=OptimizationState.RUNNING, owner=this_process(),
            reason_code=None, error=None, ended_at=None, tokens_reserved=0, usd_reserved=0.0,
        )  # fmt: skip
        _forgive(store, run.run_id)
        store.queue.expire()
        resumed = run.report.get("resumed")
        times = [*(resumed if isinstance(resumed, list) else []), now_ms()]
        store.optimizations.amend_report(run.run_id, resumed=times, crashed=why == OWNER_DIED)
    return store.optimizations.run(run.run_id)


def _forgive(store: Store, run_id: str) -> None:
    """Let attempts that died with the process of a run count for nothing."""
    for id_ in store.optimizations.open_items(run_id):
        rollout = store.rollouts.rollout(id_)
        most = rollout.attempt_count + MAX_ATTEMPTS
        config = msgspec.structs.replace(rollout.config, max_attempts=most)
        store.queue.amend(msgspec.structs.replace(rollout, config=config))


def lead(
    store: Store, run: Optimization, loaded: Loaded, *, settings: Settings, show: Show, tell: Tell
) -> Optimization:
    """Lead a run to its end, and return it as it ended.

    Args:
        store: The store, in this thread.
        run: The run.
        loaded: Everything that it needs.
        settings: Those of the store: prices, and the kill switch.
        show: Takes the progress, several times a second.
        tell: Takes a line about each step.

    Raises:
        LeaseLostError: Another process leads it.
        KeyboardInterrupt: The operator interrupted it; it can be resumed.
    """
    take_lead(store, run.run_id)
    with closing(_Runner(store, run, loaded, settings, show, tell)) as runner:
        return runner.lead()


class _Best(msgspec.Struct, frozen=True):
    """The pool that was accepted last, and what its prompts hold, by domain."""

    version: str
    injected: dict[str, tuple[LessonVersion, ...]]
    blocks: dict[str, str]


class _Runner:
    def __init__(  # noqa: PLR0917  # made in one place
        self, store: Store, run: Optimization, loaded: Loaded, settings: Settings, show: Show,
        tell: Tell,
    ) -> None:  # fmt: skip
        config = self._config = loaded.config
        self._store = store
        self._run_id = run.run_id
        self._loaded = loaded
        self._tell = tell
        self._log = Log(store, loaded.keys)
        tasks = {task.query_id: task for own in loaded.tasks.values() for task in own}
        plan = Plan(
            store.path, run.run_id, config, tasks, loaded.packs, loaded.keys,
            settings.audit_key_file,
        )  # fmt: skip
        models = Models(
            store.path, run.run_id, config.limits,
            prices=Prices(settings.prices, settings.known_prices),
            timeout_s=config.attempt_timeout, key_file=settings.audit_key_file,
        )  # fmt: skip
        workers = Workers(
            plan.queue, models, lambda: MemberExecutor(plan, models).begin, count=config.workers
        )
        pace = Pace(WATCH_S / 5, None, config.attempt_timeout, config.seconds)
        self._lead = Lead(store, run.run_id, settings, workers, models, pace, show)
        self._learner = Learner(
            open_at(store.path, key_file=settings.audit_key_file), run.run_id, config, models,
            loaded.packs, loaded.tasks["train"],
        )  # fmt: skip
        self._done = {
            (step.phase, step.epoch, step.step): step.content
            for step in store.experience.steps(run.run_id)
        }
        self._evaluation = msgspec.convert(run.report.get("evaluation"), Evaluation | None)
        self._telemetry = _telemetry(config, run.run_id)
        known = run.report.get("best")
        self._best = (
            msgspec.convert(known, _Best, strict=False)
            if known is not None
            else self._candidate()[0]
        )
        self._rejected = 0

    def close(self) -> None:
        """Close what it has opened."""
        self._learner.close()
        if self._telemetry is not None:
            config = self._config
            self._telemetry.close(
                {
                    "tfgrpo.run_id": self._run_id, "tfgrpo.task_id": config.task_id,
                    "tfgrpo.group_size": config.group_size, "tfgrpo.epochs": config.epochs,
                    "tfgrpo.pool_version": self._log.pool.version,
                    "gen_ai.request.model": config.model_id,
                }
            )  # fmt: skip

    def lead(self) -> Optimization:
        """Lead the run to its end."""
        try:
            if self._store.optimizations.state(self._run_id) is not OptimizationState.COMPLETED:
                self._lead.to_end(self._phases, at_stop=self._note_stop, failures={})
        finally:
            self._write()
            self._store.leases.release(LEASE, this_process())
        return self._store.optimizations.run(self._run_id)

    def _note_stop(self, why: str) -> None:
        """Note that the run ends early."""
        self._store.optimizations.amend_report(self._run_id, stopped=why)

    def _phases(self) -> None:
        config = self._config
        if self._evaluation is not None:
            self._lead.begin_phase("eval")
            self._evaluate(self._evaluation)
            self._lead.complete()
            return
        self._store.optimizations.amend_report(self._run_id, best=msgspec.to_builtins(self._best))
        for epoch in range(1, config.epochs + 1):
            drawn = draws(
                config.seed, epoch, len(self._loaded.tasks["train"]),
                sample_size=config.sample_size,
            )  # fmt: skip
            steps = range(0, len(drawn), config.batch_size)
            for step, start in enumerate(steps):
                if ("train", epoch, step) not in self._done:
                    self._lead.begin_phase(f"train {epoch}")
                    self._step(epoch, step, drawn[start : start + config.batch_size])
                if ("validation", epoch, step) not in self._done:
                    self._lead.begin_phase(f"validation {epoch}")
                    self._validate(epoch, step)
                    self._write()
                self._count_rejected(epoch, step)
        if ("test", 0, 0) not in self._done:
            self._lead.begin_phase("test")
            self._test()
        self._lead.complete()

    # Steps

    def _step(self, epoch: int, step: int, drawn: Sequence[Draw]) -> None:
        """Let groups attempt tasks, learn from them, and change the pool."""
        began, place = time.monotonic(), Place(self._run_id, epoch, step)
        take_pool(self._store)
        self._log.read()
        pool, effects = self._log.in_force(), self._log.effects()
        wanted: dict[str, Assignment] = {}
        choices: dict[str, Choice] = {}
        groups: list[tuple[str, Draw, Task]] = []
        for draw in drawn:
            task = self._loaded.tasks["train"][draw.task]
            group = group_id(self._run_id, epoch, step, task.query_id, draw.number)
            groups.append((group, draw, task))
            choices[group] = self._choice(task.domain, group, pool, effects)
            wanted |= self._members(group, task, choices[group])
        self._execute(wanted)
        rollouts = self._rollouts([*wanted])
        ended = [self._group(*each, rollouts) for each in groups]
        evidence = {group.group_id: self._evidence(group) for group in ended}
        studies = self._studies(ended, pool)
        known = Known(
            pool, effects, self._harmful(effects), self._log.pool.newest,
            self._wanted_before(epoch, step),
        )  # fmt: skip
        proposals = [proposal for study in studies.values() for proposal in study.proposals]
        change = reconcile(proposals, known, self._config)
        with self._store.begin():
            noted = self._log.note(
                [
                    self._ledger(
                        group,
                        member,
                        place,
                        evidence=evidence[group.group_id],
                        summary=studies.get(group.group_id, NO_STUDY).summaries.get(member.number),
                    )
                    for group in ended
                    for member in group.members
                ]
            )
            ops, written = self._apply(change.edits, place)
            row = {
                **self._row("train", epoch, step),
                **figures_of(ended, self._replies(ended)),
                "stamped_prompt_share": fmean(
                    {member.rollout_id for member in group.valid} <= noted for group in ended
                ),
                "ops": {**ops, "KEEP": sum(study.kept for study in studies.values())},
                "rejects": _rejects(change, studies.values()),
                "wall_ms": round(1000 * (time.monotonic() - began)),
                "gate": None,
                **self._pool_figures(),
            }
            self._keep(
                StepRow(
                    "train", epoch, step,
                    {
                        "row": row,
                        "seq": self._log.seq,
                        "deletions": change.deletions,
                        "written": [[lesson.id, lesson.version] for lesson in written],
                        "groups": [
                            self._assign(group, choices[group.group_id], rollouts)
                            for group in ended
                        ],
                        "rewards": _rewards(ended),
                    },
                )
            )  # fmt: skip
        self._show(self._done["train", epoch, step], epoch, step)
        informative = row["groups_informative"]
        mean = row["mean_gt"]
        self._tell(
            f"epoch {epoch}, step {step}: {len(ended)} groups, {informative} informative, mean "
            f"{'unknown' if mean is None else format(mean, '.3f')}; {_summary(ops)}; pool "
            f"{self._log.pool.version} of {len(self._log.pool.lessons)}"
        )

    def _show(self, content: JsonObject, epoch: int, step: int) -> None:
        """Send a step that is stored to a collector, if there is one."""
        groups = content["groups"]
        if self._telemetry is None or not isinstance(groups, list):
            return
        ids = [each["rollout_id"] for group in groups for each in group["assignments"]]
        calls = {
            id_: self._store.find(
                Span,
                Condition("rollout_id", "is", id_),
                Condition("kind", "is", "model"),
                limit=100,
            ).records
            for id_ in ids
        }
        row = StepRow("train", epoch, step, content)
        self._telemetry.step(row, groups, calls, self._config.group_size)

    def _harmful(self, effects: Mapping[LessonVersion, Uplift]) -> list[Experience]:
        """Return the lessons that were measured to harm, also those that left."""
        return [self._log.lessons[item] for item, effect in effects.items() if effect.is_harmful]

    def _choice(
        self,
        domain: str,
        group: str,
        pool: Sequence[Experience],
        effects: Mapping[LessonVersion, Uplift],
    ) -> Choice:
        """Return the lessons for the prompt of a group."""
        rules = self._rules(domain)
        eligible = choose(pool, rules, effects)
        could = [each.id for each in eligible.taken]
        could += [id_ for id_, why in eligible.others.items() if why == "outcompeted"]
        out = {*withheld(self._config.seed, group, could, dropout=self._config.dropout)}
        return choose(pool, rules, effects, dropped=out) if out else eligible

    def _rules(self, domain: str) -> Rules:
        config = self._config
        return Rules(
            self._loaded.packs[domain], config.model_id, config.min_score, config.token_cap,
            {*config.migrated}, config.tools,
        )  # fmt: skip

    def _members(self, group: str, task: Task, choice: Choice) -> dict[str, Assignment]:
        """Return the attempts of a group by the ids of their rollouts."""
        return {
            rollout_id(self._run_id, group, number): Assignment(
                phase="train",
                query_id=task.query_id,
                seed=seed_of(self._config.seed, group, number),
                injected=_versions(choice.taken),
                withheld=_versions(choice.withheld),
                group_id=group,
                member=number,
            )
            for number in range(self._config.group_size)
        }

    def _execute(self, wanted: Mapping[str, Assignment]) -> None:
        """Put attempts into the queue, those known left out, and wait until all have ended."""
        config = self._config
        retries = RolloutConfig(
            max_attempts=MAX_ATTEMPTS, timeout_s=config.attempt_timeout,
            unresponsive_s=SILENT_AFTER * HEARTBEAT_S,
        )  # fmt: skip
        left = [id_ for id_ in wanted if id_ not in self._rollouts([*wanted])]
        for start in range(0, len(left), config.capacity * 8):
            with self._store.begin():
                for id_ in left[start : start + config.capacity * 8]:
                    own = wanted[id_]
                    self._store.queue.enqueue(
                        Rollout(
                            rollout_id=id_, name=ITEM, mode=MODES[own.phase], queue=self._run_id,
                            config=retries, metadata=msgspec.to_builtins(own),
                        )
                    )  # fmt: skip
            self._lead.await_items()
        self._lead.await_items()

    def _rollouts(self, ids: Sequence[str]) -> dict[str, Rollout]:
        found: dict[str, Rollout] = {}
        for start in range(0, len(ids), IDS_AT_ONCE):
            query = RolloutQuery(ids=ids[start : start + IDS_AT_ONCE])
            found |= {each.rollout_id: each for each in self._store.rollouts.query(query).rollouts}
        return found

    def _group(self, group: str, draw: Draw, task: Task, rollouts: Mapping[str, Rollout]) -> Group:
        """Return a group that has ended, its members ranked."""
        ids = [rollout_id(self._run_id, group, number) for number in range(self._config.group_size)]
        attempts = [_attempt(rollouts.get(id_)) for id_ in ids]
        costs = [None if each is None else each.usd for each in attempts]
        rewards = rank_rewards(
            [None if each is None else each.gt for each in attempts],
            costs if self._config.tie_break == "cost" else None,
        )
        if sum(reward.gt is not None for reward in rewards) < 2:
            self._tell(f"group {group} has fewer than 2 valid members")
        own = msgspec.convert(rollouts[ids[0]].metadata, Assignment)
        return Group(
            group, draw.number, task,
            [
                Member(number, id_, attempt, reward)
                for number, (id_, attempt, reward) in enumerate(
                    zip(ids, attempts, rewards, strict=True)
                )
            ],
            [self._log.lessons[item] for item in own.injected if item in self._log.lessons],
            [self._log.lessons[item] for item in own.withheld if item in self._log.lessons],
        )  # fmt: skip

    def _evidence(self, group: Group) -> str:
        """Write the checks of a group into a file, and return its path."""
        path = f"evidence/{self._run_id}/{group.group_id}.json"
        content = {
            "group_id": group.group_id,
            "query_id": group.task.query_id,
            "members": [
                {
                    "member": member.number,
                    "rollout_id": member.rollout_id,
                    "checks": member.attempt.checks if member.attempt else [],
                    "scores": member.attempt.scores if member.attempt else {},
                    "reward": msgspec.to_builtins(member.reward),
                    "tie_break": self._config.tie_break,
                }
                for member in group.members
            ],
        }
        place = self._loaded.runs / path
        make_folders(place.parent)
        write_whole(place, canonical_json(content) + b"\n")
        return path

    def _studies(self, groups: Sequence[Group], pool: Sequence[Experience]) -> dict[str, Study]:
        """Return what is learned from the informative groups, in their order."""
        informative = [
            group for group in groups if is_informative([each.reward for each in group.members])
        ]
        studies: dict[str, Study] = {}
        with ThreadPoolExecutor(self._config.workers) as threads:
            futures = [threads.submit(self._learner.study, group, pool) for group in informative]
            try:
                for group, future in zip(informative, futures, strict=True):
                    studies[group.group_id] = future.result()
                    self._lead.go_on()
            except BaseException:
                for future in futures:
                    future.cancel()
                raise
        return studies

    def _wanted_before(self, epoch: int, step: int) -> Mapping[str, Sequence[str]]:
        """Return the groups of the run that wanted lessons deleted before, by id."""
        earlier = [key for key in self._done if key[0] == "train" and key[1:] < (epoch, step)]
        known = self._done[max(earlier)]["deletions"] if earlier else {}
        return known if isinstance(known, dict) else {}

    def _ledger(
        self, group: Group, member: Member, place: Place, *, summary: str | None, evidence: str
    ) -> JsonObject:
        """Return the record of an attempt."""
        attempt = member.attempt
        is_valid = member.reward.gt is not None
        tools = [] if attempt is None else attempt.tools
        text = summary or _template(member, is_valid=is_valid)
        return {
            "schema_version": 1,
            "kind": "trajectory",
            "id": f"t-{sha256(member.rollout_id.encode()).hexdigest()[:16]}",
            **place._asdict(),
            "group_id": group.group_id,
            "member": member.number,
            "query_id": group.task.query_id,
            "domain": group.task.domain,
            "status": "valid" if is_valid else "invalid",
            "summary32": text,
            "words": count_words(text),
            "summary_source": "template" if summary is None else "model",
            "reward": msgspec.to_builtins(member.reward),
            "tool_stats": msgspec.to_builtins(tools),
            "pool_version": self._log.pool.version,
            "injected": [[each.id, each.version] for each in group.injected],
            "withheld": [[each.id, each.version] for each in group.withheld],
            "pack_digest": self._loaded.packs[group.task.domain].digest,
            "model_id": self._config.model_id,
            "rollout_id": member.rollout_id,
            "evidence_path": evidence,
            "created_unix_ms": now_ms(),
        }

    def _apply(
        self, edits: Sequence[Edit], place: Place
    ) -> tuple[dict[str, int], list[Experience]]:
        """Store versions of lessons and the operations that bring them into force."""
        bodies: list[JsonObject] = []
        changes: list[Change] = []
        for edit in edits:
            fields: dict[str, object] = {}
            if edit.op in {"PRUNE", "DELETE"}:
                fields["id"] = edit.ids[0]
            else:
                body = self._version(edit, place, sum(each["version"] == 1 for each in bodies))
                bodies.append(body)
                fields["id"] = body["id"]
                is_update = edit.op == "UPDATE"
                fields["version"] = self._log.pool.lessons[edit.ids[0]] if is_update else 1
                if edit.op == "MERGE":
                    fields["ids"] = list(edit.ids)
                fields["parents"] = body["parents"]
            evidence = sorted({group.group_id for group in edit.support})
            changes.append(Change(edit.op, edit.reason[:200], edit.by, fields, evidence))
        written = self._log.learn(bodies)
        self._log.change(changes, place)
        return dict(sorted(Counter(edit.op for edit in edits).items())), written

    def _version(self, edit: Edit, place: Place, new: int) -> JsonObject:
        """Return a version of a lesson that is not stamped yet."""
        if edit.lesson is None:
            raise AssertionError(edit.op)
        sources = [self._log.lessons[id_, self._log.pool.lessons[id_]] for id_ in edit.ids]
        known = sources[0] if edit.op == "UPDATE" else None
        first = edit.support[0]
        sign = 1.0 if edit.lesson.kind == "avoid" else -1.0
        member = min(
            (member for group in edit.support for member in group.valid),
            key=lambda each: sign * (each.reward.gt or 0.0),
        )
        support = {group.task.query_id for group in edit.support}
        for source in sources:
            support |= {*source.support}
        parents = {(each.id, each.version) for each in sources}
        if known is not None:
            parents |= {(id_, version) for id_, version in known.parents}
        return {
            "schema_version": 1,
            "id": known.id if known else self._log.next_id(new),
            "version": known.version + 1 if known else 1,
            **{key: value for key, value in place._asdict().items() if key != "step"},
            "group_id": known.group_id if known else first.group_id,
            "domain": first.task.domain,
            "kind": edit.lesson.kind,
            "when": edit.lesson.when,
            "summary32": edit.lesson.text,
            "words": count_words(edit.lesson.text),
            "reward": {"gt": member.reward.gt, "relative": member.reward.relative},
            "tool_stats": msgspec.to_builtins(member.attempt.tools if member.attempt else []),
            "support": sorted(support),
            "parents": [list(each) for each in sorted(parents)],
            "pack_digest": self._loaded.packs[first.task.domain].digest,
            "model_id": self._config.model_id,
            "created_unix_ms": now_ms(),
        }

    # Gates

    def _candidate(self) -> tuple[_Best, bool]:
        """Return the pool in force with its prompts, and whether a lesson of it does not help."""
        pool, effects = self._log.in_force(), self._log.effects()
        choices = {
            domain: choose(pool, self._rules(domain), effects) for domain in self._loaded.packs
        }
        best = _Best(
            self._log.pool.version,
            {domain: _versions(choice.taken) for domain, choice in choices.items()},
            {domain: block_of(choice.taken) for domain, choice in choices.items()},
        )
        return best, any("below_min_score" in each.others.values() for each in choices.values())

    def _validate(self, epoch: int, step: int) -> None:
        """Keep the pool if it is no worse than the best so far on tasks that teach nothing."""
        began, tasks = time.monotonic(), self._loaded.tasks["validation"]
        (candidate, is_doubtful), used = self._candidate(), list[Attempt]()
        verdict: Verdict | None = None
        scores: dict[str, float] = {}
        if candidate.blocks != self._best.blocks and tasks:
            before = self._measure("validation", tasks, self._best, used)
            scores = self._measure("validation", tasks, candidate, used)
            verdict = accept(before, scores, margin=self._config.accept_margin)
        same = "unchanged" if is_doubtful else "accepted"
        gate = same if verdict is None else verdict.decision
        place = Place(self._run_id, epoch, step)
        with self._store.begin():
            if gate == "accepted" and candidate != self._best:
                if candidate.version != self._log.pool.best:
                    why = "its prompts are the same" if verdict is None else _because(verdict)
                    self._log.change([Change("ACCEPT", why, "system", {})], place)
                self._best = candidate
                self._store.optimizations.amend_report(
                    self._run_id, best=msgspec.to_builtins(candidate)
                )
            rejected = 0 if gate == "accepted" else self._rejected + (gate == "rejected")
            if rejected >= REJECTED_IN_A_ROW:
                self._roll_back(f"{rejected} pools in a row were not accepted", place)
                rejected = 0
            row = {
                **self._row("validation", epoch, step),
                "groups": 0,
                "tasks": len(tasks),
                "mean_gt": fmean(scores.values()) if scores else None,
                "gate": gate,
                "verdict": None if verdict is None else verdict._asdict(),
                **evaluation_figures(used),
                "wall_ms": round(1000 * (time.monotonic() - began)),
                **self._pool_figures(),
            }
            content = {"row": row, "seq": self._log.seq, "rejected": rejected, "scores": scores}
            self._keep(StepRow("validation", epoch, step, content))
        if verdict is not None:
            self._tell(f"epoch {epoch}, step {step}: {gate}, {_because(verdict)}")

    def _count_rejected(self, epoch: int, step: int) -> None:
        known = self._done["validation", epoch, step].get("rejected")
        self._rejected = known if isinstance(known, int) else 0

    def _roll_back(self, why: str, place: Place) -> None:
        """Let the best pool return."""
        if self._log.pool.version == self._best.version:
            return
        fields: JsonObject = {"pool_after": self._best.version}
        self._log.change([Change("ROLLBACK", why, "system", fields)], place)
        self._tell(f"rolled back to {self._best.version}: {why}")

    def _test(self) -> None:
        """Prove the best pool against none, once, on tasks that nothing has seen."""
        began, place = time.monotonic(), Place(self._run_id, 0, 0)
        tasks, verdict = self._loaded.tasks["test"], None
        empty = _Best(
            EMPTY, dict.fromkeys(self._loaded.packs, ()), dict.fromkeys(self._loaded.packs, "")
        )
        is_empty, used = self._best.blocks == empty.blocks, list[Attempt]()
        without: dict[str, float] = {}
        with_it: dict[str, float] = {}
        if tasks and not is_empty:
            without = self._measure("test", tasks, empty, used, repeats=1)
            with_it = self._measure("test", tasks, self._best, used, repeats=1)
            verdict = ship(without, with_it, seed=self._config.seed)
        is_small = min(len(tasks) - LEAST_TEST, self._validation_size - LEAST_VALIDATION) < 0
        decision = "unproven" if verdict is None else verdict.decision
        decision = "smoke" if is_small else decision
        with self._store.begin():
            self._roll_back("the run ends with the best pool", place)
            self._prune_unused(place)
            row = {
                **self._row("test", 0, 0),
                "tasks": len(tasks),
                "mean_gt": fmean(with_it.values()) if with_it else None,
                "mean_gt_without": fmean(without.values()) if without else None,
                "gate": decision,
                "verdict": None if verdict is None else verdict._asdict(),
                **evaluation_figures(used),
                "wall_ms": round(1000 * (time.monotonic() - began)),
                **self._pool_figures(),
            }
            content: JsonObject = {
                "row": row, "seq": self._log.seq, "ship": decision, "without": without,
                "with": with_it, **msgspec.to_builtins(self._best),
            }  # fmt: skip
            self._keep(StepRow("test", 0, 0, content))
        why = "" if verdict is None else f", {_because(verdict)}"
        self._tell(f"test: {'the best pool is empty' if is_empty else decision}{why}")

    def _evaluate(self, evaluation: Evaluation) -> None:
        """Measure a pool on the tasks of a split; nothing is learned."""
        began, used = time.monotonic(), list[Attempt]()
        effects = self._log.effects()
        pool = [self._log.lessons[item] for item in self._log.pool.of(evaluation.pool).items()]
        taken = {
            domain: choose(pool, self._rules(domain), effects).taken
            for domain in self._loaded.packs
        }
        measured = _Best(
            evaluation.pool,
            {domain: _versions(own) for domain, own in taken.items()},
            {domain: block_of(own) for domain, own in taken.items()},
        )
        tasks = self._loaded.tasks[evaluation.split]
        scores = self._measure("eval", tasks, measured, used)
        row = {
            **self._row("eval", 0, 0),
            "split": evaluation.split,
            "tasks": len(tasks),
            "mean_gt": fmean(scores.values()) if scores else None,
            "interval": t_interval([*scores.values()]) if len(scores) > 1 else None,
            "gate": None,
            **evaluation_figures(used),
            "wall_ms": round(1000 * (time.monotonic() - began)),
            **self._pool_figures(),
            "pool_version": evaluation.pool,
        }
        content: JsonObject = {
            "row": row, "seq": self._log.seq, "scores": scores,
            "injected": msgspec.to_builtins(measured.injected),
        }  # fmt: skip
        self._keep(StepRow("eval", 0, 0, content))
        mean = row["mean_gt"]
        self._tell(f"{evaluation.split}: mean {'unknown' if mean is None else format(mean, '.3f')}")

    def _prune_unused(self, place: Place) -> None:
        """Prune what was measured to harm, and is in no prompt of the best pool."""
        used = {id_ for injected in self._best.injected.values() for id_, _ in injected}
        harmful = {each.id for each in self._harmful(self._log.effects())}
        gone = sorted((harmful - used) & {*self._log.pool.lessons})
        changes = [Change("PRUNE", "it harms", "system", {"id": id_}) for id_ in gone]
        self._log.change(changes, place)

    @property
    def _validation_size(self) -> int:
        return len(self._loaded.tasks["validation"])

    def _measure(
        self, phase: str, tasks: Sequence[Task], best: _Best, used: list[Attempt], *,
        repeats: int | None = None,
    ) -> dict[str, float]:  # fmt: skip
        """Return the mean score of each task with a pool; those without a score are left out.

        Task and repeat alone decide the seed, so that two pools meet the same chance; and pools
        with the same prompts are measured once.
        """
        wanted: dict[str, Assignment] = {}
        by_task: dict[str, list[str]] = {}
        for task in tasks:
            prompt = self._loaded.packs[task.domain].system(best.blocks[task.domain])
            digest = sha256(prompt.encode()).hexdigest()[:16]
            for repeat in range(repeats or self._config.validation_repeats):
                id_ = rollout_id(self._run_id, phase, digest, task.query_id, repeat)
                wanted[id_] = Assignment(
                    phase=phase, query_id=task.query_id, injected=best.injected[task.domain],
                    seed=seed_of(self._config.seed, phase, task.query_id, repeat), member=repeat,
                )  # fmt: skip
                by_task.setdefault(task.query_id, []).append(id_)
        self._execute(wanted)
        attempts = {id_: _attempt(own) for id_, own in self._rollouts([*wanted]).items()}
        used += [each for each in attempts.values() if each is not None]
        scores = {
            query: [own.gt for id_ in ids if (own := attempts[id_]) and own.gt is not None]
            for query, ids in by_task.items()
        }
        return {query: fmean(own) for query, own in scores.items() if own}

    # Rows and files

    def _row(self, phase: str, epoch: int, step: int) -> JsonObject:
        return {
            "schema_version": 1,
            "run_id": self._run_id,
            "task_id": self._config.task_id,
            "epoch": epoch,
            "step": step,
            "phase": phase,
            "group_size": self._config.group_size,
            "temperature": self._config.temperature_train
            if phase == "train"
            else self._config.temperature_eval,
        }

    def _pool_figures(self) -> JsonObject:
        pool = self._log.in_force()
        return {
            "pool_version": self._log.pool.version,
            "pool_size": len(pool),
            "pool_tokens": tokens_at_most(block_of(pool)),
            "quarantined": sum(sum(own.values()) for own in self._log.faults.values()),
        }

    def _replies(self, groups: Iterable[Group]) -> dict[str, JsonObject]:
        """Return the learner's replies about groups."""
        ids = {group.group_id for group in groups}
        return {
            key: reply
            for key, reply in self._store.experience.replies(self._run_id)
            if key.split("/")[1] in ids
        }

    def _assign(self, group: Group, choice: Choice, rollouts: Mapping[str, Rollout]) -> JsonObject:
        """Return who attempted the task of a group, with which lessons, and why not with others."""
        return {
            "group_id": group.group_id,
            "query_id": group.task.query_id,
            "draw": group.draw,
            "valid": len(group.valid),
            "injected": [[each.id, each.version] for each in group.injected],
            "withheld": [[each.id, each.version] for each in group.withheld],
            "others": choice.others,
            "assignments": [
                self._assignment(member, rollouts.get(member.rollout_id))
                for member in group.members
            ],
        }

    def _assignment(self, member: Member, rollout: Rollout | None) -> JsonObject:
        last = self._store.find(
            StoredAttempt, Condition("rollout_id", "is", member.rollout_id), limit=MAX_ATTEMPTS
        ).records
        return {
            "member": member.number,
            "worker_id": last[-1].worker_id if last else None,
            "rollout_id": member.rollout_id,
            "attempts": len(last),
            "status": "valid" if member.reward.gt is not None else "invalid",
            "seed": None if rollout is None else rollout.metadata["seed"],
            "started": None if rollout is None else rollout.started_at,
            "ended": None if rollout is None else rollout.ended_at,
        }

    def _keep(self, step: StepRow) -> None:
        """Store a step, inside the transaction that it belongs to."""
        self._store.experience.keep_step(self._run_id, step)
        self._done[step.phase, step.epoch, step.step] = step.content

    def _write(self) -> None:
        """Write metrics and manifest from what is stored."""
        steps = [*self._store.experience.steps(self._run_id)]
        rows = [*_epoch_rows(steps, -(-self._config.sample_size // self._config.batch_size))]
        write_metrics(
            self._loaded.runs / "metrics", rows,
            [_plain(step.content["row"]) for step in steps if step.phase == "train"],
        )  # fmt: skip
        run = self._store.optimizations.run(self._run_id)
        write_manifest(self._loaded.runs, manifest_of(run, steps, self._log, rows))


def _telemetry(config: Config, run_id: str) -> "Telemetry | None":
    """Return what shows a run to a collector; ``None`` without one. Raises: TauLiveError."""
    if config.otlp_endpoint is None:
        return None
    from tau_live.experience.telemetry import Telemetry

    return Telemetry(config.otlp_endpoint, run_id)


def _attempt(rollout: Rollout | None) -> Attempt | None:
    """Return what became of an attempt; ``None`` if its surroundings failed."""
    if rollout is None or rollout.output is None:
        return None
    return msgspec.convert(rollout.output, Attempt)


def _versions(lessons: Iterable[Experience]) -> tuple[LessonVersion, ...]:
    return tuple((each.id, each.version) for each in lessons)


def _template(member: Member, *, is_valid: bool) -> str:
    """Return an attempt in words, without a model."""
    tools = member.attempt.tools if member.attempt else []
    names = ", ".join(tool.tool for tool in tools[:5]) or "none"
    gt = "unknown" if member.reward.gt is None else f"{member.reward.gt:.3g}"
    calls = sum(tool.calls for tool in tools)
    status = "valid" if is_valid else "invalid"
    return f"{status}; gt {gt}; {calls} tool calls; tools {names}"


def _rejects(change: Reconciled, studies: Iterable[Study]) -> dict[str, int]:
    total = Counter(change.rejects)
    for study in studies:
        total += study.rejects
    return dict(sorted(total.items()))


def _rewards(groups: Sequence[Group]) -> JsonObject:
    """Return the mean of each rewarder over all members, and over how many."""
    members = [member for group in groups for member in group.members]
    values: dict[str, list[float]] = {"gt": [], "relative": []}
    for member in members:
        if member.reward.gt is not None:
            values["gt"].append(member.reward.gt)
        if member.reward.relative is not None:
            values["relative"].append(member.reward.relative)
        for name, score in (member.attempt.scores if member.attempt else {}).items():
            values.setdefault(name, []).append(score)
    return {
        name: {"mean": fmean(own) if own else None, "count": len(own)}
        for name, own in values.items()
    }


def _because(verdict: Verdict) -> str:
    if verdict.mean is None:
        return "no task has a score on both sides"
    p = "" if verdict.p_value is None else f", p {verdict.p_value:.2g}"
    return f"{verdict.mean:+.3f} on {verdict.tasks} tasks, bound {verdict.bound:+.3f}{p}"


def _summary(ops: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {op}" for op, count in ops.items()) or "no change"


def _plain(row: object) -> JsonObject:
    return row if isinstance(row, dict) else {}


def _epoch_rows(steps: Sequence[StepRow], per_epoch: int) -> Iterator[JsonObject]:
    """Yield the rows of epochs that have ended, and those of the gates."""
    before: JsonObject | None = None
    for epoch in sorted({step.epoch for step in steps if step.phase == "train"}):
        own, gates = (
            [_plain(each.content["row"]) for each in steps if (each.phase, each.epoch) == key]
            for key in (("train", epoch), ("validation", epoch))
        )
        if len(gates) < per_epoch:
            return
        before = {**epoch_row(own, before), "gate": gates[-1]["gate"]}
        yield before
        yield _without_step(gates[-1])
    yield from (
        _without_step(_plain(each.content["row"]))
        for each in steps
        if each.phase in {"test", "eval"}
    )


def _without_step(row: JsonObject) -> JsonObject:
    return {key: value for key, value in row.items() if key != "step"}
