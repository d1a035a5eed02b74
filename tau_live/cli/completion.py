"""``tau-live completion``: what completes commands in a shell."""

import click
from click.shell_completion import get_completion_class

from tau_live.cli.opening import epilog

VARIABLE = "_TAU_LIVE_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
BASH = """\
_tau_live_completion() {
    local IFS=$'\\n' line=$COMP_LINE words=() word response type value begun='' i

    # bash breaks words at : and =, which ids and options have; what stands together is one word
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ i -gt 0 && -n $COMP_LINE && $line != [[:blank:]]* ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
        line=${line#*"$word"}
    done
    word=${words[-1]}
    [[ $word == -*=* ]] && word=${word#*=}
    [[ $COMP_WORDBREAKS == *:* ]] && begun=${word%"${word##*:}"}

    response=$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((${#words[@]} - 1)) \
        _TAU_LIVE_COMPLETE=bash_complete "$1")

    while IFS=',' read -r type value; do
        case $type in
            dir) COMPREPLY=(); compopt -o dirnames ;;
            file) COMPREPLY=(); compopt -o default ;;
            plain) COMPREPLY+=("${value#"$begun"}") ;;
        esac
    done <<< "$response"
    return 0
}

complete -o nosort -F _tau_live_completion tau-live
"""
"""Click's own takes what bash breaks at a colon for several words."""


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
    """Print the script that completes commands, options, ids, versions and points in SHELL.

    For bash 4.4 or newer, put the first line of the example in ~/.bashrc; for zsh, the same with
    its name in ~/.zshrc.
    """
    if shell == "bash":
        click.echo(BASH)
        return
    found = get_completion_class(shell)
    if found is None:
        raise click.ClickException(f"click has no completion for {shell}")
    click.echo(found(ctx.find_root().command, {}, "tau-live", VARIABLE).source())
