"""``tau-live bench drill``: proof that a training goes on after a crash."""

import os
import time
from pathlib import Path

import click

from tau_live.cli.options import epilog, json_option
from tau_live.cli.output import print_json, printable

root_option = click.option(
    "--root", "folder", metavar="DIR", default=Path(), show_default="the current folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The project folder; all paths in artifacts begin there.",
)  # fmt: skip


@click.command(
    "drill",
    epilog=epilog(
        "bench drill", "tau-live bench drill --run-id m24-recovery-1 --state-dir .tau/drills"
    ),
)
@click.option(
    "--run-id", required=True, help="The drill's name: the programme, -recovery-, and digits."
)
@click.option(
    "--state-dir", metavar="DIR", default=".tau/drills", show_default=True,
    help="Where the drill makes a folder for its stores, from the root.",
)  # fmt: skip
@root_option
@json_option
@click.pass_context
def drill_command(
    ctx: click.Context, *, run_id: str, state_dir: str, folder: Path, as_json: bool
) -> None:
    """Kill a training with SIGKILL, let it go on, and compare it with one that was never killed.

    Takes about a quarter of a minute. Everything happens in processes and stores of its own: one
    training to the end, one that is killed at a named point of an update, one that is killed at a
    random moment of one. The artifact and its evidence are written to tasks/reports, whatever came
    of it, and checked. Exit code 1 means that the drill has failed.
    """
    from tau_live.evidence.artifacts import Names, Root, parse
    from tau_live.evidence.drill import drill_faults, run_drill

    root, path = Root(folder), Names(run_id).drill
    drill = run_drill(
        root, run_id, state_dir, environ=os.environ,
        progress=lambda line: click.echo(line, err=True),
    )  # fmt: skip
    faults = drill_faults(parse(root.read(path)), root, now=time.time())
    if as_json:
        print_json(
            {
                "path": path,
                "run_id": run_id,
                "pass": not faults,
                "outcome": drill.outcome,
                "errors": [fault._asdict() for fault in faults],
            }
        )
    else:
        for fault in faults:
            click.echo(printable(f"{fault.code} {fault.pointer}: {fault.message}"))
        outcome = "failed" if faults else "passed"
        click.echo(f"{outcome}: {printable(path)}")
    ctx.exit(1 if faults else 0)
