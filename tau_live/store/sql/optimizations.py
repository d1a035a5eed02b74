"""Optimizations of prompts, and their candidates, in SQLite."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from tau_live.core.errors import UnknownError
from tau_live.core.records import ROLLOUT_ENDS
from tau_live.core.sanitize import JsonObject
from tau_live.store.records import (
    Candidate,
    ItemCounts,
    ItemFailure,
    Limits,
    Optimization,
    OptimizationState,
)
from tau_live.store.sql.connection import Connection, Value, json_of
from tau_live.store.sql.rows import columns_of, columns_of_row, record_of, sound

MOST_FAILURES = 3
"""The most errors of items that a report names."""

PREFIXES = {"optimize": "opt", "experience": "tfg"}
"""What the id of a run begins with, by its kind."""

OPTIMIZING: Sequence[str] = (
    """
    create table optimizations (
        seq integer primary key,
        run_id text not null unique,
        config_digest text not null,
        config_path text not null,
        config text not null,
        model_ref text not null,
        store_path text not null,
        state text not null,
        phase text not null,
        reason_code text,
        error text,
        control text not null,
        owner text,
        created_at real not null,
        ended_at real,
        seconds real not null,
        resources text not null,
        incumbent text not null,
        report text not null,
        calls integer not null,
        rollouts integer not null,
        tokens integer not null,
        tokens_reserved integer not null,
        usd real not null,
        usd_reserved real not null
    ) strict
    """,
    "create index optimizations_by_config on optimizations (config_digest)",
    """
    create table candidates (
        seq integer primary key,
        run_id text not null references optimizations (run_id),
        label text not null,
        version text,
        text text,
        parent text,
        round integer not null,
        state text not null,
        why text,
        details text not null,
        made_at real not null,
        unique (run_id, label)
    ) strict
    """,
    "create index candidates_by_version on candidates (version)",
    """
    create index candidates_by_state on candidates (state)
    where state in ('adopted', 'champion', 'withdrawn')
    """,
    "create index rollouts_by_queue on rollouts (queue, status) where mode is not null",
)
"""The tables of optimizations."""

RESERVE = f"""
update optimizations set calls = calls + 1, tokens_reserved = tokens_reserved + :tokens,
    usd_reserved = usd_reserved + :usd
where run_id = :run_id
and (:most_calls is null or calls + 1 <= :most_calls)
and (:most_tokens is null or tokens + tokens_reserved + :tokens <= :most_tokens)
and (:most_usd is null or usd + usd_reserved + :usd <= :most_usd * {1 + 1e-9!r})
"""
"""Takes room for a model call, if there is; sums of floats are off by less than the tolerance."""

SETTLE = """
update optimizations set tokens = tokens + :tokens, usd = usd + :usd,
    tokens_reserved = max(0, tokens_reserved - :tokens_reserved),
    usd_reserved = max(0.0, usd_reserved - :usd_reserved)
where run_id = :run_id
"""

TOLERANCE = 1e-9
"""By how much a sum of floats may be off."""

SPEND = f"""
update optimizations set usd = usd + :usd where run_id = :run_id
and (:most_usd is null or usd + usd_reserved + :usd <= :most_usd * {1 + TOLERANCE!r})
"""

USE_TOOL = """
insert into tool_use (run_id, tool, calls, usd) values (:run_id, :tool, 1, :usd)
on conflict (run_id, tool) do update set
    calls = tool_use.calls + 1, usd = tool_use.usd + excluded.usd
"""

PUBLISHED = """
select version, state from candidates
where state in ('adopted', 'champion', 'withdrawn') and version is not null order by seq
"""

COUNT_ITEMS = """
select count(*), coalesce(sum(status = 'succeeded'), 0), coalesce(sum(status = 'failed'), 0),
    coalesce(sum(status = 'cancelled'), 0),
    cast(coalesce(sum(max(attempt_count - 1, 0)), 0) as integer),
    coalesce(sum(status = 'failed' and output is null), 0)
from rollouts where queue = :run_id and mode is not null
"""


FAILURES = """
select coalesce(error_message, 'unknown') as error, count(*) as items
from rollouts join attempts
    on attempts.rollout_seq = rollouts.seq and attempts.number = rollouts.attempt_count
where queue = :run_id and mode is not null and rollouts.status = 'failed'
group by error order by items desc, error limit :most
"""


class Optimizations:
    """Optimizations and their candidates; items are rollouts in the queue of the run's id."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(self, new: Optimization) -> Optimization:
        """Store a new run; its id is completed by its number among those of its config."""
        with self._connection.begin():
            number = 1 + self._connection.count(
                "select count(*) from optimizations where config_digest = ?", (new.config_digest,)
            )
            run = replace(new, run_id=f"{PREFIXES[new.kind]}-{new.config_digest[:12]}-{number}")
            columns = columns_of(run)
            self._connection.change(
                f"insert into optimizations ({', '.join(columns)}) "
                f"values ({', '.join(f':{name}' for name in columns)})",
                columns,
            )
        return run

    def run(self, run_id: str) -> Optimization:
        """Return a run. Raises: UnknownError."""
        row = self._connection.row("select * from optimizations where run_id = ?", (run_id,))
        if row is None:
            raise UnknownError("optimization", run_id)
        return record_of(Optimization, row)

    def runs(self, kind: str | None = None, *, limit: int | None = None) -> list[Optimization]:
        """Return the runs of a kind, of any if none is named, newest first."""
        rows = self._connection.rows(
            "select * from optimizations where kind = coalesce(?, kind) order by seq desc limit ?",
            (kind, -1 if limit is None else limit),
        )
        return sound(rows, partial(record_of, Optimization))

    def state(self, run_id: str) -> OptimizationState:
        """Return the state of a run (cheap). Raises: UnknownError."""
        row = self._connection.row("select state from optimizations where run_id = ?", (run_id,))
        if row is None:
            raise UnknownError("optimization", run_id)
        return OptimizationState(row["state"])

    def change(
        self,
        run_id: str,
        *,
        states: Collection[OptimizationState] = tuple(OptimizationState),
        **columns: Value | JsonObject,
    ) -> bool:
        """Set columns of a run if it is in one of some states; ``False`` if it is not."""
        sets = ", ".join(f"{name} = :{name}" for name in columns)
        values = {
            name: json_of(value) if isinstance(value, Mapping) else value
            for name, value in columns.items()
        }
        changed = self._connection.change(
            f"""
            update optimizations set {sets} where run_id = :run_id_of
            and state in (select value from json_each(:states_of))
            """,
            {**values, "run_id_of": run_id, "states_of": json_of(list(states))},
        )
        return changed > 0

    def amend_report(self, run_id: str, **parts: object) -> None:
        """Set parts of the report of a run."""
        with self._connection.begin():
            report = {**self.run(run_id).report, **parts}
            self.change(run_id, report=report)

    def lead(self, run_id: str, seconds: float) -> None:
        """Add to how long a process has led a run."""
        self._connection.change(
            "update optimizations set seconds = seconds + ? where run_id = ?", (seconds, run_id)
        )

    def reserve(self, run_id: str, limits: Limits, *, tokens: int, usd: float) -> bool:
        """Take room for a model call in the budget; ``False`` if there is too little.

        Args:
            run_id: The run.
            limits: Its budget.
            tokens: The most tokens that it may use.
            usd: The most US dollars that it may cost.
        """
        taken = self._connection.change(
            RESERVE,
            {
                "run_id": run_id, "tokens": tokens, "usd": usd, "most_calls": limits.calls,
                "most_tokens": limits.tokens, "most_usd": limits.usd,
            },
        )  # fmt: skip
        return taken > 0

    def settle(
        self, run_id: str, *, tokens: int, usd: float, tokens_reserved: int, usd_reserved: float
    ) -> None:
        """Give back the room of a call that has returned, and add what it used."""
        self._connection.change(
            SETTLE,
            {
                "run_id": run_id, "tokens": tokens, "usd": usd,
                "tokens_reserved": tokens_reserved, "usd_reserved": usd_reserved,
            },
        )  # fmt: skip

    def begin_tool(self, run_id: str, tool: str, limits: Limits, *, usd: float) -> bool:
        """Count a call of a tool; ``False`` if the budget has no room for it.

        Args:
            run_id: The run.
            tool: The tool.
            limits: Its budget.
            usd: What the call costs, in US dollars.
        """
        own = limits.tools.get(tool, {})
        values: dict[str, Value] = {
            "run_id": run_id, "tool": tool, "usd": usd, "most_usd": limits.usd
        }  # fmt: skip
        with self._connection.begin():
            used = self._connection.row(
                "select calls, usd from tool_use where run_id = :run_id and tool = :tool", values
            )
            calls, spent = (0, 0.0) if used is None else (used["calls"], used["usd"])
            calls_left = own.get("calls") is None or calls + 1 <= (own["calls"] or 0)
            usd_left = own.get("usd") is None or spent + usd <= (own["usd"] or 0.0) + TOLERANCE
            if not (calls_left and usd_left and self._connection.change(SPEND, values)):
                return False
            self._connection.change(USE_TOOL, values)
        return True

    def tools(self, run_id: str) -> dict[str, tuple[int, float]]:
        """Return how often each tool was called through the budget, and what that cost in USD."""
        rows = self._connection.rows(
            "select tool, calls, usd from tool_use where run_id = ? order by tool", (run_id,)
        )
        return {row["tool"]: (row["calls"], row["usd"]) for row in rows}

    def begin_item(self, run_id: str, limits: Limits) -> bool:
        """Count an item; ``False`` if the budget has no room for it."""
        counted = self._connection.change(
            """
            update optimizations set rollouts = rollouts + 1 where run_id = :run_id
            and (:most is null or rollouts + 1 <= :most)
            """,
            {"run_id": run_id, "most": limits.rollouts},
        )
        return counted > 0

    def items(self, run_id: str) -> ItemCounts:
        """Return how many items a run has, by what became of them."""
        row = self._connection.row(COUNT_ITEMS, {"run_id": run_id})
        return columns_of_row(ItemCounts, "rollouts", row or (), key=run_id)

    def failures(self, run_id: str, *, most: int = MOST_FAILURES) -> list[ItemFailure]:
        """Return the errors that items of a run failed with, the most frequent first."""
        rows = self._connection.rows(FAILURES, {"run_id": run_id, "most": most})
        return [ItemFailure(row["error"], row["items"]) for row in rows]

    def late_results(self, run_id: str) -> int:
        """Return how many results of its attempts came too late to count."""
        return self._connection.count(
            """
            select count(*) from recorded_spans join rollouts on rollouts.seq = rollout_seq
            where rollouts.queue = ? and rollouts.mode is not null and kind = 'result'
            """,
            (run_id,),
        )

    def has_open_items(self, run_id: str) -> bool:
        """Return whether an item of a run has not ended (cheap, however many there are)."""
        return bool(
            self._connection.count(
                """
                select exists (
                    select 1 from rollouts where queue = ? and mode is not null
                    and status in ('queuing', 'preparing', 'running', 'requeuing')
                )
                """,
                (run_id,),
            )
        )

    def open_items(self, run_id: str) -> list[str]:
        """Return the ids of the items of a run that have not ended."""
        rows = self._connection.rows(
            """
            select rollout_id from rollouts where queue = ? and mode is not null
            and status not in (select value from json_each(?)) order by seq
            """,
            (run_id, json_of(sorted(ROLLOUT_ENDS))),
        )
        return [row["rollout_id"] for row in rows]

    def keep(self, candidate: Candidate) -> None:
        """Store a candidate, or its new state, reason and details."""
        columns = columns_of(candidate)
        self._connection.change(
            f"""
            insert into candidates ({", ".join(columns)})
            values ({", ".join(f":{name}" for name in columns)})
            on conflict (run_id, label) do update set state = excluded.state, why = excluded.why,
                details = excluded.details
            """,
            columns,
        )

    def candidates(self, run_id: str | None = None) -> list[Candidate]:
        """Return the candidates of a run, or of all, in the order in which they were made."""
        rows = self._connection.rows(
            "select * from candidates where :run_id is null or run_id = :run_id order by seq",
            {"run_id": run_id},
        )
        return sound(rows, partial(record_of, Candidate))

    def prompt_states(self) -> dict[str, str]:
        """Return ``adopted``, ``champion`` or ``withdrawn`` of each prompt that was adopted."""
        return {row["version"]: row["state"] for row in self._connection.rows(PUBLISHED)}

    def set_prompt_state(self, version: str, state: str, *, why: str | None = None) -> bool:
        """Set the state of a prompt that was adopted; ``False`` if it has it, or never was."""
        changed = self._connection.change(
            """
            update candidates set state = :state, why = :why
            where version = :version and state in ('adopted', 'champion', 'withdrawn')
            and state <> :state
            """,
            {"version": version, "state": state, "why": why},
        )
        return changed > 0
