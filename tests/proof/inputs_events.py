"""Events as adapters report them, with bad values in their fields, and streams out of order."""

import random
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

from msgspec import NODEFAULT
from msgspec.structs import fields, replace

from tau_live.core import events as ev
from tau_live.record.recording import BadLine, read
from tests.proof.inputs_values import HUGE, Named, Values

HOST = "fuzz"
GOLDEN = Path(__file__).parents[1] / "hooks/golden"
RUNS = 40
FIXED = frozenset({"event"})
_TEXTS = ("a", "model", "ok", "a reason of some words", "")


@cache
def hints(kind: type[ev.Event]) -> Mapping[str, Any]:
    """Return the types of an event's fields."""
    return get_type_hints(kind)


def event_with(values: Values, *, wanted: Any = None) -> tuple[str, ev.Event]:
    """Return an event of any kind with at least one bad field, and what it is called.

    Args:
        values: The source of bad values.
        made: The kind; ``None`` draws one.
    """
    rng = values.rng
    name = rng.choice(tuple(ev.KINDS))
    kind: Any = wanted or ev.KINDS[name]
    names = [field.name for field in fields(kind) if field.name not in FIXED]
    bad = {rng.choice(names), rng.choice(names)} if rng.random() < 0.7 else {rng.choice(names)}
    descriptions: list[str] = []
    given: dict[str, Any] = {"host": HOST, "run_id": f"r{rng.randrange(RUNS)}", "at": rng.random()}
    for field in fields(kind):
        if field.name in bad:
            bad_value = _bad(values)
            descriptions.append(f"{field.name}={bad_value.name}")
            given[field.name] = bad_value.value
        elif field.name not in given and field.name not in FIXED and _is_wanted(field, rng):
            given[field.name] = good(hints(kind)[field.name], rng)
    return f"{kind.__name__}({', '.join(descriptions)})", kind(**given)


def _bad(values: Values) -> Named:
    value = values.any()
    return Named("1.5", 1.5) if value.name in HUGE and values.rng.random() < 0.5 else value


def _is_wanted(field: Any, rng: random.Random) -> bool:
    needed = field.default is NODEFAULT and field.default_factory is NODEFAULT
    return needed or rng.random() < 0.3


def good(type_: Any, rng: random.Random) -> object:
    """Return a good value of an annotated type."""
    parts = get_args(type_)
    if type(None) in parts:
        return good(next(part for part in parts if part is not type(None)), rng)
    if isinstance(type_, type) and issubclass(type_, StrEnum):
        return rng.choice(list(type_.__members__.values()))
    plain: dict[object, object] = {
        str: rng.choice(_TEXTS),
        int: rng.randrange(5),
        float: rng.random(),
        bool: rng.random() < 0.5,
        bytes: b"",
        ev.Content: ev.Content(text="a text"),
        ev.ErrorInfo: ev.ErrorInfo(type="ValueError", message="wrong"),
    }
    if type_ in plain:
        return plain[type_]
    return ("a", "b") if "tuple[str" in str(type_) else () if "tuple" in str(type_) else {}


@lru_cache(maxsize=1)
def golden() -> Sequence[Sequence[ev.Event]]:
    """Return the events of real hosts in every scenario."""
    streams = []
    for path in sorted(GOLDEN.glob("*/*.jsonl")):
        with path.open("rb") as file:
            streams.append([event for event in read(file) if not isinstance(event, BadLine)])
    return streams


def disordered(rng: random.Random, number: int) -> Iterator[tuple[str, ev.Event]]:
    """Yield the events of a real host with some of them missing, doubled, and out of order."""
    place = rng.randrange(len(golden()))
    stream = [event for event in golden()[place] if rng.random() > 0.1]
    stream += [event for event in stream if rng.random() < 0.1]
    if rng.random() < 0.5:
        rng.shuffle(stream)
    else:
        stream.sort(key=lambda event: event.seq + rng.randrange(3))
    for event in stream:
        changed = replace(event, run_id=f"{event.run_id}-{number}", host=f"{HOST}-{event.host}")
        if changed.parent_run_id is not None:
            changed = replace(changed, parent_run_id=f"{event.parent_run_id}-{number}")
        yield f"recording {place}: {event.event}", changed
