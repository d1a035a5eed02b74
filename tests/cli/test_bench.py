"""``tau-live bench`` from frozen inputs to a proof, as a shell calls it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tau_live.evidence.artifacts import Names, Root
from tests.cli.conftest import Run
from tests.cli.test_keys import undocumented
from tests.cli.test_schemas import faults
from tests.evidence.projects import RIGHT, smaller
from tests.schemas import ARTIFACTS, struct_schema

jsonschema = pytest.importorskip("jsonschema", reason="pip install '.[test]'")

pytestmark = pytest.mark.slow

RUN = "m24-right-1"
NAMES = Names(RUN)
STORE = ("--store", "store.sqlite")
Shell = Callable[..., subprocess.CompletedProcess[str]]

AGENT = """
def answer(case, decide):
    chosen = decide("tool", case.options, context=case.context)
    return {"output": chosen}


def right(case, seed):
    return case.expected_outcome
"""


def frozen(*, suite: str = "tool-use-suite-v1", run_id: str = RUN, baseline: str = "host",
           trained: str = RIGHT) -> list[str]:  # fmt: skip
    """Return the words that freeze a run of three seeds."""
    return ["bench", "freeze", "--suite", suite, "--baseline", baseline, "--trained", trained,
            "--seeds", "1,2,3", "--run-id", run_id, *STORE]  # fmt: skip


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """Call the command line in a process of its own, whose path has no current folder."""

    def called(*words: object) -> subprocess.CompletedProcess[str]:
        root = Path(__file__).parents[2]
        path = os.pathsep.join([str(root), str(root / "hooks")])
        return subprocess.run(
            [sys.executable, "-P", "-m", "tau_live.cli", *map(str, words)],
            cwd=tmp_path, env={"PATH": os.defpath, "PYTHONPATH": path, "COLUMNS": "200"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    return called


def test_from_frozen_inputs_to_a_valid_proof(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(AGENT)
    proof = NAMES.proof

    froze = shell(*frozen(trained="python:agents:right"))
    ran = shell("bench", "run", "--run-id", RUN, "--workers", 2, *STORE)
    again = shell("bench", "run", "--run-id", RUN, *STORE)
    compared = shell("bench", "compare", "--run-id", RUN)
    proved = shell("bench", "prove", "--run-id", RUN, *STORE)
    colleague = shutil.copytree(tmp_path / "tasks", tmp_path / "colleague/tasks").parent
    valid = shell("bench", "validate", "--root", colleague, colleague / proof)
    with_store = shell("bench", "validate", *STORE, *sorted(tmp_path.glob(f"tasks/**/*{RUN}*")))

    assert (froze.returncode, ran.returncode) == (0, 0), froze.stderr + ran.stderr
    assert "480 episodes executed; recorded: 240 of baseline, 240 of trained" in ran.stdout
    assert (again.returncode, "add --resume to go on" in again.stderr) == (1, True)
    assert compared.returncode == 0
    assert proved.returncode == 0, proved.stderr
    lines = [line.split()[0] for line in proved.stdout.splitlines()]
    assert lines == ["claim", "verdict", "reward", "safety", "stable", "proof"]
    assert (valid.stdout, valid.returncode) == ("ok - m24 proof artifact valid\n", 0)
    assert with_store.stdout.count(" artifact valid\n") == 8
    assert with_store.returncode == 0


def test_a_subject_that_is_no_better_is_exit_code_1(run: Run) -> None:
    run(*frozen(baseline=RIGHT, trained="host"))

    compared = run("bench", "prove", "--run-id", RUN, *STORE)

    assert compared.exit_code == 1
    assert "not passed: reward_gain_below_threshold, interval_contains_zero" in compared.stdout


def test_too_few_pairs_are_exit_code_4(run: Run, tmp_path: Path) -> None:
    run(*frozen(suite=smaller(tmp_path, 12)))

    proved = run("bench", "prove", "--run-id", RUN, *STORE)
    compared = run("bench", "compare", "--run-id", RUN)

    assert (proved.exit_code, compared.exit_code) == (4, 4)
    assert "insufficient_pairs" in proved.stdout


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["bench", "prove"], id="no run id"),
        pytest.param(["bench", "run", "--run-id", RUN, "--workers", "0"], id="no worker"),
        pytest.param(["bench", "run", "--run-id", RUN, "--role", "both"], id="no role"),
        pytest.param([*frozen(), "--seeds", "1,b"], id="no seed"),
        pytest.param([*frozen(), "--model", "a/b", "--agent", "c:d"], id="two that exclude"),
        pytest.param(["bench", "validate"], id="no file"),
        pytest.param(["bench", "validate", "--re-execute", "1", "x"], id="no store"),
        pytest.param(["bench", "template", "letter"], id="no kind"),
        pytest.param(frozen(trained="nonsense"), id="no subject"),
        pytest.param([*frozen(), "--seeds", "1,1,2"], id="a seed twice"),
        pytest.param([*frozen(), "--seeds", "1,2,-3"], id="a negative seed"),
        pytest.param(["bench", "summary", "--run-id", "m24-all", "M24_a"], id="no run id"),
        pytest.param(["bench", "drill", "--run-id", "m24-drill-1"], id="no id of a drill"),
        pytest.param(
            ["bench", "gate", "--run-id", "m24-g", "--proof", "p", "--ops-run-id", "o o"],
            id="no id of an operational proof",
        ),
    ],
)
def test_wrong_usage_is_exit_code_2(words: list[str], run: Run) -> None:
    assert run(*words).exit_code == 2


def test_what_is_not_valid_is_exit_code_1_with_each_fault_on_a_line(
    run: Run, tmp_path: Path
) -> None:
    run(*frozen(suite=smaller(tmp_path, 12)))
    run("bench", "prove", "--run-id", RUN, *STORE)
    proof = tmp_path / NAMES.proof
    proof.write_text(proof.read_text().replace('"pairs": 12', '"pairs": 200'))

    found = run("bench", "validate", proof)

    assert found.exit_code == 1
    codes = {line.split(": ")[1].split()[0] for line in found.stdout.splitlines()}
    assert codes == {"proof_hash_mismatch", "planned_n_mismatch"}


def test_json_has_the_documented_keys_and_is_as_its_schema_says(run: Run, tmp_path: Path) -> None:
    calls: Mapping[str, Sequence[object]] = {
        "bench freeze": frozen(suite=smaller(tmp_path, 12)),
        "bench run": ["bench", "run", "--run-id", RUN, *STORE],
        "bench compare": ["bench", "compare", "--run-id", RUN],
        "bench prove": ["bench", "prove", "--run-id", RUN, *STORE],
        "bench validate": ["bench", "validate", tmp_path / "none.json"],
    }

    printed = {name: json.loads(run(*words, "--json").stdout) for name, words in calls.items()}

    assert {name: undocumented(name, one) for name, one in printed.items()} == dict.fromkeys(
        printed, (set(), set())
    )
    assert [fault for name, one in printed.items() for fault in faults(name, one)] == []


def test_several_files_are_validated_in_one_object(run: Run, tmp_path: Path) -> None:
    run(*frozen(suite=smaller(tmp_path, 12)))
    inputs = tmp_path / NAMES.inputs

    found = json.loads(run("bench", "validate", inputs, inputs, "--json").stdout)

    assert [one["valid"] for one in found["artifacts"]] == [True, True]
    assert faults("bench validate", found) == []


def test_the_demo_proves_itself(run: Run) -> None:
    words = ("bench", "demo", "--questions", "8", "--held-out", "40", "--json")

    refused = run(*words)
    found = json.loads(run(*words, TAU_LIVE_RL="1").stdout)

    assert (refused.exit_code, "TAU_LIVE_RL=1" in refused.stderr) == (1, True)
    assert undocumented("bench demo", found) == (set(), set())
    assert faults("bench demo", found) == []


def test_every_artifact_is_as_its_schema_says(run: Run, tmp_path: Path) -> None:
    run(*frozen(suite=smaller(tmp_path, 12)))
    run("bench", "prove", "--run-id", RUN, *STORE)
    root = Root(tmp_path)
    files: Mapping[str, list[str]] = {
        "evidence suite": ["smaller.json"],
        "evidence inputs": [NAMES.inputs],
        "evidence record": [NAMES.records("baseline"), NAMES.records("trained")],
        "evidence role report": [NAMES.report("baseline"), NAMES.report("trained")],
        "evidence significance report": [NAMES.report("significance")],
        "evidence safety report": [NAMES.report("safety-regression")],
        "evidence proof": [NAMES.proof],
    }

    wrong = [
        f"{path}: {error.json_path}: {error.message[:80]}"
        for name, paths in files.items()
        for path in paths
        for document in documents(root, path)
        for error in jsonschema.Draft202012Validator(
            struct_schema(name, ARTIFACTS[name])
        ).iter_errors(document)
    ]

    others = {f"evidence {kind}" for kind in ("summary", "drill", "operations", "gate", "index")}
    assert files.keys() | others == ARTIFACTS.keys()
    assert wrong == []


def documents(root: Root, path: str) -> list[Any]:
    """Return the JSON documents of a file: one, or one a line."""
    content = root.read(path)
    return [json.loads(one) for one in (content.splitlines() if path.endswith("l") else [content])]
