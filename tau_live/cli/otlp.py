"""``tau-live otlp``: show a collector of OpenTelemetry what is new in a store."""

import threading
import time
from contextlib import closing
from pathlib import Path

import click

from tau_live.cli.options import epilog, is_enabled, json_option, settings_of, store_option
from tau_live.cli.output import print_json, when
from tau_live.cli.terminal import stopping
from tau_live.core.errors import StoreUnavailableError, TauLiveError
from tau_live.core.files import make_folders
from tau_live.core.settings import Settings, place_paths
from tau_live.operate.follow import Follower, file_of, following
from tau_live.operate.otlp import connect
from tau_live.operate.status import status_of
from tau_live.store.opening import open_at

MEASURE_S = 30.0
LONGEST_PAUSE_S = 60.0


@click.command(
    epilog=epilog(
        "otlp",
        "tau-live otlp --endpoint http://127.0.0.1:4318",
        "tau-live otlp --endpoint http://127.0.0.1:4318 --once --json",
    )
)
@click.option(
    "--endpoint", required=True, metavar="URL",
    envvar="OTEL_EXPORTER_OTLP_ENDPOINT", show_envvar=True,
    help="The collector, which speaks OTLP over HTTP.",
)  # fmt: skip
@click.option(
    "--since", type=when, metavar="WHEN",
    help="Only what ended or came since this time.  [default: everything]",
)  # fmt: skip
@click.option(
    "--every", "every_s", type=click.FloatRange(0.1, 3600.0), default=2.0, show_default=True,
    help="Seconds between two looks.",
)  # fmt: skip
@click.option("--once", is_flag=True, help="Send what is new, and end; for cron.")
@store_option
@json_option
def otlp(
    *,
    path: Path | None,
    as_json: bool,
    endpoint: str,
    since: float | None,
    every_s: float,
    once: bool,
) -> None:
    """Send rollouts, spans, decisions, rewards and metrics to a collector, as they come.

    It follows the store in a process of its own, so no agent waits for it; what was sent is
    remembered beside the store. No text is sent: no prompt, answer, argument or message.
    OTEL_EXPORTER_OTLP_HEADERS and the other variables of OpenTelemetry hold.
    """
    if not endpoint.startswith(("http://", "https://")):
        raise click.BadParameter(
            f"expected a URL such as http://127.0.0.1:4318, got {endpoint!r}",
            param_hint="--endpoint",
        )
    settings = place_paths(settings_of(path))
    if once and not settings.store.exists():
        raise StoreUnavailableError(f"no store at {settings.store} yet")
    make_folders(settings.store.parent)
    with following(settings.store):
        follower = Follower(connect(endpoint), file_of(settings.store), since=since or 0.0)
        took_figures = False
        try:
            spans = _send(follower, settings, once=once, every_s=every_s, endpoint=endpoint)
        finally:
            took_figures = follower.close()
    if once and not took_figures:
        raise TauLiveError(f"the collector took {spans:,} spans, but no metrics")
    if as_json:
        print_json({"spans": spans, "sent": str(file_of(settings.store))})
    else:
        click.echo(f"{spans:,} spans were sent")


def _send(
    follower: Follower, settings: Settings, *, once: bool, every_s: float, endpoint: str
) -> int:
    """Send what is new, once or until it is stopped; return how many spans that were."""
    if once:
        return _look(follower, settings)
    click.echo(f"{settings.store} is shown to {endpoint}", err=True)
    stop = threading.Event()
    with stopping(stop):
        return _follow(follower, settings, stop, every_s=every_s)


def _follow(
    follower: Follower, settings: Settings, stop: threading.Event, *, every_s: float
) -> int:
    """Look again and again; after a failure, less and less often, and say so once."""
    failures, reported, spans = 0, "", 0
    while not stop.is_set():
        try:
            spans += _look(follower, settings)
            if failures:
                click.echo("it goes on", err=True)
            failures, reported = 0, ""
        except (TauLiveError, OSError) as error:
            failures += 1
            if str(error) != reported:
                reported = str(error)
                click.echo(f"tau-live: {reported}", err=True)
        stop.wait(min(LONGEST_PAUSE_S, every_s * 2.0 ** min(failures, 10)))
    return spans


def _look(follower: Follower, settings: Settings) -> int:
    if not settings.store.exists():
        raise StoreUnavailableError(f"no store at {settings.store} yet")
    with closing(open_at(settings.store, read_only=True)) as store:
        now = time.time()
        if now - follower.measured_at >= MEASURE_S:
            status = status_of(store, settings, now=now, enabled=is_enabled())
            follower.measure(store, status)
        return follower.look(store)
