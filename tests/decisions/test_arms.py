"""Which arm decides a rollout."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.core.records import Trial
from tau_live.decisions.decider import LEARNER, Decider, share_of
from tau_live.rl.policy import Policy, PolicyConfig

UNIT = st.floats(0.0, 1.0, exclude_max=True)
UNTRAINED = Policy.initial(PolicyConfig())


def share(
    trial: Trial | None = None, *, start: float | None = None, has_control: bool = True
) -> float:
    return share_of(trial, start=start, has_control=has_control, control_share=0.2)


def trial(**fields: object) -> Trial:
    return Trial(point="model", **fields)  # type: ignore[arg-type]  # its fields


def shadow(**fields: object) -> Trial:
    return trial(ladder=True, exposure=0.0, watermark=9, **fields)


def learners(share: float, ids: Sequence[str]) -> set[str]:
    """Return the rollouts that the learner decides."""
    decider = Decider(UNTRAINED, seed=7)
    decider.compare(trial(exposure=share), None)
    arms = {
        id_: decider.arm("model", id_, start=None, has_control=True, control_share=0.2)
        for id_ in ids
    }
    assert {arm.share for arm in arms.values()} == {share}
    return {id_ for id_, arm in arms.items() if arm.name == LEARNER}


@given(UNIT, UNIT)
def test_whoever_is_the_learners_stays_so_when_its_share_grows(one: float, other: float) -> None:
    low, high = sorted((one, other))
    ids = [f"rollout-{number}" for number in range(20)]

    assert learners(low, ids) <= learners(high, ids)


@pytest.mark.parametrize("wanted", [0.0, 0.05, 0.25, 0.5, 1.0])
def test_the_learner_gets_its_share_of_the_rollouts(wanted: float) -> None:
    ids = [f"rollout-{number}" for number in range(20_000)]

    count = len(learners(wanted, ids))

    spread = (wanted * (1.0 - wanted) / len(ids)) ** 0.5
    assert abs(count / len(ids) - wanted) <= 4.0 * spread


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(share(), 0.8, id="explicit: all but the control's"),
        pytest.param(share(has_control=False), 1.0, id="explicit, nothing to compare with"),
        pytest.param(share(start=0.0), 0.0, id="an adapter's: shadow"),
        pytest.param(share(start=0.0, has_control=False), 0.0, id="likewise without a default"),
        pytest.param(share(trial(exposure=0.25)), 0.25, id="as an operator or evidence said"),
        pytest.param(share(trial(exposure=0.25), start=0.0), 0.25, id="a rung"),
        pytest.param(share(start=0.5), 0.5, id="an adapter's that acts from the start"),
        pytest.param(share(shadow(), start=0.5), 0.5, id="likewise, set while in its shadow"),
        pytest.param(share(shadow(changed_at=1.0), start=0.5), 0.0, id="a shadow was ordered"),
        pytest.param(share(trial(exposure=0.25), start=0.5), 0.25, id="evidence or an order wins"),
        pytest.param(share(trial(exposure=1.0, kept=3)), 0.95, id="a champion before keeps some"),
        pytest.param(share(trial(exposure=0.5, kept=3)), 0.5, id="which is there already"),
        pytest.param(share(trial(exposure=1.0, stopped="why")), 0.0, id="stopped"),
        pytest.param(share(trial(stopped="why"), has_control=False), 0.0, id="stopped for all"),
        pytest.param(
            share(trial(champion=3), has_control=False), 0.8, id="a champion is a control"
        ),
        pytest.param(
            share(trial(champion=3, kept=5), has_control=False),
            1.0,
            id="not while it proves itself",
        ),
    ],
)
def test_the_share_follows_from_the_trial_and_the_call(found: float, expected: float) -> None:
    assert found == expected
