"""What a row of a log is made of, and where in the row it stands (``--map``)."""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeVar

FIELDS: Mapping[str, str] = {
    "run": "the id that the rows of one run share; without it every row is its own run",
    "step": "the row's place in its run, from 1; without it the order of the lines",
    "end": "true in the last row of a run; without it a run ends with the log",
    "at": "the time, as epoch seconds (or milli-, micro-, nanoseconds) or ISO 8601",
    "point": "the decision point; --point by default",
    "options": "the options: names, objects, or an object of names and features",
    "option": "the option that was applied",
    "chosen": "the option that a policy chose, which the host may not have applied",
    "default": "the host's own choice",
    "propensity": "the probability with which the applied option was chosen",
    "probabilities": "one for each option, in their order or by name",
    "context": "the context: an object, or columns joined by +, which may contain * and ?",
    "features": "features of each option, by its name",
    "reward": "the reward: a number, true or false; a minus before the name marks a cost",
    "session": "the id that the runs of one conversation share",
    "name": "the kind of run",
}
"""Every field and what it holds."""

ABSENT = frozenset({"", "na", "nan", "none", "null"})
"""How tables say, in a column of numbers, that they know none."""

Row = Mapping[str, object]
_Found = TypeVar("_Found")


class FieldError(ValueError):
    """What stands in a field is not what should.

    Attributes:
        column: Where it stands.
        reason: What was expected and what came.
    """

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(f"{column}: {reason}")
        self.column = column
        self.reason = reason


class Place(NamedTuple):
    """Where a field stands.

    Attributes:
        paths: A column, or several of a context; a dot leads into an object or a list.
        negated: Whether its number is meant with the other sign.
    """

    paths: tuple[str, ...]
    negated: bool = False


Places = Mapping[str, Place]


def parsed_map(text: str) -> dict[str, Place]:
    """Return what ``--map FIELD=COLUMN,...`` says.

    Raises:
        ValueError: It names no field of ours, one of them twice, or no column.
    """
    found: dict[str, Place] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        field, is_there, column = (word.strip() for word in part.partition("="))
        if field not in FIELDS:
            raise ValueError(f"{field!r} is not one of {', '.join(FIELDS)}")
        if field in found:
            raise ValueError(f"{field!r} is mapped twice")
        negated = field == "reward" and column.startswith("-")
        paths = column.removeprefix("-") if negated else column
        split = tuple(paths.split("+")) if field == "context" else (paths,)
        if not is_there or not all(split):
            raise ValueError(f"{part!r} names no column: expected FIELD=COLUMN")
        found[field] = Place(split, negated)
    return found


def column_of(field: str, places: Places) -> str:
    """Return the column that a field stands in, for people."""
    place = places.get(field)
    return "+".join(place.paths) if place else field


def standing(row: Row, path: str) -> object:
    """Return what stands at a path; ``None`` where there is nothing."""
    if path in row:
        return row[path]
    found: object = row
    for part in path.split("."):
        if isinstance(found, Mapping) and part in found:
            found = found[part]
        elif isinstance(found, list) and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            return None
    return found


def selected(row: Row, paths: Sequence[str]) -> dict[str, object]:
    """Return the columns that any of these paths names, or fits with ``*`` and ``?``."""
    found: dict[str, object] = {}
    for path in paths:
        if "*" in path or "?" in path:
            found |= {name: row[name] for name in row if fnmatchcase(name, path)}
        else:
            value = standing(row, path)
            if value is not None:
                found[path] = value
    return found


def read(field: str, value: object, reader: Callable[[object], _Found], places: Places) -> _Found:
    """Return what a reader makes of a value.

    Raises:
        FieldError: It cannot be read; names the column.
    """
    try:
        return reader(value)
    except (ValueError, OverflowError) as error:
        raise FieldError(column_of(field, places), str(error)) from error
