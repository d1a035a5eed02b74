"""Whose an exception is: what interrupts us is the host's, what we call may fail."""

import functools
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

import pytest

from tau_live.core.errors import is_interruption, pass_on, suppress
from tau_live.core.guard import Guard


class LimitError(Exception):
    pass


def deeper() -> NoReturn:
    raise LimitError


def plain(number: int, frame: FrameType | None) -> None:
    deeper()


def overwriting(number: object, frame: object) -> None:
    del number, frame
    deeper()


class Limit:
    def method(self, number: int, frame: FrameType | None) -> None:
        deeper()

    def __call__(self, *given: object) -> None:
        deeper()


class Hostile:
    def __str__(self) -> str:
        raise LimitError

    def __iter__(self) -> Iterator[int]:
        raise LimitError


class FacelessError(Exception):
    @property
    def __class__(self) -> type:
        raise LimitError

    @__class__.setter
    def __class__(self, value: type) -> None:
        raise LimitError


def faceless() -> NoReturn:
    raise FacelessError


HANDLERS = [plain, overwriting, Limit().method, Limit(), functools.partial(Limit.method, Limit())]


@pytest.fixture(
    params=HANDLERS, ids=["a function", "new arguments", "a method", "an object", "a partial"]
)
def interrupt(request: pytest.FixtureRequest) -> Iterator[Callable[[], None]]:
    before = signal.signal(signal.SIGUSR1, request.param)
    yield lambda: signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def test_what_a_signal_s_handler_raises_passes_uncounted(interrupt: Callable[[], None]) -> None:
    guard = Guard()

    with pytest.raises(LimitError):
        guard.call("decision", interrupt, fallback=None)
    with pytest.raises(LimitError), guard.catching("decision"):
        interrupt()
    with pytest.raises(LimitError), suppress(Exception):
        interrupt()
    assert guard.counts() == {}


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(deeper, id="a plugin"),
        pytest.param(lambda: plain(14, None), id="a handler that is called"),
        pytest.param(lambda: str(Hostile()), id="a text of the host's"),
        pytest.param(lambda: [*Hostile()], id="a list of the host's"),
        pytest.param(faceless, id="an error that does not say its class"),
        pytest.param(lambda: int("one"), id="what is built in"),
        pytest.param(lambda: next(iter(())), id="what says nothing"),
    ],
)
def test_what_we_call_may_fail(call: Callable[[], object]) -> None:
    guard = Guard()

    assert guard.call("decision", call, fallback="the host's own") == "the host's own"
    with suppress(Exception):
        call()
    try:
        call()
    except Exception as error:
        assert not is_interruption(error)
        pass_on(error)
    assert sum(guard.counts().values()) == 1


STARTER = next(  # the second is that of Python 3.12 and before
    name for name in ("_start_joinable_thread", "_start_new_thread") if hasattr(threading, name)
)
START = getattr(threading, STARTER)


def starting(interrupt: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt the start of a thread, of which Python makes a ``KeyError``."""

    def interrupted(*arguments: object, **options: object) -> None:
        START(*arguments, **options)
        assert begun.wait(30.0)
        interrupt()

    monkeypatch.setattr(threading, STARTER, interrupted)
    begun = threading.Event()
    threading.Thread(target=begun.set, daemon=True).start()


def test_what_python_makes_of_an_interruption_is_passed_on_as_it_came(
    interrupt: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = Guard()

    with pytest.raises(KeyError) as found:
        starting(interrupt, monkeypatch)
    assert not is_interruption(found.value)
    with pytest.raises(LimitError):
        guard.call("collection", starting, interrupt, monkeypatch, fallback=None)
    with pytest.raises(LimitError), guard.catching("collection"):
        starting(interrupt, monkeypatch)
    with pytest.raises(LimitError), suppress(KeyError):
        starting(interrupt, monkeypatch)
    assert guard.counts() == {}


def test_what_had_come_before_we_were_called_is_not_passed_on_again(
    interrupt: Callable[[], None],
) -> None:
    guard = Guard()

    try:
        interrupt()
    except LimitError:  # the host deals with it, and calls us
        found = guard.call("decision", int, "one", fallback="the host's own")

    assert found == "the host's own"
    assert sum(guard.counts().values()) == 1


def test_what_a_plugin_makes_of_its_own_time_limit_is_its_own(
    interrupt: Callable[[], None],
) -> None:
    def plugin() -> None:
        try:
            interrupt()
        except LimitError as error:
            raise ValueError("too slow") from error

    found = Guard().call("decision", plugin, fallback="the host's own")

    assert found == "the host's own"
