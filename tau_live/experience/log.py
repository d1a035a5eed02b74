"""The log of a store: its chains as far as they can be trusted, and all that follows from them."""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tau_live.core.errors import LeaseLostError, TauLiveError
from tau_live.core.processes import this_process
from tau_live.core.prompts import canonical_json
from tau_live.core.records import AuditEntry
from tau_live.core.sanitize import JsonObject
from tau_live.experience.credit import GroupScore, Uplift, credit
from tau_live.experience.pool import Pool
from tau_live.experience.records import (
    FIRST_STAMP,
    Chain,
    Experience,
    LedgerRecord,
    LessonVersion,
    Operation,
    Record,
)
from tau_live.experience.stamps import ChainCheck, Head, check_record, stamp
from tau_live.store.roles import Store
from tau_live.store.sealing import Keys

if TYPE_CHECKING:
    from tau_live.store.records import ChainRow

LEASE = "experience"
"""The name of the lease of whoever changes the pool: one process at a time."""

CHAINS: tuple[Chain, ...] = ("ledger", "experiences", "operations")

BROKEN = "chain_broken"


LEASE_S = 30.0


class Change(NamedTuple):
    """A change of the pool that nobody has stamped yet.

    Attributes:
        op: The operation.
        reason: Why.
        by: Who decided it.
        fields: Its own fields, such as ``id`` and ``version``.
        evidence: The groups that it rests on.
    """

    op: str
    reason: str
    by: str
    fields: JsonObject
    evidence: Sequence[str] = ()


class Place(NamedTuple):
    """Where in a run something happens.

    Attributes:
        run_id: The run; empty outside of one.
        epoch: From 1; 0 outside of epochs.
        step: From 0.
    """

    run_id: str = ""
    epoch: int = 0
    step: int = 0


class _Group(NamedTuple):
    """A group in the ledger, and the scores of its valid members."""

    epoch: tuple[str, int]
    query_id: str
    injected: Sequence[LessonVersion]
    withheld: Sequence[LessonVersion]
    scores: list[float]


class Log:
    """The chains of a store, verified; what fails is put into quarantine and never used.

    Args:
        store: The store, in this thread.
        keys: The stamping keys.
        kept: Heads that were kept elsewhere.
        repairs: Whether what fails is put into quarantine in the store, too.

    Attributes:
        keys: The stamping keys.
        pool: The pool: the fold over the operations.
        lessons: Every version of a lesson that can be trusted.
        heads: The end of each chain.
        seq: The number of the last operation.
        operator_seq: The number of the last operation of an operator.
        faults: How many records of each chain cannot be trusted, by reason.
        cut: The chains that lack the head that was kept.
    """

    def __init__(
        self, store: Store, keys: Keys, *, kept: Mapping[Chain, Head] | None = None,
        repairs: bool = True,
    ) -> None:  # fmt: skip
        self.keys = keys
        self.pool = Pool()
        self.lessons: dict[LessonVersion, Experience] = {}
        self.heads: dict[Chain, Head] = {}
        self.faults: dict[Chain, Counter[str]] = {}
        self.cut: list[Chain] = []
        self._store = store
        self._kept = kept or {}
        self._repairs = repairs
        self._groups: dict[str, _Group] = {}
        self.operator_seq = self.seq = 0
        self._numbers = 0
        self._last: dict[Chain, int] = {}
        self.read()

    def read(self) -> None:
        """Verify all chains and fold them anew, unless nothing has changed since."""
        if {chain: self._last_of(chain) for chain in CHAINS} == self._last:
            return
        with self._store.begin() if self._repairs else nullcontext():  # nobody appends meanwhile
            self.pool, self.lessons, self._groups, self.cut = Pool(), {}, {}, []
            for chain in CHAINS:
                self._read(chain)
            self._last = {chain: self._last_of(chain) for chain in CHAINS}
            self._leave_untrusted()

    def _last_of(self, chain: Chain) -> int:
        row = self._store.experience.last(chain)
        return 0 if row is None else row.seq

    def _read(self, chain: Chain) -> None:
        """Read a chain; records that cannot be trusted go into quarantine."""
        check = ChainCheck(chain, self.keys, kept=self._kept.get(chain))
        faults: list[tuple[ChainRow, str]] = []
        for row in self._store.experience.chain(chain):
            record, fault = check.check(row.content)
            if record is not None:
                self._take(record)
            elif fault is not None:
                faults.append((row, fault))
        self.heads[chain] = check.head
        self.faults[chain] = Counter(fault for _, fault in faults)
        if not check.is_whole:
            self.cut.append(chain)
        if self._repairs:
            self._hold(chain, faults)

    def _hold(self, chain: Chain, faults: Sequence[tuple["ChainRow", str]]) -> None:
        """Put records into quarantine, and note those that are new there for an alert."""
        at = time.time()
        new = Counter(
            fault
            for row, fault in faults
            if self._store.experience.hold(row, chain, reason=fault, at=at, removes=fault == BROKEN)
        )
        if new:
            why = ", ".join(f"{count} {fault}" for fault, count in new.items())
            self._store.audit.add(
                AuditEntry(
                    at=at, who=this_process(), action="lessons_quarantined",
                    reason=f"{chain}: {why}", details={"chain": chain, "records": dict(new)},
                )
            )  # fmt: skip

    def _take(self, record: Record) -> None:
        if isinstance(record, Operation):
            self.seq = max(self.seq, record.seq)
            if record.by == "operator":
                self.operator_seq = record.seq
            self.pool.follow(record)
        elif isinstance(record, Experience):
            self.lessons[record.id, record.version] = record
            self._numbers = max(self._numbers, int(record.id[2:]))
        elif record.status == "valid" and record.reward.gt is not None:
            group = self._groups.get(record.group_id)
            if group is None:
                epoch = record.run_id, record.epoch
                group = _Group(epoch, record.query_id, record.injected, record.withheld, [])
                self._groups[record.group_id] = group
            group.scores.append(record.reward.gt)

    def _leave_untrusted(self) -> None:
        """Let lessons leave the pool whose records cannot be trusted."""
        lost = sorted(
            id_ for id_, own in self.pool.lessons.items() if (id_, own) not in self.lessons
        )
        if self._repairs and lost:
            why = "its record cannot be trusted"
            self.change([Change("QUARANTINE", why, "system", {"id": id_}) for id_ in lost], Place())
        for id_ in lost:
            self.pool.lessons.pop(id_, None)

    def in_force(self) -> list[Experience]:
        """Return the lessons of the pool, by id."""
        return [self.lessons[item] for item in sorted(self.pool.lessons.items())]

    def effects(self) -> dict[LessonVersion, Uplift]:
        """Return what each version of a lesson was measured to do, also of those that left.

        Versions of a lesson with the same text count as one.
        """
        texts = {item: (item[0], lesson.summary32) for item, lesson in self.lessons.items()}
        known = credit(
            GroupScore(
                group.epoch,
                group.query_id,
                fmean(group.scores),
                [texts[item] for item in group.injected if item in texts],
                [texts[item] for item in group.withheld if item in texts],
            )
            for group in self._groups.values()
        )
        return {item: known[text] for item, text in texts.items() if text in known}

    def next_id(self, place: int) -> str:
        """Return the id of the lesson that is the next but ``place``, none of which is given."""
        return f"x-{self._numbers + 1 + place:06d}"

    def change(self, changes: Sequence[Change], at: Place) -> list[Operation]:
        """Change the pool, and store the operations; inside a transaction of the store.

        Raises:
            PoolError: An operation does not fit; nothing of all of them is done.
        """
        bodies: list[JsonObject] = []
        pool = self.pool.copy()
        for number, change in enumerate(changes, start=1):
            body: dict[str, object] = {
                "schema_version": 1, "seq": self.seq + number, **at._asdict(), "op": change.op,
                **change.fields, "pool_before": pool.version, "pool_after": pool.version,
                "evidence": list(change.evidence), "reason": change.reason, "by": change.by,
                "created_unix_ms": now_ms(),
            }  # fmt: skip
            if change.op == "ROLLBACK":
                body["pool_after"] = change.fields["pool_after"]
            pool.apply(_draft(body))
            bodies.append({**body, "pool_after": pool.version})
        stored = [msgspec.convert(each, Operation) for each in self.append("operations", bodies)]
        self.pool = pool
        self.seq += len(stored)
        return stored

    def learn(self, bodies: Sequence[JsonObject]) -> list[Experience]:
        """Store versions of lessons, and return them."""
        stored = [msgspec.convert(each, Experience) for each in self.append("experiences", bodies)]
        for lesson in stored:
            self._take(lesson)
        return stored

    def note(self, bodies: Sequence[JsonObject]) -> set[str]:
        """Store attempts, and return the ids of their rollouts."""
        stored = [msgspec.convert(each, LedgerRecord) for each in self.append("ledger", bodies)]
        for record in stored:
            self._take(record)
        return {record.rollout_id for record in stored}

    def append(self, chain: Chain, bodies: Sequence[JsonObject]) -> list[JsonObject]:
        """Stamp records, add them to a chain, and read them back.

        Raises:
            TauLiveError: Another process has changed the chain, or what was read is not what was
                written.
        """
        if not bodies:
            return []
        with self._store.begin():
            if self._last_of(chain) != self._last[chain]:
                raise TauLiveError(f"another process has changed the {chain}: try again")
            head, records = self.heads[chain], list[JsonObject]()
            prev = head.last_stamp
            for body in bodies:
                record = stamp(body, self.keys, prev_stamp=prev)
                prev = str(record["stamp_signature"])
                records.append(record)
            texts = {name_of(each): canonical_json(each).decode() for each in records}
            self._store.experience.append(chain, texts)
            self._check(chain, texts)
            self.heads[chain] = Head(chain, head.count + len(bodies), prev, self.keys.key_id)
            self._last[chain] = self._last_of(chain)
        return records

    def _check(self, chain: Chain, texts: Mapping[str, str]) -> None:
        """Read records back before they are committed."""
        stored = self._store.experience.by_name(chain, [*texts])
        for name, text in texts.items():
            fault = check_record(json.loads(stored.get(name, "null")), chain, self.keys).fault
            if stored.get(name) != text or fault is not None:
                raise TauLiveError(f"{name} cannot be stored: {fault or 'it reads otherwise'}")


def take_pool(store: Store) -> None:
    """Take the lease of the pool. Raises: LeaseLostError."""
    if not store.leases.acquire(LEASE, this_process(), ttl_s=LEASE_S):
        raise LeaseLostError(f"the pool of lessons is changed by {store.leases.holder(LEASE)}")


def _draft(body: JsonObject) -> Operation:
    """Return an operation that is not stamped yet."""
    unstamped = {"key_id": "0" * 12, "prev_stamp": FIRST_STAMP, "stamp_signature": FIRST_STAMP}
    return msgspec.convert({**body, **unstamped}, Operation)


def name_of(record: JsonObject) -> str:
    """Return what no two records of a chain share."""
    if "seq" in record:
        return str(record["seq"])
    version = f"@{record['version']}" if "version" in record else ""
    return f"{record['id']}{version}"


def now_ms() -> int:
    """Return the time: unix milliseconds."""
    return round(time.time() * 1000)
