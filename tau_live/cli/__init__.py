"""Commands: one module for each; parse, call one function, print.

Nothing but click is imported before a command runs, so that ``tau-live --help`` is quick.
"""

import click

from tau_live.cli.commands import Commands
from tau_live.core.version import this_version

__all__ = ["main"]

EXIT_CODES = """\b
Exit codes:
  0    done
  1    failed; standard error has one line with the cause
  2    wrong usage
  3    the gate holds, or the kill switch is on (`gate`, `gate show`, `optimize`)
  4    too little evidence (`evaluate`, `bench`), or nothing adopted (`optimize`)
  130  interrupted
  141  the reader of the output closed the pipe

\b
Example:
  TAU_LIVE_RL=1 tau-live demo && tau-live status
"""


@click.group(
    "tau-live",
    cls=Commands,
    invoke_without_command=True,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("-v", "--verbose", is_flag=True, help="Log progress to standard error.")
@click.version_option(this_version(), prog_name="tau-live")
@click.pass_context
def main(ctx: click.Context, verbose: bool) -> None:
    """Lets an LLM agent you already run learn from its own decisions.

    TAU_LIVE_RL=1 turns it on. Commands that look at a store or change it work either
    way; `learn` and `demo`, which learn, need it.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        return
    from tau_live.cli.output import configure

    configure(verbose=verbose)
