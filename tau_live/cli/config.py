"""``tau-live config``: the settings in force, and where each came from."""

from pathlib import Path

import click

from tau_live.cli.options import epilog, is_enabled, json_option, load_settings, store_option
from tau_live.cli.output import print_all, print_json, printable, safe, table_of
from tau_live.core.redaction import scrub_text
from tau_live.core.settings import SETTINGS, Settings, value_text


@click.command(epilog=epilog("config", "tau-live config", "tau-live config --json | jq .warnings"))
@store_option
@json_option
def config(path: Path | None, as_json: bool) -> None:
    """Show the settings in force and where each came from.

    The environment takes precedence over the file that TAU_LIVE_RL_CONFIG names, and that over
    [tool.tau-live] in the nearest pyproject.toml.
    """
    resolved = load_settings(path)
    defaults = Settings()
    settings = [
        {
            "name": row.name,
            "variable": row.variable,
            "value": scrub_text(value_text(row, resolved.settings)),
            "default": value_text(row, defaults),
            "source": resolved.sources[row.name],
            "help": row.help,
        }
        for row in SETTINGS
    ]
    if as_json:
        print_json({"enabled": is_enabled(), "settings": settings, "warnings": resolved.warnings})
        return
    rows = [
        (
            row["variable"],
            safe(row["value"], "" if row["source"] == "default" else "bold"),
            safe(row["source"], "dim" if row["source"] == "default" else "cyan"),
        )
        for row in settings
    ]
    # names of settings are made to be copied, so they are not wrapped if there is room
    print_all(table_of(("variable", "value", "source"), rows, first=50))
    click.echo(f"tau-live is {'on' if is_enabled() else 'off in this shell (TAU_LIVE_RL)'}")
    for warning in resolved.warnings:
        click.echo(f"warning: {printable(warning)}", err=True)
