"""Every hook, and what it is called with: pluggy project and entry-point group ``tau_live``.

A plugin is a module or an object with functions marked by ``hookimpl``. Each takes one frozen
object, so that fields can be added. Hooks are called one plugin after the other; one that raises
is skipped and counted, and after three times it is disabled until restart. They are plain
functions: ``async`` ones and pluggy's wrappers are refused.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pluggy

from tau_live.events import Event
from tau_live.rollouts import Reason, RolloutStatus, Span

PROJECT = "tau_live"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRequest:
    """An agent asks what to do at a decision point.

    Attributes:
        run_id: The host's own key of the run.
        rollout_id: Our record of it.
        point: The decision point.
        options: What may be chosen now, each with its features; never empty.
        context: What is known about the situation.
        default: What the host would do without us, if it said so.
    """

    run_id: str
    rollout_id: str
    point: str
    options: Mapping[str, Mapping[str, object]]
    context: Mapping[str, object] = field(default_factory=dict)
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a plugin chose.

    Attributes:
        option: One of the options of the request.
        probability: With what probability it was chosen, in (0, 1]; ``None`` if nobody knows,
            and then the decision is recorded but never learned from.
    """

    option: str
    probability: float | None = None

    def __post_init__(self) -> None:
        if self.probability is not None and not 0.0 < self.probability <= 1.0:
            raise ValueError(f"probability must be in (0, 1] or None, got {self.probability!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSummary:
    """How a finished rollout went, as far as a reward can be inferred from it.

    Attributes:
        rollout_id: The rollout.
        host: The framework that ran it.
        run_id: The host's own key of the run.
        session_id: What runs of one conversation share.
        parent_id: The rollout inside which it ran.
        status: How it ended.
        reason: Why it ended.
        has_assistant_reply: Whether the agent said anything.
        session_completed: Whether it ended by itself.
        turns: Rounds of the agent's loop.
        tool_errors: Tools that failed.
        safety_blocked: Whether a safety policy blocked anything.
        blocked_events: How often.
        reason_codes: Why safety policies were applied, each code once.
        input_chars: Characters that went in.
        output_chars: Characters that came out.
        spans: What is stored of its steps, in their order, after redaction.
        metadata: What its host told of it, its cost and output among it.
    """

    rollout_id: str
    host: str
    status: RolloutStatus
    run_id: str = ""
    session_id: str | None = None
    parent_id: str | None = None
    reason: Reason | None = None
    has_assistant_reply: bool = False
    session_completed: bool = False
    turns: int = 0
    tool_errors: int = 0
    safety_blocked: bool = False
    blocked_events: int = 0
    reason_codes: frozenset[str] = frozenset()
    input_chars: int = 0
    output_chars: int = 0
    spans: tuple[Span, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPart:
    """One named part of an inferred reward; finite."""

    name: str
    value: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"the value of {self.name!r} must be finite, got {self.value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text on its way into the store, without the secrets that tau-live knows.

    Attributes:
        text: What it says; never empty.
        event: The kind of the event in which it stands, such as ``run.start``; ``audit`` for what
            an operator says.
        field: The field of the event, such as ``input``, ``metadata`` or ``context``.
        key: The name under which it stands in open-ended data; empty elsewhere, and for a name.
    """

    text: str
    event: str
    field: str
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """Somebody else decides from now on, or decides more or less than before.

    Attributes:
        point: The decision point.
        version: What the learner decides with; 0 is the untrained policy.
        was: What it decided with before; the same where only something else changed.
        pinned: Whether an operator chose it, so that updates do not replace it.
        at: Epoch seconds, UTC, of the change.
        change: What changed: ``version``, ``champion``, ``exposure``, or ``stopped`` where the
            learner was taken out or may decide again.
        champion: The version last proven better; ``None`` is the host's own choice.
        exposure: The share of rollouts that the learner may decide; ``None`` is all but
            ``TAU_LIVE_RL_CONTROL_SHARE``.
        stopped: Why the learner decides nothing; ``None`` while it may.
    """

    point: str
    version: int
    was: int
    pinned: bool
    at: float
    change: str = "version"
    champion: int | None = None
    exposure: float | None = None
    stopped: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something that somebody should hear of.

    Attributes:
        kind: Its name, such as ``gate-hold``; each has a heading in the runbook.
        severity: ``critical``, ``warning`` or ``info``.
        subject: What it concerns, such as a decision point; empty for all of it.
        sentence: What happened, in words.
        todo: The command to look next.
        facts: The numbers behind it, as plain data.
        at: Epoch seconds, UTC.
        store: The store's file.
        version: The tau-live that raised it.
        suppressed: Alerts of its kind that were not told since the last one that was.
        test: Whether it is a test alert, sent by ``tau-live alerts test``.
    """

    kind: str
    severity: str
    subject: str = ""
    sentence: str
    todo: str
    facts: Mapping[str, object] = field(default_factory=dict)
    at: float
    store: str
    version: str
    suppressed: int = 0
    test: bool = False


class Translator(Protocol):
    """Turns the lines of one stream of a host into events."""

    @property
    def bad(self) -> dict[str, int]:
        """How many lines were not understood, by what is wrong with them."""
        ...

    def events(self, line: bytes) -> list[Event]:
        """Return what one more line tells; no line makes it raise."""
        ...

    def end(self) -> list[Event]:
        """Return what is to be said at the end of the stream."""
        ...


Translate = Callable[[str, Callable[[], float]], Translator]
"""Makes a translator from the name of a stream and a clock of epoch seconds."""


class Register(Protocol):
    """Makes a host known by its name: how its lines are read, how it is attached, or both."""

    def __call__(self, name: str, make: Translate | None = None, *, adapter: object = None) -> None:
        """Register a host.

        Args:
            name: The host's name.
            make: Makes what turns its lines into events.
            adapter: A ``tau_live.adapters.Adapter``.
        """
        ...


@hookspec
def observe(event: Event) -> None:
    """See every event, as it is written; in the thread that writes, so be quick."""


@hookspec(firstresult=True)
def decide(request: DecisionRequest) -> Answer | None:
    """Choose one of ``request.options``, or return ``None`` to leave the choice to others.

    The first plugin that answers wins; ours is asked last. In the host's thread, under the
    deadline of a decision: no disk, no network.
    """


@hookspec
def infer_reward(summary: RolloutSummary) -> Iterable[RewardPart] | None:
    """Return named parts of a reward for a finished rollout, or ``None`` to add nothing.

    The parts of all plugins are put together; of two with one name, that of the plugin that was
    asked first counts. Ours is asked last.
    """


@hookspec
def redact_text(text: Text) -> str | None:
    """Return what may be kept of a text, or ``None`` to leave it as it is.

    Asked for every text of every event, before it is stored, recorded or shown to ``observe``,
    ``redact`` and ``infer_reward``; of open-ended data such as metadata and contexts for each text
    and each name in it; also for the reasons that operators give (``event`` is ``audit``). Ids and
    the names of points and options are none, because rows are joined by them, nor are numbers and
    the names of rewards that settings declare. Each plugin gets what the one before it returned.
    Where one raises or has been disabled, ``[redacted:plugin]`` is kept: what was not looked at is
    not.
    """


@hookspec
def redact(span: Span) -> Span | None:
    """Return a step without what must not be stored, or ``None`` to leave it as it is.

    For what only the whole step tells; texts wherever they stand are ``redact_text``'s.

    ``msgspec.structs.replace(span, attributes=...)`` makes another one of it. Each plugin
    gets what the one before it returned. Where one raises or has been disabled, the span is
    written without its attributes: what was not looked at is not kept.
    """


@hookspec
def gate_changed(snapshot: Mapping[str, object]) -> None:
    """Hear that the gate went to hold or was reset; ``snapshot`` is ``GateKeeper.snapshot()``."""


@hookspec
def update_finished(report: Mapping[str, object]) -> None:
    """Hear what an update did, or why there was none."""


@hookspec
def policy_promoted(promotion: Promotion) -> None:
    """Hear that another version decides in this process from now on, or another share of rollouts.

    Also called when a champion is frozen or comes back, a rung is climbed, or the learner is taken
    out: ``promotion.change`` says which.
    """


@hookspec
def alert_raised(alert: Alert) -> None:
    """Hear of something that somebody should hear of: a hold, drops, drift, a promotion.

    Called in a thread of its own, in one of the processes that share a store, and of one kind at
    most once in ``TAU_LIVE_RL_ALERT_INTERVAL_S`` seconds. While an alert is told the next ones
    wait.
    """


@hookspec
def register_hosts(register: Register) -> None:
    """Make hosts known: ``register(name, make)`` and ``register(name, adapter=ADAPTER)``.

    ``make(stream, clock)`` returns a ``Translator`` of the lines that ``tau-live ingest`` reads; it
    is called once for each stream. ``ADAPTER`` is a ``tau_live.adapters.Adapter``, with which every
    door attaches to a host that is imported; the hook itself imports no host.
    """


@hookspec
def register_commands(cli: object) -> None:
    """Add commands to ``tau-live``; ``cli`` is its ``click.Group``."""
