"""A store of the drill: its rows, its policy, its health, and the work in flight."""

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from tau_live.core.errors import TauLiveError
from tau_live.core.records import (
    ROLLOUT_ENDS,
    PolicyVersion,
    Reason,
    Rollout,
    RolloutQuery,
    RolloutStatus,
    Update,
)
from tau_live.core.settings import Settings
from tau_live.evidence.artifacts import Root
from tau_live.evidence.drill.documents import SOUND, StoreHealth
from tau_live.evidence.drill.host import POINT
from tau_live.learn.learner import NOTE
from tau_live.operate.verification import verify_store
from tau_live.store.checkpoints import FolderCheckpoints
from tau_live.store.files import beside, policies_of
from tau_live.store.opening import open_at
from tau_live.store.roles import Store

REPEATED = "duplicate_"
"""Begins the counters of what came more than once."""

LOG = "-wal"
CHECK_S = 30.0


class StoreFacts(NamedTuple):
    """Everything of a store that a drill compares.

    Attributes:
        rows: The lines of its export, with how often each is there.
        health: Its state.
        updates: Its updates by their job.
        serving: The version that serves; ``None`` where none does.
        versions: The file of each version.
        reasons: Why each rollout ended, by its id; ``None`` for one that has not.
        links: The link of each place of its seals that is wanted; ``None`` where it has none.
    """

    rows: Counter[str]
    health: StoreHealth
    updates: dict[str, Update]
    serving: PolicyVersion | None
    versions: dict[int, str]
    reasons: dict[str, Reason | None]
    links: dict[int, str | None]


class Flight(NamedTuple):
    """The work in flight in a store.

    Attributes:
        next_job: The update that would be stored next.
        rollouts: The ids of rollouts that run.
        checkpoints: The files that are noted as being made.
        ended: Rollouts that have ended.
        head: The head of its seals.
    """

    next_job: str
    rollouts: list[str]
    checkpoints: list[str]
    ended: int
    head: str


def job_of(number: int) -> str:
    """Return the job of an update by its number."""
    return f"update-{number}"


def job_after(store: Store) -> str:
    """Return the job of the update that would be stored next."""
    newest = store.policies.updates(limit=1)
    return job_of(1 + (newest[0].update if newest else 0))


def ended_rollouts(store: Store) -> int:
    """Return how many rollouts have ended."""
    counts = store.rollouts.counts_by_status()
    return sum(counts[status] for status in map(RolloutStatus, ROLLOUT_ENDS))


def flight_of(path: Path) -> Flight:
    """Return what is in flight in a store, whose process may be stopped in the midst of it.

    Raises:
        StoreUnavailableError: It cannot be read now.
    """
    with closing(open_at(path, read_only=True, busy_timeout_s=0.5)) as store, store.reading():
        rollouts = store.rollouts.query(RolloutQuery()).rollouts
        return Flight(
            next_job=job_after(store),
            rollouts=[rollout.rollout_id for rollout in rollouts if rollout.ended_at is None],
            checkpoints=[note.name.removeprefix(NOTE) for note in store.leases.all(NOTE)],
            ended=ended_rollouts(store),
            head=str(store.seals.head()),
        )


def settings_of(store: Path, *, seed: int) -> Settings:
    """Return the settings of every process of a drill."""
    return Settings(store=store, seed=seed, keep_checkpoints=2, decide_deadline_ms=60_000.0)


def facts_of(root: Root, path: str, *, places: Iterable[int] = ()) -> StoreFacts:
    """Return everything of a store that a drill compares.

    A copy is opened, because SQLite makes files beside a store even for readers.

    Args:
        root: The project folder.
        path: The store, from the root.
        places: Places of its seals whose links are wanted.

    Raises:
        ArtifactError: There is no such file, or it is too large.
        TauLiveError: It is no store.
    """
    settings = settings_of(root.place(path), seed=0)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / settings.store.name
        copy.write_bytes(root.read(path))
        if beside(settings.store, LOG).exists():
            beside(copy, LOG).write_bytes(root.read(f"{path}{LOG}"))
        with closing(open_at(copy, read_only=True)) as store:
            store.checkpoints = FolderCheckpoints(policies_of(settings.store))  # not copied
            return _facts(store, settings, frozenset(places))


def _facts(store: Store, settings: Settings, places: frozenset[int]) -> StoreFacts:
    lines = [f"{json.dumps(row, default=msgspec.to_builtins)}\n" for row in store.export()]
    versions = {row.version: row for row in store.policies.versions()}
    service = store.policies.in_service().get(POINT)
    serving = versions.get(service.version) if service else None
    rollouts = store.rollouts.query(RolloutQuery()).rollouts
    return StoreFacts(
        rows=Counter(lines),
        health=_health(store, settings, lines=lines, rollouts=rollouts, serving=serving),
        updates={job_of(update.update): update for update in store.policies.updates()},
        serving=serving,
        versions={row.version: row.file for row in versions.values()},
        reasons={rollout.rollout_id: rollout.reason for rollout in rollouts},
        links={place: store.seals.link_at(place) for place in places},
    )


def _health(
    store: Store,
    settings: Settings,
    *,
    lines: list[str],
    rollouts: list[Rollout],
    serving: PolicyVersion | None,
) -> StoreHealth:
    counters = store.counters.counts()
    return StoreHealth(
        integrity=_integrity(store, settings),
        gate=store.gate.load().state,
        ended=sum(rollout.ended_at is not None for rollout in rollouts),
        open=sum(rollout.ended_at is None for rollout in rollouts),
        updates=len(store.policies.updates()),
        version=serving.version if serving else 0,
        repeated=sum(count for name, count in counters.items() if name.startswith(REPEATED)),
        head=str(store.seals.head()),
        export_sha256=sha256("".join(lines).encode()).hexdigest(),
        policy_sha256=serving.sha256 if serving else None,
    )


def _integrity(store: Store, settings: Settings) -> str:
    """Return ``ok``, or the first of what is wrong with a store."""
    damage = store.damage(deadline=time.monotonic() + CHECK_S)
    if damage != "":
        return damage or f"its pages could not be checked in {CHECK_S:g} s"
    findings = verify_store(store, settings).findings
    return f"{findings[0].what}: {findings[0].detail}" if findings else SOUND


class RowDifference(NamedTuple):
    """How the rows of a store differ from those of the control.

    Attributes:
        lost: Rows of the control that it does not have.
        doubled: Rows that it has beyond those of the control.
    """

    lost: int
    doubled: int


def difference(control: StoreFacts, other: StoreFacts) -> RowDifference:
    """Return how the rows of a store differ from the control's."""
    return RowDifference((control.rows - other.rows).total(), (other.rows - control.rows).total())


def acknowledged_lost(path: Path, *, ended: int, head: str) -> int:
    """Return how many acknowledged rollouts a store has lost in a crash.

    Args:
        path: The store, before another process writes to it.
        ended: Rollouts that had ended before.
        head: The head of its seals before.
    """
    place, _, link = head.partition(":")
    try:
        with closing(open_at(path, read_only=True)) as store:
            held = int(place) == 0 or store.seals.link_at(int(place)) == link
            lost = max(0, ended - ended_rollouts(store))
    except TauLiveError:
        return ended
    return lost if held else max(1, lost)


def ends_of(ids: list[str], facts: StoreFacts) -> tuple[int, int]:
    """Return how many of some rollouts then ended by themselves, and how many were given up."""
    reasons = [facts.reasons.get(id_) for id_ in ids]
    abandoned = sum(reason == Reason.ABANDONED for reason in reasons)
    return sum(reason is not None for reason in reasons) - abandoned, abandoned
