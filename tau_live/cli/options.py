"""The common parts of commands: the settings, the store, and the active stops."""

import getpass
import os
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from click.core import ParameterSource

from tau_live.cli.json_keys import KEYS
from tau_live.cli.output import STORE, printable, suggest
from tau_live.core.addresses import MISTYPED, is_address, is_mistyped, keep
from tau_live.core.entry_points import read_entry_points
from tau_live.core.errors import SettingsError, StoreUnavailableError, TauLiveError
from tau_live.core.hookspecs import Text
from tau_live.core.memory_holds import memory_holds
from tau_live.core.plugins import Plugins
from tau_live.core.reasons import Part
from tau_live.core.redaction import scrub_text
from tau_live.core.settings import Loaded, Settings, in_force, place_paths
from tau_live.core.switch import SWITCH, switched_on
from tau_live.operate.access import ACTION, check, principal_of
from tau_live.operate.stops import ended_by, killed_of
from tau_live.record.pipeline import LEFT_OUT
from tau_live.store.files import files_of
from tau_live.store.opening import open_at
from tau_live.store.roles import Store

if TYPE_CHECKING:
    from tau_live.evidence.artifacts import Root

AUDIT = "audit"
"""The event under which redactors get reasons."""

REDACTORS_S = 2.0
"""The seconds that redactors may take for a reason."""


class OpenStore(NamedTuple):
    """An open store and the settings that it was opened with."""

    store: Store
    settings: Settings


def remember_store(
    ctx: click.Context,
    parameter: click.Parameter,
    value: Path | None,
) -> Path | None:
    """Keep what was given for commands that are suggested, also by an error that ends this one."""
    is_default = ctx.get_parameter_source(parameter.name or "") is ParameterSource.DEFAULT
    if value is not None and not is_default:
        ctx.meta[STORE] = value
    return value


class StoreType(click.Path):
    """A store: a path, or the address of a database."""

    name = "store"

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        """Return the path of the store; that of a database on this machine."""
        if isinstance(value, str) and is_address(value):
            try:
                return keep(value)
            except (OSError, ValueError) as error:
                self.fail(f"the address cannot be kept for this machine: {error}", param, ctx)
        if isinstance(value, str) and is_mistyped(value):
            self.fail(MISTYPED, param, ctx)
        path: Path = super().convert(value, param, ctx)  # type: ignore[arg-type, assignment]
        return path


store_option = click.option(
    "--store",
    "path",
    metavar="PATH",
    callback=remember_store,
    type=StoreType(),
    help="The store's file, or postgresql://...  [default: TAU_LIVE_RL_STORE]",
)
root_option = click.option(
    "--root",
    "folder",
    metavar="DIR",
    default=Path(),
    type=click.Path(file_okay=False, path_type=Path),
    help="The project: all paths in artifacts begin there.  [default: the current folder]",
)


def checked_run_id(
    ctx: click.Context, parameter: click.Parameter, value: str | tuple[str, ...]
) -> str | tuple[str, ...]:
    """Return run ids, if each has the form that artifacts have."""
    from tau_live.evidence.artifacts import RUN_ID

    del ctx
    for run_id in (value,) if isinstance(value, str) else value:
        if re.fullmatch(RUN_ID, run_id) is None:
            raise click.BadParameter(
                "must be a programme such as m24, a dash, and lower-case letters, digits and "
                f"dashes, got {run_id!r}",
                param=parameter,
            )
    return value


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, on one line.")


def root_of(folder: Path) -> "Root":
    """Return the project of a command. Raises: TauLiveError."""
    from tau_live.evidence.artifacts import Root

    if not folder.is_dir():
        raise TauLiveError(f"--root {folder} is no folder")
    return Root(folder)


def run_default(
    ctx: click.Context,
    command: click.Command,
    path: Path | None,
    *,
    as_json: bool,
    **others: object,
) -> None:
    """Run the first command of a group that was called without a command.

    Raises:
        click.UsageError: A command was given, but its options stand before it.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(command, path=path, as_json=as_json, **others)
    elif path is not None or as_json:
        raise click.UsageError(f"--store and --json belong after {ctx.invoked_subcommand!r}", ctx)


def epilog(command: str, *examples: str) -> str:
    """Return the end of a command's help: the keys of its JSON and at least one example."""
    keys = sorted({key.split(".")[0].removesuffix("[]") for key in KEYS.get(command, ())})
    keys_line = f"Keys of --json: {', '.join(keys)}.\n\n" if keys else ""
    return f"{keys_line}\b\nExample:\n" + "\n".join(f"  {example}" for example in examples)


def is_enabled() -> bool:
    """Return whether ``TAU_LIVE_RL`` switches tau-live on in this shell."""
    return bool(switched_on(os.environ))


def enabled_or_refuse(command: str) -> None:
    """Refuse a command that acts, while tau-live is off.

    Raises:
        TauLiveError: It is off.
    """
    if not is_enabled():
        raise TauLiveError(f"tau-live is off: set {SWITCH}=1 and run `tau-live {command}` again")


def load_settings(path: Path | None) -> Loaded:
    """Return the settings in force; ``--store`` takes precedence over all of them.

    Raises:
        SettingsError: A setting is wrong.
    """
    resolved = in_force(os.environ)
    if path is None:
        return resolved
    return Loaded(
        replace(resolved.settings, store=path),
        {**resolved.sources, "store": "command line"},
        resolved.warnings,
    )


def settings_of(path: Path | None, *, changes: bool = False) -> Settings:
    """Return the settings in force, after warning about them on standard error.

    Args:
        path: The value of ``--store``; ``None`` if it was not given.
        changes: Whether the command is going to change anything, which not everybody may.

    Raises:
        SettingsError: A setting is wrong.
        AccessError: The caller may not change anything.
    """
    resolved = load_settings(path)
    for warning in resolved.doubts():
        click.echo(f"warning: {printable(warning)}", err=True)
    if changes:
        action = f"{ACTION}{click.get_current_context().info_name}"
        check(
            resolved.settings.access, principal_of(os.environ, resolved.settings.principal), action
        )
    return resolved.settings


@contextmanager
def open_store(
    path: Path | None, *, write: bool = False, create: bool = False
) -> Iterator[OpenStore]:
    """Open the store, which has to exist unless it is to be created.

    Args:
        path: The value of ``--store``; ``None`` if it was not given.
        write: Whether anything will be written.
        create: Whether to create a store that does not exist.

    Raises:
        SettingsError: A setting is wrong.
        StoreUnavailableError: There is no store, or it cannot be used.
        StoreVersionError: It was written by a newer tau-live.
        AccessError: The caller may not change anything.
    """
    settings = settings_of(path, changes=write)
    place_paths(settings)  # or the error would be that there is no store yet
    if not create and not settings.store.exists():
        raise StoreUnavailableError(
            f"no store at {settings.store} yet: run your agent with {SWITCH}=1, or `tau-live demo`"
        )
    store = open_at(settings.store, read_only=not write, key_file=settings.audit_key_file)
    with closing(store):
        yield OpenStore(store, settings)


def refuse_store(output: Path, settings: Settings) -> None:
    """Refuse to write over the very store.

    Raises:
        click.UsageError: The output would be one of its files.
    """
    if output.resolve() in {file.resolve() for file in files_of(settings.store)}:
        raise click.UsageError(f"{output} is the store itself: choose another file")


def plugins() -> Plugins:
    """Return the installed plugins; invalid settings switch none of them off.

    Raises:
        SettingsError: A plugin implements a hook that does not exist.
    """
    try:
        off = load_settings(None).settings.plugins_off
    except SettingsError:  # the command that needs them will report it
        off = ()
    registry = Plugins(off=off, strict=True)
    registry.load()
    return registry


def operator() -> str:
    """Return the name of the caller, for the audit."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = f"uid {os.getuid()}"
    try:
        principal = load_settings(None).settings.principal
    except SettingsError:  # the command itself will report it
        principal = None
    return scrub_text(f"{user}@{socket.gethostname()}{f' as {principal}' if principal else ''}")


def valid_reason(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Return a reason as it may be recorded; ``None`` stays ``None``."""
    if value is None:
        return None
    if not has_words(value):
        raise click.BadParameter("give a reason.", ctx=ctx, param=parameter)
    return redact_reason(value)


def has_words(text: str) -> bool:
    """Return whether a text shows anything; blanks and characters without width do not."""
    return any(character.isprintable() and not character.isspace() for character in text)


reason_option = click.option(
    "--reason",
    required=True,
    callback=valid_reason,
    help="Why; recorded in the audit log with your name.",
)


def redact_reason(words: str) -> str:
    """Return a reason as it may be recorded: without secrets, and as plugins redact it.

    A plugin that hangs must not block the command.

    Raises:
        SettingsError: A plugin implements a hook that does not exist.
    """
    reason = scrub_text(words.strip())
    if not read_entry_points().foreign_plugins:
        return reason
    registry, results = plugins(), [LEFT_OUT]
    if not registry.listening["redact_text"]:
        return reason

    def redact() -> None:
        text = registry.redact_text(Text(text=reason, event=AUDIT, field="reason"))
        results.append(scrub_text(text).strip() if text else LEFT_OUT)

    thread = threading.Thread(target=redact, name="tau-live-redactors", daemon=True)
    thread.start()
    thread.join(REDACTORS_S)
    return results[-1] or LEFT_OUT


def stops(store: Store, settings: Settings) -> Iterator[str]:
    """Yield the active stops, each with the command that ends it."""
    killed = killed_of(store, settings)
    if killed is not None:
        ended = ended_by(killed.reason).replace('"', "")
        yield f"the kill switch is on: {killed}: {ended}"
    gate = store.gate.load()
    if gate.state != "pass":
        yield f"the gate holds: {gate.reason}: `tau-live gate reset --reason ...`"
    for hold in memory_holds(settings.store):
        yield f"process {hold.pid} holds in memory: {hold.reason}: `tau-live doctor`"
    for part, pause in store.pauses.pauses().items():
        yield f"{part} is paused: {pause.reason}: `tau-live resume {part} --reason ...`"


def warn_of_stops(store: Store, settings: Settings, *, without: tuple[Part, ...] = ()) -> None:
    """Print other active stops on standard error."""
    own = tuple(f"{part} is paused" for part in without)
    for stop in stops(store, settings):
        if not own or not stop.startswith(own):
            click.echo(f"note: {printable(suggest(stop))}", err=True)


def warn_before(settings: Settings) -> None:
    """Print active stops before a command that opens the store itself and reports its failures."""
    if not settings.store.exists():
        return
    with suppress(TauLiveError), closing(open_at(settings.store, read_only=True)) as store:
        warn_of_stops(store, settings)
