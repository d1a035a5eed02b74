"""The settings that `tau-live init` proposes for a project, beside existing ones."""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tau_live.cli.init.findings import Finding, FindingKind
from tau_live.cli.init.frameworks import FRAMEWORKS
from tau_live.cli.init.project import Project, is_committed
from tau_live.cli.init.writing import Addition
from tau_live.core.errors import SettingsError
from tau_live.core.redaction import scrub_text
from tau_live.core.sanitize import mapping
from tau_live.core.settings import Settings
from tau_live.core.settings.kinds import Table, show_value
from tau_live.core.settings.tables import DeclaredDecision, DeclaredReward, Point

MOST_OPTIONS = 12
LONGEST = 1_000_000
"""Characters of a file, or of its first line, that are looked at."""

WRITTEN_OUT = (
    "group_size", "epochs", "sample_size", "temperature_train", "temperature_eval", "seed",
    "max_words", "min_score", "lessons_per_group", "pool_cap", "growth_cap", "token_cap", "dropout",
    "validation_repeats", "accept_margin",
)  # fmt: skip
"""The settings of lessons that a proposed pipeline writes out, with their defaults."""


def propose(
    project: Project, own: Table, environ: Mapping[str, str]
) -> tuple[list[Addition], list[str], list[str]]:
    """Return the settings that a project lacks.

    Args:
        project: The project.
        own: Its existing settings, as the table ``[tool.tau-live]``.
        environ: The environment, which takes precedence over any file.

    Returns:
        The additions below ``[tool.tau-live]``; the settings that have another value already; the
        findings that are not proposed, and why.
    """
    notes: list[str] = []
    decisions = {**_models(project, notes), **_prompts(project, notes)}
    wanted: list[Addition] = []
    plain: dict[str, object] = {}
    if "TAU_LIVE_RL_STORE" not in environ:
        plain["store"] = str(Settings().store)
    if decisions or own.get("decisions"):
        plain["act"] = False
    if plain:
        remarks = {
            "store": "The store, relative to this file.",
            "act": "true lets adapters decide at the points below; until then they only record.",
        }
        wanted.append(Addition((), plain, remarks))
    wanted += [
        Addition(("decisions", point.value), {"options": options})
        for point, options in decisions.items()
    ]
    wanted += _rewards(project, own, notes)
    wanted += _lessons(project, notes)
    notes += _elsewhere(project, [*decisions])
    if "store" in plain and "store" not in own and is_committed(project.folder):
        notes.append("the store belongs to this machine: add .tau/ to .gitignore")
    additions, left_alone = _beside(own, wanted)
    return additions, left_alone, notes


def next_command(project: Project) -> str:
    """Return the command to run once the settings are written."""
    agents = {
        finding.path for finding in project.of(FindingKind.AGENT) + project.of(FindingKind.POINT)
    }
    hosts = {path for host in project.hosts for path in host.imported}
    starts = [finding.path for finding in project.of(FindingKind.START)]
    for files in (agents, hosts):
        scripts = [path for path in starts if path in files]
        path = next(iter(scripts or sorted(files)), None)
        if path is not None:
            return f"TAU_LIVE_RL=1 tau-live run -- python {shlex.quote(path)}"
    if [host.host for host in project.hosts] == ["llm"]:
        return 'TAU_LIVE_RL=1 llm -m tau "..."'
    if project.hosts:
        return "TAU_LIVE_RL=1 tau-live run -- python your_agent.py"
    return "TAU_LIVE_RL=1 tau-live demo"


def _models(project: Project, notes: list[str]) -> dict[Point, object]:
    by_host: dict[str, list[Finding]] = {}
    for finding in project.of(FindingKind.MODEL):
        if finding.text:
            by_host.setdefault(finding.host, []).append(finding)
        else:
            notes.append(
                f"model: {finding.path}:{finding.line} gets an object; options that are objects "
                f"are declared in Python, see docs/howto/{finding.host}.md"
            )
    names = {host: _names(host, items) for host, items in by_host.items()}
    if len(names) > 1:
        listed = "; ".join(f"{host}: {', '.join(of)}" for host, of in names.items())
        notes.append(
            f"model: several hosts name models, but one list applies to all of them ({listed})"
        )
        return {}
    for host, options in names.items():
        if len(options) == 1:
            notes.append(f"model: {options[0]} is the only one in the code; a choice needs two")
        elif len(options) > MOST_OPTIONS:
            notes.append(f"model: {len(options)} are in the code, too many to try; choose some")
        elif _is_right(Point.MODEL, options):
            notes.append(
                f"model: every agent of {host} would be offered each of these; "
                "`never` excludes one where it does not fit"
            )
            return {Point.MODEL: options}
    return {}


def _names(host: str, items: Sequence[Finding]) -> list[str]:
    """Return the models as options name them."""
    made_by = {finding.within for finding in items}
    is_qualified = FRAMEWORKS[host].qualified and len(made_by) > 1
    named = (
        f"{finding.within}:{finding.text}" if is_qualified and finding.within else finding.text
        for finding in items
    )
    return [*dict.fromkeys(named)]


def _prompts(project: Project, notes: list[str]) -> dict[Point, object]:
    """Return the instructions between which the code of a lone agent chooses."""
    texts = {finding.text: finding.within for finding in project.of(FindingKind.PROMPT)}
    if len(texts) < 2:
        return {}
    agents = len(project.of(FindingKind.AGENT))
    lines = {(finding.path, finding.line) for finding in project.of(FindingKind.PROMPT)}
    problems = {
        f"the code has {len(texts)} instructions for {agents} agents, which are not "
        "interchangeable": agents != 1 or len(lines) > 1,
        "instructions hold what looks like a secret, so they are not copied": any(
            scrub_text(text) != text for text in texts
        ),
        "instructions are too long for settings; declare them": max(map(len, texts)) > 2_000,
    }
    for problem, holds in problems.items():
        if holds:
            notes.append(f"prompt: {problem}")
            return {}
    options = {
        name.lower() or f"prompt-{place}": text
        for place, (text, name) in enumerate(texts.items(), 1)
    }
    return {Point.PROMPT: options} if _is_right(Point.PROMPT, options) else {}


def _rewards(project: Project, own: Table, notes: list[str]) -> list[Addition]:
    items = project.of(FindingKind.REWARD)
    names = project.texts(FindingKind.REWARD)
    if own.get("rewards") or not names:
        return []
    if len(names) > 1 or not all(finding.text for finding in items):
        notes.append(
            f"rewards: the code names {', '.join(names)}; declare the one that a run waits for as "
            "primary: once one is declared, no other counts"
        )
        return []
    try:
        DeclaredReward(name=names[0], primary=True)
    except SettingsError:
        return []
    remark = (
        "A run waits for this reward; range = [lowest, highest] keeps values in wrong units out."
    )
    return [Addition(("rewards", names[0]), {"primary": True}, {"primary": remark})]


def _lessons(project: Project, notes: list[str]) -> list[Addition]:
    """Return the pipeline of lessons, if the folder has a pack and tasks for it."""
    packs = [path.parent for path in sorted(project.folder.glob("*/manifest.json"))
             if "experience_slots" in _first_object(path, whole=True)]  # fmt: skip
    tasks = [path for path in sorted(project.folder.glob("*.jsonl"))
             if {"query_id", "split"} <= _first_object(path, whole=False).keys()]  # fmt: skip
    if not packs or not tasks:
        return []
    from tau_live.experience.config import Config

    known = Config()
    values = {
        "pack": packs[0].name, "tasks": tasks[0].name,
        **{name.replace("_", "-"): getattr(known, name) for name in WRITTEN_OUT},
    }  # fmt: skip
    notes.append(
        "lessons: name their `model` in [tool.tau-live.pipelines.tfgrpo-learning], then "
        "`FEATURE_TFGRPO_GROUP=1 tau-live start --pipeline tfgrpo-learning --dry-run`"
    )
    remark = "Lessons in words, off until FEATURE_TFGRPO_GROUP=1; docs/howto/lessons.md."
    return [Addition(("pipelines", "tfgrpo-learning"), values, {"pack": remark})]


def _first_object(path: Path, *, whole: bool) -> Table:
    """Return the JSON object in a file, or in its first line; an empty one if there is none."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(LONGEST) if whole else file.readline(LONGEST)
        return mapping(json.loads(text))
    except (OSError, ValueError):
        return {}


def _elsewhere(project: Project, chosen: Sequence[Point]) -> Iterator[str]:
    """Yield notes on other decision points, and on those that the code decides itself."""
    if points := project.texts(FindingKind.POINT):
        yield f"your code decides at {', '.join(points)} itself: no declaration needed"
    for host in project.hosts:
        others = [point for point in FRAMEWORKS[host.host].points if point not in chosen]
        if host.imported and others:
            page = f"docs/howto/{host.host}.md"
            yield f"{host.host} also has the decision points {', '.join(others)}: see {page}"
    tools = project.texts(FindingKind.TOOL)
    if tools:
        yield f"tools in the code: {', '.join(tools[:MOST_OPTIONS])}"
    if not project.hosts and not points:
        known = ", ".join(FRAMEWORKS)
        yield (
            f"no supported host was found ({known}): call tau_live.decide where your own code "
            "chooses, see docs/howto/your-code.md"
        )
    elif len([host for host in project.hosts if host.imported]) > 1:
        yield "several hosts are used: the settings apply to all of them"


def _is_right(point: Point, options: Mapping[str, object] | Sequence[str]) -> bool:
    """Return whether the settings would accept these options."""
    named = options if isinstance(options, Mapping) else {option: option for option in options}
    try:
        DeclaredDecision(point=point.value, options=named)
    except SettingsError:
        return False
    return True


def _beside(own: Table, wanted: Sequence[Addition]) -> tuple[list[Addition], list[str]]:
    """Return the additions that the existing settings lack, and notes on those set otherwise."""
    additions: list[Addition] = []
    left_alone: list[str] = []
    for addition in wanted:
        table, name = _at(own, addition.table), ".".join(addition.table)
        is_declared = bool(name and table)  # by somebody: what is missing is meant to be
        for key, value in addition.values.items():
            if key in table and table[key] != value:
                path = ".".join([*addition.table, key])
                left_alone.append(f"{path} is {show_value(table[key])} already")
            elif key not in table and is_declared:
                left_alone.append(f"{name} is declared already, without {key}")
        lacking = {key: value for key, value in addition.values.items() if key not in table}
        if lacking and not is_declared:
            additions.append(Addition(addition.table, lacking, addition.remarks))
    return additions, left_alone


def _at(own: Table, table: Sequence[str]) -> Table:
    for name in table:
        own = mapping(own.get(name))
    return own
