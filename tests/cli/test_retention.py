"""What an operator is told of a store that is beyond its limits."""

from pathlib import Path

import pytest

from tests.cli.conftest import Read, Run

ROLLOUTS = {"TAU_LIVE_RL_RETENTION_ROLLOUTS": "2"}
ENOUGH = {"TAU_LIVE_RL_RETENTION_ROLLOUTS": "9", "TAU_LIVE_RL_RETENTION_MB": "50"}


def doctored(read: Read, path: Path, **environ: str) -> list[dict[str, object]]:
    found = read("doctor", "--store", path, **environ)
    assert isinstance(found, dict)
    return [one for one in found["checks"] if one["check"] == "retention"]


def test_status_says_what_is_beyond_its_limit_and_what_keeps_it(filled: Path, read: Read) -> None:
    read("gc", "--keep", "0", "--store", filled)

    found = read("status", "--store", filled, **ROLLOUTS)

    assert isinstance(found, dict)
    retention = found["retention"]
    assert (retention["rollouts"], retention["over"]) == (2, ["rollouts"])
    assert retention["kept"] == {
        "looked_at": 2, "forgettable": 0, "waiting": 1, "unlearned": 1, "uncounted": 0, "open": 0,
    }  # fmt: skip


def test_status_says_so_in_words(filled: Path, run: Run) -> None:
    read = run("status", "--all", "--store", filled, **ROLLOUTS).stdout
    enough = run("status", "--all", "--store", filled, **ENOUGH).stdout
    without = run("status", "--all", "--store", filled).stdout

    assert "at most 2 rollouts" in read
    assert "beyond rollouts: of the 3 oldest 1 not learned from yet" in " ".join(read.split())
    assert "at most 9 rollouts, at most 50 mb" in " ".join(enough.split())
    assert "no limit" in without


@pytest.mark.slow
def test_the_doctor_warns_where_nothing_can_be_forgotten(filled: Path, read: Read) -> None:
    before = doctored(read, filled, **ROLLOUTS)
    read("gc", "--keep", "0", "--store", filled)
    after = doctored(read, filled, **ROLLOUTS)

    assert [one["state"] for one in before + after] == ["ok", "warn"]
    assert "tau-live gc" in str(before[0]["advice"])
    assert "learn --once" in str(after[0]["advice"])


def test_the_doctor_is_silent_without_limits_and_content_within_them(
    filled: Path, read: Read
) -> None:
    without, within = doctored(read, filled), doctored(read, filled, **ENOUGH)

    assert without == []
    assert [one["state"] for one in within] == ["ok"]
