import errno
import json
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from tau_live.core.addresses import where_in
from tau_live.core.processes import PROCESSES, this_process
from tau_live.core.records import RewardSource, RolloutStatus
from tau_live.learn.learner import LEASE
from tau_live.store.files import policies_of
from tau_live.store.opening import open_at, open_spool
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run
from tests.cli.filled import HOST_PROCESS, hold
from tests.contracts.making import ready, reward, rollout
from tests.postgres import needs_postgres, server
from tests.writes import writes


def states(found: object) -> dict[str, list[str]]:
    assert isinstance(found, dict)
    told: dict[str, list[str]] = {}
    for check in found["checks"]:
        told.setdefault(check["check"], []).append(check["state"])
    return told


def test_a_healthy_installation_has_no_failure(filled: Path, read: Read) -> None:
    found = read("doctor", "--store", filled, TAU_LIVE_RL="1")

    assert isinstance(found, dict)
    assert found["worst"] == "warn"  # two events were dropped, and the last update was skipped
    assert {name for name, of in states(found).items() if set(of) != {"ok"}} == {
        "drops",
        "last update",
    }
    assert HOST_PROCESS in next(c["found"] for c in found["checks"] if c["check"] == "processes")


def test_every_problem_comes_with_what_to_do(filled: Path, read: Read) -> None:
    found = read("doctor", "--store", filled)

    assert isinstance(found, dict)
    assert all(check["advice"] for check in found["checks"] if check["state"] != "ok")


def test_without_a_store_it_warns_and_makes_none(tmp_path: Path, run: Run) -> None:
    result = run("doctor")

    assert result.exit_code == 0
    assert "does not exist yet" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_gate_that_holds_is_a_failure(filled: Path, run: Run) -> None:
    hold(filled)

    result = run("doctor", "--store", filled)

    assert result.exit_code == 1
    assert "tau-live gate reset --reason" in result.stdout


def test_settings_that_are_wrong_do_not_keep_the_store_from_being_looked_at(
    filled: Path, run: Run
) -> None:
    result = run("doctor", "--store", filled, TAU_LIVE_RL_SEED="many")

    assert result.exit_code == 1
    assert "TAU_LIVE_RL_SEED" in result.stdout
    assert "passes" in result.stdout


@pytest.mark.parametrize("content", [b"", b"something else" * 100])
def test_a_file_that_is_no_store_is_a_failure(content: bytes, tmp_path: Path, run: Run) -> None:
    file = tmp_path / "store.sqlite"
    file.write_bytes(content)

    result = run("doctor", "--store", file)

    assert result.exit_code == 1
    assert "schema" in result.stdout


def test_a_store_that_others_can_read_is_a_warning(filled: Path, read: Read) -> None:
    filled.chmod(0o644)

    found = read("doctor", "--store", filled)

    assert states(found)["permissions"] == ["warn"]


def test_a_cost_limit_without_a_cost_is_a_warning(filled: Path, read: Read) -> None:
    found = read("doctor", "--store", filled, TAU_LIVE_RL_COST_LIMIT="0.1")

    assert states(found)["settings"] == ["warn"]


def test_a_version_that_serves_and_is_damaged_is_a_warning(filled: Path, read: Read) -> None:
    for file in policies_of(filled).iterdir():
        file.write_bytes(b"damaged")

    found = read("doctor", "--store", filled)

    assert states(found)["version"] == ["warn"]


def test_a_switch_that_is_misspelt_is_a_warning(filled: Path, read: Read) -> None:
    found = read("doctor", "--store", filled, TAU_LIVE_RL="jes")

    assert states(found)["switch"] == ["warn"]
    assert states(found)["settings"] == ["ok"], "it is said once"


@pytest.mark.slow
def test_programs_that_end_at_once_are_told_how_to_learn(tmp_path: Path, run: Run) -> None:
    with closing(SqliteStore.open(tmp_path / "new.sqlite")) as store:
        for number in range(16):
            ready(store, f"live-{number}", "model")
        alone = run("doctor", "--store", store.path).stdout
        store.leases.acquire("process:web-1:7:1", "web-1:7:1", ttl_s=60.0)

        attached = run("doctor", "--store", store.path).stdout

    assert "call tau_live.flush(timeout_s=60) before the program ends" in alone
    assert "(nobody-learns)" not in attached


def test_nobody_sending_rewards_is_a_warning(tmp_path: Path, read: Read) -> None:
    store = SqliteStore.open(tmp_path / "new.sqlite")
    writes(store).begin_rollout(rollout("live-1"))
    writes(store).await_reward("live-1", until=4e9)
    store.close()

    found = read("doctor", "--store", tmp_path / "new.sqlite")

    assert states(found)["rewards"] == ["warn"]


def test_inferred_rewards_are_not_said_to_teach_nothing(tmp_path: Path, run: Run) -> None:
    store = SqliteStore.open(tmp_path / "new.sqlite")
    writes(store).begin_rollout(rollout("live-1", RolloutStatus.SUCCEEDED, ended_at=4.0))
    writes(store).add_reward(reward(rollout_id="live-1", source=RewardSource.INFERRED))
    writes(store).mark_ready("live-1", total_reward=1.0)
    store.close()

    said = " ".join(run("doctor", "--store", tmp_path / "new.sqlite").stdout.split())

    assert "0 sent for the last 1 rollouts" in said
    assert "only inferred ones are learned from" in said


def test_a_host_of_which_only_the_namespace_is_there_is_not_installed(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "opentelemetry" / "context").mkdir(parents=True)
    (tmp_path / "opentelemetry" / "context" / "__init__.py").touch()
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    if module_there("opentelemetry.sdk"):
        pytest.skip("the SDK is installed")

    said = run("doctor").stdout

    assert "opentelemetry is not installed here" in said


def module_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def test_a_store_that_can_never_be_made_is_a_failure(run: Run) -> None:
    result = run("doctor", "--store", "/proc/nowhere/store.sqlite")

    assert result.exit_code == 1
    assert "cannot be created" in result.output


@pytest.mark.parametrize(
    ("content", "code"),
    [pytest.param(b"something else" * 100, "store-damaged", id="no store at all")],
)
def test_what_is_no_store_has_the_code_of_its_error(
    filled: Path, read: Read, content: bytes, code: str
) -> None:
    filled.write_bytes(content)

    found = read("doctor", "--store", filled)

    assert isinstance(found, dict)
    assert code in {check["mistake"] for check in found["checks"]}


def test_a_store_that_this_user_may_not_look_at_is_said_with_what_to_do(
    filled: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    exists = Path.exists

    def denied(path: Path) -> bool:  # root may look at everything
        if path == filled:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", denied)

    found = read("doctor", "--store", filled)

    assert isinstance(found, dict)
    [check] = [one for one in found["checks"] if one["mistake"] == "store-unwritable"]
    assert "cannot be accessed: Permission denied" in check["found"]


def test_a_process_that_died_is_not_named(filled: Path, read: Read) -> None:
    dead = f"{this_process().rsplit(':', 2)[0]}:4194999:1"
    store = SqliteStore.open(filled)
    for name in (PROCESSES + dead, f"{LEASE}model"):
        store.leases.acquire(name, dead, ttl_s=600.0)
    store.close()

    found = read("doctor", "--store", filled)

    assert isinstance(found, dict)
    assert [check for check in found["checks"] if dead in check["found"]] == []


AWAY = "postgresql://tau@127.0.0.1:1/tau"


def checks_of(run: Run, *arguments: object, **environ: str) -> dict[str, dict[str, str]]:
    """Return the checks of the spool and of the store's folder, by their subject."""
    checks = json.loads(run("doctor", *arguments, "--json", **environ).stdout)["checks"]
    return {check["check"]: check for check in checks if check["check"] in {"spool", "store"}}


@pytest.mark.parametrize("others", [[], ["live.db"]])
@pytest.mark.parametrize("own", ["store@12345678.spool.sqlite", "named.sqlite"])
def test_the_hosts_own_spool_is_no_store_to_be_moved_away(
    own: str, others: list[str], tmp_path: Path, run: Run
) -> None:
    address = tmp_path / "ours.address"
    address.write_text(AWAY)
    for name in (
        "store@12345678.spool.sqlite",
        own,
    ):  # the first may hold what is not sent, whatever is named now
        open_spool(tmp_path / name).close()
    for name in others:
        SqliteStore.open(tmp_path / name).close()

    found = checks_of(run, "--store", address, TAU_LIVE_RL_SPOOL=str(tmp_path / own))

    several = found["store"]["found"] if others else None
    assert several == (f"1 more in {tmp_path}: live.db" if others else None)
    assert found.get("store", {}).get("mistake") == ("stores-several" if others else None)


@needs_postgres
@pytest.mark.parametrize("is_away", [False, True])
def test_a_spool_of_another_database_is_a_failure_with_what_sends_it(
    is_away: bool, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    spool, owner, wanted = tmp_path / "one.sqlite", *(server().new_database() for _ in range(2))
    fill_spool(spool, owner)
    wanted = AWAY if is_away else wanted

    found = checks_of(run, "--store", wanted, TAU_LIVE_RL_SPOOL=str(spool))["spool"]
    own = checks_of(run, "--store", owner, TAU_LIVE_RL_SPOOL=str(spool))["spool"]

    assert (found["state"], found["mistake"]) == ("fail", "spool-of-others")
    assert f"belongs to '{where_in(owner)}' and has 1 rollouts" in found["found"]
    sends = f"TAU_LIVE_RL_SPOOL='{spool}' tau-live ship --store '{where_in(owner)}'"
    assert sends in found["advice"]
    assert own["state"] == "ok"
    sent = run("ship", "--store", where_in(owner), "--json", TAU_LIVE_RL_SPOOL=str(spool))
    assert json.loads(sent.stdout)["shipped"] == 1, sent.stderr
    again = run("ship", "--store", where_in(owner), TAU_LIVE_RL_SPOOL=str(spool)).stdout
    assert [" ".join(line.split()) for line in again.splitlines()] == [
        "sent 0", "ready to be learned from 0 of these", "refused by the database 0",
        "left in the spool 0",
    ]  # fmt: skip


@needs_postgres
def test_a_spool_of_a_database_that_is_gone_is_to_be_moved_and_can_be_read(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    address, spool = server().new_database(), tmp_path / "one.sqlite"
    fill_spool(spool, address)
    name = address.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(server().address("postgres"), autocommit=True) as connection:
        connection.execute(f"drop database {name} with (force)".encode())
        connection.execute(f"create database {name} template template0".encode())
    open_at(address).close()

    found = checks_of(run, "--store", address, TAU_LIVE_RL_SPOOL=str(spool))["spool"]
    (tmp_path / "moved").mkdir()
    for file in tmp_path.glob("one.sqlite*"):
        file.rename(tmp_path / "moved" / file.name)
    exported = run("export", "--store", tmp_path / "moved/one.sqlite")

    assert (found["state"], found["mistake"]) == ("fail", "spool-of-others")
    assert "belongs to an earlier database at this address" in found["found"]
    assert f"move '{spool}' away" in found["advice"]
    assert "tau-live ship" not in found["advice"]
    assert '"live-unsent"' in exported.stdout


def test_a_spool_is_neither_made_nor_taken_by_looking(tmp_path: Path, run: Run) -> None:
    address, spool = tmp_path / "ours.address", tmp_path / "one.sqlite"
    address.write_text(AWAY)
    missing = checks_of(run, "--store", address, TAU_LIVE_RL_SPOOL=str(spool))
    was_made = spool.exists()
    open_spool(spool).close()

    nobodys = checks_of(run, "--store", address, TAU_LIVE_RL_SPOOL=str(spool))["spool"]

    assert ("spool" in missing, was_made, nobodys["state"]) == (False, False, "ok")
    with closing(open_spool(spool)) as opened:
        opened.belong_to("postgresql://tau@other/tau", id_="1")  # it is still nobody's


def fill_spool(path: Path, owner: str) -> None:
    """Make a spool of a database with one ended rollout to be sent."""
    with closing(open_at(owner)) as store, closing(open_spool(path)) as spool:
        spool.belong_to(where_in(owner), id_=store.id())
        writes(spool).begin_rollout(rollout("live-unsent", RolloutStatus.SUCCEEDED, ended_at=4.0))
