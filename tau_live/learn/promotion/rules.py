"""Learner against control: evidence, exposure, champions, rollback.

Pure functions of a trial and its results; ``promoter`` reads and writes them.
"""

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tau_live.core.prompts import FIRST_SHARE, prompt_of_trial
from tau_live.core.records import ROLLOUT_ENDS, Assigned, StoredFinding, Trial
from tau_live.core.settings import Settings
from tau_live.decisions.decider import KEPT_SHARE
from tau_live.learn.promotion.outcomes import (
    COSTS,
    NEWEST,
    Result,
    may_give_up,
    outcomes_of,
    patience,
)
from tau_live.record.rewards import reward_range
from tau_live.rl.sequential import Interval
from tau_live.rl.verdict import Evidence, Finding, Rule, Verdict
from tau_live.store.roles import Store

RUNGS = (FIRST_SHARE, 0.25, 0.5)
"""The shares through which a learner climbs to the largest that it may have."""

EVERY = 8
"""Rollouts from one check of the evidence to the next, however they come in: the result does not
depend on when somebody checks."""

RECENT = 64
"""How many of the learner's newest rewards show whether the world has changed."""

RECENT_LEAST = 16

OUTSIDE_SHARE = 0.02
"""Largest share of the compared rollouts with a reward outside its range. Evidence counts those as
an end of the range, or not at all, so more of them could reverse the difference."""


class Move(StrEnum):
    """A change of who decides, by evidence or by an operator; its name in the audit."""

    CLIMBED = "exposure_climbed"
    LOWERED = "exposure_lowered"
    FROZEN = "champion_frozen"
    RETURNED = "champion_returned"
    RELEASED = "probation_ended"
    RESTARTED = "test_restarted"
    STOPPED = "learner_stopped"
    PROMPT_CHAMPION = "prompt_champion"
    PROMPT_WITHDRAWN = "prompt_withdrawn"


class Step(NamedTuple):
    """A change of who decides.

    Attributes:
        move: Its kind.
        reason: Why, in words.
        trial: The trial after it.
        serve: The version to put into service for the learner; ``None`` leaves it as it is.
    """

    move: Move
    reason: str
    trial: Trial
    serve: int | None = None


class Serving(NamedTuple):
    """The version that the learner decides with.

    Attributes:
        version: 0 is the untrained policy.
        pinned: Whether an operator chose it.
    """

    version: int
    pinned: bool


def evidence_of(trial: Trial, *, rewards: tuple[float, float]) -> Evidence:
    """Return the evidence of a trial; empty where rewards had no range, or another one."""
    evidence = stored_evidence(trial)
    if evidence is not None and (evidence.reward.lowest, evidence.reward.highest) == rewards:
        return evidence
    test = trial.test + bool(trial.evidence)
    return Evidence.none(rewards=rewards, costs=COSTS)._replace(test=test)


def stored_evidence(trial: Trial) -> Evidence | None:
    """Return the stored evidence of a trial; ``None`` without any, or where it is invalid."""
    try:
        return Evidence.from_numbers(trial.evidence) if trial.evidence else None
    except ValueError:
        return None


def count_results(
    trial: Trial, results: Sequence[Result], *, rewards: tuple[float, float]
) -> Trial:
    """Return a trial with more rollouts in its evidence; one by one gives the same bits."""
    evidence = evidence_of(trial, rewards=rewards)
    if evidence.test != trial.test:  # another range, so rewards outside the former do not count
        trial = replace(trial, tally={**trial.tally, "outside": 0.0})
    evidence = evidence.including(outcomes_of(results, rewards=rewards))
    return replace(tally_results(trial, results), test=evidence.test, evidence=evidence.numbers())


def tally_results(trial: Trial, results: Sequence[Result]) -> Trial:
    """Return a trial with more rollouts in its counts."""
    tally = dict(trial.tally)
    for result in results:
        arm = "learner" if result.learner else "control"
        known = math.isfinite(result.reward)
        counts = {
            "seen": 1.0,
            arm: 1.0,
            f"{arm}_known": float(known),
            f"{arm}_reward": result.reward if known else 0.0,
            "asked": float(result.agreed is not None),
            "agreed": float(result.agreed or False),
        }
        if result.outside:
            counts["outside"] = 1.0
        for name, value in counts.items():
            tally[name] = tally.get(name, 0.0) + value
        if result.version is not None:
            tally["version"] = float(result.version)
    return replace(
        trial,
        tally=tally,
        watermark=results[-1].place if results else trial.watermark,
        kept=trial.kept if trial.stopped is not None else max(0, trial.kept - len(results)),
    )


def start_trial(trial: Trial, page: Sequence[Assigned], settings: Settings) -> Trial:
    """Return the trial as it starts with these rollouts; the share of the first says how.

    A share of 0 that no operator set is the shadow of an adapter; any other one is an adapter's
    only where the settings give the point an initial exposure. The shadow ends at once where an
    exposure is set later: rollouts before it are not compared with those after it.
    """
    if trial.in_first_shadow:
        acting = next((assignment for assignment in page if assignment.share), None)
        if acting is None:
            return trial
        return replace(restart_test(trial), exposure=acting.share, since=acting.place - 1)
    if trial.watermark or trial.exposure is not None or trial.stopped is not None:
        return trial
    if prompt_of_trial(trial.point) is not None:
        return replace(trial, exposure=page[0].share)
    share = page[0].share
    if share and not any(
        decision.point == trial.point and decision.exposure for decision in settings.decisions
    ):
        return trial
    return replace(trial, ladder=not share, exposure=share)


def restart_test(trial: Trial) -> Trial:
    """Return the trial with an empty test, which has a smaller alpha.

    For a new champion, a new rung, a control that changed, or a test that drift voided.
    """
    return replace(trial, test=trial.test + 1, evidence={}, tally={}, finding={})


def finding_of(trial: Trial, settings: Settings) -> Finding | None:
    """Return the finding from a trial's evidence; ``None`` without any."""
    evidence = stored_evidence(trial)
    if evidence is None:
        return None
    has_costs = evidence.cost.learner_count + evidence.cost.control_count > 0.0
    cost_margin = Rule().cost_margin if has_costs else None
    finding = evidence.finding(Rule(margin=settings.promote_margin, cost_margin=cost_margin))
    compared = evidence.missing.learner_count + evidence.missing.control_count
    if finding.verdict is Verdict.UNSAFE or outside_of(trial) <= OUTSIDE_SHARE * compared:
        return finding
    return finding._replace(verdict=Verdict.OUT_OF_RANGE)


def outside_of(trial: Trial) -> int:
    """Return how many of the compared rollouts have a reward outside its range."""
    return int(trial.tally.get("outside", 0.0))


def has_fallen(newest: Sequence[float], mean: float, *, rewards: tuple[float, float]) -> bool:
    """Whether a learner now earns less than in the test that proved it better.

    Then the proof is of another world, even if the control fell with it. Errs once in 1,000 checks.

    Args:
        newest: Its newest known rewards.
        mean: Its mean reward in the test.
        rewards: Lowest and highest reward.

    Source:
        Hoeffding 1963, theorem 1.
    """
    if len(newest) < RECENT_LEAST:
        return False
    low, high = rewards
    now = math.fsum(min(max(total, low), high) for total in newest) / len(newest)
    return mean - now > (high - low) * math.sqrt(math.log(1_000.0) / (2.0 * len(newest)))


def finding_fields(finding: Finding | None) -> StoredFinding:
    """Return a finding as plain data."""
    if finding is None:
        return {}
    return {
        "verdict": finding.verdict.value,
        "difference": {**finding.difference._asdict()},
        "cost": {**finding.cost._asdict()},
        "missing": {**finding.missing._asdict()},
        "alpha": finding.alpha,
    }


def next_step(trial: Trial, finding: Finding, serving: Serving, settings: Settings) -> Step | None:
    """Return the step that follows from a finding; ``None`` if none does."""
    in_shadow = trial.exposure == 0.0 and not trial.kept
    unclear = finding.verdict is Verdict.OUT_OF_RANGE and not in_shadow
    if trial.stopped is not None or unclear:
        return None
    if finding.verdict is Verdict.UNSAFE:
        return stop_learner(trial, f"costlier than the control: {_interval_text(finding.cost)}")
    if in_shadow:
        reason = f"{finding.control} rollouts in shadow"
        seen = finding.control >= Rule().fewest
        return _move(trial, Move.CLIMBED, RUNGS[0], reason) if seen else None
    if trial.kept:
        is_worse = finding.difference.upper < 0.0
        reason = f"worse than the previous champion: {_interval_text(finding.difference)}"
        return return_champion(trial, serving, reason) if is_worse else None
    if finding.verdict is Verdict.PROMOTE:
        return _promote(trial, finding, serving, settings)
    return _step_back(trial, finding, serving) if finding.verdict is Verdict.FUTILE else None


def prompt_step(trial: Trial, finding: Finding) -> Step | None:
    """Return the step that follows from a finding about a prompt; ``None`` if none does.

    Offered against withheld, a prompt climbs as a learner does, up to every rollout. It is
    withdrawn as soon as it is proven worse or unsafe, however few rollouts that takes. A prompt
    that was replaced, and is kept for a probation, only stops being offered.
    """
    if trial.stopped is not None or finding.verdict is Verdict.OUT_OF_RANGE:
        return None
    difference, share = finding.difference, trial.exposure or 0.0
    if finding.verdict is Verdict.UNSAFE:
        return withdraw_prompt(trial, f"costlier than without it: {_interval_text(finding.cost)}")
    if difference.upper < 0.0:
        reason = f"worse than without it: {_interval_text(difference)}"
        return _end_offer(trial, reason) if trial.kept else withdraw_prompt(trial, reason)
    if finding.verdict is Verdict.PROMOTE and share < 1.0:
        reason = f"better than without it: {_interval_text(difference)}"
        rung = next((rung for rung in RUNGS if rung > share), 1.0)
        move = Move.CLIMBED if rung < 1.0 else Move.PROMPT_CHAMPION
        return _move(replace(trial, kept=0), move, rung, reason)
    if finding.verdict is Verdict.FUTILE:
        reason = f"not better than without it by the margin: {_interval_text(difference)}"
        below = [rung for rung in RUNGS if rung < share]
        return _move(trial, Move.LOWERED if below else Move.RESTARTED, [*below, share][-1], reason)
    return None


def withdraw_prompt(trial: Trial, reason: str) -> Step:
    """Return the step that withdraws a prompt; one on probation only stops being offered."""
    if trial.kept:
        return _end_offer(trial, reason)
    return Step(Move.PROMPT_WITHDRAWN, reason, replace(trial, stopped=reason))


def keep_prompt(trial: Trial, settings: Settings) -> Trial:
    """Return the trial of a prompt that another replaces: it stays on offer for a probation."""
    return replace(restart_test(trial), exposure=FIRST_SHARE, kept=settings.probation, stopped=None)


def retry_prompt(trial: Trial) -> Trial:
    """Return the trial of a prompt that was withdrawn, and adopted again on other evidence."""
    return replace(restart_test(trial), exposure=FIRST_SHARE, kept=0, stopped=None)


def _end_offer(trial: Trial, reason: str) -> Step:
    return Step(Move.RELEASED, reason, replace(restart_test(trial), exposure=0.0, kept=0))


def end_probation(before: Trial, trial: Trial) -> Step | None:
    """Return the end of a probation, if the last rollout counted was its last."""
    if not before.kept or trial.kept:
        return None
    if prompt_of_trial(trial.point) is not None:
        return _end_offer(trial, "the new champion passed its probation")
    after = restart_test(trial)
    return Step(Move.RELEASED, "the new champion passed its probation", after)


def stop_learner(trial: Trial, reason: str) -> Step:
    """Return the step that stops the learner until an operator starts it again.

    A champion on probation goes with it: it is a version of the same learner.
    """
    after = replace(trial, stopped=reason)
    if trial.kept:
        after = replace(after, champion=trial.previous, previous=None, kept=0)
    return Step(Move.STOPPED, reason, after)


def make_champion(trial: Trial, version: int, settings: Settings, reason: str) -> Step:
    """Return the step that makes a version the champion; the one before keeps a share at first."""
    after = replace(
        restart_test(trial),
        champion=version,
        previous=trial.champion,
        kept=settings.probation,
        exposure=None if trial.exposure is None else top_of(settings),
    )
    return Step(Move.FROZEN, f"version {version}: {reason}", after)


def return_champion(trial: Trial, serving: Serving, reason: str) -> Step:
    """Return the step that makes the previous champion the champion again.

    The learner continues from that version. Where the champion is the host's own choice, or an
    operator has pinned another version, the learner gets the lowest rung, to climb again.
    """
    continues = trial.previous is not None and not serving.pinned
    after = replace(
        restart_test(trial),
        champion=trial.previous,
        previous=None,
        kept=0,
        exposure=trial.exposure if continues else RUNGS[0],
    )
    return Step(Move.RETURNED, reason, after, trial.previous if continues else None)


def top_of(settings: Settings) -> float:
    """Return the largest share that a learner may decide."""
    return 1.0 - settings.control_share


def share_now(trial: Trial, settings: Settings) -> float:
    """Return the share of rollouts that the learner decides, where there is a control."""
    if trial.stopped is not None:
        return 0.0
    share = top_of(settings) if trial.exposure is None else trial.exposure
    return min(share, 1.0 - KEPT_SHARE) if trial.kept else share


def _promote(trial: Trial, finding: Finding, serving: Serving, settings: Settings) -> Step | None:
    reason = f"better than the control: {_interval_text(finding.difference)}"
    share = top_of(settings) if trial.exposure is None else trial.exposure
    top = top_of(settings)
    rung = min([*[above for above in RUNGS if above > share][:1], top])
    if rung < top:
        return _move(trial, Move.CLIMBED, rung, reason)
    if serving.version in (0, trial.champion):  # no new version to promote
        return None
    return make_champion(trial, serving.version, settings, reason)


def _step_back(trial: Trial, finding: Finding, serving: Serving) -> Step:
    """Return the step for a futile test: it starts anew, one rung lower."""
    reason = f"not better than the control by the margin: {_interval_text(finding.difference)}"
    is_worse = finding.difference.upper < 0.0
    control = trial.control if is_worse and not serving.pinned else None
    serve = None if control == serving.version else control
    below = [rung for rung in RUNGS if trial.exposure is not None and rung < trial.exposure]
    if below:
        return _move(trial, Move.LOWERED, below[-1], reason)._replace(serve=serve)
    return Step(Move.RESTARTED, reason, restart_test(trial), serve)


def _move(trial: Trial, move: Move, exposure: float, reason: str) -> Step:
    after = replace(restart_test(trial), exposure=exposure)
    return Step(move, f"to {exposure:.0%}: {reason}", after)


def _interval_text(interval: Interval) -> str:
    return f"{interval.estimate:+.3g} [{interval.lower:+.3g}, {interval.upper:+.3g}]"


COUNT_LIMIT = 10_000
"""Up to how many uncounted rollouts are counted, so that status stays fast."""

NO_RANGE = "no claim without a reward range: declare it, or set TAU_LIVE_RL_REWARD_RANGE"
OUT_OF_RANGE = "no claim while rewards are outside their range"
NO_CONTROL = "nothing to compare with: the learner decides every rollout"
NOTHING_DECIDED = "nothing to compare with: the learner decides no rollout"


def trial_at(
    store: Store, point: str, settings: Settings, *, now: float
) -> dict[str, object] | None:
    """Return the status of the trial of a point as JSON data; ``None`` before its first rollout."""
    trial = store.trials.trial(point)
    if not trial.revision:
        return None
    plain: dict[str, object] = msgspec.to_builtins(trial_status(store, trial, settings, now=now))
    return plain


class HeldUp(msgspec.Struct, frozen=True, kw_only=True):
    """The rollout that a comparison waits for.

    Attributes:
        rollout_id: The rollout.
        open: Whether it is still open; else it waits for its reward.
        until: Epoch seconds at the latest; ``None`` if nothing is awaited.
    """

    rollout_id: str
    open: bool
    until: float | None


class TrialStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of the comparison at a decision point.

    Attributes:
        exposure: The share of rollouts that the learner decides.
        ladder: Whether it began in shadow.
        champion: The version last proven better; ``None`` for the host's own choice.
        control: The version that the learner is compared with; ``None`` likewise.
        previous: The previous champion.
        kept: Rollouts for which the previous champion still keeps a share.
        stopped: Why the learner is stopped; ``None`` while it is not.
        since: Epoch seconds of the last change of who decides; ``None`` before the first.
        test: The number of the test, from 1.
        verdict: The verdict; ``None`` while no claim is made.
        why: Why no claim is made; ``None`` where one is.
        difference: Estimate, lower and upper bound of the learner's reward less the control's, and
            whether it is only a plain difference of means.
        cost: The same of the cost; ``None`` until known.
        rollouts: How many rollouts each arm decided.
        uncounted: Rollouts assigned and not counted yet.
        held_up: The rollout that delays them; ``None`` if none is delayed.
        missing: The share of each arm's rollouts without a reward; ``None`` before the first.
        agreement: Share of decisions in which learner and host agree; ``None`` if unknown.
    """

    exposure: float = 0.0
    ladder: bool = False
    champion: int | None = None
    control: int | None = None
    previous: int | None = None
    kept: int = 0
    stopped: str | None = None
    since: float | None = None
    test: int = 1
    verdict: str | None = None
    why: str | None = None
    difference: Mapping[str, float | bool | None] = msgspec.field(default_factory=dict)
    cost: Mapping[str, float | None] | None = None
    rollouts: Mapping[str, int] = msgspec.field(default_factory=dict)
    uncounted: int = 0
    held_up: HeldUp | None = None
    missing: Mapping[str, float | None] = msgspec.field(default_factory=dict)
    agreement: float | None = None

    @property
    def bounds(self) -> tuple[float | None, float | None]:
        """The bounds of the difference; ``None`` where nothing is proven."""
        return self.difference.get("lower"), self.difference.get("upper")


class PromptStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a prompt version's trial.

    Attributes:
        state: ``trial``; ``champion`` once every rollout is offered it; ``replaced`` while it is
            kept on offer beside the next champion; ``retired`` after that; or ``withdrawn``.
        exposure: The share of rollouts that it is offered to.
        offered: Rollouts of this test that it was offered to.
        withheld: Rollouts of this test that it was withheld from.
        lift: Mean reward where it was offered, less that where it was withheld; ``None`` if
            unknown.
        lower: The lower bound of the lift; ``None`` where nothing is proven.
        upper: The upper bound.
        verdict: The verdict; ``None`` while no claim is made.
        why: Why it was withdrawn, or no claim is made; ``None`` else.
        uncounted: Rollouts assigned and not counted yet.
    """

    state: str
    exposure: float
    offered: int
    withheld: int
    lift: float | None
    lower: float | None
    upper: float | None
    verdict: str | None
    why: str | None
    uncounted: int


def trial_status(store: Store, trial: Trial, settings: Settings, *, now: float) -> TrialStatus:
    """Return the status of a trial."""
    tally, trial = trial.tally, _as_assigned(store, trial)
    uncounted = store.trials.uncounted_size(trial.point, after=trial.watermark, limit=COUNT_LIMIT)
    finding = trial.finding
    return TrialStatus(
        exposure=share_now(trial, settings),
        ladder=trial.ladder,
        champion=trial.champion,
        control=trial.control,
        previous=trial.previous,
        kept=trial.kept,
        stopped=trial.stopped,
        since=trial.changed_at or None,
        test=trial.test,
        verdict=finding.get("verdict"),
        why=_why(trial, settings),
        difference=_difference(trial, settings),
        cost=finding.get("cost"),
        rollouts={arm: int(tally.get(arm, 0.0)) for arm in ("learner", "control")},
        uncounted=uncounted,
        held_up=_held_up(store, trial, settings, now=now) if uncounted else None,
        missing={arm: _missing(tally, arm) for arm in ("learner", "control")},
        agreement=tally.get("agreed", 0.0) / tally["asked"] if tally.get("asked") else None,
    )


def _held_up(store: Store, trial: Trial, settings: Settings, *, now: float) -> HeldUp | None:
    """Return the rollout whose reward the comparison waits for, and until when at the latest."""
    page = store.trials.assignments(trial.point, after=trial.watermark, limit=1)
    if not page:
        return None
    rollout, until = page[0].rollout, page[0].until
    if until is not None and rollout.started_at is not None and may_give_up(settings):
        delays = store.trials.delays(trial.point, limit=NEWEST)
        wait_s = patience(delays, now=now, most_s=settings.reward_deadline_s)
        until = until if wait_s is None else min(until, rollout.started_at + wait_s)
    is_open = rollout.status not in ROLLOUT_ENDS
    return HeldUp(rollout_id=rollout.rollout_id, open=is_open, until=until)


def _as_assigned(store: Store, trial: Trial) -> Trial:
    """Return a trial with the share by which the newest rollout was assigned, if none was set.

    Then the share is a setting of the process that decides, which may differ from that here.
    """
    if trial.exposure is not None:
        return trial
    place = store.trials.newest_place(trial.point)
    newest = store.trials.assignments(trial.point, after=place - 1, limit=1)
    return replace(trial, exposure=newest[-1].share) if newest else trial


def _why(trial: Trial, settings: Settings) -> str | None:
    """Return why the difference is unknown; ``None`` where it is known."""
    if trial.stopped is not None:
        return f"stopped: {trial.stopped}"
    if not trial.finding and reward_range(settings) is None:
        return NO_RANGE
    if _is_out_of_range(trial):
        seen = int(trial.tally.get("seen", 0.0))
        return f"{OUT_OF_RANGE}: {outside_of(trial):,} of {seen:,} rollouts"
    share = share_now(trial, settings)
    return NO_CONTROL if share >= 1.0 else NOTHING_DECIDED if share <= 0.0 else None


def _difference(trial: Trial, settings: Settings) -> dict[str, float | bool | None]:
    """Return the difference with its bounds, or the plain difference of means without any.

    While the learner decides every rollout and nothing was proven before, the few rollouts that a
    control once decided are too few: no difference is claimed.
    """
    interval, tally = trial.finding.get("difference"), trial.tally
    if interval is None or _is_out_of_range(trial):
        counts = tally.get("learner_known", 0.0), tally.get("control_known", 0.0)
        lift = None
        if all(counts):
            totals = tally.get("learner_reward", 0.0), tally.get("control_reward", 0.0)
            lift = totals[0] / counts[0] - totals[1] / counts[1]
        return {"estimate": lift, "lower": None, "upper": None, "plain": True}
    known = [trial.evidence.get(f"reward_{arm}_count") for arm in ("learner", "control")]
    interval = {"lower": None, "estimate": None, "upper": None, **interval}
    if 0.0 in known:  # then the bounds are the whole range, and the estimate is its middle
        return {**interval, "estimate": None, "plain": False}
    if _why(trial, settings) == NO_CONTROL and trial.finding.get("verdict") == Verdict.WAIT:
        return {"estimate": None, "lower": None, "upper": None, "plain": False}
    return {**interval, "plain": False}


def _is_out_of_range(trial: Trial) -> bool:
    return trial.finding.get("verdict") == Verdict.OUT_OF_RANGE


def _missing(tally: Mapping[str, float], arm: str) -> float | None:
    total = tally.get(arm, 0.0)
    return 1.0 - tally.get(f"{arm}_known", 0.0) / total if total else None
