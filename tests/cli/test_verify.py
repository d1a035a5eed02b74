"""``tau-live verify``: what it finds, what it says, and how it ends."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tau_live.core.errors import StoreUnavailableError
from tau_live.decisions.checkpoints import Checkpoint, load, prune, save
from tau_live.decisions.policies import needed_versions
from tau_live.store.files import policies_of
from tau_live.store.opening import open_at, open_spool
from tau_live.store.sqlite.store import SqliteStore
from tests.bench.fleet import store_batch
from tests.cli.conftest import Run
from tests.cli.filled import CHILD, SOLVED
from tests.contracts.making import begun, decision, policy, update
from tests.postgres import needs_postgres, server
from tests.writes import writes

pytestmark = pytest.mark.slow

FLIPS = """
create trigger rollouts_counted_x after insert on rewards begin
    update rewards set value = 1 - new.value where seq = new.seq;
end
"""
ALERT = "insert into alerts values (99, 'a', 'b', 'c', 'd', 'e', '{}', 1.0, 0, 'f')"


def _do(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)


def _keyed(path: Path, key: Path) -> None:
    store = SqliteStore.open(path, key_file=key)
    begun(store, "keyed-1")
    writes(store).add_decision(decision(1, "keyed-1"))
    store.close()


def test_a_store_that_nobody_touched_is_sound(filled: Path, read: Callable[..., object]) -> None:
    found = read("verify", "--store", filled)

    assert isinstance(found, dict)
    assert found["sound"] is True
    assert found["findings"] == []
    assert found["seals"] > 5


@pytest.mark.parametrize(
    ("statement", "code", "what"),
    [
        ("update decisions set propensity = 0.9", "edited", f"decision {SOLVED}:attempt-1"),
        ("update decisions set applied = 'large' where seq = 1", "edited", "decision"),
        ("update rewards set value = 2.0", "edited", "reward"),
        ("delete from rewards", "removed", "reward"),
        ("update updates set samples = 99", "edited", "update"),
        ("update policies set sha256 = 'x'", "edited", "policy version"),
        ("update audit set reason = 'nothing'", "edited", "line of the audit"),
        ("delete from gate_log", "removed", "line of the gate's history"),
        ("insert into audit values (99, 1.0, 'x', 'y', 'z', '{}')", "added", "line of the audit"),
        ("update trials set exposure = 1.0", "edited", "trial model"),
        ("update trials set evidence = '{}', tally = '{}'", "edited", "trial model"),
        ("update trials set champion = 7", "edited", "trial model"),
        ("delete from trials", "removed", "trial"),
        ("update in_service set version = 0", "edited", "version in service model"),
        ("update monitors set numbers = '{}'", "edited", "monitor model"),
        ("delete from monitors", "removed", "monitor"),
        ("update rollouts set total_reward = 9.0 where ready_seq = 1", "edited", "rollout live-"),
        ("update rollouts set status = 'failed' where ready_seq = 1", "edited", "rollout live-"),
        (
            "update rollouts set metadata = '{\"dropped_events\": 1}' where ready_seq = 1",
            "edited",
            f"rollout {SOLVED}",
        ),
        ("update rollouts set left_out = 'x' where ready_seq is null", "added", "rollout live-"),
        (ALERT, "added", "alert #99"),
        ("update gate set state = 'hold'", "gate", "its history ends with pass"),
        ("insert into pauses values ('deciding', 'x', 'y', 1.0)", "pauses", "it is paused, and"),
        ("delete from ready_points", "not_ready", f"rollout {SOLVED} at 'model': it was removed"),
        ("delete from ready_points where point = 'tools'", "not_ready", f"{SOLVED} at 'tools'"),
        ("update ready_points set point = 'x' where point = 'tools'", "ready", "at 'x': its dec"),
        ("update ready_points set ready_seq = ready_seq + 9", "ready", "another place there"),
        ("insert into ready_points values (3, '', 3, null)", "ready", f"rollout {CHILD}"),
        ("update ready_points set point = '' where point = 'tools'", "ready", f"rollout {SOLVED}:"),
        ("update rollouts set status = 'requeuing'", "status", "it is requeuing, although it had"),
        (
            "update rollouts set status = 'running', ended_at = null where ready_seq = 1",
            "status",
            f"rollout {SOLVED}: it is running",
        ),
        ("update sequences set value = 1 where name = 'ready'", "sequence", "'ready': it is at 1"),
        ("delete from sequences where name = 'policy'", "sequence", "'policy': it is at None"),
        (
            "update sequences set value = value + 1",
            "sequence",
            "'ready': it is at 10, and no more than 9",
        ),
        (
            "update sequences set value = 9223372036854775807 where name = 'policy'",
            "sequence",
            "'policy': it is at 9223372036854775807, and no more than 2 was given already",
        ),
        ("update attempts set number = 9", "orphans", "table decisions: rows belong to none of"),
        (FLIPS, "schema", "trigger rollouts_counted_x: it is not tau-live's"),
        ("drop trigger rollouts_counted_in", "schema", "trigger rollouts_counted_in: it was rem"),
        ("create view mine as select 1", "schema", "view mine: it is not tau-live's"),
        ("create table mine (a)", "schema", "table mine: it is not tau-live's"),
        ("drop index rewards_by_time", "schema", "index rewards_by_time: it was removed"),
        ("alter table rewards add column x text", "schema", "table rewards: it was changed"),
        ("delete from gate", "gate", "its row was removed"),
        ("update gate set revision = 0", "gate", "it counts 0 changes, and its history has 1"),
        ("update gate set revision = 1 << 62", "gate", "counts 4611686018427387904 changes, and"),
        ("update gate set reason = 'x'", "gate", "its reason is 'x', and its history says None"),
        ("update gate set since = 1.0", "gate", "since 1.0, and its history says 50.0"),
        ("delete from seals where place = 2", "broken_link", "seal 3"),
        ("update seals set seal = zeroblob(32) where place = 2", "broken_link", "seal 2"),
        ("update seals set place = -place where place in (2, 3)", "broken_link", "seal"),
        ("delete from seals where place > 3", "cut_off", "seals 4"),
        ("delete from seals where place < 3", "no_beginning", "seals 1 to 2"),
    ],
)
def test_what_was_done_behind_its_back_is_found(
    statement: str, code: str, what: str, filled: Path, run: Run
) -> None:
    _do(filled, statement)

    found = run("verify", "--store", filled, "--json")
    told = run("verify", "--store", filled)

    assert (found.exit_code, told.exit_code) == (1, 1)
    assert f'"code": "{code}"' in found.stdout
    assert what in told.stdout


def test_a_pause_that_was_taken_away_is_found_and_one_that_was_ended_is_sound(
    filled: Path, run: Run
) -> None:
    run("pause", "learning", "deciding", "--reason", "odd", "--store", filled)
    run("resume", "deciding", "--reason", "mended", "--store", filled)
    before = run("verify", "--store", filled)
    _do(filled, "delete from pauses")

    found = run("verify", "--store", filled)

    assert (before.exit_code, found.exit_code) == (0, 1)
    assert "learning: it is not paused, and the audit log disagrees" in " ".join(
        found.stdout.split()
    )
    assert "deciding" not in found.stdout


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("reason = 'lunch'", "paused it: odd; that was changed"),
        ("who = 'ada'", "paused it: odd; that was changed"),
        ("at = 1.0", "paused it: odd; that was changed"),
    ],
)
def test_a_pause_in_other_words_than_the_operators_is_found(
    change: str, told: str, filled: Path, run: Run
) -> None:
    run("pause", "learning", "--reason", "before", "--store", filled)
    run("resume", "--reason", "over", "--store", filled)
    run("pause", "learning", "--reason", "odd", "--store", filled)
    run("pause", "learning", "--reason", "again", "--store", filled)  # the first reason stays
    before = run("verify", "--store", filled)
    _do(filled, f"update pauses set {change}")

    found = run("verify", "--store", filled)

    assert (before.exit_code, found.exit_code) == (0, 1)
    assert told in " ".join(found.stdout.split())


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("reason = 'update_failures'", "its reason is 'update_failures', and its history says"),
        ("detail = 'lunch break'", "is 'lunch break', and the audit log says 'leaks data'"),
        ("since = 1", "it is so since 1.0, and its history says"),
        ("revision = 1", "it counts 1 changes, and its history has 4"),
    ],
)
def test_a_hold_in_other_words_than_the_operators_is_found(
    change: str, told: str, filled: Path, run: Run
) -> None:
    run("gate", "hold", "--reason", "before", "--store", filled)
    run("gate", "reset", "--reason", "over", "--store", filled)
    run("gate", "hold", "--reason", "leaks data", "--store", filled)
    run("gate", "hold", "--reason", "again", "--store", filled)  # the first reason stays
    before = run("verify", "--store", filled)
    _do(filled, f"update gate set {change}")

    found = run("verify", "--store", filled)

    assert (before.exit_code, found.exit_code) == (0, 1)
    assert told in " ".join(found.stdout.split())


@pytest.mark.parametrize("resets", [1, 2])
def test_a_gate_that_was_reset_is_sound(resets: int, filled: Path, run: Run) -> None:
    run("gate", "hold", "--reason", "audit", "--store", filled)
    for _ in range(resets):
        run("gate", "reset", "--reason", "over", "--store", filled)

    assert run("verify", "--store", filled).exit_code == 0


def test_a_checkpoint_that_was_touched_is_found(filled: Path, run: Run) -> None:
    file = next(policies_of(filled).glob("*.npz"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)

    found = run("verify", "--store", filled)

    assert found.exit_code == 1
    assert "version" in found.stdout
    assert "damaged" in found.stdout


def test_an_older_version_may_serve_whose_parent_was_pruned(filled: Path, run: Run) -> None:
    folder = policies_of(filled)
    with closing(SqliteStore.open(filled)) as store:
        held = store.policies.version(2)
        made = Checkpoint(
            version=3, point="model", parent=2, parent_sha256=held.sha256,
            arrays=load(store.checkpoints, held.file, sha256=held.sha256).arrays,
        )  # fmt: skip
        row = replace(policy(3, parent=2), sha256=made.sha256, file=save(store.checkpoints, made))
        store.policies.add_update(replace(update(10), version=3, parent=2), row)
        trial = store.trials.trial("model")
        store.trials.save(replace(trial, champion=3, revision=trial.revision + 1))
        store._connection.change("update sequences set value = 10 where name = 'ready'")
        gone = prune(store.checkpoints, keep=2, needed=frozenset(needed_versions(store)))

    used = run("policy", "use", "2", "--point", "model", "--reason", "was fine", "--store", filled)
    sound = run("verify", "--store", filled)
    (folder / held.file).unlink()
    found = run("verify", "--store", filled)

    assert gone == [1]
    assert (used.exit_code, sound.exit_code, found.exit_code) == (0, 0, 1)
    assert "version 2: the checkpoint of version 2 is not at" in " ".join(found.stdout.split())


def test_with_a_key_nobody_else_can_seal(tmp_path: Path, run: Run) -> None:
    path, key = tmp_path / "store.sqlite", tmp_path / "keys" / "audit"
    _keyed(path, key)
    _do(path, "delete from decisions", "delete from seals")
    _keyed_without(path)

    found = run("verify", "--store", path, TAU_LIVE_RL_AUDIT_KEY_FILE=str(key))

    assert found.exit_code == 1
    assert "without a key" in found.stdout + found.stderr


def _keyed_without(path: Path) -> None:
    store = SqliteStore.open(path)
    writes(store).add_decision(decision(1, "keyed-1"))
    store.close()


def test_a_key_may_come_later_and_binds_what_was_before(tmp_path: Path, run: Run) -> None:
    path, key = tmp_path / "store.sqlite", tmp_path / "audit"
    _first(path)
    _keyed(path, key)

    sound = run("verify", "--store", path, TAU_LIVE_RL_AUDIT_KEY_FILE=str(key))
    blind = run("verify", "--store", path)

    assert sound.exit_code == 0
    assert blind.exit_code == 1
    assert "no key is at hand" in blind.stdout


def _first(path: Path) -> None:
    store = SqliteStore.open(path)
    begun(store, "first-1")
    writes(store).add_decision(decision(1, "first-1"))
    store.close()


def test_a_key_that_is_made_is_its_owners_alone_and_not_in_the_store(tmp_path: Path) -> None:
    path, key = tmp_path / "store.sqlite", tmp_path / "keys" / "audit"

    _keyed(path, key)

    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_bytes().strip() not in path.read_bytes()


def test_an_end_that_was_cut_off_cleanly_shows_against_an_earlier_head(
    filled: Path, run: Run, read: Callable[..., object]
) -> None:
    found = read("verify", "--store", filled)
    assert isinstance(found, dict)
    head = str(found["head"])
    _do(
        filled,
        "delete from audit",
        "delete from seals where place >= (select min(place) from seals where kind = 'audit')",
        "update sqlite_sequence set seq = (select max(place) from seals) where name = 'seals'",
    )

    known = run("verify", "--store", filled, "--head", head)

    assert known.exit_code == 1
    assert f"seal {head.partition(':')[0]}" in known.stdout


def test_a_head_that_is_still_led_through_is_fine(
    filled: Path, run: Run, read: Callable[..., object]
) -> None:
    found = read("verify", "--store", filled)
    assert isinstance(found, dict)
    _first(filled)

    later = run("verify", "--store", filled, "--head", found["head"])

    assert later.exit_code == 0


def test_what_is_no_head_is_a_wrong_use(filled: Path, run: Run) -> None:
    assert run("verify", "--store", filled, "--head", "nonsense").exit_code == 2


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("update arms set arm = 'control'", "assignment model of keyed-1: it was edited"),
        ("delete from arms", "assignment #1: it was removed"),
    ],
)
def test_an_assignment_that_was_touched_is_found(
    statement: str, expected: str, tmp_path: Path, run: Run
) -> None:
    path = tmp_path / "store.sqlite"
    store = SqliteStore.open(path)
    begun(store, "keyed-1")
    writes(store).add_decision(replace(decision(1, "keyed-1"), arm="learner", share=0.5))
    store.close()
    _do(path, statement)

    found = run("verify", "--store", path)

    assert expected in " ".join(found.stdout.split())


def test_what_was_stored_before_it_was_sealed_is_sealed_once(filled: Path, run: Run) -> None:
    _do(
        filled,
        "delete from seals",
        "update sqlite_sequence set seq = 0 where name = 'seals'",
        "insert into sequences values ('to_seal', 1)",
    )  # as a store of the schema before, with nothing sealed
    SqliteStore.open(filled).close()
    first = run("verify", "--store", filled).stdout
    _do(filled, "update trials set exposure = 1.0", "insert into sequences values ('to_seal', 1)")
    SqliteStore.open(filled).close()

    second = run("verify", "--store", filled).stdout

    assert not any(f"{what} " in first for what in ("trial", "monitor", "rollout live", "alert #"))
    assert "trial model: it was edited" in second


def test_what_is_not_covered_is_named(filled: Path, run: Run) -> None:
    told = " ".join(run("verify", "--store", filled).stdout.split())

    assert told.startswith("no sealed row was changed: ")
    assert "not covered: attempts, spans, prompts, the times" in told


def _forged(path: Path) -> None:
    """Put a store that was made without a key in the place of one."""
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    _first(path)


def test_a_store_without_a_key_in_place_of_one_that_had_it_is_not_written_to(
    tmp_path: Path, run: Run
) -> None:
    path, key = tmp_path / "store.sqlite", tmp_path / "keys" / "audit"
    _keyed(path, key)
    _forged(path)

    with pytest.raises(StoreUnavailableError, match=r"put in its place.*--adopt"):
        _keyed(path, key)

    found = run("verify", "--store", path, TAU_LIVE_RL_AUDIT_KEY_FILE=str(key))
    assert found.exit_code == 1
    assert "it was made without a key; the key at hand is" in " ".join(found.stdout.split())


def test_it_is_found_even_if_something_wrote_to_it_with_the_key(tmp_path: Path, run: Run) -> None:
    path, key = tmp_path / "store.sqlite", tmp_path / "keys" / "audit"
    _keyed(path, key)
    known = key.with_name("audit.chains").read_bytes()
    key.with_name("audit.chains").unlink()
    _forged(path)
    _keyed(path, key)  # as before what is known was kept
    key.with_name("audit.chains").write_bytes(known)

    found = run("verify", "--store", path, TAU_LIVE_RL_AUDIT_KEY_FILE=str(key))

    assert found.exit_code == 1
    assert "seal 1: it was made without a key" in found.stdout


def test_an_operator_may_adopt_it_and_is_recorded(tmp_path: Path, run: Run) -> None:
    path, key = tmp_path / "store.sqlite", tmp_path / "keys" / "audit"
    _keyed(path, key)
    _forged(path)
    environ = {"TAU_LIVE_RL_AUDIT_KEY_FILE": str(key)}

    adopted = run("verify", "--store", path, "--adopt", "--reason", "from the backup", **environ)
    _keyed(path, key)
    sound = run("verify", "--store", path, **environ)

    assert (adopted.exit_code, sound.exit_code) == (0, 0)
    assert "from before it had one" in " ".join(sound.stdout.split())
    store = SqliteStore.open(path, read_only=True)
    entry = store.audit.entries()[0]
    store.close()
    assert (entry.action, entry.reason) == ("adopt", "from the backup")


def test_what_follows_the_adopted_part_needs_the_key(tmp_path: Path, run: Run) -> None:
    path, key = tmp_path / "store.sqlite", tmp_path / "keys" / "audit"
    _first(path)
    _keyed(path, key)
    _forged(path)  # it begins with the same row, and goes on with another
    store = SqliteStore.open(path)
    writes(store).add_decision(decision(2, "first-1"))
    store.close()

    found = run("verify", "--store", path, TAU_LIVE_RL_AUDIT_KEY_FILE=str(key))

    assert found.exit_code == 1


@pytest.mark.parametrize("options", [["--adopt"], ["--reason", "x"]])
def test_to_adopt_takes_a_reason(options: list[str], filled: Path, run: Run) -> None:
    assert run("verify", "--store", filled, *options).exit_code == 2


@pytest.fixture
def database(filled: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a copy of a store with one of everything in it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(filled.parent / "state"))
    address = server().new_database()
    copied = run("store", "copy", filled, address)
    assert copied.exit_code == 0, copied.output
    return address


def _do_there(address: str, statement: str) -> None:
    import psycopg

    with psycopg.connect(address) as connection:
        connection.execute(statement.encode())


@needs_postgres
def test_a_database_that_nobody_else_touched_is_sound(database: str, run: Run) -> None:
    head = json.loads(run("verify", "--store", database, "--json").stdout)["head"]
    run("gate", "hold", "--reason", "audit", "--store", database)
    run("gate", "reset", "--reason", "over", "--store", database)
    run("pause", "learning", "--reason", "odd", "--store", database)

    sound = run("verify", "--store", database, "--head", head)

    text = " ".join(sound.stdout.split())
    assert (sound.exit_code, sound.stderr) == (0, "")
    assert "no sealed row was changed" in text
    assert "the numbers that the server gives" in text


@needs_postgres
@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("update decisions set propensity = 0.9", f"decision {SOLVED}:attempt-1:decision-"),
        ("update rewards set value = 2.0", "reward "),
        ("update rollouts set total_reward = 9.0 where ready_seq = 1", f"rollout {SOLVED}: it was"),
        ("update monitors set numbers = '{}'", "monitor model: it was edited"),
        ("update policies set sha256 = 'x'", "policy version "),
        ("insert into alerts values (99, 'a', 'b', 'c', 'd', 'e', '{}', 1.0, 0, 'f')", "alert #99"),
        ("update gate set state = 'hold'", "its history ends with pass"),
        ("update gate_log set who = 'ada'", "line of the gate's history #1: it was edited"),
        ("update checkpoints set content = 'x'", "version "),
    ],
)
def test_what_was_done_to_a_database_is_named(
    statement: str, expected: str, database: str, run: Run
) -> None:
    _do_there(database, statement)

    found = run("verify", "--store", database)

    assert found.exit_code == 1
    assert expected in " ".join(found.stdout.split())


@needs_postgres
def test_a_database_stays_sound_through_archive_restore_and_copies(
    database: str, filled: Path, run: Run
) -> None:
    archive = filled.parent / "archive.jsonl"
    gone = run("gc", "--older-than", "30d", "--archive", archive, "--store", database)
    after = run("verify", "--store", database)
    restored = run("restore", archive, "--store", database)
    again = run("verify", "--store", database)
    back = filled.parent / "back.sqlite"
    copied = run("store", "copy", database, back)

    assert [one.exit_code for one in (gone, after, restored, again, copied)] == [0] * 5
    assert run("verify", "--store", back).exit_code == 0


@needs_postgres
def test_a_database_is_adopted_by_the_command(database: str, filled: Path, run: Run) -> None:
    environ = {"TAU_LIVE_RL_AUDIT_KEY_FILE": str(filled.parent / "key")}
    with closing(open_at(server().new_database(), key_file=filled.parent / "key")):
        pass  # makes the key

    adopted = run("verify", "--store", database, "--adopt", "--reason", "ours", **environ)
    forged = run("verify", "--store", database)

    assert (adopted.exit_code, adopted.stderr) == (0, "")
    assert "from before it had one" in " ".join(adopted.stdout.split())
    assert "no key is at hand" in " ".join(forged.stdout.split())


def test_a_spool_is_verified_like_any_store(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "spool.sqlite"
    with closing(open_spool(path)) as spool:
        store_batch(spool, ["live-1", "live-2"])
    sound = run("verify", "--store", path)
    _do(path, "update rewards set value = 0.1 where rollout_id = 'live-2'")
    _do(path, "drop trigger outbox_rewards_update")

    found = run("verify", "--store", path)

    assert (sound.exit_code, found.exit_code) == (0, 1)
    assert "reward solved of live-2: it was edited" in " ".join(found.stdout.split())
    assert "trigger outbox_rewards_update: it was removed" in " ".join(found.stdout.split())
