"""Checks of a store that is over its limits."""

from collections.abc import Iterator
from pathlib import Path

from tau_live.cli.doctor_checks.check import OK, WARN, Check
from tau_live.cli.text import number
from tau_live.collection.forgetting import MB, excess, limits_of
from tau_live.errors import TauLiveError
from tau_live.settings import Settings
from tau_live.store.sqlite import SqliteStore

LARGE_BYTES = 1_000_000_000


def retention_checks(file: Path, settings: Settings, *, now: float) -> Iterator[Check]:
    """Yield what keeps a store from shrinking to its limits; without any, whether it should."""
    limits = limits_of(settings)
    if not limits:
        yield from _unlimited(file)
        return
    if not file.exists():
        return
    try:
        store = SqliteStore.open(file, read_only=True)
    except TauLiveError:  # another check says so
        return
    try:
        size, found = store.retention.size(), excess(store.retention, limits, now=now)
    except TauLiveError:
        return
    finally:
        store.close()
    held = f"{size.rollouts:,} rollouts, {number(size.used_bytes / MB)} MB"
    if not found.over:
        yield Check("retention", OK, f"{held}: within its limits")
    elif found.kept.forgettable:
        advice = "a running process deletes it step by step, `tau-live gc` at once"
        yield Check("retention", OK, f"{held}: {found}", advice)
    else:
        advice = "let the learner catch up (`tau-live learn --once`), or raise the limits"
        yield Check("retention", WARN, f"{held}: {found}", advice, "retention-kept")


def _unlimited(file: Path) -> Iterator[Check]:
    try:
        held = file.stat().st_size
    except OSError:
        return
    if held > LARGE_BYTES:
        advice = "set TAU_LIVE_RL_RETENTION_DAYS, or delete by hand: `tau-live gc --older-than 90d`"
        found = f"{number(held / MB)} MB, and nothing is ever deleted"
        yield Check("retention", WARN, found, advice, "store-grows")
