"""Figures as Prometheus' own parser reads them."""

import math

import pytest
from msgspec import convert

from tau_live.operate.metrics import MOST_VALUES, Family, families, text_of
from tau_live.operate.records import Status

parser = pytest.importorskip("prometheus_client.parser", reason="pip install '.[test]'")

PAUSE = {"reason": "x", "who": "me", "at": 1.0}


def serving(point: str) -> dict[str, object]:
    row = {"version": 4, "pinned": True, "since": 1.0, "rollouts": 8, "parent": None}
    return {point: row}


STATUS: dict[str, object] = {
    "at": 100.5,
    "gate": {"state": "hold", "reason": "update_failures", "since": 5.0, "streaks": {"update": 3}},
    "kill_switch": None,
    "paused": {"learning": PAUSE},
    "rollouts": {"completed": 9, "succeeded": 8, "failed": 1, "cancelled": 0, "open": 2},
    "mean_reward": {"first": 0.25, "last": None, "of": 100},
    "in_service": serving("model"),
    "trials": {
        "model": {
            "exposure": 0.25, "champion": None, "stopped": None,
            "difference": {"estimate": 0.1, "lower": None, "upper": 0.2, "plain": True},
        }
    },
    "counters": {"dropped_queue_full": 7, "left_out_no_reward": 2, "duplicate_spans": 1},
    "retention": {"used_mb": 1.5},
    "processes": ["a", "b"],
}  # fmt: skip


def read(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in parser.text_string_to_metric_families(text.decode())
        for one in family.samples
    }


def told(status: dict[str, object]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return read(
        text_of(families(convert(status, Status), version="1.0", last_raised={"gate-hold": 6.0}))
    )


def test_prometheus_reads_what_status_says() -> None:
    found = told(STATUS)

    assert found["tau_live_gate_passes", ()] == 0.0
    assert found["tau_live_gate_hold_info", (("reason", "update_failures"),)] == 1.0
    assert found["tau_live_rollouts", (("status", "succeeded"),)] == 8.0
    assert found["tau_live_exposure_ratio", (("point", "model"),)] == 0.25
    assert found["tau_live_difference", (("bound", "estimate"), ("point", "model"))] == 0.1
    assert found["tau_live_dropped_events_total", (("reason", "queue_full"),)] == 7.0
    assert found["tau_live_counted_total", (("counter", "duplicate_spans"),)] == 1.0
    assert found["tau_live_store_used_bytes", ()] == 1.5e6
    assert found["tau_live_alert_last_raised_timestamp_seconds", (("kind", "gate-hold"),)] == 6.0


def test_what_is_unknown_has_no_value() -> None:
    found = told(STATUS)

    assert ("tau_live_mean_reward", (("of", "last"),)) not in found
    assert not [name for name, _ in found if name == "tau_live_champion_version"]


def test_every_family_has_its_help_and_its_type_once_and_before_its_values() -> None:
    lines = (
        text_of(families(convert(STATUS, Status), version="1.0", last_raised={}))
        .decode()
        .splitlines()
    )
    names = [line.split()[2] for line in lines if line.startswith("# HELP")]

    assert names == [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(names) == len(set(names))
    assert all(name.startswith("tau_live_") for name in names)


@pytest.mark.parametrize("point", ['a"b', "a\\b", "a\nb", "a{b}", "", "ü", "\\n", "x" * 100])
def test_a_label_comes_back_as_it_was(point: str) -> None:
    found = told({**STATUS, "in_service": serving(point)})

    assert found["tau_live_policy_version", (("point", point),)] == 4.0


def test_a_label_of_control_characters_or_surrogates_is_still_one_line() -> None:
    found = told({**STATUS, "in_service": serving("a\x1b\r\u2028\udc80")})

    assert found["tau_live_policy_version", (("point", "a????"),)] == 4.0


def test_labels_that_would_be_the_same_are_there_once_and_the_others_counted() -> None:
    alike = {"x" * 150 + end: 4 for end in "ab"}

    found = told({**STATUS, "counters": alike})

    assert sum(name == "tau_live_counted_total" for name, _ in found) == 1
    assert found["tau_live_values_left_out", ()] == 1.0


def test_what_may_shrink_again_is_no_counter() -> None:
    found = {
        one.name: one.type
        for one in families(convert(STATUS, Status), version="1.0", last_raised={})
    }

    assert found["tau_live_left_out"] == "gauge"


def test_too_many_values_are_left_out_and_counted() -> None:
    many = {f"counter-{n}": n for n in range(MOST_VALUES + 7)}

    found = told({**STATUS, "counters": many})

    assert sum(name == "tau_live_counted_total" for name, _ in found) == MOST_VALUES
    assert found["tau_live_values_left_out", ()] == 7.0


@pytest.mark.parametrize("value", [0.1, 1e300, -5.0, math.inf, -math.inf, math.nan, 2.0**60])
def test_a_number_comes_back_as_it_was(value: float) -> None:
    text = text_of([Family(name="tau_live_x", type="gauge", help="x", values=[({}, value)])])

    found = read(text)["tau_live_x", ()]

    assert found == value or (math.isnan(found) and math.isnan(value))
