"""Every hook and its arguments: pluggy project and entry-point group ``tau_live``.

A plugin is a module or an object with functions marked by ``hookimpl``. Each takes one frozen
object, so that fields can be added. Hooks are called one plugin after the other; one that raises
is skipped and counted, and after three times it is disabled until restart. They are plain
functions: ``async`` ones and pluggy's wrappers are refused.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec
import pluggy

from tau_live.core.events import Event
from tau_live.core.records import Reason, RolloutStatus, Span
from tau_live.core.sanitize import JsonObject

PROJECT = "tau_live"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class DecisionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A decision to be made at a decision point.

    Attributes:
        run_id: The host's run id.
        rollout_id: The rollout.
        point: The decision point.
        options: The options that may be chosen now, each with its features; never empty.
        context: The context.
        default: The host's own choice, if it named one.
    """

    run_id: str
    rollout_id: str
    point: str
    options: Mapping[str, JsonObject]
    context: JsonObject = msgspec.field(default_factory=dict)
    default: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A plugin's answer to a decision request.

    Attributes:
        option: One of the options of the request.
        probability: The probability with which it was chosen, in (0, 1]; ``None`` if unknown:
            such a decision is recorded but never learned from.
    """

    option: str
    probability: float | None = None

    def __post_init__(self) -> None:
        if self.probability is not None and not 0.0 < self.probability <= 1.0:
            raise ValueError(f"probability must be in (0, 1] or None, got {self.probability!r}")


class RolloutSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a finished rollout from which a reward can be inferred.

    Attributes:
        rollout_id: The rollout.
        host: The framework that ran it.
        run_id: The host's run id.
        session_id: The id that the runs of one conversation share.
        parent_id: Its parent rollout.
        status: How it ended.
        reason: Why it ended.
        has_assistant_reply: Whether the agent replied.
        session_completed: Whether it completed.
        turns: Rounds of the agent's loop.
        tool_errors: Tools that failed.
        safety_blocked: Whether a safety policy blocked anything.
        blocked_events: How many events were blocked.
        reason_codes: Reason codes of the safety policies applied, each once.
        input_chars: Characters of input.
        output_chars: Characters of output.
        spans: Its steps as stored, in order, after redaction.
        metadata: Its metadata from the host, including cost and output.
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
    metadata: JsonObject = msgspec.field(default_factory=dict)


class RewardPart(msgspec.Struct, frozen=True, kw_only=True):
    """One named part of an inferred reward; finite."""

    name: str
    value: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"the value of {self.name!r} must be finite, got {self.value!r}")


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """A text before it is stored, after known secrets have been removed.

    Attributes:
        text: The text; never empty.
        event: The kind of its event, such as ``run.start``; ``audit`` for the reason of an
            operator.
        field: The field of the event, such as ``input``, ``metadata`` or ``context``.
        key: Its key in open-ended data; empty elsewhere, and for a key itself.
    """

    text: str
    event: str
    field: str
    key: str = ""


class Promotion(msgspec.Struct, frozen=True, kw_only=True):
    """A change of which version decides, or of how much it decides.

    Attributes:
        point: The decision point.
        version: The learner's version; 0 is the untrained policy.
        was: The learner's version before; the same if only something else changed.
        pinned: Whether an operator chose it, so that updates do not replace it.
        at: Epoch seconds, UTC, of the change.
        change: What changed: ``version``, ``champion``, ``exposure``, or ``stopped`` if the
            learner was stopped or started again.
        champion: The version last proven better; ``None`` is the host's own choice.
        exposure: The share of rollouts that the learner may decide; ``None`` is all but
            ``TAU_LIVE_RL_CONTROL_SHARE``.
        stopped: Why the learner is stopped; ``None`` while it is not.
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


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """An alert for the operator.

    Attributes:
        kind: Its name, such as ``gate-hold``; each has a heading in the runbook.
        severity: ``critical``, ``warning`` or ``info``.
        subject: What it concerns, such as a decision point; empty if everything.
        sentence: What happened, in words.
        todo: The command to run next.
        facts: The numbers behind it, as plain data.
        at: Epoch seconds, UTC.
        store: The store's file.
        version: The version of tau-live that raised it.
        test: Whether it is a test alert, sent by ``tau-live alerts test``.
    """

    kind: str
    severity: str
    subject: str = ""
    sentence: str
    todo: str
    facts: JsonObject = msgspec.field(default_factory=dict)
    at: float
    store: str
    version: str
    test: bool = False


class Translator(Protocol):
    """Turns the lines of one stream of a host into events."""

    @property
    def bad(self) -> dict[str, int]:
        """How many lines could not be read, by problem."""
        ...

    def events(self, line: bytes) -> list[Event]:
        """Return the events of one more line; no line makes it raise."""
        ...

    def end(self) -> list[Event]:
        """Return the events that the end of the stream implies."""
        ...


Translate = Callable[[str, Callable[[], float]], Translator]
"""Makes a translator from the name of a stream and a clock of epoch seconds."""


class Register(Protocol):
    """Registers a host by name: how its lines are read, how it is attached, or both."""

    def __call__(self, name: str, make: Translate | None = None, *, adapter: object = None) -> None:
        """Register a host.

        Args:
            name: The host's name.
            make: Makes the translator of its lines.
            adapter: A ``tau_live.runtime.adapters.Adapter``.
        """
        ...


@hookspec
def observe(event: Event) -> None:
    """Receive every event as it is written, in the writer thread: be quick."""


@hookspec(firstresult=True)
def decide(request: DecisionRequest) -> Answer | None:
    """Choose one of ``request.options``, or return ``None`` to leave the choice to others.

    The first plugin that answers wins; tau-live's own comes last. Runs in the host's thread, under
    the deadline of a decision: no disk, no network.
    """


@hookspec
def infer_reward(summary: RolloutSummary) -> Iterable[RewardPart] | None:
    """Return named parts of a reward for a finished rollout, or ``None`` to add nothing.

    The parts of all plugins are combined; of two with the same name, the first one counts.
    tau-live's own plugin comes last.
    """


@hookspec
def redact_text(text: Text) -> str | None:
    """Return what may be kept of a text, or ``None`` to leave it as it is.

    Called for every text of every event before it is stored, recorded or passed to ``observe``,
    ``redact`` and ``infer_reward``; in open-ended data such as metadata and contexts, for each text
    and each key; also for the reasons that operators give (``event`` is ``audit``). Ids, and
    names of points and options, are excluded because rows are joined by them, and so are numbers
    and the names of declared rewards. Each plugin gets the result of the one before it.
    If one raises or has been disabled, ``[redacted:plugin]`` is stored instead: unchecked text is
    never kept.
    """


@hookspec
def redact(span: Span) -> Span | None:
    """Return a step without what must not be stored, or ``None`` to leave it as it is.

    For redaction that needs the whole step; single texts belong to ``redact_text``.

    ``msgspec.structs.replace(span, attributes=...)`` makes a changed copy. Each plugin
    gets the result of the one before it. If one raises or has been disabled, the span is
    written without its attributes: unchecked text is never kept.
    """


@hookspec
def gate_changed(snapshot: JsonObject) -> None:
    """Receive a change of the gate (hold or reset); ``snapshot`` is ``GateKeeper.snapshot()``."""


@hookspec
def update_finished(report: JsonObject) -> None:
    """Receive the report of an update, or why it was skipped."""


@hookspec
def policy_promoted(promotion: Promotion) -> None:
    """Receive a change in this process of which version decides, or of its share of rollouts.

    Also called when a champion is frozen or returns, a rung is climbed, or the learner is
    stopped: see ``promotion.change``.
    """


@hookspec
def alert_raised(alert: Alert) -> None:
    """Receive an alert: a hold, drops, drift, a promotion.

    Called in its own thread, in one of the processes that share a store, once when a condition
    begins, not while it goes on. Further alerts wait until the call returns.
    """


@hookspec
def register_hosts(register: Register) -> None:
    """Register hosts: ``register(name, make)`` and ``register(name, adapter=ADAPTER)``.

    ``make(stream, clock)`` returns a ``Translator`` of the lines that ``tau-live ingest`` reads; it
    is called once per stream. ``ADAPTER`` is a ``tau_live.runtime.adapters.Adapter``, with which
    tau-live attaches to a host once it is imported; the hook itself imports no host.
    """


@hookspec
def register_commands(cli: object) -> None:
    """Add commands to ``tau-live``; ``cli`` is its ``click.Group``."""
