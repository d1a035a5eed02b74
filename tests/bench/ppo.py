"""One live update of a policy, against Stable-Baselines3's ``PPO.train()``.

Ours is what every learner runs (``tau_live.rl.ppo.update``): rollouts into the regressions, the
base after them, GAE, and PPO's steps. The peer does PPO's steps alone, on as many decisions with as
many numbers and options, as many epochs and minibatches, two networks of the same width, one core.
Nothing ends either early.
"""

from time import process_time

import numpy as np

from tau_live.rl.batch import Trajectories
from tau_live.rl.config import PPOConfig
from tau_live.rl.features import encode
from tau_live.rl.policy import PolicyConfig
from tau_live.rl.ppo import update
from tau_live.rl.state import LearnerState
from tests.bench.timing import Measured, command, installed, interleaved

DECISIONS = 2_048
NUMBERS = 4
OPTIONS = ("left", "right")
EPOCHS = 10
MINIBATCHES = (64, 256)
POLICY = PolicyConfig()
FAR = 1e9
"""A divergence that nothing reaches."""


def measure(rounds: int, *, epochs: int = EPOCHS) -> list[Measured]:
    """Return what updates take with minibatches of 64 and of 256."""
    return [_measured(rounds, minibatch, epochs) for minibatch in MINIBATCHES]


def _measured(rounds: int, minibatch: int, epochs: int) -> Measured:
    rng = np.random.default_rng(0)
    config = PPOConfig(minibatch=minibatch, epochs=epochs, target_kl=FAR, max_kl=FAR)
    first = update(
        LearnerState.initial(POLICY), played(LearnerState.initial(POLICY), rng),
        config=config, rng=rng,
    )  # fmt: skip
    state = first.state
    fresh = played(state, rng)

    def ours() -> float:
        began = process_time()
        made = update(state, fresh, config=config, rng=np.random.default_rng(1))
        took = process_time() - began
        if made.diagnostics.epochs_run != epochs or made.undone:
            raise RuntimeError(f"the update was cut short: {made.diagnostics}")
        return took

    theirs = None
    if installed("stable_baselines3"):
        from tests.bench.peer_sb3_update import Rollout, UpdatePeer

        peer = UpdatePeer(
            Rollout(
                rng.normal(size=(DECISIONS, NUMBERS)),
                fresh.chosen,
                np.log(fresh.propensity),
                fresh.reward - fresh.value,
                fresh.reward,
            ),
            width=POLICY.net_width,
            minibatch=minibatch,
            epochs=epochs,
        )
        theirs = peer.train
    return interleaved(
        f"{DECISIONS} decisions, {epochs} epochs, minibatch {minibatch}",
        ours,
        theirs,
        peer="Stable-Baselines3 PPO.train(), one thread",
        rounds=rounds,
        goal=None,
    )


def played(state: LearnerState, rng: np.random.Generator) -> Trajectories:
    """Return one decision of each of many runs, by a policy that is learning which number counts.

    Each run has another decision at another point: PPO learns from no run of one.
    """
    numbers = rng.normal(size=(DECISIONS, NUMBERS))
    encoded = [
        encode(
            {f"x{place}": float(number) for place, number in enumerate(row)},
            [(name, None) for name in OPTIONS],
            width=POLICY.width,
        )
        for row in numbers
    ]
    chances = [state.policy.probabilities(one) for one in encoded]
    chosen = np.array([int(rng.random() >= chance[0]) for chance in chances])
    return Trajectories(
        encoded=encoded,
        chosen=chosen,
        default=np.full(DECISIONS, -1),
        propensity=np.array([row[at] for row, at in zip(chances, chosen, strict=True)]),
        value=np.array([state.policy.judge(one).value for one in encoded]),
        reward=np.where(chosen == (numbers[:, 0] > 0.0), 1.0, 0.0) + 0.1 * numbers[:, 1],
        discount=np.zeros(DECISIONS),
        bootstrap=np.zeros(DECISIONS),
        length=np.ones(DECISIONS, dtype=np.int64),
        version_lag=np.zeros(DECISIONS, dtype=np.int64),
        run_decisions=np.full(DECISIONS, 2),
    )


main = command("ppo", "one update of a policy", measure)

if __name__ == "__main__":
    main()
