"""``tau-live why``: one decision, its reasons and its outcome, in sentences."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
from rich.table import Table

from tau_live.cli import completion
from tau_live.cli.options import epilog, json_option, open_store, store_option
from tau_live.cli.output import as_json as json_of
from tau_live.cli.output import (
    clip,
    facts_of,
    fitting,
    moment,
    number,
    percent,
    print_all,
    print_json,
    safe,
    status_text,
    table_of,
)
from tau_live.cli.rollouts import decision_of, latency_text, marks, plain_decision
from tau_live.core.reasons import PAUSED, PERMIT_OVER
from tau_live.core.records import IMPORTED, Decision, Reward
from tau_live.core.sanitize import JsonObject
from tau_live.decisions.decider import CONTROL
from tau_live.operate.why import UsedPool, Why, check_probabilities
from tau_live.operate.why import why as why_of

NAMED = 6
"""The most options that are named; of the others, only the number is shown."""


NOT_OURS: Mapping[str, str] = {
    CONTROL: (
        "this run belongs to the control group, which keeps its own choices, so that the effect "
        "of the learned choices can be measured"
    ),
    "redactor_disabled": "a plugin that redacts is disabled, so the context is unknown",
    "stopped": "the learner is stopped at this point, by an operator or by its safety bounds",
    PAUSED: "an operator paused deciding",
    PERMIT_OVER: "the database was not heard for longer than TAU_LIVE_RL_PERMIT_S",
    "deadline": "the decision took too long, and the agent never waits",
    "replaced": "other code in the agent replaced tau-live's choice",
    "not_asked": "the agent did not need the choice",
}
"""Why the host's own choice was served, by reason code."""

CONFIDENCE = ((0.95, "was nearly sure"), (0.75, "was fairly sure"), (0.5, "leaned that way"))
"""Words for the probability of the chosen option, by the least probability that each needs."""


def sentences(explanation: Why) -> Iterator[str]:
    """Yield the explanation, a sentence or a few for each question."""
    decision = explanation.decision
    yield _options_sentence(explanation)
    yield _choice_sentence(decision)
    if decision.chosen is not None and _shares(decision):
        yield _confidence_sentence(decision)
        yield _exploration_sentence(explanation)
    yield _outcome_sentence(explanation)
    if since := explanation.credit.since:
        yield f"{since[0].upper()}{since[1:]}."


def _options_sentence(explanation: Why) -> str:
    decision = explanation.decision
    may = decision.options if decision.allowed is None else decision.allowed
    run = f"A run of {_name(explanation.rollout.name)}" if explanation.rollout.name else "A run"
    if len(may) == 1:
        return f"{run} came to {_name(decision.point)}, where only {_name(may[0])} was allowed."
    barred = len(decision.options) - len(may)
    more = f" ({barred} more {_were(barred)} not allowed this time)" if barred > 0 else ""
    return f"{run} had to choose at {_name(decision.point)} between {_name_list(may)}{more}."


def _choice_sentence(decision: Decision) -> str:
    if decision.source == IMPORTED:
        took = "an unknown option" if decision.applied is None else _name(decision.applied)
        return f"It was decided elsewhere, and imported: {took} was taken."
    if decision.why_not is None and decision.chosen is not None:
        own = " It is also the agent's own choice." if _is_own(decision) else ""
        other = (
            f" The agent's own choice would have been {_name(decision.default)}."
            if decision.default
            else ""
        )
        chosen = f"{_decider(decision)} chose {_name(decision.chosen)}"
        return f"{chosen}, {_application(decision)}.{own or other}"
    took = (
        "its own choice"
        if decision.applied is None
        else f"{_name(decision.applied)}, its own choice"
    )
    because = f"The agent took {took}, because {_reason(decision)}."
    if decision.chosen is None:
        return because
    would = "the same" if decision.chosen == decision.applied else _name(decision.chosen)
    return f"{because} tau-live would have taken {would}."


def _application(decision: Decision) -> str:
    if decision.applied == decision.chosen:
        return "and the agent did that"
    if decision.applied is None:
        return "but what the agent did is unknown"
    return f"but the agent did {_name(decision.applied)} instead"


def _decider(decision: Decision) -> str:
    if decision.arm == CONTROL:
        return f"Version {decision.policy_version}, the proven one that others are compared with,"
    if not decision.policy_version:
        return "tau-live, which had learned nothing here yet,"
    return f"tau-live, with version {decision.policy_version} of what it has learned,"


def _reason(decision: Decision) -> str:
    reason = decision.why_not or ""
    if reason.startswith("error: "):
        return f"tau-live failed ({_name(reason.removeprefix('error: '))})"
    return NOT_OURS.get(reason) or _name(reason) or "no decision was requested"


def _confidence_sentence(decision: Decision) -> str:
    shares = _shares(decision)
    top, share = max(shares.values()), shares[decision.chosen or ""]
    others = sorted((s, name) for name, s in shares.items() if name != decision.chosen)
    odds = f"{_name(decision.chosen)} had {share:.0%}"
    if others:
        odds += f", {_name(others[-1][1])} {others[-1][0]:.0%}"
    # options count as equally likely if the likeliest has at most 1.25 times an even share
    if top * len(shares) <= 1.25:
        words = "had almost no preference"
    elif share < top:
        words = "preferred another"
    else:
        words = next((words for least, words in CONFIDENCE if share >= least), "was undecided")
    return f"{'tau-live' if decision.why_not else 'It'} {words}: {odds}."


def _exploration_sentence(explanation: Why) -> str:
    decision, shares = explanation.decision, _shares(explanation.decision)
    favourite = max(shares, key=lambda name: shares[name])
    if decision.why_not is not None:
        return "It did not explore, because the choice was not tau-live's."
    if shares[decision.chosen or ""] < shares[favourite]:
        return (
            f"It explored on purpose: {_name(favourite)} was its favourite, but with these odds it "
            f"sometimes takes another, to find out whether that has become better."
        )
    known = _without_bonus(explanation)
    if known is not None and known != decision.chosen:
        return (
            f"It explored on purpose: what it knows favours {_name(known)}, but so little is "
            f"known about {_name(decision.chosen)} that it is worth a try."
        )
    return "It did not explore: it took its favourite."


def _without_bonus(explanation: Why) -> str | None:
    """Return the favourite without the uncertainty bonus; ``None`` if not known."""
    terms, decision = explanation.recomputed.terms, explanation.decision
    if not terms:
        return None
    rows = [values for name, values in terms.items() if name != "uncertainty bonus"]
    sums = {
        option: sum(row[index] for row in rows)
        for index, option in enumerate(decision.options)
        if decision.allowed is None or option in decision.allowed
    }
    return max(sums, key=lambda option: sums[option])


def _outcome_sentence(explanation: Why) -> str:
    credit = explanation.credit
    rewards = "; ".join(
        _reward_words(reward) for reward in explanation.rewards[:NAMED] if reward.value is not None
    )
    reward = f"It was rewarded with {rewards}." if rewards else "It has no reward yet."
    if credit.why is not None:
        lead = (
            "It waits to be learned from" if credit.state == "waiting" else "It is not learned from"
        )
        return f"{reward} {lead}: {credit.why[0].lower()}{credit.why[1:]}"
    advantage = credit.advantage or 0.0
    if not advantage:
        return f"{reward} What followed was exactly as expected, so nothing changes."
    than, likelier = ("better", "more") if advantage > 0.0 else ("worse", "less")
    verb = "makes" if credit.update is None else "made"
    when = "once an update is made" if credit.update is None else f"in update {credit.update}"
    return (
        f"{reward} What followed was {number(abs(advantage))} {than} than expected, which {verb} "
        f"such a choice {likelier} likely, {when}."
    )


def _reward_words(reward: Reward) -> str:
    of = " for this choice" if reward.decision_id else ""
    return f"{number(reward.value)}{of} ({_name(reward.name)}, by {_name(reward.source)})"


def _shares(decision: Decision) -> dict[str, float]:
    """Return the odds of each option; none where they are not known."""
    if (
        len(decision.probabilities) != len(decision.options)
        or decision.chosen not in decision.options
    ):
        return {}
    return dict(zip(decision.options, decision.probabilities, strict=True))


def _is_own(decision: Decision) -> bool:
    return decision.default is not None and decision.default == decision.applied


def _name_list(names: Sequence[str]) -> str:
    some = [_name(name) for name in names[:NAMED]]
    if len(names) > NAMED:
        return f"{', '.join(some)} and {len(names) - NAMED} more"
    return f"{', '.join(some[:-1])} and {some[-1]}" if len(some) > 1 else "".join(some)


def _were(count: int) -> str:
    return "was" if count == 1 else "were"


def _name(name: str | None) -> str:
    return clip(name or "", 60)  # so many characters are shown


@click.command(epilog=epilog("why", "tau-live why 5f0d:2", "tau-live why 5f0d:2 --recompute"))
@click.argument("decision", shell_complete=completion.decisions)
@click.option(
    "--recompute",
    is_flag=True,
    help="Fail if the version that decided gives other probabilities than those stored.",
)
@store_option
@json_option
def why(decision: str, *, path: Path | None, as_json: bool, recompute: bool) -> None:
    """Explain why DECISION was made and what followed, in words and then in numbers.

    DECISION is an id, or a prefix of a rollout's id with the decision's number after a
    colon; the number can be omitted if the rollout has only one decision.
    """
    with open_store(path) as (store, settings):
        explanation = why_of(store, settings, decision_of(store, decision).decision_id)
    if as_json:
        print_json(plain(explanation))
    else:
        print_all(
            *(safe(sentence) for sentence in sentences(explanation)),
            "",
            facts_of(_facts(explanation)),
            "",
            fitting(_options(explanation), facts_of(_by_option(explanation))),
            "",
            facts_of(_outcome_facts(explanation)),
        )
    if recompute:
        check_probabilities(explanation)
        if not as_json:
            click.echo(f"recomputed: the same, within {explanation.recomputed.difference:.1g}")


def plain(explanation: Why) -> JsonObject:
    """Return an explanation for JSON."""
    return {
        "decision": plain_decision(explanation.decision),
        "gate": explanation.gate,
        "share": explanation.decision.share,
        "recomputed": explanation.recomputed,
        "rewards": explanation.rewards,
        "credit": explanation.credit,
        "pool": explanation.pool,
    }


def _facts(explanation: Why) -> list[tuple[str, object]]:
    decision, rollout, problem = (
        explanation.decision, explanation.rollout, explanation.recomputed.problem
    )  # fmt: skip
    number_of = decision.policy_version
    version = f"version {number_of}" if number_of else "the untrained policy"
    is_ours = decision.source == "policy"
    return [
        ("decision", safe(decision.decision_id, "bold")),
        ("point", decision.point),
        ("made (UTC)", f"{moment(decision.at)}, in {latency_text(decision)}"),
        ("run", f"{rollout.name} ({rollout.host}), {rollout.status}"),
        ("decided by", f"{version}, arm {decision.arm}" if is_ours else decision.source),
        ("why not", safe(decision.why_not, "yellow") if decision.why_not else None),
        (
            "exposure",
            "-" if explanation.decision.share is None else percent(explanation.decision.share),
        ),
        ("gate", status_text(explanation.gate)),
        ("chosen", decision.chosen or "-"),
        ("applied", decision.applied or "-"),
        ("lessons", None if explanation.pool is None else _lessons(explanation.pool)),
        ("propensity", number(decision.propensity)),
        ("expected return", number(decision.value)),
        *((f"context {name}", _value_text(value)) for name, value in decision.context.items()),
        ("not recomputed", safe(problem, "yellow") if problem else None),
    ]


def _lessons(pool: UsedPool) -> str:
    named = [f"{each[0]} version {each[1]}" for each in pool.lessons if isinstance(each, list)]
    return f"{pool.version}: {', '.join(named) or 'not found any more'}"


def _columns(explanation: Why) -> Mapping[str, Sequence[str]]:
    """Return the figures of each option, by name."""
    decision, recomputed = explanation.decision, explanation.recomputed
    unknown = ["-"] * len(decision.options)
    known = len(decision.probabilities) == len(decision.options)
    rows = list(zip(*recomputed.terms.values(), strict=True)) or [()] * len(decision.options)
    return {
        **{name: [number(value) for value in values] for name, values in recomputed.terms.items()},
        "logit": [number(sum(added)) if added else "-" for added in rows],
        "probability": [f"{share:.4f}" for share in decision.probabilities] if known else unknown,
        "recomputed": unknown
        if recomputed.probabilities is None
        else [f"{share:.4f}" for share in recomputed.probabilities],
    }


def _options(explanation: Why) -> Table:
    decision, columns = explanation.decision, _columns(explanation)
    rows = [
        (
            safe(option, "bold" if option == decision.applied else ""),
            _features(decision, option),
            *(values[index] for values in columns.values()),
            ", ".join(marks(decision, option)),
        )
        for index, option in enumerate(decision.options)
    ]
    return table_of(["option", "features", *(f"{name}#" for name in columns), ""], rows)


def _by_option(explanation: Why) -> Iterator[tuple[str, object]]:
    """Yield the options line by line, for a terminal without room for so many columns."""
    decision, columns = explanation.decision, _columns(explanation)
    for index, option in enumerate(decision.options):
        notes = ", ".join(marks(decision, option))
        yield "option", safe(f"{option} ({notes})" if notes else option, "bold")
        yield "  features", _features(decision, option)
        for name, values in columns.items():
            yield f"  {name}", values[index]


def _features(decision: Decision, option: str) -> str:
    features = decision.features.get(option)
    if not isinstance(features, dict):
        return "-"
    return ", ".join(f"{name}={_value_text(value)}" for name, value in features.items())


def _outcome_facts(explanation: Why) -> list[tuple[str, object]]:
    rewards, credit = explanation.rewards, explanation.credit
    learned = credit.state if credit.update is None else f"learned in update {credit.update}"
    earned = f"{number(credit.return_)} (of it {number(credit.reward)} before the next)"
    return [
        *((f"reward {reward.name}", _reward(reward)) for reward in rewards),
        ("rewards", None if rewards else "none yet"),
        ("credit", learned),
        ("because", credit.why or None),
        ("but", safe(credit.since, "yellow") if credit.since else None),
        ("return", None if credit.why else earned),
        ("advantage", None if credit.why else number(credit.advantage)),
    ]


def _reward(reward: Reward) -> str:
    of = "this decision" if reward.decision_id else "the whole run"
    value = number(reward.value) if reward.value is not None else reward.comment
    return f"{value} for {of}, by {reward.source}, {moment(reward.at)}"


def _value_text(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    return value if isinstance(value, str) else json_of(value)
