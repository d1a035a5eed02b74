"""What is seen and decided in llm, beyond what every adapter has to show."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tau_live
from tau_live.hookspecs import Answer, DecisionRequest, hookimpl
from tau_live.offered import options
from tau_live.operating import Order, exposed
from tau_live.rollouts import Attempt, Decision, Rollout, Span, rollout_id_of
from tau_live.settings import DeclaredDecision, DeclaredReward, Learner, Settings
from tau_live.store.records import RolloutQuery
from tests.live.running import decisions, opened

pytest.importorskip("llm")

import llm
from llm.plugins import pm

from tau_live_hooks.llm import ADAPTER, WRAPPED

pytestmark = pytest.mark.slow


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


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "llm"
    folder.mkdir()
    (folder / "aliases.json").write_text(json.dumps({"tau-default": "small"}))
    monkeypatch.setenv("LLM_USER_PATH", str(folder))
    llm.get_models()  # the plugins are loaded, ours too, while tau-live is off
    plugin = Plugin()
    pm.register(plugin, name="llm_echo")
    yield folder
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
                exposed(store, wanted, Order("test", point, "because", "anna", 1.0), share=1.0)
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


def test_a_new_point_begins_in_shadow(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with acting(settings(path, MODELS), monkeypatch):
        response = llm.get_model("tau").prompt("hello")
        said = response.text()
        [row] = decided(path, response)

    assert said.startswith("small ")
    assert (row.point, row.options, row.default) == ("model", ("small", "large"), "small")
    assert (row.applied, row.why_not, row.source) == ("small", "control", "default")


def test_without_act_nothing_is_decided(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with acting(settings(path, MODELS, act=False), monkeypatch):
        response = llm.get_model("tau").prompt("hello")
        said = response.text()

        assert decided(path, response) == []
    assert said.startswith("small ")


def test_other_models_are_seen_and_never_replaced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with acting(settings(path, MODELS), monkeypatch, "model", forced="large"):
        response = llm.get_model("small").prompt("hello")
        said = response.text()

        assert decided(path, response) == []
    assert said.startswith("small ")


def test_what_was_chosen_is_asked_and_logged_by_llm(
    path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from llm.migrations import migrate
    from sqlite_utils import Database

    with acting(settings(path, MODELS), monkeypatch, "model", forced="large"):
        response = llm.get_model("tau").prompt("hello")
        said = response.text()
        [row] = decided(path, response)

    database = Database(home / "logs.db")
    migrate(database)
    response.log_to_db(database)
    assert said.startswith("large ")
    assert (row.applied, row.why_not, row.source) == ("large", None, "policy")
    assert response.resolved_model == "large"
    assert response.model.model_id == "tau"
    assert "large" in "".join(
        str(row) for name in database.table_names() for row in database[name].rows
    )


def test_async_models_are_routed_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    async def main() -> str:
        return str(await llm.get_async_model("tau").prompt("hello").text())

    with acting(settings(path, MODELS), monkeypatch, "model", forced="large"):
        said = asyncio.run(main())

    assert said == "async large"


@pytest.mark.parametrize(
    ("told", "asked", "offered"),
    [
        pytest.param({"modest": "modest"}, {}, ["modest", "own"], id="it can do that"),
        pytest.param({"modest": "modest"}, {"schema": {"type": "object"}}, None, id="no schemas"),
        pytest.param({"modest": "modest"}, {"tools": [upper]}, None, id="no tools"),
        pytest.param({"modest": "modest"}, {"temperature": 0.5}, None, id="not these options"),
        pytest.param({"priced": "priced"}, {}, None, id="without its key"),
        pytest.param({"gone": "gone"}, {}, None, id="a model that is not there"),
        pytest.param({"tau": "tau"}, {}, None, id="itself"),
    ],
)
def test_only_models_that_can_be_asked_are_offered(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    told: Mapping[str, object],
    asked: Mapping[str, Any],
    offered: list[str] | None,
) -> None:
    point = DeclaredDecision(point="model", options=told)

    with acting(settings(path, point), monkeypatch, "model", forced=next(iter(told))):
        response = llm.get_model("tau").prompt("hello", **asked)
        said = response.text()
        rows = decided(path, response)

    assert [list(row.options) for row in rows] == ([] if offered is None else [offered])
    assert said.startswith("small " if offered is None else "modest")


def test_a_key_given_with_a_call_reaches_only_the_models_that_it_is_of(
    path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "keys.json").write_text(json.dumps({"priced": "stored"}))
    point = DeclaredDecision(point="model", options={"priced": "priced"})

    with acting(settings(path, point), monkeypatch, "model", forced="priced"):
        without = llm.get_model("tau").prompt("hello").text()
        given = llm.get_model("tau").prompt("hello", key="given").text()

    assert without.endswith("[] [] stored")
    assert given.startswith("small ")
    assert given.endswith("[] [] None")  # a model without a key is given none by llm either


@pytest.mark.parametrize(
    ("point", "options", "expected"),
    [
        pytest.param(
            "prompt",
            {"kind": "{instructions} Be kind."},
            "'Be good. Be kind.' None ['upper']",
            id="prompt",
        ),
        pytest.param(
            "params", {"kind": {"temperature": 0.5}}, "'Be good.' 0.5 ['upper']", id="params"
        ),
        pytest.param("tools", {"kind": []}, "'Be good.' None []", id="tools"),
    ],
)
def test_what_is_asked_of_it_is_chosen_on_a_copy(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    options: Mapping[str, object],
    expected: str,
) -> None:
    told = DeclaredDecision(point=point, options=options)

    with acting(settings(path, told), monkeypatch, point, forced="kind"):
        conversation = llm.get_model("tau").conversation()
        response = conversation.prompt("hello", system="Be good.", tools=[upper])
        said = response.text()
        [row] = decided(path, response)

    assert expected in said
    assert (row.applied, row.why_not) == ("kind", None)
    assert response.prompt.system == "Be good."
    assert [tool.name for tool in response.prompt.tools] == ["upper"]


def test_a_gate_keeps_any_models_tool_from_being_run(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = DeclaredDecision(point="tool_gate", options={"no": "Ask somebody first."})
    ran: list[str] = []

    def upper(text: str) -> str:
        ran.append(text)
        return text

    with acting(settings(path, told), monkeypatch, "tool_gate", forced="no"):
        chain = llm.get_model("small").chain("upper", tools=[upper])
        said = chain.text()
        [rollout] = [one for one in stored(path) if one.host == "llm"]
        [row] = decided(path, chain._responses[0])

    assert ran == []
    assert "Cancelled: Ask somebody first." in said
    assert (row.applied, row.context["tool"]) == ("no", "upper")
    assert [one.status for one in tools_of(path, rollout)] == ["vetoed"]


def test_a_chain_keeps_its_model(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with acting(settings(path, MODELS), monkeypatch, "model", forced="large"):
        chain = llm.get_model("tau").chain("upper", tools=[upper])
        chain.text()
        rows = decided(path, chain._responses[0])

    assert [row.applied for row in rows] == ["large"]
    assert [one.resolved_model for one in chain._responses] == ["large", "large"]


def test_the_runs_of_a_conversation_are_one_session(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with acting(settings(path), monkeypatch):
        conversation = llm.get_model("small").conversation()
        conversation.prompt("one").text()
        conversation.chain("two").text()
        found = stored(path)

    assert {one.session_id for one in found} == {conversation.id}
    assert sorted(one.name for one in found) == ["chain", "prompt"]


def test_reading_again_what_was_not_read_to_its_end_is_another_attempt(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with acting(settings(path), monkeypatch):
        response = llm.get_model("small").prompt("one")
        for _ in response:
            break
        response.text()
        [found] = stored(path)
        tries = attempts_of(path, found)

    assert [one.status.value for one in tries] == ["failed", "succeeded"]


def test_tools_that_are_executed_by_hand_belong_to_their_response(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with acting(settings(path), monkeypatch):
        response = llm.get_model("small").prompt("upper", tools=[upper])
        results = response.execute_tool_calls()
        [found] = stored(path)
        spans = tools_of(path, found)

    assert [one.output for one in results] == ["X"]
    assert [one.status for one in spans] == ["ok"]


def test_tools_of_a_response_from_a_store_are_another_attempt_at_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with acting(settings(path), monkeypatch):
        first = llm.get_model("small").prompt("upper", tools=[upper])
        data = json.loads(json.dumps(first.to_dict()))
        again = llm.Response.from_dict(data)
        again.execute_tool_calls(tools=[upper])
        [found] = stored(path)
        tries, spans = attempts_of(path, found), tools_of(path, found)

    assert [one.status.value for one in tries] == ["succeeded", "succeeded"]
    assert [one.status for one in spans] == ["ok"]


def test_what_a_tool_executes_of_another_response_is_not_its_chains(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with acting(settings(path), monkeypatch):
        data = llm.get_model("small").prompt("upper", tools=[upper]).to_dict()

        def nest(text: str) -> str:
            [result] = llm.Response.from_dict(data).execute_tool_calls(tools=[upper])
            return str(result.output)

        chain = llm.get_model("small").chain("upper", tools=[llm.Tool.function(nest, name="upper")])
        said = chain.text()
        found = {one.run_id: one for one in stored(path)}
        tries = attempts_of(path, found[data["id"]])

    assert "['X']" in said
    assert [one.status.value for one in tries] == ["succeeded", "succeeded"]


def test_the_users_own_callbacks_are_called_as_without_us(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def before(tool: Any, call: Any) -> None:
        said.append(f"before {call.name}")
        if call.arguments["text"] == "no":
            raise llm.CancelToolCall("not this")

    def after(tool: Any, call: Any, result: Any) -> None:
        said.append(f"after {result.output}")

    async def wrong(tool: Any, call: Any) -> None:
        raise AssertionError("it is never awaited")

    with acting(settings(path), monkeypatch):
        response = llm.get_model("small").prompt("hello", tools=[upper])
        response.text()
        calls = [
            llm.ToolCall(name, {"text": text}, tool_call_id=f"{name}-{text}")
            for name, text in (("upper", "x"), ("upper", "no"), ("gone", "x"))
        ]
        again = llm.ToolCall("upper", {"text": "x"}, tool_call_id="again")
        results = response.execute_tool_calls(
            before_call=before, after_call=after, tool_calls_list=calls
        )
        with pytest.warns(RuntimeWarning), pytest.raises(TypeError, match="before_call"):
            response.execute_tool_calls(before_call=wrong, tool_calls_list=[again])
        [found] = stored(path)
        spans = tools_of(path, found)

    assert said == ["before upper", "after X", "before upper", "before gone"]
    assert [one.output for one in results] == [
        "X",
        "Cancelled: not this",
        'Error: tool "gone" does not exist',
    ]
    assert sorted(one.status for one in spans) == ["error", "error", "ok", "vetoed"]


def test_a_chain_that_is_too_long_ends_by_its_limit(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with acting(settings(path), monkeypatch):
        with pytest.raises(ValueError, match="Chain limit of 1 exceeded"):
            conversation = llm.get_model("small").conversation(chain_limit=1)
            conversation.chain("upper", tools=[upper]).text()
        [found] = stored(path)

    assert (found.status.value, found.reason and found.reason.value) == ("failed", "limit")


def test_a_run_is_inside_the_run_around_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with acting(settings(path), monkeypatch):
        with tau_live.run("outer") as outer:
            for _ in llm.get_model("small").prompt("one"):
                assert tau_live.door.current() is outer
        found = {one.host: one for one in stored(path)}

    assert found["llm"].parent_id == found["tau_live"].rollout_id


def test_detaching_puts_everything_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [vars(getattr(llm.models, owner))[name] for owner, name in WRAPPED]

    with acting(settings(path), monkeypatch):
        during = [vars(getattr(llm.models, owner))[name] for owner, name in WRAPPED]

    after = [vars(getattr(llm.models, owner))[name] for owner, name in WRAPPED]
    assert all(one is not other for one, other in zip(before, during, strict=True))
    assert all(one is other for one, other in zip(before, after, strict=True))


def test_attaching_twice_is_the_same_as_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with acting(settings(path), monkeypatch):
        wrapped = [vars(getattr(llm.models, owner))[name] for owner, name in WRAPPED]
        ADAPTER.attach(lambda: None)()
        llm.get_model("small").prompt("hello").text()
        found = stored(path)

        again = [vars(getattr(llm.models, owner))[name] for owner, name in WRAPPED]
    assert len(found) == 1
    assert all(one is other for one, other in zip(wrapped, again, strict=True))


def test_a_layout_that_is_not_known_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(llm.models.ChainResponse, "responses")

    assert ADAPTER.probe() == "models.ChainResponse.responses"


def test_the_model_tau_is_there_and_can_do_what_its_own_can(home: Path) -> None:
    model = llm.get_model("tau")

    assert model.supports_schema
    assert model.Options is Echo.Options
    assert llm.get_model("tau").prompt("hello").text().startswith("small ")


def test_without_a_model_to_ask_it_says_so_and_can_be_listed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "aliases.json").write_text("{}")
    (home / "default_model.txt").write_text("tau")
    monkeypatch.setattr(llm, "DEFAULT_MODEL", "gone")
    model = llm.get_model("tau")

    assert (model.can_stream, model.supports_conversation) == (False, True)
    with pytest.raises(llm.UnknownModelError, match="tau has no model to ask"):
        model.prompt("hello").text()


def test_models_are_declared_in_python_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tau_live.offered._State.made", {})

    @options("model")
    def models() -> dict[str, object]:
        return {"mine": Echo("not registered"), "theirs": "large"}

    with acting(settings(path), monkeypatch, "model", forced="mine"):
        said = llm.get_model("tau").prompt("hello").text()

    assert said.startswith("not registered ")


def test_which_model_to_ask_is_learned(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome() -> float:
        response = llm.get_model("tau").prompt("hello")
        value = float(response.text().startswith("large"))
        tau_live.reward(value, run=rollout_id_of("llm", response.id), name="good")
        assert tau_live.flush()
        return value

    with acting(settings(path, MODELS), monkeypatch, "model"):
        found = [outcome() for _ in range(60)]

    assert sum(found[-20:]) >= 18
    assert sum(found[-20:]) > sum(found[:20])
