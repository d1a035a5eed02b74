"""The checkpoint files of a store, and the configuration of its policies."""

from pathlib import Path

from tau_live.core.errors import CheckpointError
from tau_live.core.records import PolicyVersion
from tau_live.core.settings import Settings
from tau_live.decisions import checkpoints
from tau_live.rl.policy import Policy, PolicyConfig
from tau_live.rl.state import LearnerState
from tau_live.store.files import policies_of
from tau_live.store.roles import Store


def policy_config(settings: Settings) -> PolicyConfig:
    """Return the configuration of every policy under these settings."""
    return PolicyConfig(epsilon=settings.exploration)


def checkpoint_folder(settings: Settings) -> Path:
    """Return the folder of a store's checkpoints, which is beside it."""
    return policies_of(settings.store)


def load_policy(folder: Path, row: PolicyVersion) -> Policy:
    """Return the policy of a stored version, verified; the learner's state is not read.

    Raises:
        CheckpointError: Its file is missing, is damaged in the part that was read, or holds no
            policy.
    """
    names = Policy.initial(PolicyConfig()).arrays().keys()
    arrays = checkpoints.load_some(folder / row.file, names, sha256=row.sha256)
    try:
        return Policy.from_arrays(arrays)
    except ValueError as error:
        raise CheckpointError(f"checkpoint {row.file} holds no policy: {error}") from error


def check_policy(folder: Path, row: PolicyVersion) -> None:
    """Read and verify the whole of a stored version: its policy and the learner's state.

    Raises:
        CheckpointError: Its file is missing, damaged, or holds no policy.
    """
    if not (folder / row.file).exists():
        raise CheckpointError(
            f"the checkpoint of version {row.version} is not in {folder}: it was pruned ("
            "serving versions, their parents, champions and the newest are kept) or removed"
        )
    checkpoint = checkpoints.load(folder / row.file, sha256=row.sha256)
    try:
        LearnerState.from_arrays(checkpoint.arrays)
    except ValueError as error:
        raise CheckpointError(f"checkpoint {row.file} holds no policy: {error}") from error


def needed_versions(store: Store) -> set[int]:
    """Return the versions whose files are kept: those required, and the parents of those serving.

    A version that an operator or a rollback restored may have outlived the file of its parent.
    """
    serving = store.policies.in_service().values()
    parents = {store.policies.before(row.point, row.version) for row in serving if row.version}
    return required_versions(store) | parents


def required_versions(store: Store) -> set[int]:
    """Return the versions whose files must exist: those in service, and the champions."""
    serving = {row.version for row in store.policies.in_service().values()}
    trials = store.trials.trials().values()
    champions = {
        version for trial in trials for version in (trial.champion, trial.previous) if version
    }
    return serving | champions
