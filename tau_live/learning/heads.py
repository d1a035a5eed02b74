"""The version that the next update of a decision point starts from."""

from pathlib import Path
from typing import NamedTuple

from tau_live import fault
from tau_live.errors import CheckpointError, StoreUnavailableError
from tau_live.guard import logger, text_of
from tau_live.policies import checkpoints
from tau_live.policies.files import needed_versions, policy_config
from tau_live.rl.state import LearnerState
from tau_live.settings import Settings
from tau_live.store.roles import Store


class Head(NamedTuple):
    """What an update starts from; version 0 is the untrained policy."""

    version: int
    sha256: str
    state: LearnerState


class Heads:
    """Knows the head of each point, and keeps it in memory between updates.

    Args:
        store: Says which version serves.
        settings: What shape an untrained policy has, and how many checkpoints are kept.
        folder: Where the checkpoints are.
    """

    def __init__(self, store: Store, settings: Settings, folder: Path) -> None:
        self._store = store
        self._settings = settings
        self._folder = folder
        self._kept: dict[str, Head] = {}
        self._diagnostics: list[str] = []

    def head(self, point: str) -> Head:
        """Return what to start from: what serves, or the newest version while that is pinned.

        A damaged checkpoint is left alone and its parent taken instead, with a diagnostic.
        """
        version = self._version(point)
        while version:
            held = self._kept.get(point)
            if held is not None and held.version == version:
                return held
            row = self._store.policies.version(version)
            try:
                found = checkpoints.load(self._folder / row.file, sha256=row.sha256)
                state = LearnerState.from_arrays(found.arrays)
            except (CheckpointError, ValueError) as error:
                self._diagnostics.append(f"checkpoint load failed: {error}")
                version = row.parent
                continue
            self._kept[point] = Head(version, row.sha256, state)
            return self._kept[point]
        return Head(0, "", LearnerState.untrained(policy_config(self._settings)))

    def keep(self, point: str, head: Head) -> None:
        """Remember what an update has made, so that it need not be loaded."""
        self._kept[point] = head

    def prune(self) -> None:
        """Delete the checkpoints that nobody needs; what cannot be done now is left to the next.

        In a transaction, or an operator might go back to one that is just being deleted. An update
        that is stored has not failed because somebody else kept the store locked after it.
        """
        try:
            with self._store.begin():
                kept = {head.version for head in self._kept.values()}
                checkpoints.prune(
                    self._folder,
                    keep=self._settings.keep_checkpoints,
                    needed=frozenset(kept | needed_versions(self._store)),
                )
        except StoreUnavailableError as error:
            logger().warning("checkpoints_not_pruned", error=text_of(error))
        fault.point("update.pruned")

    def told(self) -> list[str]:
        """Return what was wrong with checkpoints since the last call."""
        told, self._diagnostics = self._diagnostics, []
        return told

    def _version(self, point: str) -> int:
        serving = self._store.policies.in_service().get(point)
        if serving is None or not serving.pinned:
            return serving.version if serving else 0
        versions = self._store.policies.versions(point)
        return max((found.version for found in versions), default=0)
