"""What the dashboard shows, as plain data: every figure is read from the store."""

from collections.abc import Callable, Mapping
from itertools import chain

import msgspec

from tau_live.cli.alerts import list_alerts
from tau_live.cli.status import last_update, verdict_text
from tau_live.core.errors import TauLiveError
from tau_live.core.records import RolloutStatus
from tau_live.core.sanitize import JsonObject, real
from tau_live.core.settings import Settings
from tau_live.operate.alert_rules import ALERTS, AlertKind, Severity, incidents_in
from tau_live.operate.alerts import LASTING
from tau_live.operate.optimizations import optimization_status, read_status
from tau_live.operate.report.facts import Answer, Facts
from tau_live.operate.report.summary import (
    BAD,
    DOUBTFUL,
    GOOD,
    Glance,
    doubts_of,
    faults_of,
    glance_of,
    points_of,
)
from tau_live.operate.status import status_file
from tau_live.store.roles import Store

STATES: Mapping[str, str] = {GOOD: "healthy", DOUBTFUL: "degraded", BAD: "failing"}
BACKLOG = 1_000
"""Queued rollouts from which on the backlog is an alert."""

RECENT_S = 86_400.0
"""How long an alert of a moment is shown, such as a withdrawn prompt."""

SHOWN = 5
"""The newest lines of the audit that are shown."""

TRAINING = (
    "run_id", "run_state", "model_ref", "store_path", "total_rollouts", "succeeded", "failed",
    "cancelled", "phase", "progress", "rl_optimizer", "adoption", "updated_unix_ms",
)  # fmt: skip
"""What is shown of the newest run of an optimization."""


def snapshot_of(
    store: Store,
    settings: Settings,
    *,
    now: float,
    enabled: bool,
    suggest: Callable[[str], str],
) -> JsonObject:
    """Return everything that the page keeps up to date.

    Args:
        store: The store.
        settings: Its settings.
        now: Epoch seconds, UTC.
        enabled: Whether tau-live is switched on here.
        suggest: Adds the store to the commands of a text, if that is needed.

    Raises:
        StoreUnavailableError: The store cannot be read.
    """
    glance = glance_of(store, settings, now=now, enabled=enabled)
    runs = store.optimizations.runs("optimize", limit=1)
    run = optimization_status(store, runs[0]) if runs else None
    depth = queue_depth(store)
    training = _training(glance, settings, run)
    plain: JsonObject = msgspec.to_builtins(
        {
            "summary": {
                **msgspec.to_builtins(glance.summary),
                "next": [suggest(step) for step in glance.summary.next],
                "better": _better(glance),
                "cost": _cost(glance),
            },
            "health": _health(store, settings, glance, depth),
            "widgets": _widgets(glance, depth, run),
            "alerts": [
                {**alert, "todo": alert["todo"] and suggest(str(alert["todo"]))}
                for alert in _alerts(store, settings, glance, depth=depth, run=run)
            ],
            "training": training,
            "control": _control(store, glance),
            "state": _state(glance),
        }
    )
    return plain


def unreadable(settings: Settings, error: TauLiveError | OSError, *, enabled: bool) -> JsonObject:
    """Return the same of a store that cannot be read, or that is not there yet."""
    is_there = settings.store.exists()
    file = status_file(settings)
    code = "training_status_read_failed" if is_there else "training_status_missing"
    nothing = Answer(state=DOUBTFUL, answer="unknown", sentence=f"{error}.")
    switch = "on" if enabled else "off"
    return {
        "summary": {
            "on": msgspec.to_builtins(
                Answer(state=DOUBTFUL, answer="unknown", sentence=f"TAU_LIVE_RL is {switch} here.")
            ),
            **dict.fromkeys(
                ("healthy", "learning", "better", "cost"), msgspec.to_builtins(nothing)
            ),
            "next": ["`tau-live doctor` says why the store cannot be read."]
            if is_there
            else ["Run your agent with `TAU_LIVE_RL=1`, or try `TAU_LIVE_RL=1 tau-live demo`."],
        },
        "health": {
            "health_state": "unknown",
            "health_reason": code,
            "rollout_gate": "hold",
            **dict.fromkeys(
                ("queue_depth", "failure_streak", "processed_case_count", "control_audit_count")
            ),
            "last_cycle_failed": None,
            "last_cycle_completed": None,
        },
        "widgets": [],
        "alerts": [_alert("dashboard_state_missing", "critical", f"{error}", None)],
        "training": {
            **dict.fromkeys(TRAINING),
            "status_path": str(file),
            "status_present": False,
            "run_state": "unknown",
            "store_path": str(settings.store),
            "gate": None,
            "diagnostics": [f"{code}:{settings.store}"],
            "live_learning_alerts": [],
        },
        "control": {"gate": None, "paused": {}, "kill_switch": None, "audit": []},
        "state": {
            "store": str(settings.store), "used_mb": None, "processes": [], "counters": {},
            "reasons": {},
        },
    }  # fmt: skip


def queue_depth(store: Store) -> int:
    """Return how many rollouts wait for a worker."""
    counts = store.rollouts.counts_by_status()
    return counts[RolloutStatus.QUEUING] + counts[RolloutStatus.REQUEUING]


def _better(glance: Glance) -> Answer:
    """Answer whether the learner is better than the control."""
    trials = [
        glance.status.trials[point] for point in glance.points if point in glance.status.trials
    ]
    sentences = dict.fromkeys(
        f"{point}: {verdict_text(glance.status.trials[point])}."
        for point in glance.points
        if point in glance.status.trials
    )
    lower = [trial.bounds[0] for trial in trials if trial.bounds[0] is not None]
    upper = [trial.bounds[1] for trial in trials if trial.bounds[1] is not None]
    text = " ".join(sentences) or "No decision point has a control to compare with yet."
    if any(bound < 0.0 for bound in upper):
        return Answer(state=BAD, answer="no, worse", sentence=text)
    if any(bound > 0.0 for bound in lower):
        return Answer(state=GOOD, answer="yes", sentence=text)
    return Answer(state=DOUBTFUL, answer="not proven yet", sentence=text)


def _cost(glance: Glance) -> Answer:
    """Answer what a rollout costs lately, where its cost is known."""
    known = [stretch.cost_usd for stretch in glance.stretches if stretch.cost_usd.count]
    if not known:
        return Answer(state=DOUBTFUL, answer="unknown", sentence="No rollout has a known cost.")
    median, high = known[-1].median or 0.0, known[-1].high or 0.0
    sentence = f"Median of the latest rollouts; of 100, 95 cost less than ${high:.4g}."
    return Answer(state=GOOD, answer=f"${median:.4g} a rollout", sentence=sentence)


def _health(store: Store, settings: Settings, glance: Glance, depth: int) -> JsonObject:
    status, report = glance.status, glance.status.last_report
    stopped = status.gate.holds or bool(status.paused) or status.kill_switch is not None
    failed = status.gate.streaks.get("update", 0) > 0
    return {
        "health_state": STATES[glance.summary.healthy.state]
        if any(status.rollouts.values())
        else "unknown",
        "health_reason": _reason(glance, settings),
        "rollout_gate": "hold" if stopped else "pass",
        "queue_depth": depth,
        "failure_streak": max(status.gate.streaks.values(), default=0),
        "last_cycle_failed": failed,
        "last_cycle_completed": report is not None and not failed,
        "processed_case_count": status.rollouts["completed"],
        "control_audit_count": store.audit.count(),
    }


def _reason(glance: Glance, settings: Settings) -> str:
    """Return the code of the first cause that it is not healthy."""
    status = glance.status
    if status.kill_switch is not None:
        return "kill_switch"
    if status.gate.holds:
        return str(status.gate.reason)
    if status.held_in_memory:
        return "held_in_memory"
    if status.paused:
        return "operator_pause"
    if not any(status.rollouts.values()):
        return "no_rollouts"
    causes = chain(faults_of(status), doubts_of(status, settings))
    known = next((cause.replace(" ", "_") for cause in causes), None)
    return known or ("healthy" if glance.summary.healthy.state == GOOD else "look_closer")


def _widgets(glance: Glance, depth: int, run: JsonObject | None) -> list[JsonObject]:
    """Return single figures, each as ``tau-live status --json`` has it."""
    status, mean = glance.status, glance.status.mean_reward
    report = status.last_report
    shown = [
        _widget("gate", "Gate", status.gate.state, since=status.gate.since),
        *(
            _widget(f"rollouts_{name}", f"Rollouts {name}", count)
            for name, count in status.rollouts.items()
        ),
        _widget("waiting_for_reward", "Wait for a reward", status.waiting_for_reward),
        _widget("queue_depth", "Wait for a worker", depth),
        _widget("mean_reward_first", f"Mean reward, first {mean.of}", mean.first),
        _widget("mean_reward_last", f"Mean reward, last {mean.of}", mean.last,
                since=status.last_reward_at),
        _widget("last_update", "Last update", last_update(report),
                since=real(report["at"]) if report else None),
        _widget("dropped", "Dropped or refused lately", sum(glance.drops.values())),
    ]  # fmt: skip
    for point, service in status.in_service.items():
        title = f"Version in service, {point}"
        shown.append(_widget(f"version:{point}", title, service.version, since=service.since))
    for point in points_of(status):
        if trial := status.trials.get(point):
            lower, upper = trial.bounds
            shown += [
                _widget(f"exposure:{point}", f"Exposure, {point}", trial.exposure, unit="share"),
                _widget(f"lift:{point}", f"Lift, {point}", trial.difference["estimate"]),
                _widget(f"lift_lower:{point}", f"Lift at least, {point}", lower),
                _widget(f"lift_upper:{point}", f"Lift at most, {point}", upper),
            ]
    if run is not None:
        progress, budget = run["progress"], run["budget"]
        assert isinstance(progress, dict)  # noqa: S101  # as optimization_status makes it
        assert isinstance(budget, dict)  # noqa: S101  # likewise
        shown += [
            _widget("run_state", "Optimization", run["run_state"]),
            _widget("run_done", "Its items done", progress["done"]),
            _widget("run_total", "Its items in all", progress["total"]),
            _widget("run_usd", "It cost at least", budget["usd"] or None, unit="usd"),
        ]
    return shown


def _widget(
    id_: str, title: str, value: object, *, unit: str = "", since: float | None = None
) -> JsonObject:
    return {
        "id": id_, "title": title, "value": value, "unit": unit, "since_unix_ms": _ms(since),
    }  # fmt: skip


def _alerts(
    store: Store, settings: Settings, glance: Glance, *, depth: int, run: JsonObject | None
) -> list[JsonObject]:
    status = glance.status
    raised = [row for row, is_over in list_alerts(store, settings, limit=50) if not is_over]
    began = {(row.kind, row.subject): row.at for row in reversed(raised)}
    # what is the case, whether or not a process runs that raises alerts
    found = [
        _alert(incident.kind.value, ALERTS[incident.kind].severity.value, incident.sentence,
               incident.at or began.get((incident.kind.value, incident.subject)),
               ALERTS[incident.kind].todo)
        for incident in incidents_in(status, store.alerts.notes(), settings)
        if incident.sentence and incident.kind in LASTING
    ]  # fmt: skip
    about = ALERTS[AlertKind.LEARNER_STOPPED]
    for point, trial in status.trials.items():
        if trial.stopped is not None:
            found.append(_alert(AlertKind.LEARNER_STOPPED.value, about.severity.value,
                                f"The learner at {point} is stopped: {trial.stopped}.", None,
                                about.todo))  # fmt: skip
    found += [
        _alert(row.kind, row.severity, row.sentence, row.at, row.todo)
        for row in raised
        if row.kind not in {*LASTING, AlertKind.LEARNER_STOPPED}
        and row.severity != Severity.INFO
        and row.at > glance.at - RECENT_S
    ]
    if depth >= BACKLOG:
        found.append(_alert("dashboard_queue_backlog", "warning",
                            f"{depth:,} rollouts wait for a worker.", None))  # fmt: skip
    for part, pause in status.paused.items():
        todo = f'tau-live resume {part} --reason "..."'
        found.append(_alert("dashboard_operator_pause_active", "info",
                            f"{part} is paused: {pause.reason}.", pause.at, todo))  # fmt: skip
    if run is not None and (run["failed"] or run["run_state"] == "failed"):
        sentence = f"{run['failed']} items of {run['run_id']} failed; it is {run['run_state']}."
        found.append(_alert("dashboard_training_failures", "warning", sentence, None,
                            "tau-live optimize show"))  # fmt: skip
    if run is not None and run["run_state"] == "paused":
        found.append(_alert("dashboard_operator_pause_active", "info",
                            f"The run {run['run_id']} is paused.", None,
                            'tau-live optimize resume --reason "..."'))  # fmt: skip
    healthy = glance.summary.healthy
    if not found and healthy.state != GOOD:
        return [_alert("dashboard_look_closer", "warning", healthy.sentence, None)]
    return found or [_alert("dashboard_healthy", "info", "No alert is in force.", None)]


def _alert(  # noqa: PLR0917  # the fields of an alert
    code: str, severity: str, message: str, since: float | None, todo: str | None = None
) -> JsonObject:
    return {
        "code": code, "severity": severity, "message": message, "since_unix_ms": _ms(since),
        "todo": todo,
    }  # fmt: skip


def _training(glance: Glance, settings: Settings, run: JsonObject | None) -> JsonObject:
    status, file = glance.status, status_file(settings)
    has_lived = any(status.rollouts.values())
    live: JsonObject = {
        "run_state": ("running" if status.processes else "idle") if has_lived else "unknown",
        "store_path": str(settings.store),
        "total_rollouts": sum(status.rollouts[key] for key in ("completed", "open")),
        **{key: status.rollouts[key] for key in ("succeeded", "failed", "cancelled")},
        "updated_unix_ms": _ms(real(status.last_report["at"]) if status.last_report else None),
    }
    is_known = run is not None or has_lived
    return {
        **dict.fromkeys(TRAINING),
        **(live if run is None else {key: run.get(key) for key in TRAINING}),
        # as published: that of a status is when it was computed
        **({} if run is None else {"updated_unix_ms": read_status(file).get("updated_unix_ms")}),
        "status_path": str(file),
        "status_present": is_known,
        "gate": status.gate.state,
        "diagnostics": [] if is_known else [f"training_status_missing:{file}"],
        "live_learning_alerts": [
            f"{point} {alarm.option}: {alarm.direction}"
            for point, figures in status.monitors.items()
            for alarm in figures.drift
        ],
    }


def _control(store: Store, glance: Glance) -> JsonObject:
    status = glance.status
    return {
        "gate": status.gate,
        "paused": status.paused,
        "kill_switch": status.kill_switch,
        "audit": store.audit.entries(limit=SHOWN),
    }


def _state(glance: Glance) -> JsonObject:
    status = glance.status
    return {
        "store": status.store,
        "used_mb": status.retention.used_mb,
        "processes": status.processes,
        "counters": {name: count for name, count in status.counters.items() if count},
        "reasons": status.not_learned_from,
    }


def figures_of(facts: Facts) -> list[JsonObject]:
    """Return the sections of the report, with their charts and tables as plain data."""
    from tau_live.cli.page.document import sections_of

    sections: list[JsonObject] = msgspec.to_builtins(sections_of(facts))
    return sections


def _ms(at: float | None) -> int | None:
    return None if at is None else round(1000 * at)
