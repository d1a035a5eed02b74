"""The policies of a store: loaded from their checkpoints, and which of these it needs."""

from tau_live.core.errors import CheckpointError
from tau_live.core.records import PolicyVersion
from tau_live.core.settings import Settings
from tau_live.decisions.checkpoints import load, load_some
from tau_live.rl.policy import Policy, PolicyConfig
from tau_live.rl.state import LearnerState
from tau_live.store.roles import Checkpoints, Store


def policy_config(settings: Settings) -> PolicyConfig:
    """Return the configuration of every policy under these settings."""
    return PolicyConfig(epsilon=settings.exploration)


def load_policy(checkpoints: Checkpoints, row: PolicyVersion) -> Policy:
    """Return the policy of a stored version, verified; the learner's state is not read.

    Raises:
        CheckpointError: It is missing, is damaged in the part that was read, or holds no policy.
    """
    names = Policy.initial(PolicyConfig()).arrays().keys()
    arrays = load_some(checkpoints, row.file, names, sha256=row.sha256)
    try:
        return Policy.from_arrays(arrays)
    except ValueError as error:
        raise CheckpointError(f"checkpoint {row.file} holds no policy: {error}") from error


def check_policy(checkpoints: Checkpoints, row: PolicyVersion) -> None:
    """Read and verify the whole of a stored version: its policy and the learner's state.

    Raises:
        CheckpointError: It is missing, damaged, or holds no policy.
    """
    if row.file not in checkpoints.names():
        raise CheckpointError(
            f"the checkpoint of version {row.version} is not at {checkpoints.address(row.file)}: "
            "it was pruned (serving versions, their parents, champions and the newest are kept) "
            "or removed"
        )
    checkpoint = load(checkpoints, row.file, sha256=row.sha256)
    try:
        LearnerState.from_arrays(checkpoint.arrays)
    except ValueError as error:
        raise CheckpointError(f"checkpoint {row.file} holds no policy: {error}") from error


def needed_versions(store: Store) -> set[int]:
    """Return the versions whose checkpoints are kept: the required, and the serving ones' parents.

    A version that an operator or a rollback restored may have outlived that of its parent.
    """
    serving = store.policies.in_service().values()
    parents = {store.policies.before(row.point, row.version) for row in serving if row.version}
    return required_versions(store) | parents


def required_versions(store: Store) -> set[int]:
    """Return the versions whose checkpoints must exist: those in service, and the champions."""
    serving = {row.version for row in store.policies.in_service().values()}
    trials = store.trials.trials().values()
    champions = {
        version for trial in trials for version in (trial.champion, trial.previous) if version
    }
    return serving | champions
