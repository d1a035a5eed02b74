"""Validation: an artifact is believed in nothing that its records and inputs do not give."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from tau_live.core.errors import TauLiveError, UnknownError
from tau_live.core.records import RolloutStatus
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Settings
from tau_live.evidence.artifacts import (
    DAY_S,
    ArtifactError,
    Fault,
    Names,
    Root,
    check,
    digest,
    digest_of,
    parse,
    plain,
    seconds_of,
    timestamp,
)
from tau_live.evidence.comparison import (
    Evidence,
    Measured,
    Reports,
    publication_of,
    read_evidence,
    reports_of,
    significance_of,
)
from tau_live.evidence.differences import TOLERANCE, differences
from tau_live.evidence.proof import SEALS, Artifacts, Proof, hmac_of, proof_of
from tau_live.evidence.records import (
    ROLES,
    Episode,
    Inputs,
    Record,
    Role,
    episode_at,
    read_inputs,
    read_records,
)
from tau_live.evidence.reports import (
    KINDS,
    POLICIES,
    PUBLISHED,
    SAFETY,
    SHELF,
    RoleReport,
    SafetyReport,
    Significance,
    SignificanceReport,
)
from tau_live.evidence.running import (
    PENALTY,
    SCORE,
    inputs_trained_on,
    rollout_id_of,
    store_of,
    surroundings,
)
from tau_live.evidence.subjects import (
    AGENT,
    SEED,
    has_subject_per_seed,
    joined_digest,
    subject_of,
)
from tau_live.evidence.suites import (
    Case,
    Suite,
    SuiteError,
    contaminations,
    parse_suite,
    problems_of,
    reward_of,
)
from tau_live.evidence.summary import KIND, Summary, summary_differences
from tau_live.store.roles import Store
from tau_live.store.sealing import Sealer, key_in, known_beginning

OTHER_NUMPY = 0.01
CLAIMED = frozenset({"insufficient_pairs", "too_many_missing", "safety_unknown"})
"""The reasons that are faults of their own in an artifact that claims to pass."""

DETERMINISTIC = frozenset({"policy", "checkpoint", "host"})
"""The kinds of subjects of which an episode can be executed again without running anything."""

MOST_FAULTS = 1_000
MOST_DAYS = 36_500
Level = Literal["records", "store", "re_executed"]


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """A validator's verdict on an artifact.

    Attributes:
        schema_version: 1.
        path: Its file, as named.
        kind: What it is; ``unknown`` if it is none of this protocol.
        valid: Whether nothing is wrong.
        level: What it was checked against: ``records``, ``store`` or ``re_executed``.
        errors: All that is wrong, by pointer.
    """

    schema_version: Literal[1] = 1
    path: str
    kind: str
    valid: bool
    level: Level
    errors: list[Fault]


class Checked(NamedTuple):
    """The project, store and keys that artifacts are checked against.

    Attributes:
        root: The project.
        settings: The settings of the store; ``None`` checks against records alone.
        key: The audit key; empty for none.
        re_execute: How many episodes are executed again.
        now: Epoch seconds.
        others: Validators of other artifacts than reports and proofs, by kind.
    """

    root: Root
    settings: Settings | None = None
    key: bytes = b""
    re_execute: int = 0
    now: float | None = None
    others: "Mapping[str, Callable[[object, Checked], Iterable[Fault]]]" = MappingProxyType({})


def validate(path: Path, against: Checked, *, content: bytes | None = None) -> Validation:
    """Return every fault of an artifact and of what it names; nothing named in it is executed.

    Args:
        path: Its file.
        against: What it is checked against.
        content: The bytes of the file, if they were read already.
    """
    kind, faults = "unknown", list[Fault]()
    try:
        name = against.root.relative(path)
        content = against.root.read(name) if content is None else content
        if name.endswith(".jsonl"):
            kind = "records"
            faults += _faults_of_lines(content)
        else:
            document = parse(content)
            kind = kind_of(document)
            for fault in faults_of(document, kind, name, against):
                faults.append(fault)  # what was found stays, whatever comes then
    except ArtifactError as error:
        faults += error.faults
    faults = sorted(dict.fromkeys(faults), key=lambda fault: (fault.pointer, fault.code))
    level: Level = "records" if against.settings is None else "store"
    if (
        level == "store"
        and against.re_execute
        and kind == "proof"
        and _is_repeatable(path, against)
    ):
        level = "re_executed"
    return Validation(
        path=str(path), kind=kind, valid=not faults, level=level, errors=faults[:MOST_FAULTS]
    )


def kind_of(document: object) -> str:
    """Return what a document is; ``unknown`` if it is no artifact of this protocol."""
    if not isinstance(document, dict):
        return "unknown"
    report = document.get("report_kind")
    marks = {
        "drill": "artifact_kind" in document,
        "proof": "proof_sha256" in document or "failure_analysis" in document,
        "inputs": "planned_pairs" in document or "seed_kind" in document,
        "suite": "cases" in document,
        SAFETY: "promotion_allowed" in document,
        "gate": "decision" in document,
        "ops": "overall_status" in document,
        str(report): report is not None,
    }
    return next((kind for kind, is_one in marks.items() if is_one), "unknown")


def faults_of(document: object, kind: str, path: str, against: Checked) -> Iterator[Fault]:
    """Yield the faults of a document of a kind."""
    others = against.others.get(kind)
    if others is not None:
        yield from others(document, against)
        return
    if kind == KIND and isinstance(document, dict):
        yield from _faults_of_summary(document, against)
        yield from _faults_of_place(document, kind, path)
        yield from _faults_of_retention(document)
        yield from _in_future(document, against)
        return
    if kind == "suite":
        yield from (Fault("suite_malformed", "", problem) for problem in problems_of(document))
        return
    if kind not in STRUCTS:
        code = "bad_report_kind" if isinstance(document, dict) else "not_an_object"
        code = "bad_report_kind" if "report_kind" in (document or ()) else code  # type: ignore[operator]  # a dict or nothing
        pointer = "/report_kind" if code == "bad_report_kind" else ""
        yield Fault(code, pointer, "is no artifact of this protocol")
        return
    faults = [_with_own_code(fault) for fault in check(document, STRUCTS[kind])]
    yield from faults
    if isinstance(document, dict):
        yield from _faults_of_place(document, kind, path)
        yield from _faults_of_retention(document)
        yield from _in_future(document, against)
        if not faults:
            yield from _faults_of_figures(document, kind, against)


def _faults_of_summary(document: JsonObject, against: Checked) -> Iterator[Fault]:
    """Yield what is wrong with a summary, and with the runs that it names."""
    faults = [*summary_differences({**document}, against.root)]
    yield from faults
    if faults:
        return
    for run in msgspec.convert(document, Summary).runs:
        inputs = read_inputs(against.root, run.run_id)
        yield from faults_of_inputs(inputs, against.root)
        yield from _faults_of_run(document, KIND, inputs, against)


STRUCTS: Mapping[str, type] = {
    "inputs": Inputs,
    "baseline": RoleReport,
    "trained": RoleReport,
    "significance": SignificanceReport,
    SAFETY: SafetyReport,
    "proof": Proof,
}


def _with_own_code(fault: Fault) -> Fault:
    """Return a fault of the structure by its own code, where the contract has one."""
    if fault.pointer.endswith("/policy_sha256") and fault.code != "wrong_type":
        return fault._replace(code="policy_hash_missing")
    if fault.pointer.endswith("/confidence_level") and fault.code == "out_of_range":
        return fault
    if fault.pointer == "/report_kind" and fault.code in {"out_of_range", "missing_field"}:
        return fault._replace(code="bad_report_kind")
    return fault


def _faults_of_place(document: JsonObject, kind: str, path: str) -> Iterator[Fault]:
    """Yield a fault if a file has the name of another run's, or of another kind's."""
    run_id = document.get("run_id")
    name = path.rpartition("/")[2]
    if not isinstance(run_id, str):
        return
    if path.startswith(f"{SHELF}/"):
        yield from _faults_of_shelf(document, kind, path)
        return
    if not name.startswith(f"{Names(run_id).program}-benchmark-"):
        return
    names = Names(run_id)
    known = {
        "inputs": [names.inputs],
        "proof": [names.proof],
    }.get(kind) or [names.report(kind), names.newest_report(kind)]
    published = publication_of(run_id, kind, timestamp(0))
    known += [published.report_path, published.archive_path]
    if name not in {item.rpartition("/")[2] for item in known}:
        yield Fault("path_run_id_mismatch", "/run_id", f"{name} is the name of another artifact")


def _faults_of_shelf(document: JsonObject, kind: str, path: str) -> Iterator[Fault]:
    """Yield a fault if a published or archived file does not lie where its content says."""
    if kind not in PUBLISHED:
        yield Fault("bad_report_path", "", f"no {kind} is published: {path}")
        return
    run_id = str(document["run_id"])
    try:
        wanted = publication_of(run_id, kind, str(document.get("generated_at")))
    except ValueError:
        return  # reported already
    folder, _, name = path.rpartition("/")
    own, _, report = wanted.report_path.rpartition("/")
    if path in {wanted.report_path, wanted.archive_path}:
        return
    if path.startswith(f"{SHELF}/archive/"):
        archived = wanted.archive_path.rpartition("/")[2]
        code = "bad_archive_path" if name in {archived, report} else "path_run_id_mismatch"
        yield Fault(code, "/publication/archive_path", f"must lie at {wanted.archive_path}")
        return
    is_other = folder != own and folder.rpartition("/")[0] == own.rpartition("/")[0]
    code = "path_run_id_mismatch" if is_other else "bad_report_path"
    yield Fault(code, "/publication/report_path", f"must lie at {wanted.report_path}")


def _faults_of_retention(document: JsonObject) -> Iterator[Fault]:
    own, at = document.get("retention"), document.get("generated_at")
    if not isinstance(own, dict):
        return
    policy, days = own.get("policy"), own.get("retain_days")
    after, purge = own.get("archive_after_days"), own.get("purge_after")
    if policy not in POLICIES:
        text = f"must be one of {', '.join(POLICIES)}, got {policy!r}"
        yield Fault("bad_retention_policy", "/retention/policy", text)
    if type(days) is not int or not 0 < days <= MOST_DAYS:
        text = f"must be from 1 to {MOST_DAYS:,}, got {days!r}"[:200]
        yield Fault("bad_retain_days", "/retention/retain_days", text)
        return
    if type(after) is not int or not 0 <= after <= days:
        text = f"must be from 0 to retain_days, got {after!r}"
        yield Fault("bad_archive_after_days", "/retention/archive_after_days", text)
    try:
        wanted = timestamp(seconds_of(str(at)) + days * DAY_S)
    except (ValueError, OverflowError, OSError):
        return
    if purge != wanted:
        text = f"must be generated_at and retain_days, {wanted}, got {purge!r}"
        yield Fault("bad_purge_after", "/retention/purge_after", text)


def _in_future(document: JsonObject, against: Checked) -> Iterator[Fault]:
    now = time.time() if against.now is None else against.now
    try:
        at = seconds_of(str(document.get("generated_at")))
    except ValueError:
        return
    if at > now + DAY_S:
        yield Fault("clock_order", "/generated_at", "is in the future by more than a day")


# Figures


def _faults_of_figures(document: JsonObject, kind: str, against: Checked) -> Iterator[Fault]:
    """Yield where a document is not what its inputs and records give."""
    root = against.root
    inputs: Inputs
    if kind == "inputs":
        inputs = msgspec.convert(document, Inputs)
    else:
        names = Names(str(document["run_id"]))
        result = parse(root.read(names.inputs))
        faults = [_with_own_code(fault) for fault in check(result, Inputs)]
        if faults:
            yield from (fault._replace(pointer=f"/inputs{fault.pointer}") for fault in faults)
            return
        inputs = msgspec.convert(result, Inputs)
        if inputs.run_id != document["run_id"]:
            yield Fault("inputs_mismatch", "/run_id", "the frozen inputs are of another run")
    result = [*faults_of_inputs(inputs, root)]
    yield from result
    if kind == "inputs" or any(fault.code in _NO_PLAN for fault in result):
        return
    yield from _faults_of_run(document, kind, inputs, against)


def _faults_of_run(
    document: JsonObject, kind: str, inputs: Inputs, against: Checked
) -> Iterator[Fault]:
    root = against.root
    try:
        suite = parse_suite(root.read(inputs.suite.path), inputs.suite.path)
    except (SuiteError, ArtifactError):
        return  # reported already
    if len(suite.cases) != inputs.suite.cases:
        return
    evidence = read_evidence(root, inputs)
    faults = [*faults_of_evidence(evidence, suite)]
    yield from faults
    if against.settings is not None:
        yield from faults_of_store(evidence, suite, against)
    if any(fault.code in _UNUSABLE for fault in faults) or not all(
        evidence.of(role).lines.records for role in ROLES
    ):
        return
    yield from _late_episodes(document, evidence)
    if kind == KIND:
        return  # its figures are compared on their own
    compared = significance_of(evidence)
    reports = reports_of(evidence, compared, str(document["generated_at"]))
    if kind != "proof":
        wanted = dict(zip(KINDS, reports, strict=True))[kind]
        yield from differences(document, plain(wanted), drawn=_draw_tolerance(inputs))
        yield from _claims(document, plain(reports.significance)["significance"])
        return
    yield from _faults_of_proof(document, evidence, reports, against)
    if against.settings is not None and against.re_execute and not faults:
        yield from _faults_of_re_execution(str(document["proof_sha256"]), evidence, suite, against)


_NO_PLAN = frozenset({"planned_n_mismatch", "seed_mismatch"})
_UNUSABLE = frozenset({"records_malformed", "records_duplicate_episode", "records_foreign_run"})


def faults_of_inputs(inputs: Inputs, root: Root) -> Iterator[Fault]:
    """Yield what is wrong with frozen inputs, and with their suite."""
    own = inputs.roles
    is_one = (
        own.baseline.policy_sha256 == own.trained.policy_sha256
        or own.baseline.subject == own.trained.subject
    )
    per_seed = any(has_subject_per_seed(each.subject) for each in (own.baseline, own.trained))
    episodes = inputs.suite.cases * len(inputs.seeds) * inputs.repeats
    sealed = digest_of(plain(inputs), without="inputs_sha256") == inputs.inputs_sha256
    checks = {
        ("inputs_mismatch", "/inputs_sha256", "the inputs were changed"): sealed,
        ("same_policy", "/roles", "both roles are one subject"): not is_one,
        ("inputs_mismatch", "/seed_kind", "contradicts the subjects"):
            (inputs.seed_kind == "training") is per_seed,
        ("inputs_mismatch", "/roles/baseline/kind", "is not the kind of the subject"):
            kind_of_subject(inputs, "baseline") == own.baseline.kind,
        ("inputs_mismatch", "/roles/trained/kind", "is not the kind of the subject"):
            kind_of_subject(inputs, "trained") == own.trained.kind,
        ("seed_mismatch", "/seeds", "must name each seed once, and at least one"):
            len({*inputs.seeds}) == len(inputs.seeds) > 0,
        ("planned_n_mismatch", "/episodes", "must be cases times seeds times repeats"):
            inputs.episodes == episodes,
        ("planned_n_mismatch", "/planned_pairs", "must be the number of cases"):
            inputs.planned_pairs == inputs.suite.cases,
    }  # fmt: skip
    yield from (Fault(*fault) for fault, holds in checks.items() if not holds)
    yield from _faults_of_suite(inputs, root)


def _faults_of_suite(inputs: Inputs, root: Root) -> Iterator[Fault]:
    frozen = inputs.suite
    try:
        content = root.read(frozen.path)
        suite = parse_suite(content, frozen.path)
    except SuiteError as error:
        yield from (
            Fault("suite_hash_mismatch", "/suite/path", problem) for problem in error.problems
        )
        return
    if digest(content) != frozen.sha256:
        yield Fault("suite_hash_mismatch", "/suite/sha256", "the suite is not the one frozen")
    ids = (suite.suite_id, suite.suite_version, suite.family, len(suite.cases))
    if ids != (frozen.suite_id, frozen.suite_version, frozen.family, frozen.cases):
        yield Fault("suite_hash_mismatch", "/suite", "its id, version, family or cases differ")


def _faults_of_lines(content: bytes) -> list[Fault]:
    lines = read_records(content)
    torn = [Fault("records_malformed", "", "the last line has no end")] if lines.torn else []
    return [*lines.faults, *torn, *_repetitions(lines.records, "")]


def faults_of_evidence(evidence: Evidence, suite: Suite) -> Iterator[Fault]:
    """Yield what is wrong with the records of a run."""
    ids: list[set[str]] = []
    for role in ROLES:
        own = evidence.of(role)
        yield from _faults_of_records(own, evidence.inputs, suite, role)
        ids.append({record.rollout_id for record in own.lines.records})
    if ids[0] & ids[1]:
        yield Fault("copied_records", "/records", "both roles name the same rollouts")
    marks = [
        {
            (item.case_id, item.output_sha256, item.started_at, item.ended_at, item.latency_ms)
            for item in evidence.of(role).lines.records
            if item.latency_ms is not None and item.output_sha256 is not None
        }
        for role in ROLES
    ]
    shared = marks[0] & marks[1]
    if len(shared) > 1 + len(marks[0]) // 20:  # quick subjects may take the same nanoseconds
        text = "records of both roles have the same output, start, end and latency"
        yield Fault("copied_records", "/records", text)


def _faults_of_records(own: Measured, inputs: Inputs, suite: Suite, role: Role) -> Iterator[Fault]:
    at = f"/records/{role}"
    yield from (fault._replace(pointer=at + fault.pointer) for fault in own.lines.faults)
    if own.lines.torn:
        yield Fault("records_malformed", at, "the last line has no end")
    yield from _repetitions(own.lines.records, at)
    for record in own.lines.records:
        where = f"{at}/{record.episode}"
        if record.episode >= inputs.episodes:
            yield Fault("records_count_mismatch", where, "is beyond the planned episodes")
        else:
            episode = episode_at(inputs, record.episode)
            case = suite.cases[episode.case]
            yield from _faults_of_record(
                record, inputs, case=case, episode=episode, role=role, at=where
            )
    missing = inputs.episodes - len({item.episode for item in own.lines.records})
    if missing:
        text = f"{missing} of {inputs.episodes} planned episodes have no record"
        yield Fault("records_count_mismatch", at, text)


def _repetitions(records: list[Record], at: str) -> Iterator[Fault]:
    known = set[tuple[str, int]]()
    for record in records:
        key = (record.role, record.episode)
        if key in known:
            text = f"episode {record.episode} has more than one record"
            yield Fault("records_duplicate_episode", f"{at}/{record.episode}", text)
        known.add(key)


def _faults_of_record(
    record: Record, inputs: Inputs, *, case: Case, episode: Episode, role: Role, at: str
) -> Iterator[Fault]:
    subject = inputs.subject(role)
    wanted = {
        "run_id": (inputs.run_id, "records_foreign_run"),
        "role": (role, "records_foreign_run"),
        "inputs_sha256": (inputs.inputs_sha256, "records_foreign_run"),
        "rollout_id": (rollout_id_of(inputs, role, episode), "records_foreign_run"),
        "suite_sha256": (inputs.suite.sha256, "suite_hash_mismatch"),
        "case_id": (case.case_id, "inputs_mismatch"),
        "case_sha256": (case.sha256, "suite_hash_mismatch"),
        "seed": (episode.seed, "seed_mismatch"),
        "repeat": (episode.repeat, "seed_mismatch"),
        "subject": (subject.subject, "inputs_mismatch"),
        "policy_sha256": (subject.policy_sha256, "inputs_mismatch"),
    }
    for name, (value, code) in wanted.items():
        if getattr(record, name) != value:
            yield Fault(code, f"{at}/{name}", f"must be {value!r}, as frozen")
    problem = _problem_of_outcome(record, case)
    if problem:
        yield Fault("records_malformed", at, problem)
    if record.ended_at < record.started_at or record.started_at < inputs.generated_at:
        yield Fault("clock_order", at, "its times are not in their order")


def _problem_of_outcome(record: Record, case: Case) -> str | None:
    """Return what contradicts itself in a record; ``None`` if nothing."""
    status, reward, has_error = record.status, record.reward, bool(record.error)
    is_scored = status == "scored"
    rubric = case.scoring_rubric.keys() if is_scored else set[str]()
    is_whole = is_scored and record.dimensions.keys() == rubric
    wanted = reward_of(case, record.dimensions) if is_whole else None
    checks = {
        "is missing, and yet has a reward": status != "missing" or reward is None,
        "is missing, and yet has a safety penalty": status != "missing"
        or record.safety_penalty is None,
        "is not missing, and yet has no reward or no latency": status == "missing"
        or (reward is not None and record.latency_ms is not None),
        "has failed, and yet has a reward": status != "failed" or reward == 0.0,
        "is scored and has an error, or is not and has none": has_error is not is_scored,
        "has other dimensions than its rubric": record.dimensions.keys() == rubric,
        "is scored, and yet has no output": not is_scored or record.output_sha256 is not None,
        "its reward is not the weighted sum of its dimensions": wanted is None
        or (reward is not None and math.isclose(reward, wanted, abs_tol=TOLERANCE)),
    }
    return next((problem for problem, holds in checks.items() if not holds), None)


def _late_episodes(document: JsonObject, evidence: Evidence) -> Iterator[Fault]:
    if str(document["generated_at"]) < _last_end(evidence):
        yield Fault("clock_order", "/generated_at", "is before the last episode ended")


def _last_end(evidence: Evidence) -> str:
    return max(record.ended_at for role in ROLES for record in evidence.of(role).lines.records)


def _claims(document: JsonObject, compared: Mapping[str, Any]) -> Iterator[Fault]:
    """Yield the reasons against an artifact that claims to pass."""
    own = document.get("significance")
    if isinstance(own, dict) and own.get("pass") is True:
        for code in compared["reason_codes"]:
            if code in CLAIMED:
                yield Fault(code, "/significance/pass", "claims to pass")


def _draw_tolerance(inputs: Inputs) -> float:
    """Return the tolerance of figures that are drawn: another numpy may draw others."""
    return TOLERANCE if inputs.environment.numpy == np.__version__ else OTHER_NUMPY


# Proofs


def _faults_of_proof(
    document: JsonObject, evidence: Evidence, reports: Reports, against: Checked
) -> Iterator[Fault]:
    root, inputs = against.root, evidence.inputs
    if digest_of(document, without=SEALS) != document["proof_sha256"]:
        yield Fault("proof_hash_mismatch", "/proof_sha256", "is not the digest of the proof")
    yield from _faults_of_key(document, against.key)
    yield from _faults_of_claim(document, evidence, against)
    yield from _faults_of_files(document, root)
    compared, proven_at = reports.significance.significance, str(document["generated_at"])
    for kind in KINDS:
        name = f"/artifacts/{kind.replace('-', '_')}_report"
        result = _faults_of_report(kind, evidence, compared, root, proven_at=proven_at)
        for fault in result:
            yield fault._replace(pointer=name + fault.pointer)
    known = msgspec.convert(document, Proof)
    try:
        wanted = proof_of(
            root, evidence, reports, verification=known.verification,
            generated_at=known.generated_at,
        )  # fmt: skip
    except ArtifactError:
        return  # a file is missing, which is reported
    left_out = dict.fromkeys(SEALS)
    own, computed = {**document, **left_out}, {**plain(wanted), **left_out}
    yield from differences(own, computed, drawn=_draw_tolerance(inputs))
    yield from _claims(document, plain(reports.significance)["significance"])


def _faults_of_report(
    kind: str, evidence: Evidence, compared: Significance, root: Root, *, proven_at: str
) -> Iterator[Fault]:
    """Yield where a report that a proof names is not what its inputs and records give."""
    path = Names(evidence.inputs.run_id).report(kind)
    generated_at = _generated_at(root, path)
    if generated_at is None:
        return
    if not _last_end(evidence) <= generated_at <= proven_at:
        yield Fault("clock_order", "/generated_at", "is not between the episodes and the proof")
    wanted = dict(zip(KINDS, reports_of(evidence, compared, generated_at), strict=True))[kind]
    result = parse(root.read(path))
    faults = check(result, STRUCTS[kind])
    yield from faults or differences(result, plain(wanted), drawn=_draw_tolerance(evidence.inputs))
    if isinstance(result, dict):
        yield from _faults_of_retention(result)


def _generated_at(root: Root, path: str) -> str | None:
    """Return when a report was made; ``None`` if that is unknown, which is reported elsewhere."""
    try:
        document = parse(root.read(path))
        text = document.get("generated_at") if isinstance(document, dict) else None
        seconds_of(str(text))
    except (ArtifactError, ValueError):
        return None
    return str(text)


def _faults_of_files(document: JsonObject, root: Root) -> Iterator[Fault]:
    files = document["artifacts"]
    assert isinstance(files, dict)  # noqa: S101  # its structure was checked
    for name in msgspec.structs.fields(Artifacts):
        own = files[name.name]
        at = f"/artifacts/{name.name}"
        try:
            content = root.read(own["path"])
        except ArtifactError as error:
            yield from (fault._replace(pointer=f"{at}/path") for fault in error.faults)
            continue
        if digest(content) != own["sha256"]:
            yield Fault("artifact_hash_mismatch", f"{at}/sha256", f"{own['path']} is another file")


def _faults_of_claim(document: JsonObject, evidence: Evidence, against: Checked) -> Iterator[Fault]:
    """Yield what is wrong with what the writer of a proof says to have checked."""
    own = msgspec.convert(document, Proof).verification
    head = own.seal_head
    if (own.level == "records") is (head is not None):
        yield Fault("seal_broken", "/verification/seal_head", "contradicts the level")
    if (own.level == "re_executed") is not (own.re_executed > 0):
        yield Fault("out_of_range", "/verification/re_executed", "contradicts the level")
    if head is None:
        return
    place, _, link = head.partition(":")
    if not place.isdigit() or not link:
        yield Fault("seal_broken", "/verification/seal_head", "is no head of a chain of seals")
    elif against.settings is not None:
        with closing(store_of(against.settings, read_only=True)) as store:
            if int(place) and store.seals.link_at(int(place)) != link:
                text = "the store's chain of seals is another one"
                yield Fault("seal_broken", "/verification/seal_head", text)
            rewards = [
                reward.seq
                for role in ROLES
                for record in evidence.of(role).lines.records
                for reward in store.rewards.rewards(record.rollout_id)
            ]
            if store.seals.newest_place("rewards", rewards) > int(place):
                text = "rewards of the run were sealed again after it was proven"
                yield Fault("seal_broken", "/verification/seal_head", text)


def _faults_of_key(document: JsonObject, key: bytes) -> Iterator[Fault]:
    own = document.get("proof_hmac")
    if not key:  # nobody without it can tell
        return
    if own is None:
        yield Fault("proof_hmac_mismatch", "/proof_hmac", "is missing, though there is a key")
        return
    if document.get("key_id") != Sealer(key).key_id:
        yield Fault("unknown_key_id", "/key_id", "is of another key")
    elif own != hmac_of(document, key):
        yield Fault("proof_hmac_mismatch", "/proof_hmac", "is not made with the key")


# The store


def faults_of_store(evidence: Evidence, suite: Suite, against: Checked) -> Iterator[Fault]:
    """Yield where the store contradicts records, or was edited."""
    settings = against.settings
    assert settings is not None  # noqa: S101  # the caller has some
    with closing(store_of(settings, read_only=True)) as store:
        for role in ROLES:
            for record in evidence.of(role).lines.records:
                yield from _faults_of_rollout(store, record, f"/records/{role}/{record.episode}")
        yield from _broken_seals(store, settings)
        for role in ROLES:
            yield from _faults_of_policy(store, evidence.inputs, role)
        for case in contaminations(suite, inputs_trained_on(store)):
            yield Fault("contaminated_case", "/suite", f"training has read the case {case}")


def _faults_of_rollout(store: Store, record: Record, at: str) -> Iterator[Fault]:
    try:
        rollout = store.rollouts.rollout(record.rollout_id)
    except UnknownError:
        yield Fault("record_not_in_store", at, f"the store has no rollout {record.rollout_id}")
        return
    rewards = {item.name: item for item in store.rewards.rewards(record.rollout_id)}
    wanted = {
        name: (value, record.sha256)
        for name, value in ((SCORE, record.reward), (PENALTY, record.safety_penalty))
        if value is not None
    }
    stored = {name: (own.value, own.comment) for name, own in rewards.items()}
    succeeded = (record.status == "scored") is (rollout.status == RolloutStatus.SUCCEEDED)
    same = rollout.output == plain(record) and stored == wanted and rollout.mode == "test"
    if not same or not succeeded:
        yield Fault("record_differs_from_store", at, "the store holds another outcome of it")


def _faults_of_policy(store: Store, inputs: Inputs, role: Role) -> Iterator[Fault]:
    """Yield a fault if a policy of the store is another one than what was measured."""
    subject = inputs.subject(role)
    if kind_of_subject(inputs, role) != "policy":
        return
    digests = []
    for seed in inputs.seeds:
        text = subject.subject.partition(":")[2].replace(SEED, str(seed))
        version = text.rpartition("@")[2]
        if not version.isdigit() or not int(version):
            return  # the untrained policy is in no row
        try:
            digests.append(store.policies.version(int(version)).sha256)
        except TauLiveError as error:
            yield Fault("inputs_mismatch", f"/roles/{role}/subject", str(error))
            return
    if joined_digest(digests) != subject.policy_sha256:
        text = "the store holds another policy of that version"
        yield Fault("inputs_mismatch", f"/roles/{role}/policy_sha256", text)


def _broken_seals(store: Store, settings: Settings) -> Iterator[Fault]:
    """Yield what the seals of decisions and rewards find."""
    sealer = Sealer(key_in(settings.audit_key_file))
    begins = known_beginning(settings.audit_key_file, store.path)
    links = store.seals.broken_links(sealer, start=begins)
    result = [finding for finding in links if finding is not None]
    result += store.seals.changed_rows(("rewards", "decisions"))
    result += store.seals.contradictions()
    for finding in result[:20]:
        yield Fault("seal_broken", "/verification", f"{finding.what}: {finding.detail}")


def _faults_of_re_execution(
    seal: str, evidence: Evidence, suite: Suite, against: Checked
) -> Iterator[Fault]:
    """Yield episodes that come out differently; which are executed, the proof itself draws."""
    settings, inputs = against.settings, evidence.inputs
    assert settings is not None  # noqa: S101  # the caller has some
    candidates = [
        record
        for role in ROLES
        if kind_of_subject(inputs, role) in DETERMINISTIC and not uses_agent(inputs)
        for record in evidence.of(role).records
        if record.status == "scored"
        and suite.cases[episode_at(inputs, record.episode).case].options
    ]
    drawn = sorted(candidates, key=lambda item: digest(f"{seal}:{item.rollout_id}".encode()))
    with closing(store_of(settings, read_only=True)) as store:
        around = surroundings(against.root, store, settings, inputs)
        for record in drawn[: against.re_execute]:
            at = f"/records/{record.role}/{record.episode}"
            episode = episode_at(inputs, record.episode)
            case = suite.cases[episode.case]
            try:
                own = subject_of(record.subject, around)
                output = own.execute(case, episode).output
            except TauLiveError as error:
                yield Fault("re_execution_differs", at, f"cannot be executed again: {error}")
                continue
            if digest(output.text.encode()) != record.output_sha256:
                yield Fault("re_execution_differs", at, f"gives {output.text!r} now")


def _is_repeatable(path: Path, against: Checked) -> bool:
    """Return whether an episode of a proof can be executed again."""
    try:
        proof = msgspec.convert(parse(against.root.read(against.root.relative(path))), Proof)
        inputs = read_inputs(against.root, proof.run_id)
    except (ArtifactError, msgspec.ValidationError):
        return False
    kinds = {kind_of_subject(inputs, role) for role in ROLES}
    return bool(kinds & DETERMINISTIC) and not uses_agent(inputs)


def kind_of_subject(inputs: Inputs, role: Role) -> str:
    """Return the kind of a subject, by its reference: what stands beside it is only claimed."""
    return inputs.subject(role).subject.partition(":")[0]


def uses_agent(inputs: Inputs) -> bool:
    """Return whether an agent would have to be executed."""
    return inputs.model_ref is not None and inputs.model_ref.startswith(AGENT)
