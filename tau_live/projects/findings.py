"""What a parsed file names: agents, models, instructions, tools, rewards, decisions of its own."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tau_live.projects.frameworks import FRAMEWORKS, Framework
from tau_live.projects.sources import Source

OWN = ""
"""The host of what a project's code does by itself."""

_RUNS = frozenset({"run", "run_sync", "run_stream", "run_stream_sync", "iter", "override"})
_MODEL_KEYS = ("model", "model_id", "model_name")
_TOOLS = frozenset({"tool", "tool_plain", "function_tool"})


DEEPEST = 8
"""Names that stand for names are followed so far; two may stand for each other."""

Text = tuple[str, str]
"""What something is called, and what it says."""


class Kind(StrEnum):
    """What was found."""

    HOST = "host"
    AGENT = "agent"
    MODEL = "model"
    PROMPT = "prompt"
    TOOL = "tool"
    REWARD = "reward"
    POINT = "point"
    START = "start"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a source names.

    Attributes:
        kind: What it is.
        text: Its name, or for a prompt its text; empty where the source does not say, as for a
            model that is an object.
        host: Whose; empty for what is the project's own.
        path: The file.
        line: Where in it.
        within: For a prompt, what it was called; for a model the class that was given it.
    """

    kind: Kind
    text: str
    host: str
    path: str
    line: int
    within: str = ""


def hosts_in(source: Source) -> list[str]:
    """Return the supported hosts that a file imports."""
    known = (host_of(name) for name in _imported(source.tree).values())
    return [*dict.fromkeys(one.host for one in known if one is not None)]


def findings(source: Source) -> Iterator[Finding]:
    """Yield what one file names, in the order of its lines within each kind of syntax."""
    names = _imported(source.tree)
    known = (host_of(name) for name in names.values())
    hosts = {one.host: one for one in known if one is not None}
    constants = _constants(source.tree)
    for name in hosts:
        yield Finding(Kind.HOST, name, name, source.path, 1)
    ours = any(name.partition(".")[0] == "tau_live" for name in names.values())
    found = _Finder(source.path, names, hosts, constants, ours=ours)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call):
            yield from found.called(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from found.defined(node)
    for begun in source.tree.body:
        if isinstance(begun, ast.If) and _asks_for_main(begun.test):
            yield Finding(Kind.START, "", OWN, source.path, begun.lineno)


class _Finder:
    """Reads the calls of one file.

    Args:
        path: The file.
        names: What names in it stand for.
        hosts: The hosts that it imports.
        constants: What its names are that are given something once.
        ours: Whether it imports tau-live.
    """

    def __init__(
        self,
        path: str,
        names: Mapping[str, str],
        hosts: Mapping[str, Framework],
        constants: Mapping[str, ast.expr],
        *,
        ours: bool,
    ) -> None:
        self._path, self._names, self._hosts = path, names, hosts
        self._constants, self._ours = constants, ours

    def called(self, call: ast.Call) -> Iterator[Finding]:
        """Yield what a call names."""
        name = self._dotted(call.func)
        last = name.rpartition(".")[2]
        host = host_of(name)
        if host is not None and last in host.agents:
            yield from self._agent(call, host, last)
        elif host is not None and last in host.models:
            yield from self._models(call, host, within=last, first=True)
        elif isinstance(call.func, ast.Attribute) and last in _RUNS and len(self._hosts) == 1:
            yield from self._models(call, *self._hosts.values(), within="")
        if self._ours and last in {"reward", "decide"}:
            yield from self._of_ours(call, last)

    def defined(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Finding]:
        """Yield a function that is made a tool by its decorator."""
        for decorator in node.decorator_list:
            function = decorator.func if isinstance(decorator, ast.Call) else decorator
            name = self._dotted(function)
            host = host_of(name) or (
                next(iter(self._hosts.values())) if len(self._hosts) == 1 else None
            )
            if host is not None and name.rpartition(".")[2] in _TOOLS:
                yield Finding(Kind.TOOL, node.name, host.host, self._path, node.lineno)

    def _agent(self, call: ast.Call, host: Framework, made_by: str) -> Iterator[Finding]:
        given = _keywords(call)
        names = self._texts(given["name"]) if "name" in given else []
        yield Finding(
            Kind.AGENT, names[0][1] if names else "", host.host, self._path, call.lineno, made_by
        )
        first = not host.models or host.host == "langchain"
        yield from self._models(call, host, within="", first=first)
        for key in host.prompts & given.keys():
            for called, text in self._texts(given[key]):
                yield Finding(Kind.PROMPT, text, host.host, self._path, given[key].lineno, called)
        tools = given.get("tools")
        if isinstance(tools, ast.List | ast.Tuple):
            for one in tools.elts:
                last = _last(one)
                if last:
                    yield Finding(Kind.TOOL, last, host.host, self._path, one.lineno)

    def _models(
        self, call: ast.Call, host: Framework, *, within: str, first: bool = False
    ) -> Iterator[Finding]:
        given = _keywords(call)
        named = [given[key] for key in _MODEL_KEYS if key in given]
        for value in named or (call.args[:1] if first else []):
            texts = [text for _, text in self._texts(value)]
            if not texts and not self._is_named_elsewhere(value, host):
                texts = [""]
            for text in texts:
                yield Finding(Kind.MODEL, text, host.host, self._path, value.lineno, within)

    def _is_named_elsewhere(self, value: ast.expr, host: Framework) -> bool:
        """Say whether a model is made by a call that names it, here or where its name is given."""
        if isinstance(value, ast.Name):
            value = self._constants.get(value.id, value)
        return isinstance(value, ast.Call) and _last(value) in host.models

    def _of_ours(self, call: ast.Call, last: str) -> Iterator[Finding]:
        if last == "reward":
            name = _keywords(call).get("name")
            texts = self._texts(name) if name is not None else []
            for _, text in texts or [("", "")]:
                yield Finding(Kind.REWARD, text, OWN, self._path, call.lineno)
        elif call.args:
            for _, text in self._texts(call.args[0]):
                yield Finding(Kind.POINT, text, OWN, self._path, call.lineno)

    def _dotted(self, node: ast.expr) -> str:
        """Return the whole name of what is called, as far as imports tell it."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        top = self._names.get(node.id, node.id) if isinstance(node, ast.Name) else ""
        return ".".join([top, *reversed(parts)])

    def _texts(self, value: ast.expr, called: str = "", left: int = DEEPEST) -> list[Text]:
        """Return the texts that an expression may be, each with the name it has; maybe none."""
        parts: list[ast.expr] = []
        match value:
            case ast.Constant(value=str(text)) if text.strip():
                return [(called, text)]
            case ast.Name(id=name) if name in self._constants:
                called, parts = name, [self._constants[name]]
            case ast.IfExp(body=body, orelse=orelse):
                called, parts = "", [body, orelse]
            case ast.BoolOp(values=values):
                called, parts = "", values
            case ast.Call(args=[_, default]) if _last(value.func) in {"get", "getenv"}:
                parts = [default]
        return [found for one in parts if left for found in self._texts(one, called, left - 1)]


def _imported(tree: ast.Module) -> dict[str, str]:
    """Return what each imported name stands for."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                top = one.name if one.asname else one.name.partition(".")[0]
                found[one.asname or top] = top
                found.setdefault(one.name, one.name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                found[one.asname or one.name] = f"{node.module}.{one.name}"
    return found


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Return what a file's names are, of those that are given something once."""
    found: dict[str, list[ast.expr | None]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
    return {name: of[0] for name, of in found.items() if len(of) == 1 and of[0] is not None}


def host_of(name: str) -> Framework | None:
    """Return the host that a whole name belongs to."""
    return next((host for host in FRAMEWORKS.values() if host.imports(name)), None)


def _asks_for_main(test: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Constant) and node.value == "__main__" for node in ast.walk(test)
    )


def _keywords(call: ast.Call) -> dict[str, ast.expr]:
    return {one.arg: one.value for one in call.keywords if one.arg is not None}


def _last(node: ast.expr) -> str:
    while isinstance(node, ast.Call):
        node = node.func
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
