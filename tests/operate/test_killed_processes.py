"""The variable that stops a process from inside, as others see it in the store."""

from tau_live.core.processes import PROCESSES, this_process
from tau_live.operate.stops import RENEW_S, TTL_S, Notices, Stop, ended_by, killed_inside
from tau_live.store.sqlite.store import SqliteStore

ME = this_process()
WORD = Stop("TAU_LIVE_RL_KILL is '1'", "", 5.0)


def test_others_see_it_until_it_is_taken_back(store: SqliteStore) -> None:
    leases = store.leases
    leases.acquire(f"{PROCESSES}elsewhere:1:2", "elsewhere:1:2", ttl_s=TTL_S)
    word = Notices(ME)

    word.publish(leases, WORD, now=100.0)
    found = killed_inside(leases)
    word.publish(leases, None, now=102.0)

    assert found == Stop(f"TAU_LIVE_RL_KILL is set inside 1 of 2 attached processes: {ME}", "", 5.0)
    assert "unset TAU_LIVE_RL_KILL" in ended_by(found.reason)
    assert killed_inside(leases) is None


def test_it_lasts_as_long_as_it_is_said(store: SqliteStore) -> None:
    leases = store.leases
    word = Notices(ME)
    now = 100.0
    store.clock = lambda: now

    while now < 100.0 + 2 * TTL_S:
        word.publish(leases, WORD, now=now)
        now += RENEW_S / 2

    assert killed_inside(leases) is not None
    now += TTL_S
    assert killed_inside(leases) is None


def test_a_process_that_died_stops_nothing(store: SqliteStore) -> None:
    leases = store.leases
    machine = ME.rsplit(":", 2)[0]
    Notices(f"{machine}:4194999:1").publish(leases, WORD, now=100.0)

    assert killed_inside(leases) is None
