"""JSON schemas of what commands print, made from the documented keys and a table of types.

Those of payloads and artifacts are made from their structs.

``python -m tests.schemas`` writes them into ``docs/schemas``; a test says when that is due.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tau_live.cli.json_keys import KEYS
from tau_live.evidence import (
    artifacts,
    drill,
    gate,
    index,
    operations,
    payloads,
    proof,
    records,
    reports,
    suites,
    summary,
)
from tau_live.evidence.drill import documents as drill_documents
from tau_live.evidence.operations import documents as operations_documents
from tau_live.rl import criteria, stability

FOLDER = Path(__file__).parents[1] / "docs/schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, object]

WHOLE = """
    archived attempt attempts attempt_count bad bad_lines became_ready bytes_after bytes_before
    cancelled
    checkpoints completed control costs count counters days decisions decisions_before drops events
    failed first first_ready forgettable kept known last last_ready learner left_out limit line
    lineage lines lived log looked_at not_learned_from number of open options ordinal page parent
    points_left_out policy_version previous read ready_seq ready_to_learn revision rewards rollouts
    rows samples seals seen seq spans streaks succeeded test total trajectories
    round requeued missing late_results total_rollouts schema_version updated_unix_ms seed
    cases episodes planned_pairs recorded repeats seeds
    started_unix_ms ended_unix_ms done calls tokens tokens_reserved audit_seq
    uncounted without_key unexplored unlearned untaught update updates used version waiting
    waiting_for_reward
    outliers outside was with_propensity without_choice champion refused
    shipped ready unsent hosts_held
"""
NUMBER = """
    usd usd_reserved made_at temperature
    advantage agreement at before began_at confidence cost cost_multiplier created_at difference
    effective_sample_size ended_at entropy estimate expected exposure high information
    reaches_within_s oldest_at heard_at
    interval_s largest_weight last_heartbeat_at latency_us lines_per_s logged lower low mb mean
    mean_total_loss mean_weight median observed_approx_kl option_share place probability propensity
    control_share margin median_days ninetieth ninetieth_days spread
    return reward reward_mean reward_spread run_reward share shift since sources standard_error
    highest_reward lowest_reward highest lowest
    last_reward_at started_at total_reward upper used_mb value happened seconds difference silent
"""
WORDS = """
    run_state model_ref store_path config_digest phase reason_code error principal lifecycle_state
    resource
    reward_made_up queue family generated_at inputs_sha256 level message pointer problems
    proof_sha256 report_kind seed_kind overall_status suite_id suite_version torn
    action advice algorithm answer applied arm audit changed check children chosen code column
    comment decision_id default detail diff direction doubts error_message error_type event
    execution file files format found fragment gate head help host imported key key_id kind label
    left_alone mistake mode name next option outcome output over owner parent_id parent_span_id
    path plugin point points policy problem processes reason rollout_id run_id notes sentence
    role sent stores upstream url session_id severity sha256 skipped_reason source span_id state
    status stopped store subject
    text todo type unseen unused variable verdict warnings what who why why_not worker_id worst
"""
TRUTH = """
    command declared dry_run early_stop_triggered enabled executed idempotent in_force in_service
    ladder
    more has_file ok pinned plain range_observed ready sound stored valid
"""
NULL = """
    advantage advice agreement audit before began_at bernstein bootstrap champion column comment
    control cost created_at days decision_id decisions_before default_ detail difference ended_at
    entropy error_message error_type estimate exposure expected first host key_id kind label
    last last_heartbeat_at learner log lower mb mean mean_total_loss median mistake mode
    observed_approx_kl option option_share output owner parent parent_id parent_span_id place point
    previous problem propensity ready_seq reason refused return reward reward_mean reward_spread
    rollouts role run_reward session_id sha256 share since skipped_reason standard_error started_at
    last_reward_at stopped total_reward update upper value verdict version why why_not worker_id
    chosen applied ended_unix_ms reason_code error
    reward_made_up queue
    default allowed exploit_only probabilities information median_days ninetieth
    ninetieth_days spread low high used_mb shift
    highest_reward lowest_reward
"""
"""Keys whose value may be null."""

LISTS: Mapping[str, str] = {
    "options": "string", "allowed": "string", "exploit_only": "string", "probabilities": "number",
    "bernstein": "number", "bootstrap": "number", "reward_range": "number",
}  # fmt: skip
"""Keys whose value is a list although their path does not say so."""

TEXT, MAYBE_TEXT, MAYBE_NUMBER = "string", ["string", "null"], ["number", "null"]
LESSONS: Mapping[str, object] = {
    **dict.fromkeys(
        ("run_id", "state", "phase", "group_id", "domain", "kind", "when", "summary32", "name",
         "pack_digest", "model_id", "key_id", "prev_stamp", "stamp_signature", "chain", "content",
         "reason", "folder", "digest", "stamp", "record", "id"), TEXT,
    ),
    **dict.fromkeys(
        ("reason_code", "error", "ship", "manifest", "pool_version", "text"), MAYBE_TEXT
    ),
    **dict.fromkeys(("uplift", "harm"), MAYBE_NUMBER),
    **dict.fromkeys(
        ("epochs", "steps", "schema_version", "version", "epoch", "words", "created_unix_ms",
         "exposures", "withheld", "lessons", "quarantined", "seq", "lesson_seq", "number",
         "audit_seq"), "integer",
    ),
    **dict.fromkeys(("in_force", "idempotent", "valid"), "boolean"),
    **{key: ["integer", "null"] for key in ("lessons[].before", "lessons[].after")},
    "before": TEXT, "after": TEXT, "at": "number",
}  # fmt: skip
"""The types of keys of ``tau-live experience``, by path or its last part."""

EXACT: Mapping[str, object] = {
    **{
        f"{command}:{path}": LESSONS.get(path) or LESSONS[path.rpartition(".")[2]]
        for command, keys in KEYS.items()
        if command.startswith(("experience ", "start"))
        for path in keys
        if path in LESSONS or path.rpartition(".")[2] in LESSONS
    },
    "rollouts[].resources.*": "integer",
    **{f"{part}version": ["string", "null"] for part in ("lineage[].", "prompts[].")},
    **{f"{part}parent": ["string", "null"] for part in ("lineage[].", "prompts[].")},
    **{f"{part}text": ["string", "null"] for part in ("lineage[].", "prompts[].")},
    "prompts[].resource": ["string", "null"],
    "optimize rollback:run_id": ["string", "null"],
    "optimize rollback:lifecycle_state": ["string", "null"],
    **{f"{part}open": "integer" for part in ("", "runs[].")},
    **{f"{part}owner": ["string", "null"] for part in ("", "runs[].")},
    "rollout.resources.*": "integer",
    "prompts.*.exposure": "number",
    "prompts.*.offered": "integer",
    "prompts.*.withheld": "integer",
    "prompts.*.lift": ["number", "null"],
    "agreement.*.host.*": "number",
    "alert.version": "string",
    "trials.*.missing.learner": ["number", "null"],
    "trials.*.missing.control": ["number", "null"],
    "gate reset:was": "string",
    "gate hold:was": "string",
    "counters_grew.*": ["number", "null"],
    "files[].expected": ["string", "null"],
    "set-aside:kept[]": "string",
    "points[].options[]": "string",
    "points[].contexts[].values[].value": "string",
    "points[].compared[].refused": ["string", "null"],
    "decisions.refused[]": "string",
    "rollouts.refused[]": "string",
    "changed": "boolean",
    "control": ["integer", "null"],
    "evaluate:log": ["string", "null"],
    "import-log:bad[].column": ["string", "integer", "null"],
    "init:hosts[].version": ["string", "null"],
    "store_fails": ["string", "null"],
    "rewards_seen.lowest": ["number", "null"],
    "rewards_seen.highest": ["number", "null"],
    "mean_reward.first": ["number", "null"],
    "mean_reward.last": ["number", "null"],
    "replay:bad[]": "array",
    "alert.test": "boolean",
    "alerts[].over": "boolean",
    "power:missing": "number",
    "verify:not_covered": "string",
    "status:learner": ["string", "null"],
    "config:settings[].value": "string",
    "why:recomputed.terms.*": "array",
    "bench freeze:model_ref": ["string", "null"],
    "bench run:executed": "integer",
    "bench report:page": "string",
    **{f"bench {verb}:moves[].to": ["string", "null"] for verb in ("publish", "archive", "gc")},
    **{
        f"bench index:entries[].{name}": ["string", "null"]
        for name in ("archive_path", "archive_due", "purge_due")
    },
    "bench index:entries[].pass": ["boolean", "null"],
    "bench index:scanned": "integer",
    "bench index:valid": "integer",
    "bench index:invalid_ratio": "number",
    "bench index:pass": "boolean",
    "bench index:reason_codes[]": "string",
    "bench repeatability:max_observed_range": "number",
    "bench repeatability:tolerance": "number",
    "bench repeatability:within_tolerance": "boolean",
    "bench drill:pass": "boolean",
    "bench gate:generated_at_epoch_ms": "integer",
    "store copy:rows.*": "integer",
    "store create:roles[]": "string",
    "store cost:tables.*.rows": "integer",
    "store cost:tables.*.bytes": ["integer", "null"],
    **{
        f"store cost:{name}_per_rollout": ["number", "null"]
        for name in ("rows", "bytes", "log_bytes", "processor_s", "tables.*.bytes")
    },
    **{f"store migrate:{name}": "integer" for name in ("before", "after", "contracted[]")},
    **{f"store copy:{name}": "string" for name in ("from", "to")},
}
"""What the name of a key alone does not tell; by its path, or the command and its path."""

ALWAYS: Mapping[str, list[str]] = {
    "top": ["at", "problem", "store"],
    "bench validate": [],
    "bench index": [],
}
"""What alone is always told by a command that prints less where something is wrong, or several."""

NO_OBJECT = {
    "last_report",
    "cost",
    "summary",
    "difference",
    "mean_reward",
    "missing",
    "alarm",
    "compared",
    "evaluate:rollouts",
}
"""Objects that may be null, of every command or of the one before the colon."""


PAYLOADS = (payloads.Trajectory, payloads.Advantages, payloads.Checkpoint, payloads.Bundle)
ARTIFACTS: Mapping[str, type[msgspec.Struct]] = {
    "evidence suite": suites.Suite,
    "evidence inputs": records.Inputs,
    "evidence record": records.Record,
    "evidence role report": reports.RoleReport,
    "evidence significance report": reports.SignificanceReport,
    "evidence safety report": reports.SafetyReport,
    "evidence proof": proof.Proof,
    "evidence summary": summary.Summary,
    "evidence drill": drill.Drill,
    "evidence operations": operations.Operations,
    "evidence gate": gate.Gate,
    "evidence index": index.Index,
}
MODULES = (
    payloads, artifacts, suites, records, reports, proof, criteria, stability, summary, gate, index,
    drill_documents, operations_documents,
)  # fmt: skip
"""The modules with the structs of payloads and artifacts."""

MAY_LACK = (suites.Case, *vars(payloads).values())
"""What may be written without the keys that have defaults."""


def schemas() -> dict[str, Schema]:
    """Return the schema of every command that prints data, of payloads and of artifacts.

    They are by the names of their files.
    """
    commands = {file_of(command): schema_of(command) for command in KEYS}
    own = {**{kind.__name__: kind for kind in PAYLOADS}, **ARTIFACTS}
    return commands | {file_of(name): struct_schema(name, kind) for name, kind in own.items()}


def struct_schema(name: str, kind: type[msgspec.Struct]) -> Schema:
    """Return the schema of a payload or an artifact, with the descriptions of its fields."""
    _, parts = msgspec.json.schema_components(
        [kind], ref_template="#/$defs/{name}", schema_hook=lambda _: {"title": "any JSON value"}
    )
    for title, part in parts.items():
        _describe(part, owner_of(title, part))
    own = parts.pop(kind.__name__)
    return {
        "$schema": DRAFT,
        "$id": f"tau-live/{file_of(name)}",
        **own,
        **({"$defs": parts} if parts else {}),
    }


def owner_of(name: str, part: dict[str, Any]) -> type:
    """Return the struct or dataclass of a name, which has the properties of a schema."""
    properties = part.get("properties", {}).keys()
    found: type = next(
        owner
        for module in MODULES
        if isinstance(owner := getattr(module, name, None), type)
        and properties
        <= {
            key.removesuffix("_")
            for base in owner.__mro__
            for key in vars(base).get("__annotations__", {})
        }
    )
    return found


def _describe(part: dict[str, Any], owner: type) -> None:
    """Add what a struct says of its fields, and those that are always there."""
    from tests.generated import attributes_of  # which names the files of schemas

    part["description"] = part.get("description", "").partition("\n")[0]
    if "properties" not in part:
        return
    known = {key.removesuffix("_"): text for key, text in attributes_of(owner).items()}
    if owner is reports.SignificanceReport:
        known = attributes_of(reports.RoleReport) | known
    for field, own in part["properties"].items():
        own["description"] = known[field].replace("``None``", "``null``")
    if issubclass(owner, msgspec.Struct) and owner not in MAY_LACK:
        lacking = {field.encode_name for field in msgspec.structs.fields(owner)
                   if field.default is msgspec.UNSET}  # fmt: skip
        part["required"] = [name for name in part["properties"] if name not in lacking]


def file_of(command: str) -> str:
    """Return the name of the file with the schema of a command."""
    return f"{command.lower().replace(' ', '-')}.json"


def schema_of(command: str) -> Schema:
    """Return the schema of what a command prints."""
    root: Schema = {"type": "object"}
    for path, meaning in KEYS[command].items():
        _add(root, path.split("."), path, command=command, meaning=meaning)
    root["required"] = ALWAYS.get(command, root["required"])
    return {
        "$schema": DRAFT,
        "$id": f"tau-live/{file_of(command)}",
        "title": f"tau-live {command} --json",
        **root,
    }


def untyped() -> list[str]:
    """Return the keys that the table of types does not know."""
    return [
        f"{command}:{path}"
        for command, keys in KEYS.items()
        for path in keys
        if not path.endswith("**") and not _leaf(command, path)
    ]


def _add(at: Schema, parts: list[str], path: str, *, command: str, meaning: str) -> None:
    part, rest = parts[0], parts[1:]
    if part == "**":
        return  # more keys may follow, as everywhere
    is_open, name = part.endswith("**"), part.removesuffix("**")
    depth = (len(name) - len(name.removesuffix("[]"))) // 2
    name = name.removesuffix("[]")
    if name == "*":
        inner = at.setdefault("additionalProperties", {})
    else:
        inner = _table(at, "properties").setdefault(name, {})
        required = at.setdefault("required", [])
        if isinstance(required, list) and name not in required and not is_open:
            required.append(name)
    assert isinstance(inner, dict)
    for _ in range(depth):
        inner["type"] = "array"
        inner = inner.setdefault("items", {})
    if rest:
        may_lack = not NO_OBJECT.isdisjoint({name, f"{command}:{name}"})
        inner["type"] = ["object", "null"] if may_lack else "object"
        _add(inner, rest, path, command=command, meaning=meaning)
        return
    inner["description"] = meaning
    if not is_open and "type" not in inner:
        inner |= _leaf(command, path)


def _leaf(command: str, path: str) -> Schema:
    """Return the type of what stands at the end of a path; nothing if it is not known."""
    exact = EXACT.get(f"{command}:{path}", EXACT.get(path))
    if exact is not None:
        return {"type": exact}
    name = path.removesuffix(".*").removesuffix("[]").rpartition(".")[2].removesuffix("[]")
    if name in LISTS and not path.endswith(("[]", ".*")):
        kind: object = ["array", "null"] if name in NULL.split() else "array"
        return {"type": kind, "items": {"type": LISTS[name]}}
    for words, type_ in (
        (TRUTH, "boolean"), (WORDS, "string"), (NUMBER, "number"), (WHOLE, "integer"),
    ):  # fmt: skip
        if name in words.split():
            return {"type": [type_, "null"] if name in NULL.split() else type_}
    return {}


def _table(of: Schema, key: str) -> Schema:
    found = of.setdefault(key, {})
    assert isinstance(found, dict)
    return found


def text_of(schema: Schema) -> str:
    """Return a schema as its file holds it."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def write() -> None:
    """Write every schema, and remove those of commands that are gone."""
    FOLDER.mkdir(exist_ok=True)
    made = schemas()
    for file in FOLDER.glob("*.json"):
        if file.name not in made:
            file.unlink()
    for name, schema in made.items():
        (FOLDER / name).write_text(text_of(schema))


if __name__ == "__main__":
    write()
