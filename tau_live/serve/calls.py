"""Forwarded calls in the store: which attempts they belong to, their spans and what they cost."""

import asyncio
import json
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from tau_live.core.errors import StoreError, UnknownError
from tau_live.core.guard import logger, text_of
from tau_live.core.prices import cost_of
from tau_live.core.records import ATTEMPT_ENDS, Attempt, AttemptStatus, Span
from tau_live.core.redaction import Redactor
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Content, Settings
from tau_live.prompts.budget import tokens_at_most
from tau_live.serve.attribution import Attribution
from tau_live.serve.guard import RefusedError
from tau_live.store.opening import open_at
from tau_live.store.records import Limits
from tau_live.store.roles import Store

T = TypeVar("T")

MOST_WAITING = 10_000
"""How many calls may wait to be stored; further ones are not stored, and counted."""

UNSTORED = "dropped_proxy_calls"
UNLOGGED = "dropped_proxy_log_lines"
"""The counter of calls that could not be stored."""


class Reserved(NamedTuple):
    """What a call may use of the budget of an optimization.

    Attributes:
        run_id: The run.
        tokens: Tokens.
        usd: US dollars.
    """

    run_id: str
    tokens: int
    usd: float


class Forwarded(NamedTuple):
    """A call that was forwarded.

    Attributes:
        attribution: The attempt that it belongs to; ``None`` for none.
        endpoint: The path at the upstream, such as ``/v1/chat/completions``.
        request: The body of the request.
        response: The body of the answer, or its beginning.
        response_bytes: How long that was.
        status: The HTTP status; ``None`` if there is no answer.
        is_streamed: Whether the answer is a stream of events.
        started_at: Epoch seconds.
        first_byte_ms: Milliseconds until its first byte; ``None`` without one.
        duration_ms: Milliseconds until its end.
        error: What went wrong; ``None`` if nothing did.
        reserved: What it may use of a budget.
    """

    attribution: Attribution | None
    endpoint: str
    request: bytes
    response: bytes
    response_bytes: int
    status: int | None
    is_streamed: bool
    started_at: float
    first_byte_ms: float | None
    duration_ms: float
    error: str | None
    reserved: Reserved | None


class Calls:
    """The store of forwarded calls, in a thread of its own.

    Args:
        settings: Where the store is, prices, and whether texts are kept.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._redactor = Redactor(settings.content.value, settings.payload_limit)
        self._pool = ThreadPoolExecutor(1, "tau-live-proxy")
        self._store: Store | None = None
        self._pool.submit(self._opened_store)  # where that fails, the first call tries again
        self._waiting: deque[Forwarded] = deque()
        self._uncounted: Counter[str] = Counter()
        self.lost = 0

    def _opened_store(self) -> Store:
        """Return the store, opened by the first call that needs it. Raises: StoreError."""
        if self._store is None:
            own = self._settings
            self._store = open_at(own.store, key_file=own.audit_key_file)
        return self._store

    def close(self) -> None:
        """Store what waits, and close the store."""
        self._pool.submit(self._close).result()
        self._pool.shutdown()

    def _close(self) -> None:
        with suppress(StoreError):
            self._count(self._opened_store())
        if self._store is not None:
            self._store.close()

    def lose(self, name: str, count: int = 1) -> None:
        """Count what was lost; the counter is stored as soon as the store takes it."""
        if name == UNSTORED:
            self.lost += count
        self._uncounted[name] += count

    def _count(self, store: Store) -> None:
        """Store the counters that are not stored yet, in a transaction or in one of its own."""
        counted = dict(self._uncounted)
        if counted:
            store.counters.add(counted)
            self._uncounted.subtract(counted)

    async def admit(self, attribution: Attribution, body: bytes) -> Reserved | None:
        """Check that an attempt may make a call, and take room for it in its budget.

        Raises:
            RefusedError: It may not.
            StoreError: The store cannot be read.
        """
        return await self._run(lambda store: self._admit(store, attribution, body))

    async def _run(self, do: Callable[[Store], T]) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: do(self._opened_store()))

    def _admit(self, store: Store, attribution: Attribution, body: bytes) -> Reserved | None:
        rollout = store.rollouts.find_rollout(attribution.rollout_id)
        attempts = [] if rollout is None else store.rollouts.attempts(rollout.rollout_id)
        attempt = next((each for each in attempts if each.number == attribution.attempt), None)
        if rollout is None or attempt is None:
            text = f"attempt {attribution.attempt} of rollout {attribution.rollout_id!r} is unknown"
            raise RefusedError(404, "training_proxy_unknown_rollout", text)
        if _is_over(attempt, attempts):
            text = f"attempt {attempt.number} of {rollout.rollout_id!r} is {attempt.status}"
            raise RefusedError(409, "training_proxy_attempt_ended", text)
        return None if rollout.queue is None else self._reserve(store, rollout.queue, body)

    def _reserve(self, store: Store, run_id: str, body: bytes) -> Reserved | None:
        """Take room in the budget of an optimization, whose queue is called like it."""
        try:
            run = store.optimizations.run(run_id)
        except UnknownError:
            return None
        known = run.report.get("limits")
        request = as_json(body)
        most = request.get("max_completion_tokens") or request.get("max_tokens") or 0
        output = most if isinstance(most, int) else 0
        given = tokens_at_most(body.decode("utf-8", "replace"))
        usage = {"input_tokens": float(given), "output_tokens": float(output)}
        reserved = Reserved(run_id, given + output, self._cost(usage, request) or 0.0)
        limits = Limits(**known) if isinstance(known, dict) else Limits()
        if not store.optimizations.reserve(
            run_id, limits, tokens=reserved.tokens, usd=reserved.usd
        ):
            text = f"the budget of {run_id} has no room for the call"
            raise RefusedError(429, "training_proxy_budget_exhausted", text)
        return reserved

    def _cost(self, usage: Mapping[str, float], body: Mapping[str, Any]) -> float | None:
        model = body.get("model")
        own = self._settings
        name = model if isinstance(model, str) else None
        return cost_of(usage, model=name, prices=own.prices, known=own.known_prices)

    def add(self, call: Forwarded) -> None:
        """Store a call soon; nothing is raised, and nobody waits."""
        if len(self._waiting) >= MOST_WAITING:
            self.lose(UNSTORED)
            return
        self._waiting.append(call)
        if len(self._waiting) == 1:
            self._pool.submit(self._add_all)

    def _add_all(self) -> None:
        """Store the calls that wait, as many as there are in one transaction."""
        while self._waiting:
            calls = [self._waiting.popleft() for _ in range(len(self._waiting))]
            try:
                store = self._opened_store()
                with store.begin():
                    for call in calls:
                        if call.attribution is not None:
                            self._store_call(store, call, call.attribution)
                self._count(store)
            except StoreError as error:
                self.lose(UNSTORED, len(calls))
                effect = "they are counted"
                logger().error("proxy_call_not_stored", error=text_of(error), effect=effect)

    def _store_call(self, store: Store, call: Forwarded, own: Attribution) -> None:
        answer = answer_of(call)
        request = as_json(call.request)
        usage = answer["usage"]
        usd = self._cost(usage, {**request, **answer}) if usage else None
        if call.reserved is not None:
            store.optimizations.settle(
                call.reserved.run_id,
                tokens=round(sum(usage.get(name, 0) for name in TOKENS)),
                usd=usd or 0.0,
                tokens_reserved=call.reserved.tokens,
                usd_reserved=call.reserved.usd,
            )
        ended_at = call.started_at + call.duration_ms / 1000
        span = Span(
            rollout_id=own.rollout_id,
            attempt=own.attempt,
            span_id=f"proxy-{uuid.uuid4().hex}",
            kind="model",
            name=str(answer["model"] or request.get("model") or call.endpoint),
            status="ok" if call.error is None and (call.status or 500) < 400 else "error",
            attributes={
                "model": answer["model"] or request.get("model"), "endpoint": call.endpoint,
                "http_status": call.status, "error": call.error,
                "request_bytes": len(call.request), "response_bytes": call.response_bytes,
                "duration_ms": call.duration_ms, "first_byte_ms": call.first_byte_ms,
                "usage": usage or None, "finish_reason": answer["finish_reason"],
                "streamed": call.is_streamed, "cost_usd": usd, "response_id": answer["id"],
                "sequence": own.sequence, "trace_id": own.trace_id,
                **self._texts(request, answer),
            },
            started_at=call.started_at,
            ended_at=ended_at,
        )  # fmt: skip
        with store.batch([own.rollout_id]) as batch:
            batch.add_spans([self._redactor.redact(span)], at=time.time())

    def _texts(self, request: Mapping[str, Any], answer: Mapping[str, Any]) -> JsonObject:
        """Return the texts of a call, where they are kept."""
        if self._settings.content is Content.NONE:
            return {}
        return {"input": request.get("messages", request.get("input")), "output": answer["text"]}


TOKENS = ("input_tokens", "output_tokens")


def _is_over(attempt: Attempt, attempts: list[Attempt]) -> bool:
    """Return whether an attempt takes no more calls; a silent one is heard until a newer begins."""
    is_newest = attempt.number == max(each.number for each in attempts)
    return attempt.status in ATTEMPT_ENDS and not (
        attempt.status is AttemptStatus.UNRESPONSIVE and is_newest
    )


def as_json(content: bytes) -> dict[str, Any]:
    """Return an object; an empty one if it is something else."""
    try:
        known = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def answer_of(call: Forwarded) -> dict[str, Any]:
    """Return what an answer says of itself: id, model, usage, finish_reason and text.

    What it does not say is ``None``; of a stream, the last chunk that says it counts.
    """
    found: dict[str, Any] = {
        "id": None, "model": None, "usage": {}, "finish_reason": None, "text": None,
    }  # fmt: skip
    texts: list[str] = []
    for part in _events(call.response) if call.is_streamed else [as_json(call.response)]:
        inner = part.get("response")
        whole: dict[str, Any] = inner if isinstance(inner, dict) else part
        for key in ("id", "model"):
            found[key] = whole.get(key) if isinstance(whole.get(key), str) else found[key]
        if isinstance(whole.get("usage"), dict):
            found["usage"] = usage_of(whole["usage"])
        for choice in whole.get("choices") or () if isinstance(whole.get("choices"), list) else ():
            if isinstance(choice, dict):
                found["finish_reason"] = choice.get("finish_reason") or found["finish_reason"]
                message = choice.get("message") or choice.get("delta")
                content = message.get("content") if isinstance(message, dict) else None
                texts.append(content if isinstance(content, str) else "")
        if isinstance(part.get("delta"), str):  # an event of the Responses API
            texts.append(part["delta"])
        elif isinstance(whole.get("output"), list) and not texts:
            texts += _output_texts(whole["output"])
        found["finish_reason"] = found["finish_reason"] or whole.get("status")
    found["text"] = "".join(texts) or None
    return found


def _output_texts(output: list[object]) -> Iterator[str]:
    for item in output:
        contents = item.get("content") if isinstance(item, dict) else None
        for content in contents if isinstance(contents, list) else ():
            if isinstance(content, dict) and isinstance(content.get("text"), str):
                yield content["text"]


def usage_of(usage: Mapping[str, object]) -> dict[str, float]:
    """Return the tokens of a call under our names; what is not given is left out."""
    names = {
        "input_tokens": ("input_tokens", "prompt_tokens"),
        "output_tokens": ("output_tokens", "completion_tokens"),
    }
    found: dict[str, float] = {}
    for name, theirs in names.items():
        value = next((usage[key] for key in theirs if key in usage), None)
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = float(value)
    for key in ("prompt_tokens_details", "input_tokens_details"):
        details = usage.get(key)
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        if isinstance(cached, int):
            found["cached_tokens"] = float(cached)
    return found


def _events(body: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a stream of server-sent events."""
    for line in body.splitlines():
        if line.startswith(b"data:"):
            event = as_json(line[5:])
            if event:
                yield event
