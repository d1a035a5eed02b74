"""What is declared of the decisions that adapters make at a host's own decision points."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from tau_live.errors import SettingsError, pass_on
from tau_live.settings.kinds import Kind, as_table, checked, choice, names, number, optional
from tau_live.settings.rows import made, rows_of, setting, settle


class Point(StrEnum):
    """A decision point of hosts.

    ``model``: which model is asked. ``prompt``: with which instructions. ``params``: with which
    settings of the model, such as its temperature. ``tools``: which of the agent's tools it is
    offered. ``tool_gate``: whether a tool that it calls is run, asked for each call. ``retry``:
    whether what failed is tried again, asked for each failure.
    """

    MODEL = "model"
    PROMPT = "prompt"
    PARAMS = "params"
    TOOLS = "tools"
    TOOL_GATE = "tool_gate"
    RETRY = "retry"


OWN = "own"
"""The name of what a host does by itself, which no option can have."""


class Every(StrEnum):
    """How long a choice stays: for the whole run, or until the model is asked again."""

    RUN = "run"
    REQUEST = "request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Never:
    """An option that is not offered where all of this is known.

    Attributes:
        option: Its name.
        where: What has to be known, by name: one of these texts. Empty means nowhere at all.
    """

    option: str
    where: Mapping[str, Sequence[str]]

    def holds(self, known: Mapping[str, object]) -> bool:
        """Say whether the option is not to be offered in this situation."""
        return all(str(known.get(name)) in texts for name, texts in self.where.items())


def _options(raw: object) -> Mapping[str, object] | None:
    if isinstance(raw, list | tuple):
        given = list(raw)
        if not all(isinstance(one, str) and one.strip() for one in given):
            return None
        if len({*given}) < len(given):
            return None
        return MappingProxyType({one: one for one in given})
    try:
        told = {str(name): value for name, value in as_table(raw).items()}
    except ValueError as error:
        pass_on(error)
        return None
    return MappingProxyType(told) if all(name.strip() for name in told) else None


def _nevers(raw: object) -> tuple[Never, ...] | None:
    if not isinstance(raw, list | tuple):
        return None
    if all(isinstance(one, Never) for one in raw):
        return tuple(raw)
    found = [_never(one) for one in raw]
    return tuple(one for one in found if one is not None) if None not in found else None


def _never(raw: object) -> Never | None:
    if not isinstance(raw, Mapping) or raw.keys() != {"option", "where"}:
        return None
    where, option = raw["where"], raw["option"]
    if not isinstance(where, Mapping) or not isinstance(option, str):
        return None
    known = {str(name): _texts(texts) for name, texts in where.items()}
    return Never(option=option, where=known) if known else None


def _texts(raw: object) -> tuple[str, ...]:
    return tuple(map(str, raw)) if isinstance(raw, list | tuple) else (str(raw),)


def _is_model(value: object) -> bool:
    """Say whether it may be a model: a name, or an object that is no plain data."""
    plain = isinstance(value, bool | int | float | bytes | list | tuple | Mapping | None)
    return _is_text(value) if isinstance(value, str) else not plain


def _is_prompt(value: object) -> bool:
    return isinstance(value, str)


def _is_params(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_tools(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_truth(value: object) -> bool:
    return isinstance(value, bool)


_VALUES: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    Point.MODEL: ("a model or its name", _is_model),
    Point.PROMPT: ("the text of the instructions", _is_prompt),
    Point.PARAMS: ("a table of settings of the model", _is_params),
    Point.TOOLS: ("a list of names of tools", _is_tools),
    Point.TOOL_GATE: ("the text that is sent to the model", _is_text),
    Point.RETRY: ("true or false", _is_truth),
}
"""What an option stands for, as far as that can be checked where no host is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredDecision:
    """A decision point of a host at which an adapter may act."""

    point: str
    options: Mapping[str, object] = setting(
        MappingProxyType({}),
        checked(
            "a list of names, each once, or a table of names and what they stand for", _options
        ),
        "The options, besides the host's own choice.",
    )
    every: Every = setting(  # noqa: RUF009 - it is immutable
        Every.RUN,
        choice(Every),
        "How long a choice at a model request lasts: for the run, or for that request.",
    )
    exploit_only: tuple[str, ...] = setting(
        (), names(), "Options that are never explored, only chosen on evidence."
    )
    never: tuple[Never, ...] = setting(
        (),
        checked("a list of tables, each with an option and where", _nevers),
        "Options that are not offered in certain contexts.",
    )
    exposure: float | None = setting(
        None,
        optional(number(least=0.0, most=1.0, expects="a number from 0 to 1")),
        "Share of runs that the learner decides from the first run on; none by default.",
    )

    def __post_init__(self) -> None:
        known = ", ".join(Point)
        if self.point not in list(Point):
            raise SettingsError(f"a decision point must be one of {known}, got {self.point!r}")
        settle(self, f"the {{}} of decision {self.point!r}")
        named = {*self.exploit_only, *(one.option for one in self.never)}
        for name in sorted(named - {*self.options} if self.options else ()):
            raise SettingsError(f"decision {self.point!r} has no option {name!r}")
        if OWN in self.options:
            raise SettingsError(
                f"no option of decision {self.point!r} can be named {OWN!r}, "
                "which is the host's own choice"
            )
        expects, is_right = _VALUES[self.point]
        for name, value in self.options.items():
            if not is_right(value):
                raise SettingsError(
                    f"option {name!r} of decision {self.point!r} must be {expects}, got {value!r}"
                )

    def allowed(self, known: Mapping[str, object]) -> list[str]:
        """Return the options that may be offered in a situation."""
        barred = {one.option for one in self.never if one.holds(known)}
        return [name for name in self.options if name not in barred]


def _declared(point: object, raw: object) -> DeclaredDecision:
    given = {str(key).replace("-", "_"): value for key, value in as_table(raw).items()}
    known = [row.field for row in rows_of(DeclaredDecision)]
    for key in sorted(given.keys() - {*known}):
        raise SettingsError(f"decision {point!r} cannot have a {key!r}, only {', '.join(known)}")
    return made(DeclaredDecision, {"point": str(point), **given})


def _parsed(raw: object) -> tuple[DeclaredDecision, ...]:
    if isinstance(raw, tuple) and all(isinstance(one, DeclaredDecision) for one in raw):
        return raw
    try:
        return tuple(_declared(point, one) for point, one in as_table(raw).items())
    except SettingsError as error:
        raise ValueError(f"is wrong: {error}") from None


DECISIONS: Kind[tuple[DeclaredDecision, ...]] = Kind("a table of decisions", _parsed)
"""Tables of decisions, by point."""


def decision_tables(decisions: Iterable[DeclaredDecision]) -> dict[str, dict[str, object]]:
    """Return the tables that would declare these decisions."""
    return {
        one.point: {
            "options": dict(one.options),
            "every": one.every.value,
            "exploit-only": list(one.exploit_only),
            "never": [
                {"option": bar.option, "where": {name: list(t) for name, t in bar.where.items()}}
                for bar in one.never
            ],
            **({} if one.exposure is None else {"exposure": one.exposure}),
        }
        for one in decisions
    }
