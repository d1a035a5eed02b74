"""Bounds of what can be learned from."""

LARGEST_REWARD = 1e50
"""Nothing is learned from rewards beyond this, either way; within, fourth powers are finite."""


def is_usable(reward: float) -> bool:
    """Tell whether a reward, a sum of rewards or an estimate of one is a number to learn from."""
    return -LARGEST_REWARD <= reward <= LARGEST_REWARD  # refuses NaN too
