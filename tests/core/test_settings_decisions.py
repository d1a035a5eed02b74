"""What may be declared of the decisions that adapters make."""

import json
from pathlib import Path

import pytest

from tau_live.core.errors import SettingsError
from tau_live.core.settings import SETTINGS, Settings, value_text
from tau_live.core.settings.tables import DeclaredDecision, Every, Never
from tau_live.runtime.adapters import declared_decision, options

TOML = """
[tool.tau-live]
act = true

[tool.tau-live.decisions.model]
options = ["small", "large"]
every = "request"
exploit-only = ["large"]
exposure = 1.0
never = [{ option = "large", where = { tier = "free", country = ["fr", "de"] } }]

[tool.tau-live.decisions.params]
options = { cool = { temperature = 0.0 } }
"""


@pytest.fixture
def told(tmp_path: Path) -> Settings:
    (tmp_path / "pyproject.toml").write_text(TOML)
    return Settings.from_env({}, directory=tmp_path).settings


def test_decisions_are_declared_in_toml(told: Settings) -> None:
    model, params = told.decisions

    assert told.act
    assert (model.point, dict(model.options)) == ("model", {"small": "small", "large": "large"})
    assert (model.every, model.exploit_only) == (Every.REQUEST, ("large",))
    assert (model.exposure, params.exposure) == (1.0, None)
    assert params.options["cool"] == {"temperature": 0.0}
    assert params.every is Every.RUN


def test_what_is_shown_declares_the_same(told: Settings) -> None:
    row = next(row for row in SETTINGS if row.name == "decisions")

    again = row.kind.parse(json.dumps(json.loads(value_text(row, told))))

    assert again == told.decisions


@pytest.mark.parametrize(
    ("known", "allowed"),
    [
        pytest.param({}, ["small", "large"], id="nothing is known"),
        pytest.param({"tier": "free"}, ["small", "large"], id="only one of them is"),
        pytest.param({"tier": "free", "country": "de"}, ["small"], id="all are"),
        pytest.param({"tier": "free", "country": "es"}, ["small", "large"], id="none of the texts"),
    ],
)
def test_an_option_is_barred_where_all_is_known(
    told: Settings, known: dict[str, object], allowed: list[str]
) -> None:
    assert told.decisions[0].allowed_options(known) == allowed


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        pytest.param({"modle": {}}, "one of model, .*, got 'modle'", id="a point"),
        pytest.param({"model": {"option": ["a"]}}, "cannot have a 'option'", id="a key"),
        pytest.param({"model": {"options": [1]}}, "a list of names, each once", id="options"),
        pytest.param({"model": {"options": ["a", "a"]}}, "names, each once", id="twice"),
        pytest.param(
            {"model": {"options": ["a"], "every": "day"}}, "one of run, request", id="how"
        ),
        pytest.param(
            {"model": {"options": ["a"], "exploit-only": ["b"]}}, "no option 'b'", id="who"
        ),
        pytest.param(
            {"model": {"options": ["a"], "never": [{"option": "a"}]}},
            "each with an option",
            id="no",
        ),
        pytest.param({"tools": {"options": ["look"]}}, "a list of names of tools", id="tools"),
        pytest.param({"tool_gate": {"options": {"no": 1}}}, "the text that", id="a gate"),
        pytest.param({"retry": {"options": ["again"]}}, "must be true or false", id="a retry"),
        pytest.param({"model": {"options": {"a": 5}}}, "a model or its name", id="a model"),
        pytest.param({"prompt": {"options": {"a": 1}}}, "the text of the", id="a prompt"),
        pytest.param({"params": {"options": ["cool"]}}, "a table of settings", id="params"),
        pytest.param({"model": {"options": {" ": "a"}}}, "a list of names, each", id="no name"),
        pytest.param({"prompt": {"options": {"own": "x"}}}, "be named 'own'", id="the host's"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object], said: str) -> None:
    variable = {"TAU_LIVE_RL_DECISIONS": json.dumps(wrong)}

    with pytest.raises(SettingsError, match=said):
        Settings.from_env(variable)


def test_python_and_toml_declare_one_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tau_live.runtime.adapters._builders", {})
    never = (Never(option="mine", where={"tier": ("free",)}),)
    asked: list[int] = []

    @options("model")
    def models() -> dict[str, object]:
        asked.append(1)
        return {"mine": len}

    found = declared_decision("model", [DeclaredDecision(point="model", never=never)])
    again = declared_decision("model", [])

    assert found is not None
    assert again is not None
    assert (dict(found.options), found.allowed_options({"tier": "free"})) == ({"mine": len}, [])
    assert (dict(again.options), asked) == ({"mine": len}, [1])
    assert declared_decision("prompt", []) is None


def test_a_point_that_no_host_has_is_said_and_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tau_live.runtime.adapters._builders", {})

    @options("modell")
    def models() -> dict[str, object]:
        return {"mine": len}

    assert models() == {"mine": len}
    assert "'modell' is not a decision point; expected one of model," in caplog.text


def test_options_that_are_asked_for_by_their_own_function_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tau_live.runtime.adapters._builders", {})
    refused: list[str] = []

    @options("model")
    def models() -> dict[str, object]:
        with pytest.raises(SettingsError) as error:  # by running an agent, say
            declared_decision("model", ())
        refused.append(str(error.value))
        return {"small": "a", "large": "b"}

    found = declared_decision("model", ())

    assert found is not None
    assert list(found.options) == ["small", "large"]
    assert refused == ["the options of 'model' have their own function"]


def test_options_may_run_an_agent_that_reaches_another_point(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tau_live.runtime.adapters._builders", {})

    @options("params")
    def params() -> dict[str, object]:
        return {"warm": {"temperature": 1.0}}

    @options("model")
    def models() -> dict[str, object]:
        inner = declared_decision("params", ())
        assert inner is not None
        return {"small": "a"}

    assert declared_decision("model", ()) is not None
