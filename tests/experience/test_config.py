import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tau_live.core.errors import ConfigError
from tau_live.experience.config import (
    CAPACITY,
    GROUP_SIZE,
    KNOBS,
    WORDS,
    Config,
    read_config,
)

GIVEN = {"model": "test/any", "tasks": "t.jsonl", "pack": "pack"}


def read(environ: dict[str, str] | None = None, folder: Path = Path("/"), **more: Any) -> Config:
    return read_config(environ or {}, folder, given={**GIVEN, **more}).config


def problems(environ: dict[str, str] | None = None, **more: Any) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        read(environ, **{key.replace("_", "-"): value for key, value in more.items()})
    return raised.value.lines


def test_every_default_is_that_of_the_method() -> None:
    config = read()

    assert (config.group_size, config.epochs, config.sample_size) == (5, 3, 100)
    assert (config.batch_size, config.workers, config.learner_model) == (100, 5, "test/any")
    assert (config.temperature_train, config.temperature_eval) == (0.7, 0.3)
    assert config.rewarders == ("gt", "relative")
    assert {knob.field for knob in KNOBS} == {*Config.__struct_fields__}


def test_what_follows_from_another_setting_follows_it() -> None:
    config = read({"TFGRPO_SAMPLE_SIZE": "20", "TFGRPO_GROUP_SIZE": "8"})

    assert (config.batch_size, config.workers) == (20, 8)


@pytest.mark.parametrize("value", ["1", "0", "-3", "abc", "2.9", "2junk", "true", "NaN"])
def test_a_group_of_less_than_two_is_no_group(value: str) -> None:
    assert GROUP_SIZE in problems({"TFGRPO_GROUP_SIZE": value})


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TFGRPO_GROUP_SIZE", "33"),
        ("TFGRPO_EPOCHS", "2.9"),
        ("TFGRPO_EPOCHS", "0"),
        ("TFGRPO_EPOCHS", "21"),
        ("TFGRPO_SAMPLE_SIZE", "1001"),
        ("TFGRPO_TRAIN_TEMP", "0"),
        ("TFGRPO_TRAIN_TEMP", "2.1"),
        ("TFGRPO_TRAIN_TEMP", "nan"),
        ("TFGRPO_EVAL_TEMP", "-0.1"),
        ("TFGRPO_SEED", "-1"),
        ("TFGRPO_SEED", str(2**63)),
        ("TFGRPO_REWARDERS", "gt"),
        ("TFGRPO_REWARDERS", "gt,relative,mine"),
        ("TFGRPO_EXPERIENCE_MIN_REWARD", "inf"),
        ("TFGRPO_TASK_ID", "a/b"),
        ("TFGRPO_TASK_ID", "-a"),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_the_name_of_its_place(
    variable: str, value: str
) -> None:
    [line] = problems({variable: value})

    assert line.startswith(f"{variable} ")
    assert value in line


def test_words_have_messages_of_their_own() -> None:
    assert problems({"TFGRPO_EXPERIENCE_MAX_WORDS": "0"}) == [WORDS]
    assert problems({"TFGRPO_EXPERIENCE_MAX_WORDS": "106"}) == [
        "TFGRPO_EXPERIENCE_MAX_WORDS 106 exceeds the guardrail of 32."
    ]


def test_a_group_has_to_fit_what_may_be_under_way() -> None:
    assert problems(group_size=8, capacity=4) == [CAPACITY]
    assert problems(workers=1) == [CAPACITY]


@pytest.mark.parametrize("value", [True, 2.0, [2], {"a": 1}])
def test_toml_values_are_as_strict(value: Any) -> None:
    assert problems(group_size=value)


def test_names_that_are_not_known_are_errors_that_name_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.tau-live.tfgrpo]\ngroup-sise = 3\n")

    with pytest.raises(ConfigError) as raised:
        read({"TFGRPO_GRUOP_SIZE": "3"}, tmp_path)

    assert raised.value.lines == [
        "TFGRPO_GRUOP_SIZE is not a setting; did you mean TFGRPO_GROUP_SIZE?",
        "tool.tau-live.tfgrpo.group-sise is not a setting; did you mean group-size?",
    ]


def test_all_violations_are_reported_together() -> None:
    environ = {"TFGRPO_GROUP_SIZE": "1", "TFGRPO_EPOCHS": "x", "TFGRPO_SEED": "-1"}

    lines = problems(environ, dropout=0.9)

    assert len(lines) == 4


def test_the_environment_beats_toml_and_the_pipeline_beats_the_table(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.tau-live.tfgrpo]\nepochs = 4\nseed = 4\ngroup-size = 4\n"
        "[tool.tau-live.pipelines.tfgrpo-learning]\nepochs = 5\nseed = 5\n"
    )

    config = read({"TFGRPO_SEED": "6"}, tmp_path)

    assert (config.group_size, config.epochs, config.seed) == (4, 5, 6)


def test_a_budget_has_ceilings_of_tools() -> None:
    budget = {"usd": 5, "calls": 10, "tools": {"search": {"calls": 3, "usd": 0.5}}}

    limits = read(budget=budget).limits

    assert (limits.usd, limits.calls) == (5.0, 10)
    assert limits.tools == {"search": {"calls": 3, "usd": 0.5}}


@pytest.mark.parametrize(
    "budget",
    [{"usd": 0}, {"calls": -1}, {"dollars": 3}, {"tools": {"a": {"tokens": 1}}}, {"tools": 3}, 5],
)
def test_a_budget_that_bounds_nothing_is_refused(budget: Any) -> None:
    [line] = problems(budget=budget)

    assert line.startswith("--budget ")


def test_more_epochs_than_usual_are_said() -> None:
    read_ = read_config({"TFGRPO_EPOCHS": "5"}, Path("/"), given=GIVEN)

    assert read_.warnings == ["epochs is 5, where the method was published with 3"]


def test_how_fast_a_run_is_does_not_change_what_it_is() -> None:
    assert read(workers=8).digest == read(workers=2).digest != read(seed=2).digest


OFF = """
import sys
import tau_live

tau_live.attach()
with tau_live.run("triage") as run:
    assert run.decide("model", ["small", "large"], default="large").option in {"small", "large"}
    run.reward(1.0)
assert tau_live.flush()
tau_live.detach()
print(sorted(name for name in sys.modules if name.startswith("tau_live.experience")))
"""


@pytest.mark.slow
def test_nothing_of_lessons_is_imported_or_made_while_they_are_off(tmp_path: Path) -> None:
    given = {"TAU_LIVE_RL": "1", "TAU_LIVE_RL_STORE": "store.sqlite", "FEATURE_TFGRPO_GROUP": "0"}

    done = subprocess.run(
        [sys.executable, "-P", "-c", OFF], text=True, capture_output=True, check=True, cwd=tmp_path,
        env={**os.environ, **given},
    )  # fmt: skip

    assert done.stdout.strip() == "[]", done.stderr
    assert not [path for path in tmp_path.iterdir() if not path.name.startswith("store.sqlite")]
