"""What `tau-live init` proposes for a project, beside the settings that it has already."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tau_live.errors import SettingsError
from tau_live.privacy.redaction import scrubbed
from tau_live.projects.findings import Finding, Kind
from tau_live.projects.frameworks import FRAMEWORKS
from tau_live.projects.project import Project
from tau_live.projects.surroundings import is_committed
from tau_live.projects.toml_text import Addition
from tau_live.settings import Settings
from tau_live.settings.decisions import DeclaredDecision, Point
from tau_live.settings.kinds import shown
from tau_live.settings.tables import DeclaredReward

LONGEST_PROMPT = 2_000
MOST_OPTIONS = 12
STORE_REMARK = "The store, relative to this file."
ACT_REMARK = "true lets adapters decide at the points below; until then they only record."
REWARD_REMARK = (
    "A run waits for this reward; range = [lowest, highest] keeps values in wrong units out."
)


@dataclass(frozen=True, slots=True)
class Proposal:
    """What is to be added.

    Attributes:
        additions: Below ``[tool.tau-live]``.
        left_alone: What is set already to something else.
        said: What was found and is not proposed, and why.
    """

    additions: tuple[Addition, ...]
    left_alone: tuple[str, ...]
    said: tuple[str, ...]


def proposed(project: Project, own: Mapping[str, object], environ: Mapping[str, str]) -> Proposal:
    """Return what a project's settings lack.

    Args:
        project: What was found.
        own: What its settings say already, as the table ``[tool.tau-live]``.
        environ: The environment, which goes before any file.
    """
    said: list[str] = []
    decisions = {**_models(project, said), **_prompts(project, said)}
    wanted: list[Addition] = []
    plain: dict[str, object] = {}
    if "TAU_LIVE_RL_STORE" not in environ:
        plain["store"] = str(Settings().store)
    if decisions or own.get("decisions"):
        plain["act"] = False
    if plain:
        wanted.append(Addition((), plain, {"store": STORE_REMARK, "act": ACT_REMARK}))
    wanted += [
        Addition(("decisions", point.value), {"options": options})
        for point, options in decisions.items()
    ]
    wanted += _rewards(project, own, said)
    said += _elsewhere(project, [*decisions])
    if "store" in plain and "store" not in own and is_committed(project.folder):
        said.append("the store belongs to this machine: add .tau/ to .gitignore")
    left = [*_left_alone(own, wanted)]
    lacking = (_lacking(own, one) for one in wanted)
    return Proposal(tuple(one for one in lacking if one.values), tuple(left), tuple(said))


def next_command(project: Project) -> str:
    """Return what to do once the settings are written."""
    agents = {one.path for one in project.of(Kind.AGENT) + project.of(Kind.POINT)}
    hosts = {path for host in project.hosts for path in host.imported}
    starts = [one.path for one in project.of(Kind.START)]
    for files in (agents, hosts):
        begun = [path for path in starts if path in files]
        path = next(iter(begun or sorted(files)), None)
        if path is not None:
            return f"TAU_LIVE_RL=1 tau-live run -- python {shlex.quote(path)}"
    if [host.host for host in project.hosts] == ["llm"]:
        return 'TAU_LIVE_RL=1 llm -m tau "..."'
    if project.hosts:
        return "TAU_LIVE_RL=1 tau-live run -- python your_agent.py"
    return "TAU_LIVE_RL=1 tau-live demo"


def _models(project: Project, said: list[str]) -> dict[Point, object]:
    by_host: dict[str, list[Finding]] = {}
    for one in project.of(Kind.MODEL):
        if one.text:
            by_host.setdefault(one.host, []).append(one)
        else:
            said.append(
                f"model: {one.path}:{one.line} gets an object; options that are objects are "
                f"declared in Python, see docs/howto/{one.host}.md"
            )
    names = {host: _names(host, found) for host, found in by_host.items()}
    if len(names) > 1:
        told = "; ".join(f"{host}: {', '.join(of)}" for host, of in names.items())
        said.append(
            f"model: several hosts name models, but one list applies to all of them ({told})"
        )
        return {}
    for host, options in names.items():
        if len(options) == 1:
            said.append(f"model: {options[0]} is the only one in the code; a choice needs two")
        elif len(options) > MOST_OPTIONS:
            said.append(f"model: {len(options)} are in the code, too many to try; choose some")
        elif _is_right(Point.MODEL, options):
            said.append(
                f"model: every agent of {host} would be offered each of these; "
                "`never` excludes one where it does not fit"
            )
            return {Point.MODEL: options}
    return {}


def _names(host: str, found: Sequence[Finding]) -> list[str]:
    """Return the models as options name them."""
    made_by = {one.within for one in found}
    if FRAMEWORKS[host].qualified and len(made_by) > 1:
        named = (f"{one.within}:{one.text}" if one.within else one.text for one in found)
        return [*dict.fromkeys(named)]
    return [*dict.fromkeys(one.text for one in found)]


def _prompts(project: Project, said: list[str]) -> dict[Point, object]:
    """Return the instructions between which the code of a lone agent chooses."""
    texts = {one.text: one.within for one in project.of(Kind.PROMPT)}
    if len(texts) < 2:
        return {}
    agents = len(project.of(Kind.AGENT))
    lines = {(one.path, one.line) for one in project.of(Kind.PROMPT)}
    if agents != 1 or len(lines) > 1:
        said.append(
            f"prompt: the code has {len(texts)} instructions for {agents} agents, "
            "which are not interchangeable"
        )
        return {}
    if any(scrubbed(text) != text for text in texts):
        said.append("prompt: instructions hold what looks like a secret, so they are not copied")
        return {}
    if max(map(len, texts)) > LONGEST_PROMPT:
        said.append("prompt: instructions are too long for settings; declare them")
        return {}
    options = {
        name.lower() or f"prompt-{place}": text
        for place, (text, name) in enumerate(texts.items(), 1)
    }
    return {Point.PROMPT: options} if _is_right(Point.PROMPT, options) else {}


def _rewards(project: Project, own: Mapping[str, object], said: list[str]) -> list[Addition]:
    found = project.of(Kind.REWARD)
    names = project.texts(Kind.REWARD)
    if own.get("rewards") or not names:
        return []
    if len(names) > 1 or not all(one.text for one in found):
        said.append(
            f"rewards: the code names {', '.join(names)}; declare the one that a run waits for as "
            "primary: once one is declared, no other counts"
        )
        return []
    try:
        DeclaredReward(name=names[0], primary=True)
    except SettingsError:
        return []
    return [Addition(("rewards", names[0]), {"primary": True}, {"primary": REWARD_REMARK})]


def _elsewhere(project: Project, chosen: Sequence[Point]) -> Iterator[str]:
    """Yield what else might be decided, and by whom it is decided already."""
    if points := project.texts(Kind.POINT):
        yield f"your code decides at {', '.join(points)} itself: no declaration needed"
    for host in project.hosts:
        others = [one for one in FRAMEWORKS[host.host].points if one not in chosen]
        if host.imported and others:
            page = f"docs/howto/{host.host}.md"
            yield f"{host.host} also has the decision points {', '.join(others)}: see {page}"
    tools = project.texts(Kind.TOOL)
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


def _is_right(point: Point, options: object) -> bool:
    """Say whether the settings would take these options."""
    table = options if isinstance(options, Mapping) else {}
    listed = options if isinstance(options, list) else []
    try:
        DeclaredDecision(point=point.value, options=table or {one: one for one in listed})
    except SettingsError:
        return False
    return True


def _lacking(own: Mapping[str, object], one: Addition) -> Addition:
    there = _at(own, one.table)
    lacking = {key: value for key, value in one.values.items() if key not in there}
    if one.table and there:  # somebody has declared it: what is missing is meant to be
        lacking = {}
    return Addition(one.table, lacking, one.remarks)


def _left_alone(own: Mapping[str, object], wanted: Sequence[Addition]) -> Iterator[str]:
    for one in wanted:
        there = _at(own, one.table)
        for key, value in one.values.items():
            if key in there and there[key] != value:
                yield f"{'.'.join([*one.table, key])} is {shown(there[key])} already"
            elif key not in there and one.table and there:
                yield f"{'.'.join(one.table)} is declared already, without {key}"


def _at(own: Mapping[str, object], table: Sequence[str]) -> Mapping[str, object]:
    found: object = own
    for name in table:
        found = found.get(name, {}) if isinstance(found, Mapping) else {}
    return found if isinstance(found, Mapping) else {}
