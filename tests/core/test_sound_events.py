"""No field of an event holds what does something when it is looked at."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tau_live.core import events as ev
from tau_live.core.errors import EventError
from tau_live.core.sound_events import sound

END = ev.RunEnd(host="h", run_id="r", at=1.0, status=ev.Status.OK, turns=2, cost_usd=0.5)
CHOSEN = ev.Decision(host="h", run_id="r", at=1.0, ordinal=1, point="p", options=("a", "b"))


class Endless:
    """Has no end, and takes all memory of whoever looks how long it is."""

    def __iter__(self) -> Iterator[object]:
        raise AssertionError("it was asked")

    __len__ = __str__ = __float__ = __int__ = __bool__ = __iter__  # type: ignore[assignment]


class OddKind(type):
    """Its classes cannot be hashed."""

    def __hash__(cls) -> int:
        raise RuntimeError


class Odd(metaclass=OddKind):
    """Cannot be told from others by its class."""


def with_field(event: ev.Event, name: str, value: Any) -> ev.Event:
    return replace(event, **{name: value})


@pytest.mark.parametrize("event", [END, CHOSEN, *(ev.RunStart(host="h", run_id="r", at=1.0),)])
def test_an_event_of_plain_data_is_the_same(event: ev.Event) -> None:
    found = sound(event)

    assert found.event is event
    assert found.left_out == 0


@pytest.mark.parametrize("bad", [Endless(), Odd(), "text", 10**400, b"1", [0.5], True])
@pytest.mark.parametrize("name", ["cost_usd", "turns", "duration_ms"])
def test_what_is_no_number_is_left_out_and_counted(name: str, bad: object) -> None:
    found = sound(with_field(END, name, bad))

    assert getattr(found.event, name) is None
    assert found.left_out == 1


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        pytest.param("turns", 2, 10**400, id="a whole number"),
        pytest.param("duration_ms", 2, 10**400, id="a whole number for another"),
        pytest.param("output", ev.Content(text="a"), ev.Content(text=7), id="text of a content"),  # type: ignore[arg-type]  # which is the point
        pytest.param("output", ev.Content(text="a"), ev.Content(chars=10**400), id="its length"),
        pytest.param("aliases", ("a",), (Endless(),), id="an entry"),
    ],
)
def test_values_of_the_same_classes_are_looked_at_again(
    name: str, good: object, bad: object
) -> None:
    event = ev.RunStart(host="h", run_id="r", at=1.0) if name == "aliases" else END
    assert sound(with_field(event, name, good)).left_out == 0

    found = sound(with_field(event, name, bad))

    assert found.left_out == 1


@pytest.mark.parametrize(
    ("name", "bad", "kept"),
    [
        pytest.param("output", Endless(), None, id="content"),
        pytest.param("output", ev.Content(text=Endless()), None, id="text of a content"),  # type: ignore[arg-type]
        pytest.param("error", "wrong", None, id="an error"),
        pytest.param("usage", Endless(), {}, id="a mapping"),
        pytest.param("status", "nonsense", None, id="an enumeration"),
        pytest.param("span_id", 7, None, id="an id"),
        pytest.param("dropped", "many", 0, id="a count"),
    ],
)
def test_what_is_not_of_its_kind_gives_way_to_the_default(
    name: str, bad: object, kept: object
) -> None:
    found = sound(with_field(END, name, bad))

    assert getattr(found.event, name) == kept
    assert found.left_out == 1


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("cost_usd", np.float32(0.5), 0.5),
        ("cost_usd", Decimal("0.25"), 0.25),
        ("turns", np.int64(3), 3),
        ("status", "ok", ev.Status.OK),
    ],
)
def test_what_means_the_same_is_taken_as_plain_data(name: str, given: object, kept: object) -> None:
    found = sound(with_field(END, name, given))

    value = getattr(found.event, name)
    assert (value, type(value)) == (kept, type(kept))
    assert found.left_out == 0


@pytest.mark.parametrize("bad", [Endless(), [Endless()], ("a", 1), "ab", None])
def test_a_decision_without_its_options_is_refused(bad: object) -> None:
    with pytest.raises(EventError, match="the options of a decision event"):
        sound(with_field(CHOSEN, "options", bad))


def test_a_class_of_events_that_nobody_knows_is_refused() -> None:
    class Mine(ev.RunEnd, frozen=True):
        """Somebody's own."""

    with pytest.raises(EventError, match="unknown event"):
        sound(Mine(host="h", run_id="r", at=1.0))
