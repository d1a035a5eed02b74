"""The manifest of a run of lessons: everything that it did, from what is stored."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tau_live.core.files import make_folders, write_whole
from tau_live.core.sanitize import JsonObject
from tau_live.experience.log import Log
from tau_live.operate.optimizations import budget_of
from tau_live.prompts.models import BUDGET
from tau_live.store.records import Optimization, OptimizationState, StepRow

SCHEMA_VERSION = 1


def status_of(run: Optimization) -> str:
    """Return how a run stands: ``running``, ``completed``, ``budget_exhausted`` and so on."""
    if run.state is OptimizationState.COMPLETED:
        return BUDGET if run.reason_code == BUDGET else "completed"
    if run.state in {OptimizationState.CANCELLED, OptimizationState.CANCELLING}:
        return "cancelled"
    return "failed" if run.state is OptimizationState.FAILED else "running"


def manifest_of(
    run: Optimization, steps: Sequence[StepRow], log: Log, rows: Sequence[JsonObject]
) -> JsonObject:
    """Return the manifest of a run.

    Args:
        run: The run.
        steps: Its steps.
        log: The chains.
        rows: The rows of its epochs and gates.
    """
    inputs = _object(run.report.get("inputs"))
    packs = inputs.get("packs")
    train = [step for step in steps if step.phase == "train"]
    test = next((step.content for step in steps if step.phase == "test"), None)
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": run.run_id,
        "task_id": run.config["task_id"],
        "status": status_of(run),
        "reason_code": run.reason_code,
        "error": run.error,
        "config": run.config,
        "seed": run.config["seed"],
        **{key: value for key, value in inputs.items() if key != "packs"},
        "pack": packs[0] if isinstance(packs, list) and len(packs) == 1 else packs,
        "key_id": log.keys.key_id,
        "heads": {chain: msgspec.to_builtins(head) for chain, head in log.heads.items()},
        "epochs": _epochs(run, rows),
        "experiences": _experiences(train),
        "rewards": _by_epoch(train, "rewards"),
        "tools": {str(row["epoch"]): row["tools"] for row in rows if row["phase"] == "train"},
        "assignments": [group for step in train for group in _list(step.content["groups"])],
        "validation": [row for row in rows if row["phase"] == "validation"],
        "final": None if test is None else {**test, **_object(test["row"])},
        "costs": {str(row["epoch"]): row.get("cost_usd") for row in rows if "cost_usd" in row},
        "budget": budget_of(run),
        "preflight": run.report.get("preflight"),
        "started": run.created_at,
        "ended": run.ended_at,
        "resumed": run.report.get("resumed", []),
    }


def write_manifest(runs: Path, manifest: JsonObject) -> None:
    """Write the manifest of a run below the folder of all runs.

    Raises:
        OSError: It cannot be written.
    """
    path = runs / "cli" / str(manifest["run_id"]) / "manifest.json"
    make_folders(path.parent)
    write_whole(path, json.dumps(manifest, indent=1, ensure_ascii=False).encode() + b"\n")


def _epochs(run: Optimization, rows: Sequence[JsonObject]) -> list[JsonObject]:
    """Return an entry for each epoch that has ended."""
    before: object = run.incumbent
    after = {row["epoch"]: row["pool_version"] for row in rows if row["phase"] == "validation"}
    entries: list[JsonObject] = []
    for row in rows:
        if row["phase"] == "train":
            pool_after = after.get(row["epoch"], row["pool_version"])
            entries.append(
                {
                    "epoch": row["epoch"],
                    "temperature": row["temperature"],
                    "mode": "train",
                    "groups": row["groups"],
                    "metrics": row,
                    "gate": row["gate"],
                    "pool_before": before,
                    "pool_after": pool_after,
                }
            )
            before = pool_after
    return entries


def _experiences(train: Sequence[StepRow]) -> JsonObject:
    """Return which lessons were injected and withheld, written and refused, by epoch."""
    written: list[object] = []
    rejected = Counter[str]()
    quarantined: object = 0
    used: dict[str, dict[str, Counter[tuple[str, int]]]] = {}
    for step in train:
        own = used.setdefault(str(step.epoch), {"injected": Counter(), "withheld": Counter()})
        for group in _list(step.content["groups"]):
            for side, counts in own.items():
                counts.update((id_, version) for id_, version in group[side])
        written += _list(step.content["written"])
        row = _object(step.content["row"])
        rejected.update(_object(row["rejects"]))
        quarantined = row["quarantined"]
    return {
        "by_epoch": {
            epoch: [
                {
                    "id": id_,
                    "version": version,
                    "injected_in_groups": sides["injected"][id_, version],
                    "withheld_in_groups": sides["withheld"][id_, version],
                }
                for id_, version in sorted({*sides["injected"], *sides["withheld"]})
            ]
            for epoch, sides in used.items()
        },
        "written": written,
        "rejected": dict(sorted(rejected.items())),
        "quarantined": quarantined,
    }


def _by_epoch(train: Sequence[StepRow], key: str) -> JsonObject:
    """Return the rewards of epochs by rewarder: the mean over all steps, and over how many."""
    epochs: dict[str, dict[str, list[tuple[float, int]]]] = {}
    for step in train:
        for name, figures in _object(step.content[key]).items():
            own = _object(figures)
            mean, count = own["mean"], own["count"]
            if isinstance(mean, int | float) and isinstance(count, int):
                epochs.setdefault(str(step.epoch), {}).setdefault(name, []).append((mean, count))
    return {
        epoch: [
            {
                "rewarder_id": name,
                "mean": sum(mean * count for mean, count in pairs) / sum(n for _, n in pairs),
                "count": sum(count for _, count in pairs),
                "evidence_path": "evidence",
            }
            for name, pairs in sorted(rewarders.items())
        ]
        for epoch, rewarders in epochs.items()
    }


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Mapping[str, list[tuple[str, int]]]]:
    return value if isinstance(value, list) else []
