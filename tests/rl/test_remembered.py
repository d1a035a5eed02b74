"""A row is taken for the same only while it is."""

import pytest

from tau_live.rl.features import RowCache, copy_row

FLOAT = 1234.5


def test_the_same_objects_are_the_same_row_in_any_dictionary() -> None:
    remembered: RowCache[str] = RowCache()
    remembered.remember("a", {"x": FLOAT, "y": "text"}, "made")

    assert remembered.get("a", {"x": FLOAT, "y": "text"}) == "made"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"x": float("1234.5")}, id="equal, but another object"),
        pytest.param({"x": 1}, id="another value"),
        pytest.param({"y": FLOAT}, id="another name"),
        pytest.param({"x": FLOAT, "y": 1}, id="one more"),
        pytest.param({}, id="one fewer"),
    ],
)
def test_anything_else_is_another_row(other: dict[str, object]) -> None:
    remembered: RowCache[str] = RowCache()
    remembered.remember("a", {"x": FLOAT}, "made")

    assert remembered.get("a", other) is None
    assert remembered.get("b", {"x": FLOAT}) is None


def test_a_row_changed_in_place_is_another_row() -> None:
    remembered: RowCache[str] = RowCache()
    row: dict[str, object] = {"x": FLOAT, "y": True}
    remembered.remember("a", row, "made")

    row["y"] = 1

    assert remembered.get("a", row) is None


def test_what_could_change_inside_is_not_remembered() -> None:
    remembered: RowCache[str] = RowCache()
    row: dict[str, object] = {"x": [1.0]}
    remembered.remember("a", row, "made")

    assert remembered.get("a", row) is None


@pytest.mark.parametrize(
    "row", [{str(n): 1.0 for n in range(300)}, {"text": "x" * 5_000}], ids=["long", "large"]
)
def test_only_short_rows_are_remembered(row: dict[str, object]) -> None:
    remembered: RowCache[str] = RowCache()
    remembered.remember("a", row, "made")

    assert remembered.get("a", row) is None


def test_only_so_many_names_are_remembered() -> None:
    remembered: RowCache[int] = RowCache()
    row: dict[str, object] = {"x": FLOAT}
    for number in range(2_000):
        remembered.remember(str(number), row, number)

    kept = [number for number in range(2_000) if remembered.get(str(number), row) == number]

    assert kept == list(range(2_000 - 512, 2_000))


def test_rows_that_are_always_new_are_rarely_wanted() -> None:
    remembered: RowCache[int] = RowCache()
    wanted = []
    for number in range(100):
        row: dict[str, object] = {"x": float(number) + 0.5}
        assert remembered.get("a", row) is None
        if remembered.wants("a"):
            wanted.append(number)
            remembered.remember("a", row, number)

    assert wanted == [0, 1, 2, 4, 8, 16, 32, 64]


def test_a_row_that_stays_again_is_wanted_again() -> None:
    remembered: RowCache[int] = RowCache()
    for number in range(6):
        remembered.get("a", {"x": float(number)})
        if remembered.wants("a"):
            remembered.remember("a", {"x": FLOAT}, number)

    assert remembered.get("a", {"x": FLOAT}) is not None
    assert remembered.wants("a")


def test_rows_of_many_parts_crowd_out_the_oldest() -> None:
    remembered: RowCache[str] = RowCache()
    part = {str(n): float(n) for n in range(250)}
    rows = [{str(k): copy_row(part) for k in range(100)} for _ in range(5)]

    for n, row in enumerate(rows):
        remembered.remember(str(n), row, "made")

    found = [remembered.get(str(n), row) for n, row in enumerate(rows)]
    assert (found[0], found[-1]) == (None, "made")


@pytest.mark.parametrize(
    "inside",
    [
        pytest.param({"text": "x" * 100_000}, id="a text"),
        pytest.param({"lists": [[1.0] * 500] * 2}, id="lists"),
        pytest.param({str(n): n for n in range(1_000)}, id="numbers"),
    ],
)
def test_what_is_too_large_altogether_is_not_remembered(inside: dict[str, object]) -> None:
    remembered: RowCache[str] = RowCache()
    row: dict[str, object] = {str(k): copy_row(inside) for k in range(100)}
    remembered.remember("a", row, "made")

    assert remembered.get("a", row) is None


def test_a_row_that_replaces_another_takes_its_place() -> None:
    remembered: RowCache[str] = RowCache()
    other: dict[str, object] = {"x": FLOAT}
    remembered.remember("b", other, "other")

    for _ in range(10):
        large: dict[str, object] = {str(k): copy_row({"x": FLOAT}, names="x") for k in range(250)}
        for _ in range(100):
            remembered.remember("a", large, "made")

    assert remembered.get("b", other) == "other"
