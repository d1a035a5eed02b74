"""Every setting: its name, variable, kind, default and meaning, defined here alone.

A field of ``Settings`` is a row of the table ``SETTINGS``: parsing, errors, ``tau-live config`` and
the generated documentation are made from it. A value comes from the environment, else from the
TOML file that ``TAU_LIVE_RL_CONFIG`` names, else from ``[tool.tau-live]`` in the nearest
``pyproject.toml`` that has one, else it is the default. A blank counts as unset.
"""

# ruff: noqa: RUF009 - ``setting`` is a dataclass field, and every default is immutable

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tau_live.core.addresses import address_in, is_remote
from tau_live.core.errors import SettingsError, suppress
from tau_live.core.processes import FOLDER
from tau_live.core.settings.kinds import (
    AUTO,
    FILE_OF_URLS,
    FLAG,
    NAMES,
    OFF,
    PATH,
    SHARE,
    SPAN,
    SPOOL,
    STORE,
    TEXT,
    WORDS,
    Setting,
    as_text,
    choice,
    construct,
    number,
    optional,
    parse_fields,
    rows_of,
    setting,
    whole,
)
from tau_live.core.settings.sources import from_environment, from_file, from_pyproject, parse_value
from tau_live.core.settings.tables import (
    CAPS,
    DECISIONS,
    MODELS,
    PRICES,
    REWARDS,
    SECONDS,
    DeclaredDecision,
    DeclaredModel,
    DeclaredPrice,
    DeclaredReward,
    HardGateCost,
    Never,
    SafetySettings,
    tables_of,
)
from tau_live.core.switch import PREFIX, Switch, switched_on

__all__ = [
    "SETTINGS", "SPOOL_SUFFIX", "Content", "DeclaredDecision", "DeclaredModel", "DeclaredPrice",
    "DeclaredReward",
    "Durability", "HardGateCost",
    "InferReward", "Learner", "Loaded", "Row", "SafetySettings", "Setting", "Settings", "Switch",
    "folder_of", "here", "in_force", "place_paths", "reach_s", "spool_of", "switched_on",
    "value_text",
]  # fmt: skip


class Content(StrEnum):
    """How much of prompts, answers and tool texts is stored."""

    NONE = "none"
    REDACTED = "redacted"


class Learner(StrEnum):
    """Where updates are made: a background thread, inside ``flush()``, or another process."""

    THREAD = "thread"
    FLUSH = "flush"
    OFF = "off"


class Durability(StrEnum):
    """The loss that a crash of the machine may cause: the last transactions, or nothing."""

    NORMAL = "normal"
    FULL = "full"


class InferReward(StrEnum):
    """When a reward is inferred from how a run went.

    Only where none is declared. ``auto``: at the end of runs that a host reports, never for those
    of ``tau_live.run``; ``end``: at the end of every run; ``deadline``: when none has come in
    time; ``off``: never.
    """

    AUTO = "auto"
    END = "end"
    DEADLINE = "deadline"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How tau-live behaves; frozen, checked, complete."""

    config: Path | None = setting(None, optional(PATH), "A TOML file with more settings.")
    store: Path = setting(
        Path(".tau/live/store.sqlite"), STORE,
        "The store: one SQLite file, or the address of a PostgreSQL database.",
        alias=f"{PREFIX}STORE_SQLITE",
    )  # fmt: skip
    spool: Path = setting(
        AUTO, SPOOL,
        "File in which agents keep what a database has yet to get; auto: where that is remote.",
    )  # fmt: skip
    spool_max_mb: float = setting(
        1024.0,
        number(above=0.0, most=1e9, expects="megabytes above 0 and at most 1e9"),
        "Size of the spool in MB beyond which whole rollouts are dropped.",
    )
    permit_s: float = setting(
        900.0, SECONDS, "How long a policy may decide without a word from the database."
    )
    stale_s: float = setting(
        86_400.0,
        SECONDS,
        "How long after its end a rollout may come out of a spool and be learned from.",
    )
    seed: int = setting(0, whole(least=0, most=2**63 - 1), "Seeds every random choice.")
    update_interval: int = setting(
        8, whole(least=1), "New rewarded rollouts that trigger an update."
    )
    max_rollouts_per_update: int = setting(
        64,
        whole(least=1),
        "New rollouts that one update learns from at most; four times as many while it is behind.",
    )
    max_failure_streak: int = setting(
        3, whole(least=1, most=1000), "Consecutive failures of one kind after which the gate holds."
    )
    record: Path | None = setting(None, optional(PATH), "A file that every event is appended to.")
    content: Content = setting(
        Content.NONE,
        choice(Content),
        "Whether texts are stored (redacted), or only their sizes and hashes (none).",
    )
    stream: str | None = setting(
        None, optional(TEXT), "Name of the stream from which runs without a key get their ids."
    )
    children: bool = setting(
        True, FLAG, "Whether child processes of an attached process are attached too."
    )
    learner: Learner = setting(
        Learner.THREAD, choice(Learner),
        "Where updates run: in a background thread, only inside flush(), or not in this process.",
    )  # fmt: skip
    decide_deadline_ms: float = setting(
        50.0,
        number(above=0.0, most=60_000.0, expects="milliseconds above 0 and at most 60000"),
        "Processor time a decision may take before the default is served.",
    )
    queue_limit: int = setting(100_000, whole(least=1), "Events that may wait in the queue.")
    payload_limit: int = setting(
        65_536, whole(least=256), "Bytes of an event beyond which it is cut."
    )
    durability: Durability = setting(
        Durability.NORMAL, choice(Durability), "Whether each commit waits for the disk (full)."
    )
    exploration: float = setting(
        0.01,
        number(least=0.0, most=0.5, expects="a number from 0 to 0.5"),
        "Share of runs in which a decision of a point is made uniformly at random.",
    )
    window: int = setting(256, whole(least=0), "Earlier rollouts that an update replays.")
    reward_deadline_s: float = setting(
        86_400.0, SECONDS, "How long to wait for a reward after the end of its rollout."
    )
    infer_reward: InferReward = setting(
        InferReward.AUTO, choice(InferReward), "When to infer a reward from how a run went."
    )
    rewards: tuple[DeclaredReward, ...] = setting((), REWARDS, "The rewards to expect.")
    reward_sources: tuple[str, ...] = setting(
        (),
        NAMES,
        "Sources that may report rewards, as names or patterns (user:*); none allows all.",
    )
    source_caps: Mapping[str, float] = setting(
        MappingProxyType({}),
        CAPS,
        "Largest share of an update's rollouts that a source may reward, by name or pattern.",
    )
    self_rewards: bool = setting(True, FLAG, "Whether code inside a run may reward that run.")
    act: bool = setting(
        False, FLAG, "Whether adapters may act at the decision points of their hosts."
    )
    decisions: tuple[DeclaredDecision, ...] = setting(
        (), DECISIONS, "Decision points of hosts, with their options."
    )
    models: tuple[DeclaredModel, ...] = setting(
        (), MODELS, "Models of `tau-live proxy` that are decided, with their upstream models."
    )
    prompts_store: Path | None = setting(
        None, optional(PATH), "The store whose adopted prompts are offered; none means STORE."
    )
    prices: tuple[DeclaredPrice, ...] = setting((), PRICES, "Token prices, by model.")
    known_prices: bool = setting(
        True, FLAG, "Whether other prices are looked up in genai-prices, where it is installed."
    )
    learn_from_host: bool = setting(
        False, FLAG, "Whether the critic learns from a host's own choices; the actor never does."
    )
    reward_range: tuple[float, float] | None = setting(
        None,
        optional(SPAN),
        "Lowest and highest total of a run; without it, declared ranges add up. It clips nothing.",
    )
    earlier_choices: bool = setting(
        True,
        FLAG,
        "Whether a decision sees, as part of its context, what its run chose at other points.",
    )
    control_share: float = setting(
        0.0,
        number(least=0.0, most=0.5, expects="a number from 0 to 0.5"),
        "Share of rollouts held back for the control.",
    )
    promote_margin: float = setting(
        0.0,
        number(least=0.0, expects="a finite number of at least 0"),
        "How much better than the control the learner must be, in units of reward.",
    )
    probation: int = setting(
        2_000,
        whole(least=0),
        "Rollouts during which a replaced champion keeps 5 percent of the traffic.",
    )
    keep_checkpoints: int = setting(
        10,
        whole(least=2),
        "Newest checkpoints to keep, over all points; those in use are always kept.",
    )
    retention_days: float | None = setting(
        None,
        optional(number(above=0.0, most=1e6, expects="days above 0 and at most 1e6")),
        "Days after which learned rollouts are deleted.",
    )
    retention_rollouts: int | None = setting(
        None,
        optional(whole(least=1)),
        "Number of rollouts beyond which the oldest learned ones are deleted.",
    )
    retention_mb: float | None = setting(
        None,
        optional(number(above=0.0, most=1e9, expects="megabytes above 0 and at most 1e9")),
        "Size in MB of a store in a file beyond which the oldest learned rollouts are deleted.",
    )
    lease_ttl_s: float = setting(
        30.0, SECONDS, "How long the lease of a dead learner blocks others."
    )
    require_proof: bool = setting(
        False, FLAG, "Whether a champion is made by hand only on a proof that passes."
    )
    cost_limit: float | None = setting(
        None, optional(SHARE), "Largest acceptable mean safety cost of a rollout."
    )
    missing_reward_limit: float | None = setting(
        None, optional(SHARE), "Share of missing rewards above which the gate holds."
    )
    entropy_floor: float | None = setting(
        None,
        optional(SHARE),
        "Entropy of choices, as a share of the maximum, below which the gate holds.",
    )
    option_share_limit: float | None = setting(
        None, optional(SHARE), "Share of a single option above which the gate holds."
    )
    reward_spread_floor: float | None = setting(
        None,
        optional(number(above=0.0, expects="a finite number above 0")),
        "Standard deviation of rewards below which the gate holds.",
    )
    source_share_limit: float | None = setting(
        None, optional(SHARE), "Share of a single reward source above which the gate holds."
    )
    drift_holds: bool = setting(False, FLAG, "Whether the gate holds when an option becomes worse.")
    audit_key_file: Path | None = setting(
        None, optional(PATH), "A file with the key that rows are sealed with; created if missing."
    )
    kill_file: Path | None = setting(
        None,
        optional(PATH),
        "While this file exists, everything stops; by default the store's name plus `.off`.",
    )
    access: Path | None = setting(
        None,
        optional(PATH),
        "A JSON file with access rules; without one, every user may do everything.",
    )
    principal: str | None = setting(None, optional(TEXT), "The caller's name in the access file.")
    alert_command: tuple[str, ...] = setting(
        (), WORDS, "Command that each alert is passed to, without a shell."
    )
    alert_urls: Path | None = setting(
        None,
        FILE_OF_URLS,
        "A file of Apprise URLs, one a line, to which each alert is sent (needs apprise).",
    )
    alert_timeout_s: float = setting(
        30.0, SECONDS, "Seconds after which the delivery of an alert is killed."
    )
    plugins_off: tuple[str, ...] = setting((), NAMES, "Plugins not to load.")
    safety: SafetySettings = field(default_factory=SafetySettings)

    def __post_init__(self) -> None:
        parse_fields(self, "{}")
        if self.update_interval > self.max_rollouts_per_update:
            raise SettingsError(
                f"{PREFIX}UPDATE_INTERVAL cannot be greater than {PREFIX}MAX_ROLLOUTS_PER_UPDATE, "
                f"got {self.update_interval} and {self.max_rollouts_per_update}"
            )

    def doubts(self) -> list[str]:
        """Return warnings about settings that are valid but have no effect."""
        has_cost = any(reward.cost for reward in self.rewards)
        doubts = []
        if not (
            self.cost_limit is None or has_cost or self.safety.hard_gate_cost is not HardGateCost.NO
        ):
            why = f"no reward is declared with cost = true, and {PREFIX}SAFETY_HARD_GATE_COST is no"
            doubts.append(f"{PREFIX}COST_LIMIT limits nothing: {why}")
        if self.retention_mb is not None and address_in(self.store) is not None:
            why = f"a database has {PREFIX}RETENTION_DAYS and {PREFIX}RETENTION_ROLLOUTS"
            doubts.append(f"{PREFIX}RETENTION_MB limits nothing: {why}")
        return doubts

    @classmethod
    def from_env(cls, environ: Mapping[str, str], *, directory: Path | None = None) -> "Loaded":
        """Return the settings in force, the source of each, and warnings.

        Args:
            environ: The environment.
            directory: Folder in which the search for ``pyproject.toml`` begins, and to which a
                relative ``TAU_LIVE_RL_CONFIG`` refers; ``None`` searches nothing.

        Raises:
            SettingsError: A value or a file is wrong; one line that names it.
        """
        warnings = list(switched_on(environ).warnings)
        raw = {} if directory is None else from_pyproject(SETTINGS, directory, warnings)
        environment = from_environment(SETTINGS, environ, warnings)
        if "config" in environment:
            named = parse_value(SETTINGS[0], environment["config"])
            if isinstance(named, Path):
                raw |= from_file(SETTINGS, (directory or Path()) / named, warnings)
        raw |= environment

        values = [(row, parse_value(row, raw[row.name])) for row in SETTINGS if row.name in raw]
        safety = {row.field: value for row, value in values if row.group}
        own = {row.field: value for row, value in values if not row.group}
        settings = construct(cls, {**own, "safety": construct(SafetySettings, safety)})
        sources = {row.name: "default" for row in SETTINGS}
        return Loaded(settings, sources | {name: raw[name].source for name in raw}, warnings)


SETTINGS: tuple[Setting, ...] = (*rows_of(Settings), *rows_of(SafetySettings, "safety"))
"""Every setting, in the order of the documentation; ``config`` comes first."""


def value_text(row: Setting, settings: Settings) -> str:
    """Return the value of a row as it could be written into its variable."""
    value = getattr(getattr(settings, row.group) if row.group else settings, row.field)
    if row.field in {"rewards", "decisions", "models", "prices"}:
        omit = (None, ()) if row.field == "rewards" else (None,)
        value = tables_of(value, omit=omit)
    elif row.field != "alert_command" or not value:
        return as_text(value)
    return json.dumps(value, ensure_ascii=False, default=_to_json)


def _to_json(value: object) -> object:
    if isinstance(value, Never):
        return {"option": value.option, "where": value.where}
    return dict(value) if isinstance(value, Mapping) else str(value)


class Row(NamedTuple):
    """A setting as ``tau-live config`` prints it."""

    name: str
    value: str
    source: str


class Loaded(NamedTuple):
    """Settings, the source of each by its name, and warnings for the operator."""

    settings: Settings
    sources: Mapping[str, str]
    warnings: list[str]

    def doubts(self) -> list[str]:
        """Return the warnings, and those about settings that do not fit together."""
        return [*self.warnings, *self.settings.doubts()]

    def rows(self) -> Iterator[Row]:
        """Yield every setting by name, with its value as text and its source."""
        for row in SETTINGS:
            yield Row(row.name, value_text(row, self.settings), self.sources[row.name])


def here() -> Path | None:
    """Return the current folder; ``None`` if it was removed."""
    with suppress(OSError):
        return Path.cwd()
    return None


def folder_of(environ: Mapping[str, str]) -> Path | None:
    """Return the folder to which relative paths refer: the parent's, or the current one."""
    return Path(environ[FOLDER]) if environ.get(FOLDER) else here()


def in_force(environ: Mapping[str, str]) -> Loaded:
    """Return the settings in an environment; those of a child are placed as its parent's are.

    Raises:
        SettingsError: A value or a file is wrong; one line that names it.
    """
    loaded = Settings.from_env(environ, directory=folder_of(environ))
    if not environ.get(FOLDER):
        return loaded
    placed = place_paths(loaded.settings, folder_of(environ))
    return Loaded(placed, loaded.sources, loaded.warnings)


SPOOL_SUFFIX = ".spool.sqlite"
"""How the name of the spool ends beside the file that holds an address."""


def spool_of(settings: Settings) -> Path | None:
    """Return the file of the spool; ``None`` without one, as with a store in a file."""
    address = None if settings.spool == OFF else address_in(settings.store)
    if address is None or (settings.spool == AUTO and not is_remote(address)):
        return None
    beside = settings.store.with_suffix(SPOOL_SUFFIX)
    return beside if settings.spool == AUTO else settings.spool


def reach_s(settings: Settings) -> float:
    """Return the seconds in which a hold reaches every process, at the latest."""
    spools = settings.spool != OFF and address_in(settings.store) is not None
    return max(1.0, settings.permit_s) if spools else 1.0


def place_paths(settings: Settings, folder: Path | None = None) -> Settings:
    """Return the settings with absolute paths, which hold when the process changes its folder.

    Args:
        settings: The settings, with paths as they were given.
        folder: Relative paths refer to it; ``None`` is the current one.

    Raises:
        SettingsError: The store's path is relative, and the current folder is gone.
    """
    folder = folder or here()
    if folder is None and not settings.store.is_absolute():
        raise SettingsError(
            f"TAU_LIVE_RL_STORE is the relative path '{settings.store}', and the current folder "
            "no longer exists: set an absolute path"
        )
    if folder is None:
        return settings

    def absolute(path: Path | None) -> Path | None:
        return None if path is None else folder / path

    return replace(
        settings,
        store=folder / settings.store,
        spool=settings.spool if settings.spool in {AUTO, OFF} else folder / settings.spool,
        record=absolute(settings.record),
        kill_file=absolute(settings.kill_file),
        audit_key_file=absolute(settings.audit_key_file),
        alert_urls=absolute(settings.alert_urls),
        prompts_store=absolute(settings.prompts_store),
    )
