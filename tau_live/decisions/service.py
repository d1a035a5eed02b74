"""The version in service at each point, loaded and verified."""

import threading
from collections.abc import Callable

from msgspec.structs import replace

from tau_live.core.errors import CheckpointError, OddRowError, UnknownError
from tau_live.core.guard import logger
from tau_live.core.hookspecs import Promotion
from tau_live.core.prompts import prompt_of_trial
from tau_live.core.records import InService, Trial
from tau_live.decisions.decider import Decider
from tau_live.decisions.policies import load_policy
from tau_live.rl.policy import Policy
from tau_live.store.roles import Store


class Service:
    """Keeps a decider in line with the store, from the writer's thread and the learner's.

    The store is read under the lock, so the last thread to come puts the newest into service.

    Args:
        decider: The decider.
        promoted: Called with each change of who decides, in the thread that noticed it.
    """

    def __init__(self, decider: Decider, *, promoted: Callable[[Promotion], None]) -> None:
        self._decider = decider
        self._promoted = promoted
        self._lock = threading.Lock()
        self._wanted: dict[str, int] = {}
        self._newest: tuple[int, Policy] | None = None
        self._trials: dict[str, Trial] = {}
        self._control: dict[str, Policy | None] = {}

    def keep_newest(self, version: int, policy: Policy) -> None:
        """Cache the newest version of this process, so that it need not be loaded."""
        with self._lock:
            self._newest = (version, policy)

    def take_over(self, store: Store) -> None:
        """Put the versions into service that the store has in service.

        Raises:
            StoreUnavailableError: The store cannot be read; the versions in service stay.
        """
        with self._lock:
            in_service = store.policies.in_service()
            promotions = [
                self._change_version(store, serving)
                for serving in in_service.values()
                if self._wanted.get(serving.point, 0) != serving.version
            ]
            for trial in store.trials.trials().values():
                if prompt_of_trial(trial.point) is not None:  # ``Prompts`` goes by it
                    continue
                serves = in_service.get(trial.point)
                promotions += self._compare(store, trial, serves is not None and serves.pinned)
        for promotion in promotions:
            self._promoted(promotion)

    def _change_version(self, store: Store, serving: InService) -> Promotion:
        point = serving.point
        was = self._decider.versions().get(point, 0)
        self._serve(store, point, serving.version)
        self._wanted[point] = serving.version
        return Promotion(
            point=point,
            version=self._decider.versions().get(point, 0),
            was=was,
            pinned=serving.pinned,
            at=serving.changed_at,
        )

    def _compare(self, store: Store, trial: Trial, pinned: bool) -> list[Promotion]:
        """Assign rollouts by a trial from now on; return the changes of who decides."""
        was = self._trials.get(trial.point, Trial(point=trial.point))
        if was.revision == trial.revision:
            return []
        if was.control != trial.control or not was.revision:
            self._control[trial.point] = self._control_of(store, trial)
        self._trials[trial.point] = trial
        self._decider.compare(trial, self._control[trial.point])
        version = self._decider.versions().get(trial.point, 0)
        now = Promotion(
            point=trial.point,
            version=version,
            was=version,
            pinned=pinned,
            at=trial.changed_at,
            champion=trial.champion,
            exposure=trial.exposure,
            stopped=trial.stopped,
        )
        return [
            replace(now, change=name)
            for name in ("champion", "exposure", "stopped")
            if getattr(was, name) != getattr(trial, name)
        ]

    def _control_of(self, store: Store, trial: Trial) -> Policy | None:
        """Load the champion that is the control; ``None`` makes it the host's own choice."""
        if not trial.control:
            return None
        try:
            return load_policy(store.checkpoints, store.policies.version(trial.control))
        except (CheckpointError, UnknownError, OddRowError) as error:
            logger().warning("checkpoint_refused", version=trial.control, error=str(error))
            return None

    def _serve(self, store: Store, point: str, version: int) -> None:
        """Load a version, or the nearest ancestor with an intact checkpoint."""
        if self._newest is not None and self._newest[0] == version:
            self._decider.serve(point, *self._newest)
            return
        while version:
            try:
                policy = load_policy(store.checkpoints, store.policies.version(version))
            except (CheckpointError, UnknownError, OddRowError) as error:
                logger().warning("checkpoint_refused", version=version, error=str(error))
                version = store.policies.before(point, version)
                continue
            self._decider.serve(point, version, policy)
            return
        self._decider.withdraw(point)
