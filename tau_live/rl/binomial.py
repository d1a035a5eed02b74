"""Bounds of a probability from how often an event happened, exact also where it never did."""

from math import exp, lgamma, log, log1p


def binomial_upper_bound(events: int, count: int, *, level: float = 0.95) -> float:
    """Return the one-sided Clopper-Pearson upper bound of a probability.

    It is the ``p`` at which ``P(X <= events) = 1 - level`` for ``X`` binomial of ``count`` and
    ``p``, by bisection.

    Args:
        events: How often it happened, from 0 to ``count``.
        count: How often it could have, at least 1.
        level: The confidence, in ``[0.5, 1)``.

    Raises:
        ValueError: An argument is out of range.

    Source:
        C. J. Clopper and E. S. Pearson, The use of confidence or fiducial limits (1934).
    """
    if not 0 <= events <= count or count < 1 or not 0.5 <= level < 1.0:
        raise ValueError(
            f"expected 0 <= events <= count, 1 <= count and a level in [0.5, 1), "
            f"got {events!r}, {count!r} and {level!r}"
        )
    if events == count:
        return 1.0
    low, high = events / count, 1.0  # at the share itself the tail is at least a half
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _tail(events, count, middle) > 1.0 - level else (low, middle)
    return high


def _tail(events: int, count: int, p: float) -> float:
    """Return the binomial probability of at most ``events``, for ``p`` of at least their share.

    There the terms fall from the first one on, so it ends where they no longer count: after about
    10 standard deviations, however large ``count`` is.
    """
    ways = lgamma(count + 1) - lgamma(events + 1) - lgamma(count - events + 1)
    term = exp(ways + events * log(p) + (count - events) * log1p(-p))
    total, odds = 0.0, (1.0 - p) / p
    for remaining in range(events, -1, -1):
        total += term
        term *= odds * remaining / (count - remaining + 1)
        if term <= total * 1e-17:  # also where both are too small for a float
            break
    return total
