"""Everything that somebody with the file, and without the key, can do to lessons."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tau_live.experience.log import Change, Log, Place
from tau_live.experience.operations import drop, read_heads, restamp, verify
from tau_live.experience.stamps import stamp
from tau_live.experience.worker import UntrustedError, lessons_of
from tau_live.operate.alert_rules import moves
from tau_live.store.opening import open_at
from tau_live.store.roles import Store
from tau_live.store.sealing import Keys
from tests.experience.lessons import BASE, KEYS, LESSONS


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with three lessons in force."""
    path = tmp_path / "store.sqlite"
    store = open_at(path)
    log = Log(store, KEYS)
    with store.begin():
        log.learn(LESSONS)
        log.change([add(lesson["id"]) for lesson in LESSONS], Place())
    store.close()
    return path


def add(id_: str) -> Change:
    return Change("ADD", "new", "model", {"id": id_, "version": 1, "parents": []})


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = open_at(path)
    yield store
    store.close()


def rows(db: sqlite3.Connection) -> list[Any]:
    found = db.execute("select content from lessons where chain = 'experiences' order by seq")
    return [json.loads(content) for (content,) in found]


def write(db: sqlite3.Connection, record: Any, *, name: str = "forged") -> None:
    db.execute(
        "insert into lessons (chain, name, content) values ('experiences', ?, ?)",
        (name, json.dumps(record)),
    )


def insert(db: sqlite3.Connection) -> None:
    write(db, {**rows(db)[0], "id": "x-000004", "stamp_signature": 64 * "b"})


def copy_a_stamp(db: sqlite3.Connection) -> None:
    write(db, {**rows(db)[0], "id": "x-000004"})


def edit_a_word(db: sqlite3.Connection) -> None:
    db.execute("update lessons set content = replace(content, 'Convert', 'Forget')")


def swap(db: sqlite3.Connection) -> None:
    found = db.execute("select seq, content from lessons where chain = 'experiences'")
    first, second, _ = found.fetchall()
    db.execute("update lessons set content = ? where seq = ?", (second[1], first[0]))
    db.execute("update lessons set content = ? where seq = ?", (first[1], second[0]))


def use_an_old_key(db: sqlite3.Connection) -> None:
    last = rows(db)[-1]["stamp_signature"]
    own = {**BASE, "id": "x-000004"}
    write(db, stamp(own, Keys(b"o" * 32), prev_stamp=last))


def delete(db: sqlite3.Connection) -> None:
    db.execute("delete from lessons where name = 'x-000002@1'")


@pytest.mark.parametrize(
    ("attack", "left", "reasons"),
    [
        (insert, {1, 2, 3}, ["stamp_mismatch"]),
        (copy_a_stamp, {1, 2, 3}, ["stamp_mismatch"]),
        (edit_a_word, {1, 3}, ["stamp_mismatch"]),
        (swap, set(), ["chain_broken"] * 3),
        (use_an_old_key, {1, 2, 3}, ["unknown_key"]),
        (delete, {1}, ["chain_broken"]),
    ],
)
def test_nothing_that_is_forged_is_in_force_and_all_else_goes_on(
    path: Path, attack: Callable[[sqlite3.Connection], None], left: set[int], reasons: list[str]
) -> None:
    with sqlite3.connect(path) as db:
        attack(db)
    db.close()
    store = open_at(path)

    log = Log(store, KEYS)

    assert {lesson.id for lesson in log.in_force()} == {f"x-00000{n}" for n in left}
    assert [each.reason for each in store.experience.quarantine()] == reasons
    again = Log(store, KEYS)
    assert again.pool.version == log.pool.version
    with store.begin():  # and the chains go on
        again.learn([{**BASE, "id": "x-000009"}])
        again.change([add("x-000009")], Place())
    assert "x-000009" in Log(store, KEYS).pool.lessons
    assert len(store.experience.quarantine()) == len(reasons)
    store.close()


def test_a_lesson_that_cannot_be_trusted_leaves_the_pool_by_an_operation(path: Path) -> None:
    with sqlite3.connect(path) as db:
        edit_a_word(db)
    db.close()
    store = open_at(path)

    Log(store, KEYS)

    last = json.loads([*store.experience.chain("operations")][-1].content)
    assert (last["op"], last["id"], last["by"]) == ("QUARANTINE", "x-000002", "system")
    [alert] = moves(store.audit.entries())
    assert (alert.kind, alert.facts["records"]) == ("lessons-quarantined", {"stamp_mismatch": 1})
    with pytest.raises(UntrustedError, match="x-000002@1 cannot be trusted"):
        lessons_of(store, KEYS, [("x-000002", 1)])
    store.close()


def test_a_look_changes_nothing(path: Path) -> None:
    with sqlite3.connect(path) as db:
        edit_a_word(db)
    db.close()
    store = open_at(path, read_only=True)

    report = verify(store, KEYS, {})

    assert report["faults"] == {"experiences": {"stamp_mismatch": 1}}
    assert (report["valid"], report["lessons"], report["quarantined"]) == (False, 2, 0)
    store.close()


def test_a_cut_end_is_found_by_a_head_that_was_kept(store: Store, path: Path) -> None:
    heads = path.with_name("heads.json")
    heads.write_text(json.dumps(verify(store, KEYS, {})))
    with sqlite3.connect(path) as db:
        db.execute("delete from lessons where seq > (select max(seq) - 2 from lessons)")
    db.close()

    assert verify(store, KEYS, {})["valid"]
    report = verify(store, KEYS, read_heads(heads))

    assert (report["valid"], report["cut"]) == (False, ["operations"])


def test_a_record_is_stamped_anew_or_dropped_by_an_operator(path: Path) -> None:
    with sqlite3.connect(path) as db:
        edit_a_word(db)
        insert(db)
    db.close()
    store = open_at(path)
    Log(store, KEYS)
    edited, forged = store.experience.quarantine()

    name = restamp(store, KEYS, edited.seq, reason="our own edit", who="ada")
    drop(store, forged.seq, reason="not ours", who="ada")

    assert name == "x-000002@1"
    log = Log(store, KEYS)
    assert log.lessons["x-000002", 1].summary32 == "Forget to one unit before adding."
    assert "x-000002" not in log.pool.lessons
    assert [each.state for each in store.experience.quarantine()] == ["restamped", "dropped"]
    assert [entry.action for entry in store.audit.entries()] == [
        "experience drop", "experience restamp", "lessons_quarantined"
    ]  # fmt: skip
    assert verify(store, KEYS, {})["valid"]
    store.close()


def test_what_another_process_appends_is_read_before_anything_is_added(path: Path) -> None:
    first, second = open_at(path), open_at(path)
    log, other = Log(first, KEYS), Log(second, KEYS)
    with first.begin():
        log.learn([{**BASE, "id": "x-000004"}])
        log.change([add("x-000004")], Place())

    other.read()
    with second.begin():
        other.learn([{**BASE, "id": "x-000005"}])
        other.change([add("x-000005")], Place())

    assert {*Log(first, KEYS).pool.lessons} == {f"x-00000{n}" for n in range(1, 6)}
    assert Log(first, KEYS).faults == Log(second, KEYS).faults
    assert not any(Log(first, KEYS).faults.values())
    first.close()
    second.close()
