"""What the reference pages are generated from: the code itself, written as Markdown by cog."""

import inspect
import json
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from textwrap import dedent
from typing import Any, get_args

import click
from msgspec.structs import fields

import tau_live
from tau_live import cli
from tau_live.cli.commands import COMMANDS
from tau_live.cli.doctor_mistakes import MISTAKES
from tau_live.cli.json_keys import KEYS
from tau_live.core import errors, events, hookspecs, reasons, records
from tau_live.core import events as envelope
from tau_live.core import records as rollouts
from tau_live.core.gate import GateEntry, GateRow
from tau_live.core.reasons import SENTENCES
from tau_live.core.settings import SETTINGS, Settings, value_text
from tau_live.core.settings.kinds import rows_of
from tau_live.core.settings.tables import (
    DeclaredDecision,
    DeclaredPrice,
    DeclaredReward,
    SafetySettings,
)
from tau_live.evidence import artifacts, payloads, proof, reports, suites
from tau_live.evidence import records as evidence
from tau_live.evidence.codes import FAULTS, REASONS
from tau_live.experience.checks import Check
from tau_live.experience.config import KNOBS, Config
from tau_live.operate import metrics
from tau_live.operate.alert_rules import ALERTS
from tau_live.prompts.config import OptimizationConfig
from tau_live.rl import criteria, stability
from tau_live.store import records as store_records
from tau_live.store.sqlite.store import SqliteStore
from tests.described import COLUMNS, EVERYWHERE, TABLES
from tests.proof.report import figures_reference
from tests.schemas import ARTIFACTS, file_of
from tests.viewed import VIEWED

__all__ = [
    "alerts_reference",
    "checks_reference",
    "commands_reference",
    "decisions_reference",
    "errors_reference",
    "events_reference",
    "evidence_reference",
    "exit_codes_reference",
    "faults_reference",
    "figures_reference",
    "hooks_reference",
    "json_reference",
    "lessons_reference",
    "metrics_reference",
    "mistakes_reference",
    "optimization_reference",
    "payloads_reference",
    "prices_reference",
    "python_reference",
    "reasons_reference",
    "region_reference",
    "rewards_reference",
    "schema_reference",
    "settings_reference",
    "sizing_reference",
    "template",
    "verdicts_reference",
    "views_reference",
]  # fmt: skip

WIDTH = 88
DOCS = Path(__file__).parents[1] / "docs"
TEMPLATES = DOCS / "templates"
NO_FIELDS = "It has no fields of its own.\n"
ENTRY = re.compile(r"^([\w*]+):")
MODULE = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])")

CONFIG_PARTS = {
    "Search": "search",
    "Templates": "search.templates",
    "Scorer": "scorers[]",
    "Adoption": "adoption",
    "Budget": "budget",
    "ToolCeiling": "budget.tools.NAME",
    "SafetyReward": "safety_reward",
    "RlOptimizer": "rl_optimizer",
    "Gae": "rl_optimizer.gae",
    "Ppo": "rl_optimizer.ppo",
}
"""The place of each part in a config of ``tau-live optimize``."""

JSON_KINDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "`true` or `false`",
    "object": "an object",
    "array": "an array",
    "null": "`null`",
}
SAFETY_HELP = {row.field: row.help for row in rows_of(SafetySettings)}

ROW_TYPES: Mapping[str, type] = {
    "rollouts": rollouts.Rollout,
    "attempts": rollouts.Attempt,
    "recorded_spans": rollouts.Span,
    "decisions": rollouts.Decision,
    "rewards": rollouts.Reward,
    "workers": records.Worker,
    "resources": records.Resource,
    "policies": records.PolicyVersion,
    "in_service": records.InService,
    "trials": records.Trial,
    "updates": records.Update,
    "monitors": records.Monitor,
    "gate": GateRow,
    "gate_log": GateEntry,
    "pauses": reasons.Pause,
    "audit": records.AuditEntry,
    "alerts": store_records.AlertRow,
    "optimizations": store_records.Optimization,
    "candidates": store_records.Candidate,
    "quarantine": store_records.Quarantined,
    "steps": store_records.StepRow,
}
"""The struct whose attributes describe the columns of a table."""


def settings_reference() -> str:
    """Return a table of every setting."""
    defaults = Settings()
    return _table(
        ("variable", "in TOML", "default", "accepts", "meaning"),
        [
            (
                f"`{row.variable}`",
                f"`{row.key}`",
                f"`{value_text(row, defaults)}`" if value_text(row, defaults) else "(none)",
                row.kind.expects,
                row.help + (f" Its deprecated name is `{row.alias}`." if row.alias else ""),
            )
            for row in SETTINGS
        ],
    )


def rewards_reference() -> str:
    """Return a table of the settings of a declared reward."""
    return _table(
        ("key", "default", "accepts", "meaning"),
        [
            (
                f"`{row.field.replace('_', '-')}`",
                "(none)" if row.default is None else f"`{str(row.default).lower()}`",
                row.kind.expects,
                row.help,
            )
            for row in rows_of(DeclaredReward)
        ],
    )


def prices_reference() -> str:
    """Return a table of the settings of a declared price."""
    return _table(
        ("key", "accepts", "meaning"),
        [
            (f"`{row.field.replace('_', '-')}`", row.kind.expects, row.help)
            for row in rows_of(DeclaredPrice)
        ],
    )


def decisions_reference() -> str:
    """Return a table of the settings of a declared decision."""
    return _table(
        ("key", "accepts", "meaning"),
        [
            (f"`{row.field.replace('_', '-')}`", row.kind.expects, row.help)
            for row in rows_of(DeclaredDecision)
        ],
    )


def optimization_reference() -> str:
    """Return a table of the keys of each part of a config of ``tau-live optimize``."""
    schema = OptimizationConfig.model_json_schema()
    known = schema["$defs"]
    parts = [_config_table(schema["properties"], known)]
    for name, title in CONFIG_PARTS.items():
        parts.append(f"## {title}\n\n{_config_table(known[name]['properties'], known)}")
    return "\n".join(parts)


def lessons_reference() -> str:
    """Return a table of the settings of runs of lessons."""
    meanings, plain = attributes_of(Config), Config()
    special = {
        "batch_size": "`sample-size`", "workers": "`group-size`", "learner_model": "`model`",
        "model": "required, or an agent", "pack": "required", "tasks": "required",
    }  # fmt: skip
    return _table(
        ("key", "variable", "default", "meaning"),
        [
            (
                f"`{knob.key}`",
                ", ".join(f"`{name}`" for name in knob.variables) or "(none)",
                special.get(knob.field) or f"`{json.dumps(getattr(plain, knob.field))}`",
                meanings[knob.field],
            )
            for knob in KNOBS
        ],
    )


def checks_reference() -> str:
    """Return a table of the keys of a check."""
    return _table(
        ("key", "meaning"),
        [(f"`{name}`", meaning) for name, meaning in attributes_of(Check).items()],
    )


def _config_table(
    properties: Mapping[str, Mapping[str, Any]], parts: Mapping[str, Mapping[str, Any]]
) -> str:
    rows = []
    for name, own in properties.items():
        part = parts.get(str(own.get("$ref", "")).rpartition("/")[2], {})
        default = "required"
        if "default" in own:
            default = "see below" if part else f"`{json.dumps(own['default'])}`"
        if own.get("type") == "array" and "$ref" in own["items"]:
            default = "`exact_match` alone"
        meaning = own.get("description") or part.get("description") or SAFETY_HELP[name]
        rows.append((f"`{name}`", default, _accepted(own), meaning))
    return _table(("key", "default", "accepts", "meaning"), rows)


def _accepted(own: Mapping[str, Any]) -> str:
    """Return what a JSON schema accepts, in words."""
    if "anyOf" in own:
        return " or ".join(_accepted(each) for each in own["anyOf"])
    if "$ref" in own:
        return "an object"
    if "enum" in own:
        return ", ".join(f"`{value}`" for value in own["enum"])
    kind = JSON_KINDS[own["type"]]
    least, above, most = (own.get(key) for key in ("minimum", "exclusiveMinimum", "maximum"))
    bounds = [
        f"from {least}" if least is not None else "",
        f"above {above}" if above is not None else "",
        f"up to {most}" if most is not None else "",
    ]
    return " ".join([kind, *filter(None, bounds)])


def commands_reference() -> str:
    """Return the help of every command."""
    parts = []
    for path, context in commands_with_help():
        level = "##" if path.count(" ") < 2 else "###"
        parts.append(f"{level} {path}\n\n```text\n{context.command.get_help(context)}\n```\n")
    return "\n".join(parts)


def exit_codes_reference() -> str:
    """Return a table of the exit codes that the command line's own help names."""
    found = re.findall(r"^  (\d+) +(.+)$", cli.EXIT_CODES, re.MULTILINE)
    return _table(("code", "meaning"), [(f"`{code}`", meaning) for code, meaning in found])


def reasons_reference() -> str:
    """Return every reason why something is not learned from."""
    return _table(
        ("reason", "what it means"), [(f"`{reason}`", said) for reason, said in SENTENCES.items()]
    )


def alerts_reference() -> str:
    """Return every kind of alert, each under a heading of its own."""
    return "\n".join(
        f"## {kind}\n\n{about.means}\nSeverity: {about.severity}. Look next: `{about.todo}`.\n"
        for kind, about in ALERTS.items()
    )


def mistakes_reference() -> str:
    """Return every mistake that the doctor finds, with its fix."""
    rows = [(f"`{code}`", one.sign, one.cure) for code, one in MISTAKES.items()]
    return _table(("code", "what is wrong", "what to do"), rows)


def sizing_reference() -> str:
    """Return what a database needs, as measured by ``python -m tests.bench.fleet``."""
    slopes = json.loads((DOCS / "fleet.json").read_text())["slopes"]
    lines = [
        "| decisions a day | rollouts are stored | a second | cores | log, MB/s | disk a day, GB |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for a_day in (10**6, 10**7, 10**8, 10**9):
        for shape, slope in slopes.items():
            rate = a_day / 86_400
            cores, log = rate * slope["server_us"] / 1e6, rate * slope["log_bytes"] / 1e6
            disk = a_day * slope["disk_bytes"] / 1e9
            lines.append(
                f"| {a_day:,} | {shape} | {rate:,.0f} | {cores:.2g} | {log:.2g} | {disk:,.0f} |"
            )
    return "\n".join(lines) + "\n"


def region_reference() -> str:
    """Return what a billion decisions a day need, as measured for ``sizing_reference``."""
    slope = json.loads((DOCS / "fleet.json").read_text())["slopes"]["that are over"]
    rate = 10**9 / 86_400
    cores, log = rate * slope["server_us"] / 1e6, rate * slope["log_bytes"] / 1e6
    disk = slope["disk_bytes"] / 1e3
    return (
        f"A billion decisions a day are {rate:,.0f} rollouts a second. Sent whole, they take "
        f"{cores:.1f} cores for inserts, {log:.0f} MB of log a second, and {disk:.1f} TB of disk a "
        "day, so it is the disk that ends this first:\n"
    )


def template(kind: str) -> str:
    """Return the files of a template for a plugin, each as a block that writes it."""
    languages = {".py": "python", ".toml": "toml"}
    files = sorted((TEMPLATES / kind).glob("*.*"), key=lambda path: (path.suffix != ".toml", path))
    return "\n".join(
        f"```{languages[path.suffix]} file=acme-{kind}/{path.name}\n{path.read_text()}```\n"
        for path in files
    )


def json_reference() -> str:
    """Return the keys of every command's JSON."""
    return "\n".join(
        f"## tau-live {command}\n\n[Its schema](../schemas/{file_of(command)}).\n\n"
        + _table(("key", "meaning"), [(f"`{key}`", meaning) for key, meaning in keys.items()])
        for command, keys in KEYS.items()
    )


def payloads_reference() -> str:
    """Return the keys of every payload, each that is in another one after it."""
    kinds = (payloads.Bundle, payloads.Trajectory, payloads.Step, payloads.Advantages,
             payloads.Checkpoint, payloads.CheckpointMetadata)  # fmt: skip
    return "\n".join(
        f"## {kind.__name__}\n\n{_first(kind)}\n\n"
        + _table(("key", "meaning"), [(f"`{k}`", text) for k, text in attributes_of(kind).items()])
        for kind in kinds
    )


EVIDENCE: Mapping[type, Sequence[type]] = {
    suites.Suite: (suites.Case,),
    evidence.Inputs: (evidence.SuiteRef, evidence.Subjects, evidence.Subject, evidence.Environment,
                      criteria.Criteria),
    evidence.Record: (),
    reports.RoleReport: (reports.Benchmark, reports.SubjectRef, reports.RecordsRef,
                         reports.Metrics, reports.Publication, reports.Retention),
    reports.SignificanceReport: (reports.Significance, stability.SeedReproducibility,
                                 stability.SampleSizeSensitivity, stability.SampleSizePoint),
    reports.SafetyReport: (reports.Diagnostics, reports.SafetyEvents),
    proof.Proof: (proof.ProofSuite, proof.Proven, proof.ProofSignificance, proof.Artifacts,
                  artifacts.Reference, proof.SafetyBenchmark, proof.FailureAnalysis,
                  proof.Verification),
}  # fmt: skip
"""The artifacts of the evidence protocol, each with its parts."""


def evidence_reference() -> str:
    """Return the keys of every artifact, each with its parts."""
    schemas = {kind: file_of(name) for name, kind in ARTIFACTS.items()}
    sections = []
    for kind, parts in EVIDENCE.items():
        sections.append(
            f"## {kind.__name__}\n\n{_first(kind)} [Its schema](../schemas/{schemas[kind]}).\n\n"
            + _keys(kind)
        )
        sections += [f"### {part.__name__}\n\n{_first(part)}\n\n{_keys(part)}" for part in parts]
    return "\n".join(sections).replace("``None``", "`null`").replace("``", "`")


def _keys(kind: type) -> str:
    rows = attributes_of(kind).items()
    return _table(("key", "meaning"), [(f"`{key.removesuffix('_')}`", text) for key, text in rows])


def verdicts_reference() -> str:
    """Return every reason of a verdict, with what to do."""
    rows = [(f"`{code}`", *reason) for code, reason in REASONS.items()]
    return _table(("reason", "what it means", "what to do"), rows)


def faults_reference() -> str:
    """Return every code of a validation."""
    return _table(("code", "what is wrong"), [(f"`{k}`", text) for k, text in FAULTS.items()])


def hooks_reference() -> str:
    """Return every hook with its argument, and what the objects hold that hooks are given."""
    parts = []
    for name, hook in hook_functions().items():
        signature = MODULE.sub("", str(inspect.signature(hook)))
        parts.append(f"## {name}\n\n```text\n{name}{signature}\n```\n\n{inspect.getdoc(hook)}\n")
    parts.append("## What hooks are given and return\n")
    owned = (hookspecs.DecisionRequest, hookspecs.Answer, hookspecs.RolloutSummary,
             hookspecs.RewardPart, hookspecs.Alert)  # fmt: skip
    parts += [_described(of, level="###") for of in owned]
    return "\n".join(parts)


def python_reference() -> str:
    """Return every public function and class with its signature and its docstring."""
    names = [name for name in tau_live.__all__ if inspect.isroutine(getattr(tau_live, name))]
    parts = [_documented(f"tau_live.{name}", getattr(tau_live, name)) for name in names]
    parts.append(_documented("tau_live.open", tau_live.open))
    parts.append("## tau_live.Run\n\n" + _prose(tau_live.Run))
    for name, member in vars(tau_live.Run).items():
        if isinstance(member, property) and name != "handle":
            parts.append(f"### Run.{name}\n\n{_prose(member)}")
        elif inspect.isfunction(member) and not name.startswith("_"):
            parts.append(_documented(f"Run.{name}", member, level="###"))
    parts.append("## tau_live.Choice\n\n" + _prose(tau_live.Choice))
    parts += [
        _documented(f"tau_live.core.events.{name}", getattr(events, name))
        for name in ("encode", "decode")
    ]
    return "\n".join(parts)


def errors_reference() -> str:
    """Return the tree of errors, and every error with what it means."""
    tree = re.search(r"```\n(.*?)```", errors.__doc__ or "", re.DOTALL)
    assert tree is not None
    described = [
        f"### {name}\n\n{_prose(error)}"
        for name, error in vars(errors).items()
        if isinstance(error, type) and issubclass(error, errors.TauLiveError)
    ]
    return f"```text\n{tree[1]}```\n\n" + "\n".join(described)


def _documented(name: str, function: Callable[..., object], *, level: str = "##") -> str:
    return f"{level} {name}\n\n```text\n{_signature(name, function)}\n```\n\n{_prose(function)}"


def _signature(name: str, function: Callable[..., object]) -> str:
    """Return a call on one line, or each argument on its own."""
    found, arguments = inspect.signature(function), []
    for argument in found.parameters.values():
        if argument.kind is argument.KEYWORD_ONLY and "*" not in arguments:
            arguments.append("*")
        default = "" if argument.default is argument.empty else f" = {argument.default!r}"
        arguments.append(f"{argument.name}: {_annotation(argument.annotation)}{default}")
    if arguments and arguments[0].startswith("self:"):
        del arguments[0]
    end = f") -> {_annotation(found.return_annotation)}"
    line = f"{name}({', '.join(arguments)}{end}"
    if len(line) <= WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {argument},\n" for argument in arguments) + end


def _annotation(annotation: object) -> str:
    if isinstance(annotation, type) and not get_args(annotation):
        return annotation.__name__
    return MODULE.sub("", str(annotation).replace("'", "").replace('"', ""))


def _prose(documented: object) -> str:
    """Return a docstring as Markdown: its sections become lists of names and meanings."""
    text = inspect.getdoc(documented) or ""
    head, *sections = re.split(
        r"^(Args|Attributes|Returns|Raises|Source):\n", text, flags=re.MULTILINE
    )
    lines = [head.replace("``", "`").strip(), ""]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        entries = re.sub(r"\n +", " ", dedent(body).replace("``", "`")).strip().splitlines()
        marked = (
            entries if title == "Returns" else [ENTRY.sub(r"- `\1`:", line) for line in entries]
        )
        lines += [f"{title}:", "", *marked]
        lines.append("")
    return "\n".join(lines)


def hook_functions() -> dict[str, Callable[..., object]]:
    """Return every hook by name."""
    marker = f"{hookspecs.PROJECT}_spec"
    return {name: found for name, found in vars(hookspecs).items() if hasattr(found, marker)}


def events_reference() -> str:
    """Return every event with its fields, the common ones first."""
    parts = ["## Every event\n", _fields(envelope.Event, ())]
    common = {field.name for field in fields(envelope.Event)}
    for name, kind in events.KINDS.items():
        own = _fields(kind, common)
        parts.append(f"## {name}\n\n{_first(kind)}\n\n{own or NO_FIELDS}")
    parts.append("## What fields hold\n")
    parts += [
        _described(of, level="###")
        for of in (envelope.Content, envelope.ToolCall, envelope.ErrorInfo)
    ]
    for words in (envelope.Status, envelope.Fidelity, rollouts.Reason):
        listed = ", ".join(f"`{word.value}`" for word in words)
        parts.append(f"### {words.__name__}\n\n{_first(words)}\nOne of {listed}.\n")
    return "\n".join(parts)


def schema_reference() -> str:
    """Return every table and column of a new store."""
    parts = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        SqliteStore.open(path).close()
        with closing(sqlite3.connect(path)) as database:
            tables = "select name from sqlite_schema where type = 'table' and name not glob ?"
            for (table,) in database.execute(tables, ("sqlite_*",)).fetchall():
                columns = database.execute(f"pragma table_xinfo([{table}])").fetchall()
                rows = [
                    (f"`{name}`", kind or "any", _column(table, name))
                    for _, name, kind, *_ in columns
                ]
                parts.append(
                    f"## {table}\n\n{TABLES[table]}\n\n{_table(('column', 'type', 'holds'), rows)}"
                )
    return "\n".join(parts)


def views_reference() -> str:
    """Return every view of a new store, with its columns."""
    return "\n".join(
        f"## {view}\n\n{said}\n\n"
        + _table(("column", "holds"), [(f"`{name}`", of) for name, of in columns.items()])
        for view, (said, columns) in VIEWED.items()
    )


def metrics_reference() -> str:
    """Return every metric."""
    rows = [(f"`{one.name}`", one.type, one.help) for one in metrics.known_families()]
    return _table(("metric", "type", "meaning"), rows)


def _column(table: str, name: str) -> str:
    found = COLUMNS.get(f"{table}.{name}")
    if found is None and table in ROW_TYPES:
        found = attributes_of(ROW_TYPES[table]).get(name)
    if found is None:
        found = EVERYWHERE.get(name) or attributes_of(rollouts.Rollout).get(name)
    if found is None:
        raise KeyError(f"no sentence about column {table}.{name}")
    return found


def commands_with_help() -> Iterator[tuple[str, click.Context]]:
    """Yield every command of ours by its path, with a context to ask for its help."""
    root = click.Context(
        cli.main, info_name="tau-live", terminal_width=WIDTH, max_content_width=WIDTH
    )
    yield "tau-live", root
    for name in COMMANDS:
        command = cli.main.get_command(root, name)
        if command is not None:
            yield from _below(root, command, f"tau-live {name}")


def _below(
    parent: click.Context, command: click.Command, path: str
) -> Iterator[tuple[str, click.Context]]:
    context = click.Context(command, info_name=path.rpartition(" ")[2], parent=parent)
    yield path, context
    if isinstance(command, click.Group):
        for name, found in command.commands.items():
            yield from _below(context, found, f"{path} {name}")


def _described(of: type, *, level: str) -> str:
    return f"{level} {of.__name__}\n\n{_first(of)}\n\n{_fields(of, ())}"


def _fields(of: type, without: Iterable[str]) -> str:
    known = {"name": "Its name.", "value": "How much it is."} | attributes_of(of)
    rows = [
        (f"`{field.name}`", f"`{_type(field.type)}`", known[field.name])
        for field in fields(of)
        if field.name not in without
    ]
    return _table(("field", "type", "meaning"), rows) if rows else ""


def _type(annotation: object) -> str:
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    return MODULE.sub("", text if "[" not in str(annotation) else str(annotation))


def _first(of: object) -> str:
    return (inspect.getdoc(of) or "").split("\n\n")[0].replace("\n", " ")


def attributes_of(of: type) -> dict[str, str]:
    """Return what a class, and those it is made from, say of their attributes."""
    found: dict[str, str] = {}
    twins = {events.Decision: rollouts.Decision, events.Reward: rollouts.Reward}
    for owner in reversed((*of.__mro__, *([twins[of]] if of in twins else []))):
        found |= _attributes(owner.__doc__ or "")
    return found


def _attributes(doc: str) -> dict[str, str]:
    section = inspect.cleandoc(doc).partition("Attributes:\n")[2]
    body = re.split(r"\n\n?(?=\S)", section)[0]
    entries = re.split(r"\n(?=    \S)", "\n" + body)
    pairs = (entry.strip().partition(": ") for entry in entries if ": " in entry)
    return {name: " ".join(text.split()) for name, _, text in pairs}


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )
