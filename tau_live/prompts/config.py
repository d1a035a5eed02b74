"""The config of a prompt optimization: read once, checked whole, before anything is created."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails

from tau_live.core.errors import ConfigError
from tau_live.core.records import RolloutMode
from tau_live.core.settings.kinds import nearest
from tau_live.core.settings.tables import SafetySettings
from tau_live.prompts.documents import (
    DEPRECATED,
    Deprecation,
    Violation,
    faults,
    line_place,
    parse_json,
    parse_toml,
    pointer_of,
    read_text,
)
from tau_live.prompts.rows import KEYS, Row, config_digest, row_of, row_problems
from tau_live.prompts.scorers import (
    OWN_KEYS,
    STRICT,
    CallableRef,
    FullText,
    ModelRef,
    Scorer,
    can_be_scored,
    can_score,
    counts,
    pattern_problem,
)

SETS = {
    RolloutMode.TRAIN: "optimize",
    RolloutMode.VAL: "validate",
    RolloutMode.TEST: "test",
}
"""The key of each set of rows, by the mode of its items."""

Algorithm = Literal["none", "beam", "reflective"]
Count = Annotated[int, Field(gt=0)]
Amount = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Unit = Annotated[float, Field(ge=0, le=1)]
Names = Annotated[tuple[str, ...], Field(strict=False)]

_SAFETY = SafetySettings()


class Templates(BaseModel):
    """The prompts of critic and editor; ``None`` is ours."""

    model_config = STRICT

    critique_system: str | None = Field(default=None, description="The critic's instructions.")
    critique_user: str | None = Field(default=None, description="With `{prompt}` and `{examples}`.")
    edit_system: str | None = Field(default=None, description="The editor's instructions.")
    edit_user: str | None = Field(
        default=None, description="With `{prompt}`, `{critique}` and `{constraints}`."
    )


PLACEHOLDERS = {
    "critique_user": ("{prompt}", "{examples}"),
    "edit_user": ("{prompt}", "{critique}", "{constraints}"),
}
"""What a template must hold."""


class Search(BaseModel):
    """How candidates are proposed."""

    model_config = STRICT

    algorithm: Algorithm | None = Field(
        default=None,
        description="`beam` where there are rows to search on and a critic, else `none`.",
    )
    rounds: int = Field(default=3, ge=0, le=50, description="Rounds of `beam`.")
    beam_width: int = Field(default=2, ge=1, le=16, description="Parents of a round.")
    candidates_per_parent: int = Field(default=1, ge=1, le=8, description="Edits of a parent.")
    iterations: int = Field(default=12, ge=1, le=500, description="Edits of `reflective`.")
    minibatch: int = Field(default=4, ge=2, le=32, description="Rows to try an edit on first.")
    shorten: int = Field(
        default=8, ge=0, le=64, description="Added lines that `reflective` tries to leave out."
    )
    examples_per_critique: int = Field(default=8, ge=1, le=32, description="Items the critic sees.")
    screen_rows: Count | None = Field(
        default=None, description="Rows to execute it on; null is all."
    )
    critic_model: ModelRef | None = Field(default=None, description="The critic; `model` if null.")
    editor_model: ModelRef | None = Field(default=None, description="The editor; `model` if null.")
    temperature: float = Field(default=0.0, ge=0, le=2, description="Temperature of both.")
    max_tokens: int = Field(
        default=512, ge=16, le=8192, description="Longest reply of either, in tokens."
    )
    max_prompt_chars: int = Field(default=8000, ge=1, le=100_000, description="Longest candidate.")
    patience: Count = Field(default=2, description="Rounds without a better best before it stops.")
    initial_prompts: dict[str, FullText] = Field(default={}, description="More prompts, by name.")
    templates: Templates = Field(default=Templates(), description="Prompts of critic and editor.")


class Adoption(BaseModel):
    """The evidence that a candidate needs."""

    model_config = STRICT

    mode: Literal["adopt", "propose"] = Field(
        default="adopt", description="`propose` adopts nothing."
    )
    alpha: float = Field(default=0.05, gt=0, le=0.2, description="Largest p-value of an adoption.")
    min_delta: NonNegative = Field(default=0.02, description="Smallest gain, in units of score.")
    min_pairs: int = Field(default=20, ge=8, description="Fewest rows with scores on both sides.")
    finalists: int = Field(default=1, ge=1, le=4, description="Candidates that are confirmed.")
    max_missing_share: float = Field(
        default=0.02, ge=0, le=0.5, description="Largest share of rows without a score."
    )
    safety_margin: NonNegative | None = Field(
        default=0.05, description="Largest rise of the safety cost."
    )
    max_cost_ratio: Amount | None = Field(
        default=None, description="Largest ratio of USD per item."
    )


class ToolCeiling(BaseModel):
    """The ceiling of one tool, as far as agents call it by ``item.tool``."""

    model_config = STRICT

    calls: Annotated[int, Field(ge=0)] | None = Field(default=None, description="Calls.")
    usd: NonNegative | None = Field(default=None, description="US dollars.")


class Budget(BaseModel):
    """The budget of a run; ``None`` is no bound."""

    model_config = STRICT

    usd: Amount | None = Field(default=None, description="US dollars.")
    tokens: Count | None = Field(default=None, description="Tokens of requests and answers.")
    calls: Count | None = Field(
        default=None, description="Model calls; the preflight's bound if null."
    )
    rollouts: Count | None = Field(default=None, description="Executed items.")
    seconds: Amount | None = Field(default=None, description="Seconds that it is led.")
    tools: dict[str, ToolCeiling] = Field(default={}, description="Ceilings of tools, by name.")


class SafetyReward(BaseModel):
    """The cost of a violated safety policy, as in the live loop."""

    model_config = STRICT

    blocked_penalty: NonNegative = _SAFETY.blocked_penalty
    default_reason_code_penalty: NonNegative = _SAFETY.default_reason_code_penalty
    prompt_injection_penalty: NonNegative = _SAFETY.prompt_injection_penalty
    secret_leak_penalty: NonNegative = _SAFETY.secret_leak_penalty
    reason_code_penalties: dict[str, NonNegative] = {}
    hard_gate_reason_codes: Names = _SAFETY.hard_gate_reason_codes
    hard_gate_reason_prefixes: Names = _SAFETY.hard_gate_reason_prefixes
    hard_gate_reward_ceiling: float = Field(default=_SAFETY.hard_gate_reward_ceiling, le=0)
    hard_gate_penalty: NonNegative = _SAFETY.hard_gate_penalty
    blocked_event_triggers_hard_gate: bool = _SAFETY.blocked_event_triggers_hard_gate
    reject_rollout_on_hard_gate: bool = _SAFETY.reject_rollout_on_hard_gate

    @property
    def policy(self) -> SafetySettings:
        """The policy that the rules of rewards take."""
        return SafetySettings(**self.model_dump())


class Gae(BaseModel):
    """Generalized advantage estimation."""

    model_config = STRICT

    gamma: Unit = Field(default=0.99, description="Discount of one step.")
    lambda_: Unit = Field(default=0.95, alias="lambda", description="0 trusts values, 1 rewards.")
    normalize_advantages: bool = Field(default=True, description="To mean 0 and deviation 1.")
    normalize_returns: bool = Field(default=False, description="The same of returns.")
    clip_advantages: Amount | None = Field(default=None, description="Largest size of one.")
    clip_returns: Amount | None = Field(default=None, description="Largest size of one.")
    normalization_epsilon: Amount = Field(default=1e-8, description="Added to the deviation.")


class Ppo(BaseModel):
    """Proximal policy optimization."""

    model_config = STRICT

    clip_epsilon: NonNegative = Field(default=0.2, description="How far a ratio is rewarded.")
    value_loss_coefficient: NonNegative = Field(
        default=0.5, description="Weight of the value loss."
    )
    entropy_coefficient: NonNegative = Field(default=0.01, description="Weight of the entropy.")
    kl_penalty_coefficient: NonNegative = Field(
        default=0.0, description="Weight of the KL penalty."
    )
    mini_batch_size: Count = Field(default=32, description="Decisions of a minibatch.")
    gradient_accumulation_steps: Count = Field(default=1, description="Minibatches of a step.")
    epochs: Count = Field(default=1, description="Passes over the decisions.")
    target_kl: NonNegative | None = Field(default=None, description="Above it, no further step.")
    max_kl: NonNegative | None = Field(default=None, description="Above it, the update is undone.")


class RlOptimizer(BaseModel):
    """The policy that learns to choose among the prompts."""

    model_config = STRICT

    enabled: bool = Field(description="Whether it runs.")
    rollouts: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="Its rollouts; one per row of `optimize` if null.",
    )
    update_interval: Count = Field(default=8, description="Finished rollouts between two updates.")
    pool_limit: int = Field(
        default=4, ge=2, le=16, description="Prompts that it chooses among, beside the incumbent."
    )
    normalization_scope: Literal["batch", "trajectory"] = Field(
        default="batch", description="Over which advantages are normalized."
    )
    gae: Gae = Field(default=Gae(), description="Advantages.")
    ppo: Ppo = Field(default=Ppo(), description="Updates.")
    learning_rate: Amount = Field(default=5e-3, description="Of the optimizer.")


class OptimizationConfig(BaseModel):
    """A config without its rows."""

    model_config = STRICT

    resources: dict[str, object] = Field(
        default={}, description="Merged over the latest, key by key."
    )
    prompt_key: FullText = Field(default="system_prompt", description="The resource to optimize.")
    agent: CallableRef | None = Field(default=None, description="What is run; else `model`.")
    model: ModelRef | None = Field(default=None, description="The model; `--model` wins.")
    seed: int = Field(default=0, ge=0, le=2**63 - 1, description="Seeds every random choice.")
    worker_count: int = Field(default=2, ge=1, le=64, description="Workers in this process.")
    poll_interval_ms: int = Field(
        default=50, ge=1, le=60_000, description="Pause of a worker that finds nothing to do."
    )
    heartbeat_interval_ms: int = Field(
        default=1000, ge=1, le=600_000, description="Between two signs of life of a busy worker."
    )
    completion_poll_interval_ms: int = Field(
        default=60, ge=1, le=60_000, description="Between two looks at whether a phase has ended."
    )
    completion_timeout_secs: Amount | None = Field(
        default=None, description="Longest time of a phase."
    )
    attempt_timeout_secs: Amount | None = Field(
        default=120.0, description="Longest time of an attempt."
    )
    max_attempts: int = Field(default=2, ge=1, le=10, description="Attempts of an item.")
    repeats: int = Field(default=1, ge=1, le=32, description="Items per prompt version and row.")
    rollout_temperature: float = Field(
        default=0.0, ge=0, le=2, description="Temperature of `model`."
    )
    max_output_tokens: int = Field(
        default=1024, ge=1, le=200_000, description="Longest answer, in tokens."
    )
    scorers: Annotated[tuple[Scorer, ...], Field(strict=False)] = Field(
        default=(Scorer(name="exact_match"),), description="How an output is scored."
    )
    search: Search = Field(default=Search(), description="How candidates are proposed.")
    adoption: Adoption = Field(default=Adoption(), description="The evidence a candidate needs.")
    budget: Budget = Field(default=Budget(), description="What the run may spend.")
    safety_reward: SafetyReward = Field(default=SafetyReward(), description="What violations cost.")
    rl_optimizer: RlOptimizer | None = Field(
        default=None, description="A policy that learns to choose among the prompts; null is off."
    )
    content: Literal["none", "redacted"] = Field(
        default="redacted", description="What of texts is stored."
    )


def policy_phase(config: OptimizationConfig) -> RlOptimizer | None:
    """Return how a policy learns to choose among the prompts; ``None`` if none does."""
    block = config.rl_optimizer
    return block if block is not None and block.enabled else None


class Loaded(NamedTuple):
    """A config that can be run.

    Attributes:
        config: The config, every default materialised.
        digest: SHA-256 of the config as written; rows of a file stand in the place of its path.
        rows: The rows by the mode of their items, each task once.
        search_skipped: Why there is no search, where the config leaves the algorithm open.
        deprecations: Deprecated keys of the config.
        warnings: Texts for the user.
    """

    config: OptimizationConfig
    digest: str
    rows: Mapping[RolloutMode, Sequence[Row]]
    search_skipped: str | None
    deprecations: Sequence[Deprecation]
    warnings: Sequence[str]


class _RawRow(NamedTuple):
    """A row as written, and where.

    Attributes:
        path: Its file.
        pointer: Its JSON pointer in the config; the number of its line in a file of rows.
        place: Its place among the rows of its set, from 0.
        raw: What is written.
        is_lines: Whether the file is one of rows.
    """

    path: Path
    pointer: str
    place: int
    raw: object
    is_lines: bool = False

    def violation(self, problem: str, value: object, *, at: str = "") -> Violation:
        """Return a violation at a pointer in it."""
        return Violation(self.path, self.pointer + at, problem, value, self.is_lines)

    @property
    def where(self) -> str:
        """Its place, in a message about another."""
        return f"{line_place(self.pointer) if self.is_lines else self.pointer} of {self.path}"


def read_config(path: Path, *, model: str | None) -> Loaded:
    """Return the config in a file, JSON or TOML by its name.

    Args:
        path: The file; paths of rows in it are relative to its folder.
        model: Takes the place of the config's ``model``; no part of its digest.

    Raises:
        ConfigError: It is wrong; the error has a line for each violation.
    """
    reading = _Reading(path)
    written = {mode: reading.written_rows(mode) for mode in SETS}
    rows = reading.unique_rows(written)
    config = reading.parse(model)
    reading.check(config, rows)
    if not (written[RolloutMode.TRAIN] or written[RolloutMode.VAL]):
        reading.check_empty()
    reading.end()

    document = {**reading.document}
    for mode, key in SETS.items():
        if key in document:
            document[key] = [row.raw for row in written[mode]]
    skipped = _search_obstacle(config, rows) if config.search.algorithm is None else None
    return Loaded(
        config=_with_defaults(config, rows),
        digest=config_digest(document),
        rows=rows,
        search_skipped=None if skipped is None else skipped.code,
        deprecations=reading.deprecations,
        warnings=[*reading.warnings, *_scoring_warnings(config, rows)],
    )


def _parse(text: str, suffix: str) -> object:
    """Return a document by the ending of its file's name; what is not TOML has to be JSON.

    Raises:
        ValueError: It is neither.
    """
    if suffix == ".toml":
        return parse_toml(text)
    try:
        return parse_json(text)
    except ValueError:
        if suffix == ".json":
            raise
        raise ValueError("must be .json or .toml") from None


class _Reading:
    """A config while it is read, and every violation in it.

    Raises:
        ConfigError: It is no document at all.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._violations: list[Violation] = []
        self._first: dict[str, tuple[RolloutMode, _RawRow]] = {}
        self._files: dict[Path, str] = {}
        self.warnings: list[str] = []
        self.deprecations: list[Deprecation] = []
        self._is_usage = False
        written = self._read_document()
        self._violations += faults(path, written)
        self._keys = {key: key for key in written}
        for old, new in DEPRECATED.items():
            if old in written and new in written:
                self._add(f"/{old}", f"'{old}' and '{new}' were both given")
                self._is_usage = True
            elif old in written:
                self._keys[new] = self._keys.pop(old)
                self.deprecations.append(Deprecation(old, new, "key"))
            self._keys.pop(old, None)
        self.document = {key: written[name] for key, name in self._keys.items()}

    def _read_document(self) -> dict[str, object]:
        try:
            text = read_text(self._path)
            document = _parse(text, self._path.suffix.lower())
        except ValueError as error:
            raise ConfigError([Violation(self._path, "", str(error)).line]) from error
        if not isinstance(document, dict):
            raise ConfigError([Violation(self._path, "", "must be an object", document).line])
        return document

    def _add(self, pointer: str, problem: str, *value: object) -> None:
        violation = Violation(self._path, pointer, problem)
        self._violations.append(violation._replace(value=value[0]) if value else violation)

    def end(self) -> None:
        """Raise the error that has all violations, if there are any.

        Raises:
            ConfigError: There are violations.
        """
        if not self._violations:
            return
        first: dict[tuple[str, Path], Violation] = {}
        for violation in self._violations:
            first.setdefault((violation.pointer, violation.path), violation)
        lines = [first[place].line for place in sorted(first)]
        raise ConfigError(lines, is_usage=self._is_usage)

    def written_rows(self, mode: RolloutMode) -> list[_RawRow]:
        """Return the rows of a set as they are written, in the config or in a file."""
        raw = self.document.get(SETS[mode], [])
        pointer = f"/{self._keys.get(SETS[mode], '')}"
        if isinstance(raw, list):
            return [_RawRow(self._path, f"{pointer}/{n}", n, row) for n, row in enumerate(raw)]
        if not isinstance(raw, str) or not raw.strip():
            self._add(pointer, "must be an array of rows or the path of a JSON Lines file", raw)
            return []
        file = self._path.parent / raw
        try:
            lines = read_text(file).split("\n")
        except ValueError as error:
            self._add(pointer, f"{file} {error}", raw)
            return []
        other = self._files.setdefault(file.resolve(), SETS[mode])
        if other != SETS[mode]:
            self._add(pointer, f"must not be the file of '{other}'", raw)
            return []
        return self._lines(file, lines)

    def _lines(self, file: Path, lines: Sequence[str]) -> list[_RawRow]:
        rows: list[_RawRow] = []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                raw = parse_json(line)
            except ValueError as error:
                self._violations.append(Violation(file, f"/{number}", str(error), is_lines=True))
                continue
            self._violations += faults(file, raw, line=number)
            rows.append(_RawRow(file, f"/{number}", len(rows), raw, is_lines=True))
        return rows

    def unique_rows(
        self, written: Mapping[RolloutMode, Sequence[_RawRow]]
    ) -> dict[RolloutMode, list[Row]]:
        """Return the rows, each task once; none that has a problem, or is in two sets."""
        broken = {
            (violation.path, above)
            for violation in self._violations
            for above in _with_parents(violation.pointer)
        }
        unique: dict[RolloutMode, list[Row]] = {mode: [] for mode in written}
        for mode, rows in written.items():
            repeats = []
            for each in rows:
                if not self._is_row(each) or (each.path, each.pointer) in broken:
                    continue
                row = row_of(each.raw, each.place)
                known_in, known = self._first.setdefault(row.digest, (mode, each))
                if known is each:
                    unique[mode].append(row)
                elif known_in is mode:
                    repeats.append(each)
                else:
                    self._add_same(each, known)
            if repeats:
                self.warnings.append(
                    f"{len(repeats)} of {len(rows)} rows of '{SETS[mode]}' repeat a task and are "
                    f"left out, the first at {repeats[0].where}"
                )
        return unique

    def _is_row(self, written: _RawRow) -> bool:
        problems = row_problems(written.raw)
        for problem in problems:
            at = pointer_of([problem.key]) if problem.key else ""
            hint = "" if problem.key in {"", *KEYS} else _hint(problem.key, KEYS)
            what = f"{problem.what}{hint}"
            self._violations.append(written.violation(what, problem.value, at=at))
        return not problems

    def _add_same(self, written: _RawRow, known: _RawRow) -> None:
        where = known.pointer if known.path == self._path else known.where
        self._violations.append(written.violation(f"is the same task as {where}", written.raw))

    def parse(self, model: str | None) -> OptimizationConfig:
        """Return the config; what is wrong in it is added to the violations and left out."""
        document = {key: self.document[key] for key in self.document if key not in SETS.values()}
        if model is not None:
            document["model"] = model
        try:
            return OptimizationConfig.model_validate(document)
        except ValidationError as error:
            errors = error.errors(include_url=False)
        for each in errors:
            value = () if each["type"] == "missing" else (each["input"],)
            self._add(pointer_of(each["loc"]), _problem(each), *value)
        for each in errors:
            _leave_out(document, each["loc"])
        return OptimizationConfig.model_validate(document)

    def check(self, config: OptimizationConfig, rows: Mapping[RolloutMode, Sequence[Row]]) -> None:
        """Add what is wrong between fields, as far as all that it depends on is right."""
        broken = {self._place(violation) for violation in self._violations}
        for rule in _rules(config, rows):
            needs = [f"/{self._keys.get(need, need)}" for need in rule.needs]
            if not any(_overlap(need, pointer) for need in needs for pointer in broken):
                self._add(rule.pointer, rule.problem, rule.value)
        if any(scorer.name == "regex" for scorer in config.scorers):
            self._check_patterns(row for of in rows.values() for row in of)

    def _check_patterns(self, rows: Iterable[Row]) -> None:
        for row in rows:
            problem = pattern_problem(row.expected)
            if problem is not None:
                _, written = self._first[row.digest]
                self._violations.append(written.violation(problem, row.expected, at="/expected"))

    def check_empty(self) -> None:
        """Add that there are no rows, unless something else is wrong with them."""
        places = [self._place(violation) for violation in self._violations]
        keys = [self._keys.get(key, key) for key in ("optimize", "validate")]
        if not any(_overlap(f"/{key}", place) for key in keys for place in places):
            self._add(
                "",
                f"prompt-optimization config '{self._path}' must contain at least one rollout "
                "in 'optimize' or 'validate'",
            )

    def _place(self, violation: Violation) -> str:
        """Return where in the config a violation is; in the first set for one in a file of rows."""
        is_here = violation.path == self._path
        return violation.pointer if is_here else f"/{self._keys.get('optimize', 'optimize')}"


def _with_parents(pointer: str) -> Iterator[str]:
    while pointer:
        yield pointer
        pointer = pointer.rpartition("/")[0]


def _overlap(pointer: str, other: str) -> bool:
    return pointer in _with_parents(other) or other in _with_parents(pointer)


_MODELS: Mapping[tuple[str, ...], type[BaseModel]] = {
    (): OptimizationConfig,
    ("scorers",): Scorer,
    ("search",): Search,
    ("search", "templates"): Templates,
    ("adoption",): Adoption,
    ("budget",): Budget,
    ("safety_reward",): SafetyReward,
    ("rl_optimizer",): RlOptimizer,
    ("rl_optimizer", "gae"): Gae,
    ("rl_optimizer", "ppo"): Ppo,
}
"""The models of a config, by their place in it, indexes left out."""

_POSITIVE = {
    "worker_count",
    "poll_interval_ms",
    "heartbeat_interval_ms",
    "completion_poll_interval_ms",
    "completion_timeout_secs",
}
_KINDS = {
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a string",
    "tuple_type": "an array",
    "dict_type": "an object",
    "model_type": "an object",
}
_RL_KINDS = {"int_type": "an integer", "float_type": "numeric", "bool_type": "a boolean"}
_BOUNDS = {"gt": ">", "ge": ">="}


def _problem(error: ErrorDetails) -> str:
    """Return what is wrong by an error of pydantic."""
    keys, kind = error["loc"], error["type"]
    if keys == ("rl_optimizer", "enabled"):
        return "rl_optimizer.enabled must be true or false"
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return f"is not a key of the config{_hint_at(keys)}"
    if len(keys) == 3 and keys[0] == "rl_optimizer":
        return _rl_problem(str(keys[1]), str(keys[2]), error)
    if keys[0] in _POSITIVE and _BOUNDS.keys() & error.get("ctx", {}):
        return f"training config field '{keys[0]}' must be greater than 0"
    text = error["msg"].removeprefix("Value error, ").replace("Input should", "must")
    return f"must be {_KINDS[kind]}" if kind in _KINDS else text


def _rl_problem(part: str, field: str, error: ErrorDetails) -> str:
    """Return what is wrong with a field of ``gae`` or ``ppo``, in the words of the reference."""
    known = {
        info.alias or name: info
        for name, info in _MODELS["rl_optimizer", part].model_fields.items()
    }
    if error["type"] in _RL_KINDS:
        nullable = " or null" if known[field].default is None else ""
        return f"rl_optimizer.{part}.{field} must be {_RL_KINDS[error['type']]}{nullable}"
    if field in {"gamma", "lambda"}:
        return f"gae config field '{field}' must be finite and within [0.0, 1.0]"
    bound = " and ".join(f"{_BOUNDS[name]} {limit:g}" for name, limit in error["ctx"].items())
    if part == "gae":
        return f"gae config field '{field}' must be finite and {bound}"
    return f"invalid ppo config: {field} must be {bound}"


def _hint_at(keys: Sequence[str | int]) -> str:
    owner = _MODELS[tuple(key for key in keys[:-1] if isinstance(key, str))]
    known = [info.alias or name for name, info in owner.model_fields.items()]
    return _hint(str(keys[-1]), [*known, *SETS.values()] if owner is OptimizationConfig else known)


def _hint(key: str, known: Iterable[str]) -> str:
    near = nearest(key, known)
    return f"; did you mean '{near}'?" if near else ""


def _leave_out(document: dict[str, object], keys: Sequence[str | int]) -> None:
    """Remove a place from a document; a scorer or optimizer that is wrong becomes a right one."""
    part = document.get(str(keys[0]))
    match keys:
        case ("rl_optimizer", "enabled") if isinstance(part, dict):
            part["enabled"] = True
        case ("scorers", int(n), *_) if isinstance(part, list):
            part[n] = {"name": "exact_match"}
        case _:
            _remove(document, keys)


def _remove(document: dict[str, object], keys: Sequence[str | int]) -> None:
    inner = document.get(str(keys[0]))
    if isinstance(inner, dict) and len(keys) > 1:
        _remove(inner, keys[1:])
    else:
        document.pop(str(keys[0]), None)


class _Rule(NamedTuple):
    """A rule between fields that is violated.

    Attributes:
        pointer: Where it is reported.
        problem: What is wrong.
        value: The value there.
        needs: Keys that must be right, or it says nothing.
    """

    pointer: str
    problem: str
    value: object
    needs: Sequence[str]


def _rules(
    config: OptimizationConfig, rows: Mapping[RolloutMode, Sequence[Row]]
) -> Iterator[_Rule]:
    if config.agent is None and config.model is None:
        problem = "must be given, here or as --model, where there is no 'agent'"
        yield _Rule("/model", problem, None, ("agent", "model"))
    text = config.resources.get(config.prompt_key, "")
    if not isinstance(text, str):
        pointer = pointer_of(["resources", config.prompt_key])
        yield _Rule(
            pointer, "must be a string: it is the prompt", text, ("prompt_key", "resources")
        )
    ppo = config.rl_optimizer.ppo if config.rl_optimizer is not None else Ppo()
    if None not in (ppo.target_kl, ppo.max_kl) and (ppo.max_kl or 0.0) < (ppo.target_kl or 0.0):
        problem = "invalid ppo config: max_kl must be >= target_kl when both are set"
        needs = ("rl_optimizer/ppo/target_kl", "rl_optimizer/ppo/max_kl")
        yield _Rule("/rl_optimizer/ppo/max_kl", problem, ppo.max_kl, needs)
    yield from _search_rules(config, rows)
    yield from _scorer_rules(config, rows)


def _search_rules(
    config: OptimizationConfig, rows: Mapping[RolloutMode, Sequence[Row]]
) -> Iterator[_Rule]:
    search = config.search
    if search.candidates_per_parent > 1 and search.temperature == 0.0:
        problem = "must be greater than 0 where 'candidates_per_parent' is above 1"
        both = ("search/candidates_per_parent", "search/temperature")
        yield _Rule("/search/temperature", problem, search.temperature, both)
    obstacle = _search_obstacle(config, rows)
    if search.algorithm not in {None, "none"} and obstacle is not None:
        problem = f"needs {obstacle.needs}"
        needs = ("search", "model", "scorers", "optimize")
        yield _Rule("/search/algorithm", problem, search.algorithm, needs)
    for name, placeholders in PLACEHOLDERS.items():
        template: str | None = getattr(search.templates, name)
        missing = [each for each in placeholders if template is not None and each not in template]
        if missing:
            pointer = f"/search/templates/{name}"
            yield _Rule(pointer, f"must hold {' and '.join(missing)}", template, (pointer[1:],))


class _Obstacle(NamedTuple):
    """Why candidates cannot be proposed: as a code, and what it takes."""

    code: str
    needs: str


def _search_obstacle(
    config: OptimizationConfig, rows: Mapping[RolloutMode, Sequence[Row]]
) -> _Obstacle | None:
    search = config.search
    if not rows[RolloutMode.TRAIN]:
        return _Obstacle("no_optimize_rows", "rows in 'optimize'")
    if None in (search.critic_model or config.model, search.editor_model or config.model):
        return _Obstacle("no_critic_model", "'model', or 'critic_model' and 'editor_model'")
    if not any(can_be_scored(config.scorers, row) for row in rows[RolloutMode.TRAIN]):
        return _Obstacle("no_scorable_rows", "a row in 'optimize' that the scorers can score")
    return None


def _scorer_rules(
    config: OptimizationConfig, rows: Mapping[RolloutMode, Sequence[Row]]
) -> Iterator[_Rule]:
    known: set[str] = set()
    for n, scorer in enumerate(config.scorers):
        at = f"scorers/{n}"
        for key, problem in _scorer_problems(scorer):
            yield _Rule(f"/{at}/{key}", problem, getattr(scorer, key), (at,))
        if scorer.label in known:
            yield _Rule(f"/{at}", "is given twice", scorer.label, ("scorers",))
        known.add(scorer.label)
        if _judges_itself(scorer, config, rows):
            problem = "must not be the model that writes the candidates, or set 'allow_self_judge'"
            needs = (at, "search", "model", "optimize")
            yield _Rule(f"/{at}/model", problem, scorer.model, needs)
    weights = [scorer.weight for scorer in config.scorers if not scorer.cost]
    if sum(weights) <= 0.0:
        problem = "must have weights above 0 in all, beside costs"
        yield _Rule("/scorers", problem, weights, ("scorers",))


def _scorer_problems(scorer: Scorer) -> Iterator[tuple[str, str]]:
    for key in _foreign_keys(scorer):
        yield key, f"is not a key of the scorer '{scorer.name}'"
    for key in {"python": ("callable",), "judge": ("model", "rubric")}.get(scorer.name, ()):
        if getattr(scorer, key) is None:
            yield key, f"must be given for the scorer '{scorer.name}'"
    if scorer.cost and scorer.weight != 1.0:
        yield "weight", "must be left out of a cost, which is no part of the score"


def _foreign_keys(scorer: Scorer) -> list[str]:
    """Return the keys given that another scorer has."""
    foreign = {key for keys in OWN_KEYS.values() for key in keys} - {*OWN_KEYS.get(scorer.name, ())}
    return sorted(foreign & scorer.model_fields_set)


def _judges_itself(
    scorer: Scorer, config: OptimizationConfig, rows: Mapping[RolloutMode, Sequence[Row]]
) -> bool:
    if scorer.name != "judge" or scorer.allow_self_judge or scorer.model is None:
        return False
    search = _with_defaults(config, rows).search
    return search.algorithm != "none" and scorer.model == search.editor_model


def _with_defaults(
    config: OptimizationConfig, rows: Mapping[RolloutMode, Sequence[Row]]
) -> OptimizationConfig:
    """Return the config with the defaults that depend on other fields or on the rows."""
    search = config.search
    open_ = "none" if _search_obstacle(config, rows) is not None else "beam"
    search = search.model_copy(
        update={
            "algorithm": search.algorithm or open_,
            "critic_model": search.critic_model or config.model,
            "editor_model": search.editor_model or config.model,
        }
    )
    rl = config.rl_optimizer
    if rl is not None and rl.rollouts is None:
        rl = rl.model_copy(update={"rollouts": len(rows[RolloutMode.TRAIN])})
    return config.model_copy(update={"search": search, "rl_optimizer": rl})


def _scoring_warnings(
    config: OptimizationConfig, rows: Mapping[RolloutMode, Sequence[Row]]
) -> list[str]:
    """Return a warning for every set with rows that a scorer cannot score."""
    return [
        f"{count} of {len(of)} rows of '{SETS[mode]}' have no 'expected' that {scorer.name} can "
        "score, and are left out of every comparison"
        for mode, of in rows.items()
        for scorer in config.scorers
        if counts(scorer) and (count := sum(not can_score(scorer, row) for row in of))
    ]
