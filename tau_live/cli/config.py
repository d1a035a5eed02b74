"""``tau-live config``: the settings in force, and where each came from."""

from pathlib import Path

import click

from tau_live.cli.opening import epilog, is_enabled, json_option, loaded, store_option
from tau_live.cli.output import print_all, print_json, safe, table_of
from tau_live.cli.text import shown
from tau_live.privacy.redaction import scrubbed
from tau_live.settings import SETTINGS, Settings, value_text

NAME_WIDTH = 50
"""The names of settings are there to be copied, and not broken where there is room at all."""


@click.command(epilog=epilog("config", "tau-live config", "tau-live config --json | jq .warnings"))
@store_option
@json_option
def config(path: Path | None, as_json: bool) -> None:
    """Show the settings in force and where each came from.

    The environment takes precedence over the file that TAU_LIVE_RL_CONFIG names, and that over
    [tool.tau-live] in the nearest pyproject.toml.
    """
    found = loaded(path)
    defaults = Settings()
    settings = [
        {
            "name": row.name,
            "variable": row.variable,
            "value": scrubbed(value_text(row, found.settings)),
            "default": value_text(row, defaults),
            "source": found.sources[row.name],
            "help": row.help,
        }
        for row in SETTINGS
    ]
    if as_json:
        print_json({"enabled": is_enabled(), "settings": settings, "warnings": found.warnings})
        return
    rows = [
        (
            row["variable"],
            safe(row["value"], "" if row["source"] == "default" else "bold"),
            safe(row["source"], "dim" if row["source"] == "default" else "cyan"),
        )
        for row in settings
    ]
    print_all(table_of(("variable", "value", "source"), rows, first=NAME_WIDTH))
    click.echo(f"tau-live is {'on' if is_enabled() else 'off in this shell (TAU_LIVE_RL)'}")
    for warning in found.warnings:
        click.echo(f"warning: {shown(warning)}", err=True)
