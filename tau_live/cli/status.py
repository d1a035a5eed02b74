"""``tau-live status``: everything that one asks first."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from tau_live.cli.opening import epilog, is_enabled, json_option, opened, store_option
from tau_live.cli.output import facts_of, print_all, print_json, styled
from tau_live.cli.text import ago, number, shown
from tau_live.forgetting import Excess
from tau_live.status import status_of
from tau_live.store.keeping import Kept


@click.command(
    epilog=epilog("status", "tau-live status", "tau-live status --json | jq .gate.state")
)
@store_option
@json_option
def status(path: Path | None, as_json: bool) -> None:
    """Show everything that one asks first: gate, rollouts, rewards, last update, policies.

    A running process also publishes it as status.json beside the store.
    """
    now = time.time()
    with opened(path) as (store, settings):
        found = status_of(store, settings, now=now, enabled=is_enabled())
    if as_json:
        print_json(found)
    else:
        print_all(facts_of(_facts(found, now=now)))


def _facts(found: Mapping[str, object], *, now: float) -> Iterator[tuple[str, object]]:
    yield "store", found["store"]
    yield "tau-live", "on" if found["enabled"] else "off in this shell (TAU_LIVE_RL)"
    gate = _mapping(found["gate"])
    yield "gate", styled(gate["state"])
    if gate["state"] != "pass":
        yield "  since", ago(_float(gate["since"]), now=now)
        yield "  because", gate["reason"]
        yield "  last error", gate["detail"]
        yield "  then", 'tau-live gate reset --reason "..."'
    yield from _stopped(found, now=now)
    rollouts = _mapping(found["rollouts"])
    yield "rollouts", _counted(rollouts)
    yield "wait for a reward", number(_float(found["waiting_for_reward"]))
    yield "not learned from", _counted(_mapping(found["not_learned_from"])) or "none"
    yield "ready to learn", _counted(_mapping(found["ready_to_learn"])) or "none"
    reward = _mapping(found["mean_reward"])
    if reward["last"] is not None:
        first, last = number(_float(reward["first"])), number(_float(reward["last"]))
        yield "mean reward", f"{last} (the last {reward['of']}), {first} (the first {reward['of']})"
    for point, shadow in _mapping(found["agreement"]).items():
        yield f"agreement {shown(point)}", _agreement(_mapping(shadow))
    yield "last update", _update(_mapping(found["last_report"]), now=now)
    for point, serving in _mapping(found["in_service"]).items():
        yield f"policy {shown(point)}", _serving(_mapping(serving))
    for point, monitored in _mapping(found["monitors"]).items():
        yield from _monitored(point, _mapping(monitored))
    for point, trial in _mapping(found["trials"]).items():
        yield f"exposure {shown(point)}", exposure(_mapping(trial))
        yield f"lift {shown(point)}", lift(_mapping(trial))
    yield "retention", _kept(_mapping(found["retention"]))
    yield "counters", _counted(_mapping(found["counters"])) or "none"
    yield from _running(found)


def _stopped(found: Mapping[str, object], *, now: float) -> Iterator[tuple[str, object]]:
    killed = _mapping(found["kill_switch"])
    if killed:
        since = ago(_float(killed["at"]), now=now)
        yield "kill switch", f"on since {since}{_by(killed)}: {killed['reason']}"
        yield "  then", 'tau-live unkill --reason "..."'
    for part, pause in _mapping(found["paused"]).items():
        said = _mapping(pause)
        since = ago(_float(said["at"]), now=now)
        yield part, f"paused since {since}{_by(said)}: {said['reason']}"
        yield "  then", f'tau-live resume {part} --reason "..."'


def _by(said: Mapping[str, object]) -> str:
    return f" by {said['who']}" if said["who"] else ""


def _running(found: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    processes = found["processes"]
    attached = processes if isinstance(processes, list) else []
    yield "attached", ", ".join(str(process) for process in attached) or "no process"
    for process, seconds in _mapping(found["silent"]).items():
        yield "cannot write", f"{process}, since {number(_float(seconds))} s: its log says why"
    if found["learner"]:
        yield "learning now", found["learner"]


def _kept(retention: Mapping[str, object]) -> str:
    """Return in words how much is kept, of how much, and why more than that."""
    limits = {
        f"{name}": retention[name]
        for name in ("days", "rollouts", "mb")
        if retention[name] is not None
    }
    said = [f"at most {number(_float(limit))} {name}" for name, limit in limits.items()]
    used = f"{number(_float(retention['used_mb']))} MB, {', '.join(said) or 'no limit'}"
    over = retention["over"]
    if not isinstance(over, list) or not over:
        return used
    kept = {name: int(_float(count) or 0) for name, count in _mapping(retention["kept"]).items()}
    return f"{used}; {Excess([str(name) for name in over], Kept(**kept))}"


def _monitored(point: str, found: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    if found["option"] is not None:
        share, entropy = _float(found["option_share"]) or 0.0, _float(found["entropy"]) or 0.0
        last = number(_float(found["rollouts"]))
        words = f"{share:.0%} {shown(found['option'])}, entropy {entropy:.2f}"
        yield f"choices {shown(point)}", f"{words} (the last {last} rollouts)"
    else:
        yield f"choices {shown(point)}", "none to make: never more than one option"
    spread = _float(found["reward_spread"])
    if spread is not None:
        shares = _mapping(found["sources"]).items()
        parts = ", ".join(f"{_float(part) or 0.0:.0%} {shown(source)}" for source, part in shares)
        yield "  rewards", f"deviate by {spread:.3g}, from {parts or 'nobody'}"
    if found["cost"] is not None:
        cost, price = _float(found["cost"]) or 0.0, _float(found["cost_multiplier"]) or 0.0
        words = f"{cost:.3g} (of {number(_float(found['costs']))})"
        yield "  safety cost", f"{words}, its price {price:.3g}"
    alarms = found["drift"]
    for alarm in alarms if isinstance(alarms, list) else []:
        said = _mapping(alarm)
        yield "  drift", f"{shown(said['option'])} became {said['direction']}"


def _update(report: Mapping[str, object], *, now: float) -> str:
    if not report:
        return "none yet"
    what = (
        f"made version {report['version']} from {report['trajectories']} rollouts"
        if report["executed"]
        else f"skipped: {report['skipped_reason']}"
    )
    return f"#{report['update']} {report['point'] or '(no decision)'}: {what}, " + ago(
        _float(report["at"]), now=now
    )


def _agreement(shadow: Mapping[str, object]) -> str:
    habits = (f"{shown(o)} {_float(s) or 0:.0%}" for o, s in _mapping(shadow["host"]).items())
    return (
        f"{_float(shadow['agreement']) or 0:.0%} of the last {shadow['decisions']} in shadow, "
        f"probability {number(_float(shadow['probability']))}; the host: {', '.join(habits)}"
    )


def _serving(serving: Mapping[str, object]) -> str:
    pinned = ", pinned" if serving["pinned"] else ""
    if not serving["version"]:
        return f"untrained{pinned}"
    return f"version {serving['version']}{pinned}, trained on {serving['rollouts']} rollouts"


def exposure(trial: Mapping[str, object]) -> str:
    """Return in words how much the learner decides, and how much was seen of each arm."""
    rollouts = _mapping(trial["rollouts"])
    control = "the host" if trial["control"] is None else f"version {trial['control']}"
    kept = f", kept for {trial['kept']} rollouts more" if trial["kept"] else ""
    agreement = _float(trial["agreement"])
    agrees = "" if agreement is None else f"; agrees with the host in {agreement:.0%}"
    return (
        f"{_float(trial['exposure']) or 0.0:.0%}; {rollouts['learner']} rollouts by the learner, "
        f"{rollouts['control']} by the control ({control}{kept}){agrees}"
    )


def lift(trial: Mapping[str, object]) -> str:
    """Return the lift of the learner in words, with its interval, or why there is none."""
    found = _mapping(trial["lift"])
    estimate, lower, upper = (_float(found[name]) for name in ("estimate", "lower", "upper"))
    told = "unknown" if estimate is None else f"{estimate:+.3g}"
    if lower is not None and upper is not None:
        told += f" (at least {lower:+.3g}, at most {upper:+.3g}), {trial['verdict']}"
    elif estimate is not None:
        told += " (a mere difference of means)"
    return f"{told}; {trial['why']}" if trial["why"] else told


def _counted(counts: Mapping[str, object]) -> str:
    return ", ".join(f"{number(_float(count))} {name}" for name, count in counts.items())


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _float(value: object) -> float | None:
    return value if isinstance(value, int | float) else None
