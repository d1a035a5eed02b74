"""What is decided before llm asks a model or runs a tool."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import tau_live
from tau_live.core.records import rollout_id_of
from tau_live.core.settings.tables import DeclaredDecision
from tau_live.runtime.adapters import options

pytest.importorskip("llm")

import llm

from tests.hooks.llm_models import (
    MODELS,
    Echo,
    acting,
    at_home,
    decided,
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


def test_models_are_declared_in_python_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tau_live.runtime.adapters._builders", {})

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
        found = [outcome() for _ in range(100)]  # llm draws ids: no two runs are alike

    assert sum(found[-20:]) >= 16
    assert sum(found[-20:]) > sum(found[:20])
