"""Somebody hears of what is bad enough."""

import json
from pathlib import Path

import acme_alert
import pytest

from tau_live.core.hookspecs import Alert


def alert(severity: str, *, test: bool = False) -> Alert:
    return Alert(
        kind="gate-hold",
        severity=severity,
        sentence="The gate holds.",
        todo="tau-live gate",
        facts={"reason": "update_failures"},
        at=1.0,
        store="store.sqlite",
        version="1.0",
        test=test,
    )


def test_a_hold_is_written_down_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(acme_alert.FILE, str(tmp_path / "alerts.jsonl"))

    acme_alert.alert_raised(alert("critical"))

    [line] = (tmp_path / "alerts.jsonl").read_text().splitlines()
    written = json.loads(line)
    assert (written["kind"], written["todo"]) == ("gate-hold", "tau-live gate")
    assert written["facts"] == {"reason": "update_failures"}


@pytest.mark.parametrize(
    ("severity", "test", "heard"),
    [
        ("critical", False, True),
        ("warning", False, True),
        ("info", False, False),
        ("info", True, True),
    ],
)
def test_what_is_good_to_know_wakes_nobody_unless_it_is_tried_out(
    severity: str, test: bool, heard: bool
) -> None:
    assert acme_alert.is_worth_it(alert(severity, test=test), "warning") is heard
