import json
import os
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tau_live.store.sealing import Keys
from tests.cli.test_keys import undocumented
from tests.experience.world import HERE, World

Call = Callable[..., Result]
pytestmark = pytest.mark.slow
STORE = ("--store", "store.sqlite")
ON = {"FEATURE_TFGRPO_GROUP": "1", "TAU_LIVE_RL_AUDIT_KEY_FILE": "audit.key", "TAU_LIVE_RL": "1"}
TOML = f"""
[tool.tau-live.pipelines.tfgrpo-learning]
model = "{HERE}:ruled"
tasks = "tasks.jsonl"
pack = "pack"
sample-size = 12
group-size = 4
epochs = 3
validation-repeats = 2
runs-root = "runs"
"""


@pytest.fixture
def call(tmp_path: Path, run: Call) -> Iterator[Call]:
    """Call a command in a project with tasks, a pack and settings."""
    key_file = tmp_path / "audit.key"
    key_file.write_bytes(b"k" * 40)
    key_file.chmod(0o600)
    World(tmp_path, "ruled", keys=Keys.read(key_file))
    (tmp_path / "pyproject.toml").write_text(TOML)

    def called(*arguments: object, **environ: str) -> Result:
        return run(*arguments, **{**ON, **environ})

    yield called
    sys.path[:] = [each for each in sys.path if each]


def data(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def learned(call: Call) -> Call:
    """The same after a run."""
    assert call("experience", "run", *STORE).exit_code == 0
    return call


def test_a_run_says_what_it_does_and_what_it_found(call: Call) -> None:
    result = call("experience", "run", *STORE)

    assert result.exit_code == 0, result.output
    assert "too few tasks: a smoke test, nothing ships" in result.stdout
    assert "epoch 1, step 0: 12 groups" in result.stdout
    assert "step 0: accepted, +" in result.stdout
    assert "test: smoke" in result.stdout
    assert "manifest: " in result.stdout


def test_a_pipeline_is_a_run(call: Call) -> None:
    result = data(call("start", "--pipeline", "tfgrpo-learning", *STORE, "--json"))

    assert (result["state"], result["epochs"]) == ("completed", 3)


def test_init_proposes_the_pipeline_of_a_pack_and_tasks(call: Call, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").unlink()

    proposed = call("init", "--yes", FEATURE_TFGRPO_GROUP="")
    table = tomllib.loads((tmp_path / "pyproject.toml").read_text())["tool"]["tau-live"]
    pipeline = table["pipelines"]["tfgrpo-learning"]
    words = ("experience", "run", "--dry-run", "--model", f"{HERE}:ruled", *STORE, "--json")

    assert proposed.exit_code == 0, proposed.output
    assert "lessons: name their `model`" in proposed.output
    assert (pipeline["pack"], pipeline["tasks"]) == ("pack", "tasks.jsonl")
    assert pipeline["dropout"] == 0.15
    assert data(call(*words))["preflight"]["attempts"] == 100 * 5 * 3


def test_options_beat_the_environment_and_that_beats_toml(call: Call) -> None:
    words = ("experience", "run", "--dry-run", *STORE, "--json")

    def attempts(*more: str, **environ: str) -> int:
        return int(data(call(*words, *more, **environ))["preflight"]["attempts"])

    assert attempts() == 12 * 4 * 3
    assert attempts(TFGRPO_GROUP_SIZE="6") == 12 * 6 * 3
    assert attempts("--group-size", "3", TFGRPO_GROUP_SIZE="6") == 12 * 3 * 3
    assert not Path("store.sqlite").exists()
    assert not Path("runs").exists()


def test_lessons_are_off_until_they_are_switched_on(call: Call) -> None:
    for words in (["run"], ["list"], ["verify"], ["pack", "check", "pack"]):
        result = call("experience", *words, FEATURE_TFGRPO_GROUP="0")

        assert result.exit_code == 1
        assert "lessons are off: set FEATURE_TFGRPO_GROUP=1" in result.stderr
    result = call("experience", "run", FEATURE_TFGRPO_GROUP="maybe")
    assert result.stderr.startswith("warning: FEATURE_TFGRPO_GROUP=maybe means off")


def test_toml_switches_lessons_on(call: Call) -> None:
    with Path("pyproject.toml").open("a") as file:
        file.write("\n[tool.tau-live.tfgrpo]\nenabled = true\n")

    result = call("experience", "run", "--dry-run", *STORE, FEATURE_TFGRPO_GROUP="")

    assert result.exit_code == 1  # what the environment says comes first
    environ = {key: value for key, value in ON.items() if key != "FEATURE_TFGRPO_GROUP"}
    path = os.pathsep.join([str(Path(__file__).parents[2])])
    words = [sys.executable, "-P", "-m", "tau_live.cli", "experience", "run", "--dry-run"]
    ended = subprocess.run(
        words, env={**environ, "PATH": os.defpath, "PYTHONPATH": path}, text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr


def test_every_violation_is_reported_before_anything_is_made(call: Call) -> None:
    result = call(
        "experience", "run", *STORE, TFGRPO_GROUP_SIZE="1", TFGRPO_EPOCHS="2.9",
        TFGRPO_EXPERIENCE_MAX_WORDS="33", TFGRPO_SED="1",
    )  # fmt: skip

    assert result.exit_code == 1
    assert "TF-GRPO groupSize guardrail violated (expected ≥ 2)." in result.stderr
    assert "TFGRPO_EPOCHS must be an integer from 1 to 20" in result.stderr
    assert "TFGRPO_EXPERIENCE_MAX_WORDS 33 exceeds the guardrail of 32." in result.stderr
    assert "TFGRPO_SED is not a setting; did you mean TFGRPO_SEED?" in result.stderr
    assert not Path("store.sqlite").exists()
    assert not Path("runs").exists()


def test_without_a_key_nothing_runs(call: Call) -> None:
    result = call("experience", "run", *STORE, TAU_LIVE_RL_AUDIT_KEY_FILE="")

    assert result.exit_code == 1
    assert "TF-GRPO needs a stamping key: set TAU_LIVE_RL_AUDIT_KEY_FILE." in result.stderr


def test_a_lesson_reads_like_a_page_of_a_notebook(learned: Call) -> None:
    listed = learned("experience", "list", *STORE).stdout
    shown = learned("experience", "show", "x-000001", *STORE).stdout
    history = learned("experience", "history", "x-000001", *STORE).stdout

    assert "Write the unit after the number." in listed
    assert "    Write the unit after the number. (when a length is wanted)" in shown
    assert "support" in shown
    assert "ADD        new (model)" in shown
    assert history.count("Write the unit") >= 1
    missing = learned("experience", "show", "x-000099", *STORE)
    assert (missing.exit_code, missing.stderr) == (1, "tau-live: lesson 'x-000099' not found\n")


def test_what_is_exported_is_imported_elsewhere_and_twice_changes_nothing(learned: Call) -> None:
    assert learned("experience", "export", "out", *STORE).exit_code == 0

    first = data(learned("experience", "import", "out", "--store", "other.sqlite", "--json"))
    again = data(learned("experience", "import", "out", "--store", "other.sqlite", "--json"))

    assert first["files"]["trajectories.jsonl"] == 12 * 4 * 3
    assert {*again["files"].values()} == {0}
    pools = [
        data(learned("experience", "list", "--store", store, "--json"))["pool_version"]
        for store in ("store.sqlite", "other.sqlite")
    ]
    assert pools[0] == pools[1]


def test_an_edited_export_is_not_imported(learned: Call) -> None:
    learned("experience", "export", "out", "--reference-names", *STORE)
    path = Path("out/experiences.jsonl")
    path.write_text(path.read_text().replace("after the number", "before the number", 1))

    result = learned("experience", "import", "out", "--store", "other.sqlite")

    assert result.exit_code == 1
    assert "experiences.jsonl, line 1: stamp_mismatch; nothing is imported" in result.stderr


def test_an_operator_prunes_and_rolls_back(learned: Call) -> None:
    before = data(learned("experience", "list", *STORE, "--json"))["pool_version"]

    pruned = data(learned("experience", "prune", "x-000001", "--reason", "wrong", *STORE, "--json"))
    back = data(
        learned("experience", "rollback", "--to", before, "--reason", "right", *STORE, "--json")
    )

    assert pruned["pool_version"] != before == back["pool_version"]
    again = learned("experience", "prune", "x-000099", "--reason", "wrong", *STORE)
    assert (again.exit_code, again.stderr) == (1, "tau-live: unknown_id: x-000099\n")
    diff = data(learned("experience", "diff", before, pruned["pool_version"], *STORE, "--json"))
    assert [each["id"] for each in diff["lessons"]] == ["x-000001"]


def test_what_is_not_proven_does_not_ship(learned: Call) -> None:
    result = learned("experience", "ship", "--reason", "hope", *STORE)

    assert result.exit_code == 1
    assert "is smoke, not shipped" in result.stderr


def test_a_cut_end_is_found_by_a_head_that_was_kept(learned: Call) -> None:
    heads = learned("experience", "verify", *STORE, "--json").stdout
    Path("heads.json").write_text(heads)
    with sqlite3.connect("store.sqlite") as db:
        db.execute("delete from lessons where seq > (select max(seq) - 10 from lessons)")

    without = learned("experience", "verify", *STORE)
    with_it = learned("experience", "verify", "--head", "heads.json", *STORE)

    assert without.exit_code == 0
    assert with_it.exit_code == 1
    assert "its end was cut off" in with_it.stdout


def test_a_pool_is_measured_without_learning(learned: Call) -> None:
    before = data(learned("experience", "verify", *STORE, "--json"))["heads"]

    result = data(
        learned(
            "experience", "eval", "--pool", "E-4f53cda18c2b", "--split", "test", *STORE, "--json"
        )
    )

    assert result["figures"]["pool_version"] == "E-4f53cda18c2b"
    assert 0.1 < result["figures"]["mean_gt"] < 0.7
    assert data(learned("experience", "verify", *STORE, "--json"))["heads"] == before


JSON: dict[str, list[str]] = {
    "start": ["start", "--pipeline", "tfgrpo-learning"],
    "experience run": ["experience", "run"],
    "experience eval": ["experience", "eval"],
    **{f"experience {verb}": ["experience", verb] for verb in ("status", "list")},
    **{f"experience {verb}": ["experience", verb, "--reason", "why"] for verb in ("cancel",)},
    **{f"experience {verb}": ["experience", verb, "x-000001"] for verb in ("show", "history")},
    "experience export": ["experience", "export", "out"],
    "experience prune": ["experience", "prune", "x-000001", "--reason", "why"],
    "experience rollback": ["experience", "rollback", "--to", "E-4f53cda18c2b", "--reason", "why"],
    "experience quarantine list": ["experience", "quarantine", "list"],
    "experience quarantine drop": ["experience", "quarantine", "drop", "1", "--reason", "why"],
    "experience quarantine restamp": ["experience", "quarantine", "restamp", "2", "--reason", "w"],
}
WITHOUT = {
    "experience pack init": ["experience", "pack", "init", "new", "--domain", "d"],
    "experience pack stamp": ["experience", "pack", "stamp", "pack"],
    "experience pack check": ["experience", "pack", "check", "pack"],
}


def test_json_has_the_documented_keys_and_no_others(learned: Call) -> None:
    pool = data(learned("experience", "list", *STORE, "--json"))["pool_version"]
    diff = {"experience diff": ["experience", "diff", "E-4f53cda18c2b", pool]}
    verified = data(learned("experience", "verify", *STORE, "--json"))
    assert undocumented("experience verify", verified) == (set(), set())
    with sqlite3.connect("store.sqlite") as db:
        for seq, edited in (
            (1, "'trajectory', 'something'"),
            (2, "'\"member\":1', '\"member\":9'"),
        ):
            change = f"update lessons set content = replace(content, {edited}) where seq = {seq}"
            assert db.execute(change).rowcount == 1
    for command, words in {**diff, **JSON, **WITHOUT}.items():
        result = learned(*words, *(() if command in WITHOUT else STORE), "--json")

        assert undocumented(command, data(result)) == (set(), set()), command
