"""Off-policy estimates of a policy, and the live rewards that followed."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from tau_live.errors import TauLiveError
from tau_live.evaluating.records import Record, Records, of_policy
from tau_live.evaluating.report import Asked, report_of
from tau_live.policies.files import checkpoint_folder, load_policy, policy_config
from tau_live.reporting.facts import Compared, Mean
from tau_live.reporting.means import mean_of
from tau_live.rewards.settling import reward_range
from tau_live.rl.arrays import FloatArray
from tau_live.rl.evaluation import Estimator
from tau_live.rl.policy import Policy
from tau_live.settings import Settings
from tau_live.store.records import PolicyVersion
from tau_live.store.roles import Store

PARTS = 5
"""Into so many parts the newest rollouts are cut, at most; each is estimated from those before."""

FEWEST = 16
"""In fewer rollouts there is nothing to compare."""

VERSIONS = 256
"""So many of the newest versions are looked for."""

REPLICATES = 200


def compared(
    store: Store,
    settings: Settings,
    found: Records,
    returns: FloatArray,
    *,
    point: str,
    tell: Callable[[int], None],
) -> list[Compared]:
    """Return for each part what the log before it says of its policy, and what then came.

    Only versions whose checkpoint is still there can be asked, so it begins with the first of
    them, but with no less than a part of the log before it. Whole rollouts are compared: what one
    decision by the policy would change says nothing of what all of its decisions come to.

    Args:
        store: The store.
        settings: Where checkpoints are, and what rewards are worth.
        found: ``[N]`` the newest decisions of a point, in their order.
        returns: ``[N]`` what came after each.
        point: The decision point.
        tell: Told that one more part is done.
    """
    kept, asked = _kept(store, settings, point), _asked(settings, returns)
    starts = _starts(found.records)
    begin = _first(found.records, starts, kept)
    parts = min(PARTS, (len(starts) - begin) // FEWEST)
    edges = np.linspace(begin, len(starts), parts + 1).astype(np.int64).tolist() if parts else []
    rows = []
    for start, end in pairwise(edges):
        first, last = starts[start], starts[end] if end < len(starts) else len(returns)
        here = found.records[first:last]
        versions = Counter(one.version for one in here if not one.version or one.version in kept)
        if versions:
            version = versions.most_common(1)[0][0]
            before = Records(records=found.records[:first], spoilt=found.spoilt)
            estimate, refused = _estimated(settings, before, kept.get(version), asked=asked)
            rows.append(
                Compared(
                    version=version,
                    first=here[0].place,
                    last=here[-1].place,
                    log=start,
                    estimate=estimate,
                    live=mean_of(returns[starts[start:end]]),
                    refused=refused,
                )
            )
        tell(1)
    tell(PARTS - parts)
    return rows


def _starts(records: Sequence[Record]) -> list[int]:
    """Return where each rollout begins."""
    return [n for n, one in enumerate(records) if not n or one.rollout != records[n - 1].rollout]


def _kept(store: Store, settings: Settings, point: str) -> dict[int, PolicyVersion]:
    folder = checkpoint_folder(settings)
    newest = store.policies.versions(point, limit=VERSIONS)
    return {row.version: row for row in newest if (folder / row.file).exists()}


def _first(
    records: Sequence[Record], starts: Sequence[int], kept: Mapping[int, PolicyVersion]
) -> int:
    """Return with which rollout comparing can begin: a trained version's, if one can be asked."""
    least = len(starts) // PARTS
    trained = (n for n in range(least, len(starts)) if records[starts[n]].version in kept)
    return next(trained, least)


def _asked(settings: Settings, returns: FloatArray) -> Asked:
    """Return how to evaluate, with the declared range only where nothing is beyond it.

    What is beyond it would be left out, and what is left would be a better world than that was.
    """
    declared = reward_range(settings)
    known = returns[np.isfinite(returns)]
    if declared is not None and len(known):
        low, high = declared
        declared = declared if low <= known.min() and known.max() <= high else None
    return Asked(reward_range=declared, replicates=REPLICATES, seed=settings.seed)


def _estimated(
    settings: Settings, before: Records, row: PolicyVersion | None, *, asked: Asked
) -> tuple[Mean, str | None]:
    try:
        policy = (
            Policy.untrained(policy_config(settings))
            if row is None
            else load_policy(checkpoint_folder(settings), row)
        )
        report = report_of(before, of_policy(policy), asked, tell=lambda _: None)
    except (TauLiveError, ValueError) as error:  # a damaged checkpoint, or one of another width
        return Mean(), " ".join(str(error).split())
    section, formula = report.decisions, Estimator.DR
    if report.rollouts is not None:
        section, formula = report.rollouts, Estimator.WPDIS
    estimate, used = section.estimates[formula], section.weights.decisions
    if estimate.refused:
        return Mean(), "; ".join(estimate.refused)
    value = None if estimate.value is None else float(estimate.value)
    if estimate.bootstrap is None:
        return Mean(count=used, mean=value), None
    lower, upper = map(float, estimate.bootstrap)
    return Mean(count=used, mean=value, lower=lower, upper=upper), None
