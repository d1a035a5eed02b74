"""What is made quickly is what the class itself would have made."""

from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

import pytest

from tau_live.events import KINDS, Event, RunStart
from tau_live.machine.quick import changed, made, quick
from tau_live.rollouts import RolloutConfig

GIVEN = {"host": "h", "run_id": "r", "at": 1.0, "span_id": "s", "turn": 2}
NEEDED = {
    "ordinal": 1, "point": "p", "options": ("a",), "name": "n", "value": 1.0, "source": "api",
}  # fmt: skip


def parts_of(kind: type[Event]) -> dict[str, object]:
    names = {one.name for one in fields(kind)}
    return {name: value for name, value in {**NEEDED, **GIVEN}.items() if name in names}


@pytest.mark.parametrize("kind", [pytest.param(kind, id=name) for name, kind in KINDS.items()])
def test_an_event_is_the_same(kind: type[Event]) -> None:
    parts = parts_of(kind)

    found = quick(kind)(**parts)

    assert quick(kind) is not kind
    assert type(found) is kind
    assert found == kind(**parts)  # type: ignore[arg-type]  # they are its fields
    assert replace(found, host="g").host == "g"


def test_an_event_is_changed_as_by_replace() -> None:
    before = made(RunStart, **parts_of(RunStart))

    after = changed(before, host="g", name="other")

    assert type(after) is RunStart
    assert after == replace(before, host="g", name="other")
    assert before == RunStart(**parts_of(RunStart))  # type: ignore[arg-type]  # they are its fields


def test_an_event_is_as_frozen() -> None:
    found = quick(RunStart)(**parts_of(RunStart))

    with pytest.raises(FrozenInstanceError):
        found.name = "other"  # type: ignore[misc]  # which is the point
    with pytest.raises(FrozenInstanceError):
        del found.name


def test_each_instance_has_a_default_of_its_own() -> None:
    make = quick(RunStart)

    first, second = make(**parts_of(RunStart)), make(**parts_of(RunStart))

    assert first.raw == {}
    assert first.raw is not second.raw


def test_what_is_missing_or_unknown_is_an_error() -> None:
    make = quick(RunStart)

    with pytest.raises(TypeError, match="host"):
        make(run_id="r")
    with pytest.raises(TypeError, match="nonsense"):
        make(nonsense=1)


@dataclass(frozen=True, slots=True)
class Placed:
    """Has a field that is given by its place."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Open:
    """Has no slots."""

    names: list[str] = field(default_factory=list)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(RolloutConfig, id="one that checks itself"),
        pytest.param(Placed, id="fields that have a place"),
        pytest.param(Open, id="no slots"),
    ],
)
def test_a_class_that_cannot_be_made_so_makes_its_own(kind: type[RolloutConfig]) -> None:
    assert quick(kind) is kind
