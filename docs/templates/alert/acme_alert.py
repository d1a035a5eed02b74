"""Appends a line to a file for each alert that is worth a call at night."""

import os
from pathlib import Path

import msgspec

from tau_live.core.hookspecs import Alert, hookimpl

FILE, LEAST = "ACME_ALERT_FILE", "ACME_ALERT_LEAST"
SEVERITIES = ("info", "warning", "critical")


@hookimpl
def alert_raised(alert: Alert) -> None:
    """Append a line; in a thread of its own, so a slow disk or network keeps nobody waiting."""
    file = os.environ.get(FILE)
    if file and is_worth_it(alert, os.environ.get(LEAST, "warning")):
        with Path(file).open("ab") as log:
            log.write(msgspec.json.encode(alert) + b"\n")


def is_worth_it(alert: Alert, least: str) -> bool:
    """Return whether an alert is at least as severe, or is a test."""
    return alert.test or SEVERITIES.index(alert.severity) >= SEVERITIES.index(least)
