"""Who may give rewards, and how much of an update one of them may be.

A source is what a reward says of itself. The lists here keep out what an operator did not think of,
and a source that several can write under (users, above all) small; they do not tell a liar in the
same process, who could as well write into the store.
"""

import math
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from tau_live.rewards.safety import SOURCE as SAFETY
from tau_live.rollouts import Reward, RewardSource
from tau_live.settings import DeclaredReward, Settings
from tau_live.store.records import LearnableRollout

_ROUNDS = 60

OURS = frozenset({SAFETY, RewardSource.INFERRED.value})
"""Sources of rewards that are made here, and need nobody's leave once they are stored."""


def allowed(name: str, settings: Settings) -> Sequence[str]:
    """Return who may give a reward of that name, as patterns; empty for everybody."""
    own = next((one.sources for one in settings.rewards if one.name == name), ())
    return own or settings.reward_sources


def refuses(reward: Reward, settings: Settings) -> bool:
    """Say whether a reward that came from outside is not to be taken.

    That is one from a source which is not allowed, and a gain in the name of safety, which only
    ever takes away.
    """
    if reward.source == SAFETY and (reward.value or 0.0) > 0.0:
        return True
    known = allowed(reward.name, settings)
    return bool(known) and not _matches(reward.source, known)


def trusted(rewards: Iterable[Reward], settings: Settings) -> list[Reward]:
    """Return those of stored rewards that still may count, as the settings are now."""
    if not settings.reward_sources and not any(one.sources for one in settings.rewards):
        return list(rewards)
    return [one for one in rewards if one.source in OURS or not refuses(one, settings)]


def capped(
    rollouts: Sequence[LearnableRollout], settings: Settings
) -> tuple[list[LearnableRollout], list[LearnableRollout]]:
    """Return which of some rollouts may be learned from together, and which are too many.

    Of what is kept, at most the share ``cap`` has a reward of a capped source; all that match one
    pattern share its cap, so that more names gain nothing. Which ones are kept is decided by a
    checksum of their ids, so that to be first gains nothing either; where a share is no whole
    number, it is one more as often as keeps the share right over many updates.
    """
    caps = settings.source_caps
    groups = {
        one.rollout.rollout_id: {_group(source, caps) for source in _sources(one, settings.rewards)}
        - {None}
        for one in rollouts
        if caps
    }
    if not any(groups.values()):
        return list(rollouts), []
    order = sorted(groups, key=lambda id_: zlib.crc32(id_.encode()))
    luck = zlib.crc32("".join(order).encode()) / 2**32
    size = _size(list(groups.values()), caps)
    room = {group: math.floor(cap * size + luck) for group, cap in caps.items()}
    over: set[str] = set()
    for id_ in order:
        own = [group for group in groups[id_] if group is not None]
        if all(room[group] > 0 for group in own):
            for group in own:
                room[group] -= 1
        else:
            over.add(id_)
    kept = [one for one in rollouts if one.rollout.rollout_id not in over]
    return kept, [one for one in rollouts if one.rollout.rollout_id in over]


def _size(groups: Sequence[Collection[str | None]], caps: Mapping[str, float]) -> float:
    """Return how many rollouts are kept, of which each group then is at most its share."""
    free = sum(not one for one in groups)
    members = Counter(group for one in groups for group in one if group is not None)
    size = float(len(groups))
    for _ in range(_ROUNDS):
        size = min(size, free + sum(min(n, caps[group] * size) for group, n in members.items()))
    return size


def _sources(one: LearnableRollout, declared: Sequence[DeclaredReward]) -> set[str]:
    names = {reward.name for reward in declared}
    return {
        reward.source
        for reward in one.rewards
        if reward.value is not None
        and reward.source not in OURS
        and (not names or reward.name in names)
    }


def _group(source: str, caps: Mapping[str, float]) -> str | None:
    """Return whose cap is a source's: its own, else that of the tightest pattern it matches."""
    if source in caps:
        return source
    known = [pattern for pattern in caps if fnmatchcase(source, pattern)]
    return min(known, key=lambda pattern: (caps[pattern], pattern), default=None)


def _matches(source: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(source, pattern) for pattern in patterns)
