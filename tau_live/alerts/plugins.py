"""The plugins that deliver alerts: a line in the log, and the configured command."""

import json
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

from tau_live.alerts.kinds import Severity
from tau_live.guard import logger, text_of
from tau_live.hookspecs import Alert, hookimpl
from tau_live.plugins import Plugins
from tau_live.settings import Settings
from tau_live.switch import SWITCH

if TYPE_CHECKING:
    import subprocess

LOG, COMMAND = "alert-log", "alert-command"
PREFIX = "TAU_LIVE_ALERT_"
MOST_CHARS = 30_000
"""Of the facts in JSON; what is longer would not fit the pipe to a command that does not read."""


class Ran(NamedTuple):
    """What came of a command.

    Attributes:
        code: Its exit code; ``None`` if it did not come to one.
        problem: Why it did not do what it should; ``None`` if it did.
    """

    code: int | None
    problem: str | None


class AlertLog:
    """Writes alerts into the log."""

    @hookimpl
    def alert_raised(self, alert: Alert) -> None:
        """Write a line: a warning, or less where it is but good to know."""
        facts = {name: value for name, value in asdict(alert).items() if name != "facts"}
        log = logger().info if alert.severity == Severity.INFO else logger().warning
        log("alert_raised", **facts, facts=dict(alert.facts))


class AlertCommand:
    """Gives alerts to a command; what it fails of is logged and counted, and not tried again.

    Args:
        words: The command and its arguments.
        environ: What it inherits.
        timeout_s: How long it may take.
        count: Counts a failure.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        environ: Mapping[str, str],
        timeout_s: float,
        count: Callable[[str], None],
    ) -> None:
        self._words = words
        self._environ = environ
        self._timeout_s = timeout_s
        self._count = count
        self._lock = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None

    @hookimpl
    def alert_raised(self, alert: Alert) -> None:
        """Run the command."""
        ran = run(self._words, alert, self._environ, timeout_s=self._timeout_s, began=self._began)
        self._began(None)
        if ran.problem is not None:
            self._count("alert_commands_failed")
            logger().warning("alert_command_failed", kind=alert.kind, problem=ran.problem)

    def kill(self) -> None:
        """End a command that is running; the process ends."""
        with self._lock:
            if self._running is not None:
                _kill(self._running)

    def _began(self, process: "subprocess.Popen[bytes] | None") -> None:
        with self._lock:
            self._running = process


def command_of(
    settings: Settings, environ: Mapping[str, str], count: Callable[[str], None]
) -> AlertCommand | None:
    """Return the plugin that runs what settings name; ``None`` where they name nothing."""
    if not settings.alert_command:
        return None
    return AlertCommand(
        settings.alert_command, environ=environ, timeout_s=settings.alert_timeout_s, count=count
    )


def add_command(plugins: Plugins, command: AlertCommand | None) -> None:
    """Let a command hear of alerts, unless it is none or switched off."""
    if command is not None:
        plugins.register(command, name=COMMAND)


def run(
    words: Sequence[str],
    alert: Alert,
    environ: Mapping[str, str],
    *,
    timeout_s: float,
    out: int | None = None,
    began: "Callable[[subprocess.Popen[bytes]], None]" = lambda _: None,
) -> Ran:
    """Run a command with an alert in its environment and on its standard input.

    It is a process group of its own, of which nothing is left when its time is up, and tau-live is
    off in it.

    Args:
        words: The command and its arguments; no shell sees them.
        alert: The alert.
        environ: What it inherits.
        timeout_s: How long it may take.
        out: Where what it prints goes, as a file's descriptor; ``None`` is nowhere.
        began: Told when it runs.
    """
    import subprocess  # not before there is something to tell

    prints = subprocess.DEVNULL if out is None else out
    environ = {**environ, **variables(alert), SWITCH: "0"}
    try:
        process = subprocess.Popen(  # noqa: S603 - an operator named it
            list(words),
            stdin=subprocess.PIPE, stdout=prints, stderr=prints, start_new_session=True,
            env=environ,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        return Ran(None, f"cannot be started: {text_of(error)}")
    with process:
        began(process)
        try:
            process.communicate(json_of(alert), timeout=timeout_s)
        except subprocess.TimeoutExpired:
            _kill(process)
            return Ran(None, f"took longer than {timeout_s:g} s and was killed")
        except BaseException:
            _kill(process)
            raise
    code = process.returncode
    return Ran(code, f"ended with exit code {code}" if code else None)


def variables(alert: Alert) -> dict[str, str]:
    """Return an alert as variables of the environment; what is open-ended stands in its JSON."""
    told = {name: value for name, value in asdict(alert).items() if name != "facts"}
    told["test"] = "1" if alert.test else "0"
    return {f"{PREFIX}{name.upper()}": str(value).replace("\0", "") for name, value in told.items()}


def json_of(alert: Alert) -> bytes:
    """Return an alert as a line of JSON in ASCII; without its facts where those are too many."""
    told = asdict(alert)
    line = json.dumps({**told, "facts": dict(alert.facts)}, default=str)
    if len(line) > MOST_CHARS:
        line = json.dumps({**told, "facts": {}}, default=str)
    return line.encode() + b"\n"


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
