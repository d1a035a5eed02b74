"""``tau-live why``: one decision, how it came about and what came of it."""

from collections.abc import Iterator
from pathlib import Path

import click
from rich.table import Table

from tau_live.cli import completing
from tau_live.cli.finding import decision_of
from tau_live.cli.opening import epilog, json_option, opened, store_option
from tau_live.cli.output import as_json as json_of
from tau_live.cli.output import facts_of, print_all, print_json, safe, styled, table_of
from tau_live.cli.text import moment, number
from tau_live.cli.tree import plain_decision
from tau_live.rollouts import Decision, Reward
from tau_live.why import Why, checked
from tau_live.why import why as why_of


@click.command(epilog=epilog("why", "tau-live why 5f0d:2", "tau-live why 5f0d:2 --recompute"))
@click.argument("decision", shell_complete=completing.rollouts)
@click.option(
    "--recompute",
    is_flag=True,
    help="Fail if the version that decided gives other probabilities than are stored.",
)
@store_option
@json_option
def why(decision: str, *, path: Path | None, as_json: bool, recompute: bool) -> None:
    """Show why DECISION was made as it was, and what came of it.

    DECISION is an id, or the beginning of a rollout's id with the decision's number behind a
    colon; the number may be left out where the rollout has one decision.
    """
    with opened(path) as (store, settings):
        found = why_of(store, settings, decision_of(store, decision).decision_id)
    if as_json:
        print_json(plain_of(found))
    else:
        print_all(facts_of(_facts(found)), "", _options(found), "", facts_of(_after(found)))
    if recompute:
        checked(found)
        if not as_json:
            click.echo(f"recomputed: the same, within {found.recomputed.difference:.1g}")


def plain_of(found: Why) -> dict[str, object]:
    """Return it for JSON."""
    credit = found.credit._asdict()
    return {
        "decision": plain_decision(found.decision),
        "gate": found.gate,
        "share": found.share,
        "recomputed": found.recomputed._asdict(),
        "rewards": list(found.rewards),
        "credit": {name.rstrip("_"): value for name, value in credit.items()},
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
    yield "exposure", "-" if found.share is None else f"{found.share:.0%}"
    yield "gate", styled(found.gate)
    yield "chosen", one.chosen or "-"
    yield "applied", one.applied or "-"
    yield "propensity", number(one.propensity)
    yield "expected return", number(one.value)
    for name, value in one.context.items():
        yield f"context {name}", _said(value)
    if found.recomputed.problem:
        yield "not recomputed", safe(found.recomputed.problem, "yellow")


def _options(found: Why) -> Table:
    one, told = found.decision, found.recomputed
    shares = one.probabilities if len(one.probabilities) == len(one.options) else None
    now = told.probabilities
    rows = []
    for index, option in enumerate(one.options):
        added = [values[index] for values in told.terms.values()]
        rows.append(
            (
                safe(option, "bold" if option == one.applied else ""),
                _features(one, option),
                *(number(value) for value in added),
                number(sum(added)) if added else "-",
                "-" if shares is None else f"{shares[index]:.4f}",
                "-" if now is None else f"{now[index]:.4f}",
                _marks(one, option),
            )
        )
    columns = [*(f"{name}#" for name in told.terms), "logit#", "probability#", "recomputed#", ""]
    return table_of(["option", "features", *columns], rows)


def _features(one: Decision, option: str) -> str:
    found = one.features.get(option)
    if not isinstance(found, dict):
        return "-"
    return ", ".join(f"{name}={_said(value)}" for name, value in found.items())


def _marks(one: Decision, option: str) -> str:
    marks = {"chosen": one.chosen, "applied": one.applied, "default": one.default}
    found = [mark for mark, named in marks.items() if named == option]
    if one.allowed is not None and option not in one.allowed:
        found.append("not allowed")
    if one.exploit_only is not None and option in one.exploit_only:
        found.append("not explored")
    return ", ".join(found)


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
