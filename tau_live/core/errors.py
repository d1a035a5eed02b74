"""Every error of tau-live, as one tree.

```
TauLiveError
├── SettingsError              a setting is out of range or malformed (names the variable)
├── EventError                 a line or record is not an event
│   └── LogLineError           a line of a log cannot be imported (names line and column)
├── StoreError                 a request that the store refuses
│   ├── StoreUnavailableError  it cannot be opened, read or written
│   │   ├── StoreBusyError     other processes are using it; try again when they are done
│   │   ├── SpoolOfOthersError the spool belongs to another store (says what to do)
│   │   └── StoreDamagedError  its file is damaged, or is not a store
│   ├── StoreVersionError      it was written by a newer tau-live
│   ├── OddRowError            a row holds what tau-live never writes (names table, key, column)
│   ├── UnknownError           no such rollout, session, worker, decision, resource or policy
│   ├── DuplicateError         the id is taken
│   ├── EndedError             what has ended can no longer be changed
│   ├── ConflictError          somebody else published a version first
│   └── InvalidTransitionError the lifecycle does not allow the transition
├── AmbiguousIdError           an id matches several runs or decisions
├── CheckpointError            a checkpoint is damaged, foreign or not trusted
├── PolicyError                no such policy, or it cannot serve at this point
├── DiffersError               a decision differs from what its version gives
├── ConfigError                a prompt-optimization config is wrong (a line for each violation)
├── ScoreError                 a score is out of range, or no score (names the reason)
├── LogError                   a log cannot be evaluated (names line and column)
├── AccessError                a principal is not authorized, or the access file is unreadable
├── EngineError                a part of some work cannot be computed (says which)
├── ArchiveError               a file is not an archive, or is damaged, or in use
├── AutostartError             the environment's site-packages cannot be changed
└── LeaseLostError             another process holds the lease that this work needs
```
"""

import sys  # and nothing that takes long: this is imported where tau-live is off

TYPE_CHECKING = False

if TYPE_CHECKING:
    from _thread import LockType, RLock
    from pathlib import Path
    from types import FrameType, TracebackType


class TauLiveError(Exception):
    """The base of every error that tau-live raises."""


class AccessError(TauLiveError):
    """A principal is not authorized, or the access file cannot be read."""


class ArchiveError(TauLiveError):
    """A file is not an archive, is damaged, or is in use; the message names the file."""


class AutostartError(TauLiveError):
    """The environment's site-packages cannot be changed; the message names the folder."""


class SettingsError(TauLiveError):
    """A setting is out of range or malformed; the message names its variable."""


class EventError(TauLiveError):
    """A line or a record is not an event."""


class LogLineError(EventError):
    """A line of a log cannot be imported.

    Attributes:
        line: Its number, from 1.
        column: The field's column, or the character's position; ``None`` for the whole line.
    """

    def __init__(self, line: int, column: str | None, reason: str) -> None:
        where = f"line {line}" if column is None else f"line {line}, column {column}"
        super().__init__(f"{where}: {reason}")
        self.line = line
        self.column = column


class StoreError(TauLiveError):
    """A request that the store refuses.

    Attributes:
        todo: What an operator should do about it, one for each cause; or empty.
    """

    def __init__(self, *texts: str, todo: str = "") -> None:
        super().__init__(*texts)
        self.todo = todo


class StoreUnavailableError(StoreError):
    """The store cannot be opened, read or written."""


class StoreBusyError(StoreUnavailableError):
    """Other processes are using the store; try again when they are done."""


class SpoolOfOthersError(StoreUnavailableError):
    """The spool belongs to another store, which alone may get what it holds.

    Attributes:
        path: The spool.
        owner: The address of the store that it belongs to.
        problem: What is wrong, without what to do about it.
    """

    def __init__(self, path: "Path", owner: str, *, wanted: str, unsent: int) -> None:
        is_gone = owner == wanted  # nobody can reach that database any more
        what = "an earlier database at this address" if is_gone else f"'{owner}'"
        todo = (
            f"move '{path}' away, and the files beside it whose names begin with its own; what it "
            "holds is read by `tau-live export --store FILE`"
            if is_gone
            else "name another file with TAU_LIVE_RL_SPOOL; what this one holds is sent by "
            f"`TAU_LIVE_RL_SPOOL='{path}' tau-live ship --store '{owner}'`, or given up by "
            "deleting it"
        )
        self.problem = (
            f"spool '{path}' belongs to {what} and has {unsent} rollouts to be sent there, not to "
            f"'{wanted}'"
        )
        super().__init__(f"{self.problem}: {todo}", todo=todo)
        self.path = path
        self.owner = owner


class StoreFilesError(StoreUnavailableError):
    """A file beside the store cannot be written or read now, for want of room or descriptors."""


class StoreDamagedError(StoreUnavailableError):
    """The store's file is damaged, or is not a store."""


class StoreVersionError(StoreError):
    """The store was written by a newer tau-live."""


class OddRowError(StoreError):
    """A row of the store holds what no version of tau-live writes.

    Attributes:
        table: The table.
        key: The key of the row, as text.
        column: The column; empty where it is not known.
        problem: What is wrong with it.
    """

    def __init__(self, table: str, key: str, *, column: str, problem: str) -> None:
        where = f"{column} of " if column else ""
        super().__init__(
            f"invalid persisted value in {where}{table} '{key}': {problem}; "
            "`tau-live doctor` lists such rows"
        )
        self.table = table
        self.key = key
        self.column = column
        self.problem = problem


class UnknownError(StoreError):
    """Nothing of this kind is stored under this id.

    Attributes:
        kind: ``rollout``, ``attempt``, ``worker``, ``decision``, ``resources``, ``policy`` or
            ``session``.
        id: The id.
    """

    def __init__(self, kind: str, id_: object) -> None:
        super().__init__(f"{kind} '{id_}' not found")
        self.kind = kind
        self.id = id_


class DuplicateError(StoreError):
    """The id is taken.

    Attributes:
        kind: What the id names.
        id: The id.
    """

    def __init__(self, kind: str, id_: object) -> None:
        super().__init__(f"{kind} '{id_}' already exists")
        self.kind = kind
        self.id = id_


class EndedError(StoreError):
    """A rollout has ended, and what was to be changed of it can no longer be.

    Attributes:
        id: The rollout.
        status: Its end.
        fields: What was to be changed.
    """

    def __init__(self, id: str, *, status: str, fields: "list[str]") -> None:  # noqa: A002  # as the others
        super().__init__(
            f"rollout '{id}' has ended ({status}): its metadata can be amended, "
            f"not its {' and '.join(fields)}"
        )
        self.id = id
        self.status = status
        self.fields = fields


class ConflictError(StoreError):
    """Somebody else was quicker: the version is not the expected one.

    Attributes:
        kind: What has the version, such as ``resource``.
        id: Its id.
        expected: The version that the caller knew.
        actual: The version that it has.
    """

    def __init__(self, kind: str, id: str, *, expected: int, actual: int) -> None:  # noqa: A002  # as the others
        super().__init__(f"{kind} '{id}' is at version {actual}, not {expected}")
        self.kind = kind
        self.id = id
        self.expected = expected
        self.actual = actual


class InvalidTransitionError(StoreError):
    """The lifecycle does not allow the transition.

    Attributes:
        kind: ``rollout`` or ``attempt``.
        id: Its id.
        old: The status it has.
        new: The requested status.
    """

    def __init__(self, kind: str, id_: str, *, old: str, new: str) -> None:
        super().__init__(f"invalid {kind} status transition: {old} -> {new} ({kind} '{id_}')")
        self.kind = kind
        self.id = id_
        self.old = old
        self.new = new


class AmbiguousIdError(TauLiveError):
    """An id matches several rollouts or decisions; the message lists them."""


class PolicyError(TauLiveError):
    """There is no such policy, or it cannot be put into service at this point."""


class DiffersError(TauLiveError):
    """The stored probabilities of a decision differ from those that its version gives."""


class LogError(TauLiveError):
    """A log cannot be read; the message names the line and the column."""


class ConfigError(TauLiveError):
    """The config of a run is wrong; the message has a line for each violation.

    Attributes:
        lines: One for each violation: the file, the JSON pointer, what is wrong, and the value.
        is_usage: Whether a key was given by two names, which is wrong usage as it is of flags.
    """

    def __init__(self, lines: "list[str]", *, is_usage: bool = False) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines
        self.is_usage = is_usage


class ScoreError(TauLiveError):
    """A score is out of its range, not a number, or has a name that only telemetry may have.

    Attributes:
        reason: ``score_out_of_range``, ``score_not_a_number`` or ``telemetry_score``.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(f"{reason}: {text}")
        self.reason = reason


class CheckpointError(TauLiveError):
    """A checkpoint is damaged, foreign or not trusted."""


class EngineError(TauLiveError):
    """A part of some work cannot be computed: its processes died, or there is no such engine."""


class LeaseLostError(TauLiveError):
    """Another process holds the lease that this work needs."""


def pass_on(error: BaseException) -> None:
    """Raise the interruption behind an error, if there is one; call it wherever errors stay."""
    interruption = interruption_in(error)
    if interruption is not None:
        raise interruption


def release(lock: "LockType | RLock") -> None:
    """Release a lock in a ``finally``, with the ``acquire`` inside its ``try``; none held is fine.

    With the ``acquire`` in front of the ``try``, an interruption between the two would leave the
    lock held for ever.
    """
    try:
        lock.release()
    except RuntimeError as error:  # this thread does not hold it
        pass_on(error)


def place_of(error: BaseException) -> str:
    """Return ``file:line`` of the innermost frame of an exception."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return f"{at.tb_frame.f_code.co_filename}:{at.tb_lineno}" if at is not None else "unknown"


class suppress:  # noqa: N801  # stands for the one of contextlib
    """Suppresses exceptions of some classes, as ``contextlib.suppress``; never an interruption."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: "TracebackType | None",
    ) -> bool:
        if error is None or kind is None or not issubclass(kind, self._kinds):
            return False
        interruption = interruption_in(error)
        if interruption is not None and interruption is not error:
            raise interruption
        return interruption is None


def interruption_in(error: BaseException) -> BaseException | None:
    """Return the interruption: the exception itself, or the one that caused it.

    Python's own code, or ours, may fail when it is interrupted: a thread that was being started
    raises ``KeyError``, a lock that was being taken "release unlocked lock". What a plugin or an
    object of the host turns one into is its own affair.
    """
    at: BaseException | None = error
    for _ in range(_CHAIN_LIMIT):
        if at is None:
            return None
        if is_interruption(at):
            return at
        at = _origin(at)
    return None


def _origin(error: BaseException) -> BaseException | None:
    """Return the exception that Python's code or ours turned into this one."""
    before = vars(BaseException)["__cause__"].__get__(error)
    before = before or vars(BaseException)["__context__"].__get__(error)
    entry = None if before is None else _traceback(before)
    if entry is None:
        return None
    caught_in, own = entry.tb_frame, _traceback(error)
    package = str(caught_in.f_globals.get("__name__")).partition(".")[0]
    if package not in _OURS and package not in sys.stdlib_module_names:
        return None
    while own is not None and own.tb_frame is not caught_in:
        own = own.tb_next
    return before if own is not None else None  # else it was being handled before our call


def _traceback(error: BaseException) -> "TracebackType | None":
    traceback: TracebackType | None = vars(BaseException)["__traceback__"].__get__(error)
    return traceback


def is_interruption(error: BaseException) -> bool:
    """Return whether an exception came from outside, in the middle of running code.

    It is raised by a signal handler of the host (a job's time limit, an alarm) or set by another
    thread of the host (``PyThreadState_SetAsyncExc``). It belongs to the host, although its
    traceback leads through our frames. What a plugin or an object of the host raises because we
    called it does not.

    Python passes a handler the number of the signal and the interrupted frame, and runs it on top
    of that frame; no ordinary call looks like that. A handler that has overwritten its arguments is
    recognised while it is installed. An asynchronous exception shows at an instruction at which
    Python checks for such requests: at some of these nothing else can fail; at a call it is taken
    for one if it has no arguments, as those set by their class alone. Classes that an extension
    constructs in its own way, as pydantic's ValidationError, keep their arguments elsewhere; they
    are never taken for one.

    A thread of ours is never interrupted.
    """
    current = getattr(sys.modules.get("threading"), "current_thread", None)
    if current is not None and current().name.startswith(_OUR_THREADS):
        return False
    try:
        entry = _traceback(error)
        installed = _handler_codes()
        while entry is not None and (inner := entry.tb_next) is not None:
            if id(inner.tb_frame.f_code) in installed or _is_handler(inner.tb_frame, entry):
                return True
            entry = inner
        return entry is not None and _is_asynchronous(error, entry)
    except ImportError:  # the interpreter ends
        return False


_OUR_THREADS = "tau-live-"
_OURS = frozenset({"tau_live", "tau_live_hooks"})
_CHAIN_LIMIT = 8
"""How many exceptions of a chain of causes are looked at."""

_CHECKING_OPS = frozenset({"RESUME", "JUMP_BACKWARD"})
_CALLING_OPS = frozenset({"PRECALL", "CALL", "CALL_KW", "CALL_FUNCTION_EX"})
_WITHOUT_MESSAGE = (MemoryError, RecursionError, StopIteration, StopAsyncIteration, AssertionError)
"""What Python itself raises without a message."""

_NO_NAMES = ("",) * 256
_VARARGS = 0x04
_EMPTY_BYTES = 6


def _is_handler(frame: "FrameType", below: "TracebackType") -> bool:
    """Return whether a frame has the arguments that Python passes to a signal handler."""
    code = frame.f_code
    if code.co_argcount < len(("number", "frame")) and not code.co_flags & _VARARGS:
        return False
    values = frame.f_locals
    names = code.co_varnames[: code.co_argcount]
    arguments = [values.get(name) for name in names]
    if code.co_flags & _VARARGS:
        rest = values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount])
        arguments += rest if type(rest) is tuple else ()
    for number, at in zip(arguments, arguments[1:], strict=False):  # noqa: RUF007  # no import
        if at is below.tb_frame and issubclass(type(number), int):
            return True
    return False


def _handler_codes() -> "set[int]":
    """Return the ids of the code objects of the installed signal handlers."""
    # built in, so no file beside the agent can hide them; ``signal`` takes 100 times longer
    import _signal  # type: ignore[import-not-found]
    from _functools import partial  # type: ignore[import-not-found]

    codes: set[int] = set()
    for number in range(1, _signal.NSIG):
        handler = _signal.getsignal(number)
        while isinstance(handler, partial):
            handler = handler.func
        if callable(handler):
            for function in (handler, type(handler).__call__):
                codes.add(id(getattr(getattr(function, "__func__", function), "__code__", None)))
    return codes - {id(None)}


def _is_asynchronous(error: BaseException, entry: "TracebackType") -> bool:
    """Return whether an exception was set from outside, not raised by its innermost frame."""
    instruction = _instruction(entry)
    if issubclass(type(error), _WITHOUT_MESSAGE) or type(error).__module__ == "_queue":
        return False
    if instruction in _CHECKING_OPS:
        return True
    if instruction not in _CALLING_OPS or vars(BaseException)["args"].__get__(error):
        return False
    maker = next(kind for kind in type(error).__mro__ if "__new__" in vars(kind))
    return maker.__module__ == "builtins" or isinstance(vars(maker)["__new__"], staticmethod)


def _instruction(entry: "TracebackType") -> str:
    opname = _instruction_names()
    code = entry.tb_frame.f_code.co_code
    names = [opname[each] for each in code[::2]] if len(code) <= _EMPTY_BYTES else []
    if "LOAD_ASSERTION_ERROR" in names:  # a frame without bytecode, compiled by Cython, say
        return ""
    return opname[code[entry.tb_lasti]] if 0 <= entry.tb_lasti < len(code) else ""


def _instruction_names() -> "list[str] | tuple[str, ...]":
    """Return the names of instructions; none where a file of the host hides Python's own.

    An import that fails once and not again was interrupted.
    """
    interruption = None
    for _ in range(2):
        try:
            from opcode import opname
        except Exception as error:  # noqa: BLE001  # whatever that file does
            interruption = error
            continue
        if interruption is not None:
            raise interruption
        return opname
    return _NO_NAMES
