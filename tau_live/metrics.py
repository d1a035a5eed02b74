"""The figures of a store as families of metrics, and as Prometheus' text. Pure.

Source: the text exposition format 0.0.4 of Prometheus, and its naming practices: base units, a
unit or ``_total`` at the end, labels of few values.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tau_live.handed.reading import mapping
from tau_live.reasons import CRITIC_ONLY, DROPPED, LEFT_OUT

PREFIX = "tau_live_"
MOST_VALUES = 100
"""So many values a label has at most; what is beyond them is left out and counted."""
MOST_CHARS = 128
"""So many characters of a label are kept."""

Labels = Mapping[str, str]
Values = list[tuple[Labels, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric with all of its values.

    Attributes:
        name: Its name, which does not change.
        type: ``gauge`` or ``counter``.
        help: One sentence.
        values: One for each combination of labels.
    """

    name: str
    type: str
    help: str
    values: Values


def families(
    status: Mapping[str, object], *, version: str, last_told: Mapping[str, float]
) -> list[Family]:
    """Return what ``status_of`` says, as metrics; what is unknown has no value.

    Args:
        status: What it says.
        version: The tau-live that says so.
        last_told: When an alert of each kind was last told, in epoch seconds.
    """
    found = _all(status, version=version, last_told=last_told)
    shown = [replace(one, values=_apart(one.values)[:MOST_VALUES]) for one in found if one.values]
    return [*shown, _left_out(_size(found) - _size(shown))]


def known() -> list[Family]:
    """Return every metric that there is, without values that count."""
    return [*_all({}, version="", last_told={}), _left_out(0)]


def _size(found: Iterable[Family]) -> int:
    return sum(len(one.values) for one in found)


def _left_out(count: int) -> Family:
    said = "Label values left out because a metric has too many."
    return _of("values_left_out", said, [({}, count)])


def _apart(values: Values) -> Values:
    """Return the values whose labels are their own; with two alike nothing of a file is read."""
    kept: dict[tuple[str, ...], tuple[Labels, float]] = {}
    for labels, value in values:
        kept.setdefault(tuple(map(_escaped, labels.values())), (labels, value))
    return [*kept.values()]


def _all(
    status: Mapping[str, object], *, version: str, last_told: Mapping[str, float]
) -> list[Family]:
    return [
        *_stands(status, version),
        *_rollouts(status),
        *_points(status),
        *_counted(mapping(status.get("counters"))),
        _of("alert_last_told_timestamp_seconds", "When an alert of a kind was last raised.",
            _each("kind", last_told)),
    ]  # fmt: skip


def text_of(found: Iterable[Family]) -> str:
    """Return metrics in Prometheus' text."""
    return "".join(line for family in found for line in _lines(family))


def _lines(family: Family) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}\n"
    yield f"# TYPE {family.name} {family.type}\n"
    for labels, value in family.values:
        inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        yield f"{family.name}{f'{{{inside}}}' if inside else ''} {_number(value)}\n"


def _escaped(text: str) -> str:
    text = text.encode(errors="replace").decode()
    cut = text if len(text) <= MOST_CHARS else f"{text[: MOST_CHARS - 3]}..."
    visible = "".join(c if c.isprintable() or c == "\n" else "?" for c in cut)
    return visible.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(value)


def _stands(status: Mapping[str, object], version: str) -> Iterator[Family]:
    gate, retention = mapping(status.get("gate")), mapping(status.get("retention"))
    holds = gate.get("state") == "hold"
    reason = str(gate.get("reason") or "unknown")
    last = mapping(status.get("last_report")).get("at")
    one: Values = [({}, 1.0)]
    yield _of(
        "build_info", "The tau-live version that wrote this; always 1.", [({"version": version}, 1)]
    )
    yield _of("written_timestamp_seconds", "When this was written.", _one(status.get("at")))
    yield _of("gate_passes", "1 while the gate passes, 0 while it holds.", [({}, float(not holds))])
    yield _of(
        "gate_changed_timestamp_seconds", "When the gate last changed.", _one(gate.get("since"))
    )
    held = "1 with the reason while the gate holds; absent while it passes."
    yield _of("gate_hold_info", held, [({"reason": reason}, 1.0)] if holds else [])
    streaks = "Failures in a row, by kind."
    yield _of("gate_failure_streak", streaks, _each("kind", gate.get("streaks")))
    killed: Values = one if status.get("kill_switch") else [({}, 0.0)]
    yield _of("kill_switch_on", "1 while the kill switch is on.", killed)
    paused: Values = [({"part": part}, 1.0) for part in mapping(status.get("paused"))]
    yield _of("paused", "1 for each part that is paused.", paused)
    yield _of("processes", "Processes that are attached.", [({}, _length(status, "processes"))])
    held = "Processes that hold in memory because the store cannot be written."
    yield _of("processes_held_in_memory", held, [({}, _length(status, "held_in_memory"))])
    silent = "Attached processes that cannot write."
    yield _of("silent_processes", silent, [({}, _length(status, "silent"))])
    yield _of("last_update_timestamp_seconds", "When the last update ended.", _one(last))
    used = _one(retention.get("used_mb"))
    size = "Size of the store, without free pages and its log."
    yield _of("store_used_bytes", size, [(labels, mb * 1e6) for labels, mb in used])


def _rollouts(status: Mapping[str, object]) -> Iterator[Family]:
    rollouts = {
        name: count
        for name, count in mapping(status.get("rollouts")).items()
        if name != "completed"
    }
    mean = {
        name: value for name, value in mapping(status.get("mean_reward")).items() if name != "of"
    }
    yield _of("rollouts", "Stored rollouts, by status.", _each("status", rollouts))
    waiting = "Ended rollouts that wait for a reward, counted up to 10000."
    yield _of("rollouts_waiting_for_reward", waiting, _one(status.get("waiting_for_reward")))
    ready = "Rollouts that wait to be learned from, counted up to 10000."
    yield _of("rollouts_ready", ready, _each("point", status.get("ready_to_learn")))
    behind: Values = [
        ({"point": point}, float(point in mapping(status.get("behind"))))
        for point in mapping(status.get("ready_to_learn"))
    ]
    yield _of("learner_behind", "1 where updates are larger than usual to catch up.", behind)
    said = "Mean reward of the first and of the last rollouts that became ready."
    yield _of("mean_reward", said, _each("of", mean))


def _points(status: Mapping[str, object]) -> Iterator[Family]:
    served, trials = mapping(status.get("in_service")), mapping(status.get("trials"))
    monitors = mapping(status.get("monitors"))
    tables = (
        (served, "version", "policy_version", "The version that decides; 0 is untrained."),
        (served, "pinned", "policy_pinned", "1 if the version is pinned."),
        (trials, "exposure", "exposure_ratio", "The share of rollouts that the learner decides."),
        (
            trials,
            "champion",
            "champion_version",
            "The champion's version; absent if it is the host.",
        ),
        (
            trials,
            "agreement",
            "agreement_ratio",
            "Share of decisions in which learner and host agree.",
        ),
        (
            monitors,
            "entropy",
            "choice_entropy_ratio",
            "Entropy of choices, as a share of the maximum.",
        ),
        (monitors, "option_share", "top_option_ratio", "Share of the most frequent option."),
        (monitors, "cost", "safety_cost", "Mean safety cost of the newest rollouts."),
        (monitors, "cost_multiplier", "safety_cost_multiplier", "The multiplier of a safety cost."),
    )
    for table, key, name, said in tables:
        values = {point: mapping(row).get(key) for point, row in table.items()}
        yield _of(name, said, _each("point", values))
    stopped = {point: mapping(row).get("stopped") is not None for point, row in trials.items()}
    yield _of("learner_stopped", "1 where the learner decides nothing.", _each("point", stopped))
    difference: Values = [
        ({"point": point, "bound": bound}, value)
        for point, row in trials.items()
        for bound, value in _numbers(mapping(mapping(row).get("difference")))
        if bound in {"estimate", "lower", "upper"}
    ]
    yield _of(
        "difference", "Reward of the learner minus the control's, with its bounds.", difference
    )


def _counted(counters: Mapping[str, object]) -> Iterator[Family]:
    late = "a late reward removes its rollout again"
    tables = (
        (DROPPED, "dropped_events_total", "Events dropped, by reason."),
        (LEFT_OUT, "left_out", f"Rollouts and decisions not learned from; {late}."),
        (CRITIC_ONLY, "critic_only_total", "Decisions that trained only the critic."),
    )
    for begins, name, said in tables:
        own = {key.removeprefix(begins): n for key, n in counters.items() if key.startswith(begins)}
        yield _of(name, said, _each("reason", own))
    known = tuple(begins for begins, *_ in tables)
    rest = {key: n for key, n in counters.items() if not key.startswith(known)}
    said = "All other counters, by name."
    yield _of("counted_total", said, _each("counter", rest))


def _of(name: str, help_: str, values: Values) -> Family:
    type_ = "counter" if name.endswith("_total") else "gauge"
    return Family(name=f"{PREFIX}{name}", type=type_, help=help_, values=values)


def _one(value: object) -> Values:
    return [({}, float(value))] if isinstance(value, int | float) else []


def _each(label: str, values: object) -> Values:
    return [({label: name}, value) for name, value in sorted(_numbers(mapping(values)))]


def _numbers(table: Mapping[str, object]) -> Iterator[tuple[str, float]]:
    for name, value in table.items():
        if isinstance(value, int | float):
            yield name, float(value)


def _length(status: Mapping[str, object], key: str) -> float:
    found = status.get(key)
    return float(len(found)) if isinstance(found, list | Mapping) else 0.0
