"""``tau-live run``: a command with tau-live in every Python that it starts."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from tau_live.cli.options import epilog
from tau_live.core.switch import SWITCH, switched_on


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=epilog(
        "run",
        "TAU_LIVE_RL=1 tau-live run -- python agent.py --your-own arguments",
        "TAU_LIVE_RL=1 tau-live run -m my_agent --port 8000",
        "TAU_LIVE_RL=1 tau-live run -- pytest -q",
    ),
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="[--] COMMAND")
def run(command: tuple[str, ...]) -> None:
    """Run COMMAND with tau-live attached in every Python process that it starts.

    COMMAND replaces this process, so its output, signals and exit code are its own. A
    COMMAND that begins with an option, or is a Python file that cannot be executed, is run by the
    Python that tau-live is installed in. While TAU_LIVE_RL is off, COMMAND is run as it is.
    """
    program = program_of(command)
    where = shutil.which(program[0])
    if where is None:
        raise click.ClickException(f"{program[0]}: no such program")
    environ = dict(os.environ)
    if switched_on(environ).on:
        environ = with_us(environ)
    else:
        click.echo(f"tau-live: {SWITCH} is off, so nothing is attached", err=True)
    sys.stdout.flush()
    os.execve(where, program, environ)  # noqa: S606  # the operator's own command


def program_of(command: Sequence[str]) -> list[str]:
    """Return the program with its arguments: options and plain Python files are for our Python."""
    first = Path(command[0])
    is_ours = command[0].startswith("-") or (
        first.suffix == ".py" and first.is_file() and not os.access(first, os.X_OK)
    )
    return [sys.executable, *command] if is_ours else list(command)


def with_us(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which every Python finds our ``sitecustomize`` first."""
    ours = str((Path(__file__).parents[1] / "boot/on_path").absolute())
    others = [
        entry
        for entry in environ.get("PYTHONPATH", "").split(os.pathsep)
        if entry and entry != ours
    ]
    return {**environ, "PYTHONPATH": os.pathsep.join([ours, *others])}
