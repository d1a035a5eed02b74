"""``tau-live experience``: lessons in words, learned from groups of attempts, and proven."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import click

from tau_live.cli.commands import OneLineError
from tau_live.cli.optimize import STOPPED, store_option
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
    facts_of,
    moment,
    print_all,
    print_json,
    printable,
    suggest,
    table_of,
)
from tau_live.cli.terminal import interrupting
from tau_live.core.errors import ConfigError, StoreUnavailableError, TauLiveError, UnknownError
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Settings
from tau_live.operate.optimizations import optimization_status, state_now
from tau_live.store.opening import open_at
from tau_live.store.records import Optimization, OptimizationState
from tau_live.store.roles import Store

if TYPE_CHECKING:
    from tau_live.experience.log import Change, Log
    from tau_live.experience.runner import Loaded, Preflight
    from tau_live.experience.tasks import Split
    from tau_live.store.sealing import Keys

Command = TypeVar("Command", bound=Callable[..., None])

FEATURE = "FEATURE_TFGRPO_GROUP"
KEY_VARIABLE = "TAU_LIVE_RL_AUDIT_KEY_FILE"
DEMO = Path(".tau/experience-demo")

_ON = frozenset({"1", "true", "yes", "on"})
_OFF = frozenset({"", "0", "false", "no", "off"})

GIVEN = ("tasks", "pack", "model", "learner-model", "agent", "seed", "epochs", "group-size",
         "sample-size", "task-id")  # fmt: skip
"""The settings that `run` takes as options, too."""


def is_on(environ: Mapping[str, str], directory: Path) -> bool:
    """Return whether lessons are switched on; warn of a switch that means nothing."""
    raw = environ.get(FEATURE)
    if raw is not None:
        word = raw.strip().casefold()
        if word not in _ON | _OFF:
            click.echo(f"warning: {FEATURE}={printable(raw)} means off: set it to 1", err=True)
        return word in _ON
    from tau_live.core.settings.sources import PYPROJECT, own_table, read_toml

    for folder in (directory.absolute(), *directory.absolute().parents):
        path = folder / PYPROJECT
        if path.is_file() and b"tfgrpo" in path.read_bytes():
            table = (own_table(read_toml(path)) or {}).get("tfgrpo")
            if isinstance(table, Mapping) and "enabled" in table:
                return table["enabled"] is True
    return False


def switched_on_or_refuse() -> None:
    """Refuse a command while lessons are off. Raises: TauLiveError."""
    if not is_on(os.environ, Path()):
        raise TauLiveError(
            f"lessons are off: set {FEATURE}=1, or enabled = true in [tool.tau-live.tfgrpo]"
        )
    if find_spec("pydantic_ai") is None:
        raise TauLiveError("lessons need an extra: pip install 'tau-live[tfgrpo]'")


@contextmanager
def _storing(settings: Settings, *, create: bool = False, changes: bool = True) -> Iterator[Store]:
    if not create and not settings.store.exists():
        raise StoreUnavailableError(
            f"no store at {settings.store}: `tau-live experience run` makes one"
        )
    key_file = settings.audit_key_file
    with closing(open_at(settings.store, key_file=key_file, read_only=not changes)) as store:
        yield store


def _keys(settings: Settings) -> "Keys":
    """Return the stamping keys, and take their file out of what other processes inherit."""
    from tau_live.store.sealing import Keys

    keys = Keys.read(settings.audit_key_file)
    os.environ.pop(KEY_VARIABLE, None)
    return keys


def run_of(store: Store, name: str | None) -> Optimization:
    """Return a run of lessons by its id; ``latest`` or ``None`` is the newest.

    Raises:
        UnknownError: There is no such run.
        TauLiveError: There is none at all.
    """
    if name not in {None, "latest"}:
        run = store.optimizations.run(str(name))
        if run.kind != "experience":
            raise UnknownError("run of lessons", run.run_id)
        return run
    newest = store.optimizations.runs("experience", limit=1)
    if not newest:
        raise TauLiveError("no run of lessons is stored: `tau-live experience run` makes one")
    return newest[0]


@click.group(
    epilog=epilog(
        "experience",
        "tau-live experience demo",
        "tau-live experience run --tasks tasks.jsonl --pack pack --model openai/gpt-5-mini",
        "tau-live experience list",
    ),
)
def experience() -> None:
    """Let an agent get better by what it writes down: lessons, each measured and proven.

    Groups of attempts at one task are compared by a model, which says what the better ones did.
    Only lessons that are measured to help get into a prompt, and only a pool that has passed a
    test on tasks that nothing has seen is offered to live agents. Off unless FEATURE_TFGRPO_GROUP=1
    or `enabled = true` in [tool.tau-live.tfgrpo].
    """


def _options(function: Command) -> Command:
    """Give a command the options of settings."""
    for name in reversed(GIVEN):
        help_ = f"In place of the setting `{name}`."
        function = click.option(f"--{name}", metavar="VALUE", help=help_)(function)
    return function


@click.command(
    epilog=epilog(
        "experience run",
        "tau-live experience run --dry-run",
        "tau-live experience run --tasks families:units --pack pack --model openai/gpt-5-mini",
        "tau-live experience run --resume latest",
    )
)
@_options
@click.option("--dry-run", is_flag=True, help="Check everything and print what it takes.")
@click.option("--resume", "resumed", metavar="RUN", help="Resume a run, or the `latest`.")
@store_option
@json_option
def run(
    *, dry_run: bool, resumed: str | None, path: Path, as_json: bool, **given: str | None
) -> None:
    """Run groups of attempts, learn lessons from them, and prove what they are worth.

    The settings are those of [tool.tau-live.tfgrpo] or of the pipeline, the environment
    (TFGRPO_...), and the options here, each beating those before. Ctrl-C or SIGTERM interrupts a
    run, which can be resumed.
    """
    start_lessons(path=path, dry_run=dry_run, resumed=resumed, as_json=as_json, given=given)


def start_lessons(
    *, path: Path, dry_run: bool, resumed: str | None, as_json: bool,
    given: Mapping[str, str | None] = MappingProxyType({}),
) -> None:  # fmt: skip
    """Run groups of attempts, or resume a run.

    Raises:
        TauLiveError: Lessons are off, or something that they need is missing.
    """
    switched_on_or_refuse()
    _run(_values(given), path=path, dry_run=dry_run, resumed=resumed, as_json=as_json)


def _run(
    given: Mapping[str, object], *, path: Path, dry_run: bool, resumed: str | None, as_json: bool
) -> None:
    from tau_live.experience.runner import begin, preflight, resume
    from tau_live.prompts.budget import Prices

    sys.path.insert(0, "")
    settings = settings_of(path, changes=not dry_run)
    loaded = _load(settings, given)
    before = preflight(loaded, Prices(settings.prices, settings.known_prices))
    _check_models(loaded)
    if dry_run:
        _print_preflight(loaded, before, as_json=as_json)
        return
    with interrupting(), _storing(settings, create=True) as store:
        _refuse_if_stopped(store, settings)
        if resumed is not None:
            run = resume(store, run_of(store, resumed), loaded)
        else:
            if not as_json:
                _print_preflight(loaded, before, as_json=False)
            run = begin(store, loaded, before, store_path=str(path))
        run = _lead(store, settings, run, loaded, as_json=as_json)
        _print_run(store, run, loaded, as_json=as_json)
    _fail_unless_completed(run)


def _load(settings: Settings, given: Mapping[str, object]) -> "Loaded":
    """Return everything that a run needs, after warnings and violations were printed."""
    from tau_live.experience.config import read_config
    from tau_live.experience.runner import load

    try:
        read = read_config(os.environ, Path(), given=given)
        loaded = load(read, _keys(settings))
    except ConfigError as error:
        for line in error.lines:
            click.echo(f"tau-live: {printable(line)}", err=True)
        raise click.exceptions.Exit(1) from error
    for warning in read.warnings:
        click.echo(f"warning: {printable(warning)}", err=True)
    return loaded


def _check_models(loaded: "Loaded") -> None:
    """Import what the settings name, and make their models without a call."""
    from tau_live.core.callables import load_callable
    from tau_live.experience.rewards import REQUIRED
    from tau_live.prompts.models import model_of

    config = loaded.config
    own = [name for name in config.rewarders if name not in REQUIRED]
    for ref in (config.agent, *own):
        if ref is not None:
            load_callable(ref)
    for ref in {config.model, config.learner_model} - {""}:
        model_of(ref)


def _lead(
    store: Store, settings: Settings, run: Optimization, loaded: "Loaded", *, as_json: bool
) -> Optimization:
    from tau_live.cli.optimize_progress import showing
    from tau_live.experience.runner import lead, preflight
    from tau_live.prompts.budget import Preflight as Most
    from tau_live.prompts.budget import Prices

    before = preflight(loaded, Prices(settings.prices, settings.known_prices))
    most = Most(0, before.attempts, before.evaluations, 0, 0, 0, before.calls, None, before.usd)
    if not as_json:
        click.echo(f"run {run.run_id}")
    try:
        with showing(most, quiet=as_json) as show:
            tell = (lambda _: None) if as_json else click.echo
            return lead(store, run, loaded, settings=settings, show=show, tell=tell)
    except KeyboardInterrupt:
        click.echo(f"\n{_resuming(run)}", err=True)
        raise


def _resuming(run: Optimization) -> str:
    return suggest(f"{run.run_id} goes on by `tau-live experience run --resume {run.run_id}`")


def _print_preflight(loaded: "Loaded", before: "Preflight", *, as_json: bool) -> None:
    splits = {split: len(own) for split, own in loaded.tasks.items() if own}
    if as_json:
        print_json({"preflight": before._asdict(), "splits": splits, **loaded.inputs})
        return
    from tau_live.experience.gates import LEAST_TEST, LEAST_VALIDATION

    is_small = splits.get("validation", 0) < LEAST_VALIDATION or splits.get("test", 0) < LEAST_TEST
    calls = "the agent's own" if before.calls is None else f"at most {before.calls:,}"
    print_all(
        facts_of(
            [
                ("tasks", ", ".join(f"{count} {split}" for split, count in splits.items())),
                ("evidence", "too few tasks: a smoke test, nothing ships" if is_small else None),
                ("attempts", f"{before.attempts:,} in groups, at most {before.evaluations:,} more"),
                ("learner", f"at most {before.learner_calls:,} calls"),
                ("model calls", calls),
                ("tokens", None if before.tokens is None else f"at most {before.tokens:,}"),
                ("US dollars", "unknown" if before.usd is None else f"at most {before.usd:.2f}"),
            ]
        )
    )  # fmt: skip


def _report(store: Store, run: Optimization, runs: Path | None = None) -> JsonObject:
    """Return how a run stands, as JSON data."""
    steps = [*store.experience.steps(run.run_id)]
    test = next((step.content for step in steps if step.phase == "test"), {})
    train = [step for step in steps if step.phase == "train"]
    state, why = state_now(run)
    return {
        "run_id": run.run_id,
        "state": state.value,
        "reason_code": why,
        "error": run.error,
        "phase": run.phase,
        "epochs": max((step.epoch for step in train), default=0),
        "steps": len(train),
        "ship": test.get("ship"),
        "pool_version": test.get("version"),
        "test": test.get("row"),
        "budget": optimization_status(store, run)["budget"],
        "preflight": run.report.get("preflight"),
        "manifest": None if runs is None else str(runs / "cli" / run.run_id / "manifest.json"),
    }


def _print_run(store: Store, run: Optimization, loaded: "Loaded", *, as_json: bool) -> None:
    report = _report(store, run, loaded.runs)
    if as_json:
        print_json(report)
        return
    click.echo(f"manifest: {report['manifest']}")
    if report["ship"] == "shipped":
        click.echo(suggest("`tau-live experience ship --reason TEXT` offers it to live agents"))


@click.command(
    "eval",
    epilog=epilog(
        "experience eval",
        "tau-live experience eval --split test",
        "tau-live experience eval --pool E-4f53cda18c2b",
    ),
)
@_options
@click.option(
    "--split",
    type=click.Choice(["train", "validation", "test", "transfer"]),
    default="validation",
    show_default=True,
    help="The tasks.",
)
@click.option("--pool", "version", metavar="POOL", help="A pool.  [default: the one in force]")
@store_option
@json_option
def evaluate(
    *, split: "Split", version: str | None, path: Path, as_json: bool, **given: str | None
) -> None:
    """Measure a pool on the tasks of a split; nothing is learned."""
    from tau_live.experience.log import Log
    from tau_live.experience.runner import Evaluation, begin, preflight
    from tau_live.prompts.budget import Prices

    switched_on_or_refuse()
    sys.path.insert(0, "")
    settings = settings_of(path, changes=True)
    loaded = _load(settings, _values(given))
    _check_models(loaded)
    with interrupting(), _storing(settings, create=True) as store:
        _refuse_if_stopped(store, settings)
        pool = version or Log(store, loaded.keys).pool.version
        before = preflight(loaded, Prices(settings.prices, settings.known_prices))
        run = begin(store, loaded, before, store_path=str(path), evaluation=Evaluation(split, pool))
        run = _lead(store, settings, run, loaded, as_json=as_json)
        steps = [*store.experience.steps(run.run_id)]
    if as_json:
        figures = steps[0].content["row"] if steps else None
        print_json({"run_id": run.run_id, "state": run.state.value, "figures": figures})
    _fail_unless_completed(run)


def _values(given: Mapping[str, str | None]) -> dict[str, object]:
    return {key.replace("_", "-"): value for key, value in given.items() if value}


def _refuse_if_stopped(store: Store, settings: Settings) -> None:
    for stop in stops(store, settings):
        if stop.startswith(("the kill switch", "the gate")):
            click.echo(f"tau-live: {printable(suggest(stop))}", err=True)
            raise click.exceptions.Exit(STOPPED)


def _fail_unless_completed(run: Optimization) -> None:
    if run.state is not OptimizationState.COMPLETED:
        why = ": ".join(str(part) for part in (run.reason_code, run.error) if part)
        raise OneLineError(f"{run.run_id} {run.state}: {why}")


@click.command(epilog=epilog("experience status", "tau-live experience status --json | jq .phase"))
@click.argument("run_id", metavar="[RUN]", required=False)
@store_option
@json_option
def status(*, run_id: str | None, path: Path, as_json: bool) -> None:
    """Show how a run stands; by default it is the newest."""
    from tau_live.prompts.control import RESUMABLE

    with _storing(settings_of(path)) as store:
        run = run_of(store, run_id)
        report = _report(store, run)
        items = store.optimizations.items(run.run_id)
    if as_json:
        print_json(report)
        return
    why = f", {report['reason_code']}" if report["reason_code"] else ""
    done = f"{items.total - items.open} of {items.total} attempts"
    click.echo(f"{run.run_id} is {report['state']}{why}: {run.phase}, {done}")
    if report["ship"]:
        click.echo(f"the pool {report['pool_version']} is {report['ship']}")
    if report["reason_code"] in RESUMABLE and report["state"] == OptimizationState.FAILED:
        click.echo(_resuming(run))


def _controls(name: str) -> click.Command:
    @click.command(
        name,
        help=f"{name.capitalize()} a run from any process.\n\nBy default it is the newest.",
        epilog=epilog(f"experience {name}", f'tau-live experience {name} --reason "rate limits"'),
    )
    @click.argument("run_id", metavar="[RUN]", required=False)
    @reason_option
    @store_option
    @json_option
    def control(*, run_id: str | None, reason: str, path: Path, as_json: bool) -> None:
        from tau_live.prompts.control import move

        with _storing(settings_of(path, changes=True)) as store:
            run = run_of(store, run_id)
            moved = move(store, run.run_id, name, reason=reason, who=operator())
        if as_json:
            print_json(
                {
                    "run_id": run.run_id,
                    "state": moved.state.value,
                    "idempotent": moved.idempotent,
                    "audit_seq": moved.audit_seq,
                }
            )
        else:
            still = "still " if moved.idempotent else ""
            click.echo(f"{run.run_id} is {still}{moved.state}")

    return control


@contextmanager
def _reading(path: Path) -> "Iterator[tuple[Store, Log]]":
    """Open a store and its chains, verified, without a change."""
    from tau_live.experience.log import Log

    switched_on_or_refuse()
    settings = settings_of(path)
    with _storing(settings, changes=False) as store:
        yield store, Log(store, _keys(settings), repairs=False)


@click.command(
    "list", epilog=epilog("experience list", "tau-live experience list --json | jq .lessons")
)
@click.option("--all", "shows_all", is_flag=True, help="Also versions that are not in force.")
@store_option
@json_option
def list_(*, shows_all: bool, path: Path, as_json: bool) -> None:
    """List the lessons in force, with what each was measured to do."""
    with _reading(path) as (_, log):
        rows = _lessons_of(log, shows_all=shows_all)
        version = log.pool.version
    if as_json:
        print_json({"pool_version": version, "lessons": rows})
        return
    click.echo(f"pool {version}: {len(rows)} lessons")
    shown = [
        (
            f"{row['id']}@{row['version']}",
            _effect(row),
            f"{row['exposures']}/{row['withheld']}",
            len(list(row["support"])),  # type: ignore[call-overload]  # a list
            _sentence(row),
        )
        for row in rows
    ]
    print_all(table_of(["lesson", "uplift", "with/without", "tasks", "text"], shown))


def _lessons_of(log: "Log", *, shows_all: bool) -> list[JsonObject]:
    from tau_live.experience.operations import describe

    effects = log.effects()
    return [
        describe(lesson, effects.get(item), in_force=item in log.pool)
        for item, lesson in sorted(log.lessons.items())
        if shows_all or item in log.pool
    ]


def _effect(row: JsonObject) -> str:
    interval = row["interval"]
    if row["uplift"] is None or not isinstance(interval, list):
        return "not measured"
    low, high = interval
    return f"{row['uplift']:+.3f} ({low:+.3f} to {high:+.3f})"


def _sentence(row: JsonObject) -> str:
    """Return a lesson as a sentence."""
    begin = "Avoid: " if row["kind"] == "avoid" else ""
    return f"{begin}{row['summary32']}" + (f" (when {row['when']})" if row["when"] else "")


@click.command(epilog=epilog("experience show", "tau-live experience show x-000001"))
@click.argument("lesson_id", metavar="LESSON")
@store_option
@json_option
def show(*, lesson_id: str, path: Path, as_json: bool) -> None:
    """Show a lesson as a page of a notebook.

    What it says, when it holds, which tasks support it, what it was measured to do, and what it
    was made from.
    """
    with _reading(path) as (store, log):
        rows = [row for row in _lessons_of(log, shows_all=True) if row["id"] == lesson_id]
        if not rows:
            raise UnknownError("lesson", lesson_id)
        row = rows[-1]
        operations = _operations_of(store, lesson_id)
    if as_json:
        print_json({**row, "operations": operations})
        return
    support = list(row["support"])  # type: ignore[call-overload]  # a list
    parents = ", ".join(f"{id_}@{version}" for id_, version in row["parents"])  # type: ignore[attr-defined]  # a list
    click.echo(f"{lesson_id}, version {row['version']}")
    click.echo(f"\n    {_sentence(row)}\n")
    print_all(
        facts_of(
            [
                ("in force", "yes" if row["in_force"] else "no"),
                ("domain", row["domain"]),
                ("support", f"{len(support)} tasks: {', '.join(support[:5])}"
                 + (", ..." if len(support) > 5 else "")),
                ("uplift", _effect(row)),
                ("exposures", f"{row['exposures']} groups with it, {row['withheld']} without"),
                ("harm", None if row["harm"] is None else f"probability {row['harm']:.3f}"),
                ("made from", parents or "nothing before it"),
                ("learned", f"{moment(_seconds(row))} in {row['run_id']}, epoch {row['epoch']}"),
                ("model", row["model_id"]),
            ]
        )
    )  # fmt: skip
    for each in operations:
        click.echo(f"{each['op']:<10} {each['reason']} ({each['by']})")


def _seconds(row: JsonObject) -> float:
    return float(str(row["created_unix_ms"])) / 1000


def _operations_of(store: Store, lesson_id: str) -> list[JsonObject]:
    """Return the operations that concern a lesson, in order."""
    import json

    operations: list[JsonObject] = []
    for row in store.experience.chain("operations"):
        data = json.loads(row.content)
        if isinstance(data, dict) and lesson_id in {data.get("id"), *(data.get("ids") or ())}:
            operations.append(
                {
                    key: data.get(key)
                    for key in (
                        "seq",
                        "op",
                        "run_id",
                        "epoch",
                        "step",
                        "reason",
                        "by",
                        "pool_after",
                        "evidence",
                        "created_unix_ms",
                    )
                }
            )
    return operations


@click.command(epilog=epilog("experience history", "tau-live experience history x-000001"))
@click.argument("lesson_id", metavar="LESSON")
@store_option
@json_option
def history(*, lesson_id: str, path: Path, as_json: bool) -> None:
    """List every version of a lesson, and what was done with it."""
    with _reading(path) as (store, log):
        rows = [row for row in _lessons_of(log, shows_all=True) if row["id"] == lesson_id]
        operations = _operations_of(store, lesson_id)
    if not rows:
        raise UnknownError("lesson", lesson_id)
    if as_json:
        print_json({"versions": rows, "operations": operations})
        return
    print_all(
        table_of(
            ["version", "made", "uplift", "tasks", "text"],
            [
                (row["version"], moment(_seconds(row)), _effect(row), len(list(row["support"])),  # type: ignore[call-overload]  # a list
                 _sentence(row))
                for row in rows
            ],
        )
    )  # fmt: skip
    for each in operations:
        click.echo(f"{each['seq']:>5} {each['op']:<10} {each['reason']} ({each['by']})")


@click.command(
    epilog=epilog("experience diff", "tau-live experience diff E-4f53cda18c2b E-7653e6f3115c")
)
@click.argument("before")
@click.argument("after")
@store_option
@json_option
def diff(*, before: str, after: str, path: Path, as_json: bool) -> None:
    """Show how two versions of the pool differ."""
    with _reading(path) as (_, log):
        own, other = log.pool.of(before), log.pool.of(after)
        rows = [
            {
                "id": id_,
                "before": own.get(id_),
                "after": other.get(id_),
                "text": getattr(
                    log.lessons.get((id_, other.get(id_) or own.get(id_) or 0)), "summary32", None
                ),
            }
            for id_ in sorted({*own, *other})
            if own.get(id_) != other.get(id_)
        ]
    if as_json:
        print_json({"before": before, "after": after, "lessons": rows})
        return
    shown = [(row["id"], row["before"] or "-", row["after"] or "-", row["text"]) for row in rows]
    print_all(table_of(["lesson", "before", "after", "text"], shown))


@click.command(
    epilog=epilog(
        "experience verify",
        "tau-live experience verify",
        "tau-live experience verify --json > heads.json",
        "tau-live experience verify --head heads.json",
    )
)
@click.option(
    "--head", "head", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
    help="Heads kept elsewhere: a manifest, or what --json printed.",
)  # fmt: skip
@store_option
@json_option
def verify(*, head: Path | None, path: Path, as_json: bool) -> None:
    """Verify every record of lessons, their chains and the pool; exit with 1 if one is wrong.

    Only a head that was kept elsewhere shows that the end was cut off.
    """
    from tau_live.experience.operations import read_heads
    from tau_live.experience.operations import verify as check

    switched_on_or_refuse()
    settings = settings_of(path)
    with _storing(settings, changes=False) as store:
        report = check(store, _keys(settings), {} if head is None else read_heads(head))
    if as_json:
        print_json(report)
    else:
        heads, faults = report["heads"], report["faults"]
        for chain, own in heads.items():  # type: ignore[attr-defined]  # an object
            wrong = ", ".join(f"{n} {why}" for why, n in faults.get(chain, {}).items())  # type: ignore[attr-defined]  # an object
            cut = "; its end was cut off" if chain in report["cut"] else ""  # type: ignore[operator]  # a list
            click.echo(f"{chain}: {own['count']} records, {wrong or 'none'} wrong{cut}")
        click.echo(f"pool {report['pool_version']}: {report['lessons']} lessons")
    if not report["valid"]:
        raise click.exceptions.Exit(1)


@click.group(epilog=epilog("experience quarantine", "tau-live experience quarantine list"))
def quarantine() -> None:
    """List records that are not used, drop them, or stamp them anew."""


@click.command(
    "list", epilog=epilog("experience quarantine list", "tau-live experience quarantine list")
)
@store_option
@json_option
def quarantine_list(*, path: Path, as_json: bool) -> None:
    """List the records in quarantine, and why each is there."""
    switched_on_or_refuse()
    with _storing(settings_of(path), changes=False) as store:
        rows = [each._asdict() for each in store.experience.quarantine()]
    if as_json:
        print_json({"records": rows})
        return
    shown = [
        (row["seq"], row["chain"], row["name"], row["reason"], row["state"], moment(row["at"]))
        for row in rows
    ]
    print_all(table_of(["number", "chain", "record", "reason", "state", "since"], shown))


@click.command(
    epilog=epilog(
        "experience quarantine drop", 'tau-live experience quarantine drop 3 --reason "forged"'
    )
)
@click.argument("seq", metavar="NUMBER", type=int)
@reason_option
@store_option
@json_option
def drop(*, seq: int, reason: str, path: Path, as_json: bool) -> None:
    """Give up a record in quarantine; it stays on file."""
    from tau_live.experience.operations import drop as give_up

    switched_on_or_refuse()
    with _storing(settings_of(path, changes=True)) as store:
        give_up(store, seq, reason=reason, who=operator())
    _print({"number": seq, "state": "dropped"}, f"{seq} is dropped", as_json=as_json)


@click.command(
    epilog=epilog(
        "experience quarantine restamp",
        'tau-live experience quarantine restamp 3 --reason "our own edit"',
    )
)
@click.argument("seq", metavar="NUMBER", type=int)
@reason_option
@store_option
@json_option
def restamp(*, seq: int, reason: str, path: Path, as_json: bool) -> None:
    """Stamp a record anew, after you have read it."""
    from tau_live.experience.operations import restamp as stamp_anew

    switched_on_or_refuse()
    settings = settings_of(path, changes=True)
    with _storing(settings) as store:
        name = stamp_anew(store, _keys(settings), seq, reason=reason, who=operator())
    _print({"number": seq, "record": name, "state": "restamped"}, f"{name} is stamped anew",
           as_json=as_json)  # fmt: skip


def _print(data: JsonObject, text: str, *, as_json: bool) -> None:
    if as_json:
        print_json(data)
    else:
        click.echo(text)


@click.command(epilog=epilog("experience export", "tau-live experience export lessons"))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--reference-names", is_flag=True, help="Keys such as runId and createdAt.")
@store_option
@json_option
def export(*, folder: Path, reference_names: bool, path: Path, as_json: bool) -> None:
    """Write attempts, lessons and operations as JSON Lines into a folder."""
    from tau_live.experience.operations import export as write

    switched_on_or_refuse()
    settings = settings_of(path)
    with _storing(settings, changes=False) as store:
        counts = write(store, _keys(settings), folder, reference_names=reference_names)
    shown = ", ".join(f"{count} in {name}" for name, count in counts.items())
    _print({"files": counts}, f"{folder}: {shown}", as_json=as_json)


@click.command("import", epilog=epilog("experience import", "tau-live experience import lessons"))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
@store_option
@json_option
def import_(*, folder: Path, path: Path, as_json: bool) -> None:
    """Add what `export` wrote; every record is verified before any is stored."""
    from tau_live.experience.operations import import_ as add

    switched_on_or_refuse()
    settings = settings_of(path, changes=True)
    with _storing(settings, create=True) as store:
        counts = add(store, _keys(settings), folder)
    shown = ", ".join(f"{count} of {name}" for name, count in counts.items())
    _print({"files": counts}, f"imported {shown}", as_json=as_json)


@click.command(
    epilog=epilog("experience prune", 'tau-live experience prune x-000003 --reason "it is wrong"')
)
@click.argument("lessons", metavar="LESSON...", nargs=-1, required=True)
@reason_option
@store_option
@json_option
def prune(*, lessons: tuple[str, ...], reason: str, path: Path, as_json: bool) -> None:
    """Take lessons out of the pool."""
    from tau_live.experience.log import Change

    changes = [Change("PRUNE", reason, "operator", {"id": id_}) for id_ in lessons]
    _change(path, "prune", changes, reason=reason, as_json=as_json)


@click.command(
    epilog=epilog(
        "experience rollback",
        'tau-live experience rollback --to E-7653e6f3115c --reason "worse since"',
    )
)
@click.option("--to", "version", metavar="POOL", required=True, help="An earlier pool version.")
@reason_option
@store_option
@json_option
def rollback(*, version: str, reason: str, path: Path, as_json: bool) -> None:
    """Let an earlier pool return."""
    from tau_live.experience.log import Change

    change = Change("ROLLBACK", reason, "operator", {"pool_after": version})
    _change(path, "rollback", [change], reason=reason, as_json=as_json)


def _change(
    path: Path,
    name: str,
    changes: "Sequence[Change]",
    *,
    reason: str,
    as_json: bool,
) -> None:
    from tau_live.experience.operations import change_pool

    switched_on_or_refuse()
    settings = settings_of(path, changes=True)
    with _storing(settings) as store:
        version = change_pool(
            store, _keys(settings), changes, action=f"experience {name}", reason=reason,
            who=operator(),
        )  # fmt: skip
    _print({"pool_version": version}, f"the pool is {version}", as_json=as_json)


@click.command(
    epilog=epilog("experience ship", 'tau-live experience ship --reason "+54 points on test"')
)
@click.argument("run_id", metavar="[RUN]", required=False)
@reason_option
@store_option
@json_option
def ship(*, run_id: str | None, reason: str, path: Path, as_json: bool) -> None:
    """Offer the pool that a run has proven to live agents; by default the newest run's."""
    from tau_live.experience.operations import ship as put

    switched_on_or_refuse()
    settings = settings_of(path, changes=True)
    with _storing(settings) as store:
        run = run_of(store, run_id)
        names = put(store, _keys(settings), run, reason=reason, who=operator())
    _print({"run_id": run.run_id, "resources": names}, f"{', '.join(names)} published",
           as_json=as_json)  # fmt: skip


@click.command(
    epilog=epilog(
        "experience withdraw", 'tau-live experience withdraw E-7653e6f3115c --reason "complaints"'
    )
)
@click.argument("version", metavar="POOL")
@reason_option
@store_option
@json_option
def withdraw(*, version: str, reason: str, path: Path, as_json: bool) -> None:
    """Offer a pool to no live agent any more."""
    from tau_live.experience.operations import withdraw as take_out

    switched_on_or_refuse()
    with _storing(settings_of(path, changes=True)) as store:
        changed = take_out(store, version, reason=reason, who=operator())
    if not changed:
        raise UnknownError("pool in service", version)
    _print({"pool_version": version, "state": "withdrawn"}, f"{version} is withdrawn",
           as_json=as_json)  # fmt: skip


@click.group(epilog=epilog("experience pack", "tau-live experience pack init pack --domain units"))
def pack() -> None:
    """Make, stamp or check the prompts that a run works with."""


@click.command(
    "init",
    epilog=epilog("experience pack init", "tau-live experience pack init pack --domain units"),
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--domain", required=True, metavar="NAME", help="The domain of its tasks.")
@click.option("--id", "id_", metavar="NAME", help="Its name; by default the domain.")
@json_option
def pack_init(*, folder: Path, domain: str, id_: str | None, as_json: bool) -> None:
    """Write a new pack into an empty folder, to be edited and stamped."""
    from tau_live.experience.packs import init_pack

    switched_on_or_refuse()
    init_pack(folder, id=id_ or domain, domain=domain)
    text = f"{folder}: edit its texts, then `tau-live experience pack stamp {folder}`"
    _print({"folder": str(folder), "domain": domain}, text, as_json=as_json)


def _pack_command(name: str, help_: str) -> click.Command:
    @click.command(
        name,
        help=help_,
        epilog=epilog(f"experience pack {name}", f"tau-live experience pack {name} pack"),
    )
    @click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True))
    @json_option
    def command(*, folder: Path, as_json: bool) -> None:
        from tau_live.experience.packs import load_pack, stamp_pack

        switched_on_or_refuse()
        keys = _keys(settings_of(None))
        own = stamp_pack(folder, keys) if name == "stamp" else load_pack(folder, keys)
        data = {"id": own.id, "domain": own.domain, "digest": own.digest, "stamp": own.stamp}
        _print(data, f"{own.id} ({own.domain}) {own.digest[:12]} is stamped", as_json=as_json)

    return command


@click.command(epilog=epilog("experience demo", "tau-live experience demo"))
@click.option(
    "--store", "path", metavar="PATH", default=DEMO / "store.sqlite", callback=remember_store,
    type=StoreType(), help="The store of the demo.",
    show_default=True,
)  # fmt: skip
@json_option
def demo(*, path: Path, as_json: bool) -> None:
    """Watch an agent that lacks a rule find it, offline, in about a minute.

    A stub model forgets the unit of its answers. In three epochs of groups the rule is found,
    measured, accepted, proven on a test and offered to a live agent; an order that was planted in
    an attempt is refused, and a lesson that harms is pruned.
    """
    from tau_live.cli.demo.lessons import play

    if find_spec("pydantic_ai") is None:
        raise TauLiveError("lessons need an extra: pip install 'tau-live[tfgrpo]'")
    play(path, as_json=as_json)


for command in (
    run, evaluate, status, *map(_controls, ("pause", "resume", "cancel")), list_, show, history,
    diff, verify, quarantine, export, import_, prune, rollback, ship, withdraw, pack, demo,
):  # fmt: skip
    experience.add_command(command)
for command in (quarantine_list, drop, restamp):
    quarantine.add_command(command)
for command in (
    pack_init,
    _pack_command("stamp", "Stamp a pack, after you have read it."),
    _pack_command("check", "Check the stamp of a pack, and all of its files."),
):
    pack.add_command(command)
