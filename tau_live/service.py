"""What decides at each point: the version that the store says, loaded and verified."""

import threading
from pathlib import Path

from tau_live.decider import Decider
from tau_live.errors import CheckpointError, UnknownError
from tau_live.guard import logger
from tau_live.learner import load_policy
from tau_live.rl.policy import Policy
from tau_live.store.roles import Store


class Service:
    """Keeps a decider in line with the store, from the writer's thread and the learner's.

    The store is read anew under the lock, so whoever comes last puts the newest into service.

    Args:
        decider: What decides.
        folder: Where the checkpoints are.
    """

    def __init__(self, decider: Decider, folder: Path) -> None:
        self._decider = decider
        self._folder = folder
        self._lock = threading.Lock()
        self._wanted: dict[str, int] = {}
        self._made: tuple[int, Policy] | None = None

    def made(self, version: int, policy: Policy) -> None:
        """Keep the newest version of this process at hand, so that it need not be loaded."""
        with self._lock:
            self._made = (version, policy)

    def take_over(self, store: Store) -> None:
        """Let the versions decide that the store has in service.

        Raises:
            StoreUnavailableError: The store cannot be read; what served goes on.
        """
        with self._lock:
            for point, serving in store.policies.in_service().items():
                if self._wanted.get(point, 0) != serving.version:
                    self._serve(store, point, serving.version)
                    self._wanted[point] = serving.version

    def _serve(self, store: Store, point: str, version: int) -> None:
        """Load a version, or the nearest ancestor whose checkpoint is whole."""
        if self._made is not None and self._made[0] == version:
            self._decider.serve(point, *self._made)
            return
        while version:
            try:
                row = store.policies.version(version)
            except UnknownError:  # forgotten with its file
                break
            try:
                policy = load_policy(self._folder, row)
            except CheckpointError as error:
                logger().warning("checkpoint_refused", version=version, error=str(error))
                version = row.parent
                continue
            self._decider.serve(point, version, policy)
            return
        self._decider.withdraw(point)
