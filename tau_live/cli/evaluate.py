"""``tau-live evaluate``: what a policy would have earned, from what another one did."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from math import inf, isnan
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import RenderableType

from tau_live.cli import completing
from tau_live.cli.opening import epilog, json_option, opened, settings_of, store_option
from tau_live.cli.output import facts_of, print_all, print_json, progress_bar, table_of
from tau_live.cli.text import number, when
from tau_live.errors import PolicyError
from tau_live.evaluating.files import records_of
from tau_live.evaluating.records import (
    Function,
    Records,
    Target,
    best_fixed,
    constant,
    of_function,
    of_policy,
    uniform,
)
from tau_live.evaluating.report import PASSES, Asked, Report, joint_report, report_of
from tau_live.evaluating.stored import stored_records
from tau_live.policies.files import checkpoint_folder, load_policy, policy_config
from tau_live.rewards.settling import reward_range
from tau_live.rl.evaluation import INSUFFICIENT, Estimator, Evaluation
from tau_live.rl.features import WIDTH
from tau_live.rl.policy import Policy
from tau_live.settings import Settings
from tau_live.store.roles import Store

INSUFFICIENT_CODE = 4
"""How the command ends when the log says too little."""

TRUSTED = (Estimator.DR, Estimator.WPDIS, Estimator.SNIPS, Estimator.IPS, Estimator.PDIS)
"""Whose figure is told in words, the first that there is."""

UNIFORM, BEST_FIXED, CONSTANT = "uniform", "best-fixed", "constant:"
FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


class Named(NamedTuple):
    """A policy that was asked for.

    Attributes:
        name: As it is shown.
        version: A version of ours, if it is one.
        policy: Its weights, if it is one.
        function: The function of the user's that it is, if it is one.
    """

    name: str
    version: int | None = None
    policy: Policy | None = None
    function: Function | None = None

    @property
    def width(self) -> int:
        """How wide its features are."""
        return WIDTH if self.policy is None else self.policy.config.width


@click.command(
    epilog=epilog(
        "evaluate",
        "tau-live evaluate --policy 3",
        "tau-live evaluate --log decisions.csv --policy best-fixed",
        "tau-live evaluate --point model --policy my_rules:choose",
        "tau-live evaluate --policy model=3 --policy tools=constant:search",
    )
)
@click.option(
    "--policy", "asked_for", required=True, multiple=True, metavar="POLICY",
    help="A version, 0 for the untrained policy, `uniform`, `best-fixed`, `constant:OPTION`, or a "
    "function of your own, `module:function`. For several points together, POINT=POLICY; repeat.",
    shell_complete=completing.versions,
)  # fmt: skip
@click.option(
    "--log", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A log from elsewhere (.jsonl or .csv) instead of the store's decisions.",
)  # fmt: skip
@click.option("--context", multiple=True, help="With --log: a column to take as context; repeat.")
@click.option(
    "--point", help="The decision point.  [default: that of the version]",
    shell_complete=completing.points,
)  # fmt: skip
@click.option(
    "--since", type=when, metavar="TIME", help="Only rollouts that ended since this time."
)
@click.option("--limit", type=click.IntRange(1), help="Only the newest N rollouts.")
@click.option(
    "--reward-range", type=(float, float), metavar="LOW HIGH",
    help="The lowest and highest possible reward.  [default: as declared, or as observed]",
)  # fmt: skip
@click.option(
    "--weight-cap", type=click.FloatRange(1.0), help="Clip importance weights at this value."
)
@click.option(
    "--confidence", type=click.FloatRange(0.0, 1.0, min_open=True, max_open=True), default=0.95,
    show_default=True, help="Confidence level of the intervals.",
)  # fmt: skip
@store_option
@json_option
def evaluate(path: Path | None, as_json: bool, **asked: object) -> None:
    """Estimate what POLICY would have earned, from decisions made by another policy.

    Only decisions with a known propensity are used; the others are left out and counted.
    If too little is left for an estimate, the exit code is 4.
    """
    request = Request(policies=asked.pop("asked_for"), **asked)  # type: ignore[arg-type]  # click has checked each of them
    with progress_bar(quiet=as_json) as bar:
        task = bar.add_task("decisions", total=None)

        def tell(more: int) -> None:
            bar.update(task, advance=more)

        def expect(decisions: int) -> None:
            bar.reset(task, total=PASSES * decisions)

        answer = answered(request, path, tell=tell, expect=expect)
    if as_json:
        print_json(plain_of(answer))
    else:
        print_all(facts_of(_facts(answer)), *_tables(answer))
    if answer.report.refused:
        click.echo(f"tau-live: {INSUFFICIENT}: {'; '.join(answer.report.refused)}", err=True)
        raise click.exceptions.Exit(INSUFFICIENT_CODE)


class Request(NamedTuple):
    """What was asked for, by the options of the command."""

    policies: tuple[str, ...]
    log: Path | None
    context: tuple[str, ...]
    point: str | None
    since: float | None
    limit: int | None
    reward_range: tuple[float, float] | None
    weight_cap: float | None
    confidence: float

    @property
    def asked_for(self) -> str:
        """The policy, where it is one."""
        return self.policies[0]

    @property
    def by_point(self) -> dict[str, str]:
        """The policies by their points; empty where it is one policy for one point."""
        pairs = (one.partition("=") for one in self.policies if "=" in one)
        return {point: policy for point, _, policy in pairs}


class Answer(NamedTuple):
    """What came of it."""

    policy: str
    point: str | None
    request: Request
    report: Report


def answered(
    request: Request,
    path: Path | None,
    *,
    tell: Callable[[int], None],
    expect: Callable[[int], None],
) -> Answer:
    """Return the report that was asked for.

    Raises:
        TauLiveError: There is no such policy, point, store or log, or it cannot be read.
    """
    _check(request)
    if len(request.policies) > 1:
        return _joint(request, path, tell=tell, expect=expect)
    if request.log is not None:
        named = Named(request.asked_for, function=_function_of(request.asked_for))
        settings = settings_of(path)
        if _version_of(request.asked_for) is not None:
            with opened(path) as (store, settings):
                named = _named(store, settings, request.asked_for)
        found = records_of(
            request.log, context=request.context or None, width=named.width, tell=tell
        )
        return _answer(request, named, found, settings=settings, tell=tell, expect=expect)
    with opened(path) as (store, settings):
        named = _named(store, settings, request.asked_for)
        point = _point(store, named, request.point)
        found = stored_records(
            store,
            settings,
            point,
            since=request.since,
            limit=request.limit,
            width=named.width,
            given=named.function is not None,
            tell=tell,
        )
    answer = _answer(request, named, found, settings=settings, tell=tell, expect=expect)
    return answer._replace(point=point)


def _joint(
    request: Request,
    path: Path | None,
    *,
    tell: Callable[[int], None],
    expect: Callable[[int], None],
) -> Answer:
    """Return the report on policies of several points together."""
    names: list[str] = []
    parts: list[tuple[Records, Target]] = []
    with opened(path) as (store, settings):
        for asked_for, policy in request.by_point.items():
            named = _named(store, settings, policy)
            point = _point(store, named, asked_for)
            found = stored_records(
                store,
                settings,
                point,
                since=request.since,
                width=named.width,
                given=named.function is not None,
                tell=tell,
            )
            name, target = _target(named, found)
            names.append(f"{point}={name}")
            parts.append((found, target))
    expect(sum(len(found.records) for found, _ in parts))
    asked = Asked(
        reward_range=request.reward_range or reward_range(settings),
        weight_cap=request.weight_cap,
        confidence=request.confidence,
        seed=settings.seed,
    )
    report = joint_report(parts, asked, tell=tell)
    return Answer(", ".join(names), ", ".join(request.by_point), request, report)


def _check(request: Request) -> None:
    together = len(request.policies) > 1
    if together and len(request.by_point) < len(request.policies):
        raise click.UsageError("several policies need a point each: --policy POINT=POLICY")
    if together and (request.point or request.limit or request.log is not None):
        raise click.UsageError("--point, --limit and --log are for one policy alone")
    low, high = request.reward_range or (0.0, 1.0)
    if not 0.0 < high - low < inf:
        raise click.BadParameter(
            f"expected finite LOW < HIGH, got {low} and {high}", param_hint="--reward-range"
        )
    if isnan(request.confidence):  # which click takes for one within every range
        raise click.BadParameter("expected a number, got nan", param_hint="--confidence")
    if request.weight_cap is not None and isnan(request.weight_cap):
        raise click.BadParameter("expected a number, got nan", param_hint="--weight-cap")
    if request.context and request.log is None:
        raise click.UsageError("--context belongs to --log")
    if request.log is not None and (request.point or request.since or request.limit):
        raise click.UsageError("--point, --since and --limit are for the store, not for --log")


def _answer(
    request: Request,
    named: Named,
    found: Records,
    *,
    settings: Settings,
    tell: Callable[[int], None],
    expect: Callable[[int], None],
) -> Answer:
    expect(len(found.records))
    name, target = _target(named, found)
    asked = Asked(
        reward_range=request.reward_range
        or (declared_range(settings) if request.log is None else None),
        weight_cap=request.weight_cap,
        confidence=request.confidence,
        seed=settings.seed,
    )
    report = report_of(found, target, asked, tell=tell)
    return Answer(name, None, request, report)


def _target(named: Named, found: Records) -> tuple[str, Target]:
    if named.policy is not None:
        return named.name, of_policy(named.policy)
    if named.function is not None:
        return named.name, of_function(named.function, named.name)
    if named.name == UNIFORM:
        return named.name, uniform
    if named.name == BEST_FIXED:
        option = best_fixed(found)
        return f"{BEST_FIXED} ({option})", uniform if option is None else constant(option)
    option = named.name.removeprefix(CONSTANT)
    known = {name for record in found.records for name in record.options}
    if named.name.startswith(CONSTANT) and option in known:
        return named.name, constant(option)
    if named.name.startswith(CONSTANT):
        listed = ", ".join(sorted(known)[:10]) or "none"
        raise PolicyError(f"no decision had an option {option!r}; options: {listed}")
    raise PolicyError(
        f"no policy {named.name!r}: name a version, {UNIFORM}, {BEST_FIXED}, {CONSTANT}OPTION, "
        "or module:function"
    )


def _version_of(asked_for: str) -> int | None:
    return int(asked_for) if asked_for.isascii() and asked_for.isdigit() else None


def _function_of(asked_for: str) -> Function | None:
    """Return the function that ``module:function`` names; ``None`` where it names none.

    Raises:
        PolicyError: The module cannot be imported, or has no such function.
    """
    if asked_for.startswith(CONSTANT) or not FUNCTION.fullmatch(asked_for):
        return None
    module, _, name = asked_for.partition(":")
    sys.path.insert(0, "")  # where the command was given, as with `python -m`
    try:
        found = getattr(importlib.import_module(module), name, None)
    except Exception as error:  # somebody else's code
        raise PolicyError(f"cannot import {module}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove("")
    if not callable(found):
        raise PolicyError(f"{module} has no function {name!r}")
    function: Function = found
    return function


def _named(store: Store, settings: Settings, asked_for: str) -> Named:
    version = _version_of(asked_for)
    if version is None:
        return Named(asked_for, function=_function_of(asked_for))
    if version == 0:
        return Named("version 0, untrained", 0, Policy.untrained(policy_config(settings)))
    row = store.policies.version(version)
    if not (checkpoint_folder(settings) / row.file).exists():
        raise PolicyError(f"the checkpoint of version {version} has been pruned")
    policy = load_policy(checkpoint_folder(settings), row)
    return Named(f"version {version}", version, policy)


def _point(store: Store, named: Named, asked: str | None) -> str:
    own = store.policies.version(named.version).point if named.version else None
    if own is not None and asked not in (None, own):
        raise PolicyError(f"version {named.version} is for point {own!r}, not for {asked!r}")
    known = store.rewards.ready_points()
    point = asked or own or (known[0] if len(known) == 1 else None)
    listed = ", ".join(map(repr, known)) or "none yet"
    if point is None:
        raise PolicyError(f"choose a --point; points with rewarded rollouts: {listed}")
    if point not in known:
        raise PolicyError(f"no rewarded rollout decided at {point!r}; known points: {listed}")
    return point


def declared_range(settings: Settings) -> tuple[float, float] | None:
    """Return the least and the largest that declared rewards make; ``None`` if one may be any."""
    if len(settings.rewards) != 1:
        return None
    one = settings.rewards[0]
    if one.range is None or not one.weight:
        return None
    low, high = sorted(one.weight * end for end in one.range)
    return low, high


def plain_of(answer: Answer) -> dict[str, object]:
    """Return it for JSON."""
    report = answer.report
    return {
        "policy": answer.policy,
        "point": answer.point,
        "log": None if answer.request.log is None else str(answer.request.log),
        "read": report.read,
        "left_out": report.left_out,
        "unexplored": report.unexplored,
        "reward_range": list(report.reward_range),
        "range_observed": report.observed,
        "confidence": answer.request.confidence,
        "status": INSUFFICIENT if report.refused else "ok",
        "decisions": _section(report.decisions),
        "rollouts": None if report.rollouts is None else _section(report.rollouts),
    }


def _section(found: Evaluation) -> dict[str, object]:
    weights = found.weights
    refused = next((one.refused for one in found.estimates.values()), ())
    return {
        "logged": found.logged,
        "used": weights.decisions,
        "estimates": {
            name.value: {
                "value": one.value,
                "standard_error": one.standard_error,
                "bootstrap": None if one.bootstrap is None else list(one.bootstrap),
                "bernstein": None if one.bernstein is None else list(one.bernstein),
                "status": one.status,
            }
            for name, one in found.estimates.items()
        },
        "refused": list(refused),
        "effective_sample_size": weights.effective_sample_size,
        "largest_weight": weights.largest,
        "mean_weight": weights.mean,
        "left_out": {reason.value: count for reason, count in found.left_out.items()},
    }


def _facts(answer: Answer) -> Iterator[tuple[str, object]]:
    report = answer.report
    yield "policy", answer.policy
    yield "from", answer.request.log or f"the store, point {answer.point}"
    yield "decisions read", number(report.read)
    if report.left_out:
        yield "left out", _counted(report.left_out)
    if report.unexplored:
        yield "unsafe to explore", f"{number(report.unexplored)} without support"
    low, high = report.reward_range
    seen = " (as observed; set --reward-range if more is possible)" if report.observed else ""
    yield "reward range", f"{number(low)} to {number(high)}{seen}"


def _tables(answer: Answer) -> Iterator[RenderableType]:
    level = f"{answer.request.confidence:.0%}"
    report = answer.report
    sections = [("one decision by the policy, the others as logged", report.decisions)]
    if report.rollouts is not None:
        sections.append(("whole rollouts by the policy", report.rollouts))
    for title, found in sections:
        yield ""
        yield facts_of(_weights(title, found))
        rows = [
            (
                name.value.upper(),
                number(one.value),
                number(one.standard_error),
                _interval(one.bootstrap),
                _interval(one.bernstein),
            )
            for name, one in found.estimates.items()
            if not one.refused
        ]
        if rows:
            columns = ("estimate", "value#", "error#", f"bootstrap {level}", f"anytime {level}")
            yield table_of(columns, rows)
        yield facts_of([("in short", bottom_line(found))])


def bottom_line(found: Evaluation) -> str:
    """Return what an estimate comes to in words, by the estimator that is trusted most."""
    named = next(name for name in TRUSTED if name in found.estimates)
    one = found.estimates[named]
    if one.refused:
        return "too little was logged of what this policy would do, so nothing is estimated"
    told = f"{named.value.upper()} {number(one.value)} against {number(found.logged)} as logged"
    if one.bootstrap is None or found.logged is None:
        return told
    low, high = one.bootstrap
    better, worse = low > found.logged, high < found.logged
    words = "probably better" if better else "probably worse" if worse else "no clear difference"
    return f"{told}, interval {_interval(one.bootstrap)}: {words}"


def _weights(title: str, found: Evaluation) -> Iterator[tuple[str, object]]:
    weights = found.weights
    yield title, ""
    yield "  used", number(weights.decisions)
    if found.left_out:
        yield "  left out", _counted({one.value: count for one, count in found.left_out.items()})
    yield "  mean reward as logged", number(found.logged)
    yield "  effective sample size", number(weights.effective_sample_size)
    yield "  largest weight", number(weights.largest)
    refused = next((one.refused for one in found.estimates.values() if one.refused), ())
    if refused:
        yield f"  {INSUFFICIENT}", "; ".join(refused)


def _interval(found: tuple[float, float] | None) -> str:
    return "-" if found is None else f"{number(found[0])} to {number(found[1])}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number(count)} {name}" for name, count in counts.items())
