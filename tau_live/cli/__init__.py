"""The command line ``tau-live``: one module for each noun; parse, call one function, print.

Nothing but click is imported before a command runs, so that ``tau-live --help`` is quick.
"""

import click

from tau_live import __version__
from tau_live.cli.commands import Commands

__all__ = ["main"]

EXIT_CODES = """\b
Exit codes:
  0    done
  1    failed; one line on standard error says why
  2    wrong usage
  3    the gate holds, or the kill switch is on (`gate`, `gate show`)
  4    the log says too little for an estimate (`evaluate`)
  130  interrupted
  141  whoever read the output has gone

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
@click.option("-v", "--verbose", is_flag=True, help="Say on standard error what is being done.")
@click.version_option(__version__, prog_name="tau-live")
@click.pass_context
def main(ctx: click.Context, verbose: bool) -> None:
    """Lets an LLM agent you already run learn from its own decisions.

    Switched on by TAU_LIVE_RL=1. Without it these commands still look after a store.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())
        return
    from tau_live.cli.logs import configure

    configure(verbose=verbose)
