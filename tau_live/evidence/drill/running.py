"""Runs the drill: trains without a stop, kills two other trainings, lets them go on, compares."""

import os
import random
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Literal, NamedTuple

import msgspec

from tau_live.core.errors import StoreUnavailableError, TauLiveError
from tau_live.core.events import encode
from tau_live.core.files import make_folders
from tau_live.evidence.artifacts import ArtifactError, Root, check, timestamp
from tau_live.evidence.drill.child import LEASED, OPENED, STORED
from tau_live.evidence.drill.documents import (
    CONTROL,
    FAILED,
    KIND,
    NAMED_POINT,
    NOT_RECOVERED,
    RANDOM_MOMENT,
    RECOVERED,
    STORES,
    SUCCEEDED,
    CrashDrill,
    CrashPass,
    Drill,
    EventLine,
    Evidence,
    Health,
    InFlight,
    Manifest,
    OperatorEntry,
    Outcome,
    Paths,
    ResumeDrill,
    RunId,
    StoreName,
)
from tau_live.evidence.drill.host import recording
from tau_live.evidence.drill.process import Child, command_of
from tau_live.evidence.drill.stores import (
    Flight,
    StoreFacts,
    acknowledged_lost,
    difference,
    ends_of,
    facts_of,
    flight_of,
    job_of,
)

FAULT_POINT = "update.saved"
"""The checkpoint is in its place, and the store does not know it: the most is in flight there."""

SEED = 0
"""Determines the recording and the training."""

JOB = 9
"""The update that is killed at the named point, about half-way."""

FIRST, LAST = 3, 12
"""The updates between which that of the random moment is drawn; where none is in flight at that
moment, the next one is tried."""

NO_POLICY = "0" * 64

MODULE = "tau_live.evidence.drill"
DEADLINE_S = 300.0
"""A child that takes longer is killed, and the drill fails."""


class _Named(msgspec.Struct, frozen=True, kw_only=True):
    run_id: RunId


def run_drill(
    root: Root,
    run_id: str,
    state_dir: str,
    *,
    environ: Mapping[str, str],
    resumes: bool = True,
    progress: Callable[[str], object] = lambda _: None,
) -> Drill:
    """Run a drill, write its evidence and its artifact, and return the artifact.

    It is written whatever came of it; ``drill_faults`` judges it.

    Args:
        root: The project folder.
        run_id: The drill: ``m24-recovery-`` and digits.
        state_dir: The folder, from the root, in which the drill makes a folder for its stores.
        environ: The environment of this process, of which the children get what is not ours.
        resumes: Whether the killed trainings go on; ``False`` plants the fault that a drill has to
            find.
        progress: Called with a line for each step.

    Raises:
        ArtifactError: The run id is none of a drill, or the folder leaves the root.
        TauLiveError: There is such a drill already, another process does it just now, or a child
            could not do its part.
    """
    faults = check({"run_id": run_id}, _Named)
    if faults:
        raise ArtifactError(*faults)
    paths = Paths(run_id, root.relative(root.place(f"{state_dir}/{run_id}")))
    if os.path.lexists(root.place(paths.artifact)):
        raise TauLiveError(f"{paths.artifact} is there already: choose another run id")
    with root.workplace(paths.state, own=paths.inside, files=paths.evidence):
        drill = _Drilling(root, paths, environ=environ, progress=progress)
        drill.prepare()
        drill.train_control()
        crashes, resumed = list[_Crash](), list[OperatorEntry | None]()
        for crash_of in (drill.kill_at_point, drill.kill_at_moment):
            crashes.append(crash_of())
            resumed.append(drill.resume(crashes[-1]) if resumes else None)
        progress("comparing the stores")
        return _write_artifact(drill, crashes, resumed)


class _Crash(NamedTuple):
    """A training that was killed.

    Attributes:
        fault_point: The named point; ``None`` for a random moment.
        manifest: What was in flight.
        manifest_path: Where that was written.
        kill: How it was killed.
        run: The training and its end.
        lost: Acknowledged rollouts that the crash took.
    """

    fault_point: str | None
    manifest: Manifest
    manifest_path: str
    kill: OperatorEntry
    run: OperatorEntry
    lost: int


class _Drilling:
    """Starts the children one after the other, and keeps the operator log.

    Args:
        root: The project folder.
        paths: The files of the drill.
        environ: The environment of this process.
        progress: Called with a line for each step.

    Attributes:
        entries: The operator log so far.
    """

    def __init__(
        self,
        root: Root,
        paths: Paths,
        *,
        environ: Mapping[str, str],
        progress: Callable[[str], object],
    ) -> None:
        self.root = root
        self.paths = paths
        self.entries: list[OperatorEntry] = []
        self._environ = environ
        self._rng = random.Random(paths.run_id)  # noqa: S311  # no secret
        self._progress = progress

    def prepare(self) -> None:
        """Make the folders and the recording."""
        for path in (self.paths.events, *map(self.paths.store, STORES)):
            make_folders(self.root.place(path).parent)
        lines = b"".join(encode(event) + b"\n" for event in recording(SEED))
        self.root.write_bytes(self.paths.recording, lines)

    def train_control(self) -> OperatorEntry:
        """Train without a stop."""
        self._progress("training without a stop")
        with closing(self._start(CONTROL)) as child:
            return self._finish(CONTROL, child)

    def kill_at_point(self) -> _Crash:
        """Train until a named point, and kill the process that waits there."""
        self._progress(f"killing a training at {FAULT_POINT}")
        wait = ("--wait-at", FAULT_POINT, "--job", job_of(JOB))
        with closing(self._start(NAMED_POINT, *wait)) as child:
            for event in child.events():
                if (event.event, event.job_id) == (FAULT_POINT, job_of(JOB)):
                    flight = flight_of(self.root.place(self.paths.store(NAMED_POINT)))
                    return self._kill(child, event, flight, fault_point=FAULT_POINT)
            raise TauLiveError(f"a training ended before {FAULT_POINT} of {job_of(JOB)}")

    def kill_at_moment(self) -> _Crash:
        """Train until a random moment at which an update and rollouts are in flight; kill it."""
        self._progress("killing a training at a random moment")
        longest_s = _update_s(self.events())
        early = {None, *map(job_of, range(1, self._rng.randint(FIRST, LAST)))}
        with closing(self._start(RANDOM_MOMENT)) as child:
            for event in child.events():
                if event.event != LEASED or event.job_id in early:
                    continue
                threading.Event().wait(self._rng.uniform(0.0, longest_s))
                child.stop()
                last = [line for line in self.events() if line.pid == child.pid][-1]
                flight = self._flight_at(last)
                if flight is not None:
                    return self._kill(child, last, flight, fault_point=None)
                child.go_on()
            raise TauLiveError("a training ended, and at no random moment was an update in flight")

    def resume(self, crash: _Crash) -> OperatorEntry:
        """Let another process go on from what a crash left."""
        store = crash.manifest.store
        self._progress(f"going on after the crash ({store.replace('_', ' ')})")
        with closing(self._start(store)) as child:
            return self._finish(store, child)

    def command(self, store: StoreName) -> str:
        """Return the command of a child that trains on a store to the end."""
        return command_of(MODULE, self._arguments(store))

    def events(self) -> list[EventLine]:
        """Return the lines that all children have written so far."""
        content = self.root.read(self.paths.events)
        return [msgspec.json.decode(line, type=EventLine) for line in content.splitlines()]

    def _flight_at(self, last: EventLine) -> Flight | None:
        """Return what is in flight in a stopped child; ``None`` if no update or no rollout is."""
        if last.job_id is None or last.event == STORED:
            return None
        try:
            flight = flight_of(self.root.place(self.paths.store(last.store)))
        except StoreUnavailableError:  # it was stopped while it had the store for itself
            return None
        return flight if flight.rollouts and flight.next_job == last.job_id else None

    def _kill(
        self, child: Child, last: EventLine, flight: Flight, *, fault_point: str | None
    ) -> _Crash:
        """Write what is in flight, kill the child, and look at what it left."""
        store, path = last.store, self.paths.manifest(last.store)
        manifest = Manifest(
            run_id=self.paths.run_id, store=store, pid=child.pid, at=time.time(),
            point=last.event, updates=[flight.next_job], rollouts=flight.rollouts,
            checkpoints=flight.checkpoints, ended=flight.ended, head=flight.head,
        )  # fmt: skip
        written = self.root.write(path, manifest)
        self._log("write", store, path, pid=child.pid, began=manifest.at, output=written.sha256)
        began = time.time()
        child.kill()
        command = f"kill -KILL {child.pid}"
        kill = self._log("kill", store, command, pid=child.pid, began=began)
        run = self._finish(store, child)
        lost = acknowledged_lost(
            self.root.place(self.paths.store(store)), ended=last.ended, head=flight.head
        )
        return _Crash(fault_point, manifest, path, kill, run, lost)

    def _start(self, store: StoreName, *more: str) -> Child:
        arguments = self._arguments(store, *more)
        folder = self.root.folder
        return Child(MODULE, arguments, folder, environ=self._environ, deadline_s=DEADLINE_S)

    def _arguments(self, store: StoreName, *more: str) -> list[str]:
        own = ["--run-id", self.paths.run_id, "--store", store, "--state", self.paths.state]
        return [*own, "--seed", str(SEED), *more]

    def _finish(self, store: StoreName, child: Child) -> OperatorEntry:
        """Wait for the end of a child, and log it.

        Raises:
            TauLiveError: It took too long.
        """
        code = child.wait()
        if child.is_overdue:
            raise TauLiveError(f"a child of the drill took more than {DEADLINE_S:g} s")
        output, began = "".join(child.lines), child.started_at
        return self._log(
            "run", store, child.command, pid=child.pid, began=began, code=code, output=output
        )

    def _log(  # noqa: PLR0913  # the fields of an entry
        self,
        kind: Literal["run", "write", "kill"],
        store: StoreName,
        command: str,
        *,
        pid: int,
        began: float,
        code: int = 0,
        output: str | None = None,
    ) -> OperatorEntry:
        entry = OperatorEntry(
            run_id=self.paths.run_id, kind=kind, store=store, command=command, pid=pid,
            at=began, ended_at=time.time(), exit_code=code, output=output or None,
        )  # fmt: skip
        self.entries.append(entry)
        return entry


def _update_s(events: Sequence[EventLine]) -> float:
    """Return the seconds that an update usually takes."""
    leased = {event.job_id: event.at for event in events if event.event == LEASED}
    stored = {event.job_id: event.at for event in events if event.event == STORED}
    return statistics.median([at - leased[job] for job, at in stored.items()] or [0.0])


def _write_artifact(
    drill: _Drilling, crashes: Sequence[_Crash], resumed: Sequence[OperatorEntry | None]
) -> Drill:
    """Compare the stores, and write health, operator log and artifact."""
    root, paths, events = drill.root, drill.paths, drill.events()
    facts = {store: facts_of(root, paths.store(store)) for store in STORES}
    health = Health(
        run_id=paths.run_id,
        at=time.time(),
        stores={store: facts[store].health for store in STORES},
    )
    log = b"".join(msgspec.json.encode(entry) + b"\n" for entry in drill.entries)
    named, moment = (
        _pass_of(drill, crash, after, facts=facts, events=events)
        for crash, after in zip(crashes, resumed, strict=True)
    )
    document = Drill(
        artifact_kind=f"{paths.program}_{KIND}",
        run_id=paths.run_id,
        generated_at=timestamp(time.time()),
        crash_drill=named.crash_drill,
        resume_drill=named.resume_drill,
        random_moment=moment,
        evidence=Evidence(
            events_log_path=paths.events,
            events_log_sha256=root.reference(paths.events).sha256,
            health_snapshot_path=paths.health,
            health_snapshot_sha256=root.write(paths.health, health).sha256,
            operator_log_path=paths.operator_log,
            operator_log_sha256=root.write_bytes(paths.operator_log, log).sha256,
        ),
        outcome=named.outcome,
    )
    root.write_bytes(paths.newest_operator_log, log)
    root.write(paths.artifact, document)
    return document


def _pass_of(
    drill: _Drilling,
    crash: _Crash,
    resumed: OperatorEntry | None,
    *,
    facts: dict[StoreName, StoreFacts],
    events: Sequence[EventLine],
) -> CrashPass:
    manifest = crash.manifest
    store, job = manifest.store, manifest.updates[0]
    control, own = facts[CONTROL], facts[store]
    after = [event for event in events if resumed is not None and event.pid == resumed.pid]
    has_resumed = any((event.event, event.job_id) == (STORED, job) for event in after)
    rows = difference(control, own)
    return CrashPass(
        crash_drill=CrashDrill(
            state_dir=drill.paths.state,
            running_manifest_path=crash.manifest_path,
            crash_simulation_command=crash.kill.command,
            signal=signal.SIGKILL.name,
            fault_point=crash.fault_point,
            killed_pid=manifest.pid,
            exit_signal=max(0, -crash.run.exit_code),
            killed_at=timestamp(crash.kill.at),
            in_flight=InFlight(rollouts=len(manifest.rollouts), updates=len(manifest.updates)),
            acknowledged=manifest.ended,
        ),
        resume_drill=_resume_drill(drill, manifest, resumed, own=own, after=after),
        outcome=Outcome(
            resume_status=SUCCEEDED if has_resumed else FAILED,
            recovery_reason_code=RECOVERED if has_resumed else NOT_RECOVERED,
            rows_lost=rows.lost + crash.lost,
            rows_doubled=rows.doubled,
            integrity=own.health.integrity,
            export_sha256=own.health.export_sha256,
            control_export_sha256=control.health.export_sha256,
            policy_sha256=own.health.policy_sha256 or NO_POLICY,
            control_policy_sha256=control.health.policy_sha256 or NO_POLICY,
        ),
    )


def _resume_drill(
    drill: _Drilling,
    manifest: Manifest,
    resumed: OperatorEntry | None,
    *,
    own: StoreFacts,
    after: Sequence[EventLine],
) -> ResumeDrill:
    file = own.serving.file if own.serving else "none.npz"
    checkpoint = drill.paths.checkpoint(manifest.store, file)
    opened = next(_times(after, OPENED), None)
    requeued, abandoned = ends_of(manifest.rollouts, own)
    return ResumeDrill(
        restart_command=resumed.command if resumed else drill.command(manifest.store),
        resumed_job_id=manifest.updates[0],
        checkpoint_path=checkpoint,
        checkpoint_sha256=drill.root.reference(checkpoint).sha256 if own.serving else NO_POLICY,
        reopened_ms=reopened_ms(resumed.at, opened) if resumed and opened else 0.0,
        requeued=requeued,
        abandoned=abandoned,
    )


def reopened_ms(began: float, opened: float) -> float:
    """Return the milliseconds from the start of a process until its store was open."""
    return round(1000.0 * (opened - began), 3)


def _times(events: Sequence[EventLine], name: str) -> Iterator[float]:
    return (event.at for event in events if event.event == name)
