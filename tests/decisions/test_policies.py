"""A stored version is read as far as it is needed, and checked as a whole where that matters."""

from pathlib import Path

import numpy as np
import pytest

from tau_live.core.errors import CheckpointError
from tau_live.core.records import PolicyVersion
from tau_live.decisions.checkpoints import Checkpoint, save
from tau_live.decisions.policies import check_policy, load_policy
from tau_live.rl.policy import PolicyConfig
from tau_live.rl.state import LearnerState
from tau_live.store.checkpoints import FolderCheckpoints
from tests.rl.digests import digest_of


def stored(folder: Path, *, without: str = "") -> PolicyVersion:
    """Save an untrained version, perhaps without one of its arrays."""
    arrays = LearnerState.initial(PolicyConfig()).arrays()
    checkpoint = Checkpoint(
        version=3,
        point="model",
        parent=0,
        parent_sha256="",
        arrays={name: array for name, array in arrays.items() if name != without},
    )
    return PolicyVersion(
        version=3,
        point="model",
        parent=0,
        algorithm="ppo",
        sha256=checkpoint.sha256,
        file=save(FolderCheckpoints(folder), checkpoint),
        rollouts=0,
        created_at=0.0,
    )


def hurt(path: Path, part: bytes) -> None:
    """Flip one bit within the first place where these bytes stand."""
    content = bytearray(path.read_bytes())
    content[content.index(part) + len(part) + 200] ^= 1
    path.write_bytes(content)


def test_a_policy_is_the_learners_to_the_last_bit(tmp_path: Path) -> None:
    row = stored(tmp_path)

    found = load_policy(FolderCheckpoints(tmp_path), row)

    assert digest_of(found) == digest_of(LearnerState.initial(PolicyConfig()).policy)


def test_a_policy_is_read_where_the_learners_part_is_damaged(tmp_path: Path) -> None:
    row = stored(tmp_path)
    hurt(tmp_path / row.file, b"a.adam_first.npy")

    found = load_policy(FolderCheckpoints(tmp_path), row)

    np.testing.assert_array_equal(found.weights, 0.0)
    with pytest.raises(CheckpointError, match="damaged"):
        check_policy(FolderCheckpoints(tmp_path), row)


def test_a_damaged_policy_is_refused(tmp_path: Path) -> None:
    row = stored(tmp_path)
    hurt(tmp_path / row.file, b"a.critic.npy")

    for read in (load_policy, check_policy):
        with pytest.raises(CheckpointError, match="cannot read"):
            read(FolderCheckpoints(tmp_path), row)


@pytest.mark.parametrize("name", ["critic", "adam_first"])
def test_a_version_without_one_of_its_arrays_is_refused(tmp_path: Path, name: str) -> None:
    row = stored(tmp_path, without=name)

    with pytest.raises(CheckpointError, match=f"holds no policy: array '{name}' is missing"):
        check_policy(FolderCheckpoints(tmp_path), row)
