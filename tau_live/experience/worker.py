"""The execution of a member: an agent attempts a task with lessons, and its output is checked."""

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from inspect import isawaitable
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import msgspec

from tau_live import Run
from tau_live.core.callables import load_callable
from tau_live.core.errors import TauLiveError
from tau_live.core.guard import text_of
from tau_live.core.records import Claim, Decision
from tau_live.core.redaction import scrub_text
from tau_live.experience.checks import CheckError, missing_result, run_check
from tau_live.experience.config import Config
from tau_live.experience.injection import block_of
from tau_live.experience.learner import LONGEST_OUTPUT, Attempt
from tau_live.experience.packs import Pack
from tau_live.experience.records import Experience, LessonVersion, ToolStat
from tau_live.experience.rewards import REQUIRED, CheckResult, ground_truth
from tau_live.experience.stamps import check_record
from tau_live.experience.tasks import Task
from tau_live.prompts.items import Item, ModelArgs, Queue, failure_of, output_of, run_agent
from tau_live.prompts.models import Models
from tau_live.store.roles import Store
from tau_live.store.sealing import Keys

POLL_S = 0.02
HEARTBEAT_S = 2.0


class Assignment(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The assignment of an attempt: its rollout's metadata.

    Attributes:
        phase: ``train``, ``validation`` or ``test``.
        query_id: Its task.
        seed: For everything that is drawn in it.
        injected: The lessons in its prompt.
        withheld: The lessons that were left out of its group to measure them.
        group_id: Its group; empty for one that only measures.
        member: Its number in the group, or of the repeat.
    """

    phase: str
    query_id: str
    seed: int
    injected: tuple[LessonVersion, ...] = ()
    withheld: tuple[LessonVersion, ...] = ()
    group_id: str = ""
    member: int = 0


class Plan(NamedTuple):
    """What the workers of a run execute.

    Attributes:
        store: The file of the store.
        run_id: The run.
        config: Its settings.
        tasks: Its tasks by query id.
        packs: Its packs by domain.
        keys: The stamping keys, which verify every lesson before it is in a prompt.
        key_file: The key of the store's seals.
    """

    store: Path
    run_id: str
    config: Config
    tasks: Mapping[str, Task]
    packs: Mapping[str, Pack]
    keys: Keys
    key_file: Path | None

    @property
    def queue(self) -> Queue:
        """Their queue."""
        return Queue(
            self.store, self.key_file, self.run_id, self.config.limits, source="experience",
            poll_s=POLL_S, heartbeat_s=HEARTBEAT_S, timeout_s=self.config.attempt_timeout,
            keeps_texts=True,
        )  # fmt: skip


class UntrustedError(TauLiveError):
    """A lesson that a prompt was to hold cannot be trusted any more."""


def lessons_of(store: Store, keys: Keys, wanted: Sequence[LessonVersion]) -> list[Experience]:
    """Return versions of lessons, verified.

    Raises:
        UntrustedError: One is missing, or its stamp is not ours.
    """
    names = [f"{id_}@{version}" for id_, version in wanted]
    stored = store.experience.by_name("experiences", names)
    lessons = []
    for name in names:
        data = msgspec.json.decode(stored[name]) if name in stored else None
        record = check_record(data, "experiences", keys).record
        if not isinstance(record, Experience) or name != f"{record.id}@{record.version}":
            raise UntrustedError(f"{name} cannot be trusted")
        lessons.append(record)
    return lessons


class MemberExecutor:
    """Executes the attempts of one worker.

    Args:
        plan: What they are.
        models: The models of the run.
    """

    def __init__(self, plan: Plan, models: Models) -> None:
        self.plan = plan
        self.models = models
        agent = plan.config.agent
        self.agent = None if agent is None else load_callable(agent)
        own = [name for name in plan.config.rewarders if name not in REQUIRED]
        self.rewarders = {name: load_callable(name) for name in own}
        self._prompts: dict[tuple[str, tuple[LessonVersion, ...]], str] = {}

    def begin(self, store: Store, claim: Claim, run: Run) -> "_Execution":
        """Begin the attempt of a claim."""
        config = self.plan.config
        own = msgspec.convert(claim.rollout.metadata, Assignment)
        task = self.plan.tasks[own.query_id]
        is_train = own.phase == "train"
        args = ModelArgs(
            prompt=self._prompt(store, task.domain, own.injected), seed=own.seed,
            model=config.model or None, max_tokens=config.max_tokens,
            temperature=config.temperature_train if is_train else config.temperature_eval,
        )  # fmt: skip
        return _Execution(self, Item(claim, self.models, args, run=run), task)

    def _prompt(self, store: Store, domain: str, injected: tuple[LessonVersion, ...]) -> str:
        key = domain, injected
        if key not in self._prompts:
            block = block_of(lessons_of(store, self.plan.keys, injected))
            self._prompts[key] = self.plan.packs[domain].system(block)
        return self._prompts[key]


class _Execution:
    """One attempt at a task."""

    def __init__(self, executor: MemberExecutor, item: Item, task: Task) -> None:
        self.item = item
        self._executor = executor
        self._task = task

    def run(self) -> Attempt | BaseException:
        """Run the agent, or ask the model, and check the output."""
        executor, item = self._executor, self.item
        try:
            output, _, _ = output_of(self._attempt())
        except Exception as error:  # noqa: BLE001  # the border to the agent
            return failure_of(error, item, executor.models) or self.failure(error)
        if item.stopped is not None:
            return item.stopped
        began = time.perf_counter()
        try:
            checks = [run_check(check, output) for check in self._task.checks]
            scores = self._own_scores(output, checks)
        except CheckError as error:
            return self._outcome(output, None, began, note=str(error))
        return self._outcome(output, checks, began, scores=scores)

    def failure(self, error: Exception) -> Attempt:
        """Return the outcome of an attempt that produced nothing: its checks did not run."""
        note = f"{type(error).__name__}: {text_of(error)}"
        checks = [missing_result(check, "nothing was produced") for check in self._task.checks]
        outcome = self._outcome(None, checks, time.perf_counter(), note=note)
        return msgspec.structs.replace(outcome, is_failed=True)

    def decisions(self) -> Sequence[Decision]:
        """Return no decision: only live runs make any."""
        return ()

    def _attempt(self) -> object:
        executor, item = self._executor, self.item
        if executor.agent is None:
            return item.model(self._task.prompt)
        timeout_s = executor.plan.config.attempt_timeout
        return run_agent(executor.agent, self._task.for_agent(), item, timeout_s=timeout_s)

    def _own_scores(self, output: str, checks: Sequence[CheckResult]) -> dict[str, float]:
        """Return the scores of rewarders of the user's own."""
        context = {
            "task": msgspec.to_builtins(self._task), "output": output,
            "checks": [check._asdict() for check in checks], "gt": ground_truth(checks),
        }  # fmt: skip
        scores = {}
        for name, rewarder in self._executor.rewarders.items():
            try:
                returned = rewarder(context)
                if isawaitable(returned):
                    returned = asyncio.run(_wait_for(returned))
                value = returned.get("score") if isinstance(returned, Mapping) else returned
                scores[name] = float(value)  # type: ignore[arg-type]  # or it raises
            except Exception as error:
                raise CheckError(f"rewarder {name}: {error!r}") from error
            if not isfinite(scores[name]):
                raise CheckError(f"rewarder {name}: a score must be finite, got {scores[name]!r}")
        return scores

    def _outcome(
        self, output: str | None, checks: Sequence[CheckResult] | None, began: float, *,
        note: str = "", scores: Mapping[str, float] | None = None,
    ) -> Attempt:  # fmt: skip
        calls, tools = self.item.calls, self.item.tools
        costs = [*(call.usd for call in calls), *(call.usd for call in tools)]
        known = [cost for cost in costs if cost is not None]
        return Attempt(
            output=None if output is None else scrub_text(output)[:LONGEST_OUTPUT],
            gt=None if checks is None else ground_truth(checks),
            checks=[check._asdict() for check in checks or ()],
            tools=tool_stats(self.item),
            input_tokens=sum(call.input_tokens for call in calls),
            output_tokens=sum(call.output_tokens for call in calls),
            calls=len(calls),
            usd=sum(known) if len(known) == len(costs) else None,
            latency_ms=sum(1000 * (call.ended_at - call.started_at) for call in calls),
            rewarders_ms=1000 * (time.perf_counter() - began),
            scores=dict(scores or {}),
            note=scrub_text(note)[:LONGEST_OUTPUT],
        )


async def _wait_for(awaitable: object) -> object:
    return await awaitable  # type: ignore[misc]  # it is awaitable


def tool_stats(item: Item) -> list[ToolStat]:
    """Return what an attempt used its tools for, by name."""
    names = Counter(call.name for call in item.tools)
    return [
        ToolStat(
            tool=name,
            calls=count,
            tokens=sum(call.tokens for call in item.tools if call.name == name),
            cost_usd=sum(call.usd for call in item.tools if call.name == name),
            latency_ms=round(
                sum(
                    1000 * (call.ended_at - call.started_at)
                    for call in item.tools
                    if call.name == name
                ),
                3,
            ),
        )
        for name, count in sorted(names.items())
    ]
