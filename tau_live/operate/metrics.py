"""The figures of a store as metric families, and in the Prometheus text format. Pure.

Source: the naming practices of Prometheus: base units, a unit or ``_total`` at the end, labels of
few values.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from tau_live.core.reasons import CRITIC_ONLY, DROPPED, LEFT_OUT
from tau_live.core.sanitize import real
from tau_live.operate.records import Status

PREFIX = "tau_live_"
MOST_VALUES = 100
"""Most values of a metric; the others are left out and counted."""
MOST_CHARS = 128
"""Most characters of a label."""

Labels = Mapping[str, str]
Values = list[tuple[Labels, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A metric with all its values.

    Attributes:
        name: Its stable name.
        type: ``gauge`` or ``counter``.
        help: One sentence.
        values: One for each combination of labels.
    """

    name: str
    type: str
    help: str
    values: Values


def families(status: Status, *, version: str, last_raised: Mapping[str, float]) -> list[Family]:
    """Return the metrics of a status; an unknown figure has no value.

    Args:
        status: The result of ``status_of``.
        version: The version of tau-live that wrote it.
        last_raised: When an alert of each kind was last raised, in epoch seconds.
    """
    shown, left_out = [], 0
    for family in _families(status, version=version, last_raised=last_raised):
        if family.values:
            kept = _distinct(family.values)[:MOST_VALUES]
            left_out += len(family.values) - len(kept)
            shown.append(replace(family, values=kept))
    return [*shown, _left_out(left_out)]


def known_families() -> list[Family]:
    """Return every metric that there is, as of an empty status."""
    return [*_families(Status(), version="", last_raised={}), _left_out(0)]


def _left_out(count: int) -> Family:
    help_ = "Label values left out because a metric has too many."
    return _family("values_left_out", help_, [({}, count)])


def _distinct(values: Values) -> Values:
    """Return the first value of each set of labels; a file with duplicates is not read at all."""
    kept: dict[tuple[str, ...], tuple[Labels, float]] = {}
    for labels, value in values:
        kept.setdefault(tuple(map(_label, labels.values())), (labels, value))
    return [*kept.values()]


def text_of(metrics: Iterable[Family]) -> bytes:
    """Return metrics in the Prometheus text format.

    Raises:
        ImportError: prometheus-client is not installed.
    """
    from prometheus_client import CollectorRegistry, Metric, generate_latest
    from prometheus_client.registry import Collector

    class Families(Collector):
        def collect(self) -> Iterator[Metric]:
            for family in metrics:
                metric = Metric(family.name.removesuffix("_total"), family.help, family.type)
                for labels, value in family.values:
                    known = {name: _label(text) for name, text in labels.items()}
                    metric.add_sample(family.name, known, value)
                yield metric

    registry = CollectorRegistry()
    registry.register(Families())
    return generate_latest(registry)


def _label(text: str) -> str:
    """Return a label without unprintable characters, cut to ``MOST_CHARS``."""
    text = text.encode(errors="replace").decode()
    cut = text if len(text) <= MOST_CHARS else f"{text[: MOST_CHARS - 3]}..."
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in cut)


def _families(status: Status, *, version: str, last_raised: Mapping[str, float]) -> list[Family]:
    gate, ready, report = status.gate, status.ready_to_learn, status.last_report or {}
    rollouts = {name: count for name, count in status.rollouts.items() if name != "completed"}
    means = {"first": status.mean_reward.first, "last": status.mean_reward.last}
    return [
        _family(
            "build_info",
            "The tau-live version that wrote this; always 1.",
            [({"version": version}, 1)],
        ),
        _family("written_timestamp_seconds", "When this was written.", _single(status.at)),
        _family(
            "gate_passes", "1 while the gate passes, 0 while it holds.", _single(not gate.holds)
        ),
        _family(
            "gate_changed_timestamp_seconds",
            "When the gate last changed.",
            _single(gate.since),
        ),
        _family(
            "gate_hold_info",
            "1 with the reason while the gate holds; absent while it passes.",
            [({"reason": gate.reason or "unknown"}, 1.0)] if gate.holds else [],
        ),
        _family(
            "gate_failure_streak",
            "Failures in a row, by kind.",
            _with_label("kind", gate.streaks),
        ),
        _family(
            "kill_switch_on",
            "1 while the kill switch is on.",
            _single(status.kill_switch is not None),
        ),
        _family(
            "paused",
            "1 for each part that is paused.",
            [({"part": part}, 1.0) for part in status.paused],
        ),
        _family("processes", "Processes that are attached.", _single(len(status.processes))),
        _family(
            "processes_held_in_memory",
            "Processes that hold in memory because the store cannot be written.",
            _single(len(status.held_in_memory)),
        ),
        _family(
            "silent_processes",
            "Attached processes that cannot write.",
            _single(len(status.silent)),
        ),
        _family(
            "last_update_timestamp_seconds",
            "When the last update ended.",
            _single(real(report.get("at"))),
        ),
        _family(
            "store_used_bytes",
            "Size of the store, without free pages and its log.",
            _single(status.retention.used_mb * 1e6),
        ),
        _family(
            "rollouts",
            "Stored rollouts, by status.",
            _with_label("status", rollouts),
        ),
        _family(
            "rollouts_waiting_for_reward",
            "Ended rollouts that wait for a reward, counted up to 10000.",
            _single(status.waiting_for_reward),
        ),
        _family(
            "rollouts_ready",
            "Rollouts that wait to be learned from, counted up to 10000.",
            _with_label("point", ready),
        ),
        _family(
            "learner_behind",
            "1 where updates are larger than usual to catch up.",
            [({"point": point}, float(point in status.behind)) for point in ready],
        ),
        _family(
            "mean_reward",
            "Mean reward of the first and of the last rollouts that became ready.",
            _with_label("of", means),
        ),
        *_points(status),
        *_counters(status.counters),
        _family(
            "alert_last_raised_timestamp_seconds",
            "When an alert of a kind was last raised.",
            _with_label("kind", last_raised),
        ),
    ]


def _points(status: Status) -> Iterator[Family]:
    serving, trials, figures = status.in_service.items(), status.trials.items(), status.monitors
    of_points: tuple[tuple[str, str, Mapping[str, float | None]], ...] = (
        ("policy_version", "The version that decides; 0 is untrained.",
         {point: row.version for point, row in serving}),
        ("policy_pinned", "1 if the version is pinned.",
         {point: row.pinned for point, row in serving}),
        ("exposure_ratio", "The share of rollouts that the learner decides.",
         {point: trial.exposure for point, trial in trials}),
        ("champion_version", "The champion's version; absent if it is the host.",
         {point: trial.champion for point, trial in trials}),
        ("agreement_ratio", "Share of decisions in which learner and host agree.",
         {point: trial.agreement for point, trial in trials}),
        ("choice_entropy_ratio", "Entropy of choices, as a share of the maximum.",
         {point: of.entropy for point, of in figures.items()}),
        ("top_option_ratio", "Share of the most frequent option.",
         {point: of.option_share for point, of in figures.items()}),
        ("safety_cost", "Mean safety cost of the newest rollouts.",
         {point: of.cost for point, of in figures.items()}),
        ("safety_cost_multiplier", "The multiplier of a safety cost.",
         {point: of.cost_multiplier for point, of in figures.items()}),
        ("learner_stopped", "1 where the learner decides nothing.",
         {point: trial.stopped is not None for point, trial in trials}),
    )  # fmt: skip
    for name, help_, values in of_points:
        yield _family(name, help_, _with_label("point", values))
    difference: Values = [
        ({"point": point, "bound": bound}, value)
        for point, trial in trials
        for bound, value in trial.difference.items()
        if bound != "plain" and value is not None
    ]
    help_ = "Reward of the learner minus the control's, with its bounds."
    yield _family("difference", help_, difference)


def _counters(counters: Mapping[str, int]) -> Iterator[Family]:
    late = "a late reward removes its rollout again"
    rest = dict(counters)
    for begins, name, help_ in (
        (DROPPED, "dropped_events_total", "Events dropped, by reason."),
        (LEFT_OUT, "left_out", f"Rollouts and decisions not learned from; {late}."),
        (CRITIC_ONLY, "critic_only_total", "Decisions that trained only the critic."),
    ):
        own = {
            key.removeprefix(begins): rest.pop(key) for key in counters if key.startswith(begins)
        }
        yield _family(name, help_, _with_label("reason", own))
    yield _family("counted_total", "All other counters, by name.", _with_label("counter", rest))


def _family(name: str, help_: str, values: Values) -> Family:
    type_ = "counter" if name.endswith("_total") else "gauge"
    return Family(name=f"{PREFIX}{name}", type=type_, help=help_, values=values)


def _single(value: float | None) -> Values:
    return [] if value is None else [({}, float(value))]


def _with_label(label: str, values: Mapping[str, float | None]) -> Values:
    known = {name: value for name, value in values.items() if value is not None}
    return [({label: name}, float(value)) for name, value in sorted(known.items())]
