"""Settings with tables of their own: the expected rewards, the price of safety."""

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from tau_live.core.errors import SettingsError, pass_on
from tau_live.core.pools import resource_of_domain
from tau_live.core.settings.kinds import (
    FLAG,
    NAMES,
    SPAN,
    Kind,
    as_table,
    checked_kind,
    choice,
    construct,
    number,
    optional,
    parse_fields,
    rows_of,
    setting,
)

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")

_FINITE = number(expects="a finite number")
SECONDS = number(above=0.0, most=1e9, expects="seconds above 0 and at most 1e9")
_CAP = number(above=0.0, most=1.0, expects="shares above 0 and at most 1")
_PENALTY = number(least=0.0, expects="finite and non-negative")


def tables_kind(owner: type[T], a: str, label: str) -> Kind[tuple[T, ...]]:
    """Return the kind of a table of named declarations.

    An unknown key is an error, not a warning: a misspelt weight would go into the learning.

    Args:
        owner: The class of a declaration; its first field is the name.
        a: The noun for one of them.
        label: Names one in an error; ``{!r}`` stands for its name.
    """
    named, *_ = fields(owner)

    def declare(name: str, raw: object) -> T:
        values = {str(key).replace("-", "_"): value for key, value in as_table(raw).items()}
        known = [row.field for row in rows_of(owner)]
        for key in sorted(values.keys() - {*known}):
            what = label.format(name)
            raise SettingsError(f"{what} cannot have a {key!r}, only {', '.join(known)}")
        return construct(owner, {named.name: name, **values})

    def parse(raw: object) -> tuple[T, ...]:
        if isinstance(raw, tuple) and all(isinstance(part, owner) for part in raw):
            return raw
        try:
            return tuple(declare(str(name), table) for name, table in as_table(raw).items())
        except SettingsError as error:
            raise ValueError(f"is wrong: {error}") from None

    return Kind(f"a table of {a}s", parse)


def tables_of(
    declared: "Iterable[DataclassInstance]", *, omit: Container[object] = (None,)
) -> dict[str, dict[str, object]]:
    """Return the tables that declare these objects, by name, without the values in ``omit``."""
    tables = {}
    for part in declared:
        named, *_ = fields(part)
        values = {row.field: getattr(part, row.field) for row in rows_of(type(part))}
        tables[getattr(part, named.name)] = {
            field.replace("_", "-"): value for field, value in values.items() if value not in omit
        }
    return tables


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredReward:
    """A reward that an operator expects, and how it counts."""

    name: str
    weight: float = setting(1.0, _FINITE, "Its weight in the total.")
    primary: bool = setting(False, FLAG, "Whether the rollout's success is read from it.")
    deadline_s: float | None = setting(
        None, optional(SECONDS), "Its deadline; none means REWARD_DEADLINE_S."
    )
    default: float | None = setting(
        None,
        optional(_FINITE),
        "The value after the deadline; without one the rollout is left out.",
    )
    range: tuple[float, float] | None = setting(
        None, optional(SPAN), "Its lowest and highest value, if known."
    )
    cost: bool = setting(
        False, FLAG, "Whether it is a safety cost, in [0, 1] unless it has a range."
    )
    critical: float | None = setting(
        None, optional(_FINITE), "A cost of at least this value is a critical violation."
    )

    sources: tuple[str, ...] = setting(
        (), NAMES, "Sources that may give it, as names or patterns; none means REWARD_SOURCES."
    )

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise SettingsError(f"a reward's name must not be blank, got {self.name!r}")
        parse_fields(self, f"the {{}} of reward {self.name!r}")
        self._check_cost()
        low, high = self.bounds
        for name, value in (("default", self.default), ("critical value", self.critical)):
            if value is not None and not low <= value <= high:
                raise SettingsError(
                    f"the {name} of reward {self.name!r} must be in its range "
                    f"[{low}, {high}], got {value!r}"
                )

    def _check_cost(self) -> None:
        for wrong, complaint in (
            (self.critical is not None and not self.cost, "is critical, so it must be a cost"),
            (self.cost and self.primary, "is a cost, so it cannot be primary"),
            (self.cost and self.weight != 1.0, "is a cost, so it cannot have a weight"),
            (self.cost and self.bounds[0] < 0.0, "is a cost, so its range cannot begin below 0"),
            (self.critical == 0.0, "cannot be critical at 0, which is no cost at all"),
        ):
            if wrong:
                raise SettingsError(f"reward {self.name!r} {complaint}")

    @property
    def bounds(self) -> tuple[float, float]:
        """Its lowest and highest value; a cost without a range is in ``[0, 1]``."""
        return self.range or ((0.0, 1.0) if self.cost else (-math.inf, math.inf))

    def allows(self, value: float) -> bool:
        """Return whether the reward can have this value."""
        low, high = self.bounds
        return low <= value <= high


def _parse_rewards(raw: object) -> tuple[DeclaredReward, ...]:
    rewards = _REWARDS.parse(raw)
    primary = [reward.name for reward in rewards if reward.primary]
    if len(primary) > 1:
        raise ValueError(f"must have at most one primary reward, got {', '.join(primary)}")
    return rewards


_REWARDS = tables_kind(DeclaredReward, "reward", "reward {!r}")
REWARDS: Kind[tuple[DeclaredReward, ...]] = Kind(_REWARDS.expects, _parse_rewards)
"""Tables of rewards, by name, at most one of them primary."""


def _numbers(expects: str, each: Kind[float]) -> Kind[Mapping[str, float]]:
    def parse(raw: object) -> Mapping[str, float]:
        table = as_table(raw)
        return MappingProxyType({str(name): each.parse(table[name]) for name in table})

    return Kind(expects, parse)


CAPS = _numbers("a table of sources and shares above 0 and at most 1", _CAP)


class HardGateCost(StrEnum):
    """The safety cost of a hard-gated rollout, apart from its reward.

    ``no``: nothing; ``cost``: it costs 1 and, where no cost is declared, every other rollout 0;
    ``critical``: the same, and a critical violation.
    """

    NO = "no"
    COST = "cost"
    CRITICAL = "critical"


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetySettings:
    """The cost of a violated safety policy; the reference's defaults.

    Source: reference-live-loop, SR1 and SR4.
    """

    blocked_penalty: float = setting(1.0, _PENALTY, "Cost of each blocked event.")
    default_reason_code_penalty: float = setting(0.25, _PENALTY, "Cost of any other reason code.")
    prompt_injection_penalty: float = setting(1.0, _PENALTY, "Cost of a prompt_injection.* code.")
    secret_leak_penalty: float = setting(1.5, _PENALTY, "Cost of a secret_leak.* code.")
    reason_code_penalties: Mapping[str, float] = setting(
        MappingProxyType({}),
        _numbers("a table of reason codes and penalties", _PENALTY),
        "Costs of single reason codes; they take precedence.",
    )
    hard_gate_reason_codes: tuple[str, ...] = setting(
        ("prompt_injection.system_prompt_exfiltration", "secret_leak.redaction_failed"),
        NAMES,
        "Reason codes that trigger the hard gate.",
    )
    hard_gate_reason_prefixes: tuple[str, ...] = setting(
        ("secret_leak.",), NAMES, "Prefixes of reason codes that trigger the hard gate."
    )
    hard_gate_reward_ceiling: float = setting(
        0.0,
        number(most=0.0, expects="finite and <= 0"),
        "The largest reward when the hard gate is triggered.",
    )
    hard_gate_penalty: float = setting(1.0, _PENALTY, "Cost of triggering the hard gate.")
    blocked_event_triggers_hard_gate: bool = setting(
        True, FLAG, "Whether a blocked event triggers the hard gate."
    )
    reject_rollout_on_hard_gate: bool = setting(
        False, FLAG, "Whether a rollout that triggers it fails."
    )
    hard_gate_cost: HardGateCost = setting(  # noqa: RUF009 - it is immutable
        HardGateCost.NO,
        choice(HardGateCost),
        "Whether triggering it is a safety cost, apart from the reward.",
    )

    def __post_init__(self) -> None:
        parse_fields(self, "safety_reward.{}")


class Point(StrEnum):
    """A decision point of hosts.

    ``model``: which model answers. ``prompt``: with which instructions. ``params``: with which
    settings of the model, such as its temperature. ``tools``: which of the agent's tools it is
    offered. ``tool_gate``: whether a tool that it calls is run, decided for each call. ``retry``:
    whether what failed is tried again, decided for each failure.
    """

    MODEL = "model"
    PROMPT = "prompt"
    PARAMS = "params"
    TOOLS = "tools"
    TOOL_GATE = "tool_gate"
    RETRY = "retry"


OWN = "own"
"""The name of the host's own choice, which no option can have."""


DEFAULT_KEY = "system_prompt"
"""The resource that holds the prompt, where no other is named."""

RESOURCES = "resources"
EXPERIENCE = "experience"
"""Where the options of a prompt come from that is optimized."""


class Every(StrEnum):
    """How long a choice lasts: for the whole run, or for one model request."""

    RUN = "run"
    REQUEST = "request"


@dataclass(frozen=True, slots=True, kw_only=True)
class Never:
    """A rule that excludes an option in some contexts.

    Attributes:
        option: The name of the option.
        where: The values that exclude it, by name in the context; all names must match.
    """

    option: str
    where: Mapping[str, Sequence[str]]

    def holds(self, context: Mapping[str, object]) -> bool:
        """Return whether the option is excluded in this context."""
        return all(str(context.get(name)) in texts for name, texts in self.where.items())


def _options(raw: object) -> Mapping[str, object] | None:
    if isinstance(raw, list | tuple):
        names = list(raw)
        if not all(isinstance(name, str) and name.strip() for name in names):
            return None
        if len({*names}) < len(names):
            return None
        return MappingProxyType({name: name for name in names})
    try:
        options = {str(name): value for name, value in as_table(raw).items()}
    except ValueError as error:
        pass_on(error)
        return None
    return MappingProxyType(options) if all(name.strip() for name in options) else None


def _nevers(raw: object) -> tuple[Never, ...] | None:
    nevers: list[Never] = []
    for part in raw if isinstance(raw, list | tuple) else (None,):
        if isinstance(part, Never):
            nevers.append(part)
            continue
        if not isinstance(part, Mapping) or part.keys() != {"option", "where"}:
            return None
        where, option = part["where"], part["option"]
        if not isinstance(where, Mapping) or not where or not isinstance(option, str):
            return None
        known = {
            str(name): tuple(map(str, texts if isinstance(texts, list | tuple) else (texts,)))
            for name, texts in where.items()
        }
        nevers.append(Never(option=option, where=known))
    return tuple(nevers)


def _source(raw: object) -> str | None:
    if not isinstance(raw, str):
        return None
    kind, colon, name = raw.partition(":")
    if kind == EXPERIENCE:
        return raw if name.strip() else None
    return raw if kind == RESOURCES and bool(colon) == bool(name.strip()) else None


def _is_model(value: object) -> bool:
    """Return whether a value may be a model: a name, or an object that is not plain data."""
    plain = isinstance(value, bool | int | float | bytes | list | tuple | Mapping | None)
    return _is_text(value) if isinstance(value, str) else not plain


def _is_tools(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


_VALUES: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    Point.MODEL: ("a model or its name", _is_model),
    Point.PROMPT: ("the text of the instructions", lambda value: isinstance(value, str)),
    Point.PARAMS: ("a table of settings of the model", lambda value: isinstance(value, Mapping)),
    Point.TOOLS: ("a list of names of tools", _is_tools),
    Point.TOOL_GATE: ("the text that is sent to the model", _is_text),
    Point.RETRY: ("true or false", lambda value: isinstance(value, bool)),
}
"""The expected value of an option, as far as it can be checked without a host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredDecision:
    """A decision point of a host at which an adapter may act."""

    point: str
    options: Mapping[str, object] = setting(
        MappingProxyType({}),
        checked_kind(
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
        (), NAMES, "Options that are never explored, only chosen on evidence."
    )
    never: tuple[Never, ...] = setting(
        (),
        checked_kind("a list of tables, each with an option and where", _nevers),
        "Options that are not offered in certain contexts.",
    )
    exposure: float | None = setting(
        None,
        optional(number(least=0.0, most=1.0, expects="a number from 0 to 1")),
        "Share of runs that the learner decides from the first run on; none by default.",
    )
    options_from: str | None = setting(
        None,
        optional(checked_kind("resources, resources:KEY or experience:DOMAIN", _source)),
        "Further options of the point prompt: the prompts that `tau-live optimize` adopted, or the "
        "pool of lessons that `tau-live experience ship` put into service.",
    )
    model: str | None = setting(
        None,
        optional(checked_kind("a text", lambda raw: raw if isinstance(raw, str) else None)),
        "The model that the host uses, as runs of lessons name it; pools of another are not "
        "offered.",
    )

    def __post_init__(self) -> None:
        known = ", ".join(Point)
        if self.point not in list(Point):
            raise SettingsError(f"a decision point must be one of {known}, got {self.point!r}")
        parse_fields(self, f"the {{}} of decision {self.point!r}")
        if self.options_from is not None and self.point != Point.PROMPT:
            raise SettingsError(
                f"only decision {Point.PROMPT.value!r} can have options from resources, "
                f"not {self.point!r}"
            )
        named = {*self.exploit_only, *(bar.option for bar in self.never)}
        is_whole = self.options and self.options_from is None
        for name in sorted(named - {*self.options} if is_whole else ()):
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

    @property
    def prompt_key(self) -> str | None:
        """The resource whose adopted prompts are options; ``None`` if none is."""
        if self.options_from is None:
            return None
        kind, _, name = self.options_from.partition(":")
        return resource_of_domain(name) if kind == EXPERIENCE else name or DEFAULT_KEY

    def allowed_options(self, context: Mapping[str, object]) -> list[str]:
        """Return the options that may be offered in a context."""
        barred = {bar.option for bar in self.never if bar.holds(context)}
        return [name for name in self.options if name not in barred]


DECISIONS = tables_kind(DeclaredDecision, "decision", "decision {!r}")
"""Tables of decisions, by point."""


_DOLLARS: Kind[float] = number(least=0.0, expects="US dollars, finite and at least 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredPrice:
    """The price of a million tokens of a model, in US dollars.

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
        parse_fields(self, f"the {{}} price of {self.model!r}")
        for name in ("input", "output"):
            if getattr(self, name) is None:
                raise SettingsError(f"the price of {self.model!r} must have an {name}")

    def fits(self, names: Iterable[str]) -> bool:
        """Return whether a model of one of these names has this price."""
        return any(fnmatchcase(name.lower(), self.model.lower()) for name in names)


PRICES = tables_kind(DeclaredPrice, "price", "the price of {!r}")
"""Tables of prices, by model."""


_UPSTREAM = {"model", "url", "key_env", "params", "features"}


def _upstreams(raw: object) -> Mapping[str, Mapping[str, object]] | None:
    """Return upstream models by the names of their options; ``None`` if they are malformed."""
    try:
        tables = {str(name): as_table(value) for name, value in as_table(raw).items()}
    except ValueError as error:
        pass_on(error)
        return None
    known = {
        name: {str(key).replace("-", "_"): value for key, value in table.items()}
        for name, table in tables.items()
    }
    for name, option in known.items():
        texts = [option.get("model"), option.get("url", "-"), option.get("key_env", "-")]
        parts = [option.get("params", {}), option.get("features", {})]
        if (
            not name.strip()
            or option.keys() - _UPSTREAM
            or not all(_is_text(text) for text in texts)
            or not all(isinstance(part, Mapping) for part in parts)
        ):
            return None
    return MappingProxyType(known) if len(known) > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredModel:
    """A model of ``tau-live proxy`` that is decided: ``tau/NAME`` in a request."""

    name: str
    options: Mapping[str, Mapping[str, object]] = setting(
        MappingProxyType({}),
        checked_kind(
            "two tables or more, each with a model, and maybe url, key-env, params and features",
            _upstreams,
        ),
        "The upstream models by name: `model`, `url` of another API than the proxy's, `key-env` "
        "that holds its key, `params` that replace those of the request, `features`.",
    )
    default: str = setting(
        "",
        checked_kind("a text", lambda raw: raw if isinstance(raw, str) else None),
        "The option that is taken whenever nothing is decided; the first by default.",
    )
    context_headers: tuple[str, ...] = setting(
        (), NAMES, "Headers of a request that the decision knows."
    )
    context_metadata: tuple[str, ...] = setting(
        (), NAMES, "Keys of a request's `metadata` that the decision knows."
    )

    def __post_init__(self) -> None:
        parse_fields(self, f"the {{}} of model {self.name!r}")
        if self.default and self.default not in self.options:
            raise SettingsError(f"model {self.name!r} has no option {self.default!r}")


MODELS = tables_kind(DeclaredModel, "model", "model {!r}")
"""Tables of models that are decided, by name."""
