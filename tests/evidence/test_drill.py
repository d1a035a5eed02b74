import json
import os
import shutil
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tau_live.cli.bench_operations import drill as drill_command
from tau_live.cli.export import export
from tau_live.core.errors import TauLiveError
from tau_live.evidence.artifacts import (
    DAY_S,
    ArtifactError,
    Root,
    check,
    plain,
    seconds_of,
    template_of,
)
from tau_live.evidence.drill import Drill, drill_faults, run_drill
from tau_live.evidence.drill.documents import CONTROL, NAMED_POINT, RANDOM_MOMENT
from tau_live.evidence.drill.host import RUNS, recording
from tau_live.store.opening import open_at
from tests.evidence.drilled import LOGS, PATHS, RUN_ID, STATE, Forgery

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A drill that has passed."""
    folder = tmp_path_factory.mktemp("drill")
    document = run_drill(Root(folder), RUN_ID, STATE, environ=os.environ)
    assert drill_faults(plain(document), Root(folder)) == []
    return folder


@pytest.fixture
def forgery(drill: Path, tmp_path: Path) -> Forgery:
    """A copy of it."""
    return Forgery(drill, tmp_path / "copy")


def test_the_drill_passes_three_times_in_a_row(drill: Path, tmp_path: Path) -> None:
    first = shutil.copytree(drill, tmp_path / "copy", symlinks=True)
    ids, ends = [RUN_ID, "m24-recovery-2", "m24-recovery-3"], []

    for name in ids[1:]:
        result = CliRunner().invoke(
            drill_command, ["--run-id", name, "--root", str(first), "--json"]
        )
        ends.append((result.exit_code, json.loads(result.stdout)["errors"]))

    assert ends == 2 * [(0, [])]
    for name in ids:  # the next drill leaves the evidence of those before alone
        path = first / f"tasks/reports/m24-resume-after-crash-playbook-{name}.json"
        assert drill_faults(json.loads(path.read_bytes()), Root(first)) == []


def test_a_drill_without_resume_is_not_resumed(tmp_path: Path) -> None:
    document = run_drill(Root(tmp_path), RUN_ID, STATE, environ=os.environ, resumes=False)

    codes = {fault.code for fault in drill_faults(plain(document), Root(tmp_path))}

    assert {"not_resumed", "rows_lost", "wrong_resume_status", "wrong_reason_code"} <= codes


def test_the_command_prints_faults_and_refuses_a_second_drill_of_a_name(drill: Path) -> None:
    arguments = ["--run-id", RUN_ID, "--state-dir", STATE, "--root", str(drill)]

    result = CliRunner().invoke(drill_command, arguments)

    assert isinstance(result.exception, TauLiveError)
    assert "choose another run id" in str(result.exception)


def test_help_shows_an_example() -> None:
    result = CliRunner().invoke(drill_command, ["--help"])

    assert "tau-live bench drill --run-id m24-recovery-1" in result.output


@pytest.mark.parametrize("run_id", ["m24-drill-1", "m24-recovery-a", "recovery-1", "m24-recovery-"])
def test_a_run_id_is_that_of_a_drill(run_id: str, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="bad_run_id"):
        run_drill(Root(tmp_path), run_id, STATE, environ=os.environ)


def test_stores_stay_in_the_root(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="artifact_outside_root"):
        run_drill(Root(tmp_path), RUN_ID, "../elsewhere", environ=os.environ)


def test_the_recording_is_determined_by_its_seed() -> None:
    first, again, other = recording(1), recording(1), recording(2)

    assert first == again != other
    assert len({event.run_id for event in first}) == RUNS
    assert [event.at for event in first] == sorted(event.at for event in first)


def test_the_digest_is_that_of_the_export_command(drill: Path) -> None:
    document = json.loads((drill / PATHS.artifact).read_bytes())

    lines = CliRunner().invoke(export, ["--store", str(drill / PATHS.store(NAMED_POINT))])

    assert sha256(lines.stdout_bytes).hexdigest() == document["outcome"]["export_sha256"]


def test_a_drill_stays_valid_when_it_is_moved_and_is_not_changed_by_checks(
    drill: Path, tmp_path: Path
) -> None:
    moved = shutil.copytree(drill, tmp_path / "elsewhere")
    before = {path: path.stat().st_mtime_ns for path in moved.rglob("*")}

    faults = drill_faults(json.loads((moved / PATHS.artifact).read_bytes()), Root(moved))

    assert faults == []
    assert {path: path.stat().st_mtime_ns for path in moved.rglob("*")} == before


def test_the_files_hold_no_path_of_this_machine(drill: Path) -> None:
    reports = [path.read_text() for path in (drill / "tasks/reports").iterdir()]

    assert len(reports) == 7
    assert not any(str(drill) in report for report in reports)


def test_the_template_is_refused() -> None:
    codes = {fault.code for fault in check(template_of(Drill), Drill)}

    assert "template_not_filled" in codes


WRITTEN = [
    pytest.param("/evidence/events_log_path", PATHS.health, "wrong_suffix", id="events"),
    pytest.param("/evidence/operator_log_path", PATHS.events, "wrong_suffix", id="operator"),
    pytest.param("/evidence/health_snapshot_path", PATHS.events, "wrong_suffix", id="health"),
    pytest.param("/crash_drill/running_manifest_path", PATHS.events, "wrong_suffix", id="running"),
    pytest.param("/resume_drill/checkpoint_path", PATHS.events, "wrong_suffix", id="checkpoint"),
    pytest.param("/evidence/events_log_path", "no-events.jsonl", "evidence_missing", id="missing"),
    pytest.param("/evidence/operator_log_path", "../o.log", "artifact_outside_root", id="outside"),
    pytest.param("/crash_drill/state_dir", "nowhere", "evidence_missing", id="no stores"),
    pytest.param("/crash_drill/state_dir", "/tmp", "artifact_outside_root", id="absolute"),
    pytest.param(
        "/evidence/events_log_sha256", "0" * 64, "evidence_hash_mismatch", id="events digest"
    ),
    pytest.param(
        "/resume_drill/checkpoint_sha256",
        "0" * 64,
        "artifact_hash_mismatch",
        id="checkpoint digest",
    ),
    pytest.param("/outcome/export_sha256", "0" * 64, "evidence_hash_mismatch", id="export"),
    pytest.param(
        "/outcome/control_export_sha256", "0" * 64, "evidence_hash_mismatch", id="control export"
    ),
    pytest.param("/crash_drill/exit_signal", 15, "not_killed", id="SIGTERM"),
    pytest.param("/crash_drill/signal", "SIGTERM", "not_killed", id="signal"),
    pytest.param("/crash_drill/killed_pid", 1, "not_killed", id="another pid"),
    pytest.param("/crash_drill/fault_point", "store.begin", "not_killed", id="another point"),
    pytest.param("/crash_drill/fault_point", None, "not_killed", id="no point"),
    pytest.param("/crash_drill/in_flight/updates", 0, "not_killed", id="no update"),
    pytest.param("/crash_drill/in_flight/rollouts", 99, "not_killed", id="other rollouts"),
    pytest.param("/crash_drill/acknowledged", 0, "not_killed", id="acknowledged"),
    pytest.param("/crash_drill/killed_at", "2020-01-01T00:00:00Z", "clock_order", id="earlier"),
    pytest.param("/crash_drill/crash_simulation_command", "killall", "not_killed", id="by name"),
    pytest.param("/resume_drill/resumed_job_id", "update-1", "not_resumed", id="another job"),
    pytest.param("/resume_drill/restart_command", "true", "not_resumed", id="another command"),
    pytest.param("/resume_drill/reopened_ms", 1.0, "not_resumed", id="faster"),
    pytest.param("/resume_drill/abandoned", 1, "not_resumed", id="abandoned"),
    pytest.param("/outcome/rows_lost", 1, "rows_lost", id="lost"),
    pytest.param("/outcome/rows_doubled", 1, "rows_doubled", id="doubled"),
    pytest.param("/outcome/policy_sha256", "0" * 64, "policy_differs", id="policy"),
    pytest.param("/outcome/resume_status", "failed", "wrong_resume_status", id="status"),
    pytest.param("/outcome/recovery_reason_code", "luck", "wrong_reason_code", id="reason"),
    pytest.param("/outcome/integrity", "fine", "seal_broken", id="integrity"),
    pytest.param(
        "/random_moment/crash_drill/fault_point", "store.begin", "not_killed", id="chosen"
    ),
    pytest.param("/random_moment/outcome/rows_lost", 1, "rows_lost", id="lost at random"),
    pytest.param("/generated_at", "2020-01-01T00:00:00Z", "clock_order", id="before the drill"),
    pytest.param("/run_id", "m24-recovery-2", "records_foreign_run", id="another drill"),
    pytest.param("/run_id", "m24-benchmark-2", "bad_run_id", id="no drill"),
    pytest.param("/schema_version", 2, "unsupported_schema_version", id="schema"),
]


@pytest.mark.parametrize(("pointer", "value", "code"), WRITTEN)
def test_an_edited_artifact_is_refused(
    forgery: Forgery, pointer: str, value: object, code: str
) -> None:
    forgery.edit(pointer, value)

    assert code in forgery.codes()


def test_all_faults_are_reported_at_once(forgery: Forgery) -> None:
    forgery.edit("/outcome/resume_status", "failed")
    forgery.edit("/evidence/events_log_path", PATHS.health)
    forgery.edit("/outcome/rows_lost", 3)

    assert forgery.codes() >= {"wrong_resume_status", "wrong_suffix", "rows_lost"}


def test_a_drill_from_the_future_is_refused(drill: Path) -> None:
    document = json.loads((drill / PATHS.artifact).read_bytes())
    at = seconds_of(document["generated_at"])

    (fault,) = drill_faults(document, Root(drill), now=at - DAY_S - 1.0)

    assert (fault.code, fault.pointer) == ("clock_order", "/generated_at")


STORED = [
    pytest.param(
        "delete from rewards where seq = 7", NAMED_POINT, {"rows_lost", "seal_broken"},
        id="lost row",
    ),
    pytest.param(
        "delete from rewards where seq = 7", CONTROL, {"rows_doubled", "seal_broken"},
        id="lost from the control",
    ),
    pytest.param(
        "insert into resources (name, version, content, created_at) values ('p', 1, '1', 1.0)",
        RANDOM_MOMENT, {"rows_doubled"}, id="row too many",
    ),
    pytest.param(
        "update in_service set version = version - 1", NAMED_POINT, {"policy_differs"}, id="policy"
    ),
    pytest.param(
        "update policies set sha256 = substr(sha256, 2) || '0'", NAMED_POINT,
        {"policy_differs", "rows_lost", "rows_doubled"}, id="checksum",
    ),
    pytest.param(
        "delete from counters where name like 'duplicate_%'", NAMED_POINT,
        {"not_resumed", "record_differs_from_store"}, id="never began again",
    ),
    pytest.param("update seals set seal = zeroblob(32)", NAMED_POINT,
        {"record_differs_from_store", "seal_broken"}, id="seals",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "store", "codes"), STORED)
def test_an_edited_store_is_refused(
    forgery: Forgery, sql: str, store: str, codes: set[str]
) -> None:
    forgery.edit_store(sql, store=store)

    assert codes <= forgery.codes()


def test_a_control_that_is_passed_off_as_the_resumed_store_is_refused(forgery: Forgery) -> None:
    shutil.copy(forgery.place(PATHS.store(CONTROL)), forgery.place(PATHS.store(NAMED_POINT)))

    assert "not_resumed" in forgery.codes()


def test_a_store_that_is_no_store_is_refused(forgery: Forgery) -> None:
    forgery.place(PATHS.store(NAMED_POINT)).write_bytes(b"rows")

    assert "seal_broken" in forgery.codes()


def without_end(lines: list[Any]) -> list[Any]:
    return [line for line in lines if line["exit_code"] >= 0]


def ended_well(lines: list[Any]) -> list[Any]:
    return [{**line, "exit_code": 0} for line in lines]


def without_restart(lines: list[Any]) -> list[Any]:
    restarted = [place for place, line in enumerate(lines) if line["store"] == NAMED_POINT][-1]
    return lines[:restarted] + lines[restarted + 1 :]


def without_kill(lines: list[Any]) -> list[Any]:
    return [line for line in lines if line["kind"] != "kill"]


def one_pid(lines: list[Any]) -> list[Any]:
    return [{**line, "pid": 4321} for line in lines]


def backwards(lines: list[Any]) -> list[Any]:
    return lines[::-1]


def silent(lines: list[Any]) -> list[Any]:
    return [{**line, "output": "trained\n"} for line in lines]


def typed(lines: list[Any]) -> list[Any]:
    return ["$ kill -9 4321", "Killed", "resumed: ok"]


OPERATOR = [
    pytest.param(without_end, "not_killed", id="no process died"),
    pytest.param(ended_well, "not_killed", id="all ended well"),
    pytest.param(without_kill, "not_killed", id="nothing was killed"),
    pytest.param(without_restart, "not_resumed", id="no restart"),
    pytest.param(one_pid, "not_resumed", id="one process did everything"),
    pytest.param(backwards, "clock_order", id="in another order"),
    pytest.param(silent, "records_count_mismatch", id="other output"),
    pytest.param(typed, "records_malformed", id="typed"),
]


@pytest.mark.parametrize(("change", "code"), OPERATOR)
def test_a_typed_operator_log_is_refused(
    forgery: Forgery, change: Callable[[list[Any]], list[Any]], code: str
) -> None:
    forgery.edit_lines("operator_log", change)

    assert code in forgery.codes()


def without_resume(lines: list[Any]) -> list[Any]:
    pids = list(dict.fromkeys(line["pid"] for line in lines if line["store"] == NAMED_POINT))
    return [line for line in lines if line["pid"] != pids[1]]


def without_job(lines: list[Any]) -> list[Any]:
    return [
        line for line in lines if line["job_id"] != "update-9" or line["event"] != "update.stored"
    ]


def finished(lines: list[Any]) -> list[Any]:
    """Let the killed process have stored its update."""
    last = [place for place, line in enumerate(lines) if line["event"] == "update.saved"]
    pid = next(line["pid"] for line in lines if line["store"] == NAMED_POINT)
    at = [place for place in last if lines[place]["pid"] == pid][-1]
    return [*lines[: at + 1], {**lines[at], "event": "update.stored"}, *lines[at + 1 :]]


def other_heads(lines: list[Any]) -> list[Any]:
    return [{**line, "head": line["head"] and line["head"][:-1] + "x"} for line in lines]


def without_heads(lines: list[Any]) -> list[Any]:
    return [{**line, "head": None} for line in lines]


def without_control(lines: list[Any]) -> list[Any]:
    return [line for line in lines if line["store"] != CONTROL]


def other_recording(lines: list[Any]) -> list[Any]:
    return [{**lines[0], "recording_sha256": "0" * 64}, *lines[1:]]


def another_process(lines: list[Any]) -> list[Any]:
    return [*lines, {**lines[-1], "pid": 4321}]


EVENTS = [
    pytest.param(without_resume, "not_resumed", id="no events after the restart"),
    pytest.param(without_job, "not_resumed", id="the job is not in them"),
    pytest.param(finished, "not_killed", id="the update was stored"),
    pytest.param(other_heads, "record_differs_from_store", id="invented heads"),
    pytest.param(without_heads, "record_differs_from_store", id="no heads"),
    pytest.param(without_control, "record_differs_from_store", id="no control"),
    pytest.param(other_recording, "inputs_mismatch", id="another recording"),
    pytest.param(another_process, "records_foreign_run", id="a process nobody started"),
    pytest.param(backwards, "clock_order", id="in another order"),
]


@pytest.mark.parametrize(("change", "code"), EVENTS)
def test_a_typed_events_log_is_refused(
    forgery: Forgery, change: Callable[[list[Any]], list[Any]], code: str
) -> None:
    forgery.edit_lines("events_log", change)

    assert code in forgery.codes()


def test_logs_that_were_typed_to_fit_each_other_are_refused_by_the_stores(
    forgery: Forgery,
) -> None:
    """A forger who invents the lines of a process, in both logs and with their digests."""
    forgery.edit_lines("events_log", other_heads)
    events = forgery.root.read(LOGS["events_log"]).decode().splitlines(keepends=True)

    def printed(lines: list[Any]) -> list[Any]:
        return [
            {**line, "output": "".join(e for e in events if json.loads(e)["pid"] == line["pid"])}
            if line["kind"] == "run"
            else line
            for line in lines
        ]

    forgery.edit_lines("operator_log", printed)

    assert forgery.codes() == {"record_differs_from_store"}


def test_empty_logs_are_refused(forgery: Forgery) -> None:
    forgery.edit_lines("events_log", lambda _: [])
    forgery.edit_lines("operator_log", lambda _: [])

    assert {"not_killed", "not_resumed", "record_differs_from_store"} <= forgery.codes()


def test_another_running_manifest_is_refused(forgery: Forgery) -> None:
    place = forgery.place(PATHS.manifest(NAMED_POINT))
    manifest = json.loads(place.read_bytes())
    place.write_text(json.dumps({**manifest, "checkpoints": ["000000001-0123456789abcdef.npz"]}))

    assert {"evidence_hash_mismatch", "not_resumed"} <= forgery.codes()


def test_another_health_snapshot_is_refused(forgery: Forgery) -> None:
    place = forgery.place(PATHS.health)
    health = json.loads(place.read_bytes())
    health["stores"][NAMED_POINT]["updates"] += 1
    place.write_text(json.dumps(health))
    forgery.edit("/evidence/health_snapshot_sha256", sha256(place.read_bytes()).hexdigest())

    assert forgery.codes() == {"record_differs_from_store"}


def test_evidence_behind_a_link_out_of_the_root_is_refused(
    forgery: Forgery, tmp_path: Path
) -> None:
    place = forgery.place(PATHS.events)
    place.rename(tmp_path / "events.jsonl")
    place.symlink_to(tmp_path / "events.jsonl")

    assert "artifact_outside_root" in forgery.codes()


def test_what_was_in_flight_was_in_the_store(drill: Path) -> None:
    manifest = json.loads((drill / PATHS.manifest(RANDOM_MOMENT)).read_bytes())

    with closing(open_at(drill / PATHS.store(RANDOM_MOMENT), read_only=True)) as store:
        reasons = [store.rollouts.rollout(id_).reason for id_ in manifest["rollouts"]]

    assert reasons
    assert set(reasons) == {"completed"}
