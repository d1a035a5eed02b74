"""Appends a line to a file for each alert that is worth a call at night."""

import json
import os
from dataclasses import asdict
from pathlib import Path

from tau_live.hookspecs import Alert, hookimpl

FILE, LEAST = "ACME_ALERT_FILE", "ACME_ALERT_LEAST"
SEVERITIES = ("info", "warning", "critical")


@hookimpl
def alert_raised(alert: Alert) -> None:
    """Append a line; in a thread of its own, so a slow disk or network keeps nobody waiting."""
    file = os.environ.get(FILE)
    if file and is_worth_it(alert, os.environ.get(LEAST, "warning")):
        line = json.dumps(asdict(alert) | {"facts": dict(alert.facts)}, default=str)
        with Path(file).open("a") as opened:
            opened.write(line + "\n")


def is_worth_it(alert: Alert, least: str) -> bool:
    """Say whether an alert is as bad as that, or only tried out."""
    return alert.test or SEVERITIES.index(alert.severity) >= SEVERITIES.index(least)
