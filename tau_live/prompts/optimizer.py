"""The process that leads an optimization: phases, items, evidence, and the end.

Each step is stored before the next depends on it, and all that is random is drawn from the seed. So
a run that was interrupted is led again from its beginning: items, candidates and the adoption that
are stored are taken as they are.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

import msgspec

from tau_live.core.errors import TauLiveError
from tau_live.core.files import write_whole
from tau_live.core.gate import Kind
from tau_live.core.gate_keeper import GateKeeper
from tau_live.core.processes import this_process
from tau_live.core.prompts import prompt_version
from tau_live.core.records import (
    ITEM,
    LearnableRollout,
    Rollout,
    RolloutConfig,
    RolloutMode,
    RolloutQuery,
    RolloutStatus,
)
from tau_live.core.redaction import scrub_text
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Settings
from tau_live.operate.optimizations import (
    LED,
    OWNER_DIED,
    state_now,
)
from tau_live.prompts.adoption import (
    PASSING,
    Finalist,
    Measured,
    Verdict,
    adopt,
    conclude,
    verdicts,
)
from tau_live.prompts.budget import Prices, limits_of, preflight
from tau_live.prompts.config import Loaded, OptimizationConfig, policy_phase
from tau_live.prompts.control import (
    RESUMABLE,
)
from tau_live.prompts.edits import leaks
from tau_live.prompts.items import SILENT_AFTER, WORKING, Workers
from tau_live.prompts.lead import (
    STOP_S,
    WATCH_S,
    Lead,
    Pace,
    Show,
    publish,
    take_lead,
)
from tau_live.prompts.models import (
    BUDGET,
    Answer,
    Models,
    StoppedError,
    SurroundingsError,
)
from tau_live.prompts.policy import (
    OptimizerError,
    OptimizerReport,
    PolicyTraining,
    choose_prompt,
    context_of,
    first_report,
    skip,
    why_stopped,
)
from tau_live.prompts.rows import Row, rollout_id, without_secrets
from tau_live.prompts.scorers import can_be_scored, can_have_cost
from tau_live.prompts.search import NO_ROOM, Example, Prompt, rank, search
from tau_live.prompts.worker import POLICY, Plan, PromptExecutor, Result, Task, seed_from
from tau_live.rl.paired import t_interval
from tau_live.store.records import (
    Candidate,
    Condition,
    Limits,
    Optimization,
    OptimizationState,
)
from tau_live.store.roles import Store

IDS_AT_ONCE = 500

RECOVERY = "recovery-report.json"

State = OptimizationState


class UnscoredError(TauLiveError):
    """No item has a score, so that nothing can be compared."""


def begin(
    store: Store, loaded: Loaded, path: Path, *, store_path: str, prices: Prices
) -> Optimization:
    """Store a new run, and publish the resources of its config.

    Args:
        store: The store.
        loaded: The config.
        path: Its file.
        store_path: The store as the command was given it.
        prices: Prices of tokens.

    Raises:
        TauLiveError: The resource to be optimized holds no text.
    """
    config = loaded.config
    with store.begin():
        store.resources.publish(config.resources)
        latest = store.resources.latest()
        known = latest.get(config.prompt_key)
        text = "" if known is None else known.content
        if not isinstance(text, str):
            raise TauLiveError(f"resource '{config.prompt_key}' must be a text, got {text!r}")
        before = preflight(config, loaded.rows, incumbent=text, prices=prices)
        block = policy_phase(config)
        optimizer = {} if block is None else {"rl_optimizer": _plain(first_report(block))}
        run = store.optimizations.create(
            Optimization(
                run_id="",
                config_digest=loaded.digest,
                config_path=str(path.resolve()),
                config=config.model_dump(mode="json", by_alias=True),
                model_ref=f"agent:{config.agent}" if config.agent else config.model or "",
                store_path=store_path,
                owner=this_process(),
                created_at=time.time(),
                resources={name: resource.version for name, resource in latest.items()},
                incumbent=prompt_version(text),
                report={
                    "preflight": before._asdict(),
                    "limits": limits_of(config, before)._asdict(),
                    "warnings": list(loaded.warnings),
                    "search_skipped": loaded.search_skipped,
                    "deprecations": [known._asdict() for known in loaded.deprecations],
                    "folder": str(Path.cwd()),  # from which others import what the config names
                    **optimizer,
                },
            )
        )
        versions: set[str] = set()
        for label, prompt in {"incumbent": text, **_initial(config)}.items():
            version = prompt_version(prompt)
            is_known = version in versions
            versions.add(version)
            store.optimizations.keep(
                Candidate(
                    run_id=run.run_id,
                    label=label,
                    version=version,
                    text=prompt,
                    state="duplicate" if is_known else "screened",
                    why=f"{version} is known" if is_known else None,
                    made_at=time.time(),
                )
            )
    publish(store, run.run_id)
    return run


def _initial(config: OptimizationConfig) -> dict[str, str]:
    named = config.search.initial_prompts
    return {f"initial-{name}": named[name] for name in sorted(named)}


def _plain(report: OptimizerReport) -> object:
    return msgspec.to_builtins(report)


def prices_of(settings: Settings) -> Prices:
    """Return the prices of tokens that the settings declare."""
    return Prices(settings.prices, settings.known_prices)


def resume(store: Store, run_id: str, *, who: str) -> JsonObject:
    """Take over a run that was interrupted, and return the recovery report.

    The report is stored, and written beside the status.

    Args:
        store: The store.
        run_id: The run.
        who: Who is on record for it.

    Raises:
        TauLiveError: The run is in a state that cannot be resumed.
        LeaseLostError: Another process leads it.
    """
    run = store.optimizations.run(run_id)
    state, why = state_now(run)
    if state is not State.FAILED or why not in RESUMABLE:
        raise TauLiveError(f"cannot resume a run that is {state}")
    take_lead(store, run_id)
    with store.begin():
        if not store.optimizations.change(
            run_id, states=[run.state], state=State.RUNNING, owner=this_process(),
            reason_code=None, error=None, ended_at=None,
        ):  # fmt: skip
            raise TauLiveError(f"cannot resume a run that is {store.optimizations.state(run_id)}")
        expired = store.queue.expire()
        requeued = {*expired} & {*store.optimizations.open_items(run_id)}
        items = store.optimizations.items(run_id)
        recovery: JsonObject = {
            "schema_version": 1,
            "recovered_at_unix_ms": round(time.time() * 1000),
            "principal": who,
            "crash_detected": why == OWNER_DIED,
            "prior_lifecycle_state": run.state.value,
            "prior_training_state": run.phase,
            "replayed_audit_events": 0,
            "replayed_actions": [],
            "requeued_rollouts": len(requeued),
            "checkpoint_source": "none",
            "checkpoint_run_id": None,
            "checkpoint_global_step": items.total - items.open,
            "checkpoint_optimizer_step": None,
            "diagnostics": [],
        }
        store.optimizations.amend_report(
            run_id, recovery=recovery, limits=_limits_of_resumed(run)._asdict()
        )
        if not _has_helpers(store, run_id):
            store.optimizations.change(run_id, tokens_reserved=0, usd_reserved=0.0)
    with suppress(OSError):
        content = json.dumps(recovery, indent=2).encode()
        write_whole(store.path.with_name(RECOVERY), content + b"\n")
    return recovery


def _has_helpers(store: Store, run_id: str) -> bool:
    """Return whether another process works on an item of a run, and may await a model."""
    working = [RolloutStatus.PREPARING.value, RolloutStatus.RUNNING.value]
    items = Condition("queue", "is", run_id), Condition("status", "in", working)
    return bool(store.find(Rollout, *items, limit=1).total)


def _limits_of_resumed(run: Optimization) -> Limits:
    """Return the limits of a run from now on: without one of its own, calls count anew."""
    limits = Limits(**run.report["limits"])  # type: ignore[arg-type]
    budget, before = run.config["budget"], run.report["preflight"]
    if not isinstance(budget, dict) or not isinstance(before, dict) or budget["calls"] is not None:
        return limits
    most = before["calls"]
    return limits._replace(calls=run.calls + most if isinstance(most, int) else None)


def lead(
    store: Store, run: Optimization, loaded: Loaded, *, settings: Settings, who: str, show: Show
) -> Optimization:
    """Lead a run to its end, and return it as it ended.

    Args:
        store: The store, in this thread.
        run: The run.
        loaded: Its config.
        settings: Those of the store: prices, and the kill switch.
        who: Who is on record for an adoption.
        show: Takes the progress, several times a second.

    Raises:
        LeaseLostError: Another process leads it.
        KeyboardInterrupt: The operator interrupted it; it can be resumed.
    """
    take_lead(store, run.run_id)
    return _Leader(store, run, loaded, settings, who, show).lead()


def _count_failure(store: Store, settings: Settings, error: str) -> None:
    """Count a failed update of the policy at the gate, like one of the live learner."""
    keeper = GateKeeper(limit=settings.max_failure_streak, who=this_process())
    keeper.refresh(store.gate)
    keeper.record_failure(Kind.UPDATE, error, at=time.time())
    keeper.refresh(store.gate)


def plan_of(store: Store, run: Optimization, loaded: Loaded, settings: Settings) -> Plan:
    """Return what the workers of a run execute."""
    limits = Limits(**run.report["limits"])  # type: ignore[arg-type]
    rows = {mode: {row.index: row for row in own} for mode, own in loaded.rows.items()}
    resources = {
        name: store.resources.resource(name, version).content
        for name, version in run.resources.items()
        if isinstance(version, int)
    }
    return Plan(
        store.path, run.run_id, loaded.config, rows, resources, limits, settings.audit_key_file
    )  # fmt: skip


def help_run(
    store: Store, run: Optimization, loaded: Loaded, *, settings: Settings, count: int
) -> None:
    """Let workers of this process work on a run that another leads, until it has ended.

    Raises:
        TauLiveError: Its config has changed, or the run has ended.
    """
    if loaded.digest != run.config_digest:
        raise TauLiveError(f"{run.config_path} has changed since {run.run_id} began")
    if state_now(run)[0] not in LED:
        raise TauLiveError(f"{run.run_id} is {state_now(run)[0]}: there is nothing to work on")
    plan = plan_of(store, run, loaded, settings)
    models = Models(
        store.path, run.run_id, plan.limits, prices=prices_of(settings),
        timeout_s=loaded.config.attempt_timeout_secs, key_file=plan.key_file,
    )  # fmt: skip
    workers = Workers(plan.queue, models, lambda: PromptExecutor(plan, models).begin, count=count)
    workers.start()
    try:
        while workers.are_alive and state_now(store.optimizations.run(run.run_id))[0] in LED:
            time.sleep(WATCH_S)
    finally:
        workers.stop(STOP_S)
        models.close()


class _Leader:
    """Leads a run through its phases; it is the bench of the search."""

    def __init__(  # noqa: PLR0917  # made in one place
        self, store: Store, run: Optimization, loaded: Loaded, settings: Settings, who: str,
        show: Show,
    ) -> None:  # fmt: skip
        self.config = loaded.config
        self._store = store
        self._run = run
        self._rows = loaded.rows
        self._settings = settings
        self._who = who
        plan = plan_of(store, run, loaded, settings)
        self._limits = plan.limits
        self._models = Models(
            store.path, run.run_id, plan.limits, prices=prices_of(settings),
            timeout_s=self.config.attempt_timeout_secs, key_file=plan.key_file,
        )  # fmt: skip
        workers = Workers(
            plan.queue, self._models, lambda: PromptExecutor(plan, self._models).begin,
            count=self.config.worker_count,
        )  # fmt: skip
        config = self.config
        pace = Pace(
            poll_s=config.completion_poll_interval_ms / 1000,
            items_s=config.completion_timeout_secs, attempt_s=config.attempt_timeout_secs,
            seconds=config.budget.seconds,
        )  # fmt: skip
        self._lead = Lead(store, run.run_id, settings, workers, self._models, pace, show)
        scores = run.report.get("scores")
        self._scores = dict(scores) if isinstance(scores, dict) else {}

    def lead(self) -> Optimization:
        """Lead the run to its end."""
        failures = {UnscoredError: "nothing_scored", OptimizerError: "optimizer_failed"}
        return self._lead.to_end(self.phases, at_stop=self._stop, failures=failures)

    def _stop(self, why: str) -> None:
        """Note that a run ends early."""
        self.end_without_adoption(why)
        self._skip_optimizer(why)

    def phases(self) -> None:
        """Run every phase."""
        incumbent, *others = self._first()
        rows = self._screening()
        self._lead.begin_phase("baseline")
        if rows:
            self.execute([incumbent, *others], rows)
            self._note_scores([incumbent, *others])
            self._check_scored(incumbent, RolloutMode.TRAIN, rows)
        self._score("baseline", incumbent, rows)
        self._lead.begin_phase("search")
        pool = [incumbent, *others]
        if rows and self.config.search.algorithm != "none":
            end = search(self, pool, rows)
            pool = end.pool
            self._store.optimizations.amend_report(self._run.run_id, search_ended=end.why)
            if end.why == NO_ROOM and len(pool) == 1:
                self._models.stop(BUDGET, "the budget has no room for a candidate")
                raise StoppedError(BUDGET)
        best = [prompt for prompt in rank(pool) if prompt.version != incumbent.version]
        if best:
            self._score("best_search", best[0], rows)
        self._lead.begin_phase("confirm")
        verdict = self._confirm(incumbent, best)
        self._learn_policy(incumbent, best)
        self._lead.begin_phase("final")
        if verdict.reason_code == "adopted" and self._rows[RolloutMode.TEST]:
            adopted = next(p for p in best if p.version == verdict.prompt_version)
            self._test(incumbent, adopted)
        self._lead.complete()

    def _check_scored(self, prompt: Prompt, mode: RolloutMode, rows: Sequence[Row]) -> None:
        """Check that a prompt has a score on some row, unless none can be scored.

        Raises:
            UnscoredError: It has none, as when a scorer fails on all of them.
        """
        if not any(can_be_scored(self.config.scorers, row) for row in rows):
            return
        notes, items = Counter[str](), 0
        for _, results in self._results(prompt, mode, rows):
            if any(result.score is not None for result in results):
                return
            items += len(results)
            notes.update(
                f"{name}: {note}" for result in results for name, note in result.notes.items()
            )
        if not items:
            return  # of missing items their attempts say why
        [(most, count)] = notes.most_common(1) or [("no scorer has a value", items)]
        raise UnscoredError(f"no item has a score; of {count} items: {most}")

    def _first(self) -> list[Prompt]:
        """Return the prompts that the run begins with, the incumbent first, each once."""
        first: dict[str, Prompt] = {}
        for known in self._store.optimizations.candidates(self._run.run_id):
            if known.label == "incumbent" or known.label.startswith("initial-"):
                version = known.version or ""
                first.setdefault(
                    version, Prompt(version, known.text or "", known.label, len(first))
                )
        return [*first.values()]

    def _note_scores(self, prompts: Sequence[Prompt]) -> None:
        """Store the scores of the prompts that the search begins with."""
        known = self.by_label()
        for prompt in prompts:
            candidate = known[prompt.label]
            details = {**candidate.details, "search_score": prompt.score}
            self.keep(msgspec.structs.replace(candidate, details=details))

    def _screening(self) -> list[Row]:
        """Return the rows that candidates are executed on: the same for all of the run."""
        rows = list(self._rows[RolloutMode.TRAIN])
        most = self.config.search.screen_rows
        if most is None or most >= len(rows):
            return rows
        order = sorted(rows, key=lambda row: seed_from(self.config.seed, row.digest))
        return sorted(order[:most], key=lambda row: row.index)

    def _confirm(self, incumbent: Prompt, best: Sequence[Prompt]) -> Verdict:
        """Execute incumbent and finalists on held-out rows, and adopt what is better."""
        known = self._store.optimizations.run(self._run.run_id).report.get("adoption")
        if known is not None:  # before an interruption
            return msgspec.convert(known, Verdict)
        adoption, rows = self.config.adoption, self._rows[RolloutMode.VAL]
        finalists = best[: adoption.finalists]
        if not rows or not finalists:
            return self.end_without_adoption("no_candidate" if rows else "no_validation_rows")
        held_out = [*rows, *self._rows[RolloutMode.TEST]]
        searched = self._rows[RolloutMode.TRAIN]
        leaking = {
            prompt.version: leaks(
                prompt.text, held_out, incumbent=incumbent.text, searched=searched
            )
            for prompt in finalists
        }
        clean = [prompt for prompt in finalists if leaking[prompt.version] is None]
        measured = self._measure([incumbent, *clean], RolloutMode.VAL) if clean else {}
        if clean:
            self._check_scored(incumbent, RolloutMode.VAL, rows)
        found = verdicts(
            measured.get(incumbent.version, Measured()),
            [
                Finalist(prompt, measured.get(prompt.version, Measured()), leaking[prompt.version])
                for prompt in finalists
            ],
            sum(can_be_scored(self.config.scorers, row) for row in rows),
            adoption,
            seed=self.config.seed,
        )
        passing = [verdict for verdict in found if verdict.reason_code in PASSING]
        chosen = max(passing, key=lambda verdict: verdict.delta or 0.0, default=found[0])
        self._score_held_out(incumbent, chosen, measured)
        for verdict in found:
            state = "finalist" if verdict in passing else "rejected"
            conclude(self._store, self._candidate(verdict), verdict, state=state)
        if chosen not in passing:
            self._store.optimizations.amend_report(
                self._run.run_id, adoption=msgspec.to_builtins(chosen)
            )
            return chosen
        scores = {
            "baseline": measured[incumbent.version].mean,
            "score": measured[chosen.prompt_version or ""].mean,
        }
        while True:
            self._lead.go_on()
            with self._store.begin():  # whoever pauses or cancels the run comes before or after
                if self._store.optimizations.state(self._run.run_id) in WORKING:
                    return adopt(
                        self._store, self._run, self._candidate(chosen), chosen,
                        prompt_key=self.config.prompt_key,
                        algorithm=str(self.config.search.algorithm), scores=scores, who=self._who,
                    )  # fmt: skip

    def _candidate(self, verdict: Verdict) -> Candidate:
        return next(
            known
            for known in self._store.optimizations.candidates(self._run.run_id)
            if known.version == verdict.prompt_version and known.state != "duplicate"
        )

    def _learn_policy(self, incumbent: Prompt, best: Sequence[Prompt]) -> None:
        """Let a policy learn to choose among the prompts, an update after each group of items."""
        block = policy_phase(self.config)
        if block is None:
            return
        self._lead.begin_phase(POLICY)
        run_id = self._run.run_id
        training = PolicyTraining(
            block,
            run_id,
            seed=self.config.seed,
            checkpoints=self._store.checkpoints.of_run(run_id),
        )
        pool = [prompt.version for prompt in (incumbent, *best[: block.pool_limit])]
        rows = list(enumerate(self._order(block.rollouts or 0)))
        for start in range(0, len(rows), block.update_interval):
            items = dict(
                self._policy_item(training, row, number, pool)
                for number, row in rows[start : start + block.update_interval]
            )
            self._put(items, RolloutMode.TRAIN)
            self._lead.await_items()
            try:
                training.learn(self._learnable([*items]))
            except OptimizerError as error:
                _count_failure(self._store, self._settings, scrub_text(str(error)))
                raise
            self._store.optimizations.amend_report(run_id, rl_optimizer=_plain(training.report))
        self._store.optimizations.amend_report(run_id, rl_optimizer=_plain(training.end()))

    def _order(self, count: int) -> Iterator[Row]:
        """Yield that many rows: all of them in a seeded order, then again in another."""
        rows, seed = self._rows[RolloutMode.TRAIN], self.config.seed
        for turn in range(-(-count // max(len(rows), 1))):
            order = sorted(rows, key=lambda row: seed_from(seed, POLICY, turn, row.digest))
            yield from order[: count - turn * len(rows)]

    def _policy_item(
        self, training: PolicyTraining, row: Row, number: int, pool: Sequence[str]
    ) -> tuple[str, tuple[Task, Row]]:
        """Return an item of the phase ``policy``, its prompt chosen, by its id."""
        repeat = self.config.repeats + number
        version, offered = pool[0], len(pool) > 1
        if offered:
            choice = choose_prompt(training.decider, pool, context_of(row), repeat=repeat)
            version = pool[choice.place]
        task = Task(
            phase=POLICY, version=version, row=row.index, repeat=repeat,
            pool=tuple(pool) if offered else (), policy=training.checkpoint,
        )  # fmt: skip
        mode = RolloutMode.TRAIN
        id_ = rollout_id(self._run.run_id, row, mode=mode, version=version, repeat=repeat)
        return id_, (task, row)

    def _learnable(self, ids: Sequence[str]) -> list[LearnableRollout]:
        """Return items that have ended with their decisions and rewards, in this order."""
        known = {rollout.rollout_id: rollout for rollout in self._rollouts(ids)}
        return [
            LearnableRollout(
                known[id_],
                self._store.decisions.decisions(id_),
                self._store.rewards.rewards(id_),
            )
            for id_ in ids
        ]

    def _skip_optimizer(self, why: str) -> None:
        """Store that the policy learns no more, unless it has learned before."""
        known = self._store.optimizations.run(self._run.run_id).report.get("rl_optimizer")
        if known is None:
            return
        why = why_stopped(self._store, why, was_paused=self._lead.was_paused)
        skipped = skip(known, why=why)
        if skipped is not None:
            self._store.optimizations.amend_report(self._run.run_id, rl_optimizer=_plain(skipped))

    def _test(self, incumbent: Prompt, adopted: Prompt) -> None:
        """Execute both prompts once on rows that decide nothing, for the published figure."""
        measured = self._measure([incumbent, adopted], RolloutMode.TEST)
        before, after = measured[incumbent.version], measured[adopted.version]
        self._summarise("test_incumbent", before)
        self._summarise("test_adopted", after)
        both = sorted(before.scores.keys() & after.scores.keys())
        differences = [after.scores[row] - before.scores[row] for row in both]
        test = {
            "incumbent": before.mean,
            "adopted": after.mean,
            "pairs": len(both),
            "interval": t_interval(differences) if len(both) > 1 else None,
        }
        self._store.optimizations.amend_report(self._run.run_id, test=test)

    def end_without_adoption(self, reason_code: str) -> Verdict:
        """Store that nothing is adopted, and why, unless something else is known."""
        adoption = self.config.adoption
        verdict = Verdict(
            reason_code=reason_code, alpha=adoption.alpha, min_delta=adoption.min_delta
        )
        report = self._store.optimizations.run(self._run.run_id).report
        if "adoption" not in report:
            self._store.optimizations.amend_report(
                self._run.run_id, adoption=msgspec.to_builtins(verdict)
            )
        return verdict

    def _score(self, name: str, prompt: Prompt, rows: Sequence[Row]) -> None:
        scorable = sum(can_be_scored(self.config.scorers, row) for row in rows)
        summary = {
            "mean": prompt.score,
            "rows": len(prompt.scores),
            "repeats": self.config.repeats,
            "missing": scorable - len(prompt.scores),
        }
        self._publish_score(name, summary if rows else None)

    def _score_held_out(
        self, incumbent: Prompt, chosen: Verdict, measured: Mapping[str, Measured]
    ) -> None:
        for name, version in (
            ("validate_incumbent", incumbent.version),
            ("validate_finalist", chosen.prompt_version),
        ):
            if version in measured:
                self._summarise(name, measured[version or ""])

    def _summarise(self, name: str, measured: Measured) -> None:
        self._publish_score(
            name,
            {
                "mean": measured.mean,
                "rows": len(measured.scores),
                "repeats": self.config.repeats,
                "missing": len(measured.missing),
            },
        )

    def _publish_score(self, name: str, summary: object) -> None:
        self._scores[name] = summary
        self._store.optimizations.amend_report(self._run.run_id, scores=dict(self._scores))

    # Items

    def execute(self, prompts: Sequence[Prompt], rows: Sequence[Row]) -> None:
        """Execute prompts on rows that they have no score on yet, and add their scores."""
        if not prompts:
            return
        for prompt in prompts:
            wanted = [(prompt, row) for row in rows if row.index not in prompt.scores]
            self._enqueue(wanted, RolloutMode.TRAIN)
        self._lead.await_items()
        for prompt in prompts:
            measured = self._read(prompt, RolloutMode.TRAIN, rows)
            prompt.scores |= measured.scores
            prompt.weights |= measured.weights

    def _measure(self, prompts: Sequence[Prompt], mode: RolloutMode) -> dict[str, Measured]:
        """Execute prompts on all rows of a set, row by row, and return what each earned."""
        rows = self._rows[mode]
        self._enqueue([(prompt, row) for row in rows for prompt in prompts], mode)
        self._lead.await_items()
        return {prompt.version: self._read(prompt, mode, rows) for prompt in prompts}

    def _enqueue(self, wanted: Sequence[tuple[Prompt, Row]], mode: RolloutMode) -> None:
        """Put items of prompts on rows into the queue of the run, repeats innermost."""
        config, run = self.config, self._run
        phase = self._store.optimizations.run(run.run_id).phase
        items = {
            rollout_id(run.run_id, row, mode=mode, version=prompt.version, repeat=repeat): (
                Task(phase=phase, version=prompt.version, row=row.index, repeat=repeat), row,
            )
            for prompt, row in wanted
            for repeat in range(config.repeats)
        }  # fmt: skip
        self._put(items, mode)

    def _put(self, items: Mapping[str, tuple[Task, Row]], mode: RolloutMode) -> None:
        """Put items into the queue of the run, in one transaction; those known are left out."""
        config, run = self.config, self._run
        known = {found.rollout_id for found in self._rollouts([*items])}
        retries = RolloutConfig(
            max_attempts=config.max_attempts,
            timeout_s=config.attempt_timeout_secs,
            unresponsive_s=SILENT_AFTER * config.heartbeat_interval_ms / 1000,
        )
        keeps = config.content == "redacted"
        with self._store.begin():
            for id_, (task, row) in items.items():
                if id_ in known:
                    continue
                self._store.queue.enqueue(
                    Rollout(
                        rollout_id=id_,
                        name=ITEM,
                        mode=mode,
                        queue=run.run_id,
                        input=without_secrets(row.input) if keeps else None,
                        resources=run.resources,  # type: ignore[arg-type]
                        config=retries,
                        metadata=msgspec.to_builtins(task),
                    )
                )

    def _rollouts(self, ids: Sequence[str]) -> Iterator[Rollout]:
        """Yield those of some rollouts that are stored, in no order."""
        for start in range(0, len(ids), IDS_AT_ONCE):
            page = RolloutQuery(ids=ids[start : start + IDS_AT_ONCE])
            yield from self._store.rollouts.query(page).rollouts

    def _results(
        self, prompt: Prompt, mode: RolloutMode, rows: Sequence[Row]
    ) -> Iterator[tuple[Row, list[Result]]]:
        """Yield each row with the results of its items that are not missing, in their order."""
        repeats = self.config.repeats
        at_once = max(1, IDS_AT_ONCE // repeats)
        for start in range(0, len(rows), at_once):
            page = rows[start : start + at_once]
            ids = [
                [
                    rollout_id(
                        self._run.run_id, row, mode=mode, version=prompt.version, repeat=repeat
                    )
                    for repeat in range(repeats)
                ]
                for row in page
            ]
            known = {
                rollout.rollout_id: msgspec.convert(rollout.output, Result)
                for rollout in self._rollouts([*chain.from_iterable(ids)])
                if rollout.output is not None
            }
            for row, own in zip(page, ids, strict=True):
                yield row, [known[id_] for id_ in own if id_ in known]

    def _read(self, prompt: Prompt, mode: RolloutMode, rows: Sequence[Row]) -> Measured:
        measured = Measured(weights={row.index: row.weight for row in rows})
        for row, results in self._results(prompt, mode, rows):
            measured.usd += [result.usd for result in results]
            scores = [result.score for result in results if result.score is not None]
            costs = [result.cost for result in results if result.cost is not None]
            if costs:
                measured.costs[row.index] = sum(costs) / len(costs)
            if any(result.critical for result in results):
                measured.critical.add(row.index)
            uncosted = [result for result in results if result.is_scored and result.cost is None]
            if uncosted and can_have_cost(self.config.scorers, row):
                measured.uncosted[row.index] = uncosted[0].note
            if scores:
                measured.scores[row.index] = sum(scores) / len(scores)
            elif can_be_scored(self.config.scorers, row):
                measured.missing.add(row.index)
        return measured

    def examples(self, prompt: Prompt, rows: Sequence[Row]) -> list[Example]:
        """Return what a prompt made of rows, the worst of its repeats of each."""
        examples = []
        for row, results in self._results(prompt, RolloutMode.TRAIN, rows):
            scored = [result for result in results if result.score is not None]
            if scored:
                worst = min(scored, key=lambda result: result.score or 0.0)
                examples.append(Example(row, worst.output, worst.score or 0.0, worst.notes))
        return examples

    def ask(self, ref: str, *, system: str, user: str, name: str) -> Answer:
        """Ask the critic or the editor."""
        self._lead.go_on()
        try:
            return self._models.call(
                ref,
                system=system,
                user=user,
                seed=seed_from(self.config.seed, name),
                temperature=self.config.search.temperature,
                max_tokens=self.config.search.max_tokens,
            )
        except StoppedError:
            self._lead.look()  # it may have been cancelled meanwhile
            raise
        except TauLiveError:
            raise
        except Exception as error:  # the border to the provider: its own errors end no run
            raise SurroundingsError(f"{type(error).__name__}: {error}") from error

    def has_room(self, items: int) -> bool:
        """Return whether the budget has room for that many items, and for the evidence after them.

        What an item uses besides is estimated by those before it.
        """
        run, limits = self._store.optimizations.run(self._run.run_id), self._limits
        finalists = self.config.adoption.finalists
        confirm = (1 + finalists) * len(self._rows[RolloutMode.VAL]) * self.config.repeats
        block = policy_phase(self.config)
        learning = 0 if block is None else block.rollouts or 0
        wanted = items * self.config.repeats + confirm + learning
        share = 1.0 + wanted / max(run.rollouts, 1)
        return (limits.rollouts is None or run.rollouts + wanted <= limits.rollouts) and all(
            limit is None or used * share <= limit
            for used, limit in (
                (run.calls, self.config.budget.calls),
                (run.tokens, limits.tokens),
                (run.usd, limits.usd),
                (run.seconds, self.config.budget.seconds),
            )
        )

    def by_label(self) -> Mapping[str, Candidate]:
        """Return the candidates of the run, by label."""
        found = self._store.optimizations.candidates(self._run.run_id)
        return {candidate.label: candidate for candidate in found}

    def keep(self, candidate: Candidate) -> None:
        """Store a candidate."""
        self._store.optimizations.keep(msgspec.structs.replace(candidate, run_id=self._run.run_id))

    def wait(self, seconds: float) -> None:
        """Wait, unless the run is to end meanwhile."""
        self._lead.wait(seconds)
