"""The contents of a report: numbers, texts and lists of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tau_live.learn.monitoring import OptionAlarm
from tau_live.operate.records import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Mean:
    """A mean with its interval of 95 percent confidence.

    Attributes:
        count: How many numbers.
        mean: Their mean; ``None`` without any.
        lower: Lower end of the interval; ``None`` where there are too few.
        upper: Upper end of the interval; ``None`` likewise.
    """

    count: int = 0
    mean: float | None = None
    lower: float | None = None
    upper: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The median and the 95 % point of some numbers.

    Attributes:
        count: How many numbers.
        median: Half are below; ``None`` without any.
        high: 95 of 100 are below; ``None`` without any.
    """

    count: int = 0
    median: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Rollouts that began one after the other.

    Attributes:
        first: Position of the first of them in the order of arrival.
        last: Position of the last.
        began_at: When the first of them began, in epoch seconds; ``None`` if none did.
        looked_at: How many of them were examined; the following counts are of these.
        succeeded: How many succeeded.
        failed: How many failed.
        cancelled: How many were cancelled.
        open: How many have not ended.
        waiting: How many ended without a reward so far.
        left_out: How many teach nothing, because of their rewards.
        reward: Mean reward of those that have one.
        duration_s: Duration from start to end, in seconds.
        cost_usd: In US dollars, of those whose cost is known.
        latency_us: Latency of a decision in the host's thread, in microseconds.
    """

    first: int
    last: int
    began_at: float | None
    looked_at: int
    succeeded: int
    failed: int
    cancelled: int
    open: int
    waiting: int
    left_out: int
    reward: Mean
    duration_s: Spread
    cost_usd: Spread
    latency_us: Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A change of who decides, or a hold or reset of the gate.

    Attributes:
        at: Epoch seconds, UTC.
        place: Approximate position in the order of rollouts; ``None`` without any.
        kind: ``promotion``, ``rollback``, ``exposure``, ``stop``, ``hold`` or ``reset``.
        point: The decision point; ``None`` for the gate, which concerns all.
        who: The process or the operator.
        sentence: What happened, and why.
    """

    at: float
    place: float | None
    kind: str
    point: str | None
    who: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The decisions at a point in one stretch.

    Attributes:
        first: Position of the first rollout of the stretch.
        last: Position of the last.
        exposure: The share of rollouts that the learner decided.
        share: The mean probability of the learner's assignment.
        learner: Reward of the rollouts that the learner decided.
        control: Reward of the rollouts that the control decided.
        options: How often each option was applied.
    """

    first: int
    last: int
    exposure: Mean = Mean()
    share: float | None = None
    learner: Mean = Mean()
    control: Mean = Mean()
    options: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """The applied options where the context had one value.

    Attributes:
        value: The value, or the range of numbers.
        decisions: How many decisions had it.
        options: How often each option was applied.
    """

    value: str
    decisions: int
    options: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How choices depend on one key of the context.

    Attributes:
        key: The key.
        information: How much it determines the choice, in ``[0, 1]``: the mutual information over
            the entropy of the choice.
        values: Its values, the most frequent or the smallest first.
    """

    key: str
    information: float
    values: Sequence[Habit]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Decisions with about the same value estimate.

    Attributes:
        expected: The mean value estimate.
        came: The mean return.
    """

    expected: float
    came: Mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The estimate of a version from the log before it, and its live rewards.

    Attributes:
        version: The version that decided most of the stretch.
        first: The first rollout of the stretch, by ``ready_seq``.
        last: The last rollout.
        log: How many rollouts before it the estimate is from.
        estimate: Doubly robust, or of runs of several steps weighted per decision, with the
            bootstrap's interval; its mean is ``None`` where it was refused.
        live: Returns of the rollouts of the stretch at the point.
        refused: Why there is no estimate; ``None`` where there is one.
    """

    version: int
    first: int
    last: int
    log: int
    estimate: Mean
    live: Mean
    refused: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """How far off the value estimate was, in one stretch.

    Attributes:
        first: The first rollout of the stretch, by ``ready_seq``.
        last: The last rollout.
        error: The return less the value estimate.
    """

    first: int
    last: int
    error: Mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The facts about one decision point.

    Attributes:
        point: Its name.
        decisions: How many of its decisions were examined.
        options: The applied options, the most frequent first; the rest is ``(others)``.
        stretches: Its decisions over time, in the stretches of all rollouts.
        contexts: The keys that choices depend on, the most informative first.
        lived: How many of the newest rewarded rollouts the following fields are from.
        calibration: The return against the value estimate, by estimate.
        error: The return less the value estimate, over all of them.
        errors: The same, over time.
        compared: Estimates from the log against live rewards.
        alarms: Options whose rewards changed, as the monitors detected.
    """

    point: str
    decisions: int
    options: Sequence[str]
    stretches: Sequence[Decided]
    contexts: Sequence[Habits]
    lived: int = 0
    calibration: Sequence[Bin] = ()
    error: Mean = Mean()
    errors: Sequence[Error] = ()
    compared: Sequence[Compared] = ()
    alarms: Sequence[OptionAlarm]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer to a first question of an operator.

    Attributes:
        state: ``good``, ``doubtful`` or ``bad``.
        answer: One or a few words.
        sentence: One or more sentences.
    """

    state: str
    answer: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The answers to the first questions of an operator.

    Attributes:
        on: Is it on?
        healthy: Is it healthy?
        learning: Is it learning?
        next: What to do next, the most urgent first.
    """

    on: Answer
    healthy: Answer
    learning: Answer
    next: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """A report.

    Attributes:
        at: Epoch seconds, UTC.
        store: The store's file.
        rollouts: How many there are.
        looked_at: How many of them were examined.
        summary: The answers to an operator's first questions.
        status: The output of ``tau-live status --json``.
        stretches: All rollouts, in the order in which they began.
        marks: Changes of who decides, oldest first.
        points: The decision points, the busiest first.
        points_left_out: How many further decision points there are.
        drops: Dropped or refused events, by counter.
        untaught: Rollouts and decisions that taught nothing, by reason.
    """

    at: float
    store: str
    rollouts: int
    looked_at: int
    summary: Summary
    status: Status
    stretches: Sequence[Stretch]
    marks: Sequence[Mark]
    points: Sequence[Point]
    points_left_out: int
    drops: Mapping[str, int]
    untaught: Mapping[str, int]
