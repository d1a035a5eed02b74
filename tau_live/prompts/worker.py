"""Execute the items of an optimization: a prompt on a row, scored."""

import hashlib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tau_live import Run
from tau_live.core.callables import load_callable
from tau_live.core.errors import ScoreError
from tau_live.core.guard import text_of
from tau_live.core.prompts import canonical_json
from tau_live.core.records import Claim, Decision, RolloutMode
from tau_live.core.redaction import scrub_text
from tau_live.core.sanitize import JsonObject
from tau_live.prompts.config import OptimizationConfig
from tau_live.prompts.items import Item, ModelArgs, Queue, failure_of, output_of, run_agent
from tau_live.prompts.models import Models, StoppedError, SurroundingsError
from tau_live.prompts.policy import ItemDecisions, ItemRun, Policies, context_of
from tau_live.prompts.rows import Row
from tau_live.prompts.scorers import Scored, Scoring
from tau_live.store.records import Limits
from tau_live.store.roles import Store

POLICY = "policy"
"""The phase in which a policy chooses the prompts of items."""

AGENT = "agent"
"""The note of an item whose agent failed."""

SCORER = "scorer"
"""The note of an item whose score is none."""


class Plan(NamedTuple):
    """The plan of a run's workers: config, rows and resources.

    Attributes:
        store: The file of the store.
        run_id: The run.
        config: Its config.
        rows: Its rows, by mode and index.
        resources: The contents of the resources that it began with, by name.
        limits: Its budget.
        key_file: The key of the store's seals; ``None`` seals without one.
    """

    store: Path
    run_id: str
    config: OptimizationConfig
    rows: Mapping[RolloutMode, Mapping[int, Row]]
    resources: JsonObject
    limits: Limits
    key_file: Path | None

    @property
    def queue(self) -> Queue:
        """Their queue."""
        config = self.config
        return Queue(
            self.store, self.key_file, self.run_id, self.limits, source="optimize",
            poll_s=config.poll_interval_ms / 1000,
            heartbeat_s=config.heartbeat_interval_ms / 1000,
            timeout_s=config.attempt_timeout_secs, keeps_texts=config.content == "redacted",
        )  # fmt: skip


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The task of an item: its rollout's metadata.

    Attributes:
        phase: The phase.
        version: The prompt version.
        row: The index of the row among those of its mode.
        repeat: The number of the repetition, from 0; in the phase ``policy`` that of the item.
        pool: The prompt versions that the policy chose among; empty if it had no choice.
        policy: The checkpoint of the policy that chose; empty for the untrained one.
    """

    phase: str
    version: str
    row: int
    repeat: int
    pool: tuple[str, ...] = ()
    policy: str = ""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an item: its rollout's output. An item without one is missing.

    Attributes:
        output: Its text; ``None`` if none is kept.
        score: In ``[0, 1]``; ``None`` if no scorer has one for its row.
        cost: Its safety cost, in ``[0, 1]``; ``None`` if no scorer is one.
        critical: Whether it violates safety critically.
        reward: Its score with the safety policy applied.
        usd: What it cost, in US dollars; ``None`` if unknown.
        scores: The value of each scorer.
        notes: What judges and failures say.
    """

    output: str | None = None
    score: float | None = None
    cost: float | None = None
    critical: bool = False
    reward: float | None = None
    usd: float | None = None
    scores: Mapping[str, float | None] = msgspec.field(default_factory=dict)
    notes: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def failure(self) -> str | None:
        """Why the agent failed, or its score is none; ``None`` if neither."""
        return self.notes.get(AGENT) or self.notes.get(SCORER)

    @property
    def is_scored(self) -> bool:
        """Whether the agent answered, and the answer has a score."""
        return self.score is not None and self.failure is None

    @property
    def note(self) -> str:
        """Why values are unknown, by scorer."""
        unknown = [name for name, value in self.scores.items() if value is None]
        return "; ".join(f"{name}: {self.notes.get(name, 'unknown')}" for name in unknown)


def seed_from(seed: int, *names: object) -> int:
    """Return a seed of 31 bits for what has these names, from the seed of the run."""
    return int.from_bytes(hashlib.sha256(canonical_json([seed, *names])).digest()[:4]) >> 1


def text_of_row(row: Row) -> str:
    """Return the message for a row: its prompt, or its input as JSON."""
    return canonical_json(row.input).decode() if row.prompt is None else row.prompt


class PromptExecutor:
    """Executes prompts on rows, for one worker.

    Args:
        plan: What is executed.
        models: The models of the run.
    """

    def __init__(self, plan: Plan, models: Models) -> None:
        self.plan = plan
        self.queue = plan.queue
        self.models = models
        self.scoring = Scoring(plan.config.scorers, plan.config.safety_reward.policy, self._judge)
        self.agent = None if plan.config.agent is None else load_callable(plan.config.agent)
        self._prompts: dict[str, str] = {}
        self._policies = Policies(seed=plan.config.seed)

    def begin(self, store: Store, claim: Claim, run: Run) -> "_Execution":
        """Begin the item of a claim."""
        config = self.plan.config
        task = msgspec.convert(claim.rollout.metadata, Task)
        mode = claim.rollout.mode or RolloutMode.TRAIN
        row = self.plan.rows[mode][task.row]
        pair = (mode.value, row.digest, row.index, task.repeat)  # the same for every prompt
        is_policys = task.phase == POLICY
        decisions = self._decisions(store, claim, run, task=task, row=row) if is_policys else None
        args = ModelArgs(
            prompt=self._prompt(store, task.version), seed=seed_from(config.seed, *pair),
            model=config.model, temperature=config.rollout_temperature,
            max_tokens=config.max_output_tokens,
        )  # fmt: skip
        own = run if decisions is None else ItemRun(run, decisions)
        return _Execution(self, Item(claim, self.models, args, run=own), row, decisions)

    def _decisions(
        self, store: Store, claim: Claim, run: Run, *, task: Task, row: Row
    ) -> ItemDecisions:
        """Return the decisions of an item, the first of which is that for its prompt."""
        decisions = ItemDecisions(
            self._policies.decider(store.checkpoints.of_run(self.plan.run_id), task.policy),
            claim, run, repeat=task.repeat, keeps_texts=self.queue.keeps_texts,
        )  # fmt: skip
        if task.pool:
            decisions.note_prompt(task.pool, context_of(row))
        return decisions

    def _prompt(self, store: Store, version: str) -> str:
        if version not in self._prompts:
            for known in store.optimizations.candidates(self.plan.run_id):
                if known.version:  # a duplicate may have other whitespace around it
                    self._prompts.setdefault(known.version, known.text or "")
        return self._prompts[version]

    def _judge(self, ref: str, system: str, user: str, seed: int) -> str:
        return self.models.call(
            ref, system=system, user=user, seed=seed, temperature=0.0,
            max_tokens=self.plan.config.search.max_tokens,
        ).text  # fmt: skip


class _Execution:
    """The execution of a prompt on a row."""

    def __init__(
        self, executor: PromptExecutor, item: Item, row: Row, decisions: ItemDecisions | None
    ) -> None:
        self.item = item
        self._executor = executor
        self._queue = executor.queue
        self._row = row
        self._decisions = decisions

    def run(self) -> Result | BaseException:
        """Run the agent, or ask the model, and score the output."""
        executor, item = self._executor, self.item
        try:
            output, own, safety = output_of(self._run_agent(_copy(self._row)))
        except Exception as error:  # noqa: BLE001  # the border to the agent
            return failure_of(error, item, executor.models) or self.failure(error)
        if item.stopped is not None:
            return item.stopped
        try:
            scored = executor.scoring.score(
                output, _copy(self._row), own=own, safety=safety, seed=item.seed
            )  # fmt: skip
        except (StoppedError, SurroundingsError) as error:
            return error
        except (ScoreError, ArithmeticError) as error:
            return Result(notes={SCORER: self._queue.redact(str(error))})
        return self._result(output, scored)

    def failure(self, error: Exception) -> Result:
        """Return the result of an item whose agent failed: it scores nothing."""
        why = type(error).__name__
        if self._queue.keeps_texts:
            why = self._queue.redact(f"{why}: {text_of(error)}")
        return replace(self._result(None, self._executor.scoring.zero()), notes={AGENT: why})

    def decisions(self) -> Sequence[Decision]:
        """Return the decisions of the item."""
        return () if self._decisions is None else self._decisions.all

    def _result(self, output: str | None, scored: Scored) -> Result:
        costs = [call.usd for call in self.item.calls]
        known = [cost for cost in costs if cost is not None]
        keeps = self._queue.keeps_texts
        notes = scored.notes if keeps else {}
        return Result(
            output=scrub_text(output) if keeps and output is not None else None,
            score=scored.score,
            cost=scored.cost,
            critical=scored.critical,
            reward=scored.reward,
            usd=sum(known) if len(known) == len(costs) else None,
            scores=scored.values,
            notes={name: self._queue.redact(note) for name, note in notes.items()},
        )

    def _run_agent(self, row: Row) -> object:
        """Run the agent, or ask the model."""
        executor, item = self._executor, self.item
        if executor.agent is None:
            return item.model(text_of_row(row))
        plan = executor.plan
        resources = {**deepcopy(plan.resources), plan.config.prompt_key: item.prompt}
        return run_agent(executor.agent, row, resources, item, timeout_s=self._queue.timeout_s)


def _copy(row: Row) -> Row:
    """Return a row that may be changed: the next item has it as it was."""
    return replace(
        row, input=deepcopy(row.input), expected=deepcopy(row.expected),
        metadata=deepcopy(row.metadata),
    )  # fmt: skip
