from pathlib import Path

import pytest

import tau_live
from tau_live.core.settings import Settings
from tests.cli.conftest import Read, Run
from tests.cli.filled import HOST_PROCESS, hold


def test_every_figure_is_one_flag_away(filled: Path, run: Run) -> None:
    told = run("status", "--all", "--store", filled).stdout

    for line in (
        "gate                   pass",
        "prompt p-fa07597c3d9b  25 %, +0.10 [+0.02, +0.20], 10 rollouts (8 offered)",
        "3 completed, 1 succeeded, 1 failed, 1 cancelled, 2 open",
        "#3 model: skipped: one_reward",
        "version 2, trained on 8 rollouts",
        "75% small, entropy 0.50 (the last 9 rollouts)",
        "standard deviation 0.25, from 100% user",
        "mean 0.125 over 4 rollouts, multiplier 0",
        "large became worse",
        "2 dropped_queue",
        HOST_PROCESS,
    ):
        assert line in told


def test_a_point_without_a_choice_is_named_above_its_rewards(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "lived.sqlite"
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    tau_live.attach(Settings(store=store))
    for key in range(8):
        with tau_live.run("triage", key=key) as one:
            one.decide("only", ["it"])
            one.reward(key)
    assert tau_live.flush(30)
    tau_live.detach()

    told = run("status", "--all", "--store", store).stdout

    assert "choices only" in told.split("  rewards ", maxsplit=1)[0]


def test_the_exposure_is_that_of_the_process_that_decides_and_not_of_this_shell(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "lived.sqlite"
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    tau_live.attach(Settings(store=store, control_share=0.5, reward_range=(0.0, 1.0)))
    for key in range(8):
        with tau_live.run("triage", key=key) as one:
            one.decide("model", ["a", "b"], default="a")
            one.reward(1.0)
    assert tau_live.flush(30)
    tau_live.detach()

    found = read("status", "--store", store)

    assert isinstance(found, dict)
    assert found["trials"]["model"]["exposure"] == 0.5


@pytest.mark.parametrize("flags", [[], ["--all"]], ids=" ".join)
def test_a_gate_that_holds_is_told_with_the_way_out(
    flags: list[str], filled: Path, run: Run
) -> None:
    hold(filled)

    told = run("status", *flags, "--store", filled).stdout

    assert "collection_failures" in told
    assert "disk full" in told
    assert "tau-live gate reset" in told


@pytest.mark.parametrize(("switch", "enabled"), [("1", True), ("", False)])
def test_it_says_whether_the_variable_is_on_here(
    switch: str, enabled: bool, filled: Path, read: Read
) -> None:
    found = read("status", "--store", filled, TAU_LIVE_RL=switch)

    assert isinstance(found, dict)
    assert found["enabled"] is enabled


@pytest.mark.parametrize("flags", [[], ["--all"]], ids=" ".join)
def test_a_narrow_terminal_is_not_overrun(flags: list[str], filled: Path, run: Run) -> None:
    told = run("status", *flags, "--store", filled, COLUMNS="40").stdout

    assert max(map(len, told.splitlines())) <= 40
