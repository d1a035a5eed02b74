"""The group of all commands: loads each when it is called, and ends every failure in one line."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module

import click

from tau_live.core.entry_points import read_entry_points
from tau_live.core.errors import StoreDamagedError, TauLiveError

COMMANDS: Mapping[str, str] = {
    "demo": "Watch a real agent learn a real task, in about a minute.",
    "init": "Propose settings for the project in this folder.",
    "run": "Run a command with tau-live attached.",
    "autostart": "Turn on or off attaching in every Python of this environment.",
    "status": "Show state, health and next steps on one screen.",
    "top": "Show the `status` screen live.",
    "gate": "Show, hold, reset or explain the pass/hold gate.",
    "alerts": "List alerts, or send a test alert.",
    "pause": "Pause collection, learning or deciding.",
    "resume": "Resume what was paused.",
    "kill": "Stop everything, even if the store is unusable.",
    "unkill": "Turn the kill switch off.",
    "rollouts": "List rollouts.",
    "show": "Show one rollout: spans, decisions, rewards.",
    "why": "Explain a decision and its outcome.",
    "reward": "Record a reward for a rollout or a decision.",
    "updates": "List policy updates, or show one.",
    "policy": "List, show, choose or roll back policies.",
    "evaluate": "Estimate what a policy would have earned.",
    "power": "Estimate how many runs a proof takes.",
    "dashboard": "Show a store in a browser, live, and act on it.",
    "report": "Write a report as an HTML page or JSON.",
    "optimize": "Find better prompts, executed on tasks and adopted on evidence.",
    "experience": "Learn lessons in words from groups of attempts, and prove them.",
    "start": "Start a pipeline that the settings declare.",
    "bench": "Prove on a fixed suite that something is better and no less safe.",
    "proxy": "Forward calls of an OpenAI-compatible API as spans of their attempts.",
    "replay": "Store a recording and learn from it.",
    "ingest": "Store events from a file, a pipe or a socket.",
    "ship": "Send what this host has recorded and its database lacks.",
    "import-log": "Import earlier decisions of any system to start from.",
    "learn": "Run the learner in this process.",
    "export": "Export the store as JSON Lines or Parquet.",
    "restore": "Restore an archive or an export.",
    "gc": "Delete old rollouts that have been learned from.",
    "forget": "Delete some rollouts, with all their rows.",
    "set-aside": "Move a damaged store aside and start an empty one.",
    "store": "Make, migrate, check or copy a store.",
    "metrics": "Print metrics for Prometheus, or write them for its node exporter.",
    "otlp": "Send rollouts, decisions and metrics to an OpenTelemetry collector.",
    "completion": "Print the completion script for bash, zsh or fish.",
    "config": "Show the settings in force and where each came from.",
    "verify": "Detect edits to the store or its checkpoints.",
    "doctor": "Check this installation and its store.",
}
"""The purpose of every command; it is in the module of its name, or in that of ``MODULES``."""

MODULES: Mapping[str, str] = {
    "pause": "stops", "resume": "stops", "kill": "stops", "unkill": "stops",
    "show": "rollouts", "restore": "export", "replay": "ingest",
}  # fmt: skip
"""The module of each command that is not in one of its own name."""


_BEGINNINGS = ("--prompt-optimization-", "--train-", "--training-", "--model")
"""The beginnings of flags at the top level that stand for commands; ``aliases`` has them all."""

_VARIABLES = "TAU_PROMPT_OPTIMIZATION_"

DEPRECATIONS = f"{__name__}.deprecations"
"""The key under which a context keeps the deprecated flags in use."""


class OneLineError(click.ClickException):
    """A failure as it is printed: one line on standard error."""

    def __init__(self, message: str) -> None:
        from tau_live.cli.output import suggest
        from tau_live.core.redaction import scrub_text

        super().__init__(scrub_text(suggest(" ".join(message.split()))))

    def show(self, file: object = None) -> None:  # noqa: ARG002
        """Print the line."""
        from tau_live.cli.output import printable

        click.echo(f"tau-live: {printable(self.message)}", err=True)


class UsageLineError(OneLineError):
    """A command that was called wrongly."""

    exit_code = 2


class Commands(click.Group):
    """Loads a command on demand, and lets no traceback out."""

    _has_plugins = False

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return every name, ours in the order in which users need them."""
        self._register_plugins()
        return [*COMMANDS, *sorted(self.commands.keys() - COMMANDS.keys())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, loading its module."""
        if cmd_name != "doctor":  # which reports itself what is wrong with them
            self._register_plugins()
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        name = cmd_name.replace("-", "_")
        module = import_module(f"tau_live.cli.{MODULES.get(name, name)}")
        command = getattr(module, name)
        if not isinstance(command, click.Command):
            raise TypeError(f"tau_live.cli.{cmd_name} holds no command {cmd_name!r}")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of a name; an unknown name gets the nearest as a suggestion.

        Raises:
            UsageError: There is no such command.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from tau_live.core.settings.kinds import nearest

            near = nearest(args[0], self.list_commands(ctx))
            if near is None:
                raise
            message = f"{error.format_message().rstrip('.')}; did you mean {near!r}?"
            raise click.UsageError(message, ctx) from None

    def _register_plugins(self) -> None:
        """Let installed plugins add commands; without any, nothing is imported.

        Raises:
            SettingsError: A plugin implements a hook that does not exist.
        """
        if self._has_plugins or not read_entry_points().foreign_plugins:
            return
        self._has_plugins = True
        from tau_live.cli.options import plugins

        plugins().tell("register_commands", self)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without loading one."""
        names = self.list_commands(ctx)
        added = {name: command.get_short_help_str() for name, command in self.commands.items()}
        with formatter.section("Commands"):
            formatter.write_dl([(name, {**added, **COMMANDS}[name]) for name in names])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the group's own options, after flags that stand for commands were translated."""
        with _border(ctx):
            from_environ = not args and any(name.startswith(_VARIABLES) for name in os.environ)
            if from_environ or any(arg.startswith(_BEGINNINGS) for arg in args):
                from tau_live.cli.aliases import flags_of, translate

                translation = translate(args or flags_of(os.environ))
                args = [*translation.arguments]
                os.environ.update(translation.environ)
                ctx.meta[DEPRECATIONS] = translation.deprecations
                for deprecation in translation.deprecations:
                    click.echo(deprecation.line, err=True)
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; every failure becomes one line and an exit code."""
        with _border(ctx):
            return super().invoke(ctx)


@contextmanager
def _border(ctx: click.Context) -> Iterator[None]:
    try:
        yield
    except (click.exceptions.Exit, OneLineError):
        raise
    except (KeyboardInterrupt, click.Abort):
        click.echo(err=True)  # ends the line that the terminal shows ^C on
        raise click.exceptions.Exit(130) from None
    except BrokenPipeError:
        raise click.exceptions.Exit(141) from None
    except Exception as error:
        raise _one_line(error, verbose=bool(ctx.params.get("verbose"))) from error


def _one_line(error: Exception, *, verbose: bool) -> OneLineError:
    """Return an error as one line for an operator."""
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "tau-live"
        message = f"{error.format_message().rstrip('.')} (see `{path} --help`)"
        return UsageLineError(message)
    if isinstance(error, click.ClickException):
        return OneLineError(error.format_message())
    if isinstance(error, StoreDamagedError):
        from tau_live.record.trouble import advice

        return OneLineError(f"{error}: {advice(error)}")
    if isinstance(error, TauLiveError):
        return OneLineError(str(error))
    if isinstance(error, OSError) and error.strerror:
        return OneLineError(
            ": ".join(str(part) for part in (error.filename, error.strerror) if part)
        )
    if verbose:
        from tau_live.core.guard import logger

        logger().error("command_failed", exc_info=error)
    kind = type(error).__name__
    hint = "run `tau-live --verbose` for a traceback, and please report it"
    return OneLineError(f"internal error: {kind}: {error} ({hint})")
