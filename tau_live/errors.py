"""Everything an operator can meet, as one tree.

```
TauLiveError
├── SettingsError              a setting is out of range or malformed (names the variable)
├── EventError                 a line or record is not an event
│   └── LogLineError           a line of a log cannot be imported (names line and column)
├── StoreError                 the store cannot do what was asked
│   ├── StoreUnavailableError  it cannot be opened, read or written
│   │   ├── StoreBusyError     others are at work on it; it can be used when they are done
│   │   └── StoreDamagedError  its file is damaged, or no store at all
│   ├── StoreVersionError      it was written by a newer tau-live
│   ├── UnknownError           no such rollout, session, worker, decision, resource or policy
│   ├── DuplicateError         the id is taken
│   └── InvalidTransitionError the lifecycle forbids the move
├── AmbiguousIdError           several runs or decisions are meant by an id
├── CheckpointError            a checkpoint is damaged, foreign or not to be trusted
├── PolicyError                no such policy, or it cannot serve where it was asked for
├── DiffersError               a decision is not what its version makes of it
├── LogError                   a log cannot be evaluated (names line and column)
├── AccessError                a principal may not do it, or nobody can tell whether it may
├── ArchiveError               a file is no archive, or is damaged, or in use
├── AutostartError             the environment's site-packages cannot be changed
└── LeaseLostError             another process holds the lease that this work needs
```
"""


class TauLiveError(Exception):
    """Anything tau-live raises on purpose."""


class AccessError(TauLiveError):
    """A principal may not do what it wants, or the file that would say so cannot be understood."""


class ArchiveError(TauLiveError):
    """A file is no archive, or is damaged, or another process appends to it; names the file."""


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
        column: The field's column, or the character's place; ``None`` where all of it is wrong.
    """

    def __init__(self, line: int, column: str | None, reason: str) -> None:
        where = f"line {line}" if column is None else f"line {line}, column {column}"
        super().__init__(f"{where}: {reason}")
        self.line = line
        self.column = column


class StoreError(TauLiveError):
    """The store cannot do what was asked."""


class StoreUnavailableError(StoreError):
    """The store cannot be opened, read or written."""


class StoreBusyError(StoreUnavailableError):
    """Others are at work on the store; it can be used again when they are done."""


class StoreDamagedError(StoreUnavailableError):
    """The store's file is damaged, or is no store at all."""


class StoreVersionError(StoreError):
    """The store was written by a newer tau-live."""


class UnknownError(StoreError):
    """Nothing of this kind is stored under this id.

    Attributes:
        kind: ``rollout``, ``attempt``, ``worker``, ``decision``, ``resources``, ``policy`` or
            ``session``.
        id: What was asked for.
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


class InvalidTransitionError(StoreError):
    """The lifecycle forbids the move.

    Attributes:
        kind: ``rollout`` or ``attempt``.
        id: Its id.
        old: The status it has.
        new: The status that was asked for.
    """

    def __init__(self, kind: str, id_: str, *, old: str, new: str) -> None:
        super().__init__(f"invalid {kind} status transition: {old} -> {new} ({kind} '{id_}')")
        self.kind = kind
        self.id = id_
        self.old = old
        self.new = new


class AmbiguousIdError(TauLiveError):
    """Several rollouts or decisions are meant by an id; the message lists them."""


class PolicyError(TauLiveError):
    """There is no such policy, or it cannot be put into service where it was asked for."""


class DiffersError(TauLiveError):
    """The probabilities of a decision are not those that its version gives."""


class LogError(TauLiveError):
    """A log cannot be read; the message names the line and the column."""


class CheckpointError(TauLiveError):
    """A checkpoint is damaged, foreign or not to be trusted."""


class LeaseLostError(TauLiveError):
    """Another process holds the lease that this work needs."""
