"""The common part of adapters: the border to a host, one run of its agent, its texts.

Any thread may report; counts are kept under a lock. Nothing here knows a host: an adapter keeps one
``RunBook`` for each run and reports to it what its host does.
"""

import json
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from contextvars import Token
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeAlias, TypeGuard, TypeVar
from uuid import UUID

from tau_live.core import events as ev
from tau_live.core.errors import pass_on, suppress
from tau_live.core.events import Content
from tau_live.core.gate import Kind
from tau_live.core.offers import finite, text_of
from tau_live.core.sanitize import Limits, plain
from tau_live.decisions.runs import RunHandle, ending_of, error_of
from tau_live.runtime import api
from tau_live.runtime.adapters import InForce
from tau_live.runtime.runtime import Runtime


class Border:
    """Runs our steps in a host's call path, and contains their failures.

    Args:
        in_force: Returns the running system.
    """

    def __init__(self, in_force: InForce) -> None:
        self.in_force = in_force

    def safely(self, step: Callable[..., Any], *args: object, kind: Kind = Kind.COLLECTION) -> Any:
        """Run a step and return its result, or ``None`` if it fails.

        A cancellation goes through, and whatever else interrupts us.
        """
        try:
            return step(*args)
        except Exception as error:  # noqa: BLE001  # the border to the host
            pass_on(error)
            with suppress(Exception):
                runtime = self.in_force()
                if runtime is not None:
                    report_failure(runtime, kind, error)
            return None


def report_failure(runtime: "Runtime", kind: Kind, error: Exception) -> None:
    """Report a failure: of tau-live, which the gate counts, or in reading the host's objects.

    An adapter does nothing but read its host and report to the runtime. So an error that was raised
    before the runtime was reached comes from an object of the host's that has changed, lacks
    something or raises when read; three such objects in a row must not end a process's learning.
    """
    pass_on(error)
    unread = not _is_ours(error)
    if unread:
        runtime.count("host_objects_unread")
    runtime.report_failure(kind, error, unread=unread)


def _is_ours(error: BaseException) -> bool:
    traceback = error.__traceback__
    while traceback is not None:
        name = traceback.tb_frame.f_globals.get("__name__")
        if isinstance(name, str) and name.startswith("tau_live."):
            return True
        traceback = traceback.tb_next
    return False


TEXT_LIMIT = 64
"""The longest text, in characters, that a situation may contain."""

CONTENT = Limits(nodes=4_000)
"""The most that is read of one value in the host's thread; it takes some 20 ms at most."""

FEW = 100_000
"""The most items that are read of a host's collection; no real one seen so far had more."""

KNOWN_LIMIT = 32
"""The most entries of a run's own metadata that a situation contains."""


Situation: TypeAlias = Mapping[str, object]
"""The facts before a choice, by name: what `never` and the policy may go by."""

_PLAIN = frozenset({str, int, float, bool, type(None)})
_BUILT_IN = frozenset({dict, list, tuple, *_PLAIN})
_JSON = json.JSONEncoder(ensure_ascii=False)

K = TypeVar("K")
V = TypeVar("V")


def is_a(value: object, kind: type[K]) -> TypeGuard[K]:
    """Return whether a value is of a kind, by its type alone.

    ``isinstance`` would read the value's ``__class__``, which is the host's code.
    """
    return issubclass(type(value), kind)


def as_text(value: object) -> str:
    """Return a name or an id as text; any other value as bounded text, even if ``str`` raises."""
    if type(value) is str:
        return value
    if type(value) is UUID:  # the usual ones
        return _text_of_id(value)
    return str.__str__(value) if is_a(value, str) else text_of(value)


@lru_cache(maxsize=1_024)
def _text_of_id(value: UUID) -> str:
    """Return an id as text; a host passes each of them several times."""
    return str(value)


def few(value: Any) -> list[Any]:
    """Return the items of a host's collection; none of anything else.

    An iterator is not consumed, because it is its reader's, and an endless collection is cut off.
    """
    if type(value) is list or type(value) is tuple:  # the usual ones
        return list(value[:FEW])
    kind: Any
    for kind in (list, tuple, dict, set, frozenset, deque):
        if is_a(value, kind):
            return list(islice(kind.__iter__(value), FEW))
    kind = type(value)
    if is_a(value, str) or not hasattr(kind, "__len__") or hasattr(kind, "__next__"):
        return []
    return list(islice(value, FEW))


def content_of(value: object) -> Content | None:
    """Return a text as it is, and anything else as the JSON of what can be read of it.

    A host's own kind of text becomes a plain one: no encoder takes another. A value that raises
    when it is read still has a placeholder: it may well be of a user's own class.
    """
    if value is None:
        return None
    if is_a(value, str):
        return Content(text=str.__str__(value))
    data = value
    if type(value) not in _BUILT_IN:
        with suppress(Exception):  # the border to the host: a class of anybody's
            data = vars(value) if hasattr(type(value), "model_fields") else value
    return Content(text=_JSON.encode(plain(data, limits=CONTENT)))


def tool_call(id_: object, name: object, args: object) -> ev.ToolCall:
    """Return a call of a tool that a model's answer contains."""
    return ev.ToolCall(id=as_text(id_), name=as_text(name), args=content_of(args))


def situation_of(known: Situation, metadata: object = None) -> Situation:
    """Return the situation before a choice.

    Args:
        known: The adapter's own facts: the agent, the step, the numbers of messages and tools.
        metadata: The run's own, as its host has it; only its numbers, booleans and short texts
            are used.
    """
    situation = {
        name: item if type(item) in _PLAIN else as_text(item) for name, item in known.items()
    }
    items: list[tuple[object, object]] = []
    with suppress(Exception):  # the border to the host: a mapping of anybody's
        items = list(islice(metadata.items(), KNOWN_LIMIT)) if isinstance(metadata, Mapping) else []
    for name, value in items:
        plain_value = _plain_value(value)
        if plain_value is not None and is_a(name, str):
            situation[str.__str__(name)] = plain_value
    return situation


def _plain_value(value: object) -> object:
    """Return a number, a boolean or a short text as a built-in one; ``None`` for anything else."""
    if is_a(value, str):
        text = str.__str__(value)
        return text if len(text) <= TEXT_LIMIT else None
    return plain(value) if is_a(value, int) or is_a(value, float) else None


def positive_counts(numbers: Mapping[str, object]) -> dict[str, float]:
    """Return the finite numbers above 0, such as the tokens of a request by kind."""
    counts: dict[str, float] = {}
    for name, number in numbers.items():
        value = finite(number) if is_a(number, int) or is_a(number, float) else None
        if value is not None and value > 0:
            counts[as_text(name)] = value
    return counts


_NOTHING: Mapping[str, Any] = MappingProxyType({})
_REUSED = "#again-"


class RunBook:
    """Reports one run: its events, and the steps that are still open in it.

    Args:
        runtime: The runtime that takes the events.
        handle: The run.
        agent: The agent's name, which every event of the run carries.
        fidelity: How directly the host reports, which every event of the run carries too.

    Attributes:
        agent: The current agent's name, which a handoff changes.
        turn: The number of the current turn; ``None`` between turns.
        turn_span: The id of that turn's span.
    """

    def __init__(
        self,
        runtime: Runtime,
        handle: RunHandle,
        *,
        agent: str | None = None,
        fidelity: ev.Fidelity = ev.Fidelity.NATIVE,
    ) -> None:
        self.runtime = runtime
        self.handle = handle
        self.agent = agent
        self.turn: int | None = None
        self.turn_span: str | None = None
        self._fidelity = fidelity
        self._lock = threading.Lock()
        self._start = time.perf_counter()
        self._turns = 0
        self._turn_start = 0.0
        self._turn_usage: dict[str, float] = {}
        self._turn_calls = 0
        self._usage: dict[str, float] = {}
        self._costs: list[float] = []
        self._steps: dict[str, float] = {}
        self._calls: dict[str, int] = {}
        self._open_calls: dict[str, list[str]] = {}
        self._first_ms: dict[str, float] = {}

    def tell(self, kind: type[ev.Event], fields: ev.Fields = _NOTHING) -> None:
        """Report an event, in the current turn unless ``fields`` say otherwise."""
        is_turn = kind is ev.TurnStart or kind is ev.TurnEnd
        event: dict[str, object] = {
            "agent": self.agent,
            "turn": self.turn,
            "fidelity": self._fidelity,
            "span_id" if is_turn else "parent_span_id": self.turn_span,
            **fields,
        }
        self.runtime.tell(self.handle, kind, event)

    def begin_turn(self, number: int | None = None, *, span_id: str | None = None) -> None:
        """Report the start of a turn, after the end of the one before; ignore the current one.

        Args:
            number: The turn's number; ``None`` for the one after the last.
            span_id: The host's id of it; ``None`` makes one.
        """
        if not is_a(number, int):  # whatever else a host may pass
            number = None
        elif number == self.turn:
            return
        self.end_turn()
        with self._lock:
            self._turns += 1
            self.turn = self._turns if number is None else number
            self.turn_span = span_id or f"turn:{self.turn}"
            self._turn_start = time.perf_counter()
        self.tell(ev.TurnStart)

    def end_turn(self, fields: ev.Fields = _NOTHING) -> None:
        """Report the end of the current turn, if there is one."""
        with self._lock:
            turn, self.turn = self.turn, None
            span_id, self.turn_span = self.turn_span, None
            usage, self._turn_usage = self._turn_usage, {}
            calls, self._turn_calls = self._turn_calls, 0
        if turn is None:
            return
        counts = {"turn": turn, "span_id": span_id, "usage": usage, "tool_calls": calls}
        self.tell(ev.TurnEnd, {**counts, "duration_ms": since(self._turn_start), **fields})

    def start_model(self, span_id: str, fields: ev.Fields = _NOTHING) -> None:
        """Report a model's request; ``span_id`` is the host's id of it, or one made for it."""
        self._steps[f"model {as_text(span_id)}"] = time.perf_counter()
        self.tell(ev.ModelStart, {"span_id": span_id, **fields})

    def note_token(self, span_id: str) -> None:
        """Note that a piece of a model's answer came; ``end_model`` reports when the first did."""
        if span_id not in self._first_ms:
            start = self._steps.get(f"model {as_text(span_id)}")
            if start is not None:
                self._first_ms[span_id] = since(start)

    def end_model(
        self,
        span_id: str,
        fields: ev.Fields,
        *,
        usage: Mapping[str, float] = _NOTHING,
        cost: float | None = None,
    ) -> None:
        """Report a model's answer, with its duration, tokens and cost.

        Args:
            span_id: The request's.
            fields: Fields of ``events.ModelEnd``, without those that follow.
            usage: Tokens by kind, of this request alone.
            cost: In US dollars; ``None`` if unknown.
        """
        with self._lock:
            _count(self._usage, usage)
            _count(self._turn_usage, usage)
            if cost is not None:
                self._costs.append(cost)
        base = {"status": ev.Status.OK, "usage": {**usage}, "cost_usd": cost}
        self._answer(span_id, {**base, **fields})

    def fail_model(
        self, span_id: str, error: BaseException, *, status: ev.Status | None = None
    ) -> None:
        """Report that a model did not answer; without a ``status`` the kind of error decides it."""
        self._answer(span_id, {"status": status or ending_of(error)[0], "error": error_of(error)})

    def _answer(self, span_id: str, fields: ev.Fields) -> None:
        start = self._steps.pop(f"model {as_text(span_id)}", None)
        timing: dict[str, object] = {"ttft_ms": self._first_ms.pop(span_id, None)}
        if start is not None:
            timing["duration_ms"] = since(start)
        self.tell(ev.ModelEnd, {"span_id": span_id, **timing, **fields})

    def start_tool(self, call_id: str, tool: str, fields: ev.Fields = _NOTHING) -> str:
        """Report that a tool is called; return the id of the call's span, for ``end_tool``.

        Args:
            call_id: The model's id of it, or one made for it. A model may reuse an id for another
                call.
            tool: The tool's name.
            fields: More fields of ``events.ToolStart``.
        """
        span_id = self._call_span(call_id)
        self._steps[span_id] = time.perf_counter()
        with self._lock:
            self._turn_calls += 1
            self._open_calls.setdefault(as_text(call_id), []).append(span_id)
        base = {"call_id": call_id, "tool": tool, "tool_kind": "function", **_span_field(span_id)}
        self.tell(ev.ToolStart, {**base, **fields})
        return span_id

    def _call_span(self, call_id: str) -> str:
        with self._lock:
            number = self._calls[as_text(call_id)] = self._calls.get(as_text(call_id), 0) + 1
        return f"tool:{as_text(call_id)}" + (f"{_REUSED}{number}" if number > 1 else "")

    def end_tool(
        self,
        call_id: str,
        tool: str,
        fields: ev.Fields = _NOTHING,
        *,
        error: BaseException | None = None,
        status: ev.Status | None = None,
        span_id: str | None = None,
    ) -> None:
        """Report what a tool returned or raised.

        A call that waits for somebody, and one that was vetoed, did not fail.

        Args:
            call_id: As in ``start_tool``; an unknown id is a call of its own.
            tool: The tool's name.
            fields: More fields of ``events.ToolEnd``.
            error: The exception that it raised, if any.
            status: How it ended; ``None`` leaves that to the kind of error.
            span_id: The result of ``start_tool``; ``None`` is the oldest open call of that id.
        """
        status = status or ending_of(error)[0]
        is_error = status not in {ev.Status.INTERRUPTED, ev.Status.VETOED, ev.Status.OK}
        base: dict[str, object] = {"status": status, "is_error": is_error}
        if error is not None:
            base["error"] = error_of(error)
        span_id = self._close_call(as_text(call_id), span_id)
        start = self._steps.pop(span_id, None)
        if start is not None:
            base["duration_ms"] = since(start)
        self.tell(
            ev.ToolEnd, {"call_id": call_id, "tool": tool, **_span_field(span_id), **base, **fields}
        )

    def _close_call(self, call_id: str, span_id: str | None) -> str:
        """Return the id of the span of a call that ends."""
        with self._lock:
            open_spans = self._open_calls.get(call_id, [])
            if span_id is None and open_spans:
                span_id = open_spans[0]
            if span_id in open_spans:
                open_spans.remove(span_id)
            if not open_spans:
                self._open_calls.pop(call_id, None)
        return span_id or self._call_span(call_id)

    def record_retry(
        self, what: str, *, number: int | None = None, reason: str | None = None
    ) -> None:
        """Report a retry by the host: of a ``model``, a ``tool`` or an ``output``."""
        self.tell(ev.Retry, {"what": what, "number": number, "reason": reason})

    def hand_over(self, to: object, **fields: object) -> None:
        """Report that another agent takes over, whose name later events carry."""
        self.tell(ev.Handoff, {"from_agent": self.agent, "to_agent": to, **fields})
        if is_a(to, str):
            self.agent = to

    def interrupt(
        self, reason: str, *, resume_key: str | None = None, payload: ev.Content | None = None
    ) -> None:
        """Report that the run waits for somebody: its attempt ends here, the rollout does not.

        ``Runtime.begin_run(..., resumed=...)`` under the same key goes on with it.
        """
        self.end_turn()
        base = {"reason": reason, "resume_key": resume_key, "payload": payload}
        with self._lock:
            raw = {"usage": {**self._usage}, "cost_usd": sum(self._costs) if self._costs else None}
        self.tell(ev.RunInterrupt, {**base, "raw": raw})
        self.handle.ended = True

    def end(self, error: BaseException | None = None, fields: ev.Fields = _NOTHING) -> None:
        """Report that the run is over, with what it used; nothing after an interruption."""
        try:
            self.end_turn()
        finally:  # a run whose end cannot be reported in full still ends
            with self._lock:
                usage, costs = {**self._usage}, [*self._costs]
            base = {
                "agent": self.agent,
                "usage": usage,
                "cost_usd": sum(costs) if costs else None,
                "turns": self._turns,
                "duration_ms": since(self._start),
                "fidelity": self._fidelity,
            }
            self.runtime.end_run(self.handle, error, {**base, **fields})


def _count(counts: dict[str, float], more: Mapping[str, float]) -> None:
    for kind, number in more.items():
        counts[kind] = counts.get(kind, 0) + number


def _span_field(span_id: str) -> ev.Fields:
    """Return the span of a call whose id was used before; else the id itself names it."""
    return {"span_id": span_id} if _REUSED in span_id else {}


def enclosing_run() -> RunHandle | None:
    """Return the innermost run here, of a host or the API, ended or not; ``None`` outside any."""
    outer = api.current()
    return None if outer is None else outer.handle


def reset(*tokens: Token[Any] | None) -> None:
    """Reset context variables; those of another context than this one stay as they are."""
    for token in tokens:
        if token is not None:
            with suppress(ValueError):
                token.var.reset(token)


def remember(known: "OrderedDict[K, V]", key: K, value: V, *, limit: int) -> None:
    """Add a value as the newest, and drop the oldest beyond ``limit``."""
    known[key] = value
    known.move_to_end(key)
    if len(known) > limit:
        known.popitem(last=False)


def since(start: float) -> float:
    """Return the milliseconds since a time of ``time.perf_counter``."""
    return (time.perf_counter() - start) * 1e3
