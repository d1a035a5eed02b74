"""Runs of lessons as OpenTelemetry: spans and token usage by OTLP over HTTP, beside the run.

A run holds epochs, these steps, these groups, these rollouts, these model calls. The names of calls
are those of the GenAI conventions, which are experimental: of version 1.37. No text is sent. What
cannot be sent waits; beyond a limit the oldest goes, and is counted. The run never waits for it.
"""

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tau_live.core.errors import pass_on
from tau_live.core.guard import logger, text_of
from tau_live.core.records import Span
from tau_live.core.version import this_version
from tau_live.operate.otlp import call_attributes, connect, context_of
from tau_live.store.records import StepRow

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

WAITING = 20_000
"""How many spans may wait; for each further one the oldest goes."""

BATCH = 512
FAILURES, PAUSE_S = 3, 30.0
"""After so many failures in a row nothing is sent for so long; then one batch is tried."""

CLOSING_S = 5.0
SCOPE = "tau_live.experience"


class Telemetry:
    """Sends the steps of one run.

    Args:
        endpoint: The base URL of the collector, such as ``http://127.0.0.1:4318``.
        run_id: The run.

    Attributes:
        dropped: How many spans were given up.

    Raises:
        TauLiveError: The packages that it needs are not installed.
    """

    def __init__(self, endpoint: str, run_id: str) -> None:
        self._otlp = connect(endpoint)
        self.dropped = 0
        self._run_id = run_id
        meter = self._otlp.meters.get_meter(SCOPE, this_version())
        self._tokens = meter.create_histogram("gen_ai.client.token.usage", unit="{token}")
        self._waiting: deque[ReadableSpan] = deque()
        self._wake = threading.Condition()
        self._is_closing = False
        self._times: dict[str, tuple[float, float]] = {}
        self._thread = threading.Thread(target=self._send_all, name="tau-live-otlp", daemon=True)
        self._thread.start()

    def step(
        self, step: StepRow, groups: Sequence[Mapping[str, Any]], calls: Mapping[str, list[Span]],
        group_size: int,
    ) -> None:  # fmt: skip
        """Take a step that is stored; nothing is raised, and nobody waits.

        Args:
            step: The step.
            groups: Its groups, as the manifest has them.
            calls: The model calls by rollout.
            group_size: Attempts of a group.
        """
        try:
            self._put(self._spans(step, groups, calls, group_size))
        except Exception as error:  # noqa: BLE001  # what is only watched ends no run
            logger().warning("otlp_not_sent", error=text_of(error), effect="a step is not shown")

    def _put(self, spans: Iterable["ReadableSpan"]) -> None:
        with self._wake:
            self._waiting.extend(spans)
            while len(self._waiting) > WAITING:
                self._waiting.popleft()
                self.dropped += 1
            self._wake.notify()

    def _spans(
        self, step: StepRow, groups: Sequence[Mapping[str, Any]], calls: Mapping[str, list[Span]],
        group_size: int,
    ) -> Iterator["ReadableSpan"]:  # fmt: skip
        row: Any = step.content["row"]
        epoch_key, step_key = f"epoch {step.epoch}", f"step {step.epoch}/{step.step}"
        own = {"tfgrpo.epoch": step.epoch, "tfgrpo.pool_version": row["pool_version"]}
        for group in groups:
            key = str(group["group_id"])
            for member in group["assignments"]:
                if member["started"] is None or member["ended"] is None:
                    continue
                rollout, times = str(member["rollout_id"]), (member["started"], member["ended"])
                for call in calls.get(rollout, ()):
                    yield self._call(call, parent=rollout)
                attributes = {"tau.rollout_id": rollout, "tfgrpo.status": member["status"]}
                yield self._span("rollout", rollout, key, times, {**own, **attributes})
                for around in (key, step_key, epoch_key, "run"):
                    known = self._times.get(around, times)
                    self._times[around] = min(known[0], times[0]), max(known[1], times[1])
            if key in self._times:
                attributes = {"tfgrpo.group_id": key, "tfgrpo.group_size": group_size}
                times = self._times.pop(key)
                yield self._span("group", key, step_key, times, {**own, **attributes})
        if step_key in self._times:
            attributes = {
                "tfgrpo.step": step.step, "tfgrpo.cost_usd": row["cost_usd"],
                "tfgrpo.latency_ms": row["latency_ms"],
            }  # fmt: skip
            times = self._times.pop(step_key)
            yield self._span("step", step_key, epoch_key, times, {**own, **attributes})

    def _call(self, call: Span, *, parent: str) -> "ReadableSpan":
        """Return a model call, and count its tokens."""
        attributes = call_attributes(call.name, call.attributes)
        named = {key: attributes[key] for key in ("gen_ai.operation.name", "gen_ai.request.model")}
        for kind in ("input", "output"):
            tokens = attributes[f"gen_ai.usage.{kind}_tokens"]
            if isinstance(tokens, int | float):
                self._tokens.record(tokens, {**named, "gen_ai.token.type": kind})
        attributes["tfgrpo.cost_usd"] = call.attributes.get("cost_usd")
        times = call.started_at, call.ended_at or call.started_at
        name = f"chat {named['gen_ai.request.model']}"
        return self._span(name, f"{parent}/{call.span_id}", parent, times, attributes)

    def _span(  # noqa: PLR0917  # called with a line of values
        self, name: str, key: str, parent: str | None, times: tuple[float, float],
        attributes: Mapping[str, Any],
    ) -> "ReadableSpan":  # fmt: skip
        is_call = name.startswith("chat ")
        return self._otlp.span(
            name if is_call else f"tfgrpo.{name}",
            context_of(self._run_id, key),
            None if parent is None else context_of(self._run_id, parent),
            times,
            attributes,
            scope=SCOPE,
            is_client=is_call,
        )

    def close(self, attributes: Mapping[str, Any]) -> None:
        """Send the run and its epochs, and what waits, within five seconds.

        Args:
            attributes: Those of the span of the run.
        """
        for key, times in sorted(self._times.items()):
            is_run = key == "run"
            number = {} if is_run else {"tfgrpo.epoch": int(key.split()[1])}
            own = attributes if is_run else number
            kind = "run" if is_run else "epoch"
            self._put([self._span(kind, key, None if is_run else "run", times, own)])
        with self._wake:
            self._is_closing = True
            self._wake.notify()
        ending = threading.Thread(target=self._end, name="tau-live-otlp-end", daemon=True)
        ending.start()
        ending.join(CLOSING_S)
        left = self.dropped + len(self._waiting)
        if left:
            logger().warning("otlp_not_sent", error="the collector", effect=f"{left} spans")

    def _end(self) -> None:
        self._thread.join()
        self._otlp.spans.shutdown()
        self._otlp.meters.shutdown(1000 * CLOSING_S)

    def _send_all(self) -> None:
        """Send what waits; after failures, try again after a pause."""
        failures = 0
        while True:
            with self._wake:
                while not self._waiting and not self._is_closing:
                    self._wake.wait()
                batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
            if not batch:
                return
            if self._send(batch):
                failures = 0
                continue
            failures += 1
            with self._wake:
                self._waiting.extendleft(reversed(batch))  # the oldest again
                if self._is_closing:
                    return
                self._wake.wait_for(
                    lambda: self._is_closing, PAUSE_S if failures >= FAILURES else 1.0
                )

    def _send(self, batch: Sequence["ReadableSpan"]) -> bool:
        from opentelemetry.sdk.trace.export import SpanExportResult

        try:
            return self._otlp.spans.export(batch) is SpanExportResult.SUCCESS
        except Exception as error:  # noqa: BLE001  # an exporter may raise anything
            pass_on(error)
            return False
