"""``tau-live power`` says how long a proof takes, and refuses what makes no sense."""

import pytest

from tests.cli.conftest import Read, Run

pytestmark = pytest.mark.slow


def test_settings_give_the_range_and_the_control(read: Read) -> None:
    found = read(
        "power", "--difference", "4", TAU_LIVE_RL_REWARD_RANGE="0,10",
        TAU_LIVE_RL_CONTROL_SHARE="0.25",
    )  # fmt: skip

    assert isinstance(found, dict)
    assert (found["reward_range"], found["mean"], found["control_share"]) == ([0, 10], 5, 0.25)


def test_days_are_runs_over_runs_per_day(read: Read) -> None:
    found = read("power", "--difference", "0.4", "--runs-per-day", "50")

    assert isinstance(found, dict)
    assert found["median_days"] == found["median"] / 50


def test_the_ladder_is_the_shadow_and_every_rung(run: Run) -> None:
    result = run("power", "--difference", "0.4", "--ladder")

    assert all(share in result.stdout for share in ("5%", "25%", "50%"))


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (("--difference", "0"), "above the promotion margin"),
        (("--difference", "nan"), "above the promotion margin"),
        (("--difference", "0.7"), "within the reward range"),
        (("--difference", "0.1", "--spread", "0.6"), "spread must be"),
        (("--difference", "0.1", "--missing", "1"), "missing must be"),
        (("--difference", "0.1", "--control-share", "1"), "control_share must be"),
        (("--difference", "0.1", "--reward-range", "1", "0"), "within the reward range"),
        (("--difference", "0.1", "--runs-per-day", "0"), "above 0"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(
    option: tuple[str, ...], expected: str, run: Run
) -> None:
    result = run("power", *option)

    assert result.exit_code == 2
    assert expected in result.stderr
    assert result.stderr.count("\n") == 1
