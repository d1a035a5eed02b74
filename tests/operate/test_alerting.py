"""An alert is told once for all processes of a store, when it begins, and hurts nobody."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tau_live.core.hookspecs import Alert
from tau_live.core.records import AuditEntry
from tau_live.core.settings import Settings
from tau_live.operate.alerts import WAITING, AlertQueue, AlertRaiser, trial_alert
from tau_live.operate.status import status_of
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.filled import fill
from tests.operate.test_rules import status

FLOOD = 10**6


OPENED: list[SqliteStore] = []


@pytest.fixture(autouse=True)
def _closing() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


class Process:
    """What of a process of a store looks for alerts, with a clock that is set."""

    def __init__(self, path: Path, name: str = "host:1", **more: object) -> None:
        self.store = SqliteStore.open(path)
        OPENED.append(self.store)
        self.told: list[Alert] = []
        self.counted: list[str] = []
        self.now = 1_000.0
        self.alerting = AlertRaiser(
            Settings(store=path), owner=name, tell=self.told.append,
            count=self.counted.append, clock=lambda: self.now,
        )  # fmt: skip

    def look(self, **more: object) -> list[str]:
        """Look, and return the kinds of the alerts for it."""
        self.told.clear()
        self.alerting.check(self.store, status(**{"at": self.now, **more}))
        return [alert.kind for alert in self.told]


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

    assert told == [["gate-hold"], [], []]
    assert one.look(gate=held(5.0)) == []


def test_when_a_drop_was_seen_is_kept_however_often_it_is_looked(path: Path) -> None:
    one, other = Process(path), Process(path, "host:2")
    counters = {"dropped_queue_full": 3}
    one.store.counters.add(counters)

    one.look(counters=counters)
    other.now += FLOOD
    other.look(counters=counters)

    said = status_of(one.store, Settings(store=path), now=other.now)
    assert said.counters_grew == {"dropped_queue_full": 1_000.0}
    assert said.rewards_missing is None


def test_an_edited_mark_of_the_audit_raises_nothing_twice(path: Path) -> None:
    process = Process(path)
    details = {"point": "model"}
    entry = AuditEntry(at=1.0, who="anna", action="policy_rollback", reason="r", details=details)
    process.store.audit.add(entry)
    first = process.look()
    process.store._connection.change("update alert_marks set mark = 'x' where kind = 'audit'")

    again = process.look()
    process.store.audit.add(entry)
    later = process.look()

    assert (first, again) == (["policy-demoted"], [])
    assert later == ["policy-demoted"]


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

    assert told == [["gate-hold"], ["gate-hold"], []]


def test_what_was_told_is_not_told_again_after_a_restart(path: Path) -> None:
    Process(path).look(gate=held(5.0))

    assert Process(path).look(gate=held(5.0)) == []


def test_what_is_over_and_comes_again_is_told_again(path: Path) -> None:
    one = Process(path)

    told = [one.look(gate=held(5.0)), one.look(), one.look(gate=held(9.0))]

    assert told == [["gate-hold"], [], ["gate-hold"]]


def choices(share: float) -> dict[str, object]:
    return {
        "model": {
            "rollouts": 256, "decisions": 256, "option": "a", "option_share": share,
            "entropy": 0.1, "drift": [],
        }
    }  # fmt: skip


def test_a_good_policy_that_explores_little_is_told_of_once(path: Path) -> None:
    one = Process(path)
    told: list[str] = []

    for share in (1.0, 0.99, 1.0, 0.96, 1.0):
        told += one.look(monitors=choices(share))
        one.now += FLOOD

    assert told == ["choices-collapsed"]
    assert one.look(monitors=choices(0.9)) == []
    assert one.look(monitors=choices(1.0)) == ["choices-collapsed"]


def test_rewards_that_go_on_missing_are_told_once_until_they_come_again(path: Path) -> None:
    one = Process(path)
    missing = {"rewards_missing": {"since": None, "missing": 90, "settled": 100}}
    told = one.look(**missing)
    since = one.store.alerts.notes()["rewards-missing", ""].removeprefix("since ")
    later = {"rewards_missing": {"since": float(since), "missing": 60, "settled": 100}}

    for _ in range(9):
        told += one.look(**later)
        one.now += FLOOD
    over = one.look(rewards_missing=None)
    one.now += FLOOD

    assert (told, over) == (["rewards-missing"], [])
    assert one.look(**missing) == ["rewards-missing"]


def test_what_an_alert_says_steers_no_terminal(path: Path) -> None:
    one = Process(path)

    one.look(kill_switch={"reason": "a\x1b[31m\nb", "who": "ann@web", "at": 5.0})

    assert [alert.sentence for alert in one.told] == ["The kill switch is on: a?[31m b (ann@web)."]


def test_a_variable_that_stops_one_process_after_the_other_is_told_once(path: Path) -> None:
    one = Process(path)
    told: list[str] = []

    for count, at in ((1, 6.0), (3, 5.0)):
        reason = f"TAU_LIVE_RL_KILL is set inside {count} of 3 attached processes: a"
        told += one.look(kill_switch={"reason": reason, "who": "", "at": at})
        one.now += FLOOD

    assert told == ["kill-switch-on"]


def test_each_move_is_told_once_however_soon_it_follows(path: Path) -> None:
    one = Process(path)
    told = []
    for number in range(3):
        one.store.audit.add(
            AuditEntry(at=float(number), who="me", action="champion_frozen", reason="better")
        )
        told.append(one.look())

    assert [*told, one.look()] == [["policy-promoted"]] * 3 + [[]]


def test_what_ends_and_begins_again_is_told_each_time(path: Path) -> None:
    one = Process(path)
    collapsed = choices(1.0)

    told = [one.look(monitors=collapsed), one.look(), one.look(monitors=collapsed)]

    assert told == [["choices-collapsed"], [], ["choices-collapsed"]]


def test_a_flood_of_drops_is_told_once_and_again_after_none_for_a_while(path: Path) -> None:
    one = Process(path)
    told, dropped = [], []
    for total in (5, 50, 500, 500, 505):
        one.now += 40.0 if total < 500 or total > 500 else 500.0
        told.append(one.look(counters={"dropped_queue_full": total}))
        dropped += [alert.facts["dropped"] for alert in one.told]
    one.now += 601.0
    over = one.look(counters={"dropped_queue_full": 505})
    again = one.look(counters={"dropped_queue_full": 507})

    assert told == [["events-dropped"], [], [], [], []]
    assert (over, again) == ([], ["events-dropped"])
    assert [*dropped, one.told[0].facts["dropped"]] == [5, 2]


def test_a_store_that_fails_stops_nothing_and_is_counted(path: Path) -> None:
    one = Process(path)
    one.store.close()

    assert one.look(gate=held(5.0)) == []
    assert one.counted == ["alerts_failed"]


def test_that_a_store_cannot_be_used_is_told_from_memory_and_stored_when_it_can(path: Path) -> None:
    one = Process(path)

    one.alerting.store_fails("the disk is full")
    [alert] = one.told
    one.look()

    assert (alert.kind, alert.severity) == ("store-fails", "critical")
    assert "the disk is full" in alert.sentence
    assert [row.kind for row in one.store.alerts.latest(limit=2)] == ["store-fails"]


def test_secrets_in_what_went_wrong_are_not_told(path: Path) -> None:
    one = Process(path)
    secret = "sk-" + "a1B2" * 12

    one.alerting.store_fails(f"key {secret} was refused")

    assert secret not in str(one.told[0])


def test_what_status_really_says_of_a_store_is_told(path: Path) -> None:
    fill(path)  # which looks, too
    one = Process(path)

    told = [row.kind for row in one.store.alerts.latest(limit=9)]
    one.alerting.check(one.store, status_of(one.store, Settings(store=path), now=one.now))

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

    teller = AlertQueue(tell, count=lost.append)
    alert = trial_alert(Settings(), at=1.0)
    teller.enqueue(alert)
    began.wait(30.0)
    for _ in range(WAITING + 2):
        teller.enqueue(alert)
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

    teller = AlertQueue(tell, count=lost.append)
    for at in (1.0, 2.0):
        teller.enqueue(trial_alert(Settings(), at=at))

    assert teller.close(30.0)
    assert (told, lost) == ([2.0], ["alerts_failed"])


def test_what_one_point_tells_hides_no_other_point(path: Path) -> None:
    one = Process(path)
    first = {"model": choices(1.0)["model"]}

    told = [one.look(monitors=first), one.look(monitors={**first, "route": first["model"]})]

    assert told == [["choices-collapsed"], ["choices-collapsed"]]


def test_each_time_that_an_option_becomes_worse_is_told_once(path: Path) -> None:
    one = Process(path)

    def worse(option: str, seq: int) -> dict[str, object]:
        alarm = {
            "option": option, "direction": "worse", "seen": 90, "since": 30, "shift": -2.0,
            "ready_seq": seq,
        }  # fmt: skip
        return {"model": {"rollouts": 9, "drift": [alarm]}}

    told = [one.look(monitors=worse("a", 1)), one.look(monitors=worse("a", 1))]
    told.append(one.look(monitors=worse("b", 3)))
    told.append(one.look(monitors=worse("a", 4)))

    assert told == [["option-worse"], [], ["option-worse"], ["option-worse"]]
