"""A disk that fails when a test wants it to, under the very SQLite library that Python uses.

A VFS of ours is registered through ctypes in the library that ``_sqlite3`` is linked with. It hands
every call on to the real one, and on the way fails it, tears it or makes it wait.
"""

import ctypes
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, NamedTuple

OK = 0
FULL = 13
CANTOPEN = 14
IOERR = 10
IOERR_READ = IOERR | 1 << 8
IOERR_SHORT_READ = IOERR | 2 << 8
IOERR_WRITE = IOERR | 3 << 8
IOERR_FSYNC = IOERR | 4 << 8
IOERR_TRUNCATE = IOERR | 6 << 8
IOERR_FSTAT = IOERR | 7 << 8
IOERR_UNLOCK = IOERR | 8 << 8
IOERR_DELETE = IOERR | 10 << 8
IOERR_ACCESS = IOERR | 13 << 8
IOERR_LOCK = IOERR | 15 << 8
IOERR_SHMMAP = IOERR | 21 << 8
IOERR_SHMLOCK = IOERR | 20 << 8

_SHM_UNLOCK = 1
_NAME = b"tau_live_faulty"

_int, _void, _i64, _text = ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p
_call = ctypes.CFUNCTYPE


class Operation(NamedTuple):
    """One kind of call that SQLite makes of its file system.

    Attributes:
        slot: Its field in SQLite's table.
        error: What it returns when it fails.
        types: Of what it takes.
    """

    slot: str
    error: int
    types: tuple[type, ...]


FILE_CALLS = {
    "read": Operation("xRead", IOERR_READ, (_void, _void, _int, _i64)),
    "write": Operation("xWrite", IOERR_WRITE, (_void, _void, _int, _i64)),
    "truncate": Operation("xTruncate", IOERR_TRUNCATE, (_void, _i64)),
    "sync": Operation("xSync", IOERR_FSYNC, (_void, _int)),
    "size": Operation("xFileSize", IOERR_FSTAT, (_void, _void)),
    "lock": Operation("xLock", IOERR_LOCK, (_void, _int)),
    "unlock": Operation("xUnlock", IOERR_UNLOCK, (_void, _int)),
    "shm_map": Operation("xShmMap", IOERR_SHMMAP, (_void, _int, _int, _int, _void)),
    "shm_lock": Operation("xShmLock", IOERR_SHMLOCK, (_void, _int, _int, _int)),
}
DISK_CALLS = {
    "open": Operation("xOpen", CANTOPEN, (_void, _void, _void, _int, _void)),
    "delete": Operation("xDelete", IOERR_DELETE, (_void, _void, _int)),
    "access": Operation("xAccess", IOERR_ACCESS, (_void, _void, _int, _void)),
}
CALLS = (*FILE_CALLS, *DISK_CALLS)
"""Every kind of call that can be made to fail."""


def _fields(*names: str) -> list[tuple[str, type]]:
    return [(name, _void) for name in names]


class _Methods(ctypes.Structure):
    """SQLite's ``sqlite3_io_methods``."""

    _fields_: ClassVar = [
        ("iVersion", _int),
        *_fields("xClose", "xRead", "xWrite", "xTruncate", "xSync", "xFileSize", "xLock"),
        *_fields("xUnlock", "xCheckReservedLock", "xFileControl", "xSectorSize"),
        *_fields("xDeviceCharacteristics", "xShmMap", "xShmLock", "xShmBarrier", "xShmUnmap"),
        *_fields("xFetch", "xUnfetch"),
    ]


class _File(ctypes.Structure):
    """SQLite's ``sqlite3_file``: the first field of every file."""

    _fields_: ClassVar = [("pMethods", ctypes.POINTER(_Methods))]


class _Vfs(ctypes.Structure):
    """SQLite's ``sqlite3_vfs``."""

    _fields_: ClassVar = [
        ("iVersion", _int),
        ("szOsFile", _int),
        ("mxPathname", _int),
        ("pNext", _void),
        ("zName", _text),
        ("pAppData", _void),
        *_fields("xOpen", "xDelete", "xAccess", "xFullPathname", "xDlOpen", "xDlError", "xDlSym"),
        *_fields("xDlClose", "xRandomness", "xSleep", "xCurrentTime", "xGetLastError"),
        *_fields("xCurrentTimeInt64", "xSetSystemCall", "xGetSystemCall", "xNextSystemCall"),
    ]


class Plan(NamedTuple):
    """Which calls fail, and how.

    Attributes:
        at: The number of the first call that fails, from 1; 0 fails none.
        lasting: Whether every later one fails too.
        calls: The kinds of calls that are counted and fail.
        error: What they return; ``None`` returns what fits the call.
        torn: Whether half of what a failing call should have written is written all the same.
    """

    at: int = 0
    lasting: bool = False
    calls: tuple[str, ...] = CALLS
    error: int | None = None
    torn: bool = False


class FaultyDisk:
    """What every file that SQLite opens while it is installed is on.

    Attributes:
        counts: How many calls were made, by kind.
        failed: How many of them failed.
        slow_s: How long each synchronisation takes longer, in seconds.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failed = 0
        self.slow_s = 0.0
        self._lock = threading.Lock()
        self._plan = Plan()
        self._seen = 0

    def fail(self, plan: Plan) -> None:
        """Begin to count anew, and fail as planned."""
        with self._lock:
            self._plan, self._seen, self.failed = plan, 0, 0
            self.counts.clear()

    def heal(self) -> None:
        """Fail no more."""
        self._plan = Plan()

    @property
    def seen(self) -> int:
        """How many calls of the planned kinds were made."""
        return self._seen

    def fails(self, name: str) -> Plan | None:
        """Count a call; return the plan if it is to fail."""
        with self._lock:
            self.counts[name] += 1
            plan = self._plan
            if name not in plan.calls:
                return None
            self._seen += 1
            due = self._seen == plan.at or (plan.lasting and self._seen > plan.at > 0)
            self.failed += due
            return plan if due else None


class _Installed:
    """Our VFS, in SQLite's list for as long as the process lives: files hold on to it."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.disk = FaultyDisk()
        self._library = library
        library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        library.sqlite3_vfs_find.argtypes = [_text]
        library.sqlite3_vfs_register.argtypes = [ctypes.POINTER(_Vfs), _int]
        self._real = library.sqlite3_vfs_find(None)
        self._kept: list[object] = []
        self._tables: dict[int, ctypes.Array[_Methods]] = {}
        self._own = _Vfs.from_buffer_copy(self._real.contents)
        self._own.zName = _NAME
        for name, operation in DISK_CALLS.items():
            wrap = self._opening if name == "open" else self._passing
            self._set(self._own, name, operation, wrap)

    def choose(self, *, ours: bool) -> None:
        """Make ours the file system of what is opened from now on, or the real one again."""
        chosen = ctypes.byref(self._own) if ours else self._real
        if self._library.sqlite3_vfs_register(chosen, 1) != OK:
            raise RuntimeError("SQLite refused the file system")

    def _set(
        self,
        table: _Vfs | _Methods,
        name: str,
        operation: Operation,
        wrap: Callable[..., Callable[..., int]],
    ) -> None:
        kind = _call(_int, *operation.types)
        real = kind(getattr(table, operation.slot))
        own = kind(wrap(name, operation, real))
        self._kept += [real, own]
        setattr(table, operation.slot, ctypes.cast(own, _void).value)

    def _passing(
        self, name: str, operation: Operation, real: Callable[..., int]
    ) -> Callable[..., int]:
        def called(*arguments: int) -> int:
            if name == "shm_lock" and arguments[3] & _SHM_UNLOCK:
                return real(*arguments)  # never fails, and SQLite does not ask
            plan = self.disk.fails(name)
            if plan is None:
                if name == "sync" and self.disk.slow_s:
                    time.sleep(self.disk.slow_s)
                return real(*arguments)
            if plan.torn and name == "write":
                real(*arguments[:2], arguments[2] // 2, arguments[3])
            if name == "unlock":
                real(*arguments)  # the system frees it when the file is closed at the latest
            return operation.error if plan.error is None else plan.error

        return called

    def _opening(
        self, name: str, operation: Operation, real: Callable[..., int]
    ) -> Callable[..., int]:
        def opened(vfs: int, path: int, file: int, flags: int, out: int) -> int:
            at = ctypes.cast(file, ctypes.POINTER(_File)).contents
            plan = self.disk.fails(name)
            if plan is not None:
                at.pMethods = None
                return operation.error if plan.error is None else plan.error
            code = real(ctypes.addressof(self._real.contents), path, file, flags, out)
            if at.pMethods:
                at.pMethods = ctypes.cast(self._table(at), ctypes.POINTER(_Methods))
            return code

        return opened

    def _table(self, file: _File) -> ctypes.Array[_Methods]:
        """Return the calls of a file with ours instead; one table for all files of a kind."""
        place = ctypes.addressof(file.pMethods.contents)
        if place not in self._tables:
            table = _Methods.from_buffer_copy(file.pMethods.contents)
            for name, operation in FILE_CALLS.items():
                if getattr(table, operation.slot):
                    self._set(table, name, operation, self._passing)
            self._tables[place] = (_Methods * 1)(table)
        return self._tables[place]


_made: list[_Installed] = []


@contextmanager
def faulty_disk() -> Iterator[FaultyDisk]:
    """Let every file that SQLite opens inside be on a disk that can be made to fail.

    Raises:
        RuntimeError: SQLite's library cannot be reached from here.
    """
    if not _made:
        import _sqlite3

        library = ctypes.CDLL(_sqlite3.__file__)
        if not hasattr(library, "sqlite3_vfs_register"):
            raise RuntimeError("this Python hides the SQLite that it uses")
        _made.append(_Installed(library))
    [installed] = _made
    installed.disk.fail(Plan())
    installed.disk.slow_s = 0.0
    installed.choose(ours=True)
    try:
        yield installed.disk
    finally:
        installed.disk.heal()
        installed.disk.slow_s = 0.0
        installed.choose(ours=False)
