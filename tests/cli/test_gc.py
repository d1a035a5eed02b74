from pathlib import Path

import pytest

from tau_live.cli.gc import forget_rollouts, forgettable
from tau_live.core.records import RolloutQuery
from tau_live.store.retention import Limits
from tau_live.store.roles import Store
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run
from tests.cli.filled import CHILD, FAILED, OPEN, QUEUED, SOLVED
from tests.writes import writes


def kept(path: Path) -> set[str]:
    store = SqliteStore.open(path, read_only=True)
    found = {one.rollout_id for one in store.rollouts.query(RolloutQuery()).rollouts}
    store.close()
    return found


def test_what_was_learned_from_goes_and_the_rest_stays(filled: Path, read: Read) -> None:
    done = read("gc", "--older-than", "30d", "--store", filled)

    assert isinstance(done, dict)
    assert kept(filled) == {
        SOLVED,
        CHILD,
        OPEN,
        QUEUED,
    }  # SOLVED has a decision nobody learned from
    assert done["rollouts"] == 1


def test_a_dry_run_counts_and_changes_nothing(filled: Path, read: Read) -> None:
    done = read("gc", "--older-than", "30d", "--dry-run", "--store", filled)

    assert isinstance(done, dict)
    assert (done["rollouts"], done["more"]) == (1, False)
    assert FAILED in kept(filled)


def test_what_is_not_old_enough_stays(filled: Path, read: Read) -> None:
    before = kept(filled)

    read("gc", "--older-than", "5000w", "--store", filled)

    assert kept(filled) == before


def test_the_age_may_be_a_setting(filled: Path, read: Read) -> None:
    done = read("gc", "--store", filled, TAU_LIVE_RL_RETENTION_DAYS="30")

    assert isinstance(done, dict)
    assert done["rollouts"] == 1


def test_without_an_age_it_asks_for_one(filled: Path, run: Run) -> None:
    result = run("gc", "--store", filled)

    assert result.exit_code == 2
    assert "TAU_LIVE_RL_RETENTION_MB" in result.stderr
    assert FAILED in kept(filled)


def test_it_is_written_down(filled: Path, run: Run) -> None:
    run("gc", "--older-than", "30d", "--store", filled)

    store = SqliteStore.open(filled, read_only=True)
    entry = store.audit.entries(limit=1)[0]
    store.close()
    assert (entry.action, entry.reason, entry.details["rollouts"]) == (
        "gc",
        "older than 30 days",
        1,
    )


def test_many_go_in_steps_that_others_can_write_between(tmp_path: Path) -> None:
    store = with_ended(tmp_path / "store.sqlite", count=450)
    told: list[int] = []

    gone = forget_rollouts(store, Limits(age_s=1.0), now=11.0, report_progress=told.append)

    store.close()
    assert (gone, told) == (450, [200, 400, 450])


def test_a_dry_run_counts_no_further_than_its_limit(tmp_path: Path) -> None:
    store = with_ended(tmp_path / "store.sqlite", count=30)

    found = forgettable(store, Limits(age_s=1.0), now=11.0, limit=20)

    store.close()
    assert found == (20, True)


def with_ended(path: Path, *, count: int) -> Store:
    from tau_live.core.records import RolloutStatus
    from tests.contracts.making import rollout

    store = SqliteStore.open(path)
    with store.begin():
        for n in range(count):
            writes(store).begin_rollout(rollout(f"live-{n}", RolloutStatus.SUCCEEDED, ended_at=2.0))
    return store


def test_so_many_rollouts_stay(filled: Path, read: Read) -> None:
    done = read("gc", "--keep", "3", "--store", filled)

    assert isinstance(done, dict)
    assert done["rollouts"] == 1  # the others are open, wait, or were not learned from
    assert done["over"] == ["rollouts"]
    assert done["kept"]["unlearned"] == 1


def test_what_keeps_it_too_large_is_said(filled: Path, run: Run) -> None:
    result = run("gc", "--max-size", "1kB", "--store", filled)

    assert result.exit_code == 0
    assert "still beyond mb: of the" in result.stderr
    assert "1 not learned from yet" in result.stderr


@pytest.mark.parametrize("text", ["500", "5 parsecs", "-1MB", ""])
def test_a_size_without_a_unit_is_refused(filled: Path, run: Run, text: str) -> None:
    result = run("gc", "--max-size", text, "--store", filled)

    assert result.exit_code == 2
    assert "is not a size like 500MB" in result.stderr


@pytest.mark.parametrize("name", ["old.jsonl", "old.jsonl.gz"])
def test_what_is_forgotten_can_be_archived_and_put_back(
    filled: Path, tmp_path: Path, read: Read, name: str
) -> None:
    before = told_of(filled, FAILED)

    done = read("gc", "--older-than", "30d", "--archive", tmp_path / name, "--store", filled)
    back = read("restore", tmp_path / name, "--store", tmp_path / "again.sqlite")

    assert isinstance(done, dict)
    assert isinstance(back, dict)
    derived = [row for row in before if row.get("kind") in {"run", "decision"}]
    assert (done["archived"], len(derived)) == (len(before) - 2, 2)
    assert (back["rollouts"], back["known"], back["open"]) == (1, 0, 0)
    assert told_of(tmp_path / "again.sqlite", FAILED) == before
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600


def test_what_is_there_already_is_not_put_back(filled: Path, tmp_path: Path, read: Read) -> None:
    everything = tmp_path / "all.jsonl"
    read("export", "-o", everything, "--store", filled)
    before = everything.read_bytes()

    back = read("restore", everything, "--store", filled)
    read("export", "-o", everything, "--store", filled)

    assert isinstance(back, dict)
    assert (back["rollouts"], back["known"]) == (0, 3)
    assert everything.read_bytes() == before


def told_of(path: Path, rollout_id: str) -> list[dict[str, object]]:
    store = SqliteStore.open(path, read_only=True)
    found = [dict(row) for row in store.export() if row.get("rollout_id") == rollout_id]
    store.close()
    return found
