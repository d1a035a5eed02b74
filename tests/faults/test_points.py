"""Fault points: every one is known, free when nobody listens, and does what a test wants."""

import ast
import timeit
from pathlib import Path

import pytest

import tau_live
from tau_live.core import fault
from tau_live.core.files import write_whole
from tests.faults import arming

ROOT = Path(tau_live.__file__).parent


def placed() -> list[str]:
    """Return the name that each call of ``fault.point`` has, or the call where it has none."""
    return [
        node.args[0].value
        if isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
        else ast.unparse(node)
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "fault.point"
    ]


@pytest.mark.slow
def test_every_point_is_named_in_one_place_and_stands_at_one_place_in_the_source() -> None:
    assert sorted(placed()) == sorted(fault.POINTS)


def test_every_point_says_what_is_done_there_and_what_is_not() -> None:
    said = list(fault.POINTS.values())

    assert "" not in said
    assert len(set(said)) == len(said)


def test_a_point_costs_next_to_nothing_while_nobody_listens() -> None:
    def nothing(_name: str) -> None:
        pass

    def cost(called: object) -> float:
        return min(
            timeit.repeat("f('store.commit')", globals={"f": called}, number=20_000, repeat=15)
        )

    assert cost(fault.point) < 3 * cost(nothing)


def test_what_is_armed_happens_the_nth_time_and_only_then(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError("no room")

    path = tmp_path / "status.json"
    with arming.arm("file.written", fail, nth=2):
        write_whole(path, b"first")
        with pytest.raises(OSError, match="no room"):
            write_whole(path, b"second")
        after_failure = path.read_bytes()
        write_whole(path, b"third")

    assert after_failure == b"first"
    assert path.read_bytes() == b"third"
    assert [file.name for file in tmp_path.iterdir()] == ["status.json"]


@pytest.mark.parametrize(
    ("name", "nth"),
    [
        pytest.param("store.comit", 1, id="misspelt"),
        pytest.param("store.commit", 0, id="never"),
    ],
)
def test_a_point_that_nothing_would_reach_is_refused(name: str, nth: int) -> None:
    with pytest.raises(ValueError, match="expected a known point"), arming.arm(name, int, nth=nth):
        pass
