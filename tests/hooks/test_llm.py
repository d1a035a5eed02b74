"""What is seen in llm, beyond what every adapter has to show."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tau_live

pytest.importorskip("llm")

import llm

from tau_live_hooks.llm import ADAPTER, WRAPPED
from tests.hooks.llm_models import (
    Echo,
    acting,
    at_home,
    attempts_of,
    settings,
    stored,
    tools_of,
    upper,
)

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with at_home(tmp_path / "llm", monkeypatch) as folder:
        yield folder


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
                assert tau_live.runtime.api.current() is outer
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
    with pytest.raises(llm.UnknownModelError, match="tau has no model to use"):
        model.prompt("hello").text()
