import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tau_live.core.errors import ConfigError
from tau_live.experience.checks import Check, CheckError, missing_result, run_check
from tau_live.experience.rewards import ground_truth
from tau_live.experience.tasks import GENERATED, Task, load_tasks
from tests.experience.world import tasks

FUNCTION: dict[str, Any] = {"function": "double", "cases": [[[2], 4], [[-3], -6], [[0], 0]]}
RIGHT = "Here it is:\n```python\ndef double(number):\n    return 2 * number\n```"


def score(output: str, **check: Any) -> float:
    return run_check(msgspec.convert(check, Check), output).score


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        ({"kind": "equals", "value": "94 minutes"}, " 94  Minutes.", "94"),
        ({"kind": "contains", "value": "2024-02-29"}, "It is 2024-02-29.", "It is 2024-02-28."),
        ({"kind": "regex", "value": r"\d cm\b"}, "12 cm", "12 cmx"),
        ({"kind": "number", "value": 1200.5}, "so 3 + x = 1,200.5", "1200.5 and 7"),
        ({"kind": "number", "value": 3.14, "tolerance": 0.01}, "3.141", "3.16"),
        ({"kind": "fields", "value": {"a": 1, "b": None}}, 'x {"a": 1, "b": null} y', '{"a": 2}'),
        ({"kind": "fields", "value": {"a": 1}}, '{"a": 1}', '{"a": 1, "b": 2}'),
        ({"kind": "tests", "value": FUNCTION}, RIGHT, "def double(n): return n + 1000"),
    ],
)
def test_a_check_passes_what_is_right(check: dict[str, Any], right: str, wrong: str) -> None:
    assert score(right, **check) == 1.0
    assert score(wrong, **check) == 0.0


def test_fields_and_tests_score_the_share_that_is_right() -> None:
    assert score('{"a": 1, "b": 3}', kind="fields", value={"a": 1, "b": 2}) == 0.5
    partly = "def double(n):\n    return abs(2 * n)"
    assert score(partly, kind="tests", value=FUNCTION) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    "output",
    [
        "print(4)\nprint(-6)\nprint(0)",  # what is expected, printed
        "import sys\nsys.exit(0)",  # success without a function
        "import os\nos._exit(0)",
        "def double(n):\n    open('test_solution.py', 'w').write('pass')\n    return None",
        "def double(n):\n    raise SystemExit(0)",
        "def double(n):\n    while True:\n        pass",
        "def double(n):\n    return 'x' * 10**12",
        "import sys\nsys.__stdout__.write('{\"result\": 4}\\n' * 3)\nsys.__stdout__.flush()",
        "not python at all (",
        "",
    ],
)
@pytest.mark.slow
def test_no_trick_passes_hidden_tests(output: str) -> None:
    result = run_check(Check(kind="tests", value=FUNCTION), output)

    assert result.score < 1.0
    assert ground_truth([run_check(Check(kind="tests", value=FUNCTION, hard=True), output)]) == 0.0


def test_the_environment_of_a_solution_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAU_LIVE_RL_AUDIT_KEY_FILE", "/key")
    code = "import os\ndef double(n):\n    return 'TAU_LIVE_RL_AUDIT_KEY_FILE' in os.environ"
    value = {"function": "double", "cases": [[[1], False]]}

    assert score(code, kind="tests", value=value) == 1.0


def half(output: str, value: object) -> float:
    """A check of the user's own."""
    return 0.5 if output == value else 2.0


def test_a_check_of_the_users_own_scores_from_0_to_1() -> None:
    own = {"kind": "callable", "callable": f"{__name__}:half", "value": "x"}

    assert score("x", **own) == 0.5
    with pytest.raises(CheckError, match=r"a score must be in \[0, 1\], got 2\.0"):
        score("y", **own)
    with pytest.raises(CheckError):
        score("x", **{**own, "callable": "nowhere:nothing"})


def test_a_check_that_did_not_run_counts_nothing() -> None:
    planned = [Check(kind="equals", value="x"), Check(kind="regex", value="y", hard=True)]

    assert ground_truth([missing_result(check, "nothing was produced") for check in planned]) == 0.0


@pytest.mark.parametrize(
    "check",
    [
        {"kind": "equals"},
        {"kind": "equals", "value": 3},
        {"kind": "number", "value": "3"},
        {"kind": "tests", "value": {"function": "f", "cases": []}},
        {"kind": "tests", "value": {"function": "f", "cases": [[1, 2, 3]]}},
        {"kind": "callable"},
        {"kind": "equals", "value": "x", "weight": 0},
        {"kind": "unknown", "value": "x"},
        {"kind": "equals", "value": "x", "more": 1},
    ],
)
def test_a_check_that_cannot_be_right_is_refused(tmp_path: Path, check: dict[str, Any]) -> None:
    own = [{**task, "checks": [check]} for task in tasks(1, 1, 1)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, own)))

    with pytest.raises(ConfigError, match=r"tasks\.jsonl, line 1: "):
        load_tasks("tasks.jsonl", tmp_path, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["units", "dates", "functions", "extraction"])
def test_a_family_draws_tasks_that_can_be_solved(family: str, tmp_path: Path) -> None:
    drawn = load_tasks(f"families:{family}", tmp_path, seed=3)

    assert {split: len(own) for split, own in drawn.items()} == GENERATED
    assert drawn == load_tasks(f"families:{family}", tmp_path, seed=3)
    assert drawn != load_tasks(f"families:{family}", tmp_path, seed=4)
    for task in drawn["train"][:5]:
        if task.expected is not None:
            assert ground_truth([run_check(check, task.expected) for check in task.checks]) == 1.0
        assert ground_truth([run_check(check, "no") for check in task.checks]) == 0.0


def some() -> list[Task]:
    """Tasks of a callable."""
    return [msgspec.convert(task, Task) for task in tasks(3, 0, 0)]


def test_tasks_come_from_a_callable_too(tmp_path: Path) -> None:
    assert len(load_tasks(f"{__name__}:some", tmp_path, seed=0)["train"]) == 3


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"query_id": "train-0"}, "two tasks are called train-0"),
        (
            {"prompt": "POLE 0 of train, is 1000 cm! How long is it?"},
            r"train-0 \(train\) and validation-1 \(validation\) share '",
        ),
        ({"prompt": "Now: pole 0 of train is 1000 cm. How thick?"}, r"share 'pole 0 of train is"),
    ],
)
def test_splits_share_nothing(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    own = tasks(2, 2, 2)
    own[3].update(change)
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, own)))

    with pytest.raises(ConfigError, match=problem):
        load_tasks("tasks.jsonl", tmp_path, seed=0)


def test_scenarios_choose_tasks_by_id_and_family(tmp_path: Path) -> None:
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks(3, 3, 3))))

    def chosen(*scenarios: str) -> list[str]:
        drawn = load_tasks("tasks.jsonl", tmp_path, seed=0, scenarios=scenarios)
        return [task.query_id for own in drawn.values() for task in own]

    assert chosen("train-1", "test-2") == ["train-1", "test-2"]
    assert len(chosen("poles")) == 9
    with pytest.raises(ConfigError, match="Unknown evaluation scenarios: a, b"):
        chosen("poles", "a", "b")
    with pytest.raises(ConfigError, match="No evaluation scenarios available"):
        chosen("test-2")


def test_a_task_does_not_show_the_agent_what_is_right() -> None:
    task = msgspec.convert({**tasks(1, 0, 0)[0], "hidden": "secret"}, Task)

    assert {*task.for_agent()} == {"query_id", "prompt", "domain", "family"}


def test_reasoning_gym_draws_and_scores_tasks(tmp_path: Path) -> None:
    pytest.importorskip("reasoning_gym")
    for name in ("leg_counting", "chain_sum", "word_sorting", "calendar_arithmetic"):
        drawn = load_tasks(f"reasoning-gym:{name}", tmp_path, seed=0)

        assert {split: len(own) for split, own in drawn.items()} == GENERATED
        task = drawn["train"][0]
        assert run_check(task.checks[0], task.expected or "").score == 1.0
        assert run_check(task.checks[0], "zzz").score < 0.5


def test_without_reasoning_gym_its_extra_is_named(tmp_path: Path) -> None:
    import importlib.util

    if importlib.util.find_spec("reasoning_gym") is not None:
        pytest.skip("it is installed")
    with pytest.raises(ConfigError, match=r"pip install 'tau-live\[tfgrpo-tasks\]'"):
        load_tasks("reasoning-gym:leg_counting", tmp_path, seed=0)
