"""Configs of prompt optimization: what is read, and every violation in one report."""

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tau_live.core.errors import ConfigError
from tau_live.core.records import RolloutMode
from tau_live.core.settings.tables import SafetySettings
from tau_live.prompts.config import Loaded, OptimizationConfig, read_config
from tau_live.prompts.documents import Deprecation

TRAIN, VAL, TEST = RolloutMode.TRAIN, RolloutMode.VAL, RolloutMode.TEST
README = {
    "optimize": [{"prompt": "What is 2 + 2?", "expected": "4"}],
    "validate": [{"prompt": "What is 3 + 3?", "expected": "6"}],
    "resources": {"system_prompt": "You are a concise assistant."},
    "worker_count": 2,
}
SMALL: Mapping[str, Any] = {"optimize": ["a"], "model": "openai/gpt-4o"}
SCORED: Mapping[str, Any] = {**SMALL, "optimize": [{"prompt": "a", "expected": "b"}]}


def written(folder: Path, document: object, name: str = "config.json") -> Path:
    path = folder / name
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def read(folder: Path, document: object, model: str | None = None) -> Loaded:
    return read_config(written(folder, document), model=model)


def violations(folder: Path, document: object, model: str | None = None) -> list[str]:
    path = written(folder, document)
    with pytest.raises(ConfigError) as caught:
        read_config(path, model=model)
    assert str(caught.value).splitlines() == caught.value.lines
    return [line.removeprefix(f"{path}: ") for line in caught.value.lines]


def test_the_config_of_the_readme(tmp_path: Path) -> None:
    loaded = read(tmp_path, README, model="openai/gpt-4o")

    assert loaded.digest == "aef0db2e52d69d4c453ef89264d57de8d6f29f3d26d15bd3260ce42d016f0a93"
    assert [row.prompt for row in loaded.rows[TRAIN]] == ["What is 2 + 2?"]
    assert [row.prompt for row in loaded.rows[VAL]] == ["What is 3 + 3?"]
    assert not loaded.rows[TEST]
    assert (loaded.warnings, loaded.deprecations, loaded.search_skipped) == ([], [], None)


def test_toml_says_the_same(tmp_path: Path) -> None:
    text = """
        worker_count = 2
        resources.system_prompt = "You are a concise assistant."
        optimize = [{prompt = "What is 2 + 2?", expected = "4"}]
        validate = [{prompt = "What is 3 + 3?", expected = "6"}]
    """

    loaded = read_config(written(tmp_path, text, "config.toml"), model="openai/gpt-4o")

    assert loaded == read(tmp_path, README, model="openai/gpt-4o")


def test_defaults(tmp_path: Path) -> None:
    config = read(tmp_path, SCORED).config

    assert config.prompt_key == "system_prompt"
    assert (config.poll_interval_ms, config.heartbeat_interval_ms) == (50, 1000)
    assert (config.completion_poll_interval_ms, config.completion_timeout_secs) == (60, None)
    assert (config.attempt_timeout_secs, config.max_attempts, config.repeats) == (120, 2, 1)
    assert [scorer.name for scorer in config.scorers] == ["exact_match"]
    assert (config.search.algorithm, config.search.critic_model) == ("beam", "openai/gpt-4o")
    assert config.search.editor_model == "openai/gpt-4o"
    assert (config.adoption.alpha, config.adoption.min_pairs) == (0.05, 20)
    assert (config.budget.usd, config.content, config.rl_optimizer) == (None, "redacted", None)


def test_the_safety_policy_is_that_of_the_live_loop(tmp_path: Path) -> None:
    own = {"reason_code_penalties": {"a": 2}, "hard_gate_reason_codes": ["b"]}

    assert read(tmp_path, SMALL).config.safety_reward.policy == SafetySettings()
    policy = read(tmp_path, {**SMALL, "safety_reward": own}).config.safety_reward.policy
    assert (policy.reason_code_penalties, policy.hard_gate_reason_codes) == ({"a": 2.0}, ("b",))


def test_an_enabled_optimizer_has_every_default(tmp_path: Path) -> None:
    loaded = read(tmp_path, {**SCORED, "rl_optimizer": {"enabled": True, "gae": {"lambda": 1}}})

    assert loaded.config.rl_optimizer is not None
    assert loaded.config.rl_optimizer.model_dump(by_alias=True) == {
        "enabled": True,
        "rollouts": 1,
        "update_interval": 8,
        "pool_limit": 4,
        "normalization_scope": "batch",
        "gae": {
            "gamma": 0.99,
            "lambda": 1.0,
            "normalize_advantages": True,
            "normalize_returns": False,
            "clip_advantages": None,
            "clip_returns": None,
            "normalization_epsilon": 1e-8,
        },
        "ppo": {
            "clip_epsilon": 0.2,
            "value_loss_coefficient": 0.5,
            "entropy_coefficient": 0.01,
            "kl_penalty_coefficient": 0.0,
            "mini_batch_size": 32,
            "gradient_accumulation_steps": 1,
            "epochs": 1,
            "target_kl": None,
            "max_kl": None,
        },
        "learning_rate": 5e-3,
    }


def test_the_model_of_the_command_wins_and_is_not_in_the_digest(tmp_path: Path) -> None:
    own, other = read(tmp_path, SMALL), read(tmp_path, SMALL, model="anthropic/claude")

    assert (own.config.model, other.config.model) == ("openai/gpt-4o", "anthropic/claude")
    assert own.digest == other.digest


def test_deprecated_keys_mean_the_same(tmp_path: Path) -> None:
    old = {"train": README["optimize"], "val": README["validate"]}
    rest = {"resources": README["resources"], "worker_count": 2}

    loaded = read(tmp_path, {**rest, **old}, model="openai/gpt-4o")

    assert loaded.deprecations == [
        Deprecation("train", "optimize", "key"),
        Deprecation("val", "validate", "key"),
    ]
    assert loaded._replace(deprecations=[]) == read(tmp_path, README, model="openai/gpt-4o")


def test_both_names_of_a_key_are_refused(tmp_path: Path) -> None:
    both = {**SMALL, "train": ["b"], "val": ["c"], "validate": ["d"]}

    assert violations(tmp_path, both) == [
        "/train: 'train' and 'optimize' were both given",
        "/val: 'val' and 'validate' were both given",
    ]


def test_rows_of_a_file_are_those_of_the_config(tmp_path: Path) -> None:
    rows = ["a", {"input": 1}, {"prompt": "ü", "weight": 2}]
    (tmp_path / "rows.jsonl").write_text("\n\n".join(map(json.dumps, rows)) + "\n")

    in_file = read(tmp_path, {"optimize": "rows.jsonl", "model": "a/b"})

    assert in_file == read(tmp_path, {"optimize": rows, "model": "a/b"})


def test_violations_in_a_file_of_rows_name_it_and_the_line(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('"a"\n\n{"prompt": 1}\n{"prompt": "b", "weight": NaN}\nnot JSON\n"a"\n"c"\n')
    path = written(tmp_path, {"optimize": "rows.jsonl", "validate": ["c"], "model": "a/b"})

    with pytest.raises(ConfigError) as caught:
        read_config(path, model=None)

    assert caught.value.lines == [
        (
            f"{rows}: line 3: /prompt: rollout input must be a string or object with a string "
            "'prompt' field, got 1"
        ),
        f"{rows}: line 4: /weight: must be a finite number, got nan",
        f"{rows}: line 5: must be JSON: Expecting value: line 1 column 1 (char 0)",
        f"{path}: /validate/0: is the same task as line 7 of {rows}, got 'c'",
    ]


def test_a_row_that_json_does_not_know_has_its_other_problems_too(tmp_path: Path) -> None:
    text = '{"model": "a/b", "optimize": [{"prompt": "a", "expected": NaN, "id": 1, "wieght": 2}]}'

    assert violations(tmp_path, text) == [
        "/optimize/0/expected: must be a finite number, got nan",
        "/optimize/0/id: must be a string, got 1",
        "/optimize/0/wieght: is not a key of a row; did you mean 'weight'?, got 2",
    ]


def test_a_file_for_two_sets_is_one_violation(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('"a"\n"b"\n')
    document = {"model": "a/b", "optimize": "rows.jsonl", "validate": "./rows.jsonl"}

    assert violations(tmp_path, document) == [
        "/validate: must not be the file of 'optimize', got './rows.jsonl'"
    ]


def test_a_config_in_another_language_is_named_by_those_that_are_known(tmp_path: Path) -> None:
    path = written(tmp_path, "model: a/b\n", "config.yaml")

    with pytest.raises(ConfigError) as caught:
        read_config(path, model=None)

    assert caught.value.lines == [f"{path}: must be .json or .toml"]


def test_rows_that_are_wrong_are_not_missed(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("not JSON\n")
    search = {"search": {"algorithm": "beam"}, "model": "a/b"}

    for rows in ("rows.jsonl", [1], 1):
        assert len(violations(tmp_path, {"optimize": rows, **search})) == 1


@pytest.mark.parametrize("given", [1, {}, None, "", True])
def test_rows_are_an_array_or_a_path(tmp_path: Path, given: object) -> None:
    what = "must be an array of rows or the path of a JSON Lines file"

    assert violations(tmp_path, {"model": "a/b", "validate": given}) == [
        f"/validate: {what}, got {given!r}"
    ]


def test_a_file_of_rows_must_be_there(tmp_path: Path) -> None:
    assert violations(tmp_path, {"model": "a/b", "test": "none.jsonl", "validate": ["a"]}) == [
        (
            f"/test: {tmp_path / 'none.jsonl'} cannot be read: No such file or directory, "
            "got 'none.jsonl'"
        )
    ]


def test_a_task_of_one_set_is_no_evidence_in_another(tmp_path: Path) -> None:
    document = {
        "model": "a/b",
        "optimize": ["a", "b"],
        "validate": ["c", {"prompt": "b", "id": "mine", "weight": 2}],
        "test": [{"prompt": "c"}],
    }

    assert [line.partition(", got")[0] for line in violations(tmp_path, document)] == [
        "/test/0: is the same task as /validate/0",
        "/validate/1: is the same task as /optimize/1",
    ]


def test_a_task_twice_in_a_set_is_one_row(tmp_path: Path) -> None:
    path = written(tmp_path, {"model": "a/b", "validate": ["a", "a", {"prompt": "a"}, "b"]})

    loaded = read_config(path, model=None)

    assert [(row.prompt, row.index) for row in loaded.rows[VAL]] == [("a", 0), ("b", 3)]
    assert loaded.warnings[0] == (
        f"2 of 4 rows of 'validate' repeat a task and are left out, the first at /validate/1 of "
        f"{path}"
    )


def test_rows_that_exact_match_cannot_score_are_counted(tmp_path: Path) -> None:
    rows = ["a", {"prompt": "b", "expected": 1}, {"prompt": "c", "expected": "d"}]

    loaded = read(tmp_path, {"model": "a/b", "validate": rows})

    assert loaded.warnings == [
        (
            "2 of 3 rows of 'validate' have no 'expected' that exact_match can score, and are left "
            "out of every comparison"
        )
    ]


@pytest.mark.parametrize("rows", [{}, {"optimize": []}, {"validate": [], "test": ["a"]}])
def test_a_config_must_have_rows(tmp_path: Path, rows: Mapping[str, Any]) -> None:
    assert violations(tmp_path, {"model": "a/b", **rows}) == [
        (
            f"prompt-optimization config '{tmp_path / 'config.json'}' must contain at least one "
            "rollout in 'optimize' or 'validate'"
        )
    ]


@pytest.mark.parametrize(
    "field",
    [
        "worker_count",
        "poll_interval_ms",
        "heartbeat_interval_ms",
        "completion_poll_interval_ms",
        "completion_timeout_secs",
    ],
)
@pytest.mark.parametrize("value", [0, -1])
def test_counts_and_intervals_are_above_0(tmp_path: Path, field: str, value: int) -> None:
    what = f"training config field '{field}' must be greater than 0"

    assert violations(tmp_path, {**SCORED, field: value}) == [f"/{field}: {what}, got {value}"]


KINDS = "must be 'exact_match', 'contains', 'regex', 'number', 'json_equal', 'python' or 'judge'"
BESIDE_COSTS = "must have weights above 0 in all, beside costs"
PYTHON = {"name": "python", "callable": "a:b", "cost": True}
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"worker_count": 65}, "/worker_count", "must be less than or equal to 64"),
    ({"worker_count": "2"}, "/worker_count", "must be an integer"),
    ({"worker_count": True}, "/worker_count", "must be an integer"),
    ({"worker_count": 2.0}, "/worker_count", "must be an integer"),
    ({"seed": 9223372036854775808}, "/seed", "must be less than or equal to 9223372036854775807"),
    ({"rollout_temperature": "0.2"}, "/rollout_temperature", "must be a number"),
    ({"rollout_temperature": True}, "/rollout_temperature", "must be a number"),
    ({"prompt_key": " "}, "/prompt_key", "must not be blank"),
    ({"resources": []}, "/resources", "must be an object"),
    (
        {"resources": {"system_prompt": 1}},
        "/resources/system_prompt",
        "must be a string: it is the prompt",
    ),
    ({"agent": "module"}, "/agent", "must be 'package.module:callable'"),
    ({"agent": "a.b:c d"}, "/agent", "must be 'package.module:callable'"),
    ({"model": "gpt"}, "/model", "must be 'provider/name'"),
    ({"model": None}, "/model", "must be given, here or as --model, where there is no 'agent'"),
    ({"content": "all"}, "/content", "must be 'none' or 'redacted'"),
    (
        {"wroker_count": 1},
        "/wroker_count",
        "is not a key of the config; did you mean 'worker_count'?",
    ),
    ({"optimise": []}, "/optimise", "is not a key of the config; did you mean 'optimize'?"),
    ({"a~/b": 1}, "/a~0~1b", "is not a key of the config"),
    ({"search": {"beam_width": 17}}, "/search/beam_width", "must be less than or equal to 16"),
    (
        {"search": {"beam_with": 1}},
        "/search/beam_with",
        "is not a key of the config; did you mean 'beam_width'?",
    ),
    ({"search": {"enabled": True}}, "/search/enabled", "is not a key of the config"),
    (
        {"search": {"candidates_per_parent": 2}},
        "/search/temperature",
        "must be greater than 0 where 'candidates_per_parent' is above 1",
    ),
    ({"search": {"screen_rows": 0}}, "/search/screen_rows", "must be greater than 0"),
    ({"search": {"initial_prompts": {"x": ""}}}, "/search/initial_prompts/x", "must not be blank"),
    (
        {"search": {"templates": {"critique_user": "{prompt}"}}},
        "/search/templates/critique_user",
        "must hold {examples}",
    ),
    ({"adoption": {"alpha": 0}}, "/adoption/alpha", "must be greater than 0"),
    ({"adoption": {"alpha": 0.21}}, "/adoption/alpha", "must be less than or equal to 0.2"),
    ({"adoption": {"min_pairs": 7}}, "/adoption/min_pairs", "must be greater than or equal to 8"),
    (
        {"adoption": {"max_missing_share": 0.6}},
        "/adoption/max_missing_share",
        "must be less than or equal to 0.5",
    ),
    ({"budget": {"usd": 0}}, "/budget/usd", "must be greater than 0"),
    ({"budget": {"calls": 1.5}}, "/budget/calls", "must be an integer"),
    (
        {"safety_reward": {"hard_gate_reward_ceiling": 1}},
        "/safety_reward/hard_gate_reward_ceiling",
        "must be less than or equal to 0",
    ),
    (
        {"safety_reward": {"hard_gate_cost": "no"}},
        "/safety_reward/hard_gate_cost",
        "is not a key of the config; did you mean 'hard_gate_reason_codes'?",
    ),
    ({"scorers": []}, "/scorers", BESIDE_COSTS),
    ({"scorers": [PYTHON]}, "/scorers", BESIDE_COSTS),
    ({"scorers": [{"name": "exact"}]}, "/scorers/0/name", KINDS),
    ({"scorers": [{"name": "contains"}, {"name": "contains"}]}, "/scorers/1", "is given twice"),
    ({"scorers": [{"name": "contains", "weight": -1}]}, "/scorers", BESIDE_COSTS),
    (
        {"scorers": [{"name": "contains", "weight": 1e308}]},
        "/scorers/0/weight",
        "must be less than or equal to 1000000000",
    ),
    (
        {"scorers": [{"name": "contains"}, {"name": "regex", "weight": -1e308}]},
        "/scorers/1/weight",
        "must be greater than or equal to -1000000000",
    ),
    (
        {"scorers": [{"name": "contains", "tolerance": 1}]},
        "/scorers/0/tolerance",
        "is not a key of the scorer 'contains'",
    ),
    (
        {"scorers": [{"name": "python"}]},
        "/scorers/0/callable",
        "must be given for the scorer 'python'",
    ),
    (
        {"scorers": [{"name": "contains"}, {**PYTHON, "weight": 2}]},
        "/scorers/1/weight",
        "must be left out of a cost, which is no part of the score",
    ),
    ({"scorers": ["contains"]}, "/scorers/0", "must be an object"),
    ({"scorers": {}}, "/scorers", "must be an array"),
    ({"rl_optimizer": {}}, "/rl_optimizer/enabled", "rl_optimizer.enabled must be true or false"),
    (
        {"rl_optimizer": {"enabled": 1}},
        "/rl_optimizer/enabled",
        "rl_optimizer.enabled must be true or false",
    ),
    ({"rl_optimizer": True}, "/rl_optimizer", "must be an object"),
]


@pytest.mark.parametrize(("part", "pointer", "what"), WRONG)
def test_what_is_wrong_is_named_with_its_place(
    tmp_path: Path, part: Mapping[str, Any], pointer: str, what: str
) -> None:
    [line] = violations(tmp_path, {**SCORED, **part})

    assert line.partition(", got ")[0] == f"{pointer}: {what}"


@pytest.mark.parametrize(
    ("part", "field", "value", "what"),
    [
        ("gae", "gamma", 1.1, "gae config field 'gamma' must be finite and within [0.0, 1.0]"),
        ("gae", "lambda", -1, "gae config field 'lambda' must be finite and within [0.0, 1.0]"),
        ("gae", "lambda", "1", "rl_optimizer.gae.lambda must be numeric"),
        ("gae", "clip_returns", "1", "rl_optimizer.gae.clip_returns must be numeric or null"),
        ("gae", "clip_returns", 0, "gae config field 'clip_returns' must be finite and > 0"),
        ("gae", "normalize_returns", 1, "rl_optimizer.gae.normalize_returns must be a boolean"),
        ("gae", "lambda_", 1, "is not a key of the config; did you mean 'lambda'?"),
        ("ppo", "mini_batch_size", 0, "invalid ppo config: mini_batch_size must be > 0"),
        ("ppo", "epochs", -1, "invalid ppo config: epochs must be > 0"),
        ("ppo", "epochs", 1.0, "rl_optimizer.ppo.epochs must be an integer"),
        ("ppo", "clip_epsilon", -1, "invalid ppo config: clip_epsilon must be >= 0"),
        ("ppo", "clip_epsilon", None, "rl_optimizer.ppo.clip_epsilon must be numeric"),
        ("ppo", "max_kl", "0.2", "rl_optimizer.ppo.max_kl must be numeric or null"),
        ("ppo", "max_kl", True, "rl_optimizer.ppo.max_kl must be numeric or null"),
    ],
)
def test_the_optimizer_is_checked_in_the_words_of_the_reference(
    tmp_path: Path, part: str, field: str, value: object, what: str
) -> None:
    document = {**SCORED, "rl_optimizer": {"enabled": True, part: {field: value}}}

    assert violations(tmp_path, document) == [
        f"/rl_optimizer/{part}/{field}: {what}, got {value!r}"
    ]


def test_all_violations_stand_in_one_report_sorted(tmp_path: Path) -> None:
    ppo = {"mini_batch_size": 0, "epochs": 0, "max_kl": 0.1, "target_kl": 0.2, "clip": 1}
    gae = '{"gamma": NaN, "lambda": "0.2"}'
    text = json.dumps({"train": ["a"], "optimize": [3], "rl_optimizer": {"ppo": ppo, "gae": 0}})

    lines = violations(tmp_path, text.replace('"gae": 0', f'"gae": {gae}'))

    assert [line.split(": ")[0] for line in lines] == [
        "/model",
        "/optimize/0",
        "/rl_optimizer/enabled",
        "/rl_optimizer/gae/gamma",
        "/rl_optimizer/gae/lambda",
        "/rl_optimizer/ppo/clip",
        "/rl_optimizer/ppo/epochs",
        "/rl_optimizer/ppo/max_kl",
        "/rl_optimizer/ppo/mini_batch_size",
        "/train",
    ]


@pytest.mark.parametrize(
    ("part", "pointer"),
    [
        ({"model": None, "agent": 1}, "/agent"),
        ({"search": {"candidates_per_parent": 2, "temperature": -1}}, "/search/temperature"),
        ({"search": {"algorithm": "beam"}, "model": 1}, "/model"),
        (
            {"search": {"algorithm": "beam"}, "scorers": [{"name": "number", "x": 1}]},
            "/scorers/0/x",
        ),
        ({"scorers": [{"name": "number", "weight": "1"}]}, "/scorers/0/weight"),
    ],
)
def test_what_depends_on_a_violation_is_no_other(
    tmp_path: Path, part: Mapping[str, Any], pointer: str
) -> None:
    [line] = violations(tmp_path, {**SMALL, **part})

    assert line.startswith(f"{pointer}: ")


JUDGE = {"name": "judge", "model": "a/b", "rubric": "Is it right?"}


def test_a_judge_does_not_judge_what_it_wrote(tmp_path: Path) -> None:
    document = {"model": "a/b", "optimize": ["x"], "scorers": [JUDGE]}

    assert violations(tmp_path, document) == [
        (
            "/scorers/0/model: must not be the model that writes the candidates, or set "
            "'allow_self_judge', got 'a/b'"
        )
    ]


@pytest.mark.parametrize(
    "part",
    [
        {"scorers": [{**JUDGE, "allow_self_judge": True}]},
        {"scorers": [{**JUDGE, "model": "a/c"}]},
        {"scorers": [JUDGE], "search": {"editor_model": "a/c"}},
        {"scorers": [JUDGE], "search": {"algorithm": "none"}},
    ],
)
def test_a_judge_that_is_another_model_or_allowed(tmp_path: Path, part: Mapping[str, Any]) -> None:
    assert read(tmp_path, {"model": "a/b", "optimize": ["x"], **part}).config.scorers


NO_CRITIC = {"optimize": [{"prompt": "a", "expected": "b"}], "agent": "a.b:c"}


@pytest.mark.parametrize(
    ("document", "code", "needs"),
    [
        ({"model": "a/b", "validate": ["a"]}, "no_optimize_rows", "rows in 'optimize'"),
        (NO_CRITIC, "no_critic_model", "'model', or 'critic_model' and 'editor_model'"),
        (SMALL, "no_scorable_rows", "a row in 'optimize' that the scorers can score"),
    ],
)
def test_a_search_that_cannot_be_is_skipped_or_refused(
    tmp_path: Path, document: Mapping[str, Any], code: str, needs: str
) -> None:
    skipped = read(tmp_path, document)
    refused = violations(tmp_path, {**document, "search": {"algorithm": "beam"}})

    assert (skipped.config.search.algorithm, skipped.search_skipped) == ("none", code)
    assert refused == [f"/search/algorithm: needs {needs}, got 'beam'"]


def test_no_search_is_no_skipped_one(tmp_path: Path) -> None:
    loaded = read(tmp_path, {**SMALL, "search": {"algorithm": "none"}})

    assert (loaded.config.search.algorithm, loaded.search_skipped) == ("none", None)


def test_an_expected_pattern_must_be_one(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "expected": "a+"}, {"prompt": "b", "expected": "("}]
    document = {**SMALL, "optimize": rows, "scorers": [{"name": "regex"}]}

    assert violations(tmp_path, document) == [
        (
            "/optimize/1/expected: must be a regular expression: missing ), unterminated "
            "subpattern at position 0, got '('"
        )
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "must be JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[" * 100_000, "must not be nested more than 64 deep"),
        ("[]", "must be an object, got []"),
        ('{"seed": ' + "9" * 5_000 + "}", "must be JSON: Exceeds the limit"),
        ('{"seed": 1} x', "must be JSON: Extra data: line 1 column 13 (char 12)"),
    ],
)
def test_what_is_no_document_is_refused(tmp_path: Path, text: str, what: str) -> None:
    [line] = violations(tmp_path, text)

    assert line.startswith(what)


@pytest.mark.parametrize(
    ("text", "pointer", "what"),
    [
        ('{"seed": 1, "seed": 1}', "/seed", "is given more than once"),
        ('{"optimize": [], "optimize": []}', "/optimize", "is given more than once"),
        ('{"search": {"rounds": Infinity}}', "/search/rounds", "must be a finite number, got inf"),
        ('{"resources": {"a": 1e999}}', "/resources/a", "must be a finite number, got inf"),
        (
            r'{"resources": {"a": "\ud800"}}',
            "/resources/a",
            r"must be text that UTF-8 can encode, got '\ud800'",
        ),
        (
            '{"resources": {"a": ' + "[" * 70 + "]" * 70 + "}}",
            "/resources/a" + "/0" * 62,
            "must not be nested more than 64 deep",
        ),
    ],
)
def test_what_json_does_not_know_is_refused(
    tmp_path: Path, text: str, pointer: str, what: str
) -> None:
    text = text.removesuffix("}") + ', "model": "a/b", "validate": ["a"]}'

    assert violations(tmp_path, text) == [f"{pointer}: {what}"]


@pytest.mark.timed
def test_a_repeated_key_among_many_is_found_at_once(tmp_path: Path) -> None:
    keys = [*(f"k{number}" for number in range(30_000)), "k5"]
    members = ", ".join(f'"{key}": 1' for key in keys)
    began = time.process_time()

    lines = violations(tmp_path, json.dumps(SMALL)[:-1] + f', "resources": {{{members}}}}}')

    assert lines == ["/resources/k5: is given more than once"]
    assert (
        time.process_time() - began < 5.0
    )  # 0.1 s; some 17 s where each key is counted on its own


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a = ", "must be TOML: Invalid value (at end of document)"),
        ("a = 1\na = 1", "must be TOML: Cannot overwrite a value"),
        ("a = " + "[" * 100_000, "must not be nested more than 64 deep"),
        (
            "model = 'a/b'\nvalidate = ['a']\nresources.at = 2026-01-01",
            "/resources/at: must be a JSON value, got datetime.date(2026, 1, 1)",
        ),
        (
            "model = 'a/b'\nvalidate = ['a']\nseed = nan",
            "/seed: must be a finite number, got nan",
        ),
    ],
)
def test_toml_that_is_no_config(tmp_path: Path, text: str, what: str) -> None:
    path = written(tmp_path, text, "config.toml")

    with pytest.raises(ConfigError) as caught:
        read_config(path, model=None)

    assert str(caught.value).startswith(f"{path}: {what}")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    latin, long = tmp_path / "latin.json", tmp_path / "long.json"
    latin.write_bytes(b'{\n"a": "\xe9"}')
    with long.open("wb") as file:
        file.truncate(64 * 2**20 + 1)
    paths = [tmp_path, tmp_path / "none.json", Path("/dev/null"), latin, long]
    lines = []

    for path in paths:
        with pytest.raises(ConfigError) as caught:
            read_config(path, model=None)
        lines += caught.value.lines

    assert lines == [
        f"{tmp_path}: cannot be read: it is a folder",
        f"{tmp_path / 'none.json'}: cannot be read: No such file or directory",
        "/dev/null: cannot be read: it is no file",
        f"{latin}: must be UTF-8, which line 2 is not",
        f"{long}: must have at most 64 MiB",
    ]


KEYS = st.sampled_from(
    [*OptimizationConfig.model_fields, "optimize", "val", "enabled", "gae", "name", "prompt", "x"]
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["", "a/b", "a:b", "judge", "{", "\ud800"]),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(KEYS, children, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(document=st.dictionaries(KEYS, VALUES))
def test_any_document_is_a_config_or_a_config_error(
    tmp_path: Path, document: Mapping[str, object]
) -> None:
    path = written(tmp_path, json.dumps(document))

    try:
        loaded = read_config(path, model=None)
    except ConfigError as error:
        assert error.lines
    else:
        assert loaded.rows[TRAIN] or loaded.rows[VAL]


@pytest.mark.slow
def test_ten_thousand_rows(tmp_path: Path) -> None:
    rows = [{"prompt": f"{n} {'x' * 4_000}", "expected": str(n)} for n in range(10_000)]

    assert len(read(tmp_path, {"model": "a/b", "validate": rows}).rows[VAL]) == 10_000
