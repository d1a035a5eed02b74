"""``tau-live bench drill``, ``ops``, ``gate``: proof that operations work on the thing itself."""

import os
import re
import time
from pathlib import Path

import click

from tau_live.cli.options import checked_run_id, epilog, json_option, root_of, root_option
from tau_live.cli.output import print_json, printable


def _drill_id(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    from tau_live.evidence.drill.documents import RUN_ID

    del ctx
    if re.fullmatch(RUN_ID, value) is None:
        raise click.BadParameter(
            f"must be a programme, -recovery-, and digits, as m24-recovery-1, got {value!r}",
            param=parameter,
        )
    return value


@click.command(
    epilog=epilog(
        "bench drill", "tau-live bench drill --run-id m24-recovery-1 --state-dir .tau/drills"
    ),
)
@click.option(
    "--run-id", required=True, callback=_drill_id, metavar="ID",
    help="The drill's name: the programme, -recovery-, and digits.",
)  # fmt: skip
@click.option(
    "--state-dir", metavar="DIR", default=".tau/drills", show_default=True,
    help="Where the drill makes a folder for its stores, from the root.",
)  # fmt: skip
@root_option
@json_option
@click.pass_context
def drill(ctx: click.Context, *, run_id: str, state_dir: str, folder: Path, as_json: bool) -> None:
    """Kill a training with SIGKILL, let it go on, and compare it with one that was never killed.

    Takes about a quarter of a minute. Everything happens in processes and stores of its own: one
    training to the end, one that is killed at a named point of an update, one that is killed at a
    random moment of one. The artifact and its evidence are written to tasks/reports, whatever came
    of it, and checked. Exit code 1 means that the drill has failed.
    """
    from tau_live.evidence.artifacts import Names, parse, plain
    from tau_live.evidence.drill import drill_faults, run_drill

    root, path = root_of(folder), Names(run_id).drill
    result = run_drill(
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
                "outcome": plain(result.outcome),
                "errors": [fault._asdict() for fault in faults],
            }
        )
    else:
        for fault in faults:
            click.echo(printable(f"{fault.code} {fault.pointer}: {fault.message}"))
        outcome = "failed" if faults else "passed"
        click.echo(f"{outcome}: {printable(path)}")
    ctx.exit(1 if faults else 0)


state_option = click.option(
    "--state-dir", metavar="DIR", default=".tau/ops", show_default=True,
    help="Where the checks make their own files, from the root.",
)  # fmt: skip
proof_option = click.option(
    "--proof", required=True, metavar="FILE", help="The proof of a benchmark, from the root."
)


@click.command(
    epilog=epilog(
        "bench ops",
        "tau-live bench ops --run-id m24-ops-1 "
        "--proof tasks/reports/m24-benchmark-proof-m24-route-7.json --runbook docs/runbook.md",
    )
)
@click.option(
    "--run-id", required=True, metavar="ID", callback=checked_run_id, help="Such as m24-ops-1."
)
@proof_option
@click.option(
    "--runbook", "runbooks", multiple=True, metavar="FILE", help="A runbook, from the root."
)
@state_option
@root_option
@json_option
@click.pass_context
def ops(  # noqa: PLR0913  # its options
    ctx: click.Context, *, run_id: str, proof: str, runbooks: tuple[str, ...], state_dir: str,
    folder: Path, as_json: bool,
) -> None:  # fmt: skip
    """Prove for real that controls, safety gate, recovery and validation work; takes a minute.

    Each check is a process with a log of its own: a running process obeys pause, resume and
    rollback within a second; a subject with a planted regression is refused; a drill passes; the
    proof is valid, and a forged copy of it is not.
    """
    from tau_live.evidence.artifacts import plain
    from tau_live.evidence.operations import run_operations

    result = run_operations(
        root_of(folder), run_id, state_dir, proof=proof, runbooks=runbooks, environ=os.environ,
        progress=lambda line: click.echo(line, err=True),
    )  # fmt: skip
    if as_json:
        print_json(plain(result))
    else:
        for check in result.checks:
            click.echo(printable(f"{check.status}: {check.id} ({check.description})"))
        click.echo(f"{result.overall_status}: {run_id}")
    ctx.exit(0 if result.overall_status == "pass" else 1)


@click.command(
    epilog=epilog(
        "bench gate",
        "tau-live bench gate --run-id m24-gate-1 "
        "--proof tasks/reports/m24-benchmark-proof-m24-route-7.json --ops-run-id m24-ops-1 "
        "--operator-runbook docs/runbook.md --incident-playbook docs/incidents.md",
    )
)
@click.option(
    "--run-id", required=True, metavar="ID", callback=checked_run_id, help="Such as m24-gate-1."
)
@proof_option
@click.option(
    "--ops-run-id", required=True, metavar="ID", callback=checked_run_id,
    help="The operational proof.",
)  # fmt: skip
@click.option("--operator-runbook", default="", metavar="FILE", help="From the root.")
@click.option("--incident-playbook", default="", metavar="FILE", help="From the root.")
@root_option
@json_option
@click.pass_context
def gate(  # noqa: PLR0913  # its options
    ctx: click.Context, *, run_id: str, proof: str, ops_run_id: str, operator_runbook: str,
    incident_playbook: str, folder: Path, as_json: bool,
) -> None:  # fmt: skip
    """Write the bundle that decides: benchmark, safety, operations and runbooks, each validated."""
    from tau_live.evidence.artifacts import Names, plain
    from tau_live.evidence.gate import Sources, write_gate
    from tau_live.evidence.operations import artifact_of

    sources = Sources(proof, artifact_of(ops_run_id), operator_runbook, incident_playbook)
    result = write_gate(root_of(folder), run_id, sources)
    if as_json:
        print_json(plain(result))
    else:
        codes = ", ".join(result.decision.reason_codes)
        verdict = "passed" if result.decision.pass_ else f"not passed: {codes}"
        click.echo(f"{verdict}; {Names(run_id).gate}")
    ctx.exit(0 if result.decision.pass_ else 1)
