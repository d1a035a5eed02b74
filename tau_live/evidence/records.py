"""Frozen inputs and records of episodes: all that the statistics of a run are made from."""

import os
from collections.abc import Sequence
from hashlib import sha256
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from tau_live.core.errors import TauLiveError
from tau_live.core.files import make_folders
from tau_live.core.prompts import canonical_json
from tau_live.evidence.artifacts import (
    REPORTS,
    ArtifactError,
    Digest,
    Fault,
    Names,
    Natural,
    NotNegative,
    Positive,
    Root,
    RunId,
    Share,
    Timestamp,
    as_kind,
    check,
    digest_of,
    parse,
    plain,
)
from tau_live.rl.criteria import Criteria

Role = Literal["baseline", "trained"]
MOST_FAULTS = 1_000
MOST_EPISODES = 1_000_000
"""Of one role; their records would be of a thousand megabytes."""

ROLES: tuple[Role, Role] = ("baseline", "trained")


class SuiteRef(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The suite of a run.

    Attributes:
        suite_id: Its name.
        suite_version: Its version.
        family: Its family.
        path: Its file, from the root.
        sha256: The digest of the file.
        cases: How many cases it has.
    """

    suite_id: str
    suite_version: str
    family: str
    path: str
    sha256: Digest
    cases: Positive


class Subject(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The subject of a role.

    Attributes:
        subject: ``policy:POINT@VERSION``, ``prompt:VERSION``, ``checkpoint:FILE``, ``host``, or
            ``python:package.module:callable``.
        policy_sha256: The digest of what it is made of.
        kind: What comes before the colon.
    """

    subject: str
    policy_sha256: Digest
    kind: Literal["policy", "prompt", "checkpoint", "host", "python"]


class Subjects(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The subjects of both roles.

    Attributes:
        baseline: What is in force.
        trained: What is claimed to be better.
    """

    baseline: Subject
    trained: Subject


class Environment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the inputs were frozen.

    Attributes:
        tau_live: The version.
        python: The version.
        numpy: The version.
        platform: The operating system and processor.
    """

    tau_live: str
    python: str
    numpy: str
    platform: str


class Inputs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The frozen inputs of a run, older than its first episode.

    Attributes:
        schema_version: 1.
        run_id: The run.
        generated_at: When they were frozen.
        suite: The suite.
        model_ref: The model, ``provider/name``; ``None`` if no subject asks one.
        episodes: Episodes of each role: cases times seeds times repeats.
        seeds: The seeds of the episodes.
        repeats: How often each case is executed with each seed.
        temperature: Of the model.
        planned_pairs: How many pairs the test is to have: the cases.
        criteria: What a pass needs.
        roles: The subjects.
        seed_kind: ``training`` if each seed has a subject of its own; else ``evaluation``.
        environment: Where they were frozen.
        inputs_sha256: The digest of all of this.
    """

    schema_version: Literal[1] = 1
    run_id: RunId
    generated_at: Timestamp
    suite: SuiteRef
    model_ref: str | None
    episodes: Annotated[int, Meta(ge=1, le=MOST_EPISODES)]
    seeds: list[Annotated[int, Meta(ge=0)]]
    repeats: Positive
    temperature: NotNegative
    planned_pairs: Positive
    criteria: Criteria
    roles: Subjects
    seed_kind: Literal["training", "evaluation"]
    environment: Environment
    inputs_sha256: Digest

    def subject(self, role: Role) -> Subject:
        """The subject of a role."""
        return self.roles.baseline if role == "baseline" else self.roles.trained


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One episode: the execution of a case with a seed by a role.

    Attributes:
        schema_version: 1.
        run_id: The run.
        role: The role.
        inputs_sha256: The digest of the frozen inputs.
        suite_sha256: The digest of the suite's file.
        case_id: The case.
        case_sha256: Its digest.
        seed: The seed.
        repeat: The repetition, from 0.
        episode: The number of the episode within its role, from 0.
        rollout_id: Its rollout in the store.
        status: ``scored``; ``failed`` by the subject itself, which earns 0; ``missing`` if its
            surroundings failed.
        reward: In ``[0, 1]``; ``None`` if missing.
        dimensions: The score of each dimension of the case's rubric.
        safety_penalty: At least 0; ``None`` if nothing watches safety.
        cost_usd: US dollars; ``None`` if unknown.
        tokens: Of all model calls; ``None`` if unknown.
        latency_ms: Milliseconds that the subject took; ``None`` if missing.
        subject: The subject.
        policy_sha256: Its digest.
        output_sha256: The digest of the output; ``None`` without any.
        started_at: When it began.
        ended_at: When it ended.
        error: Why it failed or is missing; ``None`` if it is scored.
    """

    schema_version: Literal[1] = 1
    run_id: RunId
    role: Role
    inputs_sha256: Digest
    suite_sha256: Digest
    case_id: str
    case_sha256: Digest
    seed: Natural
    repeat: Natural
    episode: Natural
    rollout_id: str
    status: Literal["scored", "failed", "missing"]
    reward: Share | None
    dimensions: dict[str, Share]
    safety_penalty: NotNegative | None
    cost_usd: NotNegative | None
    tokens: Natural | None
    latency_ms: NotNegative | None
    subject: str
    policy_sha256: Digest
    output_sha256: Digest | None
    started_at: Timestamp
    ended_at: Timestamp
    error: str | None

    @property
    def line(self) -> bytes:
        """Its line in the file of records."""
        return canonical_json(plain(self)) + b"\n"

    @property
    def sha256(self) -> str:
        """The digest of its line."""
        return sha256(self.line).hexdigest()


class Episode(NamedTuple):
    """An episode of the plan.

    Attributes:
        number: Its number within its role, from 0.
        case: The index of its case.
        seed: Its seed.
        repeat: Its repetition, from 0.
    """

    number: int
    case: int
    seed: int
    repeat: int


def plan(inputs: Inputs) -> list[Episode]:
    """Return the episodes of a role, in their order, which is the same for both."""
    return [episode_at(inputs, number) for number in range(inputs.episodes)]


def episode_at(inputs: Inputs, number: int) -> Episode:
    """Return the episode of a number: cases first, then seeds, then repeats."""
    rest, repeat = divmod(number, inputs.repeats)
    case, seed = divmod(rest, len(inputs.seeds))
    return Episode(number, case, inputs.seeds[seed], repeat)


def sealed_inputs(inputs: Inputs) -> Inputs:
    """Return inputs with the digest of all their other fields."""
    own = digest_of(plain(inputs), without="inputs_sha256")
    return msgspec.structs.replace(inputs, inputs_sha256=own)


def read_inputs(root: Root, run_id: str) -> Inputs:
    """Return the frozen inputs of a run.

    Raises:
        ArtifactError: They are missing, wrong, or were changed.
    """
    path = Names(run_id).inputs
    if not root.place(path).exists():
        known = sorted(
            place.name.partition("-benchmark-inputs-")[2].removesuffix(".json")
            for place in root.place(REPORTS).glob("*-benchmark-inputs-*.json")
        )
        runs = f"the runs here are {', '.join(known)}" if known else "freeze it first"
        raise ArtifactError(Fault("artifact_missing", "", f"no run {run_id!r} is frozen: {runs}"))
    document = parse(root.read(path))
    inputs = as_kind(document, Inputs)
    if digest_of(plain(inputs), without="inputs_sha256") != inputs.inputs_sha256:
        text = f"{path} was changed after it was frozen"
        raise ArtifactError(Fault("inputs_mismatch", "/inputs_sha256", text))
    if inputs.run_id != run_id:
        raise ArtifactError(Fault("path_run_id_mismatch", "/run_id", f"{path} is of another run"))
    return inputs


class Lines(NamedTuple):
    """The records in a file, and what is wrong with its lines.

    Attributes:
        records: Those that are whole, in the order of the file.
        faults: What is wrong with others; pointers begin with the number of the line.
        torn: Whether the last line has no end: its writer was killed.
    """

    records: list[Record]
    faults: list[Fault]
    torn: bool


def read_records(content: bytes) -> Lines:
    """Return the records in the content of a file."""
    whole, torn = content, b""
    if content and not content.endswith(b"\n"):
        whole, _, torn = content.rpartition(b"\n")
    records, faults = list[Record](), list[Fault]()
    for number, line in enumerate(whole.removesuffix(b"\n").split(b"\n") if whole else (), 1):
        try:
            records.append(_decode(line, number))
        except ArtifactError as error:
            faults += error.faults
        if len(faults) > MOST_FAULTS:
            break
    return Lines(records, faults, bool(torn))


_DECODER = msgspec.json.Decoder(Record, strict=True)


def _decode(line: bytes, number: int) -> Record:
    """Return the record in a line; the quick way takes those that our own code has written."""
    try:
        record = _DECODER.decode(line)
    except (msgspec.DecodeError, msgspec.ValidationError):
        record = None
    if record is not None and record.line.rstrip(b"\n") == line:
        return record
    try:
        document = parse(line)
    except ArtifactError as error:
        fault = error.faults[0]
        at = f"/{number}"
        raise ArtifactError(Fault("records_malformed", at, fault.message)) from error
    faults = check(document, Record, at=f"/{number}")
    if faults:
        result = [Fault("records_malformed", at, message) for _, at, message in faults]
        raise ArtifactError(*result)
    text = "must be canonical JSON: sorted keys, no spaces, shortest numbers"
    raise ArtifactError(Fault("records_malformed", f"/{number}", text))


class RecordFile:
    """The file of a role's records, which are appended and flushed one by one.

    Args:
        root: The project.
        path: The file, from the root.
    """

    def __init__(self, root: Root, path: str) -> None:
        self._path = path
        self._place = root.place(path)

    def read(self) -> Lines:
        """Return the records so far, and cut off a torn last line.

        Raises:
            TauLiveError: The file cannot be read or cut.
        """
        try:
            content = self._place.read_bytes()
        except FileNotFoundError:
            return Lines([], [], torn=False)
        except OSError as error:
            raise self._error_of("read", error) from error
        lines = read_records(content)
        if lines.torn:
            try:
                os.truncate(self._place, content.rfind(b"\n") + 1)
            except OSError as error:
                raise self._error_of("cut", error) from error
        return lines

    def append(self, record: Record) -> None:
        """Append a record, and flush it to the disk. Raises: TauLiveError."""
        try:
            make_folders(self._place.parent)
            descriptor = os.open(
                self._place, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644
            )
            with os.fdopen(descriptor, "ab") as file:
                file.write(record.line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise self._error_of("written", error) from error

    def _error_of(self, what: str, error: OSError) -> TauLiveError:
        return TauLiveError(f"{self._path} cannot be {what}: {error.strerror or error}")


def by_case(records: Sequence[Record]) -> dict[str, list[Record]]:
    """Return records by case, each in the order of the episodes."""
    result: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda item: item.episode):
        result.setdefault(record.case_id, []).append(record)
    return result
