"""smolagents with tau-live and with others that wrap it, attached again, detached, reloaded."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tau_live
from tau_live.core.settings import Learner, Settings
from tau_live.runtime.adapters import Detach
from tau_live.runtime.runtime import Runtime
from tau_live.testing.expected import Recorded, recorded_in

pytest.importorskip("smolagents")

from smolagents import (
    ChatMessage,
    CodeAgent,
    Model,
    MultiStepAgent,
    Tool,
    ToolCallingAgent,
    agents,
    local_python_executor,
)

from tau_live_hooks.smolagents import ADAPTER
from tests.hooks.conformance.smolagents_play import Scripted, agent, told

pytestmark = pytest.mark.slow

WRAPPED = (Model, Tool, MultiStepAgent, ToolCallingAgent, CodeAgent, Scripted)


@pytest.fixture
def runtime(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    runtime = tau_live.attach(Settings(store=path, learner=Learner.FLUSH))
    assert runtime is not None
    yield runtime
    tau_live.detach()


def attached(runtime: Runtime) -> Detach:
    return ADAPTER.attach(lambda: runtime)


def stored(runtime: Runtime) -> list[Recorded]:
    assert tau_live.flush()
    return recorded_in(runtime.settings)


def counts(recorded: list[Recorded]) -> list[tuple[int, int, int]]:
    """Return how many turns, requests and calls each run had."""
    return [tuple(len(one.of(kind)) for kind in ("turn", "model", "tool")) for one in recorded]  # type: ignore[misc]  # three of them


def layout() -> list[dict[str, int]]:
    """Return what stands where; a wrap is equal to what it wraps, so by identity."""
    places = (*WRAPPED, agents, local_python_executor)
    return [{name: id(value) for name, value in vars(one).items()} for one in places]


@pytest.mark.parametrize(
    ("module", "name", "missing"),
    [
        (agents.MultiStepAgent, "_finalize_step", "MultiStepAgent._finalize_step"),
        (agents, "copy_context", "smolagents.agents.copy_context"),
    ],
)
def test_an_unknown_layout_is_told(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, missing: str
) -> None:
    assert ADAPTER.probe() is None

    monkeypatch.delattr(module, name)

    assert ADAPTER.probe() == missing


def test_what_cannot_be_attached_is_undone(
    runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = layout()
    monkeypatch.delattr(ToolCallingAgent, "execute_tool_call")

    with pytest.raises(KeyError):
        attached(runtime)
    monkeypatch.undo()

    assert layout() == before


def test_detaching_puts_everything_back(runtime: Runtime) -> None:
    before = layout()

    detach = attached(runtime)
    told(agent(ToolCallingAgent, "look", stream_outputs=True))
    told(agent(CodeAgent, "look"))
    during = layout()
    detach()
    detach()

    assert layout() == before != during


def test_after_detaching_nothing_is_told(runtime: Runtime) -> None:
    detach = attached(runtime)
    made = agent(ToolCallingAgent, "look")
    told(made)
    detach()
    told(made)

    assert len(stored(runtime)) == 1


def test_a_run_that_goes_on_while_detached_still_ends(runtime: Runtime) -> None:
    detach = attached(runtime)
    steps: Any = agent(ToolCallingAgent, "look").run("hello", stream=True)
    next(steps)
    detach()
    list(steps)

    [one] = stored(runtime)
    assert one.rollout.status == "succeeded"


def test_attaching_twice_tells_once(runtime: Runtime) -> None:
    first, second = attached(runtime), attached(runtime)
    told(agent(ToolCallingAgent, "look"))
    told(agent(CodeAgent, "look"))
    first()
    second()

    assert counts(stored(runtime)) == [(2, 2, 1), (2, 2, 1)]


def test_models_made_before_and_after_are_seen(runtime: Runtime) -> None:
    class Before(Scripted):
        def generate(self, *args: Any, **kwargs: Any) -> ChatMessage:
            return super().generate(*args, **kwargs)

    early = agent(ToolCallingAgent, model=Before("look", code=False))
    detach = attached(runtime)

    class After(Scripted):
        def generate(self, *args: Any, **kwargs: Any) -> ChatMessage:
            return super().generate(*args, **kwargs)

    late = agent(ToolCallingAgent, model=After("look", code=False))
    told(early)
    told(late)
    detach()

    assert counts(stored(runtime)) == [(2, 2, 1), (2, 2, 1)]


def test_tools_of_classes_with_calls_of_their_own_are_seen(runtime: Runtime) -> None:
    class Own(Tool):
        name = "own"
        description = "It is called in its own way."
        inputs = {"place": {"type": "integer", "description": "Where."}}  # noqa: RUF012  # as the host has it
        output_type = "string"

        def __call__(self, *args: Any, **kwargs: Any) -> str:
            return f"called {kwargs['place']}"

        def forward(self, place: int) -> str:
            raise NotImplementedError

    detach = attached(runtime)
    said = told(agent(CodeAgent, "own", tools=[Own()]))
    detach()

    assert "called 0" in said
    assert counts(stored(runtime)) == [(2, 2, 1)]


def test_a_reloaded_host_goes_on_and_is_seen_when_attached_again(runtime: Runtime) -> None:
    detach = attached(runtime)
    before = dict(vars(agents))
    try:
        fresh: Any = importlib.reload(agents)
        model = Scripted("look", code=False)
        plain = told(agent(fresh.ToolCallingAgent, model=model))
        detach()
        again = attached(runtime)
        seen = told(agent(fresh.ToolCallingAgent, model=model))
        again()
    finally:
        vars(agents).update(before)

    assert seen == plain
    assert counts(stored(runtime)) == [(2, 2, 1)]


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_openinference_sees_what_it_sees_without_us(runtime: Runtime, first: str) -> None:
    instrumentation = pytest.importorskip("openinference.instrumentation.smolagents")
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    exporter, provider = memory.InMemorySpanExporter(), sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    instrumentor = instrumentation.SmolagentsInstrumentor()

    def played() -> tuple[list[str], list[str]]:
        exporter.clear()
        said = [told(agent(kind, "look")) for kind in (ToolCallingAgent, CodeAgent)]
        return said, [span.name for span in exporter.get_finished_spans()]

    before = layout()
    instrumentor.instrument(tracer_provider=provider)
    alone = played()
    detach: Detach = lambda: None  # noqa: E731  # replaced below
    if first == "ours":
        instrumentor.uninstrument()
        detach = attached(runtime)
        instrumentor.instrument(tracer_provider=provider)
    else:
        detach = attached(runtime)
    together = played()
    instrumentor.uninstrument()
    detach()

    assert together == alone
    assert counts(stored(runtime)) == [(2, 2, 1), (2, 2, 1)]
    assert told(agent(CodeAgent, "look")) == alone[0][1]
    assert layout()[2]["run"] == before[2]["run"]
