"""Alerts that were told, and what keeps them from being told twice."""

from dataclasses import replace

from tau_live.store.alert_log import AlertRow, Noted
from tau_live.store.roles import Store

ROW = AlertRow(
    kind="gate-hold", severity="critical", subject="", sentence="It holds.", todo="tau-live gate",
    facts={"reason": "operator"}, at=5.0, owner="me",
)  # fmt: skip


def test_an_alert_comes_back_as_it_was_told_newest_first(store: Store) -> None:
    first = store.alerts.tell(ROW, at=5.0)
    second = store.alerts.tell(replace(ROW, at=6.0), at=6.0)

    found = store.alerts.latest(limit=2)

    assert found == [second, first]
    assert (second.seq - first.seq, first.facts) == (1, {"reason": "operator"})


def test_the_next_alert_of_a_kind_says_how_many_were_suppressed(store: Store) -> None:
    for kind in ("gate-hold", "gate-hold", "trial"):
        store.alerts.suppress(kind)

    told = [store.alerts.tell(ROW, at=5.0).suppressed, store.alerts.tell(ROW, at=6.0).suppressed]

    assert told == [2, 0]
    assert store.alerts.suppressed() == {"trial": 1}


def test_when_a_kind_was_told_is_known_until_it_is_released(store: Store) -> None:
    store.alerts.tell(ROW, at=5.0)
    before = store.alerts.last_told()

    store.alerts.release("gate-hold")

    assert (before, store.alerts.last_told()) == ({("gate-hold", ""): 5.0}, {})


def test_what_was_noted_last_is_what_is_known(store: Store) -> None:
    store.alerts.note("gate-hold", "", "1.0", told=False)
    store.alerts.note("gate-hold", "", "2.0", told=True)

    assert store.alerts.noted() == {("gate-hold", ""): Noted("2.0", told=True)}


def test_the_oldest_beyond_a_thousand_are_forgotten(store: Store) -> None:
    with store.begin():
        for at in range(1_003):
            store.alerts.tell(replace(ROW, at=float(at)), at=float(at))

    found = store.alerts.latest(limit=2_000)

    assert len(found) == 1_000
    assert found[-1].at == 3.0
