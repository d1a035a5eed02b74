"""The pool: the lessons in force, which are nothing but what the operations made of none."""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from tau_live.core.errors import TauLiveError
from tau_live.core.prompts import canonical_json
from tau_live.experience.records import LessonVersion, Operation


def pool_version(lessons: Mapping[str, int]) -> str:
    """Return the name of a pool by its content, such as ``E-4f53cda18c2b`` for none.

    Args:
        lessons: The version of each lesson, by id.
    """
    content = canonical_json([[id_, lessons[id_]] for id_ in sorted(lessons)])
    return f"E-{sha256(content).hexdigest()[:12]}"


EMPTY = pool_version({})


class PoolError(TauLiveError):
    """An operation does not fit the pool.

    Attributes:
        reason: ``duplicate_id``, ``unknown_id``, ``stale_version`` or ``unknown_pool``.
    """

    def __init__(self, reason: str, what: object) -> None:
        super().__init__(f"{reason}: {what}")
        self.reason = reason


class Pool:
    """The fold over operations.

    Attributes:
        lessons: The version of each lesson in force, by id.
        newest: The newest version that each lesson ever had, by id.
        best: The version of the pool that was accepted last; that of the empty pool before.
        refused: The number and the reason of each operation that did not fit.
    """

    def __init__(self) -> None:
        self.lessons: dict[str, int] = {}
        self.newest: dict[str, int] = {}
        self.best = EMPTY
        self.refused: list[tuple[int, str]] = []
        self._earlier: dict[str, Mapping[str, int]] = {EMPTY: {}}

    @classmethod
    def fold(cls, operations: Iterable[Operation]) -> "Pool":
        """Return the pool after operations; those that do not fit change nothing."""
        pool = cls()
        for operation in operations:
            pool.follow(operation)
        return pool

    def follow(self, operation: Operation) -> None:
        """Change the pool by an operation, and remember one that does not fit."""
        try:
            self.apply(operation)
        except PoolError as error:
            self.refused.append((operation.seq, error.reason))

    def copy(self) -> "Pool":
        """Return a pool that changes by itself."""
        pool = Pool()
        pool.lessons, pool.newest, pool.best = {**self.lessons}, {**self.newest}, self.best
        pool.refused, pool._earlier = [*self.refused], {**self._earlier}
        return pool

    @property
    def version(self) -> str:
        """The name of the pool by its content."""
        return pool_version(self.lessons)

    def __contains__(self, lesson: LessonVersion) -> bool:
        id_, version = lesson
        return self.lessons.get(id_) == version

    def of(self, version: str) -> Mapping[str, int]:
        """Return the lessons of this pool or an earlier one. Raises: PoolError."""
        if version not in self._earlier:
            raise PoolError("unknown_pool", version)
        return self._earlier[version]

    def apply(self, operation: Operation) -> None:
        """Change the pool by an operation.

        Raises:
            PoolError: It does not fit, and changes nothing.
        """
        if operation.op == "ROLLBACK":
            self.lessons = {**self.of(operation.pool_after)}
        elif operation.op == "ACCEPT":
            self.best = self.version
        elif operation.op != "KEEP":
            self._change(operation, operation.id or "")
        self._earlier[self.version] = {**self.lessons}

    def _change(self, operation: Operation, id_: str) -> None:
        """Let lessons enter, change and leave."""
        match operation.op:
            case "ADD":
                self._enter(id_)
            case "UPDATE":
                before = operation.version or 0
                self._leave([id_], version=before)
                self.lessons[id_] = self.newest[id_] = before + 1
            case "MERGE":
                ids = operation.ids or []
                if len({*ids}) < 2:
                    raise PoolError("unknown_id", "a merge needs two lessons")
                if id_ in self.newest:
                    raise PoolError("duplicate_id", id_)
                self._leave(ids)
                self._enter(id_)
            case _:
                self._leave([id_])

    def _enter(self, id_: str) -> None:
        if id_ in self.newest:
            raise PoolError("duplicate_id", id_)
        self.lessons[id_] = self.newest[id_] = 1

    def _leave(self, ids: Sequence[str], *, version: int | None = None) -> None:
        unknown = [id_ for id_ in ids if id_ not in self.lessons]
        if unknown:
            raise PoolError("unknown_id", unknown[0] or "an operation without a lesson")
        if version is not None and self.lessons[ids[0]] != version:
            raise PoolError("stale_version", f"{ids[0]} is at {self.lessons[ids[0]]}")
        for id_ in ids:
            del self.lessons[id_]
