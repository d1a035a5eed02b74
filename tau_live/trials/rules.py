"""Learner against control: evidence, exposure, champions, and the way back.

Pure: what follows from what was seen. ``promoter`` reads and writes it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from tau_live.deciding.arms import KEPT_SHARE
from tau_live.rl.sequential import Interval
from tau_live.rl.verdict import Evidence, Finding, Rule, Verdict
from tau_live.settings import Settings
from tau_live.store.records import Assigned, Trial
from tau_live.trials.outcomes import COSTS, Result, outcomes_of

RUNGS = (0.05, 0.25, 0.5)
"""The shares that a learner climbs through before it decides all that it may."""

EVERY = 8
"""The evidence is looked at after so many rollouts, however they come in: what follows from them
does not depend on when somebody looked."""

LATELY = 64
"""So many of the learner's newest rewards say whether the world is still as it was."""

LATELY_LEAST = 16

OUTSIDE = 0.02
"""Of the rollouts that are compared, so many may have a reward outside its range. Evidence counts
those as an end of the range, or not at all, so that more of them could turn the difference."""


class Move(StrEnum):
    """What evidence or an operator did about who decides; the name in the audit."""

    CLIMBED = "exposure_climbed"
    LOWERED = "exposure_lowered"
    FROZEN = "champion_frozen"
    RETURNED = "champion_returned"
    RELEASED = "probation_ended"
    RESTARTED = "test_restarted"
    STOPPED = "learner_stopped"


class Step(NamedTuple):
    """A change of who decides.

    Attributes:
        move: What was done.
        reason: Why, in words.
        trial: How it stands after it.
        serve: The version that the learner goes on from; ``None`` leaves it where it is.
    """

    move: Move
    reason: str
    trial: Trial
    serve: int | None = None


class Serving(NamedTuple):
    """What the learner decides with now.

    Attributes:
        version: 0 is the untrained policy.
        pinned: Whether an operator chose it.
    """

    version: int
    pinned: bool


def rule_of(settings: Settings, *, has_costs: bool) -> Rule:
    """Return what has to be shown before a learner is promoted."""
    if has_costs:
        return Rule(margin=settings.promote_margin)
    return Rule(margin=settings.promote_margin, cost_margin=None)


def evidence_of(trial: Trial, *, rewards: tuple[float, float]) -> Evidence:
    """Return the evidence of a trial; none where rewards had no range, or another one."""
    if trial.evidence:
        found = Evidence.from_numbers(trial.evidence)
        if (found.reward.lowest, found.reward.highest) == rewards:
            return found
    test = trial.test + bool(trial.evidence)
    return Evidence.none(rewards=rewards, costs=COSTS)._replace(test=test)


def counted(trial: Trial, results: Sequence[Result], *, rewards: tuple[float, float]) -> Trial:
    """Return a trial with more rollouts in its evidence; one by one gives the same bits."""
    evidence = evidence_of(trial, rewards=rewards)
    if evidence.test != trial.test:  # another range, and what was outside the one before is past
        trial = replace(trial, tally={**trial.tally, "outside": 0.0})
    evidence = evidence.including(outcomes_of(results, rewards=rewards))
    return replace(tallied(trial, results), test=evidence.test, evidence=evidence.numbers())


def tallied(trial: Trial, results: Sequence[Result]) -> Trial:
    """Return a trial with more rollouts in its counts."""
    tally = dict(trial.tally)
    for one in results:
        arm = "learner" if one.learner else "control"
        known = math.isfinite(one.reward)
        _add(tally, "seen", 1.0)
        _add(tally, arm, 1.0)
        _add(tally, f"{arm}_known", float(known))
        _add(tally, f"{arm}_reward", one.reward if known else 0.0)
        _add(tally, "asked", float(one.agreed is not None))
        _add(tally, "agreed", float(one.agreed or False))
        if one.outside:
            _add(tally, "outside", 1.0)
        if one.version is not None:
            tally["version"] = float(one.version)
    return replace(
        trial,
        tally=tally,
        watermark=results[-1].place if results else trial.watermark,
        kept=trial.kept if trial.stopped is not None else max(0, trial.kept - len(results)),
    )


def begun(trial: Trial, page: Sequence[Assigned], settings: Settings) -> Trial:
    """Return a trial as its next rollouts find it; the share of the first says how it starts.

    A share of 0 that nobody ordered is the shadow of an adapter; any other one is an adapter's
    only where the settings say with which exposure the point starts. The shadow ends at once where
    an exposure is set later: what came before is not compared with what comes after.
    """
    if trial.in_first_shadow:
        acting = next((one for one in page if one.share), None)
        if acting is None:
            return trial
        return replace(restarted(trial), exposure=acting.share, since=acting.place - 1)
    if trial.watermark or trial.exposure is not None or trial.stopped is not None:
        return trial
    share = page[0].share
    if share and not any(one.point == trial.point and one.exposure for one in settings.decisions):
        return trial
    return replace(trial, ladder=not share, exposure=share)


def restarted(trial: Trial) -> Trial:
    """Return a trial whose test begins anew, with less to spend.

    For a new champion, a new rung, a control that changed, or a test that drift voided.
    """
    return replace(trial, test=trial.test + 1, evidence={}, tally={}, finding={})


def finding_of(trial: Trial, settings: Settings) -> Finding | None:
    """Return what follows from a trial's evidence; ``None`` without any."""
    if not trial.evidence:
        return None
    evidence = Evidence.from_numbers(trial.evidence)
    has_costs = evidence.cost.learner_count + evidence.cost.control_count > 0.0
    finding = evidence.finding(rule_of(settings, has_costs=has_costs))
    compared = evidence.missing.learner_count + evidence.missing.control_count
    if finding.verdict is Verdict.UNSAFE or outside_of(trial) <= OUTSIDE * compared:
        return finding
    return finding._replace(verdict=Verdict.OUT_OF_RANGE)


def outside_of(trial: Trial) -> int:
    """Return how many of the rollouts that are compared have a reward outside its range."""
    return int(trial.tally.get("outside", 0.0))


def has_fallen(newest: Sequence[float], mean: float, *, rewards: tuple[float, float]) -> bool:
    """Say whether a learner earns less lately than when it was shown to be better.

    Then what was shown is of another world, even if the control fell with it. It errs once in 1,000
    looks.

    Args:
        newest: Its newest known rewards.
        mean: Its mean reward in the test.
        rewards: Lowest and highest reward.

    Source:
        Hoeffding 1963, theorem 1.
    """
    if len(newest) < LATELY_LEAST:
        return False
    low, high = rewards
    now = math.fsum(min(max(one, low), high) for one in newest) / len(newest)
    return mean - now > (high - low) * math.sqrt(math.log(1_000.0) / (2.0 * len(newest)))


def told(finding: Finding | None) -> dict[str, object]:
    """Return a finding as plain data."""
    if finding is None:
        return {}
    return {
        "verdict": finding.verdict.value,
        "difference": finding.difference._asdict(),
        "cost": finding.cost._asdict(),
        "missing": finding.missing._asdict(),
        "alpha": finding.alpha,
    }


def stepped(trial: Trial, finding: Finding, serving: Serving, settings: Settings) -> Step | None:
    """Return what is to be done about who decides; ``None`` if nothing is."""
    in_shadow = trial.exposure == 0.0 and not trial.kept
    unclear = finding.verdict is Verdict.OUT_OF_RANGE and not in_shadow
    if trial.stopped is not None or unclear:
        return None
    if finding.verdict is Verdict.UNSAFE:
        return taken_out(trial, f"costlier than the control: {_said(finding.cost)}")
    if in_shadow:
        reason = f"{finding.control} rollouts in shadow"
        seen = finding.control >= Rule().fewest
        return _moved(trial, Move.CLIMBED, RUNGS[0], reason) if seen else None
    if trial.kept:
        turned = finding.difference.upper < 0.0
        reason = f"worse than the previous champion: {_said(finding.difference)}"
        return returned(trial, serving, reason) if turned else None
    if finding.verdict is Verdict.PROMOTE:
        return _promoted(trial, finding, serving, settings)
    return _given_up(trial, finding, serving) if finding.verdict is Verdict.FUTILE else None


def released(before: Trial, trial: Trial) -> Step | None:
    """Return the end of a probation, if the last rollout counted was its last."""
    if not before.kept or trial.kept:
        return None
    after = restarted(trial)
    return Step(Move.RELEASED, "the new champion passed its probation", after)


def taken_out(trial: Trial, reason: str) -> Step:
    """Return that the learner decides nothing any more, until an operator starts it again.

    A champion on its probation goes with it: it is a version of the very same learner.
    """
    after = replace(trial, stopped=reason)
    if trial.kept:
        after = replace(after, champion=trial.previous, previous=None, kept=0)
    return Step(Move.STOPPED, reason, after)


def frozen(trial: Trial, version: int, settings: Settings, reason: str) -> Step:
    """Return that a version is the champion; the one before keeps a share for a while."""
    after = replace(
        restarted(trial),
        champion=version,
        previous=trial.champion,
        kept=settings.probation,
        exposure=None if trial.exposure is None else top_of(settings),
    )
    return Step(Move.FROZEN, f"version {version}: {reason}", after)


def returned(trial: Trial, serving: Serving, reason: str) -> Step:
    """Return that the champion before is the champion again.

    The learner goes on from that version. Where it is the host's own choice, or an operator has
    pinned another version, the learner keeps the lowest rung, from which it may climb again.
    """
    goes_on = trial.previous is not None and not serving.pinned
    after = replace(
        restarted(trial),
        champion=trial.previous,
        previous=None,
        kept=0,
        exposure=trial.exposure if goes_on else RUNGS[0],
    )
    return Step(Move.RETURNED, reason, after, trial.previous if goes_on else None)


def top_of(settings: Settings) -> float:
    """Return the largest share that a learner may decide."""
    return 1.0 - settings.control_share


def next_rung(share: float, settings: Settings) -> float:
    """Return the rung above a share."""
    above = [rung for rung in RUNGS if rung > share]
    return min([*above[:1], top_of(settings)])


def share_now(trial: Trial, settings: Settings) -> float:
    """Return the share of rollouts that the learner decides, where there is a control."""
    if trial.stopped is not None:
        return 0.0
    share = top_of(settings) if trial.exposure is None else trial.exposure
    return min(share, 1.0 - KEPT_SHARE) if trial.kept else share


def _promoted(trial: Trial, finding: Finding, serving: Serving, settings: Settings) -> Step | None:
    reason = f"better than the control: {_said(finding.difference)}"
    share = top_of(settings) if trial.exposure is None else trial.exposure
    rung = next_rung(share, settings)
    if rung < top_of(settings):
        return _moved(trial, Move.CLIMBED, rung, reason)
    if serving.version in (0, trial.champion):  # nothing that could be frozen
        return None
    return frozen(trial, serving.version, settings, reason)


def _given_up(trial: Trial, finding: Finding, serving: Serving) -> Step:
    """Return that a learner which is not good enough starts its test anew, one rung below."""
    reason = f"not better than the control by the margin: {_said(finding.difference)}"
    is_worse = finding.difference.upper < 0.0
    control = trial.control if is_worse and not serving.pinned else None
    serve = None if control == serving.version else control
    below = [rung for rung in RUNGS if trial.exposure is not None and rung < trial.exposure]
    if below:
        return _moved(trial, Move.LOWERED, below[-1], reason)._replace(serve=serve)
    return Step(Move.RESTARTED, reason, restarted(trial), serve)


def _moved(trial: Trial, move: Move, exposure: float, reason: str) -> Step:
    after = replace(restarted(trial), exposure=exposure)
    return Step(move, f"to {exposure:.0%}: {reason}", after)


def _add(tally: dict[str, float], name: str, value: float) -> None:
    tally[name] = tally.get(name, 0.0) + value


def _said(interval: Interval) -> str:
    return f"{interval.estimate:+.3g} [{interval.lower:+.3g}, {interval.upper:+.3g}]"


def plain_lift(tally: Mapping[str, float]) -> float | None:
    """Return the plain difference of the arms' mean rewards; ``None`` while one has none."""
    counts = tally.get("learner_known", 0.0), tally.get("control_known", 0.0)
    if not all(counts):
        return None
    return tally["learner_reward"] / counts[0] - tally["control_reward"] / counts[1]
