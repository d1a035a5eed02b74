"""Classes that raise, lie, sleep or answer with the wrong thing when a certain thing is asked."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache, partial
from typing import Any


class HostileError(Exception):
    """Raised by what a hostile object is asked."""


def endless() -> Iterator[object]:
    """Yield without an end."""
    while True:
        yield "a"


_BASES: Mapping[type, tuple[object, ...]] = {
    object: (),
    str: ("worst",),
    int: (7,),
    float: (0.5,),
    dict: ({"a": 1.0, "b": 2.0},),
    list: (["a", "b"],),
    tuple: (("a", "b"),),
}
_WRONG: Mapping[str, object] = {
    "__repr__": 5,
    "__str__": None,
    "__eq__": "yes",
    "__len__": -1,
    "__iter__": 5,
    "__hash__": "hash",
    "__bool__": 7,
    "__float__": "x",
    "__index__": None,
    "__int__": [],
    "__getattr__": None,
    "__getitem__": None,
    "__format__": 3,
    "__lt__": [],
    "__call__": None,
    "__contains__": "x",
    "__enter__": None,
    "__del__": None,
}
_LIES: Mapping[str, object] = {
    "__repr__": "another",
    "__str__": "another",
    "__eq__": True,
    "__len__": 10**9,
    "__hash__": 0,
    "__bool__": False,
    "__float__": float("nan"),
    "__index__": 2**70,
    "__int__": 10**400,
    "__getattr__": {},
    "__format__": "another",
}
_BEHAVIOURS = ("raises", "is wrong", "lies", "raises the second time", "sleeps", "has no end")
_SLEEP_S = 1e-4


def _method(name: str, behaviour: str) -> Callable[..., Any]:
    calls = [0]
    wrong, lie = _WRONG[name], _LIES.get(name, _WRONG[name])

    def method(self: object, *_: object) -> Any:
        calls[0] += 1
        if behaviour == "raises" or (behaviour == "raises the second time" and calls[0] > 1):
            raise HostileError(name)
        if behaviour == "has no end" and name == "__iter__":
            return endless()
        if behaviour == "sleeps":
            time.sleep(_SLEEP_S)
        return wrong if behaviour == "is wrong" else lie

    return method


@cache
def _class(base: type, name: str, behaviour: str) -> type:
    if name == "__class__":
        answer = {"raises": HostileError, "lies": str}.get(behaviour, dict)

        def read_class(self: object) -> Any:
            if answer is HostileError:
                raise HostileError(name)
            return answer

        return type("Hostile", (base,), {"__class__": property(read_class)})
    return type("Hostile", (base,), {name: _method(name, behaviour)})


def _instance(base: type, name: str, behaviour: str) -> object:
    return _class(base, name, behaviour)(*_BASES[base])


def _everything(base: type) -> object:
    names = [name for name in _WRONG if name != "__del__"]
    kind = type("Hostile", (base,), {name: _method(name, "raises") for name in names})
    return kind(*_BASES[base])


HOSTILE: Mapping[str, Callable[[], Any]] = {
    **{
        f"{base.__name__} whose {name} {behaviour}": (partial(_instance, base, name, behaviour))
        for base in _BASES
        for name in (*_WRONG, "__class__")
        for behaviour in _BEHAVIOURS
    },
    **{
        f"{base.__name__} that raises whatever it is asked": lru_cache(partial(_everything, base))
        for base in _BASES
    },
}
