"""``tau-live completion``: the script that completes commands in a shell."""

import re
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from tau_live.cli.options import epilog
from tau_live.cli.output import printable

if TYPE_CHECKING:
    from tau_live.store.roles import Store


@click.command(
    epilog=epilog(
        "completion",
        'eval "$(tau-live completion bash)"',
        "tau-live completion fish > ~/.config/fish/completions/tau-live.fish",
    )
)
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, ids, versions and points in SHELL.

    For bash 4.4 or newer, put the first line of the example in ~/.bashrc; for zsh, the same with
    its name in ~/.zshrc. In bash a value is completed after a space, not after --option=, and
    the id of a decision only if COMP_WORDBREAKS=${COMP_WORDBREAKS//:} stands before that line.
    """
    completer = get_completion_class(shell)
    if completer is None:
        raise click.ClickException(f"click has no completion for {shell}")
    click.echo(completer(ctx.find_root().command, {}, "tau-live", "_TAU_LIVE_COMPLETE").source())


MOST = 50
"""The most names that are offered."""


_PLAIN = re.compile(r"\w[\w.@%+/:-]*")
"""Matches names without special characters of the shell, or of click's protocol, as a comma is."""

Items = list[CompletionItem]
Complete = Callable[[click.Context, click.Parameter, str], Items]
_Item = tuple[str, str]


def from_store(items: Callable[["Store", str], Iterable[_Item]]) -> Complete:
    """Return a completer that offers names with descriptions from the store of a command."""

    def complete(ctx: click.Context, parameter: click.Parameter, prefix: str) -> Items:  # noqa: ARG001  # click's signature
        path = ctx.params.get("path")
        try:
            from tau_live.cli.options import load_settings
            from tau_live.store.opening import open_at

            file = load_settings(path if isinstance(path, Path) else None).settings.store
            # the shell must not wait for a locked store
            with closing(open_at(file, read_only=True, busy_timeout_s=0.2)) as store:
                matches = [item for item in items(store, prefix) if item[0].startswith(prefix)]
        except Exception:  # noqa: BLE001  # a shell that completes must not print an error
            return []
        return [
            CompletionItem(name, help=printable(help_))
            for name, help_ in matches[:MOST]
            if _PLAIN.fullmatch(name)
        ]

    return complete


def _rollouts(store: "Store", prefix: str) -> list[_Item]:
    from tau_live.core.records import RolloutQuery

    if prefix:
        return [
            (rollout_id, "") for rollout_id in store.rollouts.ids_beginning_with(prefix, limit=MOST)
        ]
    newest = store.rollouts.query(RolloutQuery(descending=True, limit=MOST)).rollouts
    return [(rollout.rollout_id, f"{rollout.status} {rollout.name}") for rollout in newest]


@from_store
def decisions(store: "Store", prefix: str) -> list[_Item]:
    """Return the decisions of a rollout, or the matching rollouts."""
    rollout_id = prefix.partition(":")[0]
    ids = [rollout for rollout, _ in _rollouts(store, rollout_id)]
    if not prefix or len(ids) != 1:
        return [] if ":" in prefix else _rollouts(store, prefix)
    items = [
        (decision.decision_id, f"at {decision.point}")
        for decision in store.decisions.decisions(ids[0])
    ]
    return [(ids[0], ""), *items]


@from_store
def versions(store: "Store", _prefix: str) -> list[_Item]:
    """Return the newest versions."""
    newest = store.policies.versions(limit=MOST)
    return [(str(row.version), f"of {row.point}") for row in reversed(newest)]


@from_store
def updates(store: "Store", _prefix: str) -> list[_Item]:
    """Return the newest updates."""
    return [
        (str(update.update), f"of {update.point}") for update in store.policies.updates(limit=MOST)
    ]


@from_store
def points(store: "Store", _prefix: str) -> list[_Item]:
    """Return every decision point."""
    known = {*store.policies.in_service(), *store.trials.points(), *store.trials.trials()}
    return [(point, "decision point") for point in sorted(known)]


rollouts = from_store(_rollouts)
