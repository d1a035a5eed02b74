"""The files and the shape of a store's policies."""

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
    """Return the shape that every policy of these settings has."""
    return PolicyConfig(epsilon=settings.exploration)


def checkpoint_folder(settings: Settings) -> Path:
    """Return where the checkpoints of a store are: a folder beside it."""
    return policies_of(settings.store)


def load_policy(folder: Path, row: PolicyVersion) -> Policy:
    """Return the policy of a stored version, verified; the learner's part is not read.

    Raises:
        CheckpointError: Its file is missing, what was read of it is damaged, or holds no policy.
    """
    names = Policy.initial(PolicyConfig()).arrays().keys()
    arrays = checkpoints.load_some(folder / row.file, names, sha256=row.sha256)
    try:
        return Policy.from_arrays(arrays)
    except ValueError as error:
        raise CheckpointError(f"checkpoint {row.file} holds no policy: {error}") from error


def check_policy(folder: Path, row: PolicyVersion) -> None:
    """Read the whole of a stored version: its policy, and what the learner goes on from.

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
    """Return the versions whose files are kept: those required, and those that serving was made of.

    One that an operator or a rollback brought back may have outlived the file of its parent.
    """
    serving = {held.version for held in store.policies.in_service().values()}
    parents = {store.policies.version(version).parent for version in serving if version}
    return required_versions(store) | parents


def required_versions(store: Store) -> set[int]:
    """Return the versions whose files have to be there: those that serve, and the champions."""
    serving = {held.version for held in store.policies.in_service().values()}
    trials = store.trials.trials().values()
    return serving | {of for trial in trials for of in (trial.champion, trial.previous) if of}
