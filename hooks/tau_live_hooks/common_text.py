"""What hosts' objects say, as plain data: texts, and what is known before something is chosen."""

import json
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, TypeGuard, TypeVar
from uuid import UUID

from tau_live.envelope import Content
from tau_live.errors import suppress
from tau_live.handed.plain import Limits, plain
from tau_live.handed.values import finite, text_of
from tau_live.machine.quick import made

TEXT_LIMIT = 64
"""A text of more characters says too much to be known of a situation."""

CONTENT = Limits(nodes=4_000)
"""So much of a value is read in the host's thread, which takes some 20 ms at most."""

FEW = 100_000
"""So much of one collection of a host's is looked at; more has none that was ever seen."""

KNOWN_LIMIT = 32
"""So many names of a run's own metadata are known of a situation."""

IDS_REMEMBERED = 1_024
"""Of so many ids the text is known."""

_PLAIN = frozenset({str, int, float, bool, type(None)})
_BUILT_IN = frozenset({dict, list, tuple, *_PLAIN})
_JSON = json.JSONEncoder(ensure_ascii=False)

K = TypeVar("K")


def is_a(value: object, kind: type[K]) -> TypeGuard[K]:
    """Tell by its type alone what a value is; ``isinstance`` asks the value's ``__class__``."""
    return issubclass(type(value), kind)


def printed(value: object) -> str:
    """Return a name or an id as a text; one that is none, bounded, whatever printing it does."""
    if type(value) is str:
        return value
    if type(value) is UUID:  # the usual ones
        return _printed_id(value)
    return str.__str__(value) if is_a(value, str) else text_of(value)


@lru_cache(maxsize=IDS_REMEMBERED)
def _printed_id(value: UUID) -> str:
    """Return an id as a text; a host hands over each of them several times."""
    return str(value)


def few(value: Any) -> list[Any]:
    """Return what a collection of the host's holds; nothing of what is none.

    Nothing is drawn from an iterator, which is its reader's, and nothing goes on without an end.
    """
    if type(value) is list or type(value) is tuple:  # the usual ones
        return list(value[:FEW])
    kind: Any
    for kind in (list, tuple, dict, set, frozenset, deque):
        if is_a(value, kind):
            return list(islice(kind.__iter__(value), FEW))
    kind = type(value)
    if is_a(value, str) or not hasattr(kind, "__len__") or hasattr(kind, "__next__"):
        return []
    return list(islice(value, FEW))


def content_of(value: object) -> Content | None:
    """Return a text as it is, and anything else as the JSON of what can be read of it.

    A host's own kind of text becomes a plain one: no encoder takes another. Whatever the value
    does when it is looked at, something is said of it: it may well be a user's own.
    """
    if value is None:
        return None
    if is_a(value, str):
        return made(Content, text=str.__str__(value))
    shown = value
    if type(value) not in _BUILT_IN:
        with suppress(Exception):  # the border to the host: a class of anybody's
            shown = vars(value) if hasattr(type(value), "model_fields") else value
    return made(Content, text=_JSON.encode(plain(shown, limits=CONTENT)))


def situation_of(known: Mapping[str, object], metadata: object = None) -> dict[str, object]:
    """Return what is known before something is chosen, of which ``never`` and the policy may go by.

    Args:
        known: What the adapter knows: the agent, the step, how many messages and tools.
        metadata: The run's own, as its host was told it; of it the names are taken that stand for
            a number, a truth or a short text.
    """
    found = {name: one if type(one) in _PLAIN else printed(one) for name, one in known.items()}
    given: list[tuple[object, object]] = []
    with suppress(Exception):  # the border to the host: a mapping of anybody's
        given = list(islice(metadata.items(), KNOWN_LIMIT)) if isinstance(metadata, Mapping) else []
    for name, value in given:
        told = _told(value)
        if told is not None and is_a(name, str):
            found[str.__str__(name)] = told
    return found


def _told(value: object) -> object:
    """Return a number, a truth or a short text as a built-in one; ``None`` for anything else."""
    if is_a(value, str):
        text = str.__str__(value)
        return text if len(text) <= TEXT_LIMIT else None
    return plain(value) if is_a(value, int) or is_a(value, float) else None


def counted(numbers: Mapping[str, object]) -> dict[str, float]:
    """Return the finite numbers above 0, such as the tokens of a request by kind."""
    found: dict[str, float] = {}
    for name, number in numbers.items():
        value = finite(number) if is_a(number, int) or is_a(number, float) else None
        if value is not None and value > 0:
            found[printed(name)] = value
    return found
