"""Defaults that are not among the options: returned in doubt, said once, counted by point."""

import logging
from pathlib import Path

import pytest

import tau_live
from tau_live.core.reasons import FOREIGN_DEFAULT
from tau_live.decisions.choice import OTHERS, POINTS
from tau_live.store.sqlite.store import SqliteStore
from tests.live.running import gate


def counted(live: Path) -> dict[str, int]:
    store = SqliteStore.open(live, read_only=True)
    found = store.counters.counts()
    store.close()
    return {
        name.removeprefix(FOREIGN_DEFAULT): n
        for name, n in found.items()
        if name.startswith(FOREIGN_DEFAULT)
    }


def test_a_default_that_is_not_offered_is_said_once_for_each_point_and_counted(
    live: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tau_live.run("foreign") as run:
        for _ in range(3):
            run.decide("model", ["a", "b"], default="c")
        run.decide("tool", ["a", "b"], default="A")
        run.decide("tool", ["a", "b"], default="b")
        run.decide("tool", ["a", "b"])
    tau_live.detach(30)

    said = [one.getMessage() for one in caplog.records if "default_not_offered" in one.getMessage()]
    assert len(said) == 2
    assert "'model'" in said[0] and "'c'" in said[0] and "'a, b'" in said[0]
    assert "offer it under exactly the same name" in said[0]
    assert counted(live) == {"model": 3, "tool": 1}


def test_it_is_still_what_the_host_gets_in_doubt(live: Path) -> None:
    with tau_live.run("foreign") as run:
        pass
    choice = run.decide("model", ["a", "b"], default="c")

    assert (choice.option, choice.source) == ("c", "default")


class Raising(logging.Handler):
    """A host's handler that is broken."""

    def handle(self, record: logging.LogRecord) -> bool:
        raise RuntimeError("the disk of the log is full")


def test_a_hosts_broken_logging_changes_nothing(live: Path) -> None:
    handler = Raising()
    logging.getLogger("tau_live").addHandler(handler)
    try:
        with tau_live.run("foreign") as run:
            choice = run.decide("model", ["a", "b"], default="c")
        assert tau_live.flush(30)
        state = gate()
    finally:
        logging.getLogger("tau_live").removeHandler(handler)
    tau_live.detach(30)

    assert choice.source == "policy"
    assert state["state"] == "pass"
    assert counted(live) == {"model": 1}


def test_however_many_points_there_are_few_are_named(live: Path) -> None:
    with tau_live.run("foreign") as run:
        for number in range(POINTS + 5):
            run.decide(f"point-{number}", ["a", "b"], default="c")
        run.decide("point-0", ["a", "b"], default="c")
    tau_live.detach(30)

    found = counted(live)
    assert len(found) == POINTS + 1
    assert found[OTHERS] == 5
    assert found["point-0"] == 2


def test_a_secret_in_a_points_name_is_neither_counted_nor_logged(
    live: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tau_live.run("foreign") as run:
        run.decide("sk-ant-api03-" + "x1Y2z3" * 16, ["a"], default="ghp_" + "a1B2c3" * 6)
    tau_live.detach(30)

    [name] = counted(live)
    assert "x1Y2z3" not in name
    assert "x1Y2z3" not in caplog.text
    assert "a1B2c3" not in caplog.text
    assert "default_not_offered" in caplog.text
