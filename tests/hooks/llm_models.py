"""Models of llm that need no network, and a learner that decides for them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llm
import pytest
from llm.plugins import pm

import tau_live
from tau_live.core.hookspecs import Answer, DecisionRequest, hookimpl
from tau_live.core.records import Attempt, Decision, Rollout, RolloutQuery, Span, rollout_id_of
from tau_live.core.settings import Learner, Settings
from tau_live.core.settings.tables import DeclaredDecision, DeclaredReward
from tau_live.operate.trials import Order, expose
from tau_live_hooks.llm import ADAPTER
from tests.live.running import decisions, opened


class _Options(llm.Options):
    temperature: float | None = None


class Echo(llm.KeyModel):
    """Says who was asked what, and with which key."""

    can_stream = True
    supports_schema = True
    supports_tools = True

    class Options(_Options):
        pass

    def __init__(self, model_id: str, *, needs_key: str | None = None, **can: object) -> None:
        self.model_id = model_id
        self.needs_key = needs_key
        self.__dict__.update(can)

    def execute(
        self, prompt: Any, stream: Any, response: Any, conversation: Any, key: Any
    ) -> Iterator[str]:
        response.set_usage(input=5, output=2)
        if "upper" in (prompt.prompt or "") and not prompt.tool_results:
            response.add_tool_call(llm.ToolCall("upper", {"text": "x"}, tool_call_id="call-1"))
            return
        told = next((one.parts[0].text for one in prompt.messages if one.role == "system"), "")
        names = [tool.name for tool in prompt.tools]
        results = [one.output for one in prompt.tool_results]
        yield f"{self.model_id} "
        yield f"{told!r} {prompt.options.temperature} {names} {results} {key}"


class AsyncEcho(llm.AsyncModel):
    can_stream = True
    supports_tools = True

    class Options(_Options):
        pass

    def __init__(self, model_id: str) -> None:
        self.model_id = model_id

    async def execute(self, prompt: Any, stream: Any, response: Any, conversation: Any) -> Any:
        yield f"async {self.model_id}"


class Modest(llm.Model):
    """A model that can do nothing but answer."""

    model_id = "modest"

    def execute(self, prompt: Any, stream: Any, response: Any, conversation: Any) -> Any:
        yield "modest"


class Plugin:
    __name__ = "llm_echo"

    @llm.hookimpl
    def register_models(self, register: Any) -> None:
        register(Echo("small"), AsyncEcho("small"))
        register(Echo("large"), AsyncEcho("large"))
        register(Echo("priced", needs_key="priced"))
        register(Modest())


class Forced:
    """Answers every decision with the same option, where it is offered."""

    def __init__(self, option: str) -> None:
        self._option = option

    @hookimpl
    def decide(self, request: DecisionRequest) -> Answer | None:
        known = self._option in request.options
        return Answer(option=self._option, probability=1.0) if known else None


MODELS = DeclaredDecision(point="model", options={"small": "small", "large": "large"})


def upper(text: str) -> str:
    return text.upper()


@contextmanager
def at_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Use a folder of llm's own, in which ``tau`` asks the small model."""
    folder.mkdir()
    (folder / "aliases.json").write_text(json.dumps({"tau-default": "small"}))
    monkeypatch.setenv("LLM_USER_PATH", str(folder))
    llm.get_models()  # the plugins are loaded, ours too, while tau-live is off
    plugin = Plugin()
    pm.register(plugin, name="llm_echo")
    try:
        yield folder
    finally:
        pm.unregister(plugin)


def settings(path: Path, *told: DeclaredDecision, **more: Any) -> Settings:
    given: dict[str, Any] = {"store": path, "act": True, "decisions": told, **more}
    return Settings(
        learner=Learner.FLUSH,
        decide_deadline_ms=60_000.0,
        rewards=(DeclaredReward(name="good"),),
        **given,
    )


@contextmanager
def acting(
    wanted: Settings, monkeypatch: pytest.MonkeyPatch, *points: str, forced: str = ""
) -> Iterator[None]:
    """Attach, and let the learner decide everything at these points, beyond its shadow."""
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    runtime = tau_live.attach(wanted)
    assert runtime is not None
    detach = ADAPTER.attach(lambda: runtime)
    try:
        for point in points:
            with tau_live.run("warm up") as run:
                run.reward(1.0, name="good")
                run.decide(point, ["a", "b"], default="a")
            assert tau_live.flush()
            with opened(wanted.store) as store:
                expose(store, wanted, Order("test", point, "because", "anna", 1.0), share=1.0)
        if points:
            detach()
            tau_live.detach()
            runtime = tau_live.attach(wanted)
            detach = ADAPTER.attach(lambda: runtime)
            assert tau_live.flush()  # what is in force has been read
        if forced and runtime is not None:
            runtime.plugins.register(Forced(forced), name="forced")
        yield
    finally:
        detach()
        tau_live.detach()


def decided(path: Path, response: Any) -> list[Decision]:
    assert tau_live.flush()
    return decisions(path, rollout_id_of("llm", response.id))


def stored(path: Path) -> list[Rollout]:
    assert tau_live.flush()
    with opened(path) as store:
        return list(store.rollouts.query(RolloutQuery(limit=100)).rollouts)


def tools_of(path: Path, rollout: Rollout) -> list[Span]:
    with opened(path) as store:
        return [one for one in store.rollouts.spans(rollout.rollout_id) if one.kind == "tool"]


def attempts_of(path: Path, rollout: Rollout) -> list[Attempt]:
    with opened(path) as store:
        return list(store.rollouts.attempts(rollout.rollout_id))
