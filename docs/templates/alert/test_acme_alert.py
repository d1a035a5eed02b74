"""Somebody hears of a hold, once."""

import json
from collections.abc import Iterator
from pathlib import Path

import acme_alert
import pytest


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(acme_alert.FILE, str(tmp_path / "alerts.jsonl"))
    yield tmp_path / "alerts.jsonl"
    acme_alert._told.clear()


def test_a_hold_is_told_once_a_minute(file: Path) -> None:
    for _ in range(3):
        acme_alert.gate_changed({"state": "hold", "reason": "update_failures"})

    [line] = file.read_text().splitlines()
    told = json.loads(line)
    assert (told["alert"], told["reason"]) == ("gate-hold", "update_failures")


def test_a_hold_and_its_end_are_two_things(file: Path) -> None:
    acme_alert.gate_changed({"state": "hold", "reason": "update_failures"})
    acme_alert.gate_changed({"state": "pass", "reason": None})

    assert len(file.read_text().splitlines()) == 2
