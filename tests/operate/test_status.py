import json
import stat
import time
from pathlib import Path

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from tau_live.core.processes import this_process
from tau_live.core.records import RolloutStatus
from tau_live.core.settings import Settings
from tau_live.operate.status import publish, status_file, status_of
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.filled import HOST_PROCESS, fill
from tests.contracts.making import begun, decision
from tests.writes import writes


def status(path: Path) -> dict[str, object]:
    store = SqliteStore.open(path, read_only=True)
    found = status_of(store, Settings(store=path), now=time.time())
    store.close()
    plain: dict[str, object] = to_builtins(found)
    return plain


def test_an_empty_store_has_a_status(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    SqliteStore.open(path).close()

    found = status(path)

    assert found["rollouts"] == {
        "completed": 0, "succeeded": 0, "failed": 0, "cancelled": 0, "open": 0,
    }  # fmt: skip
    assert found["mean_reward"] == {"first": None, "last": None, "of": 100}
    assert (found["last_report"], found["in_service"], found["processes"]) == (None, {}, [])


def test_it_counts_what_is_stored(tmp_path: Path) -> None:
    fill(tmp_path / "store.sqlite")

    found = status(tmp_path / "store.sqlite")

    assert found["rollouts"] == {
        "completed": 3, "succeeded": 1, "failed": 1, "cancelled": 1, "open": 2,
    }  # fmt: skip
    assert found["waiting_for_reward"] == 1
    assert found["ready_to_learn"] == {"model": 0, "tools": 1}
    assert found["behind"] == {}
    assert found["mean_reward"] == {"first": None, "last": 0.25, "of": 100}
    assert found["processes"] == [HOST_PROCESS]


def test_runs_in_shadow_are_not_ready_to_teach_the_policy(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    store = SqliteStore.open(path)
    for name, in_shadow in (("live-1", True), ("live-2", False), ("live-3", True)):
        begun(store, name)
        own = decision(1, name)
        shadow = replace(own, chosen=None, propensity=None, why_not="shadow")
        writes(store).add_decision(shadow if in_shadow else own)
        writes(store).set_status(name, RolloutStatus.SUCCEEDED, at=5.0)
        writes(store).mark_ready(name, total_reward=1.0)

    found = status_of(store, Settings(store=path), now=time.time())
    with_host = status_of(store, Settings(store=path, learn_from_host=True), now=time.time())

    store.close()
    assert found.ready_to_learn == {"model": 1}
    assert with_host.ready_to_learn == {"model": 3}


def test_the_mean_reward_is_of_the_first_and_the_last_hundred(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "store.sqlite")
    with store.begin():
        for n in range(250):
            begun(store, f"live-{n}")
            if n % 3:  # some have decisions at one point, some at two, some at none
                writes(store).add_decision(decision(1, f"live-{n}"))
            if n % 3 == 2:
                writes(store).add_decision(decision(2, f"live-{n}", point="tools"))
            writes(store).mark_ready(f"live-{n}", total_reward=float(n))
    store.close()

    found = status(tmp_path / "store.sqlite")

    assert found["mean_reward"] == {"first": 49.5, "last": 199.5, "of": 100}


def test_it_is_published_beside_the_store_for_its_owner_alone(tmp_path: Path) -> None:
    fill(tmp_path / "store.sqlite")
    file = status_file(Settings(store=tmp_path / "store.sqlite"))
    found = status(tmp_path / "store.sqlite")

    publish(file, found)

    assert file == tmp_path / "status.json"
    assert json.loads(file.read_text()) == found
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_status_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "status.json"
    publish(file, {"at": 1.0})

    with pytest.raises(TypeError):
        publish(file, {"at": object()})

    assert json.loads(file.read_text()) == {"at": 1.0}
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_a_process_that_is_dead_is_not_attached(tmp_path: Path) -> None:
    alive, dead = this_process(), this_process().rsplit(":", 1)[0] + ":another-birth"
    settings = Settings(store=tmp_path / "store.sqlite")
    store = SqliteStore.open(settings.store)
    for owner in (alive, dead):
        store.leases.acquire(f"process:{owner}", owner, ttl_s=60.0)

    found = status_of(store, settings, now=2.0)

    store.close()
    assert found.processes == [alive]
