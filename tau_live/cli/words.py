"""One decision in sentences for readers who have never seen a policy."""

from collections.abc import Iterator, Mapping, Sequence

from tau_live.cli.text import clipped, number
from tau_live.deciding.arms import CONTROL
from tau_live.pauses import PAUSED
from tau_live.rollouts import IMPORTED, Decision, Reward
from tau_live.why import Why

NAMED = 6
"""How many options are named; of more, only the number is shown."""

LONGEST = 60
"""How many characters of a name are shown."""

NOT_OURS: Mapping[str, str] = {
    CONTROL: (
        "this run belongs to the control group, which keeps its own choices, so that the effect "
        "of the learned choices can be measured"
    ),
    "redactor_disabled": "a plugin that redacts is disabled, so the context is unknown",
    "stopped": "the learner is stopped at this point, by an operator or by its safety bounds",
    PAUSED: "an operator paused deciding",
    "deadline": "the decision took too long, and the agent never waits",
    "replaced": "other code in the agent replaced tau-live's choice",
    "not_asked": "the agent did not need the choice",
}
"""Why the host's own choice was served, by reason code."""

SURE = ((0.95, "was nearly sure"), (0.75, "was fairly sure"), (0.5, "leaned that way"))
EVEN = 1.25
"""The likeliest of options that are all about as likely is at most so many times an even share."""


def told(found: Why) -> Iterator[str]:
    """Yield what happened, a sentence or a few for each question."""
    one = found.decision
    yield _offered(found)
    yield _chosen(one)
    if one.chosen is not None and _shares(one):
        yield _sure(one)
        yield _explored(found)
    yield _outcome(found)


def _offered(found: Why) -> str:
    one = found.decision
    may = one.options if one.allowed is None else one.allowed
    run = f"A run of {_name(found.rollout.name)}" if found.rollout.name else "A run"
    if len(may) == 1:
        return f"{run} came to {_name(one.point)}, where only {_name(may[0])} was allowed."
    barred = len(one.options) - len(may)
    more = f" ({barred} more {_were(barred)} not allowed this time)" if barred > 0 else ""
    return f"{run} had to choose at {_name(one.point)} between {_listed(may)}{more}."


def _chosen(one: Decision) -> str:
    if one.source == IMPORTED:
        took = "an unknown option" if one.applied is None else _name(one.applied)
        return f"It was decided elsewhere, and imported: {took} was taken."
    if one.why_not is None and one.chosen is not None:
        own = " It is also the agent's own choice." if _is_own(one) else ""
        other = (
            f" The agent's own choice would have been {_name(one.default)}." if one.default else ""
        )
        return f"{_decider(one)} chose {_name(one.chosen)}, {_done(one)}.{own or other}"
    took = "its own choice" if one.applied is None else f"{_name(one.applied)}, its own choice"
    because = f"The agent took {took}, because {_reason(one)}."
    if one.chosen is None:
        return because
    would = "the same" if one.chosen == one.applied else _name(one.chosen)
    return f"{because} tau-live would have taken {would}."


def _done(one: Decision) -> str:
    if one.applied == one.chosen:
        return "and the agent did that"
    if one.applied is None:
        return "but what the agent did is unknown"
    return f"but the agent did {_name(one.applied)} instead"


def _decider(one: Decision) -> str:
    if one.arm == CONTROL:
        return f"Version {one.policy_version}, the proven one that others are compared with,"
    if not one.policy_version:
        return "tau-live, which had learned nothing here yet,"
    return f"tau-live, with version {one.policy_version} of what it has learned,"


def _reason(one: Decision) -> str:
    reason = one.why_not or ""
    if reason.startswith("error: "):
        return f"tau-live failed ({_name(reason.removeprefix('error: '))})"
    return NOT_OURS.get(reason) or _name(reason) or "no decision was requested"


def _sure(one: Decision) -> str:
    shares = _shares(one)
    top, share = max(shares.values()), shares[one.chosen or ""]
    others = sorted((s, name) for name, s in shares.items() if name != one.chosen)
    told_ = f"{_name(one.chosen)} had {share:.0%}"
    if others:
        told_ += f", {_name(others[-1][1])} {others[-1][0]:.0%}"
    if top * len(shares) <= EVEN:
        words = "had almost no preference"
    elif share < top:
        words = "preferred another"
    else:
        words = next((words for least, words in SURE if share >= least), "was undecided")
    return f"{'tau-live' if one.why_not else 'It'} {words}: {told_}."


def _explored(found: Why) -> str:
    one, shares = found.decision, _shares(found.decision)
    favourite = max(shares, key=lambda name: shares[name])
    if one.why_not is not None:
        return "It did not explore, because the choice was not tau-live's."
    if shares[one.chosen or ""] < shares[favourite]:
        return (
            f"It explored on purpose: {_name(favourite)} was its favourite, but with these odds it "
            f"sometimes takes another, to find out whether that has become better."
        )
    known = _without_bonus(found)
    if known is not None and known != one.chosen:
        return (
            f"It explored on purpose: what it knows favours {_name(known)}, but so little is "
            f"known about {_name(one.chosen)} that it is worth a try."
        )
    return "It did not explore: it took its favourite."


def _without_bonus(found: Why) -> str | None:
    """Return what would be the favourite if doubt were worth nothing; ``None`` if not known."""
    terms, one = found.recomputed.terms, found.decision
    if not terms:
        return None
    rows = [values for name, values in terms.items() if name != "uncertainty bonus"]
    sums = {
        option: sum(row[place] for row in rows)
        for place, option in enumerate(one.options)
        if one.allowed is None or option in one.allowed
    }
    return max(sums, key=lambda option: sums[option])


def _outcome(found: Why) -> str:
    credit = found.credit
    rewards = "; ".join(_reward(one) for one in found.rewards[:NAMED] if one.value is not None)
    came = f"It was rewarded with {rewards}." if rewards else "It has no reward yet."
    if credit.why is not None:
        lead = (
            "It waits to be learned from" if credit.state == "waiting" else "It is not learned from"
        )
        return f"{came} {lead}: {credit.why[0].lower()}{credit.why[1:]}"
    advantage = credit.advantage or 0.0
    if not advantage:
        return f"{came} What followed was exactly as expected, so nothing changes."
    than, likelier = ("better", "more") if advantage > 0.0 else ("worse", "less")
    made = "makes" if credit.update is None else "made"
    when = "once an update is made" if credit.update is None else f"in update {credit.update}"
    return (
        f"{came} What followed was {number(abs(advantage))} {than} than expected, which {made} "
        f"such a choice {likelier} likely, {when}."
    )


def _reward(one: Reward) -> str:
    of = " for this choice" if one.decision_id else ""
    return f"{number(one.value)}{of} ({_name(one.name)}, by {_name(one.source)})"


def _shares(one: Decision) -> dict[str, float]:
    """Return the odds of each option; none where they are not known."""
    if len(one.probabilities) != len(one.options) or one.chosen not in one.options:
        return {}
    return dict(zip(one.options, one.probabilities, strict=True))


def _is_own(one: Decision) -> bool:
    return one.default is not None and one.default == one.applied


def _listed(names: Sequence[str]) -> str:
    some = [_name(name) for name in names[:NAMED]]
    if len(names) > NAMED:
        return f"{', '.join(some)} and {len(names) - NAMED} more"
    return f"{', '.join(some[:-1])} and {some[-1]}" if len(some) > 1 else "".join(some)


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _name(name: str | None) -> str:
    return clipped(name or "", LONGEST)
