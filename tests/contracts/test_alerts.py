"""Alerts that were told, and what keeps them from being told twice."""

from dataclasses import replace

from tau_live.store.records import AlertRow
from tau_live.store.roles import Store

ROW = AlertRow(
    kind="gate-hold", severity="critical", subject="", sentence="It holds.", todo="tau-live gate",
    facts={"reason": "operator"}, at=5.0, owner="me",
)  # fmt: skip


def test_an_alert_comes_back_as_it_was_told_newest_first(store: Store) -> None:
    first = store.alerts.add(ROW)
    second = store.alerts.add(replace(ROW, at=6.0))

    found = store.alerts.latest(limit=2)

    assert found == [second, first]
    assert (second.seq - first.seq, first.facts) == (1, {"reason": "operator"})


def test_when_the_newest_alert_of_each_kind_happened_is_known(store: Store) -> None:
    for kind, at in (("gate-hold", 6.0), ("gate-hold", 5.0), ("trial", 7.0)):
        store.alerts.add(replace(ROW, kind=kind, at=at))

    assert store.alerts.last_raised() == {"gate-hold": 6.0, "trial": 7.0}


def test_what_was_noted_last_is_what_is_known(store: Store) -> None:
    store.alerts.note("gate-hold", "", "1.0")
    store.alerts.note("gate-hold", "", "2.0")

    assert store.alerts.notes() == {("gate-hold", ""): "2.0"}


def test_the_oldest_beyond_a_thousand_are_forgotten(store: Store) -> None:
    with store.begin():
        for at in range(1_003):
            store.alerts.add(replace(ROW, at=float(at)))

    found = store.alerts.latest(limit=2_000)

    assert len(found) == 1_000
    assert found[-1].at == 3.0
