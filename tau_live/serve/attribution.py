"""To which attempt a forwarded call belongs, by path or by header, and the log of all calls."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import asdict

from tau_live.core.files import make_folders
from tau_live.core.prompts import canonical_json
from tau_live.serve.guard import RefusedError

INVALID = "training_proxy_missing_or_invalid_attribution_header"
ROLLOUT, ATTEMPT, SEQUENCE, TRACE = (
    "x-rollout-id", "x-attempt-id", "x-sequence-id", "x-trace-id",
)  # fmt: skip
MOST = 2**63 - 1
LOG = "proxy-attribution.jsonl"

Headers = Sequence[tuple[bytes, bytes]]


class Attribution(NamedTuple):
    """The attempt that a call belongs to.

    Attributes:
        rollout_id: Its rollout.
        attempt: Its number.
        sequence: The client's number of the call; ``None`` if it gives none.
        trace_id: The client's trace; ``None`` if it gives none.
    """

    rollout_id: str
    attempt: int
    sequence: int | None = None
    trace_id: str | None = None


def attribution_of(headers: Headers, path: tuple[str, str] | None) -> Attribution | None:
    """Return the attempt that a call belongs to; ``None`` if neither path nor header names any.

    Args:
        headers: Those of the request.
        path: Rollout and attempt as the path names them.

    Raises:
        RefusedError: A header is missing, or is no such thing.
    """
    given = {name: _text(headers, name) for name in (ROLLOUT, ATTEMPT, SEQUENCE, TRACE)}
    if path is None and not any(value is not None for value in given.values()):
        return None
    rollout_id, number = path or (given[ROLLOUT], given[ATTEMPT])
    for name, value in ((ROLLOUT, rollout_id), (ATTEMPT, number)):
        if value is None:
            raise RefusedError(400, INVALID, f"missing required header {name!r}")
        own = given[name]
        if own is not None and own != value:
            raise RefusedError(400, INVALID, f"header {name!r} differs from the path")
    sequence = given[SEQUENCE]
    return Attribution(
        str(rollout_id),
        _number(ATTEMPT, str(number)),
        None if sequence is None else _number(SEQUENCE, sequence),
        given[TRACE],
    )


def _text(headers: Headers, name: str) -> str | None:
    values = [value for key, value in headers if key == name.encode()]
    if not values:
        return None
    try:
        text = values[0].decode().strip()
    except UnicodeDecodeError:
        raise RefusedError(400, INVALID, f"header {name!r} must be valid utf-8") from None
    if not text:
        raise RefusedError(400, INVALID, f"header {name!r} cannot be empty")
    if len({*values}) > 1:
        raise RefusedError(400, INVALID, f"header {name!r} is given more than once")
    return text


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text[:20]) <= MOST):
        raise RefusedError(400, INVALID, f"header {name!r} must be an unsigned integer")
    return int(text)


class LoggedCall(msgspec.Struct, kw_only=True):
    """A line of the log: a call, without its key and its body.

    Attributes:
        method: The HTTP method.
        path: The path.
        upstream_url: Where it was forwarded to.
        request_bytes: The size of its body.
        schema_version: 1.
        timestamp_unix_ms: When it came.
        response_bytes: The size of the answer's body.
        duration_ms: From its arrival to the end of the answer.
        rollout_id: The rollout; ``None`` if it is unattributed, or refused.
        attempt_id: The number of the attempt.
        sequence_id: The client's number of the call.
        trace_id: The client's trace.
        status_code: The status of the answer.
        error_code: What went wrong.
        error_message: The same for people.
    """

    method: str
    path: str
    upstream_url: str
    timestamp_unix_ms: int = msgspec.field(default_factory=lambda: round(time.time() * 1000))
    schema_version: int = 1
    request_bytes: int = 0
    response_bytes: int = 0
    duration_ms: float = 0.0
    rollout_id: str | None = None
    attempt_id: int | None = None
    sequence_id: int | None = None
    trace_id: str | None = None
    status_code: int | None = None
    error_code: str | None = None
    error_message: str | None = None


class CallLog:
    """The log of forwarded calls: lines of JSON, each in one write, of any number of processes.

    Args:
        path: The file.

    Raises:
        OSError: It cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        make_folders(path.parent)
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def add(self, call: LoggedCall) -> None:
        """Append a line. Raises: OSError."""
        known = {key: value for key, value in asdict(call).items() if value is not None}
        line = canonical_json(known) + b"\n"
        if os.write(self._file, line) < len(line):
            os.write(self._file, b"\n")
            raise OSError(f"a line of {self.path} was cut")

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
