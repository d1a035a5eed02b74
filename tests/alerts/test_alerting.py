"""An alert is told once for all processes of a store, not too often, and hurts nobody."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tau_live.alerts.alerting import WAITING, Alerting, Teller, trial_alert
from tau_live.hookspecs import Alert
from tau_live.settings import Settings
from tau_live.status import status_of
from tau_live.store.records import AuditEntry
from tau_live.store.sqlite import SqliteStore
from tests.alerts.test_rules import status
from tests.cli.filled import fill

FLOOD = 10**6


class Process:
    """What of a process of a store looks for alerts, with a clock that is set."""

    def __init__(self, path: Path, name: str = "host:1", **more: object) -> None:
        self.store = SqliteStore.open(path)
        self.told: list[Alert] = []
        self.counted: list[str] = []
        self.now = 1_000.0
        self.alerting = Alerting(
            Settings(store=path, alert_interval_s=60.0), owner=name, tell=self.told.append,
            count=self.counted.append, clock=lambda: self.now,
        )  # fmt: skip

    def look(self, **more: object) -> list[tuple[str, int]]:
        """Look, and return what was told for it, each with how many were suppressed."""
        self.told.clear()
        self.alerting.look(self.store, status(**more))
        return [(alert.kind, alert.suppressed) for alert in self.told]


Make = Callable[..., Process]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


def held(since: float) -> dict[str, object]:
    return {"state": "hold", "reason": "update_failures", "detail": "boom", "since": since}


def test_a_condition_that_lasts_is_told_once(path: Path) -> None:
    one = Process(path)

    told = [one.look(gate=held(5.0)) for _ in range(3)]
    one.now += FLOOD

    assert told == [[("gate-hold", 0)], [], []]
    assert one.look(gate=held(5.0)) == []


def test_when_a_drop_was_seen_is_kept_however_often_it_is_looked(path: Path) -> None:
    one, other = Process(path), Process(path, "host:2")
    counters = {"dropped_queue_full": 3}
    one.store.counters.add(counters)

    one.look(counters=counters)
    other.now += FLOOD
    other.look(counters=counters)

    said = status_of(one.store, Settings(store=path), now=other.now)
    assert said["counters_grew"] == {"dropped_queue_full": 1_000.0}
    assert said["rewards_missing"] is None


def test_of_four_processes_one_tells_it(path: Path) -> None:
    four = [Process(path, f"host:{n}") for n in range(4)]
    barrier = threading.Barrier(4)

    def looks(process: Process) -> None:
        barrier.wait()
        process.look(gate=held(5.0), counters={"dropped_queue_full": 3})

    threads = [threading.Thread(target=looks, args=(process,)) for process in four]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    told = [alert.kind for process in four for alert in process.told]
    assert sorted(told) == ["events-dropped", "gate-hold"]


def test_a_hold_right_after_a_reset_is_told_too(path: Path) -> None:
    one = Process(path)

    told = [one.look(gate=held(5.0)), one.look(gate=held(6.0)), one.look(gate=held(6.0))]

    assert told == [[("gate-hold", 0)], [("gate-hold", 0)], []]


def test_what_was_told_is_not_told_again_after_a_restart(path: Path) -> None:
    Process(path).look(gate=held(5.0))

    assert Process(path).look(gate=held(5.0)) == []


def test_what_is_over_and_comes_again_is_told_again(path: Path) -> None:
    one = Process(path)

    told = [one.look(gate=held(5.0)), one.look(), one.look(gate=held(9.0))]

    assert told == [[("gate-hold", 0)], [], [("gate-hold", 0)]]


def choices(share: float) -> dict[str, object]:
    return {
        "model": {
            "rollouts": 256, "decisions": 256, "option": "a", "option_share": share,
            "entropy": 0.1, "drift": [],
        }
    }  # fmt: skip


def test_a_good_policy_that_explores_little_is_told_of_once(path: Path) -> None:
    one = Process(path)
    told: list[tuple[str, int]] = []

    for share in (1.0, 0.99, 1.0, 0.96, 1.0):
        told += one.look(monitors=choices(share))
        one.now += FLOOD

    assert told == [("choices-collapsed", 0)]
    assert one.look(monitors=choices(0.9)) == []
    assert one.look(monitors=choices(1.0)) == [("choices-collapsed", 0)]


def test_rewards_that_go_on_missing_are_told_once_until_they_come_again(path: Path) -> None:
    one = Process(path)
    missing = {"rewards_missing": {"since": None, "missing": 90, "settled": 100}}
    told = one.look(**missing)
    since = one.store.alerts.noted()["rewards-missing", ""].mark.removeprefix("since ")
    later = {"rewards_missing": {"since": float(since), "missing": 60, "settled": 100}}

    for _ in range(9):
        told += one.look(**later)
        one.now += FLOOD
    over = one.look(rewards_missing=None)
    one.now += FLOOD

    assert (told, over) == ([("rewards-missing", 0)], [])
    assert one.look(**missing) == [("rewards-missing", 0)]


def test_what_an_alert_says_steers_no_terminal(path: Path) -> None:
    one = Process(path)

    one.look(kill_switch={"reason": "a\x1b[31m\nb", "who": "ann@web", "at": 5.0})

    assert [alert.sentence for alert in one.told] == ["The kill switch is on: a?[31m b (ann@web)."]


def test_a_variable_that_stops_one_process_after_the_other_is_told_once(path: Path) -> None:
    one = Process(path)
    told: list[tuple[str, int]] = []

    for count, at in ((1, 6.0), (3, 5.0)):
        reason = f"TAU_LIVE_RL_KILL is set inside {count} of 3 attached processes: a"
        told += one.look(kill_switch={"reason": reason, "who": "", "at": at})
        one.now += FLOOD

    assert told == [("kill-switch-on", 0)]


def test_moves_that_come_too_soon_are_counted_and_told_of_by_the_next(path: Path) -> None:
    one = Process(path)
    told = []
    for number in range(4):
        one.store.audit.add(
            AuditEntry(at=float(number), who="me", action="champion_frozen", reason="better")
        )
        one.now += 100.0 if number == 3 else 1.0
        told.append(one.look())

    assert told == [[("policy-promoted", 0)], [], [], [("policy-promoted", 2)]]


def test_what_came_too_soon_but_lasts_is_told_when_it_may_be(path: Path) -> None:
    one = Process(path)
    figures = {"rollouts": 300, "decisions": 300, "option": "a", "option_share": 1.0, "entropy": 0}
    collapsed = {"model": figures}

    told = [one.look(monitors=collapsed), one.look(), one.look(monitors=collapsed)]
    one.now += 61.0
    told.append(one.look(monitors=collapsed))

    assert told == [[("choices-collapsed", 0)], [], [], [("choices-collapsed", 0)]]


def test_a_flood_of_drops_is_told_by_its_sum(path: Path) -> None:
    one = Process(path)
    told, dropped = [], []
    for total in (5, 50, 500):
        one.now += 40.0
        told.append(one.look(counters={"dropped_queue_full": total}))
        dropped += [alert.facts["dropped"] for alert in one.told]

    assert told == [[("events-dropped", 0)], [], [("events-dropped", 0)]]
    assert dropped == [5, 495]


def test_a_clock_that_was_set_back_silences_nothing(path: Path) -> None:
    one = Process(path)
    one.look(counters={"dropped_queue_full": 5})
    one.now -= 500.0

    assert one.look(counters={"dropped_queue_full": 6}) == [("events-dropped", 0)]


def test_a_store_that_fails_stops_nothing_and_is_counted(path: Path) -> None:
    one = Process(path)
    one.store.close()

    assert one.look(gate=held(5.0)) == []
    assert one.counted == ["alerts_failed"]


def test_a_store_that_cannot_be_used_is_told_from_memory_at_most_so_often(path: Path) -> None:
    one = Process(path)

    for _ in range(3):
        one.alerting.store_fails("the disk is full")

    [alert] = one.told
    assert (alert.kind, alert.severity) == ("store-fails", "critical")
    assert "the disk is full" in alert.sentence


def test_secrets_in_what_went_wrong_are_not_told(path: Path) -> None:
    one = Process(path)
    secret = "sk-" + "a1B2" * 12

    one.alerting.store_fails(f"key {secret} was refused")

    assert secret not in str(one.told[0])


def test_what_status_really_says_of_a_store_is_told(path: Path) -> None:
    fill(path)  # which looks, too
    one = Process(path)

    told = [row.kind for row in one.store.alerts.latest(limit=9)]
    one.alerting.look(one.store, status_of(one.store, Settings(store=path), now=one.now))

    assert sorted(told) == ["events-dropped", "gate-reset", "option-worse"]
    assert one.told == []


def test_telling_waits_for_nobody_and_what_is_too_much_is_counted() -> None:
    goes_on, began = threading.Event(), threading.Event()
    told: list[Alert] = []
    lost: list[str] = []

    def tell(alert: Alert) -> None:
        began.set()
        goes_on.wait(30.0)
        told.append(alert)

    teller = Teller(tell, count=lost.append)
    alert = trial_alert(Settings(), at=1.0)
    teller.put(alert)
    began.wait(30.0)
    for _ in range(WAITING + 2):
        teller.put(alert)
    goes_on.set()

    assert teller.close(30.0)
    assert (len(told), lost) == (WAITING + 1, ["alerts_lost"] * 2)


def test_what_raises_while_it_is_told_is_counted_and_the_next_one_is_told() -> None:
    told: list[float] = []
    lost: list[str] = []

    def tell(alert: Alert) -> None:
        if alert.at == 1.0:
            raise ZeroDivisionError
        told.append(alert.at)

    teller = Teller(tell, count=lost.append)
    for at in (1.0, 2.0):
        teller.put(trial_alert(Settings(), at=at))

    assert teller.close(30.0)
    assert (told, lost) == ([2.0], ["alerts_failed"])


def test_what_one_point_tells_hides_no_other_point(path: Path) -> None:
    one = Process(path)
    first = {"model": choices(1.0)["model"]}

    told = [one.look(monitors=first), one.look(monitors={**first, "route": first["model"]})]

    assert told == [[("choices-collapsed", 0)], [("choices-collapsed", 0)]]


def test_an_option_that_becomes_worse_again_and_again_is_told_no_oftener_than_that(
    path: Path,
) -> None:
    one = Process(path)

    def worse(option: str, seq: int) -> dict[str, object]:
        alarm = {"direction": "worse", "option": option, "shift": -2.0, "ready_seq": seq}
        return {"model": {"rollouts": 9, "drift": [alarm]}}

    told = [one.look(monitors=worse("a", 1)), one.look(monitors=worse("a", 2))]
    told.append(one.look(monitors=worse("b", 3)))
    one.now += 61.0
    told.append(one.look(monitors=worse("a", 4)))

    assert told == [[("option-worse", 0)], [], [("option-worse", 0)], [("option-worse", 1)]]
