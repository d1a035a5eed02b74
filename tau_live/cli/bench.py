"""``tau-live bench``: evidence on fixed suites, which a stranger can recompute."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tau_live.cli.bench_operations import drill, gate, ops
from tau_live.cli.bench_publication import archive, gc_reports, index, keeping_options, publish
from tau_live.cli.options import (
    StoreType,
    checked_run_id,
    enabled_or_refuse,
    epilog,
    json_option,
    remember_store,
    root_of,
    root_option,
    settings_of,
    store_option,
)
from tau_live.cli.output import (
    facts_of,
    plural,
    print_all,
    print_json,
    printable,
    progress_bar,
    table_of,
)
from tau_live.cli.terminal import interrupting
from tau_live.core.errors import TauLiveError
from tau_live.core.sanitize import JsonObject

if TYPE_CHECKING:
    from tau_live.evidence.artifacts import Root
    from tau_live.evidence.proving import Proved
    from tau_live.evidence.records import Inputs, Role
    from tau_live.evidence.reports import Keeping
    from tau_live.evidence.validation import Validation

TOO_FEW = 4
"""The exit code where there is too little evidence."""

LEVELS = {
    "records": "its records",
    "store": "its records and the store",
    "re_executed": "its records and the store; some was executed again",
}
SHOWN = 20
"""How many errors of an artifact are printed for people."""

DEMO_ROOT = Path(".tau/bench-demo")

run_id_option = click.option(
    "--run-id", required=True, metavar="ID", callback=checked_run_id, help="Such as m24-route-7."
)
workers_option = click.option(
    "--workers",
    default=1,
    show_default=True,
    type=click.IntRange(1, 64),
    help="How many episodes are executed at once.",
)


@contextmanager
def importing_from(root: "Root") -> Iterator[None]:
    """Import agents, scorers and functions from the project first, as ``python -m`` would."""
    folder = str(root.folder)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


@click.group(
    epilog=epilog(
        "bench",
        "TAU_LIVE_RL=1 tau-live bench demo",
        "tau-live bench freeze --suite tool-use-suite-v1 --baseline host --trained "
        "policy:route@7 --seeds 1,2,3 --run-id m24-route-7",
        "tau-live bench prove --run-id m24-route-7",
    )
)
def bench() -> None:
    """Prove on a fixed suite that something is better and no less safe, and check such proofs."""


# Suites


@bench.group("suite", epilog=epilog("bench suite", "tau-live bench suite list"))
def suite() -> None:
    """List or check suites."""


@suite.command("list", epilog=epilog("bench suite list", "tau-live bench suite list"))
@json_option
def list_suites(*, as_json: bool) -> None:
    """List the suites that ship."""
    from tau_live.evidence.artifacts import Root
    from tau_live.evidence.suites import SHIPPED, load_suite, suite_names

    loaded = [load_suite(f"{SHIPPED}{name}", Root(Path())) for name in suite_names()]
    rows = [
        {
            "suite_id": item.suite.suite_id, "suite_version": item.suite.suite_version,
            "family": item.suite.family, "cases": len(item.suite.cases), "sha256": item.sha256,
        }
        for item in loaded
    ]  # fmt: skip
    if as_json:
        print_json({"suites": rows})
        return
    columns = ("suite_id", "suite_version", "family", "cases")
    cells = [[row[column] for column in columns] for row in rows]
    print_all(table_of(("suite", "version", "family", "cases#"), cells))


@suite.command("check", epilog=epilog("bench suite check", "tau-live bench suite check mine.json"))
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@json_option
def check_suite(*, file: Path, as_json: bool) -> None:
    """Check a suite, and print everything that is wrong with it."""
    from tau_live.evidence.artifacts import parse, read_bytes
    from tau_live.evidence.suites import problems_of

    document = parse(read_bytes(file, str(file)))
    problems = problems_of(document)
    if as_json:
        print_json({"path": str(file), "valid": not problems, "problems": problems})
    elif problems:
        for problem in problems:
            click.echo(printable(f"{file}: {problem}"))
    else:
        cases = document["cases"] if isinstance(document, dict) else []
        click.echo(f"ok - {plural(len(cases), 'case')}")
    if problems:
        sys.exit(1)


# Runs


def _seeds(ctx: click.Context, parameter: click.Parameter, value: str) -> list[int]:
    del ctx
    if re.fullmatch("[0-9]{1,19}(,[0-9]{1,19})*", value) is None:
        raise click.BadParameter(f"must be as 1,2,3, got {value!r}", param=parameter)
    seeds = [int(seed) for seed in value.split(",")]
    if len({*seeds}) < len(seeds):
        raise click.BadParameter(f"must name each seed once, got {value!r}", param=parameter)
    return seeds


def _subject(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    from tau_live.evidence.subjects import FORMS, is_reference

    del ctx
    if not is_reference(value):
        text = f"must be one of {', '.join(FORMS)}, got {value!r}"
        raise click.BadParameter(text, param=parameter)
    return value


@bench.command(
    epilog=epilog(
        "bench freeze",
        "tau-live bench freeze --suite tool-use-suite-v1 --baseline host "
        "--trained policy:route@7 --seeds 1,2,3 --run-id m24-route-7",
    )
)
@click.option("--suite", "suite_name", required=True, metavar="FILE", help="Or one that ships.")
@click.option(
    "--baseline", required=True, callback=_subject, metavar="SUBJECT", help="What is in force."
)
@click.option(
    "--trained",
    required=True,
    callback=_subject,
    metavar="SUBJECT",
    help="What is claimed to be better.",
)
@click.option("--seeds", required=True, callback=_seeds, metavar="A,B,C", help="At least three.")
@click.option("--episodes", type=click.IntRange(1), metavar="N", help="Of each role.")
@click.option("--model", "model_ref", metavar="PROVIDER/NAME", help="For prompts and the host.")
@click.option("--agent", metavar="MODULE:NAME", help="An agent whose decisions are measured.")
@click.option("--temperature", default=0.0, show_default=True, type=click.FloatRange(0.0, 2.0))
@click.option("--criteria", "criteria_file", type=click.Path(path_type=Path), metavar="FILE")
@run_id_option
@root_option
@store_option
@json_option
def freeze(  # noqa: PLR0913  # its options
    *,
    suite_name: str,
    baseline: str,
    trained: str,
    seeds: list[int],
    episodes: int | None,
    model_ref: str | None,
    agent: str | None,
    temperature: float,
    criteria_file: Path | None,
    run_id: str,
    folder: Path,
    path: Path | None,
    as_json: bool,
) -> None:
    """Freeze what a run measures, before its first episode; it never changes after that.

    A SUBJECT is policy:POINT@VERSION, checkpoint:FILE, prompt:VERSION, host (the agent's own
    choice), or python:package.module:callable. `{seed}` in it stands for each seed in turn.
    """
    from tau_live.evidence.artifacts import Names, as_kind, parse, plain, read_bytes
    from tau_live.evidence.running import Frozen, store_of
    from tau_live.evidence.running import freeze as freeze_inputs
    from tau_live.evidence.subjects import agent_ref
    from tau_live.rl.criteria import Criteria

    if agent is not None and model_ref is not None:
        raise click.UsageError("--agent and --model exclude each other")
    criteria = Criteria()
    if criteria_file is not None:
        criteria = as_kind(parse(read_bytes(criteria_file, str(criteria_file))), Criteria)
    settings, root = settings_of(path), root_of(folder)
    with importing_from(root):
        model_ref = agent_ref(agent) if agent else model_ref
    wanted = Frozen(
        suite_name, baseline, trained, seeds, episodes=episodes, temperature=temperature,
        model_ref=model_ref, criteria=criteria,
    )  # fmt: skip
    with importing_from(root), closing(store_of(settings)) as store:
        inputs = freeze_inputs(root, run_id, wanted, store=store, settings=settings)
    if as_json:
        print_json(plain(inputs))
        return
    print_all(facts_of(_plan_facts(inputs, Names(run_id).inputs)))


def _plan_facts(inputs: "Inputs", path: str) -> Iterator[tuple[str, str]]:
    from tau_live.rl.paired import planned_pairs

    yield "frozen", path
    yield "suite", f"{inputs.suite.suite_id}, {plural(inputs.suite.cases, 'case')}"
    yield "baseline", inputs.roles.baseline.subject
    yield "trained", inputs.roles.trained.subject
    yield "episodes", f"{inputs.episodes:,} of each"
    known = ((0.10, 0.25), (0.05, 0.20), (0.03, 0.20))
    needed = ", ".join(f"{planned_pairs(d, q):,} to see {d:.2f}" for d, q in known)
    yield "pairs", f"{inputs.planned_pairs:,}; with 80 % power it takes {needed}"
    own = inputs.criteria
    needs = (
        f"at least {own.min_pairs} pairs, {own.min_reward_delta:g} better, "
        f"p at most {own.max_p_value:g}, "
        f"at most {own.max_safety_regression:g} more safety penalty, "
        f"at most {own.max_missing_share:.0%} missing"
    )
    yield "criteria", needs
    yield "next", f"tau-live bench prove --run-id {inputs.run_id}"


@contextmanager
def _progress(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal; SIGTERM interrupts like Ctrl-C."""
    last = (0, 0)

    with interrupting(), progress_bar(quiet=quiet) as bar:
        task = bar.add_task(what, total=None)

        def show(done: int, total: int) -> None:
            nonlocal last
            last = done, total
            bar.update(task, completed=done, total=total)

        try:
            yield show
        except KeyboardInterrupt:
            bar.stop()
            done, total = last
            click.echo(
                f"interrupted with {done:,} of {total:,} done; the same command goes on "
                "(`run` with --resume)",
                err=True,
            )
            raise


@bench.command(epilog=epilog("bench run", "tau-live bench run --run-id m24-route-7 --workers 4"))
@run_id_option
@click.option("--role", type=click.Choice(["baseline", "trained"]), help="[default: both, in turn]")
@click.option("--resume", is_flag=True, help="Go on with a run that was interrupted.")
@workers_option
@root_option
@store_option
@json_option
def run(  # noqa: PLR0913  # its options
    *, run_id: str, role: "Role | None", resume: bool, workers: int, folder: Path,
    path: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Execute the episodes that have no record yet; Ctrl-C interrupts, and --resume goes on."""
    from tau_live.evidence.artifacts import Names
    from tau_live.evidence.records import ROLES, read_inputs
    from tau_live.evidence.running import run as run_episodes

    settings, root = settings_of(path), root_of(folder)
    inputs, roles = read_inputs(root, run_id), [role] if role else [*ROLES]
    known = [item for item in roles if root.place(Names(run_id).records(item)).exists()]
    if known and not resume:
        raise TauLiveError(f"{run_id} has records of {' and '.join(known)}: add --resume to go on")
    began = time.monotonic()
    with importing_from(root), _progress("episodes", quiet=as_json) as show:
        ran = run_episodes(root, inputs, roles, settings=settings, workers=workers, show=show)
    if as_json:
        print_json({"run_id": run_id, **ran._asdict(), "seconds": time.monotonic() - began})
        return
    for item in ran.torn:
        click.echo(f"the last line of {item} was torn and is executed again", err=True)
    recorded = ", ".join(f"{count:,} of {item}" for item, count in ran.recorded.items())
    click.echo(f"{plural(ran.executed, 'episode')} executed; recorded: {recorded}")


@bench.command(epilog=epilog("bench compare", "tau-live bench compare --run-id m24-route-7"))
@run_id_option
@keeping_options
@root_option
@json_option
def compare(*, run_id: str, keeping: "Keeping | None", folder: Path, as_json: bool) -> None:
    """Write the reports of a run: baseline, trained, significance and safety regression."""
    from tau_live.evidence.artifacts import plain
    from tau_live.evidence.proving import compare as compare_roles
    from tau_live.evidence.proving import failures_of
    from tau_live.evidence.records import read_inputs

    root = root_of(folder)
    evidence, reports = compare_roles(root, read_inputs(root, run_id), keeping=keeping)
    own = reports.significance.significance
    _warn(failures_of(evidence))
    if as_json:
        print_json(plain(reports.significance))
    else:
        from tau_live.cli.bench_shown import comparison_facts

        limit = reports.safety.max_safety_regression
        print_all(facts_of(comparison_facts(own, limit=limit)))
    sys.exit(exit_code(own.reason_codes))


@bench.command(
    epilog=epilog("bench summary", "tau-live bench summary --run-id m24-all m24-a m24-b")
)
@click.argument("runs", nargs=-1, required=True, callback=checked_run_id, metavar="RUN_ID...")
@click.option(
    "--run-id", required=True, metavar="ID", callback=checked_run_id, help="Of the summary."
)
@keeping_options
@root_option
@json_option
def summary(
    *, runs: tuple[str, ...], run_id: str, keeping: "Keeping | None", folder: Path, as_json: bool
) -> None:
    """Write a summary of several runs, with p-values adjusted for being several."""
    from tau_live.evidence.artifacts import plain, timestamp
    from tau_live.evidence.reports import DEFAULT_KEEPING
    from tau_live.evidence.summary import summary_of, write_summary

    root = root_of(folder)
    result = summary_of(
        root, run_id, runs, timestamp(time.time()), keeping=keeping or DEFAULT_KEEPING
    )
    path = write_summary(root, result)
    if as_json:
        print_json(plain(result))
    else:
        cells = [
            [run.run_id, run.suite, run.pairs, "few pairs" if run.smoke else "", f"{adjusted:.4g}",
             "passed" if run.pass_ else "not passed"]
            for run, adjusted in zip(result.runs, result.holm, strict=True)
        ]  # fmt: skip
        print_all(table_of(("run", "suite", "pairs#", "", "adjusted p#", "verdict"), cells))
        click.echo(path)
    sys.exit(0 if result.counts.passed == result.counts.runs else 1)


@bench.command(epilog=epilog("bench repeatability", "tau-live bench repeatability m24-a m24-b"))
@click.argument("runs", nargs=-1, required=True, callback=checked_run_id, metavar="RUN_ID...")
@click.option("--tolerance", default=0.0, show_default=True, type=click.FloatRange(0.0))
@root_option
@json_option
def repeatability(*, runs: tuple[str, ...], tolerance: float, folder: Path, as_json: bool) -> None:
    """Compare runs of one subject, which are the same if it is deterministic."""
    from tau_live.evidence.artifacts import plain
    from tau_live.evidence.summary import repeatability_of

    result = repeatability_of(root_of(folder), runs, tolerance=tolerance)
    if as_json:
        print_json(plain(result))
    else:
        far = sum(not case.within_tolerance for case in result.case_reports.values())
        click.echo(
            f"{plural(len(result.case_reports), 'case')}, {far} beyond the tolerance of "
            f"{tolerance:g}; the largest range is {result.max_observed_range:g}"
        )
    sys.exit(0 if result.within_tolerance else 1)


def exit_code(reason_codes: list[str]) -> int:
    """Return the exit code of a verdict: 4 if there is too little evidence, 1 for other reasons."""
    if "insufficient_pairs" in reason_codes:
        return TOO_FEW
    return 1 if reason_codes else 0


@bench.command(epilog=epilog("bench prove", "tau-live bench prove --run-id m24-route-7"))
@run_id_option
@workers_option
@keeping_options
@root_option
@store_option
@json_option
def prove(
    *, run_id: str, workers: int, keeping: "Keeping | None", folder: Path, path: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Execute what is missing, compare, and write a proof that is validated with the store."""
    from tau_live.evidence.proving import prove as prove_run

    settings, root = settings_of(path), root_of(folder)
    with importing_from(root), _progress("episodes", quiet=as_json) as show:
        proved = prove_run(
            root, run_id, settings=settings, workers=workers, show=show, keeping=keeping
        )
    _print_proof(proved, as_json=as_json)


def _warn(lines: list[str]) -> None:
    for line in lines:
        click.echo(f"warning: {printable(line)}", err=True)


def _print_proof(proved: "Proved", *, as_json: bool) -> None:
    """Print a proof, and end with its exit code."""
    from tau_live.cli.bench_shown import proof_facts
    from tau_live.evidence.artifacts import plain

    _warn(proved.failures)
    if as_json:
        print_json(plain(proved.proof))
    else:
        print_all(facts_of(proof_facts(proved.proof, proved.reports.significance.significance)))
    sys.exit(exit_code(proved.proof.failure_analysis.reasons))


@bench.command(epilog=epilog("bench demo", "TAU_LIVE_RL=1 tau-live bench demo"))
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option(
    "--questions", type=click.IntRange(8, 20_000), default=1200, show_default=True,
    help="How many questions to learn from.",
)  # fmt: skip
@click.option(
    "--held-out", type=click.IntRange(40, 2_000), default=200, show_default=True,
    help="How many other questions to measure on.",
)  # fmt: skip
@click.option(
    "--root",
    "folder",
    metavar="DIR",
    default=DEMO_ROOT,
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where its store and its artifacts are written.",
)
@json_option
def demo(*, seed: int, questions: int, held_out: int, folder: Path, as_json: bool) -> None:
    """Prove that the demo's agent is better with what it learned, in two minutes, offline."""
    from tau_live.cli.demo.proof import prove_demo

    enabled_or_refuse("bench demo")
    folder.mkdir(parents=True, exist_ok=True)
    settings = replace(settings_of(None), store=folder / "store.sqlite")
    with interrupting(), progress_bar(quiet=as_json) as bar:
        task = bar.add_task("", total=None)
        proved = prove_demo(
            root_of(folder), settings, seed=seed, training=questions, held_out=held_out,
            show=lambda phase, done, total, _: bar.update(
                task, description=phase, completed=done, total=total
            ),
        )  # fmt: skip
    _print_proof(proved, as_json=as_json)


@bench.command(epilog=epilog("bench report", "tau-live bench report --run-id m24-route-7"))
@run_id_option
@click.option(
    "-o", "--output", "page", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
    help="The page.  [default: beside the reports]",
)  # fmt: skip
@root_option
@json_option
def report(*, run_id: str, page: Path | None, folder: Path, as_json: bool) -> None:
    """Write one HTML page of a run that is compared: its claim, its verdict, all its evidence.

    Every figure is computed again from the records, and files that differ are named. The page
    loads nothing, and can be printed.
    """
    from tau_live.cli.page.proof import proof_page
    from tau_live.cli.page.proof_facts import page_path, read_run
    from tau_live.cli.report import drawing
    from tau_live.core.files import opened_output
    from tau_live.evidence.artifacts import READABLE

    root, draw = root_of(folder), drawing("bench report")
    facts = read_run(root, run_id)
    place = page or folder / page_path(run_id)
    with opened_output(place, mode=READABLE) as file:
        file.write(proof_page(facts, draw))
    if as_json:
        print_json({"run_id": run_id, "page": str(place), "valid": facts.validation.valid})
    else:
        click.echo(f"written to {place}", err=True)
    if not facts.validation.valid:
        raise TauLiveError(f"{facts.validation.path} is not valid: the page says what is wrong")


# Checking


@bench.command(
    epilog=epilog(
        "bench validate",
        "tau-live bench validate tasks/reports/m24-benchmark-proof-m24-route-7.json",
        "tau-live bench validate --store runs.sqlite --re-execute 20 FILE",
    )
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--re-execute",
    default=0,
    metavar="K",
    type=click.IntRange(0),
    help="Execute K cases of a policy again, which the proof itself draws; needs --store.",
)
@click.option(
    "--root",
    "folder",
    metavar="DIR",
    default=Path(),
    type=click.Path(file_okay=False, path_type=Path),
    help="The project.  [default: the folder above tasks or .tau that the file lies in]",
)
@click.option(
    "--store",
    "path",
    metavar="PATH",
    callback=remember_store,
    type=StoreType(),
    help="Compare with this store, too, and check its seals.",
)
@json_option
def validate(
    *, files: tuple[Path, ...], re_execute: int, folder: Path, path: Path | None, as_json: bool
) -> None:
    """Recompute an artifact and all that it names, and print whatever is wrong.

    With --store, records are compared with the store, whose seals are checked.
    """
    from tau_live.evidence.kinds import OTHERS
    from tau_live.evidence.validation import Checked
    from tau_live.evidence.validation import validate as validate_file
    from tau_live.store.sealing import key_in

    if re_execute and path is None:
        raise click.UsageError("--re-execute needs --store, which has the policies")
    settings = None if path is None else settings_of(path)
    key = b"" if settings is None else key_in(settings.audit_key_file)
    result = [
        validate_file(
            file,
            Checked(
                root_of(_project_of(file) if folder == Path() else folder), settings=settings,
                key=key, re_execute=re_execute, others=OTHERS,
            ),
        )
        for file in files
    ]  # fmt: skip
    if as_json:
        print_json({"artifacts": [_validation_json(item) for item in result]} if len(result) > 1
                   else _validation_json(result[0]))  # fmt: skip
    else:
        for item in result:
            _print_validation(item)
    sys.exit(0 if all(item.valid for item in result) else 1)


def _project_of(file: Path) -> Path:
    """Return the project that a file lies in: the folder above ``tasks`` or ``.tau``."""
    for parent in file.parents:
        if parent.parts[-2:] in {("tasks", "reports"), (".tau", "reports")}:
            return parent.parent.parent
    return Path()


def _validation_json(result: "Validation") -> JsonObject:
    from tau_live.evidence.artifacts import plain

    return {**plain(result), "errors": [error._asdict() for error in result.errors]}


def _print_validation(result: "Validation") -> None:
    if result.valid:
        program = Path(result.path).name.partition("-")[0]
        click.echo(f"ok - {program} {result.kind} artifact valid")
        click.echo(f"checked against: {LEVELS[result.level]}", err=True)
        return
    for error in result.errors[:SHOWN]:
        place = f" {error.pointer}" if error.pointer else ""
        click.echo(printable(f"{result.path}: {error.code}{place}: {error.message}"))
    if len(result.errors) > SHOWN:
        click.echo(f"{result.path}: {len(result.errors) - SHOWN} more: see --json")


@bench.command(epilog=epilog("bench template", "tau-live bench template proof"))
@click.argument("kind")
def template(*, kind: str) -> None:
    """Print an empty artifact of a KIND, which is refused until it is filled in."""
    from tau_live.evidence.artifacts import template_of
    from tau_live.evidence.kinds import KINDS

    if kind not in KINDS:
        raise click.UsageError(f"no artifact {kind!r}: there are {', '.join(KINDS)}")
    click.echo(json.dumps(template_of(KINDS[kind]), indent=2))


for command in (drill, gate, ops, publish, archive, gc_reports, index):
    bench.add_command(command)
