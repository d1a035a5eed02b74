"""The settings of a run of lessons: read once, and all violations reported together."""

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from tau_live.core.errors import ConfigError
from tau_live.core.prompts import canonical_json
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings.kinds import nearest, show_value
from tau_live.core.settings.sources import PYPROJECT, own_table, read_toml
from tau_live.experience.rewards import REQUIRED
from tau_live.experience.stamps import MAX_WORDS
from tau_live.store.records import Limits

PREFIX = "TFGRPO_"
TABLE = "tfgrpo"
PIPELINE = "tfgrpo-learning"
LEAST_GROUP = 2
USUAL_EPOCHS = 3

GROUP_SIZE = "TF-GRPO groupSize guardrail violated (expected ≥ 2)."
CAPACITY = "TF-GRPO groupSize exceeds available scheduling capacity."
WORDS = "TFGRPO_EXPERIENCE_MAX_WORDS must be a positive integer."
TOO_MANY_WORDS = "TFGRPO_EXPERIENCE_MAX_WORDS {} exceeds the guardrail of 32."

_INTEGER = re.compile(r"[+]?\d{1,18}")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?")
_TASK_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


PACE = frozenset({"workers", "capacity", "otlp_endpoint"})
"""What changes how fast a run is, and nothing that it finds."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run.

    Attributes:
        group_size: Attempts at one task.
        epochs: How often the tasks are gone through.
        sample_size: Groups of an epoch.
        batch_size: Groups of a step, after which the pool may change.
        temperature_train: Of attempts that teach.
        temperature_eval: Of attempts that only measure.
        seed: Of everything that is drawn.
        rewarders: ``gt`` and ``relative``, and others by ``package.module:callable``.
        scenarios: Query ids or families; all if empty.
        max_words: The most words of a lesson.
        min_score: The lowest measured effect of a lesson in a prompt, in units of score.
        task_id: Names the folder of the run's files.
        runs_root: The folder of all of them.
        workers: How many attempts are worked on at once.
        capacity: The most attempts that may be under way.
        model: ``provider/name`` of the attempts.
        learner_model: That of the learner; ``model`` if null.
        agent: ``package.module:callable``; if null, the model is called directly.
        lessons_per_group: The most lessons of a group.
        pool_cap: The most lessons in the pool.
        growth_cap: The most lessons that a step may add.
        token_cap: The most tokens of the lessons in a prompt.
        dropout: The share of groups that a lesson is left out of, to measure it.
        validation_repeats: Attempts at each task that only measures.
        accept_margin: By how much the mean may be lower, at worst, in units of score.
        budget: ``usd``, ``tokens``, ``calls``, ``seconds``, and ``tools`` by name.
        pack: The folder of a pack, or several.
        tasks: A file of JSON Lines, ``families:NAME,NAME``, ``reasoning-gym:NAME`` or a callable.
        migrated: Digests of packs and names of models whose lessons count as those in use.
        tools: The tools that a lesson may name.
        tie_break: ``cost``: of attempts with equal scores the cheaper one is better.
        max_tokens: The most tokens of an answer.
        attempt_timeout: The longest time of an attempt, in seconds.
        otlp_endpoint: The OpenTelemetry collector that is shown the run; nothing is sent if null.
    """

    group_size: int = 5
    epochs: int = 3
    sample_size: int = 100
    batch_size: int = 100
    temperature_train: float = 0.7
    temperature_eval: float = 0.3
    seed: int = 0
    rewarders: tuple[str, ...] = REQUIRED
    scenarios: tuple[str, ...] = ()
    max_words: int = MAX_WORDS
    min_score: float = 0.0
    task_id: str = "tfgrpo"
    runs_root: str = ".tau/runs"
    workers: int = 5
    capacity: int = 32
    model: str = ""
    learner_model: str = ""
    agent: str | None = None
    lessons_per_group: int = 2
    pool_cap: int = 40
    growth_cap: int = 8
    token_cap: int = 1500
    dropout: float = 0.15
    validation_repeats: int = 4
    accept_margin: float = 0.05
    budget: JsonObject = msgspec.field(default_factory=dict)
    pack: tuple[str, ...] = ()
    tasks: str = ""
    migrated: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    tie_break: str | None = None
    max_tokens: int = 2048
    attempt_timeout: float = 120.0
    otlp_endpoint: str | None = None

    @property
    def model_id(self) -> str:
        """The model that lessons are learned with."""
        return self.model if self.agent is None else f"{self.model or 'agent'}+{self.agent}"

    @property
    def limits(self) -> Limits:
        """The budget as the store counts it."""
        known = {key: value for key, value in self.budget.items() if key != "seconds"}
        return Limits(**known)  # type: ignore[arg-type]  # checked as it was read

    @property
    def seconds(self) -> float | None:
        """The longest time of the run, in seconds; ``None`` is no limit."""
        value = self.budget.get("seconds")
        return float(value) if isinstance(value, int | float) else None

    @property
    def digest(self) -> str:
        """The digest of all but how many attempts are under way, SHA-256 in hex."""
        known = {key: value for key, value in self.plain.items() if key not in PACE}
        return sha256(canonical_json(known)).hexdigest()

    @property
    def plain(self) -> JsonObject:
        """All of it, as JSON data."""
        plain: JsonObject = msgspec.to_builtins(self)
        return plain


class Knob(NamedTuple):
    """A setting.

    Attributes:
        field: Its attribute.
        parse: Returns a value, or raises ValueError with what is expected.
        variables: Its variables, the first in force first.
    """

    field: str
    parse: Callable[[object], object]
    variables: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Its key in TOML."""
        return self.field.replace("_", "-")


class Read(NamedTuple):
    """A config that was read.

    Attributes:
        config: The config.
        warnings: What is unusual about it.
        folder: The base of its relative paths.
    """

    config: Config
    warnings: list[str]
    folder: Path


def _integer(least: int, most: int, text: str | None = None) -> Callable[[object], int]:
    """Return what reads an integer within bounds, however it is written."""

    def parse(raw: object) -> int:
        is_text = isinstance(raw, str) and _INTEGER.fullmatch(raw.strip())
        value = int(raw) if is_text or type(raw) is int else None  # type: ignore[call-overload]  # checked
        if value is None or not least <= value <= most:
            raise ValueError(text or f"must be an integer from {least} to {most}")
        return int(value)

    return parse


def _real(
    least: float, most: float, *, above: bool = False, text: str | None = None
) -> Callable[[object], float]:
    """Return what reads a finite number within bounds."""
    shown = f"{'above' if above else 'from'} {least:g} to {most:g}"

    def parse(raw: object) -> float:
        is_text = isinstance(raw, str) and _NUMBER.fullmatch(raw.strip())
        is_number = isinstance(raw, int | float) and not isinstance(raw, bool)
        value = float(raw) if is_text or is_number else None  # type: ignore[arg-type]  # checked
        if value is None or not isfinite(value) or not least <= value <= most:
            raise ValueError(text or f"must be a number {shown}")
        if above and value <= least:
            raise ValueError(text or f"must be a number {shown}")
        return value

    return parse


def _text(raw: object) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise ValueError("must be a text")
    return raw.strip()


def _name(raw: object) -> str:
    if not isinstance(raw, str) or not _TASK_ID.fullmatch(raw.strip()):
        raise ValueError("must be lower-case letters, digits and hyphens, at most 64")
    return raw.strip()


def _names(raw: object) -> tuple[str, ...]:
    parts = raw.split(",") if isinstance(raw, str) else raw
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise ValueError("must be names, separated by commas")
    return tuple(part.strip() for part in parts if part.strip())


def _rewarders(raw: object) -> tuple[str, ...]:
    names = _names(raw)
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise ValueError(f"must hold {' and '.join(REQUIRED)}, lacks {', '.join(missing)}")
    odd = [name for name in names if name not in REQUIRED and ":" not in name]
    if odd:
        raise ValueError(f"has others as package.module:callable, not {', '.join(odd)}")
    return names


def _group_size(raw: object) -> int:
    try:
        return _integer(LEAST_GROUP, 32)(raw)
    except ValueError:
        if isinstance(raw, str | int) and _is_above(raw, 32):
            raise
        remedy = f"set TFGRPO_GROUP_SIZE to an integer from {LEAST_GROUP} to 32"
        structlog.get_logger("tau_live").error("group_size_refused", value=str(raw), remedy=remedy)
        raise ValueError(GROUP_SIZE) from None


def _max_words(raw: object) -> int:
    if isinstance(raw, str | int) and not isinstance(raw, bool) and _is_above(raw, MAX_WORDS):
        raise ValueError(TOO_MANY_WORDS.format(str(raw).strip()))
    return _integer(1, MAX_WORDS, WORDS)(raw)


def _is_above(raw: str | int, most: int) -> bool:
    return bool(_INTEGER.fullmatch(str(raw).strip())) and int(raw) > most


def _budget(raw: object) -> JsonObject:
    if not isinstance(raw, Mapping):
        raise ValueError("must be a table")  # noqa: TRY004  # a value, not a bug
    amounts = {
        "usd": _real(0, 1e12, above=True), "tokens": _integer(1, 2**53),
        "calls": _integer(1, 2**53), "seconds": _real(0, 1e9, above=True),
    }  # fmt: skip
    known: dict[str, object] = {}
    for key, value in raw.items():
        if key == "tools":
            known["tools"] = _tools(value)
        elif key in amounts:
            known[key] = _within(f"{key}", amounts[key], value)
        else:
            raise ValueError(f"has no {key!r}: there are {', '.join((*amounts, 'tools'))}")
    return known


def _tools(raw: object) -> dict[str, dict[str, object]]:
    if not isinstance(raw, Mapping):
        raise ValueError("has `tools` as a table")  # noqa: TRY004  # a value, not a bug
    tools: dict[str, dict[str, object]] = {}
    for name, ceilings in raw.items():
        if not isinstance(ceilings, Mapping) or not {*ceilings} <= {"calls", "usd"} or not ceilings:
            raise ValueError(f"has `calls` and `usd` of the tool {name}, got {ceilings!r}")
        parsers = {"calls": _integer(0, 2**53), "usd": _real(0, 1e12)}
        tools[name] = {
            key: _within(f"tools.{name}.{key}", parsers[key], value)
            for key, value in ceilings.items()
        }
    return tools


def _within(key: str, parse: Callable[[object], object], value: object) -> object:
    try:
        return parse(value)
    except ValueError as error:
        raise ValueError(f"{key} {error}, got {show_value(value)}") from error


def _tie_break(raw: object) -> str:
    if raw != "cost":
        raise ValueError("is `cost` or left out")
    return "cost"


KNOBS: Sequence[Knob] = (
    Knob("group_size", _group_size, ("TFGRPO_GROUP_SIZE",)),
    Knob("epochs", _integer(1, 20), ("TFGRPO_EPOCHS",)),
    Knob("sample_size", _integer(1, 1000), ("TFGRPO_SAMPLE_SIZE",)),
    Knob("batch_size", _integer(1, 1000)),
    Knob("temperature_train", _real(0, 2, above=True), ("TFGRPO_TRAIN_TEMP",)),
    Knob("temperature_eval", _real(0, 2), ("TFGRPO_EVAL_TEMP",)),
    Knob("seed", _integer(0, 2**63 - 1), ("TFGRPO_SEED",)),
    Knob("rewarders", _rewarders, ("TFGRPO_REWARDERS",)),
    Knob("scenarios", _names, ("TFGRPO_SCENARIOS",)),
    Knob("max_words", _max_words, ("TFGRPO_EXPERIENCE_MAX_WORDS",)),
    Knob("min_score", _real(-1e9, 1e9, text="must be a finite number"),
         ("TFGRPO_EXPERIENCE_MIN_REWARD",)),
    Knob("task_id", _name, ("TFGRPO_TASK_ID", "MCP_RUNNER_TASK_ID")),
    Knob("runs_root", _text),
    Knob("workers", _integer(1, 64)),
    Knob("capacity", _integer(1, 64)),
    Knob("model", _text),
    Knob("learner_model", _text),
    Knob("agent", _text),
    Knob("lessons_per_group", _integer(1, 2)),
    Knob("pool_cap", _integer(1, 1000)),
    Knob("growth_cap", _integer(1, 1000)),
    Knob("token_cap", _integer(1, 100_000)),
    Knob("dropout", _real(0, 0.5)),
    Knob("validation_repeats", _integer(1, 32)),
    Knob("accept_margin", _real(0, 1e9)),
    Knob("budget", _budget),
    Knob("pack", _names),
    Knob("tasks", _text),
    Knob("migrated", _names),
    Knob("tools", _names),
    Knob("tie_break", _tie_break),
    Knob("otlp_endpoint", _text, ("TFGRPO_OTLP_ENDPOINT",)),
    Knob("max_tokens", _integer(16, 1_000_000)),
    Knob("attempt_timeout", _real(0, 1e6, above=True)),
)  # fmt: skip
"""All settings but the switch."""

OWN_TEXTS = (GROUP_SIZE, CAPACITY, WORDS, TOO_MANY_WORDS[:20])
"""Beginnings of errors that are printed as they are."""


def tables_in(directory: Path) -> tuple[dict[str, object], Path]:
    """Return our tables of the nearest ``pyproject.toml`` that has any, and its folder.

    Those of the pipeline count more than those of ``[tool.tau-live.tfgrpo]``.
    """
    for folder in (directory.absolute(), *directory.absolute().parents):
        path = folder / PYPROJECT
        if not path.is_file() or b"tfgrpo" not in path.read_bytes():
            continue
        own = own_table(read_toml(path)) or {}
        pipelines = own.get("pipelines")
        pipeline = pipelines.get(PIPELINE) if isinstance(pipelines, Mapping) else None
        found = [table for table in (own.get(TABLE), pipeline) if isinstance(table, Mapping)]
        if found:
            return {key: value for table in found for key, value in table.items()}, folder
    return {}, directory


def read_config(
    environ: Mapping[str, str], directory: Path, *, given: Mapping[str, object] | None = None
) -> Read:
    """Return the config of a run: what was given beats the environment, and that beats TOML.

    Args:
        environ: The environment.
        directory: Where ``pyproject.toml`` is looked for, upwards.
        given: Values by TOML key that beat all others, as those of a command's options.

    Raises:
        ConfigError: With a line for each violation.
    """
    table, folder = tables_in(directory)
    problems: list[str] = []
    values: dict[str, object] = {}
    for knob in KNOBS:
        raw, where = _raw(knob, environ, table, given or {})
        if where:
            try:
                values[knob.field] = knob.parse(raw)
            except ValueError as error:
                is_own = str(error).startswith(OWN_TEXTS)
                shown = f"{where} {error}, got {show_value(raw)}"
                problems.append(str(error) if is_own else shown)
    problems += [*_unknown_variables(environ), *_unknown_keys(table)]
    values = _defaults(values)
    problems += _contradictions(values)
    if problems:
        raise ConfigError(problems)
    config = Config(**values)  # type: ignore[arg-type]  # each was parsed
    return Read(config, _unusual(config), folder)


def _raw(
    knob: Knob, environ: Mapping[str, str], table: Mapping[str, object],
    given: Mapping[str, object],
) -> tuple[object, str]:  # fmt: skip
    """Return a value as it was written, and the name of its place; empty if there is none."""
    if given.get(knob.key) is not None:
        return given[knob.key], f"--{knob.key}"
    for variable in knob.variables:
        if environ.get(variable, "").strip():
            return environ[variable], variable
    for key in (knob.key, knob.field):
        if key in table:
            return table[key], f"tool.tau-live.{TABLE}.{key}"
    return None, ""


def _unknown_variables(environ: Mapping[str, str]) -> list[str]:
    known = [name for knob in KNOBS for name in knob.variables]
    problems = []
    for name in sorted(environ):
        if name.startswith(PREFIX) and name not in known:
            near = nearest(name.removeprefix(PREFIX), [k.removeprefix(PREFIX) for k in known])
            hint = f"; did you mean {PREFIX}{near}?" if near else f": there are {', '.join(known)}"
            problems.append(f"{name} is not a setting{hint}")
    return problems


def _unknown_keys(table: Mapping[str, object]) -> list[str]:
    known = [knob.key for knob in KNOBS]
    problems = []
    for key in sorted({key.replace("_", "-") for key in table} - {*known, "enabled"}):
        near = nearest(key, known)
        hint = f"; did you mean {near}?" if near else ""
        problems.append(f"tool.tau-live.{TABLE}.{key} is not a setting{hint}")
    return problems


def _defaults(values: dict[str, object]) -> dict[str, object]:
    """Return values with those that follow from others."""
    plain = Config()
    sample = values.get("sample_size", plain.sample_size)
    size = values.get("group_size", plain.group_size)
    model = values.get("model", plain.model)
    return {"batch_size": sample, "workers": size, "learner_model": model, **values}


def _contradictions(values: Mapping[str, object]) -> list[str]:
    known = {**Config().plain, **values}
    problems = []
    size, capacity, workers = known["group_size"], known["capacity"], known["workers"]
    if int(str(size)) > int(str(capacity)) or int(str(workers)) < LEAST_GROUP:
        problems.append(CAPACITY)
    if int(str(known["batch_size"])) > int(str(known["sample_size"])):
        problems.append(
            f"batch-size must be at most sample-size, {known['sample_size']}, got "
            f"{known['batch_size']}"
        )
    if not known["model"] and not known["agent"]:
        problems.append("model is missing: name one, such as openai/gpt-5-mini, or an agent")
    if not known["learner_model"]:
        problems.append("learner-model is missing: an agent alone cannot compare attempts")
    problems += [f"{key} is missing" for key in ("tasks", "pack") if not known[key]]
    return problems


def _unusual(config: Config) -> list[str]:
    if config.epochs == USUAL_EPOCHS:
        return []
    return [f"epochs is {config.epochs}, where the method was published with {USUAL_EPOCHS}"]
