"""``tau-live optimize``: better prompts, executed on tasks and adopted on evidence."""

import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from tau_live.cli.aliases import aliases
from tau_live.cli.commands import DEPRECATIONS, OneLineError
from tau_live.cli.optimize_report import print_candidates, print_prompt, print_report
from tau_live.cli.options import (
    StoreType,
    epilog,
    json_option,
    operator,
    reason_option,
    remember_store,
    settings_of,
    stops,
)
from tau_live.cli.output import (
    STORE,
    facts_of,
    moment,
    plural,
    print_all,
    print_json,
    printable,
    seconds,
    suggest,
    table_of,
)
from tau_live.cli.terminal import interrupting
from tau_live.core.errors import ConfigError, StoreUnavailableError, TauLiveError
from tau_live.core.processes import this_process
from tau_live.core.prompts import prompt_version
from tau_live.core.records import Attempt
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Settings
from tau_live.core.settings.kinds import nearest
from tau_live.operate.optimizations import (
    FILE,
    optimization_status,
    publish_optimization,
    state_now,
)
from tau_live.store.opening import open_at
from tau_live.store.records import Condition, Optimization, OptimizationState
from tau_live.store.roles import Store

if TYPE_CHECKING:
    from tau_live.prompts.budget import Preflight
    from tau_live.prompts.config import Budget, Loaded
    from tau_live.prompts.control import Moved

DEFAULT_STORE = Path(".tau/training/store.sqlite")
DEMO_STORE = Path(".tau/optimize-demo/store.sqlite")
"""The store of the built-in example, whose prompt is none for live agents."""

STORE_VARIABLE = "TAU_PROMPT_OPTIMIZATION_STORE_SQLITE"

STOPPED = 3
"""The exit code where the kill switch or the gate forbids to start."""

NOT_ADOPTED = 4
"""The exit code where adoption was required, and nothing was adopted."""


store_option = click.option(
    "--store",
    "path",
    metavar="PATH",
    envvar=STORE_VARIABLE,
    default=DEFAULT_STORE,
    callback=remember_store,
    type=StoreType(),
    help=f"The store of the runs.  [default: {DEFAULT_STORE}]",
)


@click.group(
    invoke_without_command=True,
    epilog=epilog(
        "optimize",
        "tau-live optimize --demo",
        "tau-live optimize --config tasks.json --model openai/gpt-5-mini",
        "tau-live optimize --config tasks.json --dry-run",
    ),
)
@click.option(
    "--config",
    "config_path",
    metavar="FILE",
    envvar="TAU_PROMPT_OPTIMIZATION_CONFIG",
    type=click.Path(path_type=Path),
    help="The tasks and everything else, as JSON or TOML.",
)
@click.option("--demo", is_flag=True, help="Run the built-in example: offline, for nothing.")
@click.option("--model", metavar="PROVIDER/NAME", help="The model, in place of the config's.")
@click.option("--dry-run", is_flag=True, help="Check everything and print what it takes at most.")
@click.option("--resume", "resumed", metavar="RUN", help="Resume a run, or the `latest`.")
@click.option("--require-adoption", is_flag=True, help="Exit with 4 if nothing is adopted.")
@click.option("--yes", is_flag=True, help="Do not ask before the first call.")
@store_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    envvar="TAU_PROMPT_OPTIMIZATION_JSON",
    help="Print JSON, on one line.",
)
@click.pass_context
def optimize(  # noqa: PLR0913  # its options
    ctx: click.Context,
    *,
    config_path: Path | None,
    demo: bool,
    model: str | None,
    dry_run: bool,
    resumed: str | None,
    require_adoption: bool,
    yes: bool,
    path: Path,
    as_json: bool,
) -> None:
    """Find a better prompt: candidates are executed, and adopted only on evidence.

    Tasks, and a model or an agent to run them with, stand in a config. A critic and an editor write
    candidates, workers execute them, and the best is tested against the prompt in force on tasks
    that the search never read. Ctrl-C or SIGTERM interrupts a run, which can be resumed.
    """
    if ctx.invoked_subcommand is not None:
        return
    given = sum([config_path is not None, demo, resumed is not None])
    if not given or (demo and given > 1):
        raise click.UsageError("give one of --config FILE, --demo and --resume RUN", ctx)
    if dry_run and resumed is not None:
        raise click.UsageError("--dry-run needs --config FILE", ctx)
    _needs_extra()
    sys.path.insert(0, "")
    if dry_run:
        sys.dont_write_bytecode = True  # of modules that the config names
    if demo and ctx.get_parameter_source("path") is ParameterSource.DEFAULT:
        path = DEMO_STORE
    settings = settings_of(path, changes=not dry_run)
    if resumed is not None:
        with interrupting(), _storing(settings, resumes=True) as store:
            _refuse_if_stopped(store, settings)
            run, loaded = _resume(store, settings, resumed, config_path=config_path, model=model)
            run = _lead(store, settings, run, loaded, as_json=as_json)
            _end(store, run, needs=require_adoption, as_json=as_json)
        return
    config_path = config_path or _demo_config(None if dry_run else path.parent)
    loaded = _load(config_path, model, settings)
    _check_named(loaded, needs_keys=not dry_run)
    if dry_run:
        _dry_run(loaded, settings, as_json=as_json)
        return
    with interrupting(), _storing(settings, create=True) as store:
        _refuse_if_stopped(store, settings)
        loaded = _warn_if_empty(store, loaded)
        asks = not (yes or demo or as_json) and sys.stdin.isatty() and sys.stdout.isatty()
        run = _begin(
            store, settings, loaded, config_path, shown_path=str(path), asks=asks, as_json=as_json
        )
        run = _lead(store, settings, run, loaded, as_json=as_json)
        _end(store, run, needs=require_adoption, as_json=as_json)


def _demo_config(folder: Path | None) -> Path:
    """Write the demo's config into a folder, by default a temporary one, and return its path."""
    from tau_live.prompts.demo import write_demo

    if folder is not None:
        return write_demo(folder)
    temporary = TemporaryDirectory()
    click.get_current_context().call_on_close(temporary.cleanup)
    return write_demo(Path(temporary.name))


def _end(store: Store, run: Optimization, *, needs: bool, as_json: bool) -> None:
    """Print what a run found, and exit with its code."""
    status = optimization_status(store, run)
    if as_json:
        print_json({**status, "failures": _failures(store, run), "report": run.report})
    else:
        print_report(store, run, status)
    if run.state is not OptimizationState.COMPLETED:
        why = ": ".join(str(part) for part in (run.reason_code, run.error) if part)
        raise OneLineError(f"{run.run_id} {run.state}: {why}")
    if needs and _outcome(status) != "adopted":
        raise click.exceptions.Exit(NOT_ADOPTED)


def _needs_extra() -> None:
    if find_spec("pydantic_ai") is None:  # importing it takes as long as all else of a dry run
        raise TauLiveError("`tau-live optimize` needs an extra: pip install 'tau-live[optimize]'")


@contextmanager
def _storing(settings: Settings, *, create: bool = False, resumes: bool = False) -> Iterator[Store]:
    """Open the store, and note the death of those that led its runs, unless one is resumed."""
    from tau_live.prompts.control import store_deaths

    if not create and not settings.store.exists():
        raise StoreUnavailableError(
            f"no store at {settings.store}: `tau-live optimize --config FILE` makes one"
        )
    with closing(open_at(settings.store, key_file=settings.audit_key_file)) as store:
        if not resumes:
            store_deaths(store)
        yield store


def _refuse_if_stopped(store: Store, settings: Settings) -> None:
    click.get_current_context().meta[STORE] = settings.store  # others have another default
    for stop in stops(store, settings):
        if stop.startswith(("the kill switch", "the gate")):
            click.echo(f"tau-live: {printable(suggest(stop))}", err=True)
            raise click.exceptions.Exit(STOPPED)


def _load(config_path: Path, model: str | None, settings: Settings) -> "Loaded":
    """Return a config, after its deprecations and warnings were printed."""
    from tau_live.prompts.budget import check_prices
    from tau_live.prompts.config import read_config
    from tau_live.prompts.optimizer import prices_of

    try:
        loaded = read_config(config_path, model=model)
        check_prices(loaded.config, prices_of(settings), path=str(config_path))
    except ConfigError as error:
        for line in error.lines:
            click.echo(f"tau-live: {printable(line)}", err=True)
        code = click.UsageError.exit_code if error.is_usage else 1
        raise click.exceptions.Exit(code) from error
    for deprecation in loaded.deprecations:
        click.echo(deprecation.line, err=True)
    for warning in loaded.warnings:
        _warn(warning)
    sys.path.insert(0, str(config_path.resolve().parent))
    flags = click.get_current_context().meta.get(DEPRECATIONS, ())
    return loaded._replace(deprecations=[*flags, *loaded.deprecations])


def _check_named(loaded: "Loaded", *, needs_keys: bool = True) -> None:
    """Import what a config names, and make its models without a call, before anything is stored.

    Args:
        loaded: The config.
        needs_keys: Whether the key of a provider has to be there; else it is a warning.

    Raises:
        ConfigError: There is no such callable.
        TauLiveError: There is no such model, or it cannot be used here.
    """
    from tau_live.core.callables import load_callable
    from tau_live.prompts.models import lacks_key, model_of

    config, search = loaded.config, loaded.config.search
    for ref in (config.agent, *(scorer.callable for scorer in config.scorers)):
        if ref is not None:
            load_callable(ref)
    critics = (search.critic_model, search.editor_model) if search.algorithm != "none" else ()
    for ref in (config.model, *critics, *(scorer.model for scorer in config.scorers)):
        if ref is None:
            continue
        try:
            model_of(ref)
        except TauLiveError as error:
            if needs_keys or not lacks_key(error):
                raise
            _warn(str(error))


def _warn(text: str) -> None:
    click.echo(f"warning: {printable(text)}", err=True)


def _warn_if_empty(store: Store | None, loaded: "Loaded") -> "Loaded":
    """Return a config with a warning, which is printed, if there is no prompt to begin with."""
    config = loaded.config
    stored = {} if store is None else store.resources.latest()
    if config.prompt_key in config.resources or config.prompt_key in stored:
        return loaded
    near = nearest(config.prompt_key, config.resources)
    hint = f"; did you mean '{near}'?" if near else ""
    text = f"resource '{config.prompt_key}' is empty: the search begins with an empty prompt{hint}"
    _warn(text)
    return loaded._replace(warnings=[*loaded.warnings, text])


def _dry_run(loaded: "Loaded", settings: Settings, *, as_json: bool) -> None:
    if settings.store.exists():
        with closing(open_at(settings.store, read_only=True, traceless=True)) as store:
            loaded = _warn_of_replaced(store, _warn_if_empty(store, loaded))
            before = _preflight(store, loaded, settings)
    else:
        loaded = _warn_if_empty(None, loaded)
        before = _preflight(None, loaded, settings)
    if as_json:
        config = loaded.config
        print_json(
            {
                "config_digest": loaded.digest,
                "preflight": before._asdict(),
                "config": config.model_dump(mode="json", by_alias=True),
                "search_skipped": loaded.search_skipped,
                "warnings": list(loaded.warnings),
                "deprecations": [known._asdict() for known in loaded.deprecations],
            }
        )
    else:
        _print_preflight(before, loaded)
        click.echo("the config is valid; nothing was run")


def _warn_of_replaced(store: Store, loaded: "Loaded") -> "Loaded":
    """Warn if a config puts an adopted prompt out of force."""
    from tau_live.prompts.adoption import replaced_version

    key, resources = loaded.config.prompt_key, loaded.config.resources
    version = replaced_version(store, key, resources)
    if version is None:
        return loaded
    instead = prompt_version(str(resources[key]))
    warning = (
        f"'resources' puts {instead} in force in place of {version}, which was adopted: leave "
        f"'{key}' out to go on from {version}"
    )
    _warn(warning)
    return loaded._replace(warnings=[*loaded.warnings, warning])


def _preflight(store: Store | None, loaded: "Loaded", settings: Settings) -> "Preflight":
    from tau_live.prompts.budget import preflight
    from tau_live.prompts.optimizer import prices_of

    config = loaded.config
    text = config.resources.get(config.prompt_key)
    if text is None and store is not None:
        known = store.resources.latest().get(config.prompt_key)
        text = None if known is None else known.content
    return preflight(config, loaded.rows, incumbent=str(text or ""), prices=prices_of(settings))


def _print_preflight(before: "Preflight", loaded: "Loaded") -> None:
    from tau_live.prompts.config import SETS
    from tau_live.prompts.scorers import can_be_scored

    skipped, least = loaded.search_skipped, loaded.config.adoption.min_pairs
    rows = {SETS[mode]: own for mode, own in loaded.rows.items()}
    pairs = sum(can_be_scored(loaded.config.scorers, row) for row in rows["validate"])
    few = f"too little for an adoption: {pairs} rows of 'validate' can be scored, not {least}"
    print_all(
        facts_of(
            [
                ("rows", ", ".join(f"{len(own)} {name}" for name, own in rows.items())),
                ("evidence", few if pairs < least else None),
                ("candidates", f"at most {before.candidates}"),
                ("search skipped", skipped and skipped.replace("_", " ")),
                ("search items", f"at most {before.search_items:,}"),
                ("confirm items", f"at most {before.confirm_items:,}"),
                ("policy items", f"{before.policy_items:,}" if before.policy_items else None),
                ("test items", f"at most {before.test_items:,}" if before.test_items else None),
                ("model calls", _calls(before)),
                ("tokens", None if before.tokens is None else f"at most {before.tokens:,}"),
                ("US dollars", "unknown" if before.usd is None else f"at most {before.usd:.4f}"),
                ("budget", _end_by_budget(before, loaded.config.budget)),
            ]
        )
    )


def _calls(before: "Preflight") -> str:
    return "the agent's own" if before.calls is None else f"at most {before.calls:,}"


def _end_by_budget(before: "Preflight", budget: "Budget") -> str | None:
    """Return where the budget ends a run before all that it takes at most; ``None`` if nowhere."""
    limits = [
        (budget.calls, before.calls, f"{budget.calls or 0:,} calls"),
        (budget.tokens, before.tokens, f"{budget.tokens or 0:,} tokens"),
        (budget.usd, before.usd, f"${budget.usd or 0.0:g}"),
        (budget.rollouts, before.items, f"{budget.rollouts or 0:,} items"),
        (budget.seconds, None, seconds(budget.seconds)),
    ]
    ends = [
        shown
        for limit, most, shown in limits
        if limit is not None and (most is None or limit < most)
    ]
    return f"the budget ends it at {' or '.join(ends)}" if ends else None


def _resume(
    store: Store, settings: Settings, name: str, *, config_path: Path | None, model: str | None
) -> "tuple[Optimization, Loaded]":
    """Take over a run, and return it with its config, which must be as it was.

    Raises:
        TauLiveError: Its config or its model is another one by now, or it cannot be resumed.
    """
    from tau_live.prompts.optimizer import resume

    run = run_of(store, name)
    path = config_path or Path(run.config_path)
    if model not in {None, _model_of(run)}:
        raise TauLiveError(f"{run.run_id} began with the model {_model_of(run)}: start another run")
    _import_as_leader(run)
    loaded = _load(path, _model_of(run), settings)
    if loaded.digest != run.config_digest:
        raise TauLiveError(f"{path} has changed since {run.run_id} began: start another run")
    _check_named(loaded)
    resume(store, run.run_id, who=operator())
    return store.optimizations.run(run.run_id), loaded


def _import_as_leader(run: Optimization) -> None:
    """Let modules come from the folder in which a run began, before those of the current one."""
    folder = run.report.get("folder")
    if isinstance(folder, str):
        sys.path.insert(0, folder)


def _begin(  # noqa: PLR0913  # keyword-only but for the run
    store: Store,
    settings: Settings,
    loaded: "Loaded",
    config_path: Path,
    *,
    shown_path: str,
    asks: bool,
    as_json: bool,
) -> Optimization:
    """Print what a run takes at most, and begin it."""
    from tau_live.prompts.optimizer import begin, prices_of

    loaded = _warn_of_replaced(store, loaded)
    if not as_json:
        _print_preflight(_preflight(store, loaded, settings), loaded)
    if asks:
        click.confirm("Begin?", default=True, abort=True)
    return begin(store, loaded, config_path, store_path=shown_path, prices=prices_of(settings))


def _lead(
    store: Store, settings: Settings, run: Optimization, loaded: "Loaded", *, as_json: bool
) -> Optimization:
    """Lead a run to its end, and show its progress."""
    from tau_live.cli.optimize_progress import showing
    from tau_live.prompts.budget import Preflight
    from tau_live.prompts.optimizer import lead

    if not as_json:
        click.echo(f"run {run.run_id}")
    most = Preflight(**run.report["preflight"])  # type: ignore[arg-type]
    try:
        with showing(most, quiet=as_json) as show:
            return lead(store, run, loaded, settings=settings, who=operator(), show=show)
    except KeyboardInterrupt:
        click.echo(f"\n{_resuming(run)}", err=True)
        raise


def _resuming(run: Optimization) -> str:
    """Return how a run that was interrupted, or whose process died, goes on."""
    return suggest(f"{run.run_id} goes on by `tau-live optimize --resume {run.run_id}`")


def _model_of(run: Optimization) -> str | None:
    model = run.config.get("model")
    return model if isinstance(model, str) else None


def run_of(store: Store, name: str | None) -> Optimization:
    """Return a run by its id; ``latest`` or ``None`` is the newest.

    Raises:
        UnknownError: There is no such run.
        TauLiveError: There is none at all.
    """
    if name not in {None, "latest"}:
        return store.optimizations.run(str(name))
    newest = store.optimizations.runs("optimize", limit=1)
    if not newest:
        raise TauLiveError("no run is stored: `tau-live optimize --config FILE` makes one")
    return newest[0]


@click.command(
    "list",
    epilog=epilog("optimize list", "tau-live optimize list", "tau-live optimize list --json"),
)
@store_option
@json_option
def list_(*, path: Path, as_json: bool) -> None:
    """List the runs, newest first."""
    with _storing(settings_of(path)) as store:
        statuses = [optimization_status(store, run) for run in store.optimizations.runs("optimize")]
    if as_json:
        print_json({"runs": statuses})
        return
    rows = [
        (
            status["run_id"],
            status["run_state"],
            moment(int(str(status["started_unix_ms"])) / 1000),
            _outcome(status),
        )
        for status in statuses
    ]
    print_all(table_of(["run", "state", "began", "adoption"], rows))


def _outcome(status: JsonObject) -> str:
    adoption = status["adoption"]
    return str(adoption["reason_code"]) if isinstance(adoption, dict) else "-"


@click.command(
    epilog=epilog("optimize show", "tau-live optimize show", "tau-live optimize show RUN --json")
)
@click.argument("run_id", metavar="[RUN]", required=False)
@store_option
@json_option
def show(*, run_id: str | None, path: Path, as_json: bool) -> None:
    """Show the report of a run.

    It has scores, evidence, cost and every candidate. By default the run is the newest.
    """
    with _storing(settings_of(path)) as store:
        run = run_of(store, run_id)
        status = optimization_status(store, run)
        candidates = store.optimizations.candidates(run.run_id)
        if as_json:
            lineage, failures = [_plain(each) for each in candidates], _failures(store, run)
            print_json({**status, "failures": failures, "report": run.report, "lineage": lineage})
            return
        print_report(store, run, status)
    print_candidates(candidates)


def _failures(store: Store, run: Optimization) -> list[JsonObject]:
    return [failure._asdict() for failure in store.optimizations.failures(run.run_id)]


def _plain(record: object) -> JsonObject:
    import msgspec

    fields: JsonObject = msgspec.to_builtins(record)
    return fields


@click.command(
    epilog=epilog(
        "optimize prompts", "tau-live optimize prompts", "tau-live optimize prompts --json"
    )
)
@store_option
@json_option
def prompts(*, path: Path, as_json: bool) -> None:
    """List every prompt version.

    Each is listed once: its origin, score, state and text, and whether it is in force.
    """
    from tau_live.learn.promotion.prompts import prompt_statuses  # numpy, which others lack
    from tau_live.prompts.versions import prompt_versions

    settings = settings_of(path)
    with _storing(settings) as store:
        versions = prompt_versions(store)
        live = prompt_statuses(store, settings, now=time.time())
    if as_json:
        rows = [
            {
                **_plain(known.candidate),
                "also": [{"run_id": at.run_id, "label": at.label} for at in known.others],
                "resource": known.resource,
                "in_force": known.in_force,
                "live": live.get(known.candidate.version or ""),
            }
            for known in versions
        ]
        print_json({"prompts": rows})
        return
    for known in versions:
        print_prompt(known, live.get(known.candidate.version or ""))


def _controls(name: str) -> click.Command:
    @click.command(
        name,
        help=f"{name.capitalize()} a run from any process.\n\nBy default it is the newest.",
        epilog=epilog(f"optimize {name}", f'tau-live optimize {name} --reason "rate limits"'),
    )
    @click.argument("run_id", metavar="[RUN]", required=False)
    @reason_option
    @store_option
    @json_option
    def control(*, run_id: str | None, reason: str, path: Path, as_json: bool) -> None:
        from tau_live.prompts.control import move

        settings = settings_of(path, changes=True)
        with _storing(settings) as store:
            if name == "resume":
                _refuse_if_stopped(store, settings)
            run = run_of(store, run_id)
            moved = move(store, run.run_id, name, reason=reason, who=operator())
            run = store.optimizations.run(run.run_id)
            _report_control(store, run, name, moved, reason=reason, as_json=as_json)

    return control


def _report_control(
    store: Store, run: Optimization, action: str, moved: "Moved", *, reason: str, as_json: bool
) -> None:
    status = optimization_status(store, run)
    publish_optimization(store.path.with_name(FILE), status)
    if as_json:
        print_json(_control_report(store, status, action, moved, reason=reason))
    else:
        click.echo(f"{run.run_id} is {'still ' if moved.idempotent else ''}{status['run_state']}")


def _control_report(
    store: Store, status: JsonObject, action: str, moved: "Moved | None", *, reason: str
) -> JsonObject:
    """Return what an operator did to a run; ``moved`` is left out where its state stays."""
    run_id = status.get("run_id")
    recovery = store.optimizations.run(str(run_id)).report.get("recovery") if run_id else None
    return {
        "schema_version": 1,
        "action": action,
        "principal": operator(),
        "run_id": run_id,
        "lifecycle_state": status.get("run_state"),
        "idempotent": moved is not None and moved.idempotent,
        "reason": reason,
        "store_path": str(store.path),
        "audit_seq": store.audit.entries(limit=1)[0].seq if moved is None else moved.audit_seq,
        "training_status": status or None,
        **({"recovery": recovery} if recovery else {}),
    }


@click.command(epilog=epilog("optimize status", "tau-live optimize status --json | jq .progress"))
@click.argument("run_id", metavar="[RUN]", required=False)
@store_option
@json_option
def status(*, run_id: str | None, path: Path, as_json: bool) -> None:
    """Show how a run stands.

    By default it is the newest.
    """
    from tau_live.prompts.control import RESUMABLE

    with _storing(settings_of(path, changes=True)) as store:
        run = run_of(store, run_id)
        found = optimization_status(store, run)
    if as_json:
        print_json(found)
        return
    progress = found["progress"]
    done = f"{progress['done']} of {progress['total']} items" if isinstance(progress, dict) else ""
    why = f", {found['reason_code']}" if found["reason_code"] else ""
    click.echo(f"{run.run_id} is {found['run_state']}{why}: {run.phase}, {done}")
    if found["reason_code"] in RESUMABLE and found["run_state"] == OptimizationState.FAILED:
        click.echo(_resuming(run))


@click.command(
    epilog=epilog(
        "optimize rollback",
        'tau-live optimize rollback --reason "complaints"',
        'tau-live optimize rollback --to p-fa07597c3d9b --reason "complaints"',
    )
)
@click.option(
    "--to",
    "version",
    metavar="VERSION",
    help="A prompt version or its beginning, `NAME@NUMBER`, or a policy `prompt@RUN:NUMBER`.",
)
@click.option("--resource", default="system_prompt", show_default=True, help="The resource.")
@reason_option
@store_option
@json_option
def rollback(*, version: str | None, resource: str, reason: str, path: Path, as_json: bool) -> None:
    """Put an earlier prompt back.

    By default it is the one before the one in force. It is in force at once, without a trial. The
    policy of a run that learned to choose among prompts goes back to an earlier version too.
    """
    from tau_live.prompts.adoption import publish_earlier
    from tau_live.prompts.policy import is_policy, restore

    with _storing(settings_of(path, changes=True)) as store:
        if version is not None and is_policy(version):
            report = restore(store, version, reason=reason, who=operator())
            resource, number_ = version.rpartition(":")[0], report.policy_version
            text, put_back = None, report.policy_sha256
        else:
            number_ = publish_earlier(
                store, version, prompt_key=resource, reason=reason, who=operator()
            )
            text = str(store.resources.resource(resource, number_).content)
            put_back = prompt_version(text)
        if as_json:
            newest = store.optimizations.runs("optimize", limit=1)
            status = optimization_status(store, newest[0]) if newest else {}
            control = _control_report(store, status, "rollback", None, reason=reason)
            print_json({**control, "resource": resource, "version": number_, "text": text})
        else:
            click.echo(f"{resource} is at version {number_}, which is {put_back}")


@click.command(epilog=epilog("optimize worker", "tau-live optimize worker --store runs.sqlite"))
@click.option("--run", "run_id", metavar="RUN", help="The run to help.  [default: the newest]")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="How many items are executed at once.",
)
@store_option
def worker(*, run_id: str | None, workers: int, path: Path) -> None:
    """Help a run from another process.

    It works until the run has ended, or until Ctrl-C or SIGTERM, and then says what it did.
    """
    _needs_extra()
    sys.path.insert(0, "")
    settings = settings_of(path, changes=True)
    with interrupting(), _storing(settings) as store:
        from tau_live.prompts.optimizer import help_run

        run = run_of(store, run_id)
        _import_as_leader(run)
        loaded = _load(Path(run.config_path), _model_of(run), settings)
        _check_named(loaded)
        click.echo(f"helping {run.run_id} with {plural(workers, 'worker')}")
        try:
            help_run(store, run, loaded, settings=settings, count=workers)
        finally:
            own = Condition("owner", "is", this_process())
            state, _ = state_now(store.optimizations.run(run.run_id))
            did = plural(store.find(Attempt, own, limit=0).total, "item")
            click.echo(f"did {did} of {run.run_id}, which is {state}")


for command in (
    list_, show, prompts, status, _controls("pause"), _controls("resume"), _controls("cancel"),
    rollback, worker, aliases,
):  # fmt: skip
    optimize.add_command(command)
