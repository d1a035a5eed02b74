"""Appends a line for each change that somebody has to hear of, and runs a command with it."""

import json
import os
import subprocess
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tau_live.hookspecs import Promotion, hookimpl

FILE, COMMAND = "ACME_ALERT_FILE", "ACME_ALERT_COMMAND"
EVERY_S = 60.0
"""Of one kind nothing is told more often, so that nobody is woken twice for one cause."""

LONGEST_S = 30.0

_told: dict[str, float] = {}
_lock = threading.Lock()


@hookimpl
def gate_changed(snapshot: Mapping[str, object]) -> None:
    """Tell that tau-live stopped, or goes on."""
    state = str(snapshot["state"])
    alert(f"gate-{state}", {"state": state, "reason": snapshot["reason"]})


@hookimpl
def policy_promoted(promotion: Promotion) -> None:
    """Tell that another version decides."""
    if promotion.change == "version":
        facts = {"point": promotion.point, "version": promotion.version, "was": promotion.was}
        alert(f"policy-{promotion.point}", facts)


def alert(kind: str, facts: Mapping[str, object]) -> None:
    """Tell one thing, if nothing of its kind was told just now; quick, and never waits."""
    with _lock:
        now = time.monotonic()
        if now - _told.get(kind, -EVERY_S) < EVERY_S:
            return
        _told[kind] = now
    line = json.dumps({"at": time.time(), "alert": kind, **facts}, default=str)
    if file := os.environ.get(FILE):
        with Path(file).open("a") as opened:
            opened.write(line + "\n")
    if command := os.environ.get(COMMAND):
        threading.Thread(target=run, args=(command, line), daemon=True).start()


def run(command: str, line: str) -> None:
    """Run what an operator has named, with the line as its argument; in a thread of its own."""
    with suppress(OSError, subprocess.SubprocessError):  # a broken alarm must not hurt the host
        subprocess.run(  # noqa: S603 - an operator named it
            [command, line], stdin=subprocess.DEVNULL, timeout=LONGEST_S, check=False
        )
