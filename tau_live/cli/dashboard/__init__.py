"""``tau-live dashboard``: a page that shows a store live, and on which an operator can act."""

import os
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path

import click

from tau_live.cli.options import StoreType, epilog, is_enabled, json_option, settings_of
from tau_live.cli.output import STORE, print_json, suggest
from tau_live.core.errors import TauLiveError
from tau_live.core.settings import Settings, place_paths
from tau_live.core.version import packages_for


@click.command(
    epilog=epilog(
        "dashboard",
        "tau-live dashboard",
        "tau-live dashboard --store eu.sqlite --store us.sqlite --bind 127.0.0.1:9000",
    )
)
@click.option(
    "--bind", default="127.0.0.1:8787", show_default=True, metavar="HOST:PORT",
    help="Where it listens; port 0 takes a free one.",
)  # fmt: skip
@click.option(
    "--token-file", type=click.Path(path_type=Path),
    help="A file with the token that a browser has to enter.",
)  # fmt: skip
@click.option(
    "--store", "paths", metavar="PATH", multiple=True,
    type=StoreType(),
    help="The store's file; repeatable.  [default: TAU_LIVE_RL_STORE]",
)  # fmt: skip
@json_option
def dashboard(paths: Sequence[Path], as_json: bool, bind: str, token_file: Path | None) -> None:
    """Serve a page that shows whether it is on, healthy, learning, better, and what to do next.

    It shows rewards, decisions, rollouts with their spans, versions, alerts, queues and runs, live.
    An operator can pause, hold, reset, promote and roll back there, as the commands of these names
    do. Only this machine reaches it, unless a token is set.
    """
    try:
        from tau_live.cli.dashboard.app import Dashboard, Options
        from tau_live.serve.guard import Bind, read_token
        from tau_live.serve.server import serve

        script = files("plotly").joinpath("package_data", "plotly.min.js")
    except ImportError as error:
        raise TauLiveError(
            f"the dashboard needs more packages ({error}): pip install {packages_for('serve')}"
        ) from error
    try:
        place = Bind.parse(bind)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    token = read_token(place, token_file)
    root = click.get_current_context().find_root().command
    stores = [_settings(path) for path in paths] or [_settings(None)]
    options = Options(
        stores=stores,
        bind=place,
        token=token,
        environ=os.environ,
        is_enabled=is_enabled(),
        script=Path(str(script)),
        suggest=partial(_with_store, root) if paths else lambda _, text: text,
    )

    def ready(url: str) -> None:
        if as_json:
            print_json({"url": url, "stores": [str(own.store) for own in stores]})
        else:
            click.echo(f"{url} shows {', '.join(str(own.store) for own in stores)}")

    serve(Dashboard(options).app, place, ready=ready)


def _with_store(root: click.Command, settings: Settings, text: str) -> str:
    """Return a text whose suggested commands name a store that was named here."""
    with click.Context(root) as ctx:
        ctx.meta[STORE] = settings.store
        return suggest(text)


def _settings(path: Path | None) -> Settings:
    return place_paths(settings_of(path))
