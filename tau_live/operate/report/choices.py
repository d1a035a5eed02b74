"""The dependence of choices on context: how often each option was applied, by context."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from tau_live.core.errors import TauLiveError
from tau_live.core.records import PolicyVersion
from tau_live.core.settings import Settings
from tau_live.decisions.policies import load_policy, policy_config
from tau_live.learn.evaluation.records import Records, policy_target
from tau_live.learn.evaluation.report import EvalRequest, report_of
from tau_live.operate.report.facts import Compared, Habit, Habits, Mean, Spread
from tau_live.record.rewards import reward_range
from tau_live.rl.arrays import FloatArray
from tau_live.rl.bounds import LARGEST_REWARD
from tau_live.rl.evaluation.estimators import Estimator
from tau_live.rl.policy import Policy
from tau_live.store.records import Choice
from tau_live.store.roles import Store

OPTIONS = 8
"""Most options that are counted one by one; the others are counted together."""

OTHERS = "(others)"
KEYS = 32
"""Most context keys that are examined."""

SHOWN = 4
"""Most keys that are shown."""

VALUES = 8
"""Most values of each key that are shown."""

MOST_VALUES = 64
"""Most values of a key that is shown, unless they are numbers."""

CELLS = MOST_VALUES * OPTIONS
"""Most pairs of value and option that are counted of each key."""


TEXT = 60

_DECODER = msgspec.json.Decoder(dict[str, object])


class Tally:
    """Counts the applied options at a point, by context; bounded in size."""

    def __init__(self) -> None:
        self.decisions = 0
        self.applied: Counter[str] = Counter()
        self._words: dict[str, Counter[tuple[str, str]]] = {}
        self._numbers: dict[str, list[tuple[float, str]]] = {}

    def add(self, choice: Choice) -> None:
        """Count a decision."""
        self.decisions += 1
        if choice.applied is None:
            return
        self.applied[choice.applied] += 1
        try:
            context = _DECODER.decode(choice.context)
        except (msgspec.DecodeError, ValueError):
            return
        for key, value in context.items():
            if isinstance(value, str | bool):
                words = self._words.get(key, Counter())
                cell = (_word(value), choice.applied)
                if _has_room(self._words, key, KEYS) and _has_room(words, cell, CELLS):
                    words[cell] += 1
                    self._words[key] = words
            elif isinstance(value, int | float) and math.isfinite(value):
                numbers = self._numbers.get(key, [])
                # at most 20,000 numbers of each key are kept, to be cut into ranges
                if _has_room(self._numbers, key, KEYS) and len(numbers) < 20_000:
                    numbers.append((float(value), choice.applied))
                    self._numbers[key] = numbers

    def options(self) -> list[str]:
        """Return the applied options, the most frequent first, rare ones as ``OTHERS``."""
        ranked = sorted(self.applied, key=lambda option: (-self.applied[option], option))
        return ranked if len(ranked) <= OPTIONS else [*ranked[: OPTIONS - 1], OTHERS]

    def habits(self) -> list[Habits]:
        """Return the context keys that choices depend on, the most informative first."""
        named = self.options()
        contexts = [
            *(_habits(key, _cells(words.items()), named) for key, words in self._words.items()),
            *(_habits(key, _ranges(pairs), named) for key, pairs in self._numbers.items()),
        ]
        known = [context for context in contexts if context is not None]
        return sorted(known, key=lambda context: (-context.information, context.key))[:SHOWN]


def group_options(options: Mapping[str, int], named: Sequence[str]) -> dict[str, int]:
    """Return how often each named option was applied, all others together."""
    groups = {name: options.get(name, 0) for name in named if name != OTHERS}
    if OTHERS in named:
        groups[OTHERS] = sum(options.values()) - sum(groups.values())
    return groups


def _has_room(table: Collection[object], key: object, most: int) -> bool:
    """Whether a key may be counted: it is in the table already, or there is room for it."""
    return key in table or len(table) < most


def _word(value: str | bool) -> str:
    text = str(value).lower() if isinstance(value, bool) else value
    return text if len(text) <= TEXT else f"{text[: TEXT - 1]}…"


def _cells(counts: Iterable[tuple[tuple[str, str], int]]) -> dict[str, Counter[str]]:
    cells: dict[str, Counter[str]] = {}
    for (value, option), count in counts:
        cells.setdefault(value, Counter())[option] += count
    ranked = sorted(cells.items(), key=lambda cell: (-cell[1].total(), cell[0]))
    return dict(ranked)


def _ranges(pairs: Sequence[tuple[float, str]]) -> dict[str, Counter[str]]:
    """Return counts by value where there are few values, else by quartile."""
    numbers = np.array([number for number, _ in pairs])
    values = np.unique(numbers)
    if len(values) <= VALUES:
        labels = [f"{value:g}" for value in values.tolist()]
        places = np.searchsorted(values, numbers)
    else:
        ends = np.unique(np.quantile(numbers, [0.0, 0.25, 0.5, 0.75, 1.0]))
        labels = [f"{low:.4g} to {high:.4g}" for low, high in pairwise(ends)]
        places = np.clip(np.searchsorted(ends, numbers, side="right") - 1, 0, len(ends) - 2)
    cells: dict[str, Counter[str]] = {label: Counter() for label in labels}
    for place, (_, option) in zip(places.tolist(), pairs, strict=True):
        cells[labels[place]][option] += 1
    return cells


def _habits(key: str, cells: Mapping[str, Counter[str]], named: Sequence[str]) -> Habits | None:
    total = sum(cell.total() for cell in cells.values())
    if total < 16 or not 1 < len(cells) <= MOST_VALUES:
        return None
    values = [
        Habit(value=value, decisions=cell.total(), options=group_options(cell, named))
        for value, cell in list(cells.items())[:VALUES]
    ]
    return Habits(key=_word(key), information=_information(cells), values=values)


def _information(cells: Mapping[str, Counter[str]]) -> float:
    """Return the mutual information of value and option, as a share of the option's entropy.

    Less the bias of so many cells: Miller 1955, "Note on the bias of information estimates".
    """
    options = sorted({option for cell in cells.values() for option in cell})
    table = np.array([[cell[option] for option in options] for cell in cells.values()], float)
    total = float(table.sum())
    joint = table / total
    alone = joint.sum(axis=0)
    apart = joint.sum(axis=1, keepdims=True) * alone
    with np.errstate(divide="ignore", invalid="ignore"):
        shared = float(np.nansum(joint * np.log(joint / apart)))
        entropy = -float(np.nansum(alone * np.log(alone)))
    chance = (len(cells) - 1) * (len(options) - 1) / (2.0 * total)
    return min(1.0, max(0.0, shared - chance) / entropy) if entropy > 0.0 else 0.0


Z = 1.959963984540054
"""The 97.5 % point of the normal distribution."""

FEWEST_FOR_DEVIATION = 5
"""Fewest numbers that have an interval; with fewer, their deviation is hardly known."""


def mean_of(
    values: Sequence[float] | FloatArray, *, within: tuple[float, float] | None = None
) -> Mean:
    """Return the mean of numbers within 1e50 with Student's interval; others are left out.

    Numbers that are all the same have no interval: their deviation is unknown.

    Args:
        values: ``[N]``.
        within: The declared range, which bounds the interval too, unless a number is outside it:
            then the declaration is wrong. ``None`` bounds nothing.
    """
    known = np.asarray(values, dtype=np.float64)
    known = known[np.abs(known) <= LARGEST_REWARD]  # nothing is learned from larger ones
    count = len(known)
    if not count:
        return Mean()
    mean = float(known.mean())
    deviation = float(known.std(ddof=1)) if count >= FEWEST_FOR_DEVIATION else 0.0
    if deviation == 0.0:
        return Mean(count=count, mean=mean)
    reach = _t(count - 1) * deviation / math.sqrt(count)
    low, high = within or (-math.inf, math.inf)
    if known.min() < low or known.max() > high:
        low, high = -math.inf, math.inf
    return Mean(count=count, mean=mean, lower=max(mean - reach, low), upper=min(mean + reach, high))


def share_of(count: int, total: int) -> Mean:
    """Return a share with Wilson's interval.

    Source:
        Wilson 1927, "Probable inference, the law of succession, and statistical inference".
    """
    if not total:
        return Mean()
    share, squared = count / total, Z * Z / total
    middle = (share + squared / 2.0) / (1.0 + squared)
    reach = Z * math.sqrt(share * (1.0 - share) / total + squared / (4.0 * total)) / (1.0 + squared)
    lower, upper = max(0.0, middle - reach), min(1.0, middle + reach)
    return Mean(count=total, mean=share, lower=min(share, lower), upper=max(share, upper))


def thirds_of(means: Sequence[Mean]) -> tuple[Mean, Mean] | None:
    """Return the means of the first and the last third of stretches; ``None`` for fewer than two.

    Every statement about a rise or fall is about these two, so that all agree.
    """
    known = [mean for mean in means if mean.mean is not None]
    third = max(1, len(known) // 3)
    return None if len(known) < 2 else (_pool(known[:third]), _pool(known[-third:]))


def _pool(means: Sequence[Mean]) -> Mean:
    """Return the pooled mean of several stretches."""
    total = sum(part.count for part in means)
    mean = sum(part.count * (part.mean or 0.0) for part in means) / total
    reach = 0.0
    for part in means:
        if part.lower is None or part.upper is None:
            return Mean(count=total, mean=mean)
        reach = math.hypot(reach, part.count / total * (part.upper - part.lower) / 2.0)
    return Mean(count=total, mean=mean, lower=mean - reach, upper=mean + reach)


def spread_of(values: Sequence[float]) -> Spread:
    """Return the median and the 95 % point of finite numbers; others are left out."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    if not len(known):
        return Spread()
    median, high = np.quantile(known, [0.5, 0.95]).tolist()
    return Spread(count=len(known), median=median, high=high)


def _t(freedom: int) -> float:
    """Return the 97.5 % point of Student's distribution, within 0.04 % from 4 degrees on.

    Source:
        Abramowitz and Stegun 1964, equation 26.7.5.
    """
    terms = (
        (Z**3 + Z) / 4.0,
        (5.0 * Z**5 + 16.0 * Z**3 + 3.0 * Z) / 96.0,
        (3.0 * Z**7 + 19.0 * Z**5 + 17.0 * Z**3 - 15.0 * Z) / 384.0,
        (79.0 * Z**9 + 776.0 * Z**7 + 1482.0 * Z**5 - 1920.0 * Z**3 - 945.0 * Z) / 92160.0,
    )
    return Z + math.fsum(term / float(freedom**power) for power, term in enumerate(terms, start=1))


PARTS = 5
"""Most parts that the newest rollouts are cut into; each is estimated from the log before it."""


def compare_estimates(
    store: Store,
    settings: Settings,
    logged: Records,
    returns: FloatArray,
    *,
    point: str,
    tell: Callable[[int], None],
) -> list[Compared]:
    """Return, for each part, the estimate from the log before it and the live rewards.

    Only versions whose checkpoint still exists can be evaluated, so the parts begin with the first
    of them, with at least one part of the log before it. Whole rollouts are compared: the effect of
    one decision by the policy does not tell the effect of all its decisions.

    Args:
        store: The store.
        settings: The weights of rewards.
        logged: ``[N]`` the newest decisions of a point, in order.
        returns: ``[N]`` the return of each.
        point: The decision point.
        tell: Called with 1 after each part.
    """
    names, newest = store.checkpoints.names(), store.policies.versions(point, limit=256)
    kept = {row.version: row for row in newest if row.file in names}
    request, records = _eval_request(settings, returns), logged.records
    starts = [
        n for n, record in enumerate(records) if not n or record.rollout != records[n - 1].rollout
    ]
    least = len(starts) // PARTS
    trained = (n for n in range(least, len(starts)) if records[starts[n]].version in kept)
    begin = next(trained, least)
    # a part has at least 16 rollouts
    parts = min(PARTS, (len(starts) - begin) // 16)
    edges = np.linspace(begin, len(starts), parts + 1).astype(np.int64).tolist() if parts else []
    rows = []
    for start, end in pairwise(edges):
        first, last = starts[start], starts[end] if end < len(starts) else len(returns)
        here = records[first:last]
        versions = Counter(
            record.version for record in here if not record.version or record.version in kept
        )
        if versions:
            version = versions.most_common(1)[0][0]
            before = Records(records=records[:first], incomplete=logged.incomplete)
            estimate, refused = _estimate(
                store, settings, before, kept.get(version), request=request
            )
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


def _eval_request(settings: Settings, returns: FloatArray) -> EvalRequest:
    """Return how to evaluate, with the declared range only where no return is outside it.

    Returns outside would be left out, which would bias the estimate.
    """
    declared = reward_range(settings)
    known = returns[np.isfinite(returns)]
    if declared is not None and len(known):
        low, high = declared
        declared = declared if low <= known.min() and known.max() <= high else None
    return EvalRequest(reward_range=declared, replicates=200, seed=settings.seed)


def _estimate(
    store: Store,
    settings: Settings,
    before: Records,
    row: PolicyVersion | None,
    *,
    request: EvalRequest,
) -> tuple[Mean, str | None]:
    try:
        policy = (
            Policy.initial(policy_config(settings))
            if row is None
            else load_policy(store.checkpoints, row)
        )
        report = report_of(before, policy_target(policy), request, tell=lambda _: None)
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
