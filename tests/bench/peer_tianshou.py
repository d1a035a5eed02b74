"""tianshou's compiled loop over one stream of steps as a peer."""

from time import process_time

import numpy as np
from tianshou.algorithm.algorithm_base import _gae

from tau_live.rl.arrays import BoolArray, FloatArray


class StreamPeer:
    """``_gae`` and the returns, as ``compute_episodic_return`` makes them; compiled before.

    Args:
        rewards: ``[N]``.
        values: ``[N]``.
        following: ``[N]``, value of the next state, 0 where there is none.
        ended: ``[N]``, whether a step was the last of its rollout.
        gamma: Discount.
        lambda_: Of GAE.
    """

    def __init__(
        self,
        rewards: FloatArray,
        values: FloatArray,
        following: FloatArray,
        ended: BoolArray,
        *,
        gamma: float,
        lambda_: float,
    ) -> None:
        self._given = (values, following, rewards, ended, gamma, lambda_)
        _gae(*(one[:2] if isinstance(one, np.ndarray) else one for one in self._given))
        self._values = values
        self.advantages: FloatArray = np.zeros(0)
        self.returns: FloatArray = np.zeros(0)

    def compute(self) -> float:
        """Return how long it took, in seconds."""
        began = process_time()
        self.advantages = _gae(*self._given)
        self.returns = self.advantages + self._values
        return process_time() - began
