"""A row of a log as one decision, with what is known of it."""

from collections.abc import Mapping, Sequence

import msgspec

from tau_live.importing import values
from tau_live.importing.fields import (
    FieldError,
    Place,
    Places,
    Row,
    column_of,
    selected,
    standing,
)
from tau_live.importing.fields import read as reading
from tau_live.importing.values import Features, Options

_RARE = frozenset({"step", "end", "chosen", "default", "probabilities", "session", "name"})
"""Fields that most logs do not have."""


def _unread(_field: str, _found: Row, _reader: object) -> None:
    """Return what stands in a field that a row does not have."""


class Logged(msgspec.Struct, frozen=True, kw_only=True):
    """One decision of a log.

    Attributes:
        run: What the rows of its run share; ``None`` where it is a run of its own.
        step: Its place in the run, from 1; ``None`` where the log does not say.
        end: Whether it is said to be the last of its run.
        at: Epoch seconds; ``None`` where the log does not say.
        point: The decision point.
        options: What was offered.
        option: What was applied.
        chosen: What a policy chose; ``None`` where the log does not say.
        default: The host's own choice, where the log says so.
        propensity: With which probability the applied option had been chosen; ``None`` where
            nobody knows.
        probabilities: ``[A]``, or empty.
        context: What was known.
        reward: What it was worth; ``None`` where nobody knows.
        session: What the runs of one conversation share.
        name: What kind of run it is.
    """

    run: str | None = None
    step: int | None = None
    end: bool = False
    at: float | None = None
    point: str
    options: Options
    option: str
    chosen: str | None = None
    default: str | None = None
    propensity: float | None = None
    probabilities: tuple[float, ...] = ()
    context: Features = msgspec.field(default_factory=dict)
    reward: float | None = None
    session: str | None = None
    name: str = ""


class Reader:
    """Reads rows.

    Args:
        places: Where fields stand that do not stand under their own names.
        point: The decision point of rows that name none.
        offered: The options of rows that name none; empty for the applied one alone.
        cells: Whether all that rows hold is text.
        columns: Whether rows are of a table, whose context may be columns of its own.
    """

    def __init__(
        self,
        places: Places,
        *,
        point: str | None,
        offered: Sequence[str],
        cells: bool,
        columns: bool = False,
    ) -> None:
        self._places = places
        self._point = point
        self._offered = Options(tuple(offered), (None,) * len(offered))
        self._cells = cells
        self._columns = columns
        self._unseen = {path for place in places.values() for path in place.paths}

    @property
    def unseen(self) -> list[str]:
        """The mapped columns that no row had."""
        return sorted(self._unseen)

    def option(self, row: Row) -> str | None:
        """Return the option that a row applied; ``None`` where that cannot be read."""
        try:
            return reading("option", self._found(row, "option"), values.name_of, self._places)
        except FieldError:
            return None

    def logged(self, row: Row) -> Logged:
        """Return the decision that a row tells.

        Raises:
            FieldError: A field is missing or malformed.
        """
        found = row
        if self._places:
            found = {**row, **{name: self._found(row, name) for name in self._places}}
        read = self._read
        rarely = _unread if _RARE.isdisjoint(found) else read
        option = read("option", found, values.name_of)
        point = read("point", found, values.name_of) or self._point
        if option is None:
            raise FieldError(column_of("option", self._places), "expected an option, got nothing")
        if point is None:
            raise FieldError(
                column_of("point", self._places), "expected a decision point: see --point"
            )
        options = self._options(found, option)
        probabilities = self._probabilities(found, options) if rarely is read else ()
        chosen = self._one_of(options, "chosen", rarely("chosen", found, values.name_of))
        propensity = read("propensity", found, values.probability_of)
        if propensity is None and probabilities and chosen is None:
            propensity = probabilities[options.names.index(option)]
        reward = read("reward", found, values.number_of)
        if reward is not None and self._places.get("reward", Place(())).negated:
            reward = 0.0 - reward
        return Logged(
            run=read("run", found, values.name_of),
            step=rarely("step", found, values.place_of),
            end=rarely("end", found, values.truth_of) or False,
            at=read("at", found, values.time_of),
            point=point,
            options=options,
            option=option,
            chosen=chosen,
            default=self._one_of(options, "default", rarely("default", found, values.name_of)),
            propensity=propensity,
            probabilities=probabilities,
            context=self._context(row, found),
            reward=reward,
            session=rarely("session", found, values.name_of),
            name=rarely("name", found, values.name_of) or "",
        )

    def _found(self, row: Row, field: str) -> object:
        place = self._places.get(field)
        if place is None:
            return row.get(field)
        if field == "context":
            columns = selected(row, place.paths)
            if columns:
                self._unseen.difference_update(place.paths)
            whole = len(place.paths) == 1 and isinstance(columns.get(place.paths[0]), Mapping)
            return columns[place.paths[0]] if whole else columns
        found = standing(row, place.paths[0])
        if found is not None:
            self._unseen.discard(place.paths[0])
        return found

    def _read(
        self, field: str, found: Row, reader: "values.Reading[values.Read | None]"
    ) -> "values.Read | None":
        """Return what a reader makes of a field; ``None`` where nothing stands, as mostly."""
        value = found.get(field)
        if value is None:
            return None
        try:
            return reader(value)
        except (ValueError, OverflowError) as error:
            raise FieldError(column_of(field, self._places), str(error)) from error

    def _probabilities(self, found: Row, options: Options) -> tuple[float, ...]:
        def reader(value: object) -> tuple[float, ...]:
            return values.probabilities_of(value, options.names)

        return self._read("probabilities", found, reader) or ()

    def _options(self, found: Row, option: str) -> Options:
        options = self._read("options", found, values.options_of)
        if options is None or not options.names:
            options = self._offered if self._offered.names else Options((option,), (None,))
        if option not in options.names:
            column = column_of("option", self._places)
            raise FieldError(
                column, f"expected one of {len(options.names)} options, got {option!r}"
            )
        named = self._read("features", found, values.features_by_option)
        if not named:
            return options
        features = (
            {**(own or {}), **named.get(name, {})} or None
            for name, own in zip(*options, strict=True)
        )
        return Options(options.names, tuple(features))

    def _one_of(self, options: Options, field: str, name: str | None) -> str | None:
        if name is not None and name not in options.names:
            column = column_of(field, self._places)
            raise FieldError(column, f"expected one of the options, got {name!r}")
        return name

    def _context(self, row: Row, found: Row) -> Features:
        given = found.get("context")
        if self._columns and given is None:
            begins = "context."
            given = {n.removeprefix(begins): row[n] for n in row if n.startswith(begins)}
            if self._cells:
                return values.cells_of(given)
        elif self._cells and isinstance(given, Mapping):
            given = values.cells_of(given)
        return reading("context", given, values.features_of, self._places)
