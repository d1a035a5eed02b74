"""What an adapter's callbacks get in the place of a host's own objects, from a seed."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from tests.proof.inputs_hostile import HOSTILE, HostileError
from tests.proof.inputs_values import Named, Values

ENDLESS = (
    "an endless iterator",
    "list whose __iter__ has no end",
    "tuple whose __iter__ has no end",
    "dict whose __iter__ has no end",
    "object whose __iter__ has no end",
    "laughs",
)


def laughs() -> object:
    """Return lists of which each holds another one twice, so that nobody may go through them."""
    made: list[Any] = []
    for _ in range(100):
        made = [made, made]
    return made


class HostsOwnError(Exception):
    """Raised by a host's step; whoever prints it or looks at it gets another error."""

    def __str__(self) -> str:
        raise HostileError

    __repr__ = __str__

    def __getattr__(self, name: str) -> object:
        raise HostileError(name)


class FacelessError(HostsOwnError):
    """Whoever asks for its class by ``isinstance`` gets another error, too."""

    @property
    def __class__(self) -> type:
        raise HostileError

    @__class__.setter
    def __class__(self, value: type) -> None:
        raise HostileError


class Touchy:
    """Raises whatever it is asked, even for its class."""

    def __getattribute__(self, name: str) -> object:
        raise HostileError(name)


class BadValues(Values):
    """Bad values, of the huge ones those alone that are soon made; none that end noisily."""

    _hostile = tuple(name for name in HOSTILE if "__del__" not in name)
    _huge = ("10**100000", "1000 texts", "256 rows", "lists 100,000 deep", "dicts 100,000 deep")
    _once: ClassVar[dict[str, Named]] = {}

    @classmethod
    def make(cls) -> None:
        """Make what takes its time, so that no callback is taken to be as slow."""
        cls._once.setdefault("laughs", Named("laughs", laughs()))
        for name in (*cls._huge, "proxies"):
            cls._once.setdefault(name, Values.named(name))

    def any(self) -> Named:
        """Return a value of any kind; some raise whatever they are asked, and some never end."""
        at = self.rng.random()
        if at < 0.06:
            return self.named(self.rng.choice(ENDLESS))
        return Named("touchy", Touchy()) if at < 0.2 else super().any()

    @staticmethod
    def named(name: str) -> Named:
        """Return a value of the catalogue."""
        return BadValues._once.get(name) or Values.named(name)


def spoiled(values: Values, good: Any, depth: int = 3) -> Any:
    """Return something that is like a good object, but bad somewhere."""
    if isinstance(good, BaseException):  # whatever a host raises is one
        other = HostsOwnError(values.any().value)
        return values.rng.choice((HostsOwnError(), FacelessError(), other, good))
    at = values.rng.random()
    if at < 0.25 or good is None or depth == 0:
        return values.any().value
    kind = type(good)
    if kind is dict and good:
        found = dict(good)
        name = values.rng.choice([*found])
        found[name] = spoiled(values, found[name], depth - 1)
        if at > 0.8:
            del found[name]
        return found
    if kind in (list, tuple) and good:
        items = [*good]
        place = values.rng.randrange(len(items))
        items[place] = spoiled(values, items[place], depth - 1)
        return items if kind is list else tuple(items)
    if isinstance(good, str | int | float | bytes | type) or callable(good):
        return values.any().value
    return _like(values, good, depth)


def _like(values: Values, good: Any, depth: int) -> Any:
    """Return a stand-in of an object of the host, some of whose attributes are not as they were."""
    rng, changed = values.rng, dict[str, Any]()

    def asked(self: object, name: str) -> Any:
        if name in {"__class__", "__dict__"}:
            return object.__getattribute__(good, name)
        if name in changed:
            return changed[name]
        at = rng.random()
        if at < 0.06:
            raise HostileError(name)
        if at < 0.12:
            raise AttributeError(name)
        found = getattr(good, name)
        if at < 0.4 and not callable(found):
            found = changed[name] = spoiled(values, found, depth - 1)
        return found

    made: Any = type(type(good).__name__, (), {"__getattribute__": asked, "__iter__": _same(good)})
    return object.__new__(made)


def _same(good: Any) -> Callable[[object], Iterator[Any]]:
    return lambda _: iter(good)
