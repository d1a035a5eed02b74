"""Which setting of rewards somebody should change, by its name, and to what."""

from collections.abc import Mapping
from math import ceil, floor, log10

from tau_live.handed.reading import integer, mapping, real
from tau_live.rewards.settling import reward_range
from tau_live.settings import DeclaredReward, Settings
from tau_live.trials.rules import OUTSIDE

VARIABLE = "TAU_LIVE_RL_REWARD_RANGE"
USUAL = ((0.0, 1.0), (-1.0, 1.0))


def span_around(lowest: float, highest: float) -> tuple[float, float]:
    """Return round numbers that rewards between two others lie within, as a range to propose."""
    for low, high in USUAL:
        if low <= lowest and highest <= high:
            return low, high
    if lowest == highest:  # one value says nothing about how far they may be apart
        lowest, highest = min(lowest, 0.0), max(highest, 0.0)
    step = 10.0 ** floor(log10(highest - lowest))
    return floor(lowest / step) * step, ceil(highest / step) * step


def range_advice(status: Mapping[str, object], settings: Settings) -> str:
    """Return how to declare what rewards can be, with a range that holds what was seen.

    Args:
        status: What ``status_of`` says.
        settings: Which rewards are declared.
    """
    seen = mapping(status["rewards_seen"])
    without = [one for one in settings.rewards if not one.cost and one.range is None]
    if without:
        names = mapping(seen["names"])
        each = (f"`range = {_listed(names.get(one.name))}` for `{one.name}`" for one in without)
        return f"{', '.join(each)}, in [tool.tau-live.rewards]"
    low, high = real(seen["lowest"]), real(seen["highest"])
    if low is None or high is None:
        return f"`export {VARIABLE}=low,high`"
    said = "{:g},{:g}".format(*span_around(low, high))
    return f"`export {VARIABLE}={said}`"


def _listed(seen: object) -> str:
    """Return the range to propose for values that were seen, as it is written in a table."""
    low, high = (real(mapping(seen).get(name)) for name in ("lowest", "highest"))
    if low is None or high is None:
        return "[low, high]"
    return "[{:g}, {:g}]".format(*span_around(low, high))


def outside_range(status: Mapping[str, object], settings: Settings) -> str:
    """Return how many of the newest rewards are outside the range set for them; empty if few."""
    seen, span = mapping(status["rewards_seen"]), reward_range(settings)
    outside, of = integer(seen["outside"]), integer(seen["of"])
    if span is None or outside <= OUTSIDE * of:
        return ""
    low, high = real(seen["lowest"]) or 0.0, real(seen["highest"]) or 0.0
    return (
        f"{outside:,} of the newest {of:,} rewards are outside the range from {span[0]:g} to "
        f"{span[1]:g}: they go from {low:.3g} to {high:.3g}"
    )


def deadlines(settings: Settings) -> str:
    """Return the settings that say how long a reward is waited for, by their names."""
    awaited = _awaited(settings.rewards)
    own = [f"`deadline-s` of reward `{one.name}`" for one in awaited if one.deadline_s is not None]
    if len(own) < max(len(awaited), 1):
        own.append("`TAU_LIVE_RL_REWARD_DEADLINE_S`")
    return " and ".join(own)


def _awaited(declared: tuple[DeclaredReward, ...]) -> list[DeclaredReward]:
    expected = [one for one in declared if not one.cost]
    return [one for one in expected if one.primary] or expected
