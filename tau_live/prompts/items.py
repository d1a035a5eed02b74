"""Items of a run: workers claim them, let an executor execute them, and store all of it."""

import asyncio
import contextvars
import inspect
import itertools
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

import tau_live
from tau_live.core.errors import EndedError, StoreUnavailableError, TauLiveError
from tau_live.core.guard import logger, text_of
from tau_live.core.processes import this_process
from tau_live.core.prompts import canonical_json
from tau_live.core.records import AttemptStatus, Claim, Decision, Reward, Span, attempt_id_of
from tau_live.core.redaction import scrub_text
from tau_live.core.sanitize import JsonObject
from tau_live.prompts.models import (
    BUDGET,
    REJECTED,
    Answer,
    Models,
    StoppedError,
    SurroundingsError,
    classify,
)
from tau_live.prompts.scorers import Safety
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

WORKING = frozenset({OptimizationState.PREPARING, OptimizationState.RUNNING})

OPEN = frozenset({AttemptStatus.PREPARING, AttemptStatus.RUNNING, AttemptStatus.UNRESPONSIVE})
"""The states of an attempt whose result still counts."""


class Queue(NamedTuple):
    """The queue of a run, and how it is worked on.

    Attributes:
        store: The file of the store.
        key_file: The key of its seals; ``None`` seals without one.
        run_id: The run, whose id is the name of the queue.
        limits: Its budget.
        source: Who gives the rewards of its items.
        poll_s: Seconds between two looks for an item.
        heartbeat_s: Seconds between two heartbeats.
        timeout_s: The longest time of an attempt, in seconds; ``None`` is no limit.
        keeps_texts: Whether texts of outputs and errors may be stored, with secrets redacted.
    """

    store: Path
    key_file: Path | None
    run_id: str
    limits: Limits
    source: str
    poll_s: float
    heartbeat_s: float
    timeout_s: float | None
    keeps_texts: bool

    def redact(self, why: str) -> str:
        """Return why something failed as it may be stored."""
        kept = why if self.keeps_texts else why.partition(":")[0]
        return scrub_text(kept)[:LONGEST_WHY]


class ModelArgs(NamedTuple):
    """The arguments of an item's model calls.

    Attributes:
        prompt: The system prompt.
        seed: For everything that is drawn.
        model: ``provider/name``; ``None`` if none is named.
        temperature: Of the answer.
        max_tokens: The most tokens of an answer.
    """

    prompt: str
    seed: int
    model: str | None
    temperature: float
    max_tokens: int


@dataclass(slots=True)
class ToolCall:
    """A call of a tool.

    Attributes:
        name: The tool.
        usd: What it cost, in US dollars.
        started_at: Epoch seconds, UTC.
        ended_at: Likewise.
        tokens: The tokens that it used.
        outcome: What came of it, for whoever reads the attempt.
        is_failed: Whether it raised.
    """

    name: str
    usd: float
    started_at: float
    ended_at: float = 0.0
    tokens: int = 0
    outcome: str = ""
    is_failed: bool = False


class Outcome(Protocol):
    """The outcome of an item: its rollout's output."""

    @property
    def failure(self) -> str | None:
        """Why the item failed; ``None`` if it did not."""

    @property
    def reward(self) -> float | None:
        """Its reward; ``None`` if it is unknown."""


class Item:
    """One execution of a prompt on a task, as an agent sees it.

    Attributes:
        rollout_id: Its rollout.
        attempt_id: Its attempt.
        seed: For everything that is drawn in it; the same for all prompts on this row.
        prompt: The text of the prompt.
        run: The ``tau_live`` run: decisions made in it are the item's.
        calls: The model calls that were made.
        tools: The calls of tools that went through the budget.
        temperature: Of its model calls.
        stopped: Why it makes no more calls; ``None`` while it may.
    """

    def __init__(
        self, claim: Claim, models: Models, args: ModelArgs, *, run: "tau_live.Run"
    ) -> None:
        self.rollout_id = claim.rollout.rollout_id
        self.attempt_id = attempt_id_of(self.rollout_id, claim.attempt.number)
        self.seed = args.seed
        self.prompt = args.prompt
        self.run = run
        self.calls: list[Answer] = []
        self.tools: list[ToolCall] = []
        self.temperature = args.temperature
        self.stopped: TauLiveError | None = None
        self._args = args
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
        args = self._args
        ref = model or args.model
        if ref is None:
            raise TauLiveError("no model is named: set `model` in the config, or pass it")
        if self.stopped is not None:
            raise self.stopped
        try:
            answer = self._models.call(
                ref,
                system=self.prompt if system is None else system,
                user=text,
                seed=self.seed,
                temperature=args.temperature,
                max_tokens=max_tokens or args.max_tokens,
            )
        except StoppedError as error:
            self.stopped = error
            raise
        self.calls.append(answer)
        return answer.text

    @contextmanager
    def tool(self, name: str, *, usd: float = 0.0) -> Iterator[ToolCall]:
        """Call a tool within the run's budget: ``with item.tool("search", usd=0.005): ...``.

        Args:
            name: The tool, which may have a ceiling of its own.
            usd: What the call costs, in US dollars.

        Raises:
            StoppedError: The run makes no more calls, or none of this tool.
        """
        if self.stopped is not None:
            raise self.stopped
        try:
            self._models.begin_tool(name, usd)
        except StoppedError as error:
            self.stopped = error
            raise
        call = ToolCall(name, usd, time.time())
        self.tools.append(call)
        try:
            yield call
        except BaseException:
            call.is_failed = True
            raise
        finally:
            call.ended_at = time.time()


class Execution(Protocol):
    """The execution of one item.

    Attributes:
        item: The item.
    """

    item: Item

    def run(self) -> Outcome | BaseException:
        """Execute the item in a thread of its own; return an error if it has no outcome."""

    def failure(self, error: Exception) -> Outcome:
        """Return the outcome of the item if its agent failed."""

    def decisions(self) -> Sequence[Decision]:
        """Return the decisions of the item, to be stored with its outcome."""


Begin = Callable[[Store, Claim, "tau_live.Run"], Execution]
"""Begins the execution of the item that a worker has claimed."""


def poll_backoff_s(failures: int, interval_s: float) -> float:
    """Return the seconds to wait after that many failed polls of the store in a row."""
    return float(min(interval_s * 2 ** min(failures - 1, 64), BACKOFF_FACTOR * interval_s))


class Workers:
    """The workers of a run in this process, and the thread that sends their heartbeats.

    Args:
        queue: What they work on.
        models: The models of the run.
        executor: Makes what begins the items of one worker.
        count: How many.
    """

    def __init__(
        self, queue: Queue, models: Models, executor: Callable[[], Begin], *, count: int
    ) -> None:
        self._queue = queue
        self._models = models
        self._executor = executor
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
                self._queue, self._models, self._executor(),
                worker_id=f"{this_process()}:{next(self._numbers)}", active=self._active,
                stop=self._stop,
            )  # fmt: skip
            with suppress(_EndedError):
                worker.work()

    def _beat(self) -> None:
        interval_s = self._queue.heartbeat_s
        with closing(open_at(self._queue.store, key_file=self._queue.key_file)) as store:
            while not self._stop.wait(interval_s) or self._active:
                if self._stop.is_set():  # the last items are still worked on
                    time.sleep(min(interval_s, 0.1))
                with suppress(TauLiveError), store.begin():
                    for worker_id, (rollout_id, number) in tuple(self._active.items()):
                        store.queue.heartbeat(worker_id, rollout_id, number)


class _Worker:
    def __init__(
        self,
        queue: Queue,
        models: Models,
        begin: Begin,
        *,
        worker_id: str,
        active: dict[str, tuple[str, int]],
        stop: threading.Event,
    ) -> None:
        self._queue = queue
        self._models = models
        self._begin = begin
        self._id = worker_id
        self._active = active
        self._stop = stop
        self._failures = 0
        self._backoff_ms = 0.0

    def work(self) -> None:
        """Work on items until the worker is stopped."""
        interval_s = self._queue.poll_s
        with closing(open_at(self._queue.store, key_file=self._queue.key_file)) as store:
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
                    logger().warning(
                        "item_not_stored", rollout_id=claim.rollout.rollout_id, error=text_of(error)
                    )
                finally:
                    self._active.pop(self._id, None)
                self._failures, self._backoff_ms = 0, 0.0

    def _claim(self, store: Store) -> Claim | None:
        optimizations = store.optimizations
        if optimizations.state(self._queue.run_id) not in WORKING:
            return None
        claim = store.queue.claim(self._id, queues=[self._queue.run_id])
        if claim is None or claim.attempt.number > 1:  # it has its room
            return claim
        if not optimizations.begin_item(self._queue.run_id, self._queue.limits):
            self._models.stop(BUDGET, "the budget has no room for another item")
            claim.queue.cancel(claim.rollout.rollout_id, number=claim.attempt.number)
            return None
        return claim

    def _execute(self, store: Store, claim: Claim) -> None:
        """Execute an item, and store what became of it with the end of its attempt."""
        started_at = time.time()
        with suppress(_FailedError, OverdueError), tau_live.run(claim=claim) as run:
            execution = self._begin(store, claim, run)
            outcome, item = self._outcome(execution), execution.item
            item.stopped = item.stopped or StoppedError("the attempt is over")
            counts = self._keep(store, claim, execution, outcome=outcome, started_at=started_at)
            if isinstance(outcome, OverdueError | _EndedError):
                raise outcome
            if not counts or isinstance(outcome, BaseException) or outcome.failure is not None:
                raise _FailedError

    def _outcome(self, execution: Execution) -> Outcome | BaseException:
        """Return the outcome of an item, or the error that made it miss one.

        Agent and scorers run in a thread, for as long as an attempt may take: they may block.
        """
        box: list[Outcome | BaseException] = []

        def work() -> None:
            try:
                box.append(execution.run())
            except Exception as error:  # noqa: BLE001  # what a stranger's object does anywhere
                box.append(execution.failure(error))
            except BaseException as error:  # noqa: BLE001  # ends the worker
                why = f"the agent ended its worker: {type(error).__name__}: {text_of(error)}"
                box.append(_EndedError(why))

        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(work,), daemon=True)
        thread.start()
        thread.join(self._queue.timeout_s)
        return box[0] if box else OverdueError()

    def _keep(
        self,
        store: Store,
        claim: Claim,
        execution: Execution,
        *,
        outcome: Outcome | BaseException,
        started_at: float,
    ) -> bool:
        """Store what became of an item; ``False`` if that came too late to count."""
        rollout_id, number = claim.rollout.rollout_id, claim.attempt.number
        now = time.time()
        success = not isinstance(outcome, BaseException) and outcome.failure is None
        spans = [
            *_spans_of(claim, execution.item),
            self._span(claim, started_at, now, success=success),
        ]
        with store.begin():
            with store.batch([rollout_id]) as batch:
                is_newest = batch.rollout(rollout_id).attempt_count == number
                counts = is_newest and batch.attempt(rollout_id, number).status in OPEN
                batch.add_spans(spans, at=now)
                if counts and not isinstance(outcome, BaseException):
                    for decision in execution.decisions():
                        batch.add_decision(decision, assigned=False)
                if (
                    counts
                    and not isinstance(outcome, BaseException)
                    and (reward := outcome.reward) is not None
                ):
                    source = self._queue.source
                    batch.add_reward(
                        Reward(
                            rollout_id=rollout_id, name="score", value=reward, source=source, at=now
                        )
                    )
                    batch.mark_ready(rollout_id, total_reward=reward)
            if isinstance(outcome, StoppedError):
                store.queue.cancel(rollout_id, number=number)
            elif not isinstance(outcome, BaseException):
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
            elif isinstance(outcome, OverdueError):
                claim.finish(AttemptStatus.TIMEOUT, error_message="took too long")
            else:
                claim.finish(
                    AttemptStatus.FAILED,
                    error_message=self._queue.redact(str(outcome)),
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


class _FailedError(Exception):
    """Ends the run of an item that failed."""


class OverdueError(TimeoutError):
    """The agent took longer than an attempt may."""


class _EndedError(Exception):
    """The agent raised what ends its worker, such as ``SystemExit``."""


def run_agent(agent: Callable[..., object], *arguments: object, timeout_s: float | None) -> object:
    """Call an agent, which may be a coroutine function, and return what it returns.

    Raises:
        OverdueError: Its coroutine took too long.
        Exception: Whatever the agent raises.
    """
    returned = agent(*arguments)
    if inspect.isawaitable(returned):
        returned = asyncio.run(_wait_for(returned, timeout_s))
    return returned


def failure_of(error: Exception, item: Item, models: Models) -> BaseException | None:
    """Return what an error of an agent means; ``None`` if it is the agent's own failure."""
    kind = error if isinstance(error, OverdueError) else classify(error, by_agent=True)
    if item.stopped is not None:  # whatever the agent made of that
        return item.stopped
    if isinstance(kind, StoppedError):  # by a provider that the agent called itself
        models.stop(REJECTED, str(kind))
    return kind


async def _wait_for(awaitable: Awaitable[object], timeout_s: float | None) -> object:
    """Return what a coroutine returns; one that takes too long is cancelled."""
    task = asyncio.ensure_future(awaitable)
    done, _ = await asyncio.wait([task], timeout=timeout_s)
    if done:
        return task.result()
    task.cancel()
    raise OverdueError


def _retry_s(error: BaseException, attempts: int) -> float:
    """Return the seconds until an item may be tried again."""
    wanted = error.retry_after_s if isinstance(error, SurroundingsError) else None
    if wanted is not None:
        return min(max(wanted, 0.0), LONGEST_WAIT_S)
    longest = float(min(RETRY_S * 2 ** min(attempts - 1, 64), LONGEST_RETRY_S))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311  # only spreads retries


def output_of(returned: object) -> tuple[str, JsonObject, Safety]:
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
                "temperature": item.temperature,
            },
            started_at=call.started_at,
            ended_at=call.ended_at,
        )
        for place, call in enumerate(item.calls, start=1)
    ] + [
        Span(
            rollout_id=claim.rollout.rollout_id,
            attempt=claim.attempt.number,
            span_id=f"tool-{place}",
            parent_span_id=f"runner-{claim.attempt.number}",
            kind="tool",
            name=call.name,
            status="error" if call.is_failed else "ok",
            attributes={"cost_usd": call.usd, "tokens": call.tokens},
            started_at=call.started_at,
            ended_at=call.ended_at or call.started_at,
        )
        for place, call in enumerate(item.tools, start=1)
    ]
