"""Everything that status knows, one fact a line."""

from collections.abc import Iterator, Mapping

from tau_live.cli.output import styled
from tau_live.cli.text import ago, moment, number, percent, shown, since
from tau_live.collection.forgetting import Excess
from tau_live.handed.reading import counts, integer, mapping, real, sequence
from tau_live.operators.kill_switch import ended_by
from tau_live.reporting.summary import disabled_plugins, fallen, held_in_memory
from tau_live.store.keeping import Kept


def details(found: Mapping[str, object], *, now: float) -> Iterator[tuple[str, object]]:
    """Yield what there is to be said of each thing, with its name.

    Args:
        found: What ``status_of`` says.
        now: Epoch seconds, UTC.
    """
    yield "store", found["store"]
    yield "tau-live", "on" if found["enabled"] else "off in this shell (TAU_LIVE_RL)"
    gate = mapping(found["gate"])
    yield "gate", styled(gate["state"])
    if gate["state"] != "pass":
        yield "  since", ago(real(gate["since"]), now=now)
        yield "  because", gate["reason"]
        failed = any(counts(gate["streaks"]).values())
        yield "  last error" if failed else "  detail", gate["detail"]
        yield "  then", 'tau-live gate reset --reason "..."'
    yield from _stopped(found, now=now)
    rollouts = mapping(found["rollouts"])
    yield "rollouts", _counted(rollouts)
    yield "wait for a reward", number(real(found["waiting_for_reward"]))
    yield from _alerted(found, now=now)
    yield from _untaught(found)
    yield from _ready(found)
    reward = mapping(found["mean_reward"])
    if reward["last"] is not None:
        told = f"{number(real(reward['last']))} (the last {reward['of']})"
        first = real(reward["first"])
        if first is not None:
            told += f", {number(first)} (the first {reward['of']})"
        yield "mean reward", told
    for point, shadow in mapping(found["agreement"]).items():
        yield f"agreement {shown(point)}", _agreement(mapping(shadow))
    report = mapping(found["last_report"])
    when = f", {ago(real(report['at']), now=now)}" if report else ""
    yield "last update", f"{last_update(report)}{when}"
    for point, one in mapping(found["in_service"]).items():
        yield f"policy {shown(point)}", _serving(mapping(one))
    for point, monitored in mapping(found["monitors"]).items():
        yield from _monitored(point, mapping(monitored))
    for point, trial in mapping(found["trials"]).items():
        yield from _trial(point, mapping(trial), now=now)
    yield "retention", _kept(mapping(found["retention"]))
    yield "counters", _counted(mapping(found["counters"])) or "none"
    yield from _grew(mapping(found["counters_grew"]), now=now)
    yield from _running(found)


def _untaught(found: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    yield "not learned from", _counted(mapping(found["not_learned_from"])) or "none"
    late = real(mapping(found["counters"]).get("decisions_past_deadline"))
    if late:
        yield "lost to deadline", f"{number(late)} decisions: the default was served"


def _ready(found: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """Yield how many rollouts wait to be learned from, and where the learner is behind."""
    yield "ready to learn", _counted(mapping(found["ready_to_learn"])) or "none"
    for point, one in mapping(found["behind"]).items():
        takes = number(real(mapping(one)["update_takes"]))
        yield f"behind {shown(point)}", f"the next update takes {takes} rollouts to catch up"


def _alerted(found: Mapping[str, object], *, now: float) -> Iterator[tuple[str, object]]:
    """Yield what alerts are about while it lasts."""
    missing = mapping(found["rewards_missing"])
    if missing:
        at = real(missing["since"])
        when = "" if at is None else f", since {ago(at, now=now)}"
        yield "rewards missing", f"{missing['missing']} of the newest {missing['settled']}{when}"
    for told in fallen(found):
        yield "reward fell", told
    for told in disabled_plugins(found):
        yield "plugin disabled", told


def _grew(times: Mapping[str, object], *, now: float) -> Iterator[tuple[str, object]]:
    """Yield when each counter of what was dropped or refused last grew."""
    for name, time in times.items():
        at = real(time)
        when = "since the previous check" if at is None else since(at, now=now)
        yield "  last grew", f"{name} {when}"


def _stopped(found: Mapping[str, object], *, now: float) -> Iterator[tuple[str, object]]:
    holds = held_in_memory(found)
    if holds:
        yield "held in memory", holds
        yield "  then", "tau-live doctor"
    killed = mapping(found["kill_switch"])
    if killed:
        when = ago(real(killed["at"]), now=now)
        yield "kill switch", f"on since {when}{_by(killed)}: {killed['reason']}"
        yield "  then", ended_by(str(killed["reason"])).strip("`")
    for part, pause in mapping(found["paused"]).items():
        said = mapping(pause)
        when = ago(real(said["at"]), now=now)
        yield part, f"paused since {when}{_by(said)}: {said['reason']}"
        yield "  then", f'tau-live resume {part} --reason "..."'


def _by(said: Mapping[str, object]) -> str:
    return f" by {said['who']}" if said["who"] else ""


def _running(found: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    attached = map(str, sequence(found["processes"]))
    yield "attached", ", ".join(attached) or "no process"
    for process, seconds in mapping(found["silent"]).items():
        yield "cannot write", f"{process}, for {number(real(seconds))} s: see its log"
    if found["learner"]:
        yield "learning now", found["learner"]


def _kept(retention: Mapping[str, object]) -> str:
    """Return in words how much is kept, of how much, and why more than that."""
    limits = {
        f"{name}": retention[name]
        for name in ("days", "rollouts", "mb")
        if retention[name] is not None
    }
    said = [f"at most {number(real(limit))} {name}" for name, limit in limits.items()]
    used = f"{number(real(retention['used_mb']))} MB, {', '.join(said) or 'no limit'}"
    beyond = str(excess_of(retention))
    return f"{used}; {beyond}" if beyond else used


def excess_of(retention: Mapping[str, object]) -> Excess:
    """Return what is beyond its limit and what keeps it, which is nothing in most stores."""
    over = [str(name) for name in sequence(retention["over"])]
    return Excess(over, Kept(**counts(retention["kept"])))


def _monitored(point: str, found: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    if found["option"] is not None:
        share, entropy = real(found["option_share"]) or 0.0, real(found["entropy"]) or 0.0
        last = number(real(found["rollouts"]))
        words = f"{share:.0%} {shown(found['option'])}, entropy {entropy:.2f}"
        yield f"choices {shown(point)}", f"{words} (the last {last} rollouts)"
    else:
        yield f"choices {shown(point)}", "none: never more than one option"
    spread = real(found["reward_spread"])
    if spread is not None:
        shares = mapping(found["sources"]).items()
        parts = ", ".join(f"{real(part) or 0.0:.0%} {shown(source)}" for source, part in shares)
        yield "  rewards", f"standard deviation {spread:.3g}, from {parts or 'no source'}"
    if outliers := real(found["outliers"]):
        low, high = real(found["lowest_reward"]) or 0.0, real(found["highest_reward"]) or 0.0
        yield "  outliers", f"{number(outliers)}, clipped to {low:.3g} or {high:.3g}"
    if found["cost"] is not None:
        cost, price = real(found["cost"]) or 0.0, real(found["cost_multiplier"]) or 0.0
        words = f"mean {cost:.3g} over {number(real(found['costs']))} rollouts"
        yield "  safety cost", f"{words}, multiplier {price:.3g}"
    for alarm in sequence(found["drift"]):
        said = mapping(alarm)
        yield "  drift", f"{shown(said['option'])} became {said['direction']}"


def last_update(report: Mapping[str, object]) -> str:
    """Return in words what an update came to; of none the report is empty."""
    if not report:
        return "none yet"
    rests = report.get("ppo_skipped")
    alone = f", from the regressions alone: PPO took no step ({rests})" if rests else ""
    what = (
        f"made version {report['version']} from {report['trajectories']} rollouts{alone}"
        if report["executed"]
        else f"skipped: {report['skipped_reason']}"
    )
    return f"#{report['update']} {report['point'] or '(no decision)'}: {what}"


def _agreement(shadow: Mapping[str, object]) -> str:
    habits = (f"{shown(o)} {real(s) or 0:.0%}" for o, s in mapping(shadow["host"]).items())
    return (
        f"{real(shadow['agreement']) or 0:.0%} of the last {shadow['decisions']} in shadow, "
        f"probability {number(real(shadow['probability']))}; the host: {', '.join(habits)}"
    )


def _serving(one: Mapping[str, object]) -> str:
    pinned = ", pinned" if one["pinned"] else ""
    if not one["version"]:
        return f"untrained{pinned}"
    return f"version {one['version']}{pinned}, trained on {one['rollouts']} rollouts"


def exposure(trial: Mapping[str, object]) -> str:
    """Return in words how much the learner decides, and how much was seen of each arm."""
    rollouts = mapping(trial["rollouts"])
    control = "the host" if trial["control"] is None else f"version {trial['control']}"
    kept = f", kept for {trial['kept']} more rollouts" if trial["kept"] else ""
    agreement = real(trial["agreement"])
    agrees = "" if agreement is None else f"; agrees with the host in {agreement:.0%}"
    return (
        f"{percent(real(trial['exposure']) or 0.0)}; "
        f"{rollouts['learner']} rollouts by the learner, "
        f"{rollouts['control']} by the control ({control}{kept}){agrees}"
    )


def difference(trial: Mapping[str, object]) -> str:
    """Return the difference of the learner in words, with its interval, or why there is none."""
    found = mapping(trial["difference"])
    estimate, lower, upper = (real(found[name]) for name in ("estimate", "lower", "upper"))
    told = "unknown" if estimate is None else f"{estimate:+.3g}"
    if lower is not None and upper is not None:
        told += f" (at least {lower:+.3g}, at most {upper:+.3g})"
        told += f", {trial['verdict']}" if trial["verdict"] else ""
    elif estimate is not None:
        told += " (unproven difference of means)"
    return f"{told}; {trial['why']}" if trial["why"] else told


def _trial(point: str, trial: Mapping[str, object], *, now: float) -> Iterator[tuple[str, object]]:
    yield f"exposure {shown(point)}", exposure(trial)
    yield f"difference {shown(point)}", difference(trial)
    counted = counted_of(trial, now=now)
    if counted:
        yield "  counted", counted.removeprefix("; ")


def counted_of(trial: Mapping[str, object], *, now: float) -> str:
    """Return how many rollouts the evidence is based on, and what delays the others."""
    uncounted, held_up = integer(trial["uncounted"]), mapping(trial["held_up"])
    counted = sum(counts(trial["rollouts"]).values())
    if not uncounted or not held_up:
        return ""
    until = real(held_up["until"])
    waits = "is still open" if held_up["open"] else "waits for its reward"
    by = f" until {moment(until)} UTC at the latest" if until is not None and until > now else ""
    told = f"; {number(counted)} of {number(counted + uncounted)} rollouts counted"
    return f"{told}, the next, {held_up['rollout_id']}, {waits}{by}"


def _counted(found: Mapping[str, object]) -> str:
    return ", ".join(f"{number(real(count))} {name}" for name, count in found.items())
