"""Objects as bad as a host's can be."""

from typing import Any

from hypothesis import strategies as st


class HostileError(Exception):
    """Raised by everything that a hostile object is asked."""


class Hostile:
    """Raises whatever is asked of it."""

    def _raise(self, *_: object) -> Any:
        raise HostileError

    __str__ = __repr__ = __hash__ = __eq__ = __iter__ = __len__ = __bool__ = _raise
    __float__ = __int__ = __index__ = __getattr__ = __call__ = __getitem__ = __lt__ = _raise
    __enter__ = __exit__ = __contains__ = __format__ = _raise

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise HostileError


class HostileText(str):
    """A text that raises whatever is asked of it."""

    __slots__ = ()

    def _raise(self, *_: object) -> Any:
        raise HostileError

    __str__ = __repr__ = __hash__ = __eq__ = __iter__ = __len__ = _raise
    __format__ = __getitem__ = encode = _raise  # type: ignore[assignment]


class HostileMapping(dict[Any, Any]):
    """A mapping that raises whatever is asked of it."""

    def _raise(self, *_: object) -> Any:
        raise HostileError

    __iter__ = __len__ = __getitem__ = items = keys = values = get = _raise


class HostileNumber(float):
    """A number that raises whatever is asked of it."""

    def _raise(self, *_: object) -> Any:
        raise HostileError

    __float__ = __str__ = __repr__ = __eq__ = __hash__ = _raise


class Endless:
    """Has no end."""

    def __iter__(self) -> Any:
        return iter(int, 1)


class Half:
    """Breaks off in the middle."""

    def __iter__(self) -> Any:
        yield "a"
        raise HostileError


WORST = [
    Hostile(),
    HostileText("worst"),
    HostileMapping(a=1),
    HostileNumber(1.0),
    Endless(),
    Half(),
    [Hostile(), Hostile()],
    {"a": Hostile()},
    {"a": {"b": Hostile()}},
    {"a": HostileMapping(a=1)},
    float("nan"),
    float("inf"),
    10**5_000,
    "\ud800 lone",
    "nul \0 here",
    "x" * 100_000,
    b"\xff",
    object,
    lambda: None,
    NotImplemented,
    ...,
]


def worst(number: int) -> object:
    """Return one of the worst; by number, because nobody may print them."""
    return WORST[number]


GARBAGE: st.SearchStrategy[Any] = st.one_of(
    st.integers(0, len(WORST) - 1).map(worst),
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.recursive(
        st.one_of(
            st.none(), st.text(max_size=5), st.floats(), st.integers(0, len(WORST) - 1).map(worst)
        ),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)
        ),
        max_leaves=8,
    ),
)
