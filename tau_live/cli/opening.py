"""What every command needs first: the settings in force and, usually, the store."""

import getpass
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import NamedTuple, TypeVar

import click

from tau_live.cli.json_keys.commands import KEYS
from tau_live.cli.text import shown
from tau_live.collection.texts import LEFT_OUT
from tau_live.errors import SettingsError, StoreUnavailableError, TauLiveError
from tau_live.hookspecs import Text
from tau_live.operators.access import ACTION, check, principal_of
from tau_live.plugins import GROUP, Plugins
from tau_live.privacy.redaction import scrubbed
from tau_live.settings import Loaded, Settings, switched_on
from tau_live.settings.places import here, placed
from tau_live.store.files import files_of
from tau_live.store.sqlite import SqliteStore
from tau_live.switch import SWITCH

AUDIT = "audit"
"""Where reasons stand, as redactors are told."""

REDACTORS_S = 2.0
"""So long a redactor may look at a reason."""

Callback = TypeVar("Callback", bound=Callable[..., None])


class Opened(NamedTuple):
    """An open store and the settings that it was opened with."""

    store: SqliteStore
    settings: Settings


def store_option(callback: Callback) -> Callback:
    """Add ``--store``."""
    return click.option(
        "--store",
        "path",
        metavar="PATH",
        type=click.Path(dir_okay=False, path_type=Path),
        help="The store's file.  [default: TAU_LIVE_RL_STORE]",
    )(callback)


def json_option(callback: Callback) -> Callback:
    """Add ``--json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, on one line.")(
        callback
    )


def default_command(ctx: click.Context, path: Path | None, *, as_json: bool) -> bool:
    """Say whether a group was called by itself, as its first command.

    Raises:
        click.UsageError: It was not, but has options that are the commands' own.
    """
    if ctx.invoked_subcommand is None:
        return True
    if path is not None or as_json:
        raise click.UsageError(f"--store and --json belong after {ctx.invoked_subcommand!r}", ctx)
    return False


def epilog(command: str, *examples: str) -> str:
    """Return the end of a command's help: the keys of its JSON and at least one example."""
    keys = sorted({key.split(".")[0].removesuffix("[]") for key in KEYS.get(command, ())})
    told = f"Keys of --json: {', '.join(keys)}.\n\n" if keys else ""
    return f"{told}\b\nExample:\n" + "\n".join(f"  {example}" for example in examples)


def is_enabled() -> bool:
    """Say whether ``TAU_LIVE_RL`` switches tau-live on in this shell."""
    return bool(switched_on(os.environ))


def enabled_or_refuse(command: str) -> None:
    """Refuse a command that acts, while tau-live is off.

    Raises:
        TauLiveError: It is off.
    """
    if not is_enabled():
        raise TauLiveError(f"tau-live is off: set {SWITCH}=1 and run `tau-live {command}` again")


def loaded(path: Path | None) -> Loaded:
    """Return the settings in force; ``--store`` goes before all of them.

    Raises:
        SettingsError: A setting is wrong.
    """
    found = Settings.from_env(os.environ, directory=here())
    if path is None:
        return found
    return Loaded(
        replace(found.settings, store=path),
        {**found.sources, "store": "command line"},
        found.warnings,
    )


def settings_of(path: Path | None, *, changes: bool = False) -> Settings:
    """Return the settings in force, after warning about them on standard error.

    Args:
        path: What ``--store`` says.
        changes: Whether the command is going to change anything, which not everybody may.

    Raises:
        SettingsError: A setting is wrong.
        AccessError: Whoever calls may not.
    """
    found = loaded(path)
    for warning in found.doubts():
        click.echo(f"warning: {shown(warning)}", err=True)
    if changes:
        action = f"{ACTION}{click.get_current_context().info_name}"
        check(found.settings.access, principal_of(os.environ, found.settings.principal), action)
    return found.settings


@contextmanager
def opened(path: Path | None, *, write: bool = False, create: bool = False) -> Iterator[Opened]:
    """Open the store, which has to be there unless it is to be created.

    Args:
        path: What ``--store`` says.
        write: Whether anything will be written.
        create: Whether to create a store that is not there.

    Raises:
        SettingsError: A setting is wrong.
        StoreUnavailableError: There is no store, or it cannot be used.
        StoreVersionError: It was written by a newer tau-live.
        AccessError: Whoever calls may not change anything.
    """
    settings = settings_of(path, changes=write)
    placed(settings)  # or it would be said that there is none yet
    if not create and not settings.store.exists():
        raise StoreUnavailableError(
            f"no store at {settings.store} yet: run your agent with {SWITCH}=1, or `tau-live demo`"
        )
    store = SqliteStore.open(settings.store, read_only=not write, key_file=settings.audit_key_file)
    try:
        yield Opened(store, settings)
    finally:
        store.close()


def refuse_store(output: Path, settings: Settings) -> None:
    """Refuse to write over the very store.

    Raises:
        click.UsageError: The output would be one of its files.
    """
    if output.resolve() in {file.resolve() for file in files_of(settings.store)}:
        raise click.UsageError(f"{output} is the store itself: choose another file")


def plugins() -> Plugins:
    """Return the installed plugins; settings that are wrong switch none of them off.

    Raises:
        SettingsError: A plugin implements a hook that does not exist.
    """
    try:
        off = loaded(None).settings.plugins_off
    except SettingsError:  # the command that needs them will say so
        off = ()
    found = Plugins(off=off, strict=True)
    found.load()
    return found


def operator() -> str:
    """Return who calls, for the audit."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = f"uid {os.getuid()}"
    try:
        named = loaded(None).settings.principal
    except SettingsError:  # the command itself will say so
        named = None
    return scrubbed(f"{user}@{socket.gethostname()}{f' as {named}' if named else ''}")


def reason_option(callback: Callback) -> Callback:
    """Add ``--reason``, which is written down."""
    return click.option(
        "--reason",
        required=True,
        callback=_not_blank,
        help="Why; recorded in the audit log with your name.",
    )(callback)


def valid_reason(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Return a reason as it may be recorded; none is none."""
    return None if value is None else _not_blank(ctx, parameter, value)


def _not_blank(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if not value.strip():
        raise click.BadParameter("give a reason.", ctx=ctx, param=parameter)
    return _past_plugins(scrubbed(value.strip()))


def _past_plugins(reason: str) -> str:
    """Return what redactors keep of a reason; they may hang, and what is said must be done.

    Raises:
        SettingsError: A plugin implements a hook that does not exist.
    """
    if not metadata.entry_points(group=GROUP):
        return reason
    found, kept = plugins(), [LEFT_OUT]
    if not found.listens("redact_text"):
        return reason

    def ask() -> None:
        text = found.redact_text(Text(text=reason, event=AUDIT, field="reason"))
        kept.append(scrubbed(text).strip() if text else LEFT_OUT)

    thread = threading.Thread(target=ask, name="tau-live-redactors", daemon=True)
    thread.start()
    thread.join(REDACTORS_S)
    return kept[-1] or LEFT_OUT
