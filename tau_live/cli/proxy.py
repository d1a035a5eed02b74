"""``tau-live proxy``: forward calls of an OpenAI-compatible API as spans of attempts."""

import os
from pathlib import Path

import click

from tau_live.cli.options import epilog, json_option, settings_of, store_option
from tau_live.cli.output import print_json
from tau_live.core.errors import TauLiveError
from tau_live.core.version import packages_for


@click.command(
    epilog=epilog(
        "proxy",
        "tau-live proxy --upstream-url https://api.openai.com/v1",
        "OPENAI_BASE_URL=http://127.0.0.1:8788/rollout/ROLLOUT/attempt/1/v1 ./agent",
    )
)
@click.option("--upstream-url", metavar="URL", help="The API that calls are forwarded to.")
@click.option(
    "--bind", default="127.0.0.1:8788", show_default=True, metavar="HOST:PORT",
    help="Where it listens; port 0 takes a free one.",
)  # fmt: skip
@click.option(
    "--token-file", type=click.Path(path_type=Path),
    help="A file with the token that every request bears in x-tau-token.",
)  # fmt: skip
@click.option(
    "--timeout-ms", default=30_000, show_default=True, type=click.IntRange(min=1000),
    help="How long the upstream may be silent.",
)  # fmt: skip
@click.option(
    "--allow-unattributed", is_flag=True, help="Forward calls that name no attempt, and count them."
)
@click.option("--dry-run", is_flag=True, help="Check the options and the settings, and end.")
@store_option
@json_option
def proxy(  # noqa: PLR0913, PLR0917  # the options
    path: Path | None,
    as_json: bool,
    upstream_url: str | None,
    bind: str,
    token_file: Path | None,
    timeout_ms: int,
    allow_unattributed: bool,
    dry_run: bool,
) -> None:
    """Forward calls of an OpenAI-compatible API, and store each as a span of its attempt.

    A call names its attempt by its path, /rollout/ID/attempt/N/v1/..., or by the headers
    x-rollout-id and x-attempt-id. A call of a model tau/NAME is a decision between the upstream
    models of [tool.tau-live.models.NAME]; POST /v1/decide and /v1/reward are for everything else.
    Only this machine reaches it, unless a token is set.
    """
    try:
        from tau_live.serve.guard import Bind, read_token
        from tau_live.serve.proxy import Options, Proxy, log_of, upstream_of
        from tau_live.serve.server import serve
    except ImportError as error:
        raise TauLiveError(
            f"the proxy needs more packages ({error}): pip install {packages_for('serve')}"
        ) from error
    try:
        place = Bind.parse(bind)
        upstream = None if upstream_url is None else upstream_of(upstream_url)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    token = read_token(place, token_file)
    settings = settings_of(path, changes=True)
    options = Options(upstream, place, token, timeout_ms, allow_unattributed)

    def ready(url: str) -> None:
        if as_json:
            store, log = str(settings.store), str(log_of(settings.store))
            print_json({"url": url, "upstream": upstream, "store": store, "log": log})
        else:
            forwards = "decides" if upstream is None else f"forwards to {upstream}"
            click.echo(f"{url} {forwards}, and stores in {settings.store}")

    if dry_run:
        ready(f"http://{bind}")
        return
    serve(Proxy(options, settings, os.environ).app, place, ready=ready)
