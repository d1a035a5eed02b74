"""What a shell completes from the store: quick, read-only, and nothing at all where it cannot."""

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from tau_live.cli.text import shown

if TYPE_CHECKING:
    from tau_live.store.sqlite import SqliteStore

MOST = 50
"""So many are offered at most."""

WAIT_S = 0.2
"""So long a locked store is waited for."""

_PLAIN = re.compile(r"\w[\w.@%+/:-]*")

Completed = list[CompletionItem]
Complete = Callable[[click.Context, click.Parameter, str], Completed]
_Item = tuple[str, str]


def from_store(items: Callable[["SqliteStore", str], Iterable[_Item]]) -> Complete:
    """Return what offers names and what they are, from the store that a command is about."""

    def complete(ctx: click.Context, parameter: click.Parameter, begun: str) -> Completed:  # noqa: ARG001  # click's signature
        try:
            store = _store(ctx.params.get("path"))
            try:
                found = [item for item in items(store, begun) if item[0].startswith(begun)]
            finally:
                store.close()
        except Exception:  # noqa: BLE001  # a shell that waits for words wants no error
            return []
        return [
            CompletionItem(name, help=shown(said)) for name, said in found[:MOST] if _is_plain(name)
        ]

    return complete


def _store(path: object) -> "SqliteStore":
    from tau_live.cli.opening import loaded
    from tau_live.store.sqlite import SqliteStore

    settings = loaded(path if isinstance(path, Path) else None).settings
    return SqliteStore.open(settings.store, read_only=True, busy_timeout_s=WAIT_S)


def _is_plain(name: str) -> bool:
    """Say whether a name means nothing to a shell, nor in what it is told: a comma does."""
    return _PLAIN.fullmatch(name) is not None


def _rollouts(store: "SqliteStore", begun: str) -> list[_Item]:
    from tau_live.store.records import RolloutQuery

    if begun:
        return [(one, "") for one in store.rollouts.ids_beginning_with(begun, limit=MOST)]
    newest = store.rollouts.query(RolloutQuery(descending=True, limit=MOST)).rollouts
    return [(one.rollout_id, f"{one.status} {one.name}") for one in newest]


def _decisions(store: "SqliteStore", begun: str) -> list[_Item]:
    rollout_id = begun.partition(":")[0]
    ids = [one for one, _ in _rollouts(store, rollout_id)]
    if not begun or len(ids) != 1:
        return [] if ":" in begun else _rollouts(store, begun)
    told = [(one.decision_id, f"at {one.point}") for one in store.decisions.decisions(ids[0])]
    return [(ids[0], ""), *told]


def _versions(store: "SqliteStore", _begun: str) -> list[_Item]:
    newest = store.policies.versions(limit=MOST)
    return [(str(one.version), f"of {one.point}") for one in reversed(newest)]


def _updates(store: "SqliteStore", _begun: str) -> list[_Item]:
    return [(str(one.update), f"of {one.point}") for one in store.policies.updates(limit=MOST)]


def _points(store: "SqliteStore", _begun: str) -> list[_Item]:
    known = {*store.policies.in_service(), *store.trials.points(), *store.trials.trials()}
    return [(point, "decision point") for point in sorted(known)]


rollouts = from_store(_rollouts)
decisions = from_store(_decisions)
versions = from_store(_versions)
updates = from_store(_updates)
points = from_store(_points)
