"""``tau-live evaluate``: the estimated reward of a policy, from the log of another."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from math import inf, isnan
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import RenderableType

from tau_live.cli import completion
from tau_live.cli.engines import engine_of, engine_options
from tau_live.cli.options import epilog, json_option, open_store, settings_of, store_option
from tau_live.cli.output import (
    facts_of,
    number,
    print_all,
    print_json,
    progress_bar,
    table_of,
    when,
)
from tau_live.core.errors import PolicyError
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Settings
from tau_live.decisions.policies import load_policy, policy_config
from tau_live.learn.evaluation.files import records_of
from tau_live.learn.evaluation.records import (
    Function,
    Records,
    Target,
    best_fixed,
    constant,
    function_target,
    policy_target,
    stored_records,
    uniform,
)
from tau_live.learn.evaluation.report import PASSES, EvalRequest, Report, joint_report, report_of
from tau_live.record.rewards import reward_range
from tau_live.rl.engine import Engine
from tau_live.rl.evaluation.estimators import Estimator
from tau_live.rl.evaluation.log import Reason
from tau_live.rl.evaluation.report import INSUFFICIENT, Evaluation
from tau_live.rl.features import WIDTH
from tau_live.rl.policy import Policy
from tau_live.store.roles import Store

TRUSTED = (Estimator.DR, Estimator.WPDIS, Estimator.SNIPS, Estimator.IPS, Estimator.PDIS)
"""The estimators for the summary in words; the first available one is used."""

UNIFORM, BEST_FIXED, CONSTANT = "uniform", "best-fixed", "constant:"
FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


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
    "--policy", "policies", required=True, multiple=True, metavar="POLICY",
    help="A version, 0 for the untrained policy, `uniform`, `best-fixed`, `constant:OPTION`, or a "
    "function of your own, `module:function`. For several points together, POINT=POLICY; repeat.",
    shell_complete=completion.versions,
)  # fmt: skip
@click.option(
    "--log", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A log from elsewhere (.jsonl or .csv) instead of the store's decisions.",
)  # fmt: skip
@click.option("--context", multiple=True, help="With --log: a column to take as context; repeat.")
@click.option(
    "--point", help="The decision point.  [default: that of the version]",
    shell_complete=completion.points,
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
@engine_options
@store_option
@json_option
def evaluate(
    path: Path | None, as_json: bool, engine: str, workers: int | None, **options: object
) -> None:
    """Estimate what POLICY would have earned, from decisions made by another policy.

    Only decisions with a known propensity are used; the others are left out and counted.
    If too little is left for an estimate, the exit code is 4.
    """
    request = Request(**options)  # type: ignore[arg-type]  # click has checked each of them
    with engine_of(engine, workers) as chosen, progress_bar(quiet=as_json) as bar:
        task = bar.add_task("decisions", total=None)
        answer = evaluate_request(
            request,
            path,
            engine=chosen,
            tell=lambda more: bar.update(task, advance=more),
            expect=lambda decisions: bar.reset(task, total=PASSES * decisions),
        )
    if as_json:
        print_json(to_dict(answer))
    else:
        print_all(facts_of(_facts(answer)), *_tables(answer))
    if answer.report.refusals:
        click.echo(f"tau-live: {INSUFFICIENT}: {'; '.join(answer.report.refusals)}", err=True)
        raise click.exceptions.Exit(4)


class Request(NamedTuple):
    """The options of the command."""

    policies: tuple[str, ...]
    log: Path | None
    context: tuple[str, ...]
    point: str | None
    since: float | None
    limit: int | None
    reward_range: tuple[float, float] | None
    weight_cap: float | None
    confidence: float


class Answer(NamedTuple):
    """The result of an evaluation."""

    policy: str
    point: str | None
    request: Request
    report: Report


class Part(NamedTuple):
    """A policy, the log of its point, and what it would have done there."""

    name: str
    point: str | None
    logged: Records
    target: Target


def evaluate_request(
    request: Request,
    path: Path | None,
    *,
    engine: Engine,
    tell: Callable[[int], None],
    expect: Callable[[int], None],
) -> Answer:
    """Return the evaluation of a request: of one policy, or of policies of several points.

    Raises:
        TauLiveError: There is no such policy, point, store or log, or it cannot be read.
    """
    _check(request)
    is_joint = len(request.policies) > 1
    if request.log is not None and _version_of(request.policies[0]) is None:
        settings = settings_of(path)
        parts = [_part(None, settings, request, spec=request.policies[0], wanted=None, tell=tell)]
    else:
        with open_store(path) as (store, settings):
            parts = [
                _part(store, settings, request, spec=policy, wanted=at or request.point, tell=tell)
                for policy, at in _by_point(request)
            ]
    expect(sum(len(part.logged.records) for part in parts))
    span = reward_range if is_joint else declared_range
    options = EvalRequest(
        reward_range=request.reward_range or (span(settings) if request.log is None else None),
        weight_cap=request.weight_cap,
        confidence=request.confidence,
        seed=settings.seed,
        engine=engine,
    )
    if not is_joint:
        part = parts[0]
        report = report_of(part.logged, part.target, options, tell=tell)
        return Answer(part.name, part.point, request, report)
    report = joint_report([(part.logged, part.target) for part in parts], options, tell=tell)
    names = ", ".join(f"{part.point}={part.name}" for part in parts)
    return Answer(names, ", ".join(point for _, point in _by_point(request)), request, report)


def _by_point(request: Request) -> list[tuple[str, str]]:
    """Return the policies with their points; one policy alone has none in its name."""
    if len(request.policies) == 1:
        return [(request.policies[0], "")]
    pairs = dict(text.split("=", 1) for text in request.policies if "=" in text)
    return [(policy, point) for point, policy in pairs.items()]


def _part(
    store: Store | None,
    settings: Settings,
    request: Request,
    *,
    spec: str,
    wanted: str | None,
    tell: Callable[[int], None],
) -> Part:
    """Return a policy with its log: the given file, or the decisions of the store.

    Raises:
        TauLiveError: There is no such policy or point, or something cannot be read.
    """
    version = _version_of(spec)
    function = _function_of(spec) if version is None else None
    policy = None if version is None or store is None else _policy(store, settings, version)
    width = WIDTH if policy is None else policy.config.width
    if request.log is not None or store is None:
        point, log = None, request.log or Path()
        logged = records_of(log, context=request.context or None, width=width, tell=tell)
    else:
        point = _point(store, version, wanted)
        logged = stored_records(
            store,
            settings,
            point,
            since=request.since,
            limit=request.limit,
            width=width,
            with_features=function is not None,
            tell=tell,
        )
    if policy is not None:
        name = f"version {version}" if version else "version 0, untrained"
        return Part(name, point, logged, policy_target(policy))
    if function is not None:
        return Part(spec, point, logged, function_target(function, spec))
    name, target = _rule(spec, logged)
    return Part(name, point, logged, target)


def _check(request: Request) -> None:
    is_joint = len(request.policies) > 1
    if is_joint and len(_by_point(request)) < len(request.policies):
        raise click.UsageError("several policies need a point each: --policy POINT=POLICY")
    if is_joint and (request.point or request.limit or request.log is not None):
        raise click.UsageError("--point, --limit and --log are for one policy alone")
    low, high = request.reward_range or (0.0, 1.0)
    if not 0.0 < high - low < inf:
        raise click.BadParameter(
            f"expected finite LOW < HIGH, got {low} and {high}", param_hint="--reward-range"
        )
    for number_, option in (
        (request.confidence, "--confidence"),
        (request.weight_cap, "--weight-cap"),
    ):
        if number_ is not None and isnan(number_):  # click takes NaN to be within every range
            raise click.BadParameter("expected a number, got nan", param_hint=option)
    if request.context and request.log is None:
        raise click.UsageError("--context belongs to --log")
    if request.log is not None and (request.point or request.since or request.limit):
        raise click.UsageError("--point, --since and --limit are for the store, not for --log")


def _rule(spec: str, logged: Records) -> tuple[str, Target]:
    """Return the name of a rule and what it would have done.

    Raises:
        PolicyError: There is no such rule, or no decision had its option.
    """
    if spec == UNIFORM:
        return spec, uniform
    if spec == BEST_FIXED:
        option = best_fixed(logged)
        return f"{BEST_FIXED} ({option})", uniform if option is None else constant(option)
    if not spec.startswith(CONSTANT):
        raise PolicyError(
            f"no policy {spec!r}: name a version, {UNIFORM}, {BEST_FIXED}, {CONSTANT}OPTION, "
            "or module:function"
        )
    option = spec.removeprefix(CONSTANT)
    known = {name for record in logged.records for name in record.options}
    if option not in known:
        listed = ", ".join(sorted(known)[:10]) or "none"
        raise PolicyError(f"no decision had an option {option!r}; options: {listed}")
    return spec, constant(option)


def _version_of(spec: str) -> int | None:
    return int(spec) if spec.isascii() and spec.isdigit() else None


def _function_of(spec: str) -> Function | None:
    """Return the function of ``module:function``; ``None`` if the text is no such name.

    Raises:
        PolicyError: The module cannot be imported, or has no such function.
    """
    if spec.startswith(CONSTANT) or not FUNCTION.fullmatch(spec):
        return None
    module, _, name = spec.partition(":")
    sys.path.insert(0, "")  # where the command was given, as with `python -m`
    try:
        candidate = getattr(importlib.import_module(module), name, None)
    except Exception as error:  # somebody else's code
        raise PolicyError(f"cannot import {module}: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove("")
    if not callable(candidate):
        raise PolicyError(f"{module} has no function {name!r}")
    function: Function = candidate
    return function


def _policy(store: Store, settings: Settings, version: int) -> Policy:
    if version == 0:
        return Policy.initial(policy_config(settings))
    row = store.policies.version(version)
    if row.file not in store.checkpoints.names():
        raise PolicyError(f"the checkpoint of version {version} has been pruned")
    return load_policy(store.checkpoints, row)


def _point(store: Store, version: int | None, wanted: str | None) -> str:
    own = store.policies.version(version).point if version else None
    if own is not None and wanted not in (None, own):
        raise PolicyError(f"version {version} is for point {own!r}, not for {wanted!r}")
    known = store.rewards.ready_points()
    point = wanted or own or (known[0] if len(known) == 1 else None)
    listed = ", ".join(map(repr, known)) or "none yet"
    if point is None:
        raise PolicyError(f"choose a --point; points with rewarded rollouts: {listed}")
    if point not in known:
        raise PolicyError(f"no rewarded rollout decided at {point!r}; known points: {listed}")
    return point


def declared_range(settings: Settings) -> tuple[float, float] | None:
    """Return the range of declared rewards; ``None`` if one is unbounded."""
    if len(settings.rewards) != 1:
        return None
    reward = settings.rewards[0]
    if reward.range is None or not reward.weight:
        return None
    low, high = sorted(reward.weight * end for end in reward.range)
    return low, high


def to_dict(answer: Answer) -> JsonObject:
    """Return an evaluation for JSON."""
    report = answer.report
    return {
        "policy": answer.policy,
        "point": answer.point,
        "log": None if answer.request.log is None else str(answer.request.log),
        "read": report.read,
        "left_out": report.left_out,
        "unexplored": report.unexplored,
        "reward_range": report.reward_range,
        "range_observed": report.observed,
        "confidence": answer.request.confidence,
        "status": INSUFFICIENT if report.refusals else "ok",
        "decisions": _section(report.decisions),
        "rollouts": None if report.rollouts is None else _section(report.rollouts),
    }


def _section(evaluation: Evaluation) -> JsonObject:
    weights = evaluation.weights
    return {
        "logged": evaluation.logged,
        "used": weights.decisions,
        "estimates": {
            name.value: {
                "value": estimate.value,
                "standard_error": estimate.standard_error,
                "bootstrap": estimate.bootstrap,
                "bernstein": estimate.bernstein,
                "status": estimate.status,
            }
            for name, estimate in evaluation.estimates.items()
        },
        "refused": next((estimate.refused for estimate in evaluation.estimates.values()), ()),
        "effective_sample_size": weights.effective_sample_size,
        "largest_weight": weights.largest,
        "mean_weight": weights.mean,
        "left_out": evaluation.left_out,
    }


def _facts(answer: Answer) -> list[tuple[str, object]]:
    report = answer.report
    low, high = report.reward_range
    seen = " (as observed; set --reward-range if more is possible)" if report.observed else ""
    unexplored = f"{number(report.unexplored)} without support" if report.unexplored else None
    return [
        ("policy", answer.policy),
        ("from", answer.request.log or f"the store, point {answer.point}"),
        ("decisions read", number(report.read)),
        ("left out", _counts_text(report.left_out)),
        ("unsafe to explore", unexplored),
        ("reward range", f"{number(low)} to {number(high)}{seen}"),
    ]


def _tables(answer: Answer) -> Iterator[RenderableType]:
    level = f"{answer.request.confidence:.0%}"
    columns = ("estimate", "value#", "error#", f"bootstrap {level}", f"anytime {level}")
    report = answer.report
    sections = [("one decision by the policy, the others as logged", report.decisions)]
    if report.rollouts is not None:
        sections.append(("whole rollouts by the policy", report.rollouts))
    for title, evaluation in sections:
        yield ""
        yield facts_of(_weights(title, evaluation))
        rows = [
            (
                name.value.upper(),
                number(estimate.value),
                number(estimate.standard_error),
                _interval(estimate.bootstrap),
                _interval(estimate.bernstein),
            )
            for name, estimate in evaluation.estimates.items()
            if not estimate.refused
        ]
        if rows:
            yield table_of(columns, rows)
        yield facts_of([("in short", bottom_line(evaluation))])


def bottom_line(evaluation: Evaluation) -> str:
    """Return an estimate in words, by the most trusted estimator."""
    estimator = next(name for name in TRUSTED if name in evaluation.estimates)
    estimate = evaluation.estimates[estimator]
    if estimate.refused:
        return "too little was logged of what this policy would do, so nothing is estimated"
    logged = number(evaluation.logged)
    text = f"{estimator.value.upper()} {number(estimate.value)} against {logged} as logged"
    if estimate.bootstrap is None or evaluation.logged is None:
        return text
    low, high = estimate.bootstrap
    better, worse = low > evaluation.logged, high < evaluation.logged
    words = "probably better" if better else "probably worse" if worse else "no clear difference"
    return f"{text}, interval {_interval(estimate.bootstrap)}: {words}"


def _weights(title: str, evaluation: Evaluation) -> list[tuple[str, object]]:
    weights = evaluation.weights
    refusals = [estimate.refused for estimate in evaluation.estimates.values() if estimate.refused]
    return [
        (title, ""),
        ("  used", number(weights.decisions)),
        ("  left out", _counts_text(evaluation.left_out)),
        ("  mean reward as logged", number(evaluation.logged)),
        ("  effective sample size", number(weights.effective_sample_size)),
        ("  largest weight", number(weights.largest)),
        (f"  {INSUFFICIENT}", "; ".join(refusals[0]) if refusals else None),
    ]


def _interval(bounds: tuple[float, float] | None) -> str:
    return "-" if bounds is None else f"{number(bounds[0])} to {number(bounds[1])}"


def _counts_text(counts: Mapping[str, int] | Mapping[Reason, int]) -> str | None:
    return ", ".join(f"{number(count)} {name}" for name, count in counts.items()) or None
