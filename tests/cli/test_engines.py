"""``--engine`` and ``--workers`` change who computes, and nothing that is printed."""

import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import pytest

from tau_live.cli import engines
from tau_live.engines import local
from tests.cli.conftest import Run

Shard = TypeVar("Shard")
Result = TypeVar("Result")

POWER = ("power", "--difference", "0.2", "--json")
LOCAL_ALONE = """
import sys

from tau_live.cli import main

main(["power", "--difference", "0.4"], standalone_mode=False)
assert "tau_live.engines.local" in sys.modules
assert not {"ray", "tau_live.engines.ray"} & sys.modules.keys()
"""


@pytest.fixture
def _no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "tau_live.engines.ray", raising=False)


@pytest.mark.slow
def test_the_number_of_workers_changes_nothing_that_is_printed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "LEAST_S", 0.0)  # so little work is otherwise done here
    monkeypatch.setattr(local, "TRIAL_S", 0.0)

    printed = {run(*POWER, "--workers", workers).stdout for workers in (1, 2)}

    assert len(printed) == 1
    assert '"median"' in printed.pop()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_an_evaluation_is_the_same_with_any_number_of_workers(
    workers: int, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "LEAST_S", 0.0)
    monkeypatch.setattr(local, "TRIAL_S", 0.0)
    log = tmp_path / "log.csv"
    rows = (f"{'ab'[n % 2]},0.5,{n % 3 / 2}" for n in range(200))
    log.write_text("\n".join(["option,propensity,reward", *rows]))
    command = ("evaluate", "--policy", "constant:a", "--log", log, "--json")

    found = run(*command, "--workers", workers)

    assert '"bootstrap": [' in found.stdout
    assert found.stdout == run(*command, "--workers", 3).stdout


@pytest.mark.slow
def test_without_being_named_ray_is_never_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOCAL_ALONE], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("_no_ray")
def test_where_ray_is_not_installed_one_line_names_the_extra_and_its_size(run: Run) -> None:
    result = run(*POWER, "--engine", "ray")

    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "needs Ray, 357 MB" in result.stderr
    assert "pip install 'ray" in result.stderr


@pytest.mark.slow
def test_ray_is_not_started_for_less_than_a_minute_and_that_is_printed(run: Run) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'tau-live[ray]'")

    result = run(*POWER, "--engine", "ray")

    assert result.exit_code == 0
    assert "Ray was not started" in result.stderr
    assert not ray.is_initialized()


@pytest.mark.slow
def test_ray_is_started_for_more_and_its_cost_is_printed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'tau-live[ray]'")
    monkeypatch.setattr(engines, "LEAST_RAY_S", 0.0)
    monkeypatch.setattr(local, "TRIAL_S", 0.0)

    result = run(*POWER, "--engine", "ray", "--workers", 1)

    assert "starting Ray, which takes" in result.stderr
    assert "was not started" not in result.stderr
    assert result.stdout == run(*POWER, "--workers", 1).stdout
    assert not ray.is_initialized()
