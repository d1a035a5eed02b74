"""Artifacts: JSON files that name each other by path and digest, and every fault of one."""

import fcntl
import json
import math
import os
import re
import shutil
import stat
import time
from calendar import timegm
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from pathlib import Path, PurePosixPath
from time import gmtime, strftime, strptime
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, inspect

from tau_live.core.errors import TauLiveError
from tau_live.core.files import make_folders, write_whole
from tau_live.core.prompts import canonical_json
from tau_live.core.sanitize import JsonObject

RUN_ID = "[a-z][a-z0-9]{0,15}-[a-z0-9][a-z0-9-]{0,62}"
"""The form of the id of a run: the programme, such as ``m24``, and a name."""

REPORTS = "tasks/reports"
MOST_BYTES = 64 * 2**20
MOST_DEPTH = 64
READABLE = 0o644
DAY_S = 86_400
SHOWN = 5
"""Faults that an error names."""

TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"

Digest = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
"""SHA-256, lower-case hex."""

RunId = Annotated[
    str,
    Meta(pattern=f"^{RUN_ID}$", extra={"code": "bad_run_id"}),
]
Timestamp = Annotated[
    str,
    Meta(
        pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$",
        extra={"code": "bad_timestamp"},
    ),
]
"""RFC 3339, UTC, whole seconds."""

Share = Annotated[float, Meta(ge=0.0, le=1.0)]
Confidence = Annotated[float, Meta(gt=0.0, lt=1.0)]
Positive = Annotated[int, Meta(ge=1)]
Natural = Annotated[int, Meta(ge=0, le=2**53)]
NotNegative = Annotated[float, Meta(ge=0.0, le=1e12)]

Document = TypeVar("Document")

_PLACEHOLDER: Final = "<fill in>"


class Fault(NamedTuple):
    """A fault of an artifact.

    Attributes:
        code: Its code.
        pointer: The JSON pointer of the place; empty for the document.
        message: What is wrong, for people.
    """

    code: str
    pointer: str
    message: str


class ArtifactError(TauLiveError):
    """An artifact, or what it names, cannot be used.

    Attributes:
        faults: What is wrong.
    """

    def __init__(self, *faults: Fault) -> None:
        shown = [
            f"{each.code}{' ' * bool(each.pointer)}{each.pointer}: {each.message}"
            for each in faults
        ]
        more = f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else ""
        super().__init__("; ".join(shown[:SHOWN]) + more)
        self.faults = faults


class Reference(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file that an artifact names.

    Attributes:
        path: Its path from the root, POSIX.
        sha256: The digest of its bytes.
    """

    path: str
    sha256: Digest


class Names(NamedTuple):
    """The paths of a run's artifacts, from the root.

    Attributes:
        run_id: The run.
    """

    run_id: str

    @property
    def program(self) -> str:
        """The programme, with which the run id begins."""
        return self.run_id.partition("-")[0]

    @property
    def inputs(self) -> str:
        """The frozen inputs."""
        return self._of("benchmark-inputs")

    @property
    def proof(self) -> str:
        """The proof."""
        return self._of("benchmark-proof")

    @property
    def drill(self) -> str:
        """The drill of resuming after a crash."""
        return self._of("resume-after-crash-playbook")

    @property
    def gate(self) -> str:
        """The gate bundle."""
        return self._of("gate-evidence")

    @property
    def newest_operator_log(self) -> str:
        """The copy of the operator log of the newest drill."""
        return f"{REPORTS}/{self.program}-recovery-operator.log"

    def records(self, role: str) -> str:
        """The records of a role."""
        return f"{REPORTS}/{self.program}-benchmark-records-{self.run_id}-{role}.jsonl"

    def report(self, kind: str) -> str:
        """A report: ``baseline``, ``trained``, ``significance`` or ``safety-regression``."""
        return self._of(f"benchmark-{kind}")

    def newest_report(self, kind: str) -> str:
        """The copy of the newest report of a kind, whichever run it is of."""
        return f"{REPORTS}/{self.program}-benchmark-{kind}.json"

    def _of(self, what: str) -> str:
        return f"{REPORTS}/{self.program}-{what}-{self.run_id}.json"


def digest(content: bytes) -> str:
    """Return the SHA-256 of some bytes."""
    return sha256(content).hexdigest()


def digest_of(document: JsonObject, *, without: str | tuple[str, ...]) -> str:
    """Return the digest of an artifact's canonical JSON without the fields that hold digests."""
    left_out = (without,) if isinstance(without, str) else without
    return digest(canonical_json({k: v for k, v in document.items() if k not in left_out}))


def timestamp(at: float) -> str:
    """Return epoch seconds as a time of artifacts, cut to whole seconds."""
    return strftime(TIME_FORMAT, gmtime(at))


def seconds_of(text: str) -> int:
    """Return the epoch seconds of a time of artifacts. Raises: ValueError."""
    at = timegm(strptime(text, TIME_FORMAT))
    if timestamp(at) != text:  # a second of 61, or of one digit
        raise ValueError(f"must be a time as 2026-11-22T07:30:00Z, got {text!r}")
    return at


def month_of(text: str) -> str:
    """Return ``YYYY/MM`` of a time of artifacts."""
    return datetime.fromtimestamp(seconds_of(text), UTC).strftime("%Y/%m")


class Root:
    """A project folder: all paths in artifacts begin there.

    Attributes:
        folder: The folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(os.path.realpath(folder))

    def place(self, path: str) -> Path:
        """Return where a path of an artifact leads, whether or not a file is there.

        Raises:
            ArtifactError: It is absolute, holds ``..``, or leaves the root through a link.
        """
        pure = PurePosixPath(path)
        odd = "\\" in path or "\0" in path or pure.is_absolute() or ".." in pure.parts
        place = self.folder / pure if not odd and pure.parts else None
        if place is None or not Path(os.path.realpath(place)).is_relative_to(self.folder):
            raise ArtifactError(Fault("artifact_outside_root", "", f"{path!r} leaves the root"))
        return place

    def relative(self, place: Path) -> str:
        """Return the path of a file from the root.

        Raises:
            ArtifactError: It is not inside of the root.
        """
        real = Path(os.path.realpath(place))
        if not real.is_relative_to(self.folder):
            text = f"{str(place)!r} is not in the root {str(self.folder)!r}"
            raise ArtifactError(Fault("artifact_outside_root", "", text))
        return real.relative_to(self.folder).as_posix()

    def read(self, path: str) -> bytes:
        """Return the content of a file. Raises: ArtifactError."""
        return read_bytes(self.place(path), path)

    def reference(self, path: str) -> Reference:
        """Return a file with its digest. Raises: ArtifactError."""
        return Reference(path=path, sha256=digest(self.read(path)))

    def write(self, path: str, document: object) -> Reference:
        """Write an artifact whole, and return it with its digest.

        Raises:
            ArtifactError: The path leaves the root.
            TauLiveError: It cannot be written.
        """
        return self.write_bytes(path, content_of(document))

    def write_bytes(self, path: str, content: bytes) -> Reference:
        """Write a file whole, and return it with its digest.

        Raises:
            ArtifactError: The path leaves the root.
            TauLiveError: It cannot be written.
        """
        place = self.place(path)
        try:
            make_folders(place.parent)
            write_whole(place, content, mode=READABLE)
        except OSError as error:
            raise TauLiveError(f"cannot write {path}: {error.strerror or error}") from error
        return Reference(path=path, sha256=digest(content))

    @contextmanager
    def workplace(
        self, path: str, *, own: Iterable[str], files: Iterable[str] = ()
    ) -> Iterator[None]:
        """Hold an empty folder in which an artifact is made, and delete it with all files before.

        A process that was killed leaves them; whoever makes the same artifact starts over.

        Args:
            path: The folder, from the root.
            own: The names that may be in it; with any other it is somebody else's.
            files: Other files that are made on the way, from the root.

        Raises:
            ArtifactError: A path leaves the root.
            TauLiveError: Another process makes the artifact, the folder is somebody else's, or it
                cannot be emptied.
        """
        place = self.place(path)
        make_folders(place)
        with hold(place, f"another process works in {path}"):
            inside = [*place.iterdir()]
            if foreign := {item.name for item in inside} - {*own}:
                text = f"{path} has files of somebody else ({min(foreign)}): name another folder"
                raise TauLiveError(text)
            try:
                for item in inside:
                    is_folder = item.is_dir() and not item.is_symlink()
                    shutil.rmtree(item) if is_folder else item.unlink()
                for file in files:
                    self.place(file).unlink(missing_ok=True)
            except OSError as error:
                raise TauLiveError(f"cannot delete what is left in {path}: {error}") from error
            yield


HELD: set[int] = set()
"""The descriptors of what this process holds, for its children."""

PATIENCE_S = 2.0
"""Seconds that the children of a killed process have to end."""


@contextmanager
def hold(place: Path, otherwise: str | None = None) -> Iterator[None]:
    """Hold a file or folder until the end of the block, or of the process and its children.

    Children that are given ``HELD`` hold it too: what a killed process has started may still write.

    Args:
        place: The file or folder.
        otherwise: What the error says if another process holds it for so long; ``None`` waits.

    Raises:
        TauLiveError: Another process holds it.
    """
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    deadline = time.monotonic() + PATIENCE_S
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if otherwise else 0))
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise TauLiveError(otherwise) from error
                time.sleep(0.02)
        HELD.add(descriptor)
        yield
    finally:
        HELD.discard(descriptor)
        os.close(descriptor)


def read_bytes(place: Path, path: str) -> bytes:
    """Return the content of a regular file of at most 64 MiB.

    Args:
        place: The file.
        path: Its name in messages.

    Raises:
        ArtifactError: It is missing, no file, too large, or cannot be read.
    """
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ArtifactError(Fault("artifact_missing", "", f"{path} is no file"))
            content = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        text = f"{path} cannot be read: {why}"
        raise ArtifactError(Fault("artifact_missing", "", text)) from error
    if len(content) > MOST_BYTES:
        text = f"{path} has more than {MOST_BYTES // 2**20} MiB"
        raise ArtifactError(Fault("too_large", "", text))
    return content


def content_of(document: object) -> bytes:
    """Return an artifact as the bytes of its file: sorted keys, two spaces, a final newline."""
    text = json.dumps(
        plain(document), sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False
    )
    return f"{text}\n".encode()


class _RepeatedKeyError(Exception):
    """An object has a key twice."""


def parse(content: bytes) -> object:
    """Return the JSON document in some bytes; NaN and infinities are kept, and found by ``check``.

    Raises:
        ArtifactError: ``not_json`` or ``duplicate_key``.
    """
    try:
        document = json.loads(content.decode(), object_pairs_hook=_unique)
        json.dumps(document, ensure_ascii=False).encode()  # finds halves of surrogates
        _check_depth(document)
        return document
    except _RepeatedKeyError as error:
        text = f"the key {error.args[0]!r} is given twice in an object"
        raise ArtifactError(Fault("duplicate_key", "", text)) from error
    except (ValueError, RecursionError) as error:
        raise ArtifactError(Fault("not_json", "", f"must be JSON: {error}"[:300])) from error


def _check_depth(document: object) -> None:
    """Raise a ``ValueError`` if a document is nested more deeply than any artifact."""
    level = [document]
    for _ in range(MOST_DEPTH):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not level:
            return
    raise ValueError(f"it is nested more than {MOST_DEPTH} deep")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    known: dict[str, object] = {}
    for key, value in pairs:
        if key in known:
            raise _RepeatedKeyError(key)
        known[key] = value
    return known


def template_of(kind: type) -> object:
    """Return an empty document of a kind, which ``check`` refuses as it is."""
    return _empty(inspect.type_info(kind))


def _empty(kind: inspect.Type) -> object:  # noqa: PLR0911  # a branch for each kind
    match kind:
        case inspect.Metadata(type=inner):
            return _empty(inner)
        case inspect.StructType(fields=fields) | inspect.DataclassType(fields=fields):
            return {field.encode_name: _empty(field.type) for field in fields}
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            return [_empty(item)]
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.UnionType(types=types):
            return _empty(next(each for each in types if not isinstance(each, inspect.NoneType)))
        case inspect.DictType() | inspect.AnyType():
            return {}
        case inspect.StrType():
            return _PLACEHOLDER
        case _:
            return None


@cache
def _type_of(kind: type) -> inspect.Type:
    return inspect.type_info(kind)


def check(document: object, kind: type, *, at: str = "") -> list[Fault]:
    """Return every fault of the structure of a document.

    Args:
        document: Any JSON value.
        kind: The struct that it is to be.
        at: The JSON pointer of the document.
    """
    return list(_check(document, _type_of(kind), at, None))


def _check(value: object, kind: inspect.Type, at: str, code: str | None) -> Iterator[Fault]:  # noqa: C901, PLR0912  # a branch for each kind
    match kind:
        case inspect.Metadata(type=inner, extra=extra):
            yield from _check(value, inner, at, (extra or {}).get("code"))
        case inspect.AnyType():
            yield from _finite(value, at)
        case inspect.UnionType(types=types):
            if value is None and any(isinstance(each, inspect.NoneType) for each in types):
                return
            others = [each for each in types if not isinstance(each, inspect.NoneType)]
            yield from _check(value, others[0], at, code)
        case inspect.StructType() | inspect.DataclassType():
            yield from _check_object(value, kind, at)
        case inspect.DictType(value_type=inner):
            if not isinstance(value, dict):
                yield _wrong(value, at, "an object")
                return
            for key, own in value.items():
                yield from _check(own, inner, at + _step(key), None)
        case inspect.ListType(item_type=inner) | inspect.VarTupleType(item_type=inner):
            if not isinstance(value, list):
                yield _wrong(value, at, "an array")
                return
            for place, own in enumerate(value):
                yield from _check(own, inner, f"{at}/{place}", None)
        case inspect.LiteralType(values=values):
            if not any(type(value) is type(each) and value == each for each in values):
                is_version = at.endswith("/schema_version")
                names = ", ".join(map(repr, values))
                code = "unsupported_schema_version" if is_version else code or "out_of_range"
                yield Fault(code, at, f"must be {names}, got {_excerpt(value)}")
        case inspect.StrType():
            yield from _check_text(value, kind, at, code)
        case inspect.BoolType():
            if type(value) is not bool:
                yield _wrong(value, at, "true or false")
        case inspect.IntType() | inspect.FloatType():
            yield from _check_number(value, kind, at, code)
        case _:
            raise NotImplementedError(f"no document has a field of the kind {kind!r}")


def _check_object(
    value: object, kind: inspect.StructType | inspect.DataclassType, at: str
) -> Iterator[Fault]:
    if not isinstance(value, dict):
        if not at:
            yield Fault("not_an_object", at, f"must be an object, got {_excerpt(value)}")
        else:
            yield _wrong(value, at, "an object")
        return
    faults = [*_faults_of_fields(value, kind, at)]
    yield from faults
    if not faults and isinstance(kind, inspect.DataclassType):
        try:  # its own checks
            msgspec.convert(value, kind.cls)
        except msgspec.ValidationError as error:
            yield Fault("out_of_range", at, str(error))


def _faults_of_fields(
    value: dict[str, object], kind: inspect.StructType | inspect.DataclassType, at: str
) -> Iterator[Fault]:
    fields = {field.encode_name: field for field in kind.fields}
    is_struct = isinstance(kind, inspect.StructType)  # whose defaults are for our own code alone
    for name, field in fields.items():
        if name in value:
            yield from _check(value[name], field.type, at + _step(name), None)
        elif field.required or (is_struct and isinstance(field.default, int | str)):
            yield Fault("missing_field", at + _step(name), f"{name} is missing")
    for name in value.keys() - fields.keys():
        yield Fault("unknown_field", at + _step(name), f"{name} is no field of this artifact")


def _check_text(value: object, kind: inspect.StrType, at: str, code: str | None) -> Iterator[Fault]:
    if not isinstance(value, str):
        yield _wrong(value, at, "a text")
    elif not value.strip():
        yield Fault("blank_string", at, "must not be blank")
    elif value == _PLACEHOLDER:
        yield Fault("template_not_filled", at, f"is still {_PLACEHOLDER!r}")
    elif kind.pattern is not None and re.fullmatch(kind.pattern, value, re.ASCII) is None:
        yield Fault(code or "out_of_range", at, f"must match {kind.pattern}, got {_excerpt(value)}")
    elif code == "bad_timestamp":
        try:
            seconds_of(value)
        except ValueError:
            yield Fault(code, at, f"is no time: {_excerpt(value)}")


def _check_number(
    value: object, kind: inspect.IntType | inspect.FloatType, at: str, code: str | None
) -> Iterator[Fault]:
    if not _is_finite(value):
        yield Fault("not_finite", at, f"must be a finite number, got {_excerpt(value)}")
        return
    types = (int,) if isinstance(kind, inspect.IntType) else (int, float)
    if type(value) not in types or not isinstance(value, int | float):
        yield _wrong(value, at, "an integer" if types == (int,) else "a number")
        return
    if (
        (kind.ge is not None and value < kind.ge)
        or (kind.gt is not None and value <= kind.gt)
        or (kind.le is not None and value > kind.le)
        or (kind.lt is not None and value >= kind.lt)
        or abs(value) > 2**63
    ):
        yield Fault(code or "out_of_range", at, f"is out of range: {_excerpt(value)}")


def _is_finite(value: object) -> bool:
    """Return whether a value is no infinity and no NaN, also not as a text."""
    if isinstance(value, str):
        try:
            return math.isfinite(float(value))
        except ValueError:
            return True  # a text, and no number at all
    return not isinstance(value, float) or math.isfinite(value)


def _finite(value: object, at: str) -> Iterator[Fault]:
    if isinstance(value, float) and not math.isfinite(value):
        yield Fault("not_finite", at, f"must be a finite number, got {_excerpt(value)}")
    elif type(value) is int and abs(value) > 2**63:
        yield Fault("out_of_range", at, "is out of range")
    elif isinstance(value, dict):
        for key, own in value.items():
            yield from _finite(own, at + _step(key))
    elif isinstance(value, list):
        for place, own in enumerate(value):
            yield from _finite(own, f"{at}/{place}")


def _wrong(value: object, at: str, wanted: str) -> Fault:
    return Fault("wrong_type", at, f"must be {wanted}, got {_excerpt(value)}")


def _step(key: str) -> str:
    return "/" + key.replace("~", "~0").replace("/", "~1")


def _excerpt(value: object) -> str:
    return repr(value)[:80]


def as_kind(document: object, kind: type[Document]) -> Document:
    """Return a document as its struct.

    Raises:
        ArtifactError: Its structure is wrong.
    """
    faults = check(document, kind)
    if faults:
        raise ArtifactError(*faults)
    return msgspec.convert(document, kind)


def plain(document: object) -> dict[str, Any]:
    """Return a struct as the JSON data that its file would hold."""
    read: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    return read
