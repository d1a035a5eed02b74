"""``tau-live why``: one decision, its reasons and its outcome."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
from rich.table import Table

from tau_live.cli import completing
from tau_live.cli.finding import decision_of
from tau_live.cli.opening import epilog, json_option, opened, store_option
from tau_live.cli.output import as_json as json_of
from tau_live.cli.output import (
    facts_of,
    fitting,
    print_all,
    print_json,
    safe,
    styled,
    table_of,
)
from tau_live.cli.text import moment, number, percent
from tau_live.cli.tree import marks, plain_credit, plain_decision
from tau_live.cli.words import told
from tau_live.rollouts import Decision, Reward
from tau_live.why import Why, checked
from tau_live.why import why as why_of


@click.command(epilog=epilog("why", "tau-live why 5f0d:2", "tau-live why 5f0d:2 --recompute"))
@click.argument("decision", shell_complete=completing.decisions)
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
    with opened(path) as (store, settings):
        found = why_of(store, settings, decision_of(store, decision).decision_id)
    if as_json:
        print_json(plain_of(found))
    else:
        print_all(
            *(safe(sentence) for sentence in told(found)),
            "",
            facts_of(_facts(found)),
            "",
            fitting(_options(found), facts_of(_by_option(found))),
            "",
            facts_of(_after(found)),
        )
    if recompute:
        checked(found)
        if not as_json:
            click.echo(f"recomputed: the same, within {found.recomputed.difference:.1g}")


def plain_of(found: Why) -> dict[str, object]:
    """Return it for JSON."""
    return {
        "decision": plain_decision(found.decision),
        "gate": found.gate,
        "share": found.share,
        "recomputed": found.recomputed._asdict(),
        "rewards": list(found.rewards),
        "credit": plain_credit(found.credit),
    }


def _facts(found: Why) -> Iterator[tuple[str, object]]:
    one = found.decision
    yield "decision", safe(one.decision_id, "bold")
    yield "point", one.point
    yield "made (UTC)", f"{moment(one.at)}, in {one.latency_us:.0f} us"
    yield "run", f"{found.rollout.name} ({found.rollout.host}), {found.rollout.status}"
    version = f"version {one.policy_version}" if one.policy_version else "the untrained policy"
    yield "decided by", f"{version}, arm {one.arm}" if one.source == "policy" else one.source
    if one.why_not:
        yield "why not", safe(one.why_not, "yellow")
    yield "exposure", "-" if found.share is None else percent(found.share)
    yield "gate", styled(found.gate)
    yield "chosen", one.chosen or "-"
    yield "applied", one.applied or "-"
    yield "propensity", number(one.propensity)
    yield "expected return", number(one.value)
    for name, value in one.context.items():
        yield f"context {name}", _said(value)
    if found.recomputed.problem:
        yield "not recomputed", safe(found.recomputed.problem, "yellow")


def _columns(found: Why) -> Mapping[str, Sequence[str]]:
    """Return by name what there is to be said of each option."""
    one, told_ = found.decision, found.recomputed
    unknown = ["-"] * len(one.options)
    known = len(one.probabilities) == len(one.options)
    rows = list(zip(*told_.terms.values(), strict=True)) or [()] * len(one.options)
    return {
        **{name: [number(value) for value in values] for name, values in told_.terms.items()},
        "logit": [number(sum(added)) if added else "-" for added in rows],
        "probability": [f"{share:.4f}" for share in one.probabilities] if known else unknown,
        "recomputed": unknown
        if told_.probabilities is None
        else [f"{share:.4f}" for share in told_.probabilities],
    }


def _options(found: Why) -> Table:
    one, columns = found.decision, _columns(found)
    rows = [
        (
            safe(option, "bold" if option == one.applied else ""),
            _features(one, option),
            *(values[place] for values in columns.values()),
            ", ".join(marks(one, option)),
        )
        for place, option in enumerate(one.options)
    ]
    return table_of(["option", "features", *(f"{name}#" for name in columns), ""], rows)


def _by_option(found: Why) -> Iterator[tuple[str, object]]:
    """Yield the same line by line, for a terminal that has no room for so many columns."""
    one, columns = found.decision, _columns(found)
    for place, option in enumerate(one.options):
        marked = ", ".join(marks(one, option))
        yield "option", safe(f"{option} ({marked})" if marked else option, "bold")
        yield "  features", _features(one, option)
        for name, values in columns.items():
            yield f"  {name}", values[place]


def _features(one: Decision, option: str) -> str:
    found = one.features.get(option)
    if not isinstance(found, dict):
        return "-"
    return ", ".join(f"{name}={_said(value)}" for name, value in found.items())


def _after(found: Why) -> Iterator[tuple[str, object]]:
    for reward in found.rewards:
        yield f"reward {reward.name}", _reward(reward)
    if not found.rewards:
        yield "rewards", "none yet"
    credit = found.credit
    yield "credit", credit.state if credit.update is None else f"learned in update {credit.update}"
    if credit.why:
        yield "because", credit.why
        return
    yield "return", f"{number(credit.return_)} (of it {number(credit.reward)} before the next)"
    yield "advantage", number(credit.advantage)


def _reward(reward: Reward) -> str:
    of = "this decision" if reward.decision_id else "the whole run"
    value = number(reward.value) if reward.value is not None else reward.comment
    return f"{value} for {of}, by {reward.source}, {moment(reward.at)}"


def _said(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    return value if isinstance(value, str) else json_of(value)
