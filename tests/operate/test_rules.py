"""What somebody should hear of, from what a store says of itself."""

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec import convert

from tau_live.core.records import AuditEntry
from tau_live.core.settings import Settings
from tau_live.learn.promotion.rules import Move
from tau_live.operate.alert_rules import (
    ALERTS,
    GREW,
    MOVES,
    AlertKind,
    Notes,
    incidents_in,
    missing_now,
    moves,
)
from tau_live.operate.records import Status

PAUSE = {"reason": "x", "who": "me", "at": 1.0}
KNOWN: Notes = {(AlertKind.REWARDS_MISSING.value, ""): "0 0"}


def status(**more: object) -> Status:
    return convert(more, Status)


def told(
    said: Status, noted: Notes = KNOWN, settings: Settings | None = None
) -> list[tuple[str, str]]:
    found = incidents_in(said, noted, settings or Settings())
    return [(one.kind.value, one.subject) for one in found if one.sentence]


def test_all_is_well_where_nothing_happens() -> None:
    assert told(status()) == []


@pytest.mark.parametrize(("detail", "more"), [("boom", ": boom"), (None, "")])
def test_a_hold_says_its_reason(detail: str | None, more: str) -> None:
    gate = {"state": "hold", "reason": "update_failures", "detail": detail, "since": 5.0}

    [found] = incidents_in(status(gate=gate), KNOWN, Settings())

    assert (found.kind, found.at, found.mark) == (AlertKind.GATE_HOLD, 5.0, "5.0")
    assert found.sentence == f"The gate holds: update_failures{more}."


def test_drops_are_an_alert_with_how_many_came_since_the_last_check() -> None:
    counters = {"dropped_queue_full": 7, "dropped_unmade": 2, "dropped_paused": 50}
    noted = {(GREW, "dropped_queue_full"): "4 1.0"}

    [incident] = incidents_in(status(counters=counters, at=5.0), noted, Settings())

    assert (incident.facts["dropped"], incident.facts["total"]) == (5, 9)


@pytest.mark.parametrize(("after", "expected"), [(599.0, [("events-dropped", "")]), (600.0, [])])
def test_events_are_being_dropped_until_none_was_for_a_while(
    after: float, expected: list[tuple[str, str]]
) -> None:
    noted = {(GREW, "dropped_queue_full"): "4 1.0"}

    assert told(status(counters={"dropped_queue_full": 4}, at=1.0 + after), noted) == expected


def test_what_somebody_wanted_dropped_is_no_alert() -> None:
    assert told(status(counters={"dropped_paused": 9, "dropped_closed": 9})) == []


@pytest.mark.parametrize(
    ("settled", "missing", "limit", "before", "expected"),
    [
        pytest.param(100, 90, None, "", True, id="nine in ten are missing"),
        pytest.param(100, 30, None, "", False, id="three in ten are too few without a limit"),
        pytest.param(100, 30, 0.1, "", True, id="three in ten are too many for a limit of one"),
        pytest.param(20, 20, None, "", False, id="twenty are too few to tell"),
        pytest.param(100, 30, None, "since 5", True, id="three in ten are still too many"),
        pytest.param(100, 20, None, "since 5", False, id="it is over"),
        pytest.param(100, 30, None, "10 90", False, id="as an older version noted it"),
    ],
)
def test_missing_rewards_are_told_where_surely_too_many_are(
    settled: int, missing: int, limit: float | None, before: str, *, expected: bool
) -> None:
    settings = Settings(missing_reward_limit=limit)
    noted = {**KNOWN, (AlertKind.REWARDS_MISSING.value, ""): before}

    now = missing_now(missing, settled, noted, settings)
    found = told(status(rewards_missing=now, at=9.0), settings=settings)

    assert found == ([("rewards-missing", "")] if expected else [])
    if now is not None:
        assert now.since == (5.0 if before else None)


@pytest.mark.parametrize(
    ("ready", "paused", "before", "expected"),
    [
        pytest.param(512, {}, "", False, id="two of the largest updates"),
        pytest.param(513, {}, "", True, id="more"),
        pytest.param(513, {"learning": PAUSE}, "", False, id="while learning is paused"),
        pytest.param(257, {}, "behind", True, id="half of it, and it was told"),
        pytest.param(256, {}, "behind", False, id="caught up"),
    ],
)
def test_a_learner_that_does_not_keep_up_at_a_point_is_an_alert_until_it_has_caught_up(
    ready: int, paused: dict[str, object], before: str, expected: bool
) -> None:
    waits = {"model": ready, "tools": 100}
    behind = {point: {"ready": count, "update_takes": 100} for point, count in waits.items()}
    said = status(behind=behind, paused=paused)
    noted = {**KNOWN, (AlertKind.LEARNER_BEHIND.value, "model"): before}

    found = told(said, noted)

    assert found == ([("learner-behind", "model")] if expected else [])


@pytest.mark.parametrize(
    ("share", "decisions", "settings", "expected"),
    [
        pytest.param(1.0, 256, Settings(), True, id="one option alone"),
        pytest.param(1.0, 100, Settings(), False, id="too few choices"),
        pytest.param(0.99, 256, Settings(), False, id="others are still tried"),
        pytest.param(0.9, 256, Settings(option_share_limit=0.8), True, id="over a limit"),
        pytest.param(0.9, 256, Settings(entropy_floor=0.5), True, id="under a floor"),
        pytest.param(1.0, 256, Settings(option_share_limit=1.0), False, id="allowed"),
    ],
)
def test_choices_of_one_option_are_a_collapse(
    share: float, decisions: int, settings: Settings, expected: bool
) -> None:
    figures = {
        "rollouts": 256, "decisions": decisions, "option": "a", "option_share": share,
        "entropy": 0.2, "drift": [],
    }  # fmt: skip

    found = told(status(monitors={"model": figures}), settings=settings)

    assert found == ([("choices-collapsed", "model")] if expected else [])


def test_an_option_that_became_worse_is_told_and_one_that_became_better_is_not() -> None:
    alarms = [
        {
            "option": option, "direction": direction, "seen": 90, "since": 30, "shift": shift,
            "ready_seq": 9,
        }
        for option, direction, shift in (("a", "worse", -0.8), ("b", "better", 0.8))
    ]  # fmt: skip

    found = told(status(monitors={"model": {"drift": alarms}}))

    assert found == [("option-worse", "model: a")]


def test_who_decides_is_told_from_the_audit_but_for_what_was_so_already() -> None:
    frozen = AuditEntry(
        at=5.0, who="host:1", action="champion_frozen", reason="version 3: better",
        details={"point": "model"}, seq=4,
    )  # fmt: skip
    again = AuditEntry(
        at=6.0, who="me", action="policy_stop", reason="x", details={"idempotent": True}, seq=5
    )
    other = AuditEntry(at=7.0, who="me", action="pause", reason="x", seq=6)

    [found] = moves([frozen, again, other])

    assert (found.kind, found.subject, found.at) == (AlertKind.POLICY_PROMOTED, "model", 5.0)
    assert found.sentence == "Champion frozen at 'model' on evidence: version 3: better."


@pytest.mark.parametrize(
    ("share", "was", "expected"),
    [
        pytest.param(0.5, 0.05, [AlertKind.EXPOSURE_RAISED], id="more"),
        pytest.param(0.05, 0.5, [AlertKind.POLICY_DEMOTED], id="less"),
        pytest.param(0.5, 0.5, [], id="the same, as a trial begins anew"),
        pytest.param(None, None, [], id="not said"),
    ],
)
def test_a_share_that_somebody_gives_goes_up_or_down(
    share: float | None, was: float | None, expected: list[AlertKind]
) -> None:
    details = {"point": "model", "share": share, "share_was": was}
    entry = AuditEntry(at=5.0, who="me", action="policy_exposure", reason="x", details=details)

    assert [found.kind for found in moves([entry])] == expected


def test_every_kind_is_described_and_every_move_of_evidence_that_matters_is_told() -> None:
    quiet = {Move.RELEASED.value, Move.RESTARTED.value}

    assert set(ALERTS) == set(AlertKind)
    assert {move.value for move in Move} - quiet <= set(MOVES)
    assert all(about.means.endswith(".") for about in ALERTS.values())
    assert all(about.todo.startswith("tau-live ") for about in ALERTS.values())


def reward(mean: float, *, spread: float = 0.4, rollouts: int = 256) -> dict[str, object]:
    figures = {"rollouts": rollouts, "reward_mean": mean, "reward_spread": spread, "drift": []}
    return {"model": figures}


def followed(means: Sequence[float], *, each: int = 64, **more: float) -> list[list[str]]:
    """Return what is told of mean rewards one after the other, as a store remembers them."""
    noted, sentences = dict(KNOWN), []
    for number, mean in enumerate(means):
        said = status(monitors=reward(mean, **more), became_ready=each * number)  # type: ignore[arg-type]
        found = [
            one
            for one in incidents_in(said, noted, Settings())
            if one.kind is AlertKind.REWARD_FELL
        ]
        noted |= {(one.kind.value, one.subject): one.mark for one in found}
        sentences.append([one.sentence for one in found if one.sentence])
    return sentences


def test_a_reward_that_collapses_is_told_once_and_again_after_it_came_back() -> None:
    told = followed([0.8, 0.83, 0.7, 0.3, 0.05, 0.06, 0.81, 0.05])

    fell = "The mean reward at 'model' fell from 0.83 to {} (the newest 256 rollouts)."
    assert [(n, one) for n, one in enumerate(told) if one] == [
        (3, [fell.format(0.3)]),
        (7, [fell.format(0.05)]),
    ]


def test_what_a_reward_has_fallen_to_for_long_is_what_it_is() -> None:
    told = followed([0.8, 0.3, *[0.3] * 42, 0.3, 0.05])

    assert [n for n, one in enumerate(told) if one] == [1, 45]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_chance_alone_raises_no_alert(seed: int) -> None:
    """A coin of .5 in windows of 64 and 256, looked at 200 times after every eighth rollout."""
    coins = np.random.default_rng(seed).integers(0, 2, 256 + 8 * 200)
    for window in (64, 256):
        means = [float(coins[8 * n : 8 * n + window].mean()) for n in range(200)]

        told = followed(means, each=8, spread=0.5, rollouts=window)

        assert not any(told)


def test_a_plugin_that_is_disabled_is_told_once_for_all_processes() -> None:
    plugins = [
        {"plugin": "ours", "problem": "redact_text: it raises", "process": process}
        for process in ("a:1:1", "a:2:2")
    ]

    [found] = [
        one for one in incidents_in(status(plugins_disabled=plugins), KNOWN, Settings())
        if one.kind is AlertKind.PLUGIN_DISABLED
    ]  # fmt: skip

    assert found.subject == "ours"
    assert found.sentence == "Plugin 'ours' is disabled: redact_text: it raises."
