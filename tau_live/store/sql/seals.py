"""Seals in any database: where those of a key begin, and what contradicts sealed rows."""

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path

from tau_live.core.errors import StoreUnavailableError, suppress
from tau_live.store.sealing import (
    ChainStart,
    Finding,
    Sealer,
    Seals,
    keep_beginning,
    known_beginning,
)
from tau_live.store.sql.connection import Connection, Row

SINGULAR = {
    "decisions": "decision",
    "rewards": "reward",
    "updates": "update",
    "policies": "policy",
    "audit": "line of the audit",
    "gate_log": "line of the gate's history",
    "arms": "assignment",
    "rollouts": "rollout",
    "trials": "trial",
    "in_service": "version in service",
    "monitors": "monitor",
    "alerts": "alert",
    "lessons": "lesson",
}

MISSING_PLACES = """
select rollout_id, point from rollouts
join (
    select distinct rollout_seq, point from decisions
    union all
    select seq, '' from rollouts
    where not exists (select 1 from decisions where rollout_seq = rollouts.seq)
) as decided on decided.rollout_seq = rollouts.seq
where ready_seq is not null and not exists (
    select 1 from ready_points as r
    where r.rollout_seq = rollouts.seq and r.point = decided.point
)
"""

_MISPLACED = "coalesce(rollouts.ready_seq, -1) <> r.ready_seq"

WRONG_PLACES = f"""
select coalesce(rollout_id, '#' || r.rollout_seq) as rollout_id, r.point,
    {_MISPLACED} as misplaced
from ready_points as r left join rollouts on rollouts.seq = r.rollout_seq
where {_MISPLACED} or r.point <> '' and not exists (
    select 1 from decisions as d where d.rollout_seq = r.rollout_seq and d.point = r.point
) or r.point = '' and exists (select 1 from decisions as d where d.rollout_seq = r.rollout_seq)
"""

_ENDED = "status in ('succeeded', 'failed', 'cancelled')"

WRONG_STATUSES = f"""
select rollout_id, status from rollouts where not {_ENDED} and (
    ended_at is not null
    or ready_seq is not null
    and not exists (select 1 from queue where rollout_seq = rollouts.seq)
    and not exists (select 1 from attempts where rollout_seq = rollouts.seq and number > 1)
)
"""
"""An open rollout has no end; one that was ready is open only while it is tried again."""


class DatabaseSeals(Seals):
    """Seals in a database, and unsealed rows that contradict the sealed ones."""

    _connection: Connection

    @abstractmethod
    def oldest_key(self) -> str | None:
        """Return the id of the key of the oldest seal; ``None`` without a seal."""

    def count(self) -> int:
        """Return how many seals there are."""
        return self._connection.count("select count(*) from seals")

    def count_without(self, sealer: Sealer) -> int:
        """Return how many seals were made without this key."""
        return self._connection.count(
            "select count(*) from seals where key_id <> ?", (sealer.key_id,)
        )

    def begin_with(self, sealer: Sealer, key_file: Path | None) -> bool:
        """Note beside the key where its seals begin, once they do.

        A store that was sealed with the key and now begins without it has been replaced.

        Returns:
            Whether they begin now, after seals without the key.

        Raises:
            StoreUnavailableError: It begins without the key, although it was sealed with it.
        """
        if key_file is None:
            return False
        path = self._connection.path
        is_ours = self.oldest_key() in {None, sealer.key_id}
        known = known_beginning(key_file, path)
        if known is None:
            head = self.head()
            start = ChainStart() if is_ours else ChainStart(place=head.place, link=head.link)
            with suppress(OSError):  # a key may be mounted read-only
                keep_beginning(key_file, path, start)
            return not is_ours
        if not is_ours and (not known.place or self.link_at(known.place) != known.link):
            raise StoreUnavailableError(
                f"store '{self._connection.address}' is sealed from its beginning without the key "
                f"'{key_file}', which had sealed it: another store was put in its place. "
                "Put the right one back, or look at this one with `tau-live verify` and take it "
                "over with `tau-live verify --adopt --reason TEXT`"
            )
        return False

    def contradictions(self) -> Iterator[Finding]:
        """Yield every row outside the seals that cannot be what tau-live stored."""
        yield from self.foreign_schema()
        for row in self._connection.stream(MISSING_PLACES):
            detail = "it was removed from what is to be learned from, not by tau-live"
            yield Finding("not_ready", _place_text(row), detail)
        for row in self._connection.stream(WRONG_PLACES):
            detail = (
                "it has another place there than the rollout"
                if row["misplaced"]
                else "its decisions say otherwise"
            )
            yield Finding("ready", _place_text(row), detail)
        for row in self._connection.stream(WRONG_STATUSES):
            detail = f"it is {row['status']}, although it had ended and was not tried again"
            yield Finding("status", f"rollout {row['rollout_id']}", detail)


def other_key(place: int, key_id: str, own: str) -> Finding:
    """Return the finding of a seal that was made with another key."""
    was = f"with the key {key_id}" if key_id else "without a key"
    now = f"the key at hand is {own}" if own else "no key is at hand"
    return Finding("other_key", f"seal {place}", f"it was made {was}; {now}")


def broken_link(place: int) -> Finding:
    """Return the finding of a seal that does not follow the one before."""
    detail = "it does not follow the one before: one of them was changed, removed or moved"
    return Finding("broken_link", f"seal {place}", detail)


def wrong_number(row: Row) -> Finding:
    """Return the finding of a numbering that differs from the numbers given."""
    ahead = isinstance(row["value"], int) and row["value"] > row["most"]
    used = f"no more than {row['most']}" if ahead else f"{row['given']}"
    detail = f"it is at {row['value']}, and {used} was given already"
    return Finding("sequence", f"the numbering {row['name']!r}", detail)


def orphans(table: str, parent: str) -> Finding:
    """Return the finding of rows whose rollout or attempt is gone."""
    return Finding("orphans", f"table {table}", f"rows belong to none of {parent}")


def _place_text(row: Row) -> str:
    of_point = f" at '{row['point']}'" if row["point"] else ""
    return f"rollout {row['rollout_id']}{of_point}"
