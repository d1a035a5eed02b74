"""Workers of an optimization: each claims an item, executes it, scores it, and stores all of it."""

import asyncio
import contextvars
import hashlib
import inspect
import itertools
import random
import threading
import time
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import closing, suppress
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog
from msgspec.structs import replace

import tau_live
from tau_live.core.callables import load_callable
from tau_live.core.errors import (
    EndedError,
    ScoreError,
    StoreUnavailableError,
    TauLiveError,
)
from tau_live.core.guard import text_of
from tau_live.core.processes import this_process
from tau_live.core.prompts import canonical_json
from tau_live.core.records import (
    AttemptStatus,
    Claim,
    Decision,
    Reward,
    RolloutMode,
    Span,
    attempt_id_of,
)
from tau_live.core.redaction import scrub_text
from tau_live.core.sanitize import JsonObject
from tau_live.prompts.config import OptimizationConfig
from tau_live.prompts.models import (
    BUDGET,
    REJECTED,
    Answer,
    Models,
    StoppedError,
    SurroundingsError,
    classify,
)
from tau_live.prompts.policy import ItemDecisions, ItemRun, Policies, context_of, folder_of
from tau_live.prompts.rows import Row
from tau_live.prompts.scorers import Safety, Scored, Scoring
from tau_live.store.opening import open_at
from tau_live.store.records import Limits, OptimizationState
from tau_live.store.roles import Store

BACKOFF_FACTOR = 8
"""How many times the first pause a pause after failed polls may be."""

RETRY_S = 0.5
LONGEST_RETRY_S = 30.0
LONGEST_OUTPUT = 1_000_000
LONGEST_WHY = 1_000
LONGEST_WAIT_S = 300.0
"""The longest pause that a provider may ask for."""

SILENT_AFTER = 3
"""Heartbeats that an attempt may miss."""

POLICY = "policy"
"""The phase in which a policy chooses the prompts of items."""

SOURCE = "optimize"
"""Who gives the rewards of items."""

AGENT = "agent"
"""The note of an item whose agent failed."""

SCORER = "scorer"
"""The note of an item whose score is none."""

WORKING = frozenset({OptimizationState.PREPARING, OptimizationState.RUNNING})

OPEN = frozenset({AttemptStatus.PREPARING, AttemptStatus.RUNNING, AttemptStatus.UNRESPONSIVE})
"""The states of an attempt whose result still counts."""


class Plan(NamedTuple):
    """What the workers of a run execute.

    Attributes:
        store: The file of the store.
        run_id: The run.
        config: Its config.
        rows: Its rows, by mode and index.
        resources: The contents of the resources that it began with, by name.
        limits: Its budget.
    """

    store: Path
    run_id: str
    config: OptimizationConfig
    rows: Mapping[RolloutMode, Mapping[int, Row]]
    resources: JsonObject
    limits: Limits


class Task(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an item executes: its rollout's metadata.

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
    """What became of an item: its rollout's output. An item without one is missing.

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


class Item:
    """One execution of a prompt on a row, as an agent sees it.

    Attributes:
        rollout_id: Its rollout.
        attempt_id: Its attempt.
        seed: For everything that is drawn in it; the same for all prompts on this row.
        prompt: The text of the prompt.
        run: The ``tau_live`` run: decisions made in it are the item's.
        calls: The model calls that were made.
        stopped: Why it makes no more calls; ``None`` while it may.
    """

    def __init__(
        self, plan: Plan, claim: Claim, models: Models, *, prompt: str, seed: int,
        run: "tau_live.Run",
    ) -> None:  # fmt: skip
        self.rollout_id = claim.rollout.rollout_id
        self.attempt_id = attempt_id_of(self.rollout_id, claim.attempt.number)
        self.seed = seed
        self.prompt = prompt
        self.run = run
        self.calls: list[Answer] = []
        self.stopped: TauLiveError | None = None
        self._plan = plan
        self._models = models

    def model(
        self, text: str, *, system: str | None = None, model: str | None = None,
        max_tokens: int | None = None,
    ) -> str:  # fmt: skip
        """Ask a model, within the run's budget, and return its text.

        It blocks: in a coroutine, call it by ``asyncio.to_thread``.

        Args:
            text: The message.
            system: The system prompt; ``None`` is the item's prompt.
            model: ``provider/name``; ``None`` is the config's.
            max_tokens: The most tokens of the answer; ``None`` is the config's.

        Raises:
            TauLiveError: No model is named, the run makes no more calls, or the provider failed.
        """
        ref = model or self._plan.config.model
        if ref is None:
            raise TauLiveError("no model is named: set `model` in the config, or pass it")
        if self.stopped is not None:
            raise self.stopped
        config = self._plan.config
        try:
            answer = self._models.call(
                ref,
                system=self.prompt if system is None else system,
                user=text,
                seed=self.seed,
                temperature=config.rollout_temperature,
                max_tokens=max_tokens or config.max_output_tokens,
            )
        except StoppedError as error:
            self.stopped = error
            raise
        self.calls.append(answer)
        return answer.text


def seed_from(seed: int, *names: object) -> int:
    """Return a seed of 31 bits for what has these names, from the seed of the run."""
    return int.from_bytes(hashlib.sha256(canonical_json([seed, *names])).digest()[:4]) >> 1


def text_of_row(row: Row) -> str:
    """Return the message for a row: its prompt, or its input as JSON."""
    return canonical_json(row.input).decode() if row.prompt is None else row.prompt


def poll_backoff_s(failures: int, interval_s: float) -> float:
    """Return the seconds to wait after that many failed polls of the store in a row."""
    return float(min(interval_s * 2 ** min(failures - 1, 64), BACKOFF_FACTOR * interval_s))


class Workers:
    """The workers of a run in this process, and the thread that sends their heartbeats.

    Args:
        plan: What they execute.
        models: The models of the run.
        count: How many.
    """

    def __init__(self, plan: Plan, models: Models, *, count: int) -> None:
        self._plan = plan
        self._models = models
        self._stop = threading.Event()
        self._active: dict[str, tuple[str, int]] = {}
        self._numbers = itertools.count(1)
        self._threads = [
            threading.Thread(target=self._work, name=f"tau-live-worker-{number}", daemon=True)
            for number in range(1, count + 1)
        ]
        self._beating = threading.Thread(target=self._beat, name="tau-live-heartbeats", daemon=True)

    def start(self) -> None:
        """Start them."""
        for thread in (*self._threads, self._beating):
            thread.start()

    def stop(self, timeout_s: float) -> None:
        """Let each end with its item, and wait for that."""
        self._stop.set()
        deadline = time.monotonic() + timeout_s
        for thread in (*self._threads, self._beating):
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    @property
    def are_alive(self) -> bool:
        """Whether any of them still works."""
        return any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        """Work until stopped; a worker that an agent ends is replaced by one with another id."""
        while not self._stop.is_set():
            worker = _Worker(
                self._plan, self._models, f"{this_process()}:{next(self._numbers)}",
                active=self._active, stop=self._stop,
            )  # fmt: skip
            with suppress(_EndedError):
                worker.work()

    def _beat(self) -> None:
        interval_s = self._plan.config.heartbeat_interval_ms / 1000
        with closing(open_at(self._plan.store)) as store:
            while not self._stop.wait(interval_s) or self._active:
                if self._stop.is_set():  # the last items are still worked on
                    time.sleep(min(interval_s, 0.1))
                with suppress(TauLiveError), store.begin():
                    for worker_id, (rollout_id, number) in tuple(self._active.items()):
                        store.queue.heartbeat(worker_id, rollout_id, number)


class _Worker:
    def __init__(
        self,
        plan: Plan,
        models: Models,
        worker_id: str,
        *,
        active: dict[str, tuple[str, int]],
        stop: threading.Event,
    ) -> None:
        self._plan = plan
        self._config = plan.config
        self._models = models
        self._id = worker_id
        self._active = active
        self._stop = stop
        self._prompts: dict[str, str] = {}
        self._scoring = Scoring(plan.config.scorers, plan.config.safety_reward.policy, self._judge)
        self._policies = Policies(folder_of(plan.store, plan.run_id), seed=plan.config.seed)
        self._agent = None if plan.config.agent is None else load_callable(plan.config.agent)
        self._failures = 0
        self._backoff_ms = 0.0

    def work(self) -> None:
        """Work on items until the worker is stopped."""
        interval_s = self._config.poll_interval_ms / 1000
        with closing(open_at(self._plan.store)) as store:
            while not self._stop.is_set():
                try:
                    claim = self._claim(store)
                except StoreUnavailableError:
                    self._failures += 1
                    pause_s = poll_backoff_s(self._failures, interval_s)
                    self._backoff_ms += pause_s * 1000
                    self._stop.wait(pause_s)
                    continue
                if claim is None:
                    self._stop.wait(interval_s)
                    continue
                self._active[self._id] = claim.rollout.rollout_id, claim.attempt.number
                try:
                    self._execute(store, claim)
                except (StoreUnavailableError, ValueError, TypeError) as error:
                    # without heartbeats it is tried again, and then missing
                    structlog.get_logger("tau_live").warning(
                        "item_not_stored", rollout_id=claim.rollout.rollout_id, error=text_of(error)
                    )
                finally:
                    self._active.pop(self._id, None)
                self._failures, self._backoff_ms = 0, 0.0

    def _claim(self, store: Store) -> Claim | None:
        optimizations = store.optimizations
        if optimizations.state(self._plan.run_id) not in WORKING:
            return None
        claim = store.queue.claim(self._id, queues=[self._plan.run_id])
        if claim is None or claim.attempt.number > 1:  # it has its room
            return claim
        if not optimizations.begin_item(self._plan.run_id, self._plan.limits):
            self._models.stop(BUDGET, "the budget has no room for another item")
            claim.queue.cancel(claim.rollout.rollout_id, number=claim.attempt.number)
            return None
        return claim

    def _execute(self, store: Store, claim: Claim) -> None:
        """Execute an item, and store what became of it with the end of its attempt."""
        task = msgspec.convert(claim.rollout.metadata, Task)
        mode = claim.rollout.mode or RolloutMode.TRAIN
        row = self._plan.rows[mode][task.row]
        pair = (mode.value, row.digest, row.index, task.repeat)  # the same for every prompt
        seed = seed_from(self._config.seed, *pair)
        prompt = self._prompt(store, task.version)
        started_at = time.time()
        with suppress(_FailedError, _OverdueError), tau_live.run(claim=claim) as run:
            is_policys = task.phase == POLICY
            decisions = self._decisions(claim, run, task, row) if is_policys else None
            own = run if decisions is None else ItemRun(run, decisions)
            item = Item(self._plan, claim, self._models, prompt=prompt, seed=seed, run=own)
            outcome = self._outcome(row, item)
            item.stopped = item.stopped or StoppedError("the attempt is over")
            counts = self._keep(
                store, claim, item, outcome=outcome, started_at=started_at,
                decisions=() if decisions is None else decisions.all,
            )  # fmt: skip
            if isinstance(outcome, _OverdueError | _EndedError):
                raise outcome
            if not counts or not isinstance(outcome, Result) or outcome.failure is not None:
                raise _FailedError

    def _decisions(self, claim: Claim, run: "tau_live.Run", task: Task, row: Row) -> ItemDecisions:
        """Return the decisions of an item, the first of which is that for its prompt."""
        decisions = ItemDecisions(
            self._policies.decider(task.policy), claim, run, repeat=task.repeat,
            keeps_texts=self._config.content == "redacted",
        )  # fmt: skip
        if task.pool:
            decisions.note_prompt(task.pool, context_of(row))
        return decisions

    def _outcome(self, row: Row, item: Item) -> "Result | BaseException":
        """Return the result of an item, or the error that made it miss one.

        Agent and scorers run in a thread, for as long as an attempt may take: they may block.
        """
        box: list[Result | BaseException] = []

        def work() -> None:
            try:
                box.append(self._work_on(row, item))
            except Exception as error:  # noqa: BLE001  # what a stranger's object does anywhere
                box.append(self._failure(error, item))
            except BaseException as error:  # noqa: BLE001  # ends the worker
                why = f"the agent ended its worker: {type(error).__name__}: {text_of(error)}"
                box.append(_EndedError(why))

        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(work,), daemon=True)
        thread.start()
        thread.join(self._config.attempt_timeout_secs)
        return box[0] if box else _OverdueError()

    def _work_on(self, row: Row, item: Item) -> "Result | BaseException":
        """Run the agent, or ask the model, and score the output."""
        try:
            output, own, safety = _output_of(self._run_agent(_copy(row), item))
        except Exception as error:  # noqa: BLE001  # the border to the agent
            kind = error if isinstance(error, _OverdueError) else classify(error, by_agent=True)
            if item.stopped is not None:  # whatever the agent made of that
                return item.stopped
            if isinstance(kind, StoppedError):  # by a provider that the agent called itself
                self._models.stop(REJECTED, str(kind))
            return kind or self._failure(error, item)
        if item.stopped is not None:
            return item.stopped
        try:
            scored = self._scoring.score(
                output, _copy(row), own=own, safety=safety, seed=item.seed
            )  # fmt: skip
        except (StoppedError, SurroundingsError) as error:
            return error
        except (ScoreError, ArithmeticError) as error:
            return Result(notes={SCORER: self._shown(str(error))})
        return self._result(output, scored, item)

    def _failure(self, error: Exception, item: Item) -> Result:
        why = type(error).__name__
        if self._config.content == "redacted":
            why = self._shown(f"{why}: {text_of(error)}")
        return replace(self._result(None, self._scoring.zero(), item), notes={AGENT: why})

    def _shown(self, why: str) -> str:
        """Return why something failed as it may be stored."""
        kept = why if self._config.content == "redacted" else why.partition(":")[0]
        return scrub_text(kept)[:LONGEST_WHY]

    def _result(self, output: str | None, scored: Scored, item: Item) -> Result:
        costs = [call.usd for call in item.calls]
        known = [cost for cost in costs if cost is not None]
        keeps = self._config.content == "redacted"
        notes = scored.notes if keeps else {}
        return Result(
            output=scrub_text(output) if keeps and output is not None else None,
            score=scored.score,
            cost=scored.cost,
            critical=scored.critical,
            reward=scored.reward,
            usd=sum(known) if len(known) == len(costs) else None,
            scores=scored.values,
            notes={name: self._shown(note) for name, note in notes.items()},
        )

    def _run_agent(self, row: Row, item: Item) -> object:
        """Run the agent, or ask the model."""
        if self._agent is None:
            return item.model(text_of_row(row))
        resources = {**deepcopy(self._plan.resources), self._config.prompt_key: item.prompt}
        returned = self._agent(row, resources, item)
        if inspect.isawaitable(returned):
            returned = asyncio.run(_wait_for(returned, self._config.attempt_timeout_secs))
        return returned

    def _keep(
        self,
        store: Store,
        claim: Claim,
        item: Item,
        *,
        outcome: "Result | BaseException",
        started_at: float,
        decisions: Sequence[Decision],
    ) -> bool:
        """Store what became of an item; ``False`` if that came too late to count."""
        rollout_id, number = claim.rollout.rollout_id, claim.attempt.number
        now = time.time()
        success = isinstance(outcome, Result) and outcome.failure is None
        spans = [*_spans_of(claim, item), self._span(claim, started_at, now, success=success)]
        with store.begin():
            with store.batch([rollout_id]) as batch:
                is_newest = batch.rollout(rollout_id).attempt_count == number
                counts = is_newest and batch.attempt(rollout_id, number).status in OPEN
                batch.add_spans(spans, at=now)
                if counts and isinstance(outcome, Result):
                    for decision in decisions:
                        batch.add_decision(decision, assigned=False)
                if counts and isinstance(outcome, Result) and outcome.reward is not None:
                    reward = outcome.reward
                    batch.add_reward(
                        Reward(
                            rollout_id=rollout_id, name="score", value=reward, source=SOURCE, at=now
                        )
                    )
                    batch.mark_ready(rollout_id, total_reward=reward)
            if isinstance(outcome, StoppedError):
                store.queue.cancel(rollout_id, number=number)
            elif isinstance(outcome, Result):
                if counts and not success:  # the prompt's fault: trying again changes nothing
                    rollout = store.rollouts.rollout(rollout_id)
                    config = replace(rollout.config, retry_on=())
                    with suppress(EndedError):  # it was the last attempt anyway
                        store.queue.amend(replace(rollout, config=config))
                claim.finish(
                    AttemptStatus.SUCCEEDED if success else AttemptStatus.FAILED,
                    output=msgspec.to_builtins(outcome),
                    error_message=outcome.failure,
                )
            elif isinstance(outcome, _OverdueError):
                claim.finish(AttemptStatus.TIMEOUT, error_message="took too long")
            else:
                claim.finish(
                    AttemptStatus.FAILED,
                    error_message=self._shown(str(outcome)),
                    retry_after_s=_retry_s(outcome, number),
                )
        return counts

    def _span(self, claim: Claim, started_at: float, now: float, *, success: bool) -> Span:
        return Span(
            rollout_id=claim.rollout.rollout_id,
            attempt=claim.attempt.number,
            span_id=f"runner-{claim.attempt.number}",
            kind="runner",
            name="runner.execute_rollout",
            status="ok" if success else "error",
            attributes={
                "runner.execution_success": success,
                "runner.poll_retry_failures_before_rollout": self._failures,
                "runner.poll_retry_backoff_ms_before_rollout": self._backoff_ms,
            },
            started_at=started_at,
            ended_at=now,
        )

    def _prompt(self, store: Store, version: str) -> str:
        if version not in self._prompts:
            for known in store.optimizations.candidates(self._plan.run_id):
                if known.version:  # a duplicate may have other whitespace around it
                    self._prompts.setdefault(known.version, known.text or "")
        return self._prompts[version]

    def _judge(self, ref: str, system: str, user: str, seed: int) -> str:
        return self._models.call(
            ref, system=system, user=user, seed=seed, temperature=0.0,
            max_tokens=self._config.search.max_tokens,
        ).text  # fmt: skip


class _FailedError(Exception):
    """Ends the run of an item that failed."""


class _OverdueError(TimeoutError):
    """The agent took longer than an attempt may."""


class _EndedError(Exception):
    """The agent raised what ends its worker, such as ``SystemExit``."""


def _copy(row: Row) -> Row:
    """Return a row that may be changed: the next item has it as it was."""
    return replace(
        row, input=deepcopy(row.input), expected=deepcopy(row.expected),
        metadata=deepcopy(row.metadata),
    )  # fmt: skip


async def _wait_for(awaitable: Awaitable[object], timeout_s: float | None) -> object:
    """Return what a coroutine returns; one that takes too long is cancelled."""
    task = asyncio.ensure_future(awaitable)
    done, _ = await asyncio.wait([task], timeout=timeout_s)
    if done:
        return task.result()
    task.cancel()
    raise _OverdueError


def _retry_s(error: BaseException, attempts: int) -> float:
    """Return the seconds until an item may be tried again."""
    wanted = error.retry_after_s if isinstance(error, SurroundingsError) else None
    if wanted is not None:
        return min(max(wanted, 0.0), LONGEST_WAIT_S)
    longest = float(min(RETRY_S * 2 ** min(attempts - 1, 64), LONGEST_RETRY_S))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  # only spreads retries


def _output_of(returned: object) -> tuple[str, JsonObject, Safety]:
    """Return the text that an agent gave, its own scores, and its safety events."""
    own: object = {}
    safety = Safety()
    if isinstance(returned, Mapping) and "output" in returned:
        own = returned.get("scores") or {}
        codes = returned.get("reason_codes") or ()
        safety = Safety([str(code) for code in codes], int(returned.get("blocked_events") or 0))
        returned = returned["output"]
    if returned is None:
        raise ValueError("the agent gave no output")
    if not isinstance(returned, str):
        returned = canonical_json(msgspec.to_builtins(returned)).decode()
    returned = str.__str__(returned)  # that of a subclass may do anything
    if not returned:
        raise ValueError("the agent gave no output")
    if len(returned) > LONGEST_OUTPUT:
        raise ValueError(
            f"an output must have at most {LONGEST_OUTPUT:,} characters, got {len(returned):,}"
        )
    if not isinstance(own, Mapping):
        raise ValueError(f"the agent's scores must be numbers by name, got {own!r}")  # noqa: TRY004
    return returned, own, safety


def _spans_of(claim: Claim, item: Item) -> list[Span]:
    return [
        Span(
            rollout_id=claim.rollout.rollout_id,
            attempt=claim.attempt.number,
            span_id=f"model-{place}",
            parent_span_id=f"runner-{claim.attempt.number}",
            kind="model",
            name=call.model,
            status="ok",
            attributes={
                "model": call.model,
                "usage": {"input_tokens": call.input_tokens, "output_tokens": call.output_tokens},
                "cost_usd": call.usd,
                "finish_reason": call.finish_reason,
            },
            started_at=call.started_at,
            ended_at=call.ended_at,
        )
        for place, call in enumerate(item.calls, start=1)
    ]
