"""Every fault of a drill: the artifact against its evidence files, and both against the stores.

What is written by hand has to agree with what nobody writes by hand: each line of the events log
holds the head of the store's chain of seals at that moment, the stores hold the rows, and the
operator log the processes that wrote the lines.
"""

import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from tau_live.core.errors import TauLiveError
from tau_live.core.fault import POINTS
from tau_live.evidence.artifacts import (
    DAY_S,
    ArtifactError,
    Fault,
    Root,
    check,
    digest,
    parse,
    seconds_of,
    timestamp,
)
from tau_live.evidence.drill.child import ENDED, LEASED, OPENED, STARTED, STORED
from tau_live.evidence.drill.documents import (
    CONTROL,
    KIND,
    RECOVERED,
    SOUND,
    STORES,
    SUCCEEDED,
    CrashDrill,
    CrashPass,
    Drill,
    EventLine,
    Evidence,
    Health,
    Manifest,
    OperatorEntry,
    Outcome,
    Paths,
    ResumeDrill,
    StoreName,
)
from tau_live.evidence.drill.logs import EVENTS, Logs, heads, log_faults, logs_of
from tau_live.evidence.drill.running import reopened_ms
from tau_live.evidence.drill.stores import StoreFacts, difference, ends_of, facts_of

Document = TypeVar("Document", Health, Manifest)


class _Pass(NamedTuple):
    """One crash, with everything that is known of it.

    Attributes:
        store: The name of its store.
        at: The JSON pointer of its fields.
        claims: What the artifact says.
        logs: Both logs.
        manifest: What was in flight.
        manifest_sha256: The digest of that file.
    """

    store: StoreName
    at: str
    claims: CrashPass
    logs: Logs
    manifest: Manifest
    manifest_sha256: str


def drill_faults(document: object, root: Root, *, now: float | None = None) -> list[Fault]:
    """Return every fault of a drill, by pointer; none if it is valid.

    Args:
        document: The artifact, as JSON data.
        root: The project folder.
        now: Epoch seconds, UTC; ``None`` does not ask whether it comes from the future.
    """
    faults = check(document, Drill)
    if not faults:
        drill = msgspec.convert(document, Drill)
        faults = [*_artifact_faults(drill, now), *_evidence_faults(drill, root)]
    return sorted(dict.fromkeys(faults), key=lambda fault: (fault.pointer, fault.code))


def _artifact_faults(drill: Drill, now: float | None) -> Iterator[Fault]:
    """Yield what is wrong with the artifact by itself."""
    paths = Paths(drill.run_id, drill.crash_drill.state_dir)
    if drill.artifact_kind != f"{paths.program}_{KIND}":
        yield Fault("path_run_id_mismatch", "/artifact_kind", f"is not of {paths.program}")
    if now is not None and seconds_of(drill.generated_at) > now + DAY_S:
        yield Fault("clock_order", "/generated_at", "is in the future")
    yield from _suffix_faults(
        "/evidence",
        (drill.evidence.events_log_path, "events_log_path", ("events.jsonl",)),
        (drill.evidence.health_snapshot_path, "health_snapshot_path", (".json",)),
        (drill.evidence.operator_log_path, "operator_log_path", (".log",)),
    )
    for store, claims in drill.passes.items():
        at = _pointer(store)
        yield from _suffix_faults(
            at,
            (claims.crash_drill.running_manifest_path, "crash_drill/running_manifest_path",
             (".json",)),
            (claims.resume_drill.checkpoint_path, "resume_drill/checkpoint_path",
             (".npz", ".sqlite")),
        )  # fmt: skip
        yield from _crash_claim_faults(claims.crash_drill, at, is_random=bool(at))
        yield from _outcome_claim_faults(claims.outcome, f"{at}/outcome")


def _suffix_faults(at: str, *paths: tuple[str, str, tuple[str, ...]]) -> Iterator[Fault]:
    for path, name, endings in paths:
        if not path.endswith(endings):
            text = f"must end in {' or '.join(endings)}, got {path!r}"
            yield Fault("wrong_suffix", f"{at}/{name}", text)


def _crash_claim_faults(crash: CrashDrill, at: str, *, is_random: bool) -> Iterator[Fault]:
    at = f"{at}/crash_drill"
    if crash.signal != signal.SIGKILL.name:
        yield Fault("not_killed", f"{at}/signal", f"must be SIGKILL, got {crash.signal!r}")
    if crash.exit_signal != signal.SIGKILL:
        yield Fault("not_killed", f"{at}/exit_signal", f"must be 9, got {crash.exit_signal}")
    if not crash.in_flight.rollouts or not crash.in_flight.updates:
        yield Fault("not_killed", f"{at}/in_flight", "an update and rollouts must be in flight")
    if is_random != (crash.fault_point is None) or crash.fault_point not in {None, *POINTS}:
        wanted = "null at a random moment" if is_random else "a fault point"
        text = f"must be {wanted}, got {crash.fault_point!r}"
        yield Fault("not_killed", f"{at}/fault_point", text)


def _outcome_claim_faults(outcome: Outcome, at: str) -> Iterator[Fault]:
    if outcome.resume_status != SUCCEEDED:
        text = f"must be {SUCCEEDED!r}, got {outcome.resume_status!r}"
        yield Fault("wrong_resume_status", f"{at}/resume_status", text)
    if outcome.recovery_reason_code != RECOVERED:
        text = f"must be {RECOVERED!r}, got {outcome.recovery_reason_code!r}"
        yield Fault("wrong_reason_code", f"{at}/recovery_reason_code", text)
    if outcome.rows_lost:
        yield Fault("rows_lost", f"{at}/rows_lost", f"{outcome.rows_lost} rows are lost")
    if outcome.rows_doubled:
        yield Fault("rows_doubled", f"{at}/rows_doubled", f"{outcome.rows_doubled} rows are double")
    if outcome.integrity != SOUND:
        yield Fault("seal_broken", f"{at}/integrity", outcome.integrity)
    if outcome.policy_sha256 != outcome.control_policy_sha256:
        yield Fault("policy_differs", f"{at}/policy_sha256", "is not that of the control")


def _evidence_faults(drill: Drill, root: Root) -> Iterator[Fault]:
    """Yield what evidence and stores contradict."""
    contents: dict[str, bytes] = {}
    yield from _read_evidence(drill.evidence, root, contents)
    logs = None
    if {"events_log", "operator_log"} <= contents.keys():
        logs, faults = logs_of(contents, drill.run_id)
        yield from faults
        yield from log_faults(logs, drill)
    stores, faults = _stores_of(drill, root, logs)
    yield from faults
    yield from _health_faults(contents.get("health_snapshot"), stores)
    if logs is not None:
        yield from _event_faults(logs, stores)
    for store, claims in drill.passes.items():
        at = _pointer(store)
        manifest, sha256, faults = _manifest_of(claims.crash_drill, root, at)
        yield from faults
        if manifest is not None and logs is not None:
            item = _Pass(store, at, claims, logs, manifest, sha256)
            yield from _kill_faults(item)
            yield from _resume_faults(item)
        yield from _checkpoint_faults(claims.resume_drill, root, at)
        if store in stores and CONTROL in stores:
            yield from _row_faults(claims, stores[CONTROL], stores[store], at)
            yield from _policy_faults(drill, store, stores)
            if manifest is not None:
                yield from _recovery_faults(claims, manifest, stores[store], at)


_EVIDENCE = ("events_log", "health_snapshot", "operator_log")


def _read_evidence(evidence: Evidence, root: Root, contents: dict[str, bytes]) -> Iterator[Fault]:
    for name in _EVIDENCE:
        path: str = getattr(evidence, f"{name}_path")
        at = f"/evidence/{name}_path"
        try:
            content = root.read(path)
        except ArtifactError as error:
            yield from _missing_faults(error, at)
            continue
        if digest(content) != getattr(evidence, f"{name}_sha256"):
            text = f"{path} is not the file of this drill"
            yield Fault("evidence_hash_mismatch", f"/evidence/{name}_sha256", text)
        contents[name] = content


def _missing_faults(error: ArtifactError, at: str) -> Iterator[Fault]:
    for fault in error.faults:
        code = "evidence_missing" if fault.code == "artifact_missing" else fault.code
        yield Fault(code, at, fault.message)


def _stores_of(
    drill: Drill, root: Root, logs: Logs | None
) -> tuple[dict[StoreName, StoreFacts], list[Fault]]:
    """Return what the stores hold."""
    stores: dict[StoreName, StoreFacts] = {}
    faults: list[Fault] = []
    paths, at = Paths(drill.run_id, drill.crash_drill.state_dir), "/crash_drill/state_dir"
    if drill.random_moment.crash_drill.state_dir != paths.state:
        text = "is not that of the crash at the named point"
        faults.append(Fault("inputs_mismatch", f"/random_moment{at}", text))
    for store in STORES:
        places = [place for place, _ in heads(logs, store)] if logs else []
        try:
            stores[store] = facts_of(root, paths.store(store), places=places)
        except ArtifactError as error:
            faults += _missing_faults(error, at)
        except TauLiveError as error:
            faults.append(Fault("seal_broken", at, f"{paths.store(store)}: {error}"))
    return stores, faults


def _health_faults(
    content: bytes | None, stores: Mapping[StoreName, StoreFacts]
) -> Iterator[Fault]:
    at = "/evidence/health_snapshot_path"
    if content is None:
        return
    health, faults = _document(content, Health, at)
    yield from faults
    if health is None:
        return
    if health.stores.keys() != {*STORES}:
        yield Fault("missing_field", at, f"must have {', '.join(STORES)}")
    for name, facts in stores.items():
        if health.stores.get(name) != facts.health:
            yield Fault("record_differs_from_store", at, f"is not the state of {name}")


def _document(content: bytes, kind: type[Document], at: str) -> tuple[Document | None, list[Fault]]:
    try:
        document = parse(content)
    except ArtifactError as error:
        return None, [fault._replace(pointer=at) for fault in error.faults]
    faults = [
        fault._replace(pointer=at, message=f"{fault.pointer}: {fault.message}")
        for fault in check(document, kind)
    ]
    return (None if faults else msgspec.convert(document, kind)), faults


def _event_faults(logs: Logs, stores: Mapping[StoreName, StoreFacts]) -> Iterator[Fault]:
    """Yield where the events log is not what happened to the stores."""
    for store, facts in stores.items():
        own = [event for event in logs.events if event.store == store]
        known = heads(logs, store)
        wrong = sum(facts.links.get(place) != link for place, link in known)
        wrong += sum(event.event not in {STARTED, OPENED} for event in own) - len(known)
        if wrong:
            text = f"{store}: its seals have not the heads that {wrong} lines should have"
            yield Fault("record_differs_from_store", EVENTS, text)
        jobs = [event.job_id for event in own if event.event == STORED]
        if sorted(map(str, jobs)) != sorted(facts.updates):
            text = f"{store}: {len(jobs)} updates were stored, it has {len(facts.updates)}"
            yield Fault("record_differs_from_store", EVENTS, text)
        ends = [event.head for event in own if event.event == ENDED]
        if ends != [facts.health.head]:
            text = f"{store}: no process ended with the head that it has"
            yield Fault("record_differs_from_store", EVENTS, text)
    control = stores.get(CONTROL)
    if control is not None and control.health.repeated:
        text = "the control has seen events twice, so it was stopped itself"
        yield Fault("record_differs_from_store", "/crash_drill/state_dir", text)


def _manifest_of(
    crash: CrashDrill, root: Root, at: str
) -> tuple[Manifest | None, str, list[Fault]]:
    at = f"{at}/crash_drill/running_manifest_path"
    try:
        content = root.read(crash.running_manifest_path)
    except ArtifactError as error:
        return None, "", list(_missing_faults(error, at))
    manifest, faults = _document(content, Manifest, at)
    return manifest, digest(content), faults


def _kill_faults(item: _Pass) -> Iterator[Fault]:
    """Yield what shows that no process was killed with something in flight."""
    crash, manifest, logs = item.claims.crash_drill, item.manifest, item.logs
    at = f"{item.at}/crash_drill"
    run = logs.run_of(crash.killed_pid)
    if run is None or run.store != item.store or run.exit_code != -signal.SIGKILL:
        text = f"the operator log has no process {crash.killed_pid} that died of SIGKILL"
        yield Fault("not_killed", f"{at}/killed_pid", text)
        return
    kills = [kill for kill in logs.entries_of(item.store, "kill") if kill.pid == run.pid]
    command = f"kill -KILL {run.pid}"
    if [kill.command for kill in kills] != [command] or crash.crash_simulation_command != command:
        text = f"the operator log does not kill process {run.pid} once with {command!r}"
        yield Fault("not_killed", f"{at}/crash_simulation_command", text)
        return
    kill = kills[0]
    if not run.at <= kill.at <= run.ended_at or timestamp(kill.at) != crash.killed_at:
        yield Fault("clock_order", f"{at}/killed_at", "the process did not run then")
    yield from _last_line_faults(item, logs.events_of(run.pid), kill)
    yield from _manifest_faults(item, kill)
    if (crash.in_flight.rollouts, crash.in_flight.updates, crash.acknowledged) != (
        len(manifest.rollouts), len(manifest.updates), manifest.ended,
    ):  # fmt: skip
        yield Fault("not_killed", f"{at}/in_flight", "is not what the running manifest has")


def _last_line_faults(
    item: _Pass, events: Sequence[EventLine], kill: OperatorEntry
) -> Iterator[Fault]:
    """Yield what shows that the killed process was not in an update at its end."""
    at, crash, manifest = f"{item.at}/crash_drill", item.claims.crash_drill, item.manifest
    last = events[-1] if events else None
    if last is None or last.job_id is None or last.event in {STORED, ENDED}:
        yield Fault("not_killed", at, "the killed process was not in an update")
        return
    if last.at > kill.at:
        yield Fault("clock_order", at, "the killed process wrote lines after its end")
    if crash.fault_point not in {None, last.event}:
        text = f"the last line of the process is {last.event!r}"
        yield Fault("not_killed", f"{at}/fault_point", text)
    if (manifest.point, manifest.updates) != (last.event, [last.job_id]):
        text = "the running manifest has another update than the last line of the process"
        yield Fault("not_killed", f"{at}/running_manifest_path", text)


def _manifest_faults(item: _Pass, kill: OperatorEntry) -> Iterator[Fault]:
    """Yield what shows that the manifest was not written before the kill."""
    at, manifest = f"{item.at}/crash_drill/running_manifest_path", item.manifest
    path = item.claims.crash_drill.running_manifest_path
    if (manifest.store, manifest.pid) != (item.store, kill.pid):
        yield Fault("not_killed", at, f"{path} is about another process")
    written = [
        entry for entry in item.logs.entries_of(item.store, "write") if entry.command == path
    ]
    if len(written) != 1 or not manifest.at <= written[0].ended_at <= kill.at:
        yield Fault("clock_order", at, f"{path} was not written before the kill")
    if any(entry.output != item.manifest_sha256 for entry in written):
        yield Fault("evidence_hash_mismatch", at, f"{path} is not what was written before the kill")


def _resume_faults(item: _Pass) -> Iterator[Fault]:
    """Yield what shows that no process went on with the update that was in flight."""
    resume, logs, at = item.claims.resume_drill, item.logs, f"{item.at}/resume_drill"
    crashed = logs.run_of(item.manifest.pid)
    since = crashed.ended_at if crashed else 0.0
    later = [
        run for run in logs.entries_of(item.store, "run") if run.at >= since and run != crashed
    ]
    if len(later) != 1 or (later[0].command, later[0].exit_code) != (resume.restart_command, 0):
        text = "the operator log has not one command after the crash that ended with 0"
        yield Fault("not_resumed", f"{at}/restart_command", text)
        return
    events, job = logs.events_of(later[0].pid), resume.resumed_job_id
    steps = [event.event for event in events if event.job_id == job]
    if job not in item.manifest.updates or not {LEASED, STORED} <= {*steps}:
        text = f"{job!r} was not in flight, or is not in the events after the restart"
        yield Fault("not_resumed", f"{at}/resumed_job_id", text)
    opened = [event for event in events if event.event == OPENED]
    if not opened or abs(reopened_ms(later[0].at, opened[0].at) - resume.reopened_ms) > 0.01:
        text = "is not when the store was open in the events"
        yield Fault("not_resumed", f"{at}/reopened_ms", text)


def _checkpoint_faults(resume: ResumeDrill, root: Root, at: str) -> Iterator[Fault]:
    at = f"{at}/resume_drill/checkpoint"
    try:
        file = root.reference(resume.checkpoint_path)
    except ArtifactError as error:
        yield from _missing_faults(error, f"{at}_path")
        return
    if file.sha256 != resume.checkpoint_sha256:
        text = f"{resume.checkpoint_path} is not the file of this drill"
        yield Fault("artifact_hash_mismatch", f"{at}_sha256", text)


def _row_faults(
    claims: CrashPass, control: StoreFacts, own: StoreFacts, at: str
) -> Iterator[Fault]:
    """Yield where the stores differ, or have other rows than the artifact says."""
    outcome, at, rows = claims.outcome, f"{at}/outcome", difference(control, own)
    if rows.lost:
        yield Fault("rows_lost", f"{at}/rows_lost", f"{rows.lost} rows of the control are lost")
    if rows.doubled:
        text = f"{rows.doubled} rows are more than the control has"
        yield Fault("rows_doubled", f"{at}/rows_doubled", text)
    if own.health.integrity != SOUND or control.health.integrity != SOUND:
        text = next(
            facts.health.integrity for facts in (own, control) if facts.health.integrity != SOUND
        )
        yield Fault("seal_broken", f"{at}/integrity", text)
    for name, facts in (("export_sha256", own), ("control_export_sha256", control)):
        if getattr(outcome, name) != facts.health.export_sha256:
            text = f"the store has {facts.health.export_sha256}"
            yield Fault("evidence_hash_mismatch", f"{at}/{name}", text)


def _policy_faults(
    drill: Drill, store: StoreName, stores: Mapping[StoreName, StoreFacts]
) -> Iterator[Fault]:
    """Yield where the policies differ, or the artifact says others than the stores have."""
    claims, own, control = drill.passes[store], stores[store], stores[CONTROL]
    at, health = _pointer(store), own.health
    if health.policy_sha256 is None or health.policy_sha256 != control.health.policy_sha256:
        text = "the policy that serves is not that of the control"
        yield Fault("policy_differs", f"{at}/outcome/policy_sha256", text)
    for name, facts in (("policy_sha256", own), ("control_policy_sha256", control)):
        if getattr(claims.outcome, name) != facts.health.policy_sha256:
            text = f"the store has {facts.health.policy_sha256}"
            yield Fault("policy_differs", f"{at}/outcome/{name}", text)
    paths = Paths(drill.run_id, drill.crash_drill.state_dir)
    path = claims.resume_drill.checkpoint_path
    if own.serving is None or path != paths.checkpoint(store, own.serving.file):
        text = f"{path} is not the checkpoint that serves"
        yield Fault("policy_differs", f"{at}/resume_drill/checkpoint_path", text)


def _recovery_faults(
    claims: CrashPass, manifest: Manifest, own: StoreFacts, at: str
) -> Iterator[Fault]:
    """Yield what shows that the store did not go on from what was in flight."""
    at, resume = f"{at}/resume_drill", claims.resume_drill
    if not own.health.repeated:
        text = "its store has seen no event twice, so no process began again in it"
        yield Fault("not_resumed", at, text)
    if (resume.requeued, resume.abandoned) != ends_of(manifest.rollouts, own):
        text = "the rollouts that were in flight have ended otherwise"
        yield Fault("not_resumed", f"{at}/requeued", text)
    if resume.requeued + resume.abandoned != len(manifest.rollouts):
        text = "not all rollouts that were in flight have ended"
        yield Fault("not_resumed", f"{at}/requeued", text)
    update = own.updates.get(resume.resumed_job_id)
    made = None if update is None or update.version is None else own.versions.get(update.version)
    if made is None or {*manifest.checkpoints} - {made}:
        text = f"{resume.resumed_job_id!r} did not make the checkpoint that was in flight"
        yield Fault("not_resumed", f"{at}/resumed_job_id", text)


def _pointer(store: StoreName) -> str:
    """Return the JSON pointer under which the fields of a crash are."""
    return "" if store == STORES[1] else f"/{store}"
