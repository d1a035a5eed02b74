"""What fails at the border to a host: tau-live, which holds, or what the host handed over."""

from collections import UserDict, UserList
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from uuid import UUID

import pytest

from tau_live.core.gate import Kind
from tau_live.core.settings import Learner, Settings
from tau_live.runtime.adapters import InForce
from tau_live.runtime.runtime import Runtime, start
from tau_live_hooks.common import Border, as_text, content_of, few, situation_of
from tests.hooks.hostile_values import HostsOwnError, Touchy, laughs

pytestmark = pytest.mark.slow


@pytest.fixture
def runtime(path: Path) -> Iterator[Runtime]:
    made = start({}, Settings(store=path, learner=Learner.FLUSH))
    assert made is not None
    yield made
    made.close(30.0)


def read_it(name: str) -> None:
    """Read a host's object, as an adapter does."""
    getattr(Touchy(), name)


def lacks_it() -> None:
    """Read what an object of the host does not have."""
    _ = object().name  # type: ignore[attr-defined]  # which is the case


def gate_of(runtime: Runtime) -> object:
    gate = runtime.snapshot()["gate"]
    assert isinstance(gate, Mapping)
    return gate["state"]


def test_what_a_host_hands_over_holds_nothing_and_is_counted(runtime: Runtime) -> None:
    border = Border(lambda: runtime)

    for _ in range(10):
        border.safely(read_it, "name")
        border.safely(lacks_it, kind=Kind.DECISION)

    assert gate_of(runtime) == "pass"
    assert runtime.counts()["host_objects_unread"] == 20


def test_what_fails_in_tau_live_itself_holds(runtime: Runtime) -> None:
    border = Border(lambda: runtime)

    for _ in range(3):
        border.safely(lambda: Settings(max_failure_streak=-1))

    assert gate_of(runtime) == "hold"
    assert "host_objects_unread" not in runtime.counts()


def test_a_system_that_cannot_be_asked_for_hurts_nobody() -> None:
    def broken() -> Runtime | None:
        raise HostsOwnError

    in_force: InForce = broken

    assert Border(in_force).safely(read_it, "name") is None


@pytest.mark.parametrize("make", [Touchy, lambda: [Touchy()], laughs, HostsOwnError])
def test_whatever_a_value_does_something_is_said_of_it(make: Callable[[], object]) -> None:
    found = content_of(make())

    assert found is not None
    assert found.text


@pytest.mark.parametrize(
    ("make", "said"),
    [
        pytest.param(lambda: "a", "a", id="a text"),
        pytest.param(lambda: 7, "7", id="a number"),
        pytest.param(lambda: UUID(int=7), str(UUID(int=7)), id="a UUID"),
        pytest.param(HostsOwnError, "unprintable HostsOwnError", id="what raises"),
        pytest.param(laughs, "unprintable list", id="what would take for ever"),
    ],
)
def test_a_name_is_a_text_whatever_it_is(make: Callable[[], object], said: str) -> None:
    assert as_text(make()) == said


class Endless(list[int]):
    """Holds two, and goes on for ever."""

    def __iter__(self) -> Iterator[int]:
        while True:
            yield 1


class Shown:
    """Has no length, and no end."""

    def __iter__(self) -> Iterator[int]:
        while True:
            yield 1


@pytest.mark.parametrize(
    ("value", "held"),
    [
        pytest.param((1, 2), [1, 2], id="a tuple"),
        pytest.param({"a": 1}, ["a"], id="the names of a mapping"),
        pytest.param(UserList([1, 2]), [1, 2], id="a sequence of the host's own"),
        pytest.param(UserDict({"a": 1}), ["a"], id="a mapping of the host's own"),
        pytest.param(Endless([7, 8]), [7, 8], id="a list that goes on for ever"),
        pytest.param(Shown(), [], id="no collection"),
        pytest.param("text", [], id="a text"),
        pytest.param(None, [], id="nothing"),
    ],
)
def test_of_a_collection_what_it_holds_is_read(value: object, held: list[object]) -> None:
    assert few(value) == held


def test_nothing_is_drawn_from_an_iterator() -> None:
    pieces = iter([1, 2])

    found = few(pieces)

    assert (found, [*pieces]) == ([], [1, 2])


def test_metadata_that_cannot_be_read_says_nothing() -> None:
    class Broken(UserDict[str, object]):
        def __iter__(self) -> Iterator[str]:
            raise HostsOwnError

    assert situation_of({"agent": "a"}, Broken(a=1)) == {"agent": "a"}
    assert situation_of({"agent": "a"}, Touchy()) == {"agent": "a"}


def test_what_an_adapter_knows_is_plain_whatever_its_host_says() -> None:
    found = situation_of({"step": laughs(), "tool": HostsOwnError(), "agent": "a", "tools": 3})

    assert found == {
        "step": "unprintable list",
        "tool": "unprintable HostsOwnError",
        "agent": "a",
        "tools": 3,
    }
