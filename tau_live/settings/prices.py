"""What tokens cost, as it is declared for models."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from tau_live.errors import SettingsError
from tau_live.settings.kinds import Kind, as_table, number, optional
from tau_live.settings.rows import made, rows_of, setting, settle

_DOLLARS: Kind[float] = number(least=0.0, expects="US dollars, finite and at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredPrice:
    """What a million tokens of a model cost, in US dollars.

    Attributes:
        model: The model's name, or a pattern of names with ``*`` and ``?``.
    """

    model: str
    input: float | None = setting(None, optional(_DOLLARS), "Price of a million input tokens.")
    output: float | None = setting(None, optional(_DOLLARS), "Price of a million output tokens.")
    cached: float | None = setting(
        None, optional(_DOLLARS), "Price of a million cached input tokens; defaults to `input`."
    )
    cache_write: float | None = setting(
        None,
        optional(_DOLLARS),
        "Price of a million input tokens written to the cache; defaults to `input`.",
    )

    def __post_init__(self) -> None:
        if not self.model.strip():
            raise SettingsError("a price must name a model")
        settle(self, f"the {{}} price of {self.model!r}")
        for name in ("input", "output"):
            if getattr(self, name) is None:
                raise SettingsError(f"the price of {self.model!r} must have an {name}")

    def fits(self, names: Iterable[str]) -> bool:
        """Say whether a model of one of these names has this price."""
        return any(fnmatchcase(name.lower(), self.model.lower()) for name in names)


def _declared(model: object, raw: object) -> DeclaredPrice:
    given = {str(key).replace("-", "_"): value for key, value in as_table(raw).items()}
    known = [row.field for row in rows_of(DeclaredPrice)]
    for key in sorted(given.keys() - {*known}):
        raise SettingsError(
            f"the price of {model!r} cannot have a {key!r}, only {', '.join(known)}"
        )
    return made(DeclaredPrice, {"model": str(model), **given})


def _parsed(raw: object) -> tuple[DeclaredPrice, ...]:
    if isinstance(raw, tuple) and all(isinstance(one, DeclaredPrice) for one in raw):
        return raw
    try:
        return tuple(_declared(model, one) for model, one in as_table(raw).items())
    except SettingsError as error:
        raise ValueError(f"is wrong: {error}") from None


PRICES: Kind[tuple[DeclaredPrice, ...]] = Kind("a table of prices", _parsed)
"""Tables of prices, by model."""


def price_tables(prices: Iterable[DeclaredPrice]) -> dict[str, dict[str, float]]:
    """Return the tables that would declare these prices."""
    return {
        price.model: {
            row.field.replace("_", "-"): getattr(price, row.field)
            for row in rows_of(DeclaredPrice)
            if getattr(price, row.field) is not None
        }
        for price in prices
    }
