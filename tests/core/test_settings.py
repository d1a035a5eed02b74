"""Every setting: where it comes from, what it accepts, and what is said when it is wrong."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tau_live.core.errors import SettingsError
from tau_live.core.settings import SETTINGS, Learner, Settings, value_text
from tau_live.core.settings.kinds import Setting
from tau_live.core.settings.tables import (
    DeclaredDecision,
    DeclaredModel,
    DeclaredPrice,
    DeclaredReward,
    SafetySettings,
)
from tests.configured import error_of

ROW_IDS = [row.name for row in SETTINGS]
OTHER_VALUES = {
    "config": None,  # has tests of its own
    "store": ("x/y.sqlite", Path("x/y.sqlite")),
    "spool": ("x/spool.sqlite", Path("x/spool.sqlite")),
    "spool_max_mb": ("64", 64.0),
    "permit_s": ("60", 60.0),
    "stale_s": ("3600", 3600.0),
    "seed": ("7", 7),
    "update_interval": ("2", 2),
    "max_rollouts_per_update": ("9", 9),
    "max_failure_streak": ("5", 5),
    "record": ("events.jsonl", Path("events.jsonl")),
    "content": ("Redacted", "redacted"),
    "children": ("false", False),
    "stream": ("shop", "shop"),
    "learner": ("flush", Learner.FLUSH),
    "decide_deadline_ms": ("2.5", 2.5),
    "queue_limit": ("10", 10),
    "payload_limit": ("1024", 1024),
    "durability": ("full", "full"),
    "exploration": ("0.5", 0.5),
    "act": ("1", True),
    "decisions": (
        '{"model": {"options": ["a"]}}',
        (DeclaredDecision(point="model", options={"a": "a"}),),
    ),
    "models": (
        '{"answer": {"options": {"a": {"model": "m"}, "b": {"model": "n"}}}}',
        (DeclaredModel(name="answer", options={"a": {"model": "m"}, "b": {"model": "n"}}),),
    ),
    "prices": (
        '{"bread-*": {"input": 1, "output": 2}}',
        (DeclaredPrice(model="bread-*", input=1.0, output=2.0),),
    ),
    "known_prices": ("no", False),
    "learn_from_host": ("yes", True),
    "window": ("0", 0),
    "reward_deadline_s": ("60", 60.0),
    "infer_reward": ("off", "off"),
    "rewards": ('{"solved": {"primary": true}}', (DeclaredReward(name="solved", primary=True),)),
    "reward_range": ("-1, 2.5", (-1.0, 2.5)),
    "earlier_choices": ("0", False),
    "control_share": ("0.1", 0.1),
    "promote_margin": ("0.02", 0.02),
    "probation": ("500", 500),
    "keep_checkpoints": ("2", 2),
    "retention_days": ("30", 30.0),
    "retention_rollouts": ("1000", 1000),
    "retention_mb": ("500", 500.0),
    "lease_ttl_s": ("5", 5.0),
    "require_proof": ("1", True),
    "cost_limit": ("0.05", 0.05),
    "missing_reward_limit": ("0.5", 0.5),
    "entropy_floor": ("0.1", 0.1),
    "option_share_limit": ("0.99", 0.99),
    "reward_spread_floor": ("0.01", 0.01),
    "source_share_limit": ("0.9", 0.9),
    "drift_holds": ("yes", True),
    "reward_sources": ("reviewer, user:*", ("reviewer", "user:*")),
    "source_caps": ('{"user:*" = 0.1}', {"user:*": 0.1}),
    "self_rewards": ("no", False),
    "audit_key_file": ("keys/audit", Path("keys/audit")),
    "kill_file": ("run/off", Path("run/off")),
    "access": ("keys/access.json", Path("keys/access.json")),
    "prompts_store": ("training/store.sqlite", Path("training/store.sqlite")),
    "principal": ("team:night", "team:night"),
    "alert_command": ("page 'a b' $HOME", ("page", "a b", "$HOME")),
    "alert_urls": ("keys/alerts.txt", Path("keys/alerts.txt")),
    "alert_timeout_s": ("5", 5.0),
    "plugins_off": ("a, b", ("a", "b")),
    "safety_blocked_penalty": ("2", 2.0),
    "safety_default_reason_code_penalty": ("0", 0.0),
    "safety_prompt_injection_penalty": ("3", 3.0),
    "safety_secret_leak_penalty": ("4", 4.0),
    "safety_reason_code_penalties": ('{"secret_leak.x" = 0.5}', {"secret_leak.x": 0.5}),
    "safety_hard_gate_reason_codes": ("none", ()),
    "safety_hard_gate_reason_prefixes": ("a.,b.", ("a.", "b.")),
    "safety_hard_gate_reward_ceiling": ("-0.5", -0.5),
    "safety_hard_gate_penalty": ("0.5", 0.5),
    "safety_blocked_event_triggers_hard_gate": ("no", False),
    "safety_reject_rollout_on_hard_gate": ("yes", True),
    "safety_hard_gate_cost": ("critical", "critical"),
}  # fmt: skip


def value_of(settings: Settings, row: Setting) -> object:
    return getattr(getattr(settings, row.group) if row.group else settings, row.field)


def test_nothing_given_is_every_default() -> None:
    loaded = Settings.from_env({})

    assert loaded.settings == Settings()
    assert set(loaded.sources.values()) == {"default"}
    assert loaded.warnings == []


def test_the_reference_s_defaults_are_kept() -> None:  # reference-live-loop, L-1 and SR1
    settings = Settings()

    assert (settings.update_interval, settings.max_rollouts_per_update) == (8, 64)
    assert settings.max_failure_streak == 3
    assert settings.safety.secret_leak_penalty == 1.5
    assert settings.safety.hard_gate_reason_prefixes == ("secret_leak.",)


@pytest.mark.parametrize("row", SETTINGS, ids=ROW_IDS)
def test_every_setting_has_one_sentence_and_a_test_of_another_value(row: Setting) -> None:
    assert row.help.endswith(".")
    assert row.name in OTHER_VALUES


@pytest.mark.parametrize("row", SETTINGS[1:], ids=ROW_IDS[1:])
def test_the_environment_gives_every_setting(row: Setting) -> None:
    case = OTHER_VALUES[row.name]
    assert isinstance(case, tuple)
    text, expected = case

    loaded = Settings.from_env({row.variable: text})

    assert value_of(loaded.settings, row) == expected != row.default
    assert loaded.sources[row.name] == "environment"
    assert loaded.warnings == []


@pytest.mark.parametrize("row", SETTINGS[1:], ids=ROW_IDS[1:])
def test_what_is_printed_can_be_given_back(row: Setting) -> None:
    case = OTHER_VALUES[row.name]
    assert isinstance(case, tuple)
    loaded = Settings.from_env({row.variable: case[0]})

    again = Settings.from_env({row.variable: value_text(row, loaded.settings)})

    assert again.settings == loaded.settings


@pytest.mark.parametrize("row", SETTINGS, ids=ROW_IDS)
def test_a_blank_counts_as_not_given(row: Setting) -> None:
    loaded = Settings.from_env({row.variable: "  "})

    assert loaded == Settings.from_env({})


@pytest.mark.slow
@pytest.mark.parametrize("row", SETTINGS, ids=ROW_IDS)
@given(garbage=st.text(st.characters(codec="utf-8", exclude_characters="\0")) | st.just("\udcff"))
@example(garbage="[" * 9_000)
@example(garbage='{"a": ' * 9_000)
def test_garbage_is_a_value_or_one_line_that_names_the_variable(row: Setting, garbage: str) -> None:
    try:
        Settings.from_env({row.variable: garbage})
    except SettingsError as error:
        message = str(error)
        if row.name != "config":
            assert row.variable in message
            assert " must be " in message or " cannot be greater than " in message
            assert "got " in message
        assert len(message.splitlines()) == 1
        assert len(message) < 400 + len(garbage)


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("SEED", "-1", "a whole number from 0 to 9223372036854775807, got '-1'"),
        ("SEED", "1.5", "a whole number from 0 to 9223372036854775807, got '1.5'"),
        ("UPDATE_INTERVAL", "0", "a whole number from 1 to 1000000000, got '0'"),
        ("MAX_FAILURE_STREAK", "true", "a whole number from 1 to 1000, got 'true'"),
        ("EXPLORATION", "nan", "a number from 0 to 0.5, got 'nan'"),
        ("EXPLORATION", "0.51", "a number from 0 to 0.5, got '0.51'"),
        ("DECIDE_DEADLINE_MS", "0", "milliseconds above 0 and at most 60000, got '0'"),
        ("REWARD_DEADLINE_S", "inf", "seconds above 0 and at most 1e9, got 'inf'"),
        ("RETENTION_DAYS", "0", "days above 0 and at most 1e6, or none, got '0'"),
        ("KEEP_CHECKPOINTS", "1", "a whole number from 2 to 1000000000, got '1'"),
        ("LEARNER", "process", "one of thread, flush, off, got 'process'"),
        ("STREAM", "a\nb", "printable text, or none, got 'a\\nb'"),
        (
            "STORE",
            "~nobody-has-this-name/x",
            "a path, or postgresql://HOST/DATABASE, got '~nobody-has-this-name/x'",
        ),
    ],
)
def test_an_error_names_the_variable_what_was_expected_and_what_came(
    variable: str, value: str, expected: str
) -> None:
    message = error_of({f"TAU_LIVE_RL_{variable}": value})

    assert message == f"TAU_LIVE_RL_{variable} must be {expected}"


def test_an_update_may_not_need_more_rollouts_than_it_may_take() -> None:
    environ = {"TAU_LIVE_RL_UPDATE_INTERVAL": "9", "TAU_LIVE_RL_MAX_ROLLOUTS_PER_UPDATE": "8"}

    message = error_of(environ)

    assert message == (
        "TAU_LIVE_RL_UPDATE_INTERVAL cannot be greater than "
        "TAU_LIVE_RL_MAX_ROLLOUTS_PER_UPDATE, got 9 and 8"
    )


def test_settings_made_by_hand_are_checked_too() -> None:
    with pytest.raises(SettingsError, match=r"^seed must be a whole number from 0 to \d+, got -1$"):
        Settings(seed=-1)


def test_a_home_folder_is_found() -> None:
    loaded = Settings.from_env({"TAU_LIVE_RL_STORE": "~/store.sqlite"})

    assert loaded.settings.store == Path.home() / "store.sqlite"


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("BLOCKED_PENALTY", "-1", "blocked_penalty must be finite and non-negative"),
        ("SECRET_LEAK_PENALTY", "inf", "secret_leak_penalty must be finite and non-negative"),
        ("HARD_GATE_REWARD_CEILING", "0.1", "hard_gate_reward_ceiling must be finite and <= 0"),
        ("REASON_CODE_PENALTIES", '{"a": NaN}', "reason_code_penalties must be finite and non-"),
    ],
)
def test_safety_settings_are_refused_in_the_reference_s_words(  # reference-live-loop, SR4
    variable: str, value: str, expected: str
) -> None:
    message = error_of({f"TAU_LIVE_RL_SAFETY_{variable}": value})

    assert f"TAU_LIVE_RL_SAFETY_{variable}: safety_reward.{expected}" in message


def test_a_blank_prefix_would_match_every_reason_code_and_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"^safety_reward.hard_gate_reason_prefixes must be"):
        SafetySettings(hard_gate_reason_prefixes=("",))


# Rewards


@pytest.mark.parametrize(
    "text",
    [
        '{"solved": {"weight": 2, "primary": true, "range": [0, 1], "deadline-s": 60}}',
        "{solved = {weight = 2.0, primary = true, range = [0, 1], deadline_s = 60}}",
    ],
    ids=["JSON", "inline TOML"],
)
def test_rewards_are_declared_in_json_or_inline_toml(text: str) -> None:
    loaded = Settings.from_env({"TAU_LIVE_RL_REWARDS": text})

    expected = DeclaredReward(
        name="solved", weight=2.0, primary=True, range=(0.0, 1.0), deadline_s=60.0
    )
    assert loaded.settings.rewards == (expected,)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{a = {weight = nan}}", "the weight of reward 'a' must be a finite number, got nan"),
        ('{"a": {"wieght": 1}}', "reward 'a' cannot have a 'wieght', only weight, primary"),
        ('{"a": {"default": 2, "range": [0, 1]}}', "the default of reward 'a' must be in"),
        ('{"a": {"range": [1, 0]}}', "the range of reward 'a' must be [lowest, highest], or none"),
        ('{"a": {"deadline-s": 0}}', "the deadline_s of reward 'a' must be seconds above 0"),
        ('{"a": {"primary": true}, "b": {"primary": true}}', "at most one primary reward"),
        ('{" ": {}}', "is wrong: a reward's name must not be blank, got ' '"),
        ('{"a": 1}', "must be a table in JSON or inline TOML, got 1"),
        ("solved", "must be a table in JSON or inline TOML, got 'solved'"),
        ("{}\nstore = 'elsewhere'", "must be a table in JSON or inline TOML, got"),
        ("[" * 100_000, "must be a table in JSON or inline TOML, got"),
    ],
)  # fmt: skip
def test_a_reward_that_makes_no_sense_is_refused(text: str, expected: str) -> None:
    message = error_of({"TAU_LIVE_RL_REWARDS": text})

    assert message.startswith("TAU_LIVE_RL_REWARDS ")
    assert expected in message
    assert len(message) < 300


# Warnings


def test_an_unknown_variable_is_warned_about_with_the_nearest_name() -> None:
    loaded = Settings.from_env({"TAU_LIVE_RL_UPDATE_INTERVALL": "3", "TAU_LIVE_RL_QQ": "1"})

    assert loaded.warnings == [
        "TAU_LIVE_RL_QQ is not a setting of tau-live; `tau-live config` lists them all",
        (
            "TAU_LIVE_RL_UPDATE_INTERVALL is not a setting of tau-live; "
            "did you mean TAU_LIVE_RL_UPDATE_INTERVAL?"
        ),
    ]


@pytest.mark.parametrize(
    ("more", "warned"),
    [
        pytest.param({}, True, id="no cost is known"),
        pytest.param({"TAU_LIVE_RL_REWARDS": '{"solved": {}}'}, True, id="no reward is a cost"),
        pytest.param({"TAU_LIVE_RL_REWARDS": '{"harm": {"cost": true}}'}, False, id="a cost"),
        pytest.param({"TAU_LIVE_RL_SAFETY_HARD_GATE_COST": "cost"}, False, id="the hard gate"),
    ],
)
def test_a_limit_of_a_cost_that_nothing_tells_is_warned_about(
    more: dict[str, str], warned: bool
) -> None:
    loaded = Settings.from_env({"TAU_LIVE_RL_COST_LIMIT": "0.1", **more})

    assert ["COST_LIMIT limits nothing" in one for one in loaded.doubts()] == [True] * warned


def test_the_switches_are_no_unknown_settings() -> None:
    loaded = Settings.from_env({"TAU_LIVE_RL": "1", "TAU_LIVE_RL_ENABLED": "1", "TAU_LIVELY": "1"})

    assert loaded.warnings == ["TAU_LIVE_RL_ENABLED is deprecated; set TAU_LIVE_RL instead"]


def test_the_reference_s_store_variable_still_counts_with_one_deprecation_warning() -> None:
    loaded = Settings.from_env({"TAU_LIVE_RL_STORE_SQLITE": "old.sqlite"})

    assert loaded.settings.store == Path("old.sqlite")
    assert loaded.sources["store"] == "environment"
    assert loaded.warnings == [
        "TAU_LIVE_RL_STORE_SQLITE is deprecated; set TAU_LIVE_RL_STORE instead"
    ]


def test_the_new_store_variable_wins_over_the_old_one() -> None:
    environ = {"TAU_LIVE_RL_STORE_SQLITE": "old.sqlite", "TAU_LIVE_RL_STORE": "new.sqlite"}

    loaded = Settings.from_env(environ)

    assert loaded.settings.store == Path("new.sqlite")


def test_rows_show_every_setting_with_its_value_and_source() -> None:
    loaded = Settings.from_env({"TAU_LIVE_RL_STORE": "bad-\udcff.sqlite"})

    rows = {row.name: row for row in loaded.rows()}

    assert list(rows) == ROW_IDS
    assert rows["store"] == ("store", "bad-\\udcff.sqlite", "environment")
    assert rows["exploration"] == ("exploration", "0.01", "default")


@pytest.mark.slow
def test_importing_the_settings_imports_nothing_heavy() -> None:
    heavy = [
        "numpy",
        "msgspec",
        "structlog",
        "click",
        "pluggy",
        "sqlite_utils",
        "tomllib",
        "difflib",
    ]
    code = f"import sys, tau_live.core.settings; print(sorted(set({heavy}) & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({}, "must be two tables or more"),
        ({"options": {"a": {"model": "m"}}}, "must be two tables or more"),
        ({"options": {"a": {"model": "m"}, "b": {"modle": "m"}}}, "must be two tables or more"),
        ({"options": {"a": {"model": "m"}, "b": {"model": ""}}}, "must be two tables or more"),
        ({"options": {"a": {"model": "m"}, "b": {"model": "n"}}, "default": "c"},
         "has no option 'c'"),
    ],
)  # fmt: skip
def test_a_model_that_cannot_be_decided_is_an_error(table: dict[str, object], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        DeclaredModel(name="answer", **table)  # type: ignore[arg-type]  # as a file has it
