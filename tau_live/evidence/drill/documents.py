"""The artifact of a drill, and the lines and snapshots of its evidence files."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from tau_live.evidence.artifacts import REPORTS, Digest, Names, Natural, NotNegative, Timestamp

RUN_ID = "[a-z][a-z0-9]{0,15}-recovery-[0-9-]{1,40}"
"""The form of the id of a drill."""

RunId = Annotated[str, Meta(pattern=f"^{RUN_ID}$", extra={"code": "bad_run_id"})]
KIND = "rl_resume_after_crash_playbook"
ArtifactKind = Annotated[str, Meta(pattern=f"^[a-z][a-z0-9]{{0,15}}_{KIND}$")]

SUCCEEDED = "succeeded"
FAILED = "failed"
RECOVERED = "job_recovered_after_restart"
NOT_RECOVERED = "job_not_recovered"
SOUND = "ok"
"""The integrity of a store in which nothing was found."""

CONTROL: Final = "control"
NAMED_POINT: Final = "named_point"
RANDOM_MOMENT: Final = "random_moment"
StoreName: TypeAlias = Literal["control", "named_point", "random_moment"]
STORES: tuple[StoreName, ...] = (CONTROL, NAMED_POINT, RANDOM_MOMENT)


class Paths(NamedTuple):
    """The files of a drill, from the root.

    Attributes:
        run_id: The drill.
        state: The folder of its stores.
    """

    run_id: str
    state: str

    @property
    def program(self) -> str:
        """The programme, with which the run id begins."""
        return Names(self.run_id).program

    @property
    def artifact(self) -> str:
        """The artifact."""
        return Names(self.run_id).drill

    @property
    def events(self) -> str:
        """The lines that the children wrote as they went."""
        return f"{REPORTS}/{self.run_id}-events.jsonl"

    @property
    def health(self) -> str:
        """The state of the stores at the end."""
        return f"{REPORTS}/{self.run_id}-health.json"

    @property
    def operator_log(self) -> str:
        """The commands of this drill."""
        return f"{REPORTS}/{self.run_id}-operator.log"

    @property
    def newest_operator_log(self) -> str:
        """The copy of the newest operator log, whichever drill it is of."""
        return Names(self.run_id).newest_operator_log

    @property
    def recording(self) -> str:
        """The recording of the scripted host."""
        return f"{self.state}/recording.jsonl"

    @property
    def inside(self) -> tuple[str, ...]:
        """The names of what stands in the folder of the stores."""
        return (PurePosixPath(self.recording).name, *STORES)

    @property
    def evidence(self) -> tuple[str, ...]:
        """All files but the artifact, the recording and the stores."""
        manifests = (self.manifest(store) for store in STORES)
        return (self.events, self.health, self.operator_log, *manifests)

    def manifest(self, store: str) -> str:
        """The manifest of what was in flight in a store before its process was killed."""
        return f"{REPORTS}/{self.run_id}-{store.replace('_', '-')}-running.json"

    def store(self, name: str) -> str:
        """A store."""
        return f"{self.state}/{name}/store.sqlite"

    def checkpoint(self, name: str, file: str) -> str:
        """A checkpoint of a store."""
        store = PurePosixPath(self.store(name))
        return f"{store.parent}/{store.stem}-policies/{file}"


class InFlight(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much was in flight.

    Attributes:
        rollouts: Rollouts that ran.
        updates: Updates that were not stored yet.
    """

    rollouts: Natural
    updates: Natural


class CrashDrill(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a process was killed.

    Attributes:
        state_dir: The folder of the stores.
        running_manifest_path: What was in flight, written before the kill: ``*.json``.
        crash_simulation_command: The command that killed it.
        signal: The name of the signal.
        fault_point: The named point at which it was; ``None`` for a random moment.
        killed_pid: Its process id.
        exit_signal: The number of the signal that it died of; 0 if it ended by itself.
        killed_at: When it was killed.
        in_flight: How much was in flight.
        acknowledged: Rollouts that had been acknowledged as stored before the kill.
    """

    state_dir: str
    running_manifest_path: str
    crash_simulation_command: str
    signal: str
    fault_point: str | None
    killed_pid: Natural
    exit_signal: Natural
    killed_at: Timestamp
    in_flight: InFlight
    acknowledged: Natural


class ResumeDrill(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How another process went on from what was left.

    Attributes:
        restart_command: The command that started it.
        resumed_job_id: The update that was in flight.
        checkpoint_path: The checkpoint of the policy that serves at the end: ``*.npz``.
        checkpoint_sha256: The digest of its bytes.
        reopened_ms: Milliseconds from the start of the process until the store was open.
        requeued: Rollouts in flight that then went on to their own end.
        abandoned: Rollouts in flight that were given up.
    """

    restart_command: str
    resumed_job_id: str
    checkpoint_path: str
    checkpoint_sha256: Digest
    reopened_ms: NotNegative
    requeued: Natural
    abandoned: Natural


class Evidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The files that a drill can be checked against.

    Attributes:
        events_log_path: The lines of the children: ``*events.jsonl``.
        events_log_sha256: The digest of its bytes.
        health_snapshot_path: The state of the stores at the end: ``*.json``.
        health_snapshot_sha256: The digest of its bytes.
        operator_log_path: Each command with time, exit code and output: ``*.log``.
        operator_log_sha256: The digest of its bytes.
    """

    events_log_path: str
    events_log_sha256: Digest
    health_snapshot_path: str
    health_snapshot_sha256: Digest
    operator_log_path: str
    operator_log_sha256: Digest


class Outcome(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A store that went on, compared with the one that was never stopped.

    Attributes:
        resume_status: ``succeeded``, or ``failed``.
        recovery_reason_code: ``job_recovered_after_restart``, or ``job_not_recovered``.
        rows_lost: Rows of the control that are missing, and acknowledged rollouts that the crash
            took.
        rows_doubled: Rows that the control does not have.
        integrity: ``ok``, or what was found first.
        export_sha256: The digest of the export.
        control_export_sha256: The digest of the control's export.
        policy_sha256: The checksum of the policy that serves.
        control_policy_sha256: The checksum of the control's.
    """

    resume_status: str
    recovery_reason_code: str
    rows_lost: Natural
    rows_doubled: Natural
    integrity: str
    export_sha256: Digest
    control_export_sha256: Digest
    policy_sha256: Digest
    control_policy_sha256: Digest


class CrashPass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One crash with what came of it.

    Attributes:
        crash_drill: How the process was killed.
        resume_drill: How another one went on.
        outcome: What came of it.
    """

    crash_drill: CrashDrill
    resume_drill: ResumeDrill
    outcome: Outcome


class Drill(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The artifact of a drill.

    Attributes:
        schema_version: 1.
        artifact_kind: ``m24_rl_resume_after_crash_playbook``.
        run_id: The drill.
        generated_at: When it was written.
        crash_drill: How the process was killed at the named point.
        resume_drill: How another one went on from there.
        random_moment: The same for a process that was killed at a random moment.
        evidence: The evidence files.
        outcome: What came of the crash at the named point.
    """

    schema_version: Literal[1] = 1
    artifact_kind: ArtifactKind
    run_id: RunId
    generated_at: Timestamp
    crash_drill: CrashDrill
    resume_drill: ResumeDrill
    random_moment: CrashPass
    evidence: Evidence
    outcome: Outcome

    @property
    def passes(self) -> Mapping[StoreName, CrashPass]:
        """Both crashes, by the name of the store."""
        first = CrashPass(
            crash_drill=self.crash_drill, resume_drill=self.resume_drill, outcome=self.outcome
        )
        return {NAMED_POINT: first, RANDOM_MOMENT: self.random_moment}


class EventLine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line that a child wrote at something that it reached.

    Attributes:
        run_id: The drill.
        store: The store that it works on.
        pid: Its process id.
        at: Epoch seconds, UTC.
        event: ``process.started``, ``store.opened``, a fault point, or ``process.ended``.
        job_id: The update that it is at; ``None`` outside of one.
        ended: Rollouts that have ended, as the store has them.
        head: The head of the store's seals; empty where it was not open.
        recording_sha256: The digest of the recording.
    """

    run_id: RunId
    store: StoreName
    pid: Natural
    at: NotNegative
    event: str
    job_id: str | None
    ended: Natural
    head: str | None
    recording_sha256: Digest


class OperatorEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that the drill did.

    Attributes:
        run_id: The drill.
        kind: ``run`` started a child and waited for its end, ``write`` wrote a manifest, ``kill``
            killed a child.
        store: The store that it was about.
        command: The command, from the root.
        pid: The process id of the child.
        at: When it began: epoch seconds, UTC.
        ended_at: When it ended.
        exit_code: Of ``run``, the code that the child ended with, or the number of the signal that
            it died of, below 0; else 0.
        output: What it printed; of ``write``, the digest of the file.
    """

    run_id: RunId
    kind: Literal["run", "write", "kill"]
    store: StoreName
    command: str
    pid: Natural
    at: NotNegative
    ended_at: NotNegative
    exit_code: int
    output: str | None


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The work in flight before a kill.

    Attributes:
        schema_version: 1.
        run_id: The drill.
        store: The store.
        pid: The process that is about to be killed.
        at: Epoch seconds, UTC.
        point: The fault point that it had reached last.
        updates: The updates that were not stored yet.
        rollouts: The ids of rollouts that ran.
        checkpoints: The files that were noted as being made.
        ended: Rollouts that had ended.
        head: The head of the store's seals.
    """

    schema_version: Literal[1] = 1
    run_id: RunId
    store: StoreName
    pid: Natural
    at: NotNegative
    point: str
    updates: list[str]
    rollouts: list[str]
    checkpoints: list[str]
    ended: Natural
    head: str


class StoreHealth(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state of a store at the end.

    Attributes:
        integrity: ``ok``, or what was found first.
        gate: ``pass`` or ``hold``.
        ended: Rollouts that have ended.
        open: Rollouts that have not.
        updates: How many updates were made.
        version: The version that serves.
        repeated: Events that came more than once: those of before a crash.
        head: The head of its seals.
        export_sha256: The digest of its export.
        policy_sha256: The checksum of the policy that serves; ``None`` where none does.
    """

    integrity: str
    gate: str
    ended: Natural
    open: Natural
    updates: Natural
    version: Natural
    repeated: Natural
    head: str
    export_sha256: Digest
    policy_sha256: Digest | None


class Health(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state of the stores of a drill at its end.

    Attributes:
        schema_version: 1.
        run_id: The drill.
        at: Epoch seconds, UTC.
        stores: Each store by its name.
    """

    schema_version: Literal[1] = 1
    run_id: RunId
    at: NotNegative
    stores: dict[str, StoreHealth]
