"""``tau-live policy``: the versions, and which of them serve."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import NamedTuple, TypeVar

import click
from msgspec import structs
from rich.text import Text

from tau_live.cli import completion
from tau_live.cli.options import (
    epilog,
    json_option,
    open_store,
    operator,
    reason_option,
    run_default,
    store_option,
    warn_of_stops,
)
from tau_live.cli.output import as_json as json_of
from tau_live.cli.output import (
    facts_of,
    fitting,
    moment,
    percent,
    print_all,
    print_json,
    printable,
    records_of,
    safe,
    suggest,
    table_of,
)
from tau_live.core.errors import CheckpointError, OddRowError, PolicyError, UnknownError
from tau_live.core.records import InService, PolicyVersion, Trial
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import Point
from tau_live.decisions import checkpoints
from tau_live.decisions.policies import check_policy
from tau_live.learn.promotion.rules import Serving
from tau_live.operate import trials
from tau_live.operate.records import ServingVersion
from tau_live.operate.status import in_service
from tau_live.operate.trials import Changed, Order, state_of
from tau_live.store.roles import Store


class Use(NamedTuple):
    """The use of a version.

    Attributes:
        in_service: Whether it is in service.
        pinned: Whether it is in service and pinned.
        role: ``champion`` or ``previous champion``; ``None`` otherwise.
        has_file: Whether its file exists.
    """

    in_service: bool
    pinned: bool
    role: str | None
    has_file: bool


Callback = TypeVar("Callback", bound=Callable[..., None])
Act = Callable[[Store, Settings, Order], Changed]


def share_of(ctx: click.Context, parameter: click.Parameter, value: str | None) -> float:
    """Return a share of rollouts, given as ``0.25`` or ``25%``, as a number in ``[0, 1]``."""
    words = _share_as_point(ctx, parameter) if value is None else value.strip()
    share = _share(words)
    if share is None:
        raise click.BadParameter(
            f"expected 0 to 1, or 0% to 100%, got {words!r}", ctx=ctx, param=parameter
        )
    return share


def _share_as_point(ctx: click.Context, parameter: click.Parameter) -> str:
    """Return a share that was given alone, and so was taken for the point."""
    words: str = ctx.params.get("point") or ""
    if _share(words) is None:
        raise click.MissingParameter(ctx=ctx, param=parameter)
    if ctx.params.get("point_option") is None:
        raise click.UsageError("Missing argument 'POINT', which comes before the share", ctx)
    ctx.params["point"] = None
    return words


def _share(words: str) -> float | None:
    try:
        share = float(words.removesuffix("%")) / (100.0 if words.endswith("%") else 1.0)
    except ValueError:
        return None
    return share if 0.0 <= share <= 1.0 else None


def point_argument(callback: Callback) -> Callback:
    """Add POINT, which may also be given as ``--point POINT``."""

    @wraps(callback)
    def with_point(*, point: str | None, point_option: str | None, **others: object) -> None:
        if (point is None) == (point_option is None):
            raise click.UsageError("give the decision point, once")
        callback(point=point or point_option, **others)

    command = click.argument("point", required=False, shell_complete=completion.points)(with_point)
    return click.option("--point", "point_option", help="The same as POINT.")(command)  # type: ignore[return-value]  # click's commands take keywords alone


def command(
    name: str, *examples: str, help_: str | None = None
) -> Callable[[Callback], click.Command]:
    """Make a command that changes a point, with ``--reason``, ``--store`` and ``--json``."""

    def decorate(callback: Callback) -> click.Command:
        with_options = point_argument(reason_option(store_option(json_option(callback))))
        return click.command(name, help=help_, epilog=epilog(f"policy {name}", *examples))(
            with_options
        )

    return decorate


@command(
    "exposure",
    'tau-live policy exposure model 25% --reason "looks good in shadow"',
    'tau-live policy exposure model 1.0 --reason "act from the first run on"',
)
@click.argument("share", callback=share_of, required=False, metavar="SHARE")
def exposure(*, point: str, share: float, reason: str, path: Path | None, as_json: bool) -> None:
    """Set the SHARE of rollouts that the learner decides at POINT; a stopped learner starts again.

    With 0 it decides none but runs in shadow, so that its agreement with the host is known.
    From there it climbs as the evidence allows. A decision point of a host (model, prompt, params,
    tools, tool_gate or retry) can be exposed before the first run.
    """
    _act(
        partial(trials.expose, share=share),
        "policy_exposure",
        point,
        reason=reason,
        path=path,
        as_json=as_json,
        create=point in list(Point),
    )


@command("rollback", 'tau-live policy rollback model --reason "too expensive"')
@click.option("--pin", is_flag=True, help="Keep it until `unpin`: updates do not replace it.")
def rollback(*, point: str, reason: str, path: Path | None, as_json: bool, pin: bool) -> None:
    """Roll back POINT, in running processes too.

    To the previous champion while it keeps a share, else to the champion; if that decides already
    or there is none, to the previous version. Without --pin the next update continues from there.
    Use `undo` to revert a command given by mistake.
    """
    _act(
        partial(trials.roll_back, pin=pin),
        "policy_rollback",
        point,
        reason=reason,
        path=path,
        as_json=as_json,
    )


def _act(  # noqa: PLR0913  # the options of every verb, all keyword-only but three
    act: Act,
    action: str,
    point: str,
    *,
    reason: str,
    path: Path | None,
    as_json: bool,
    create: bool = False,
) -> None:
    order = Order(action, point, reason, operator(), time.time())
    with open_store(path, write=True, create=create) as (store, settings):
        changed = act(store, settings, order)
        warn_of_stops(store, settings)
    if as_json:
        print_json(changed)
    else:
        click.echo(change_text(changed))


def order_command(name: str, act: Act, example: str, help_: str) -> click.Command:
    """Return the command of an order without options."""

    @command(name, example, help_=help_)
    def callback(*, point: str, reason: str, path: Path | None, as_json: bool) -> None:
        _act(act, f"policy_{name}", point, reason=reason, path=path, as_json=as_json)

    return callback


def champion_command(name: str, act: Act, example: str, help_: str) -> click.Command:
    """Return the command of an order that makes a champion, which a proof may be required for."""

    @command(name, example, help_=help_)
    @click.option(
        "--proof",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="A proof of this version, as `tau-live bench prove` writes it.",
    )
    @click.option(
        "--root",
        "folder",
        metavar="DIR",
        default=Path(),
        type=click.Path(file_okay=False, path_type=Path),
        help="The project of the proof.  [default: the current folder]",
    )
    def callback(
        *, point: str, reason: str, path: Path | None, as_json: bool, proof: Path | None,
        folder: Path,
    ) -> None:  # fmt: skip
        from tau_live.evidence.artifacts import Root
        from tau_live.evidence.promotion import promote_on_proof

        on_proof = partial(promote_on_proof, act=act, proof=proof, root=Root(folder))
        _act(on_proof, f"policy_{name}", point, reason=reason, path=path, as_json=as_json)

    return callback


COMMANDS = [
    exposure,
    champion_command(
        "promote",
        trials.promote,
        'tau-live policy promote model --reason "better in the review"',
        """Make the learner's version at POINT the champion, at full exposure.

    This is what evidence does at the top of the ladder. The previous champion keeps 5 percent for
    TAU_LIVE_RL_PROBATION rollouts, and returns by itself if it proves better.
    With TAU_LIVE_RL_REQUIRE_PROOF it takes a valid proof of this version that passes.
    """,
    ),
    order_command(
        "reset",
        trials.reset,
        'tau-live policy reset model --reason "answers got too short"',
        """Take the learner's version at POINT out of service.

    Learning continues from the champion, or untrained if there is none, and the test restarts on
    the lowest rung. A champion on probation gives way to the previous one.
    """,
    ),
    champion_command(
        "freeze",
        trials.freeze_champion,
        'tau-live policy freeze model --reason "passed the review"',
        """Make the learner's version at POINT the champion.

    The previous champion keeps 5 percent for TAU_LIVE_RL_PROBATION rollouts, and returns by
    itself if it proves better.
    With TAU_LIVE_RL_REQUIRE_PROOF it takes a valid proof of this version that passes.
    """,
    ),
    rollback,
    order_command(
        "pin",
        trials.pin,
        'tau-live policy pin model --reason "wait for the review"',
        """Keep the learner's version at POINT: updates still learn but do not replace it.""",
    ),
    order_command(
        "unpin",
        trials.unpin,
        'tau-live policy unpin model --reason "reviewed"',
        """Put the newest version into service at POINT, and every one that updates make after it.

    A version that was rolled back or reset stays out of service; `use` puts it back.
    """,
    ),
    order_command(
        "undo",
        trials.undo,
        'tau-live policy undo model --reason "wrong point"',
        """Undo the last command at POINT: everything that it changed is restored.

    Later changes by updates and evidence stay. A second `undo` reverts the first.
    """,
    ),
    order_command(
        "stop",
        trials.stop,
        'tau-live policy stop model --reason "complaints"',
        """Stop the learner at POINT: the control decides everything, until `exposure`.""",
    ),
]
"""Every order; most have no option."""


def change_text(changed: Changed) -> str:
    """Return a change in words, on one line."""
    version = f"version {changed.version}" if changed.version else "the untrained policy"
    learner = f"{version}{', pinned' if changed.pinned else ''}"
    if changed.was != changed.version:
        learner += f" (before: {changed.was})"
    control = "the host's own choice" if changed.champion is None else f"version {changed.champion}"
    share = "is stopped" if changed.stopped is not None else f"decides {percent(changed.exposure)}"
    already = "no change: " if changed.idempotent else ""
    return (
        f"{printable(changed.point)}: {already}the learner is {learner}, and {share}; "
        f"the champion is {control}; recorded in the audit log as {printable(changed.who)}"
    )


NEWEST = 10
"""The number of versions that are listed besides those in use."""


@click.group(
    invoke_without_command=True,
    commands=COMMANDS,
    epilog=epilog(
        "policy list",
        "tau-live policy",
        'tau-live policy rollback model --reason "too expensive"',
    ),
)
@store_option
@json_option
@click.pass_context
def policy(ctx: click.Context, path: Path | None, as_json: bool) -> None:
    """List policy versions (as `policy list`), or change which one decides and how much."""
    run_default(ctx, list_, path, as_json=as_json, point=None, everything=False)


@policy.command("list", epilog=epilog("policy list", "tau-live policy list --point model"))
@click.option("--point", help="Only of this decision point.", shell_complete=completion.points)
@click.option("--all", "everything", is_flag=True, help="Show every version.")
@store_option
@json_option
def list_(path: Path | None, as_json: bool, point: str | None, everything: bool) -> None:
    """List the newest 10 versions and those in use: what serves, and the champions.

    --json lists every version.
    """
    with open_store(path) as (store, _):
        listed = list_versions(store, point)
    versions, points = listed
    if as_json:
        print_json(listed.plain())
        return
    older, newest = versions[:-NEWEST], versions[-NEWEST:]
    used = [(row, in_use) for row, in_use in older if in_use.in_service or in_use.role]
    shown = versions if everything else [*used, *newest]
    rows: list[tuple[object, ...]] = [
        (
            row.version,
            row.point,
            row.parent or "untrained",
            row.rollouts,
            moment(row.created_at),
            _use_text(in_use),
        )
        for row, in_use in shown
    ]
    rows += [
        (0, name, "", 0, "", safe("serves, pinned" if of.pinned else "serves", "green"))
        for name, of in points.items()
        if of.version == 0
    ]
    columns = ("version#", "point", "from#", "rollouts#", "made (UTC)")
    print_all(
        fitting(table_of((*columns, ""), rows), records_of((*columns, "state"), rows))
        if rows
        else safe("no versions yet: every decision point is untrained")
    )
    if len(shown) < len(versions):
        every = suggest("tau-live policy list --all")
        click.echo(f"({len(versions) - len(shown):,} older ones: {every})", err=True)


class Versions(NamedTuple):
    """The versions and their uses, and what serves each point."""

    versions: Sequence[tuple[PolicyVersion, Use]]
    in_service: Mapping[str, ServingVersion]

    def plain(self) -> JsonObject:
        """Return them for JSON."""
        versions = [{**structs.asdict(row), **in_use._asdict()} for row, in_use in self.versions]
        return {"versions": versions, "in_service": self.in_service}


def list_versions(store: Store, point: str | None = None) -> Versions:
    """Return the versions, the oldest first, of all points or of one."""
    serving, trials = store.policies.in_service(), store.trials.trials()
    names = store.checkpoints.names()
    versions = [
        (row, use_of(row, serving, trials, names=names)) for row in store.policies.versions(point)
    ]
    points = {name: of for name, of in in_service(store).items() if point in (None, name)}
    return Versions(versions, points)


def _use_text(in_use: Use) -> Text:
    serves = ("serves, pinned" if in_use.pinned else "serves") if in_use.in_service else None
    gone = None if in_use.has_file else "file deleted"
    text = ", ".join(word for word in (serves, in_use.role, gone) if word)
    return safe(text, "green" if serves else "dim" if gone else "")


@policy.command("show", epilog=epilog("policy show", "tau-live policy show 3"))
@click.argument("version", type=click.IntRange(1), shell_complete=completion.versions)
@store_option
@json_option
def show(version: int, path: Path | None, as_json: bool) -> None:
    """Show VERSION: its origin, and whether its file exists and is intact."""
    with open_store(path) as (store, _):
        row = store.policies.version(version)
        in_use = use_of(
            row,
            store.policies.in_service(),
            store.trials.trials(),
            names=store.checkpoints.names(),
        )
        facts = {
            **structs.asdict(row),
            **in_use._asdict(),
            "lineage": lineage_of(store, row),
            "checkpoint": checkpoint_of(store, row),
        }
    if as_json:
        print_json(facts)
    else:
        print_all(
            facts_of(
                (name.replace("_", " "), None if value is None else _value_text(name, value))
                for name, value in facts.items()
            )
        )


@policy.command(
    "use",
    epilog=epilog("policy use", 'tau-live policy use 3 --point model --reason "best so far" --pin'),
)
@click.argument("version", type=click.IntRange(0), shell_complete=completion.versions)
@click.option(
    "--point", metavar="POINT", required=True, help="The decision point.",
    shell_complete=completion.points,
)  # fmt: skip
@reason_option
@click.option("--pin", is_flag=True, help="Keep it until `unpin`: updates do not replace it.")
@store_option
@json_option
def use(
    *, path: Path | None, as_json: bool, version: int, point: str, reason: str, pin: bool
) -> None:
    """Put VERSION into service at POINT, in running processes too.

    VERSION is a number that `policy list` shows, such as 3, or 0 for the untrained policy. POINT
    is the name under which the agent decides, such as model.
    """
    with open_store(path, write=True) as (store, settings):
        order = Order("policy_use", point, reason, operator(), time.time())
        change = put_in_service(store, order, version, pin=pin)
        warn_of_stops(store, settings)
    if as_json:
        print_json(change)
        return
    pinned = ", pinned" if pin else ""
    click.echo(
        f"{printable(point)}: version {version} serves now (before: {change['was']})"
        f"{pinned}; recorded in the audit log as {printable(order.who)}"
    )


def put_in_service(
    store: Store, order: Order, version: int, *, pin: bool
) -> dict[str, str | float]:
    """Let a version decide, record who and why in the audit, and return the change for JSON.

    One transaction, which takes the write lock at once: no update comes in between.

    Raises:
        PolicyError: The point is unknown, or the version is another point's.
        UnknownError: There is no such version.
        CheckpointError: Its checkpoint is missing or damaged.
    """
    point = order.point
    with store.begin():
        serving = store.policies.in_service().get(point)
        before = Serving(serving.version, serving.pinned) if serving else Serving(0, pinned=False)
        _check(store, point, version)
        now = store.policies.put_in_service(point, version, pinned=pin, at=order.at)
        trial = store.trials.trial(point)
        change: dict[str, str | float] = {
            "point": point,
            "version": version,
            "was": before.version,
            "pinned": pin,
        }
        details = {
            **change,
            "idempotent": before == (version, pin),
            "before": state_of(trial, before),
            "after": state_of(trial, Serving(version, pin)),
        }
        store.audit.add(order.entry(details))
    return {
        **change,
        "revision": now.revision,
        "reason": order.reason,
        "who": order.who,
        "at": order.at,
    }


def _check(store: Store, point: str, version: int) -> None:
    if version:
        row = store.policies.version(version)
        if row.point != point:
            raise PolicyError(f"version {version} is for point {row.point!r}, not for {point!r}")
        check_policy(store.checkpoints, row)
        return
    known = {row.point for row in store.policies.versions()} | {*store.policies.in_service()}
    if point not in known:
        listed = ", ".join(repr(name) for name in sorted(known)) or "none yet"
        raise PolicyError(f"no policy decides at point {point!r}; known points: {listed}")


def use_of(
    row: PolicyVersion,
    serving: Mapping[str, InService],
    trials: Mapping[str, Trial],
    *,
    names: Collection[str],
) -> Use:
    """Return the use of a version, given the names of all checkpoints."""
    here, trial = serving.get(row.point), trials.get(row.point)
    champion = None if trial is None else trial.champion
    previous = None if trial is None else trial.previous
    role = {previous: "previous champion", champion: "champion"}.get(row.version)
    serves = here is not None and here.version == row.version
    pinned = serves and here is not None and here.pinned
    return Use(serves, pinned, role, row.file in names)


def lineage_of(store: Store, row: PolicyVersion) -> list[int]:
    """Return a version and its ancestors, as far as they are known; 0 is untrained."""
    line = [row.version]
    parent = row.parent
    while parent and parent not in line:
        line.append(parent)
        try:
            parent = store.policies.version(parent).parent
        except (UnknownError, OddRowError):  # its row may have been forgotten with its file
            return line
    return [*line, parent]


def checkpoint_of(store: Store, row: PolicyVersion) -> dict[str, str | bool | None]:
    """Return where a version's checkpoint is, and whether it exists and is intact."""
    problem = None
    try:
        checkpoints.load(store.checkpoints, row.file, sha256=row.sha256)
    except CheckpointError as error:
        problem = str(error)
    return {"path": store.checkpoints.address(row.file), "ok": problem is None, "problem": problem}


def _value_text(name: str, value: object) -> str:
    if name == "created_at" and isinstance(value, float):
        return moment(value)
    if name == "lineage" and isinstance(value, list):
        return " < ".join(str(version) if version else "untrained" for version in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return json_of(value) if isinstance(value, dict) else str(value)
