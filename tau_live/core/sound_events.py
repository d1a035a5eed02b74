"""Events whose fields have their declared types, whatever a host gave its adapter.

Events are stored, so no field may hold an object with code that runs when it is read. No method of
a value's own is called here, only those of built-in classes.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from enum import StrEnum
from functools import cache, partial
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Literal, NamedTuple, get_args, get_origin, get_type_hints

from msgspec import NODEFAULT, structs

from tau_live.core.errors import EventError, pass_on
from tau_live.core.events import KINDS, Content, ErrorInfo, Event, PromptArm, ToolCall
from tau_live.core.sanitize import JsonObject, plain

_ENTRIES = 100_000
_INT_BITS = 63
_WHOLE_LIMIT = 2**_INT_BITS
_FORMS_LIMIT = 1_000
"""How many combinations of classes are remembered for one kind of event."""

_COMPOUND = frozenset({Content, ErrorInfo, tuple})
"""Classes of several values, which have to be checked one by one."""


class _WrongError(Exception):
    """A value is not of its kind, and cannot be converted."""


class Sound(NamedTuple):
    """An event that may be stored.

    Attributes:
        event: The event; a changed copy if fields were converted or left out.
        left_out: How many fields were left out.
    """

    event: Event
    left_out: int


Convert = Callable[[object], object]
Numbers = Callable[[tuple[object, ...]], tuple[int, ...]]


class _Field(NamedTuple):
    """A field, the classes of values that it keeps, and a converter for others."""

    name: str
    right: frozenset[type]
    convert: Convert


def sound(event: Event) -> Sound:
    """Return an event of plain data alone; other values are left out.

    Raises:
        EventError: It is of no known kind, or a required field has a wrong value.
    """
    if KINDS.get(event.event) is not type(event):
        raise EventError(f"unknown event {event.event!r}")
    form = _form(event.event)
    values = form.values(event)
    if form.is_right(values):
        return Sound(event, 0)
    changes: dict[str, object] = {}
    left_out = 0
    for field, value in zip(form.fields, values, strict=True):
        try:
            if type(value) in field.right:
                continue
            converted = field.convert(value)
        except Exception as error:  # noqa: BLE001  # whatever a host's metaclasses do
            pass_on(error)
            converted = _default(event, field, error)
            left_out += 1
        if converted is not value:
            changes[field.name] = converted
    if not changes and not left_out:
        form.remember(values)
    return Sound(structs.replace(event, **changes) if changes else event, left_out)


def _default(event: Event, field: _Field, error: Exception) -> object:
    """Return the default of a field. Raises: EventError, if it is required."""
    own = _declared_fields(event.event)[field.name]
    if own.default_factory is not NODEFAULT:
        return own.default_factory()
    if own.default is NODEFAULT:
        text = f"the {field.name} of a {event.event} event is not of its kind"
        raise EventError(text) from error
    return own.default


class _Form:
    """The fields of a kind of event, and the combinations of classes known to be right.

    The classes of all values are looked up at once, which costs less than checking each field: a
    host's events of one kind have few combinations.

    Args:
        known: The fields.
        values: Returns the values of all fields in one call.
    """

    def __init__(
        self, known: tuple[_Field, ...], values: Callable[[Event], tuple[object, ...]]
    ) -> None:
        self.fields = known
        self.values = values
        self._right: dict[tuple[type, ...], tuple[Numbers, list[tuple[int, Convert]]]] = {}

    def is_right(self, values: tuple[object, ...]) -> bool:
        """Return whether all values are known to be right."""
        try:
            doubtful = self._right.get(tuple(map(type, values)))
            if doubtful is None:
                return False
            numbers, others = doubtful
            if not max(map(abs, numbers(values))) < _WHOLE_LIMIT:
                return False
            return all(convert(values[at]) is values[at] for at, convert in others)
        except Exception as error:  # noqa: BLE001  # whatever a host's metaclasses do, or a wrong value
            pass_on(error)
            return False

    def remember(self, values: tuple[object, ...]) -> None:
        """Remember the classes of values that are right."""
        numbers: list[int] = []
        others: list[tuple[int, Convert]] = []
        for at, (field, value) in enumerate(zip(self.fields, values, strict=True)):
            kind = type(value)
            if kind is int and field.convert is _whole:
                numbers.append(at)
            elif kind in _COMPOUND:
                others.append((at, field.convert))
            elif kind not in field.right:
                return
        if len(self._right) < _FORMS_LIMIT:
            own = tuple(map(type, values))
            self._right[own] = itemgetter(*numbers), others


@cache
def _form(kind: str) -> _Form:
    hints = get_type_hints(KINDS[kind])
    names = tuple(_declared_fields(kind))
    return _Form(tuple(_field(name, hints[name]) for name in names), attrgetter(*names))


@cache
def _declared_fields(kind: str) -> Mapping[str, structs.FieldInfo]:
    return {field.name: field for field in structs.fields(KINDS[kind])}


def _field(name: str, hint: object) -> _Field:
    parts = get_args(hint)
    may_miss = type(None) in parts and get_origin(hint) is not tuple
    own = next((part for part in parts if part is not type(None)), hint) if may_miss else hint
    right: set[type] = {type(None)} if may_miss else set()
    if get_origin(own) is Literal:
        return _Field(name, frozenset({str}), _text)
    if get_origin(own) is tuple:
        return _Field(name, frozenset(right), partial(_entries, *_ENTRY[get_args(own)[0]]))
    if isinstance(own, type) and issubclass(own, StrEnum):
        return _Field(name, frozenset({own, *right}), partial(_member, own))
    if get_origin(own) is not None:  # a mapping, which redaction reads
        return _Field(name, frozenset({dict}), _mapping)
    known, convert = _KINDS[own]
    return _Field(name, frozenset({*known, *right}), convert)


def _text(value: object) -> str:
    if not issubclass(type(value), str) or not isinstance(value, str):
        raise _WrongError
    return value if type(value) is str else str.__str__(value)


def _whole(value: object) -> int:
    if type(value) is int and value.bit_length() <= _INT_BITS:
        return value
    scalar = _scalar(value)
    if not isinstance(scalar, int) or scalar is True or scalar is False:
        raise _WrongError
    return scalar  # ``plain`` turns longer ones into text


def _number(value: object) -> float:
    if type(value) is float:
        return value
    scalar = float(value) if type(value) is Decimal else _scalar(value)
    if not isinstance(scalar, (int, float)) or scalar is True or scalar is False:
        raise _WrongError
    return scalar


def _truth(value: object) -> bool:
    scalar = _scalar(value)
    if not isinstance(scalar, bool):
        raise _WrongError
    return scalar


def _scalar(value: object) -> object:
    """Return numpy's scalars and subclasses of numbers as plain ones; NaN and infinities stay."""
    if issubclass(type(value), float) and isinstance(value, float):
        return float.__float__(value)
    return plain(value)


def _bytes(_value: object) -> bytes:
    raise _WrongError


def _mapping(value: object) -> JsonObject:
    kind = type(value)
    if not issubclass(kind, dict) and kind is not MappingProxyType:
        raise _WrongError
    data = plain(value)
    if not isinstance(data, dict):
        raise _WrongError
    return data


def _member(of: type[StrEnum], value: object) -> StrEnum:
    return of(_text(value))


def _content(value: object) -> Content:
    if type(value) is not Content:
        raise _WrongError
    _optional(_text, value.text)
    _optional(_whole, value.chars)
    _optional(_text, value.sha256)
    if type(value.text) in (str, type(None)):
        return value
    return structs.replace(value, text=_text(value.text))


def _error(value: object) -> ErrorInfo:
    if type(value) is not ErrorInfo or type(value.fatal) is not bool:
        raise _WrongError
    type_, message = _text(value.type), _text(value.message)
    if type_ is value.type and message is value.message:
        return value
    return ErrorInfo(type=type_, message=message, fatal=value.fatal)


def _call(value: object) -> ToolCall:
    if type(value) is not ToolCall:
        raise _WrongError
    if value.args is not None:
        _content(value.args)
    _text(value.id), _text(value.name)
    return value


def _prompt(value: object) -> PromptArm:
    if type(value) is not PromptArm or type(value.offered) is not bool:
        raise _WrongError
    version, share = _text(value.version), _number(value.share)
    if version is value.version and share is value.share:
        return value
    return PromptArm(version, value.offered, share)


def _optional(convert: Convert, value: object) -> None:
    if value is not None:
        convert(value)


def _entries(right: frozenset[type], convert: Convert, value: object) -> tuple[object, ...]:
    kind = type(value)
    if kind is list and isinstance(value, list):
        value = tuple(value)
    elif kind is not tuple:
        raise _WrongError
    if not isinstance(value, tuple) or len(value) > _ENTRIES:
        raise _WrongError
    if right.issuperset(map(type, value)):
        return value
    parts = [convert(part) for part in value]
    same = all(part is other for part, other in zip(parts, value, strict=True))
    return value if same else tuple(parts)


_ENTRY: Mapping[object, tuple[frozenset[type], Convert]] = {
    str: (frozenset({str}), _text),
    float: (frozenset({float}), _number),
    ToolCall: (frozenset(), _call),
    PromptArm: (frozenset(), _prompt),
}
_KINDS: Mapping[object, tuple[frozenset[type], Convert]] = {
    str: (frozenset({str}), _text),
    int: (frozenset(), _whole),
    float: (frozenset({float}), _number),
    bool: (frozenset({bool}), _truth),
    bytes: (frozenset({bytes}), _bytes),
    Content: (frozenset(), _content),
    ErrorInfo: (frozenset(), _error),
}
