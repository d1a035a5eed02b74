"""What a pass needs, frozen with the inputs."""

from typing import Annotated

import msgspec
from msgspec import Meta

from tau_live.evidence.artifacts import NotNegative, Share


class Criteria(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a pass needs.

    Attributes:
        min_pairs: The fewest pairs, never below 10.
        max_missing_share: The largest share of the planned pairs that may be missing.
        min_reward_delta: The least mean difference of rewards.
        max_p_value: The largest two-sided p-value.
        min_confidence_level: The confidence of the interval, at least 0.95.
        max_safety_regression: The largest mean difference of safety penalties, and its bound.
        require_safety: Whether the penalties of all pairs have to be known.
        require_seed_reproducibility: Whether the result has to be alike for all seeds.
        require_sample_size_sensitivity: Whether it has to be alike for fewer pairs.
    """

    min_pairs: Annotated[int, Meta(ge=10)] = 20
    max_missing_share: Share = 0.02
    min_reward_delta: NotNegative = 0.05
    max_p_value: Share = 0.05
    min_confidence_level: Annotated[float, Meta(ge=0.95, lt=1.0)] = 0.95
    max_safety_regression: NotNegative = 0.05
    require_safety: bool = True
    require_seed_reproducibility: bool = True
    require_sample_size_sensitivity: bool = True
