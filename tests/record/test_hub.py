"""The thread that keeps a process in touch with the hub, and what it does while nothing happens."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tau_live.core.errors import StoreUnavailableError
from tau_live.core.gate_keeper import GateKeeper
from tau_live.record.hub import Hub, HubListeners
from tau_live.store.opening import open_at, open_spool
from tau_live.store.records import RolloutCopy
from tau_live.store.roles import Spool, Store
from tests.contracts.making import begun
from tests.live.running import until
from tests.streams import collector_of
from tests.writes import writes


def ignore(*_: object) -> None:
    """Take whatever is reported."""


@contextmanager
def running(
    open_hub: Callable[[], Store], spool: Path, *, heard: Callable[[float], None] = ignore
) -> Iterator[Hub]:
    hub = Hub(
        open_hub=open_hub,
        open_spool=lambda _: open_spool(spool),
        collector_of=lambda store: collector_of(store, owner=None),
        gate=GateKeeper(limit=3, who="me"),
        owner="here:1:1",
        permit_s=900.0,
        limit=3,
        listeners=HubListeners(
            ready=ignore, changed=ignore, look=ignore, poll=ignore, heard=heard,
            failing=ignore, failed=ignore,
        ),
    )  # fmt: skip
    hub.start()
    try:
        yield hub
    finally:
        assert hub.close(5.0)


def test_who_has_ceased_to_wait_hurries_no_host_that_returns(tmp_path: Path) -> None:
    def away() -> Store:
        raise StoreUnavailableError("away")

    with running(away, tmp_path / "spool.sqlite") as hub:
        sent = hub.flush(0.5)

        assert (sent, hub._requests) == (None, [])


@pytest.mark.slow
def test_an_idle_spool_is_read_only_when_it_was_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    copies = Spool.copies

    def counted(spool: Spool, *, limit: int) -> list[RolloutCopy]:
        looks.append(limit)
        return copies(spool, limit=limit)

    monkeypatch.setattr(Spool, "copies", counted)
    file, path = tmp_path / "hub.sqlite", tmp_path / "spool.sqlite"
    host, seen = open_spool(path), open_at(file)
    turns: list[float] = []
    with running(lambda: open_at(file), path, heard=turns.append):
        until(lambda: len(turns) > 10)
        idle = len(looks)
        begun(host, "live-1")
        writes(host).set_status("live-1", "succeeded", at=9.0)
        until(lambda: seen.rollouts.find_rollout("live-1") is not None)

    host.close()
    seen.close()
    assert idle <= 2
