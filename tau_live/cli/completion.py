"""``tau-live completion``: what completes commands in a shell."""

import click
from click.shell_completion import get_completion_class

from tau_live.cli.opening import epilog

VARIABLE = "_TAU_LIVE_COMPLETE"
SHELLS = ("bash", "zsh", "fish")


@click.command(
    epilog=epilog(
        "completion",
        'eval "$(tau-live completion bash)"',
        "tau-live completion fish > ~/.config/fish/completions/tau-live.fish",
    )
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what completes commands, options, ids, versions and points in SHELL.

    For bash, 4.4 or newer, put the first line of the example into ~/.bashrc; for zsh the same with
    its name into ~/.zshrc.
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.ClickException(f"click knows no completion for {shell}")
    click.echo(found(ctx.find_root().command, {}, "tau-live", VARIABLE).source())
