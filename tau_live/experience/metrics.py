"""Metrics of runs of lessons: a row for each step and each epoch, and their fold."""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import comb
from pathlib import Path
from statistics import fmean

from tau_live.core.files import make_folders, write_whole
from tau_live.core.prompts import canonical_json
from tau_live.core.sanitize import JsonObject
from tau_live.experience.learner import Attempt, Group, Member
from tau_live.experience.rewards import is_informative

PER_EPOCH = "per-epoch.jsonl"
PER_STEP = "per-step.jsonl"
FOLD = "metrics.json"

SUMMED = (
    "groups", "groups_informative", "groups_invalid", "members_invalid", "repeat_draws",
    "tool_calls", "token_total", "latency_ms", "wall_ms", "quarantined",
)  # fmt: skip
"""The figures of an epoch that are the sums of its steps'."""


def pass_at(k: int, count: int, right: int) -> float:
    """Return the probability that one of ``k`` of ``count`` attempts is right.

    ``1 - C(n - c, k) / C(n, k)``.

    Source:
        Chen et al. 2021, arXiv:2107.03374, equation 1.
    """
    return 1.0 - comb(count - right, k) / comb(count, k)


def figures_of(groups: Sequence[Group], replies: Mapping[str, JsonObject]) -> JsonObject:
    """Return the figures of groups and of the learner's replies about them.

    Args:
        groups: Those of a step.
        replies: The stored replies of the learner by key.
    """
    members = [member for group in groups for member in group.members]
    valid = [[member.reward.gt or 0.0 for member in group.valid] for group in groups]
    tokens, costs = Counter[str](), defaultdict[str, float](float)
    unknown = False
    for member in members:
        if member.attempt is not None:
            tokens["rollout"] += member.attempt.input_tokens + member.attempt.output_tokens
            unknown |= member.attempt.usd is None
            costs["rollout"] += member.attempt.usd or 0.0
    latency_ms = sum(member.attempt.latency_ms for member in members if member.attempt)
    for reply in replies.values():
        role = str(reply["role"])
        tokens[role] += _int(reply["input_tokens"]) + _int(reply["output_tokens"])
        unknown |= reply["usd"] is None
        costs[role] += _float(reply["usd"])
        latency_ms += _float(reply["latency_ms"])
    tools = _tools(members)
    known = [scores for scores in valid if scores]
    full = [scores for scores in known if len(scores) > 1]
    return {
        "groups": len(groups),
        "groups_informative": sum(
            is_informative([member.reward for member in group.members]) for group in groups
        ),
        "groups_invalid": sum(len(scores) < 2 for scores in valid),
        "members_invalid": sum(member.reward.gt is None for member in members),
        "repeat_draws": len(groups) - len({group.task.query_id for group in groups}),
        "tool_calls": sum(_int(tool["calls"]) for tool in tools),
        "token_total": sum(tokens.values()),
        "cost_usd": None if unknown else sum(costs.values()),
        "latency_ms": round(latency_ms, 3),
        "rewarders_ms": round(sum(m.attempt.rewarders_ms for m in members if m.attempt), 3),
        "tools": tools,
        "tokens_by_role": dict(sorted(tokens.items())),
        "cost_by_role": None if unknown else dict(sorted(costs.items())),
        "mean_gt": fmean(score for scores in known for score in scores) if known else None,
        "pass_at_1": _mean_pass(known, 1),
        "pass_at_g": fmean(float(max(s) >= 1.0) for s in full) if full else None,
    }


def evaluation_figures(attempts: Sequence[Attempt]) -> JsonObject:
    """Return the figures of attempts that only measure."""
    tokens = sum(each.input_tokens + each.output_tokens for each in attempts)
    costs = [each.usd for each in attempts]
    is_known = None not in costs
    return {
        "attempts": len(attempts),
        "token_total": tokens,
        "cost_usd": sum(map(_float, costs)) if is_known else None,
        "latency_ms": round(sum(each.latency_ms for each in attempts), 3),
        "tokens_by_role": {"eval": tokens},
    }


def _mean_pass(groups: Sequence[Sequence[float]], k: int) -> float | None:
    shares = [pass_at(k, len(scores), sum(score >= 1.0 for score in scores)) for scores in groups]
    return fmean(shares) if shares else None


def _tools(members: Sequence[Member]) -> list[JsonObject]:
    """Return what tools were used for in all attempts, by name."""
    names = {tool.tool for member in members if member.attempt for tool in member.attempt.tools}
    rows: list[JsonObject] = []
    for name in sorted(names):
        own = [
            (tool, member.attempt)
            for member in members
            if member.attempt is not None
            for tool in member.attempt.tools
            if tool.tool == name
        ]
        rows.append(
            {
                "tool": name,
                "calls": sum(tool.calls for tool, _ in own),
                "failures": sum(tool.calls for tool, attempt in own if attempt.is_failed),
                "tokens": sum(tool.tokens for tool, _ in own),
                "cost_usd": sum(tool.cost_usd or 0.0 for tool, _ in own),
                "latency_ms": round(sum(tool.latency_ms for tool, _ in own), 3),
            }
        )
    return rows


def epoch_row(steps: Sequence[JsonObject], before: JsonObject | None) -> JsonObject:
    """Return the row of an epoch from those of its steps, and that of the epoch before."""
    last = steps[-1]
    weights = [_int(step["groups"]) for step in steps]
    row: dict[str, object] = {key: value for key, value in last.items() if key != "step"}
    for name in SUMMED:
        row[name] = sum(_float(step[name]) for step in steps)
    for name in ("mean_gt", "pass_at_1", "pass_at_g", "stamped_prompt_share"):
        pairs = [(step[name], weight) for step, weight in zip(steps, weights, strict=True)]
        known = [(_float(value), weight) for value, weight in pairs if value is not None]
        total = sum(weight for _, weight in known)
        row[name] = sum(value * weight for value, weight in known) / total if total else None
    for name in ("ops", "rejects", "tokens_by_role"):
        row[name] = _sums(step[name] for step in steps)
    costs = [step["cost_usd"] for step in steps]
    is_known = None not in costs
    row["cost_usd"] = sum(map(_float, costs)) if is_known else None
    row["cost_by_role"] = _sums(step["cost_by_role"] for step in steps) if is_known else None
    row["tools"] = _join(step["tools"] for step in steps)
    wall_ms = _float(row["wall_ms"])
    rewarders_ms = sum(_float(step["rewarders_ms"]) for step in steps)
    row["rewarders_ms"] = round(rewarders_ms, 3)
    row["rewarder_ms_share"] = rewarders_ms / wall_ms if wall_ms else 0.0
    earlier = before or {}
    row["token_delta"] = _int(row["token_total"]) - _int(earlier.get("token_total"))
    row["cost_delta_usd"] = (
        _float(row["cost_usd"]) - _float(earlier.get("cost_usd")) if is_known else None
    )
    for name in SUMMED:
        if name not in {"latency_ms", "wall_ms"}:
            row[name] = _int(row[name])
    return row


def _sums(counts: Iterable[object]) -> JsonObject:
    total: dict[str, float] = {}
    for each in counts:
        for name, value in (each if isinstance(each, Mapping) else {}).items():
            total[name] = total.get(name, 0) + value
    return dict(sorted(total.items()))


def _join(rows: Iterable[object]) -> list[JsonObject]:
    """Return the rows of tools of several steps as one row for each tool."""
    by_tool: dict[str, dict[str, float]] = {}
    for own in rows:
        for row in own if isinstance(own, list) else ():
            known = by_tool.setdefault(row["tool"], {})
            for name, value in row.items():
                if name != "tool":
                    known[name] = known.get(name, 0) + value
    return [{"tool": tool, **by_tool[tool]} for tool in sorted(by_tool)]


def _int(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0


def _float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def key_of(row: Mapping[str, object]) -> tuple[object, ...]:
    """Return what no two rows share: run, phase, epoch and step."""
    return row.get("run_id"), row.get("phase"), row.get("epoch"), row.get("step")


def rows_in(path: Path) -> Iterator[JsonObject]:
    """Yield the rows of a file one by one; a line that is no row is left out."""
    if path.exists():
        with path.open("rb") as file:
            for line in file:
                if (row := _row_of(line)) is not None:
                    yield row


def _row_of(line: bytes) -> JsonObject | None:
    try:
        row = json.loads(line) if line.endswith(b"\n") else None
    except ValueError:  # somebody edited the file
        return None
    return row if isinstance(row, dict) else None


def append_rows(path: Path, rows: Sequence[JsonObject]) -> None:
    """Append rows that the file does not have yet, each in one write.

    It reads the file line by line and keeps the keys of these rows alone.

    Raises:
        OSError: It cannot be written.
    """
    make_folders(path.parent)
    missing = {key_of(row): row for row in rows}
    runs = {str(row["run_id"]).encode() for row in rows}
    with open(path, "a+b") as file:  # noqa: PTH123  # opened once, for both
        file.seek(0)
        end = 0
        for line in file:
            if line.endswith(b"\n"):
                end += len(line)
            if any(run in line for run in runs) and (row := _row_of(line)) is not None:
                missing.pop(key_of(row), None)
        file.truncate(end)  # what a killed process left
        for row in missing.values():
            file.write(canonical_json(row) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def fold(rows: Iterable[JsonObject]) -> JsonObject:
    """Return the fold of rows of epochs: the totals of each run, and where it ended.

    It reads them one by one, and keeps a row for each run alone.
    """
    runs: dict[str, dict[str, object]] = {}
    for row in rows:
        own = runs.setdefault(
            str(row.get("run_id")),
            {"rows": 0, "token_total": 0, "cost_usd": 0.0, "groups": 0, "phases": {}},
        )
        own["rows"] = _int(own["rows"]) + 1
        own["groups"] = _int(own["groups"]) + _int(row.get("groups"))
        own["token_total"] = _int(own["token_total"]) + _int(row.get("token_total"))
        cost = row.get("cost_usd")
        is_known = cost is not None and own["cost_usd"] is not None
        own["cost_usd"] = _float(own["cost_usd"]) + _float(cost) if is_known else None
        phases = own["phases"]
        if isinstance(phases, dict):
            phases[str(row.get("phase"))] = {
                key: row.get(key)
                for key in ("epoch", "mean_gt", "pool_version", "pool_size", "gate")
            }
    return {"schema_version": 1, "runs": runs}


def write_metrics(folder: Path, epochs: Sequence[JsonObject], steps: Sequence[JsonObject]) -> None:
    """Append rows to the files of a folder, and write their fold beside them.

    Raises:
        OSError: They cannot be written.
    """
    append_rows(folder / PER_STEP, steps)
    append_rows(folder / PER_EPOCH, epochs)
    content = json.dumps(fold(rows_in(folder / PER_EPOCH)), indent=1, sort_keys=True)
    write_whole(folder / FOLD, content.encode() + b"\n")
