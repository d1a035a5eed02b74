"""What recording costs a host: a call's time, the time of a busy loop, and what a kill loses.

A host tells that a tool has returned, with eight fields; the peer starts and ends a span with six
attributes, through a batch processor and an exporter that keeps nothing. Ours is stored in SQLite.
"""

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter, thread_time

import tau_live
from tau_live.core import events as ev
from tau_live.core.settings import Learner, Settings
from tests.bench.timing import Goal, Measured, Timed, command, installed, interleaved

EVENTS = 2_000
LOOPS = 10_000
WORK = 400
"""Turns of a loop of Python between two events: about 20 microseconds."""

PATIENCE_S = 120.0
CALL = Goal(0.12, faster=False)
CALL_LANGFUSE = Goal(0.03, faster=False)
BUSY = Goal(0.25, faster=False)
OTEL = "OpenTelemetry SDK, span, batch processor"
LANGFUSE = "langfuse, span"

Tell = Callable[[int], object]


def measure(rounds: int, *, events: int = EVENTS, loops: int = LOOPS) -> list[Measured]:
    """Measure the host's thread, and a loop that is busy while everything is stored."""
    with _ours() as (tell, flush), _otel() as span, _langfuse() as observed:
        return [
            interleaved(
                "one event, the host's thread",
                _call(tell, events, flush),
                None if span is None else _call(span, events),
                peer=OTEL,
                rounds=rounds,
                goal=CALL,
            ),
            interleaved(
                "one event, the host's thread",
                _call(tell, events, flush),
                None if observed is None else _call(observed, events),
                peer=LANGFUSE,
                rounds=rounds,
                goal=CALL_LANGFUSE,
            ),
            interleaved(
                "a busy loop, one event each 20 us of its work",
                _busy(tell, loops, before=flush),
                None if span is None else _busy(span, loops),
                peer=OTEL,
                rounds=rounds,
                goal=BUSY,
            ),
            interleaved(
                "the same, until everything is written",
                _busy(tell, loops, before=flush, after=flush),
                None if span is None else _busy(span, loops),
                peer=OTEL,
                rounds=rounds,
                goal=None,
            ),
        ]


@contextmanager
def _ours() -> Iterator[tuple[Tell, Callable[[], object]]]:
    before = os.environ.get("TAU_LIVE_RL")
    os.environ["TAU_LIVE_RL"] = "1"
    try:
        with tempfile.TemporaryDirectory(prefix="tau-live-bench-") as folder:
            settings = Settings(
                store=Path(folder) / "store.sqlite", stream="bench", learner=Learner.OFF
            )
            runtime = tau_live.attach(settings)
            if runtime is None:
                raise RuntimeError("tau-live did not start")
            run = runtime.begin_run(
                "bench", key=None, session=None, metadata=None, parent=None, host="bench"
            )

            def tell(number: int) -> None:
                told = {
                    "agent": "support",
                    "turn": 1,
                    "span_id": f"step {number}",
                    "parent_span_id": "turn:1",
                    "tool": "search",
                    "call_id": f"call {number}",
                    "status": ev.Status.OK,
                    "duration_ms": 1.5,
                }
                runtime.tell(run, ev.ToolEnd, told)

            try:
                yield tell, lambda: tau_live.flush(PATIENCE_S)
            finally:
                runtime.end_run(run, None)
                tau_live.detach()
    finally:
        if before is None:
            del os.environ["TAU_LIVE_RL"]
        else:
            os.environ["TAU_LIVE_RL"] = before


@contextmanager
def _otel() -> Iterator[Tell | None]:
    if not installed("opentelemetry.sdk"):
        yield None
        return
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

    class KeepsNothing:
        def export(self, _spans: object) -> object:
            return SpanExportResult.SUCCESS

        def shutdown(self) -> None:
            pass

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(KeepsNothing(), max_queue_size=1_000_000))
    tracer = provider.get_tracer("bench")

    def span(number: int) -> object:
        started = tracer.start_span(
            "tool.search",
            attributes={
                "agent": "support",
                "turn": 1,
                "tool": "search",
                "call_id": f"call {number}",
                "status": "ok",
                "duration_ms": 1.5,
            },
        )
        return started.end()

    try:
        yield span
    finally:
        provider.shutdown()


@contextmanager
def _langfuse() -> Iterator[Tell | None]:
    if not installed("langfuse"):
        yield None
        return
    from langfuse import Langfuse
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    client = Langfuse(public_key="pk", secret_key="sk", span_exporter=kept)  # nothing is sent

    def observed(number: int) -> object:
        started = client.start_observation(
            name="search", input={"call": f"call {number}"}, metadata={"agent": "support"}
        )
        return started.end()

    try:
        yield observed
    finally:
        client.shutdown()


def _call(tell: Tell, events: int, flush: Callable[[], object] = lambda: None) -> Timed:
    """Return what one call takes of its thread."""

    def took() -> float:
        flush()
        began = thread_time()
        for number in range(events):
            tell(number)
        return (thread_time() - began) / events

    return took


def _busy(
    tell: Tell,
    loops: int,
    *,
    before: Callable[[], object] = lambda: None,
    after: Callable[[], object] = lambda: None,
) -> Timed:
    """Return what each event adds to the time of a loop, and of what comes after it."""

    def loop(call: Tell) -> float:
        began = perf_counter()
        for number in range(loops):
            for turn in range(WORK):
                turn * turn
            call(number)
        after()
        return perf_counter() - began

    def took() -> float:
        before()
        alone = statistics.median(loop(lambda _: None) for _ in range(3))
        return max(loop(tell) - alone, 1e-9) / loops

    return took


main = command("ingest", "What recording costs a host", measure)

if __name__ == "__main__":
    main()
