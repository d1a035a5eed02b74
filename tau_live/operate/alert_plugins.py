"""The plugins that deliver alerts: a line in the log, the configured command, and Apprise."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import asdict

from tau_live.core.guard import logger, text_of
from tau_live.core.hookspecs import Alert, hookimpl
from tau_live.core.settings import Settings
from tau_live.core.switch import SWITCH
from tau_live.operate.alert_rules import Severity

if TYPE_CHECKING:
    import subprocess

COMMAND = "alert-command"
URLS = "alert-urls"
MOST_CHARS = 30_000
"""Most characters of an alert as JSON; more would not fit the pipe to a command that does not
read."""


@hookimpl
def alert_raised(alert: Alert) -> None:
    """Log an alert, as information if that is its severity, else as a warning."""
    facts = {name: value for name, value in asdict(alert).items() if name != "facts"}
    log = logger().info if alert.severity == Severity.INFO else logger().warning
    log("alert_raised", **facts, facts=dict(alert.facts))


class Call(NamedTuple):
    """How a command is run for an alert.

    Attributes:
        words: The command and its arguments; no shell is involved.
        content: What it reads from its standard input.
    """

    words: Sequence[str]
    content: bytes


class AlertCommand:
    """Runs a command for each alert; failures are logged and counted, and not retried.

    Args:
        call: Returns how it is run.
        environ: The environment that it inherits.
        timeout_s: How long it may take, in seconds.
        count: Adds 1 to a counter, by name.
    """

    def __init__(
        self,
        call: Callable[[Alert], Call],
        *,
        environ: Mapping[str, str],
        timeout_s: float,
        count: Callable[[str], None],
    ) -> None:
        self._call = call
        self._environ = environ
        self._timeout_s = timeout_s
        self._count = count
        self._lock = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None

    @hookimpl
    def alert_raised(self, alert: Alert) -> None:
        """Run the command."""
        problem = run_command(
            self._call(alert), alert, self._environ, timeout_s=self._timeout_s, began=self._began
        )
        self._began(None)
        if problem is not None:
            self._count("alert_commands_failed")
            logger().warning("alert_command_failed", kind=alert.kind, problem=problem)

    def kill(self) -> None:
        """Kill a running command, because the process ends."""
        with self._lock:
            if self._running is not None:
                _kill(self._running)

    def _began(self, process: "subprocess.Popen[bytes] | None") -> None:
        with self._lock:
            self._running = process


def calls_of(settings: Settings) -> dict[str, Callable[[Alert], Call]]:
    """Return how alerts are delivered by commands, by the names of the plugins."""
    calls: dict[str, Callable[[Alert], Call]] = {}
    if settings.alert_command:
        calls[COMMAND] = lambda alert: Call(settings.alert_command, json_of(alert))
    if settings.alert_urls is not None:
        calls[URLS] = partial(apprise_call, settings.alert_urls)
    return calls


def commands_of(
    settings: Settings, environ: Mapping[str, str], count: Callable[[str], None]
) -> dict[str, AlertCommand]:
    """Return the plugins that deliver alerts by commands, by name."""
    return {
        name: AlertCommand(call, environ=environ, timeout_s=settings.alert_timeout_s, count=count)
        for name, call in calls_of(settings).items()
    }


TYPES: Mapping[str, str] = {
    Severity.CRITICAL: "failure", Severity.WARNING: "warning", Severity.INFO: "info",
}  # fmt: skip
"""The type of a notification, by the severity of its alert."""


APPRISE = """
import logging, re, sys
from apprise.cli import main

class Hide(logging.Filter):
    def filter(self, record):
        record.msg, record.args = re.sub(r"://\\S+", "://...", record.getMessage()), ()
        return True

logging.getLogger("apprise").addFilter(Hide())
sys.exit(main())
"""
"""Runs Apprise; it writes nothing of a URL but its scheme, for any part of one may be a secret."""


def apprise_call(urls: Path, alert: Alert) -> Call:
    """Return how Apprise sends an alert, in a process of its own.

    Its program reads the URLs from their file, so that no secret is in an argument.
    """
    title = f"tau-live: {alert.kind}" + (" (test)" if alert.test else "")
    words = [
        sys.executable, "-P", "-c", APPRISE, "--config", str(urls), "--title", title,
        "--notification-type", TYPES.get(alert.severity, "info"), "--disable-async",
    ]  # fmt: skip
    body = f"{alert.sentence}\n\nNext: {alert.todo}\n\n{alert.store}"
    return Call(words, body.encode(errors="replace"))


def run_command(
    call: Call,
    alert: Alert,
    environ: Mapping[str, str],
    *,
    timeout_s: float,
    out: int | None = None,
    began: "Callable[[subprocess.Popen[bytes]], None]" = lambda _: None,
) -> str | None:
    """Run a command with an alert in its environment and on its standard input.

    It runs in a process group of its own, which is killed as a whole when the time is up, and
    tau-live is off in it.

    Args:
        call: The command and what it reads.
        alert: The alert.
        environ: The environment that it inherits.
        timeout_s: How long it may take, in seconds.
        out: File descriptor of its output; ``None`` discards it.
        began: Called with the process once it runs.

    Returns:
        Why it failed; ``None`` if it succeeded.
    """
    import subprocess  # not before there is an alert

    prints = subprocess.DEVNULL if out is None else out
    environ = {**environ, **variables(alert), SWITCH: "0"}
    try:
        process = subprocess.Popen(  # noqa: S603 - an operator named it
            list(call.words),
            stdin=subprocess.PIPE, stdout=prints, stderr=prints, start_new_session=True,
            env=environ,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        return f"cannot be started: {text_of(error)}"
    with process:
        began(process)
        try:
            process.communicate(call.content, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _kill(process)
            return f"took longer than {timeout_s:g} s and was killed"
        except BaseException:
            _kill(process)
            raise
    code = process.returncode
    return f"ended with exit code {code}" if code else None


def variables(alert: Alert) -> dict[str, str]:
    """Return an alert as environment variables, without its facts, which are in its JSON."""
    fields = {name: value for name, value in asdict(alert).items() if name != "facts"}
    fields["test"] = "1" if alert.test else "0"
    return {
        f"TAU_LIVE_ALERT_{name.upper()}": str(value).replace("\0", "")
        for name, value in fields.items()
    }


def json_of(alert: Alert) -> bytes:
    """Return an alert as a line of JSON in ASCII; without its facts where that is too long."""
    fields = asdict(alert)
    line = json.dumps({**fields, "facts": dict(alert.facts)}, default=str)
    if len(line) > MOST_CHARS:
        line = json.dumps({**fields, "facts": {}}, default=str)
    return line.encode() + b"\n"


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
