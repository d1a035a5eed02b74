"""Deleted rollouts in a folder of Parquet files: complete, packed once, readable by any engine."""

import json
import shutil
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path

import pytest

import tau_live
from tau_live.core.errors import ArchiveError
from tau_live.core.records import RolloutQuery
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Learner, Settings
from tau_live.store.opening import open_at
from tests.cli.conftest import Read, Run
from tests.cli.filled import FAILED, OPEN
from tests.contracts.making import span

pytest.importorskip("pyarrow")

from tau_live.cli.archive import MANIFEST, PENDING, ArchiveFolder, read_folder, read_manifest

RUNS = 64


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that has learned from all of its runs."""
    path = tmp_path_factory.mktemp("learned") / "store.sqlite"
    tau_live.detach()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAU_LIVE_RL", "1")
        settings = Settings(
            store=path, decide_deadline_ms=60_000.0, exploration=0.5, learner=Learner.FLUSH
        )  # a thread might learn from eleven of them first, and leave five
        tau_live.attach(settings)
        for key in range(RUNS):
            with tau_live.run("triage", key=key, session=("even", "odd")[key % 2]) as run:
                language = "de" if key % 2 else "en"
                chosen = run.decide("model", ["small", "large"], context={"lang": language})
                run.reward(float((chosen.option == "large") == (language == "de")) / 3.0)
        assert tau_live.flush(60.0)
        tau_live.detach()
    with closing(open_at(path)) as store:
        page = store.rollouts.query(RolloutQuery())
        store.rollouts.add_spans(
            [span("s-1", one.rollout_id, ended_at=3.0) for one in page.rollouts]
        )
    return path


@pytest.fixture
def store(learned: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "live" / "store.sqlite"
    shutil.copytree(learned.parent, copy.parent)
    return copy


def exported(run: Run, store: Path, *tables: str) -> list[JsonObject]:
    rows = map(json.loads, run("export", "--store", store).stdout.splitlines())
    return [row for row in rows if row["table"] in tables]


OWN = ("rollouts", "attempts", "spans", "decisions", "rewards")


def test_all_that_was_deleted_comes_back_as_it_was(
    store: Path, tmp_path: Path, run: Run, read: Read
) -> None:
    before = exported(run, store, *OWN)

    done = read("gc", "--keep", "20", "--archive", "old/", "--store", store)
    more = read("gc", "--keep", "0", "--archive", "old", "--store", store)
    back = read("restore", "old", "--store", tmp_path / "again.sqlite")

    assert isinstance(done, dict)
    assert isinstance(more, dict)
    assert isinstance(back, dict)
    assert (done["rollouts"], more["rollouts"]) == (RUNS - 20, 20)
    assert (back["rollouts"], back["known"]) == (RUNS, 0)
    assert exported(run, tmp_path / "again.sqlite", *OWN) == before
    assert not (tmp_path / "old" / PENDING).read_bytes()
    files = [file for file in (tmp_path / "old").rglob("*") if file.is_file()]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_an_estimate_is_the_same_over_archive_and_store_as_over_all(
    store: Path, tmp_path: Path, run: Run, read: Read
) -> None:
    whole = estimates(read, store)

    read("gc", "--keep", "24", "--archive", "old/", "--store", store)
    (tmp_path / "rest.jsonl").write_text(run("export", "--store", store).stdout)
    for source in ("old", "rest.jsonl"):
        read("restore", source, "--store", tmp_path / "both.sqlite")

    found = estimates(read, tmp_path / "both.sqlite")
    assert found.keys() == whole.keys()
    assert [*found.values()] == pytest.approx([*whole.values()], abs=1e-12)


def estimates(read: Read, store: Path) -> dict[str, float]:
    found = read("evaluate", "--policy", "uniform", "--point", "model", "--store", store)
    assert isinstance(found, dict)
    assert found["read"] == RUNS
    return {name: one["value"] for name, one in found["decisions"]["estimates"].items()}


def test_a_person_is_forgotten_in_store_and_archive(
    store: Path, tmp_path: Path, run: Run, read: Read
) -> None:
    read("gc", "--keep", "40", "--archive", "old/", "--store", store)
    left = [str(row["rollout_id"]) for row in exported(run, store, "rollouts")]
    old = [str(row["rollout_id"]) for row in read_folder(tmp_path / "old") if "ready_seq" in row]
    files = {*(tmp_path / "old").rglob("*.parquet")}

    done = read(
        "forget", left[3], old[5], "--archive", "old", "--reason", "asked", "--store", store
    )

    assert done == {"rollouts": 1, "archived": 1}
    assert left[3] not in run("export", "--store", store).stdout
    assert [row["rollout_id"] for row in read_folder(tmp_path / "old") if "ready_seq" in row] == [
        id_ for id_ in old if id_ != old[5]
    ]
    assert files.isdisjoint((tmp_path / "old").rglob("*.parquet"))
    assert run("verify", "--store", store).exit_code == 0
    again = run("forget", left[3], "--archive", "old", "--reason", "asked", "--store", store)
    assert (again.exit_code, left[3] in again.stderr) == (1, True)


def test_a_session_is_forgotten(store: Path, tmp_path: Path, run: Run, read: Read) -> None:
    def sessions(rows: Iterable[Mapping[str, object]]) -> list[object]:
        return [row["session_id"] for row in rows if row["table"] == "rollouts"]

    read("gc", "--keep", "40", "--archive", "old/", "--store", store)
    before = [*sessions(read_folder(tmp_path / "old")), *sessions(exported(run, store, "rollouts"))]

    done = read(
        "forget", "--session", "odd", "--archive", "old", "--reason", "asked", "--store", store
    )

    assert done == {"rollouts": 20, "archived": 12}
    assert before.count("odd") == 32
    assert {*sessions(read_folder(tmp_path / "old"))} == {"even"}
    assert {*sessions(exported(run, store, "rollouts"))} == {"even"}


def test_an_open_rollout_is_not_forgotten(filled: Path, run: Run) -> None:
    result = run("forget", OPEN, FAILED, "--reason", "asked", "--store", filled)

    assert result.exit_code == 1
    assert f"rollout {OPEN} has not ended" in result.stderr
    assert FAILED in run("export", "--store", filled).stdout


def rows_of(number: int, *, ended_at: float = 86_400.0) -> list[JsonObject]:
    """Return the rows of a rollout that ended on a day of 1970."""
    rollout_id = f"live-{number}"
    return [
        {"table": "rollouts", "seq": number, "rollout_id": rollout_id, "ended_at": ended_at,
         "metadata": {"b": 1, "a": [2.5, None]}, "input": "text", "total_reward": 0.1},
        {"table": "rewards", "seq": number, "rollout_id": rollout_id, "value": 0.1, "at": 9.0},
    ]  # fmt: skip


def archive_of(folder: Path, rows: list[JsonObject], *, pack: bool = True) -> None:
    archive = ArchiveFolder(folder)
    archive.append(rows)
    if pack:
        archive.pack("", lambda count: None)
    archive.close()


def digests(folder: Path) -> dict[str, str]:
    return {
        file.path: file.sha256 for packed in read_manifest(folder).sets for file in packed.files
    }


def test_a_set_of_files_is_of_one_day(tmp_path: Path) -> None:
    archive_of(tmp_path / "old", [*rows_of(1), *rows_of(2, ended_at=2 * 86_400.0)])

    assert [*digests(tmp_path / "old")] == [
        "day=1970-01-02/rollouts-0001.parquet",
        "day=1970-01-02/rewards-0001.parquet",
        "day=1970-01-03/rollouts-0001.parquet",
        "day=1970-01-03/rewards-0001.parquet",
    ]
    assert [*read_folder(tmp_path / "old")] == [*rows_of(1), *rows_of(2, ended_at=2 * 86_400.0)]


def test_what_was_archived_twice_is_packed_once(tmp_path: Path) -> None:
    """A kill between archive and deletion lets the next run archive the same rollout again."""
    newer = [{**row, "value": 0.5} if "value" in row else row for row in rows_of(1)]
    archive_of(tmp_path / "old", rows_of(1), pack=False)

    archive_of(tmp_path / "old", [*newer, *rows_of(2)])

    assert [*read_folder(tmp_path / "old")][2:] == [newer[1], rows_of(2)[1]]


@pytest.mark.parametrize("named", [False, True], ids=["before the manifest", "after it"])
def test_a_kill_while_packing_changes_nothing(tmp_path: Path, *, named: bool) -> None:
    folder, pending = tmp_path / "old", tmp_path / "old" / PENDING
    archive_of(folder, [*rows_of(1), *rows_of(2)], pack=False)
    for file in (PENDING, MANIFEST):
        shutil.copy(folder / file, tmp_path)
    archive_of(folder, [])
    before = digests(folder)
    shutil.copy(tmp_path / PENDING, pending)  # as a kill leaves it
    if not named:
        shutil.copy(tmp_path / MANIFEST, folder)

    archive_of(folder, [])

    assert digests(folder) == before
    assert [row["rollout_id"] for row in read_folder(folder) if row["table"] == "rollouts"] == [
        "live-1",
        "live-2",
    ]


def test_what_is_pending_is_restored_too(tmp_path: Path) -> None:
    archive_of(tmp_path / "old", rows_of(1))
    archive_of(tmp_path / "old", rows_of(2), pack=False)

    assert [*read_folder(tmp_path / "old")] == [*rows_of(1), *rows_of(2)]


def test_a_file_that_was_changed_is_refused(tmp_path: Path, run: Run) -> None:
    archive_of(tmp_path / "old", rows_of(1))
    file = tmp_path / "old/day=1970-01-02/rewards-0001.parquet"
    file.write_bytes(file.read_bytes().replace(b"live-1", b"live-2"))

    result = run("restore", "old", "--store", tmp_path / "again.sqlite")

    assert result.exit_code == 1
    assert "rewards-0001.parquet' is not the file that the manifest names" in result.stderr


def test_an_archive_without_its_manifest_is_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    archive_of(folder, rows_of(1))
    (folder / MANIFEST).unlink()
    files = [*folder.rglob("*.parquet")]

    with pytest.raises(ArchiveError, match="is not an archive"):
        ArchiveFolder(folder)

    assert files == [*folder.rglob("*.parquet")] != []


def test_a_folder_of_something_else_is_refused(tmp_path: Path, store: Path, run: Run) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "me.png").write_bytes(b"")

    result = run("gc", "--keep", "0", "--archive", "photos/", "--store", store)

    assert result.exit_code == 1
    assert "is not an archive" in result.stderr
    with pytest.raises(ArchiveError, match="is not an archive"):
        [*read_folder(tmp_path / "photos")]


def test_duckdb_reads_it_where_it_is(store: Path, run: Run, read: Read, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    rewards = [float(str(row["value"])) for row in exported(run, store, "rewards")]

    read("gc", "--keep", "0", "--archive", "old/", "--store", store)

    sql = f"select count(*), sum(value) from '{tmp_path}/old/*/rewards-*.parquet'"
    assert duckdb.sql(sql).fetchall() == [(RUNS, pytest.approx(sum(rewards)))]
