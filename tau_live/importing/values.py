"""What logs hold in the place of names, numbers, times, options and features, as we have them."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite
from typing import NamedTuple, TypeVar

import msgspec

from tau_live.handed.values import OPTIONS_LIMIT, text_of
from tau_live.importing.fields import ABSENT

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_LATEST_S = 1e11  # beyond, a number is no time in seconds but in thousandths, and so on
_SUM_ROUNDING = 1e-3
_SCALARS = frozenset({float, int, bool, str, type(None)})
_NAMES = ("name", "id", "option")
"""Under which of these keys an option that is an object has its name."""

Features = dict[str, object]
Read = TypeVar("Read")
Reading = Callable[[object], Read]


class Options(NamedTuple):
    """What was offered.

    Attributes:
        names: ``[A]``, each once.
        features: ``[A]``, or ``None`` where nothing was told of an option.
    """

    names: tuple[str, ...]
    features: tuple[Features | None, ...]


def name_of(value: object) -> str | None:
    """Return a name; ``None`` where there is none. Raises: ValueError."""
    if value is None or value == "":
        return None
    if type(value) is str:
        return text_of(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return text_of(value)
    raise ValueError(f"expected a name, got {_shown(value)}")


def number_of(value: object) -> float | None:
    """Return a finite number; ``None`` where there is none. Raises: ValueError."""
    if value is None:
        return None
    if type(value) is float and isfinite(value):
        return value
    if isinstance(value, str) and value.strip().lower() in ABSENT:
        return None
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
        return float(value.strip().lower() == "true")
    try:
        found = float(value) if isinstance(value, str | int | float) else float("nan")
    except ValueError:
        found = float("nan")
    if not isfinite(found):
        raise ValueError(f"expected a finite number, got {_shown(value)}")
    return found


def probability_of(value: object) -> float | None:
    """Return a number from 0 to 1; ``None`` where there is none. Raises: ValueError."""
    found = number_of(value)
    if found is not None and not 0.0 <= found <= 1.0:
        raise ValueError(f"expected a number from 0 to 1, got {_shown(value)}")
    return found


def place_of(value: object) -> int | None:
    """Return a whole number from 1; ``None`` where there is none. Raises: ValueError."""
    found = number_of(value)
    if found is not None and not (found >= 1.0 and found.is_integer() and found < 1e18):
        raise ValueError(f"expected a whole number from 1, got {_shown(value)}")
    return None if found is None else int(found)


def truth_of(value: object) -> bool:
    """Return whether something is said to be so. Raises: ValueError."""
    return bool(number_of(value))


def time_of(value: object) -> float | None:
    """Return epoch seconds; ``None`` where there is no time. Raises: ValueError."""
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        text = value.strip()
        if text.lower() in ABSENT:
            return None
        try:
            found = datetime.fromisoformat(text)
        except ValueError as error:
            raise ValueError(f"expected a time, got {_shown(value)}") from error
        seconds = (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    else:
        number = number_of(value)
        if number is None:
            return None
        seconds = number
        while seconds > _LATEST_S:
            seconds /= 1e3
    if seconds < 0.0:
        raise ValueError(f"expected a time since 1970, got {_shown(value)}")
    return seconds


def options_of(value: object) -> Options:
    """Return what was offered; nothing where nothing is told of it. Raises: ValueError."""
    value = _opened(value)
    if value is None:
        return Options((), ())
    if isinstance(value, str):
        pairs: list[tuple[str | None, Features | None]] = [
            (name_of(name.strip()), None) for name in value.split("|")
        ]
    elif isinstance(value, Mapping):
        pairs = [(name_of(name), _features(of)) for name, of in value.items()]
    elif isinstance(value, list):
        if all(type(one) is str for one in value):  # as rows without features have them
            return _named_options(tuple(value))
        pairs = [_option(at, one) for at, one in enumerate(value)]
    else:
        raise _not("options", value)
    return _offered(pairs, value)


@lru_cache(maxsize=256)  # most rows of a log offer the same
def _named_options(names: tuple[str, ...]) -> Options:
    return _offered([(name_of(name), None) for name in names], [*names])


def _offered(pairs: Sequence[tuple[str | None, Features | None]], value: object) -> Options:
    names = [name for name, _ in pairs if name is not None]
    if len(names) < len(pairs) or len(set(names)) < len(names):
        raise ValueError(f"expected every option once and with a name, got {_shown(value)}")
    if len(names) > OPTIONS_LIMIT:
        raise ValueError(f"expected at most {OPTIONS_LIMIT} options, got {len(names)}")
    return Options(tuple(names), tuple(features for _, features in pairs))


def _option(at: int, one: object) -> tuple[str | None, Features | None]:
    if not isinstance(one, Mapping):
        return name_of(one), None
    key = next((key for key in _NAMES if isinstance(one.get(key), str | int)), None)
    features = {name: value for name, value in one.items() if name != key}
    return (str(at) if key is None else name_of(one[key])), _features(features)


def _features(value: object) -> Features | None:
    return None if value is None else features_of(value)


def features_of(value: object) -> Features:
    """Return features by name, what is inside of others by dotted names. Raises: ValueError."""
    value = _opened(value)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _not("an object", value)
    if _SCALARS.issuperset(map(type, value.values())) and "_" not in {name[:1] for name in value}:
        return {**value}  # as most are
    return dict(_flat("", value, 0))


def features_by_option(value: object) -> dict[str, Features]:
    """Return the features of each option by its name. Raises: ValueError."""
    value = _opened(value)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise _not("an object of options", value)
    return {str(name): features_of(of) for name, of in value.items()}


def _flat(prefix: str, value: Mapping[str, object], depth: int) -> Iterator[tuple[str, object]]:
    for name, inner in value.items():
        if type(inner) in _SCALARS and not str(name).startswith("_"):
            yield f"{prefix}{name}", inner
            continue
        if str(name).startswith("_"):  # what a log keeps for itself, as Vowpal Wabbit's do
            continue
        if isinstance(inner, Mapping) and depth < 8:
            yield from _flat(f"{prefix}{name}.", inner, depth + 1)
        elif isinstance(inner, list) and any(isinstance(one, int | float) for one in inner):
            yield from ((f"{prefix}{name}.{at}", one) for at, one in enumerate(inner))
        else:
            yield f"{prefix}{name}", inner


def cells_of(cells: Mapping[str, object]) -> Features:
    """Return the cells of a table as features: numbers, truths, objects, else categories."""
    return {name: _cell(value) for name, value in cells.items()}


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.lower() in ABSENT:
        return None
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if _NUMBER.fullmatch(text):
        return float(text)
    return value


def probabilities_of(value: object, names: Sequence[str]) -> tuple[float, ...]:
    """Return one for each option; nothing where nothing is told. Raises: ValueError."""
    value = _opened(value)
    if value is None or value == []:
        return ()
    listed = [value.get(name) for name in names] if isinstance(value, Mapping) else value
    if not isinstance(listed, list) or len(listed) != len(names):
        raise ValueError(f"expected {len(names)} probabilities, got {_shown(value)}")
    found = [probability_of(one) for one in listed]
    known = tuple(one for one in found if one is not None)
    if len(known) < len(names) or abs(sum(known) - 1.0) > _SUM_ROUNDING:
        raise ValueError(f"expected probabilities that sum to 1, got {_shown(value)}")
    return known


def _opened(value: object) -> object:
    """Return what a text of JSON holds, ``None`` for an empty one. Raises: ValueError."""
    if value == "":
        return None
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        found: object = msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"expected JSON, got {_shown(value)}: {error}") from error
    return found


def _not(expected: str, value: object) -> ValueError:
    return ValueError(f"expected {expected}, got {_shown(value)}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
