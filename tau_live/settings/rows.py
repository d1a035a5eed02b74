"""A row of the table of settings, made from the field that declares it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, TypeVar

from tau_live.errors import SettingsError, pass_on
from tau_live.settings.kinds import Kind
from tau_live.switch import PREFIX

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


def setting(default: T, kind: Kind[T], help_: str, *, alias: str | None = None) -> T:
    """Declare a setting: a dataclass field with its kind, one sentence and a deprecated alias."""
    return field(
        default_factory=lambda: default,
        metadata={"default": default, "kind": kind, "help": help_, "alias": alias},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A row of the table.

    Attributes:
        name: Its name among all settings, ``safety_blocked_penalty``.
        field: The name of its field.
        group: The field of ``Settings`` that holds it; empty for its own.
        default: Its default.
        kind: What it accepts.
        help: One sentence.
        alias: A deprecated variable for it.
    """

    name: str
    field: str
    group: str
    default: object
    kind: Kind[object]
    help: str
    alias: str | None

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return PREFIX + self.name.upper()

    @property
    def key(self) -> str:
        """Where TOML holds it, ``safety.blocked-penalty``."""
        key = self.field.replace("_", "-")
        return f"{self.group}.{key}" if self.group else key


def rows_of(owner: "type[DataclassInstance]", group: str = "") -> tuple[Setting, ...]:
    """Return the rows that the fields of a dataclass declare, in their order."""
    return tuple(
        Setting(
            name=f"{group}_{f.name}" if group else f.name,
            field=f.name,
            group=group,
            default=f.metadata["default"],
            kind=f.metadata["kind"],
            help=f.metadata["help"],
            alias=f.metadata["alias"],
        )
        for f in fields(owner)
        if "kind" in f.metadata
    )


def settle(owner: "DataclassInstance", label: str) -> None:
    """Check the declared fields of an object that is being made, and store what they mean.

    Args:
        owner: The object; called from its ``__post_init__``.
        label: Names a field in an error; ``{}`` stands for the field's name.

    Raises:
        SettingsError: A value is not of its kind.
    """
    for row in rows_of(type(owner)):
        try:
            value = row.kind.parse(getattr(owner, row.field))
        except ValueError as error:
            pass_on(error)
            raise SettingsError(f"{label.format(row.field)} {error}") from None
        object.__setattr__(owner, row.field, value)


def made(make: Callable[..., T], values: Mapping[str, object]) -> T:
    """Return what ``make`` makes of values whose names are known only at run time."""
    return make(**values)
