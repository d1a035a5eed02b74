"""A logit as the sum of its terms, so that a decision can be explained."""

import numpy as np

from tau_live.rl.arrays import BoolArray, FloatArray
from tau_live.rl.base import Estimates
from tau_live.rl.crossing import Crossed, crossed_one, scaled_one
from tau_live.rl.features import Encoded
from tau_live.rl.fourier import features
from tau_live.rl.kernel import Seen
from tau_live.rl.policy import Policy

HOST_DEFAULT = "host default"
RIDGE = "ridge estimate"
KERNEL = "kernel estimate"
UNCERTAINTY = "uncertainty bonus"
RESIDUAL = "ppo residual"
NETWORK = "ppo network"


def terms(
    policy: Policy,
    encoded: Encoded,
    *,
    default: int | None,
    allowed: BoolArray | None,
    explored: BoolArray | None = None,
) -> dict[str, FloatArray]:
    """Return ``[A]`` what each term adds to the logit of every option; they sum to the logits.

    An option that is not allowed has its terms too, as if it might be chosen, but for the bonus of
    a host's default: that takes no part in the choice.

    Args:
        policy: What decided.
        encoded: What it saw.
        default: Which option the host would take, ``None`` when it has no preference.
        allowed: ``[A]``, false where an option must not be taken; ``None`` allows all.
        explored: ``[A]``, false where an option is unsafe to explore; ``None`` explores all.

    Raises:
        ValueError: ``default`` or the width does not fit the policy.
    """
    may_default = default is not None and (allowed is None or allowed[default])
    policy.logits(encoded, default=default)  # checks what it is given
    pairs = crossed_one(encoded, None, policy.scale, cross_width=policy.config.cross_width)
    bonus = np.zeros(encoded.options)
    if default is not None and may_default:
        bonus[default] = policy.default_bonus
    values = scaled_one(encoded, policy.scale)
    found = policy.base.estimates(pairs)
    doubts = found.doubts if allowed is None else found.doubts[allowed]
    betas = policy.base.betas(doubts, np.array([0, len(doubts)]))
    beta = float(betas[0]) if policy.rollouts else 0.0  # as the policy does
    alpha = float(policy.base.alphas(np.array([len(doubts)]))[0])
    bonuses = beta * alpha * found.doubts
    return {
        HOST_DEFAULT: bonus,
        RIDGE: beta * found.gains,
        KERNEL: beta * (_heard(policy, encoded, pairs, values).gains - found.gains),
        UNCERTAINTY: bonuses if explored is None else np.where(explored, bonuses, 0.0),
        RESIDUAL: pairs.dot(policy.weights),
        NETWORK: policy.net.scores(encoded, values),
    }


def _heard(policy: Policy, encoded: Encoded, pairs: Crossed, values: FloatArray) -> Estimates:
    """Return what slopes and kernels together expect of each option."""
    kernel, split = policy.base.kernel, int(encoded.starts[1])
    if not kernel.is_heard:
        return policy.base.estimates(pairs)
    slots = encoded.indices.astype(np.int64)
    context = Crossed(slots[:split], values[:split], np.array([0, split]))
    waves = features(context, policy.config.width, count=kernel.width)
    seen = Seen(slots[encoded.starts[1:-1]], waves, np.array([encoded.options]))
    return policy.base.estimates(pairs, seen)
