"""The findings in a parsed file: agents, models, instructions, tools, rewards, own decisions."""

import ast
import os
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from tau_live.cli.init.frameworks import FRAMEWORKS, Framework
from tau_live.core.switch import SWITCH

LEFT_OUT = frozenset(
    {"__pycache__", "build", "dist", "node_modules", "site-packages", "venv", "env"}
)
"""Folders without sources of the project's own; hidden ones and environments are left out too."""


@dataclass(slots=True)
class Reading:
    """A walk through a project.

    Attributes:
        folder: Where it starts.
        files: The most Python files.
        entries: The most files and folders of any kind that are passed on the way.
        file_bytes: The size of the longest file that is read.
        seconds: How long reading may take.
        clock: Returns the time, in seconds.
        read: The number of files that were parsed.
        unread: The files that were not, by reason.
        cut: Why the walk ended early; ``None`` if it did not.
        notebooks: The number of notebooks, which are not read.
    """

    folder: Path
    files: int = 2_000
    entries: int = 100_000
    file_bytes: int = 1_000_000
    seconds: float = 10.0
    clock: Callable[[], float] = time.monotonic
    read: int = 0
    unread: dict[str, list[str]] = field(default_factory=dict)
    cut: str | None = None
    notebooks: int = 0

    def sources(self) -> "Iterator[Source]":
        """Yield every file that can be parsed, folder by folder, each in the order of its name."""
        until = self.clock() + self.seconds
        for path in self._files(until):
            if self.clock() > until:
                self.cut = f"it took longer than {self.seconds:g} s"
            elif self.read + sum(map(len, self.unread.values())) >= self.files:
                self.cut = f"there are more than {self.files:,} Python files"
            if self.cut:
                return
            name = path.relative_to(self.folder).as_posix()
            tree = _parse(path, self.file_bytes)
            if isinstance(tree, str):
                self.unread.setdefault(tree, []).append(name)
            else:
                self.read += 1
                yield Source(name, tree)

    def _files(self, until: float) -> Iterator[Path]:
        entries = 0

        def note_closed(error: OSError) -> None:
            name = os.path.relpath(str(error.filename), self.folder)
            self.unread.setdefault("cannot be opened", []).append(name)

        for folder, folders, files in os.walk(self.folder, onerror=note_closed):
            parent = Path(folder)
            folders[:] = sorted(child for child in folders if _is_own(parent / child))
            for name in sorted(files):
                self.notebooks += name.endswith(".ipynb")
                if name.endswith(".py"):
                    yield parent / name
            entries += len(files) + len(folders)
            if entries > self.entries:
                self.cut = f"there are more than {self.entries:,} files"
            elif self.clock() > until:  # also where there is no Python file at all
                self.cut = f"it took longer than {self.seconds:g} s"
            if self.cut:
                return


def _is_own(folder: Path) -> bool:
    name = folder.name
    left_out = name in LEFT_OUT or name.startswith(".") or name.endswith(".egg-info")
    return not left_out and not (folder / "pyvenv.cfg").exists()


def _parse(path: Path, max_bytes: int) -> ast.Module | str:
    """Return the syntax tree of a file, or why it was not parsed."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading it may never end
            return "not a file"
        if status.st_size > max_bytes:
            return f"larger than {max_bytes / 1e6:g} MB"
        content = path.read_bytes()
    except OSError:
        return "cannot be read"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the compiler's, about other people's code
            return ast.parse(content)
    except SyntaxError:
        return "syntax error"
    except (ValueError, RecursionError, MemoryError):
        return "cannot be parsed"


DOOR = "tau_live.auto"
OWN = ""
"""The host of findings that are the project's own."""

_RUNS = frozenset({"run", "run_sync", "run_stream", "run_stream_sync", "iter", "override"})
_TOOLS = frozenset({"tool", "tool_plain", "function_tool"})


class FindingKind(StrEnum):
    """The kind of a finding."""

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
        kind: Its kind.
        text: Its name, or for a prompt its text; empty where the source does not show it, as for a
            model that is an object.
        host: The name of its host; empty for the project's own.
        path: The file.
        line: The line.
        within: For a prompt, its name; for a model, the class that was given it.
    """

    kind: FindingKind
    text: str
    host: str
    path: str
    line: int
    within: str = ""


class Source:
    """A file that was parsed.

    Args:
        path: Its path below the project's folder.
        tree: Its syntax tree.

    Attributes:
        path: Its path.
        hosts: The supported hosts that it imports, by name.
    """

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.path = path
        self._tree = tree
        self._names = _imports(tree)
        known = (host_of(name) for name in self._names.values())
        self.hosts = {host.host: host for host in known if host is not None}
        self._only_host = next(iter(self.hosts.values())) if len(self.hosts) == 1 else None
        self._constants = _constants(tree)
        self._ours = any(name.partition(".")[0] == "tau_live" for name in self._names.values())

    def findings(self) -> Iterator[Finding]:
        """Yield its findings, in the order of its lines within each kind of syntax."""
        for name in self.hosts:
            yield Finding(FindingKind.HOST, name, name, self.path, 1)
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call):
                yield from self._in_call(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from self._in_function(node)
        for statement in self._tree.body:
            if isinstance(statement, ast.If) and any(
                isinstance(node, ast.Constant) and node.value == "__main__"
                for node in ast.walk(statement.test)
            ):
                yield Finding(FindingKind.START, "", OWN, self.path, statement.lineno)

    def late_switches(self) -> Iterator[str]:
        """Yield where the switch is set after an import that needs it, in words."""
        needing: list[tuple[int, str]] = []
        for top in self._tree.body:
            names: list[str] = []
            if isinstance(top, ast.Import):
                names = [alias.name for alias in top.names]
            elif isinstance(top, ast.ImportFrom) and top.module and not top.level:
                names = [f"{top.module}.{alias.name}" for alias in top.names]
            needing += [(top.lineno, name) for name in names if name == DOOR or host_of(name)]
        for node in ast.walk(self._tree):
            at = getattr(node, "lineno", 0)
            earlier = [name for line, name in needing if line < at]
            if earlier and _sets_switch(node):
                yield f"{self.path}:{at} sets {SWITCH}, after the import of {earlier[0]}"

    def _in_call(self, call: ast.Call) -> Iterator[Finding]:
        """Yield the findings in a call."""
        name = self._full_name(call.func)
        last = name.rpartition(".")[2]
        host = host_of(name)
        if host is not None and last in host.agents:
            yield from self._agent(call, host, last)
        elif host is not None and last in host.models:
            yield from self._models(call, host, within=last, first=True)
        elif isinstance(call.func, ast.Attribute) and last in _RUNS and self._only_host:
            yield from self._models(call, self._only_host, within="")
        if self._ours and last in {"reward", "decide"}:
            yield from self._own_findings(call, last)

    def _in_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Finding]:
        """Yield a function that is made a tool by its decorator."""
        for decorator in node.decorator_list:
            function = decorator.func if isinstance(decorator, ast.Call) else decorator
            name = self._full_name(function)
            host = host_of(name) or self._only_host
            if host is not None and name.rpartition(".")[2] in _TOOLS:
                yield Finding(FindingKind.TOOL, node.name, host.host, self.path, node.lineno)

    def _agent(self, call: ast.Call, host: Framework, made_by: str) -> Iterator[Finding]:
        given = _keywords(call)
        names = self._texts(given["name"]) if "name" in given else []
        own = names[0][1] if names else ""
        yield Finding(FindingKind.AGENT, own, host.host, self.path, call.lineno, made_by)
        first = not host.models or host.host == "langchain"
        yield from self._models(call, host, within="", first=first)
        for key in host.prompts & given.keys():
            for label, text in self._texts(given[key]):
                yield Finding(
                    FindingKind.PROMPT, text, host.host, self.path, given[key].lineno, label
                )
        tools = given.get("tools")
        for tool in tools.elts if isinstance(tools, ast.List | ast.Tuple) else ():
            if last := _last(tool):
                yield Finding(FindingKind.TOOL, last, host.host, self.path, tool.lineno)

    def _models(
        self, call: ast.Call, host: Framework, *, within: str, first: bool = False
    ) -> Iterator[Finding]:
        given = _keywords(call)
        models = [given[key] for key in ("model", "model_id", "model_name") if key in given]
        for value in models or (call.args[:1] if first else []):
            texts = [text for _, text in self._texts(value)]
            made = self._constants.get(value.id) if isinstance(value, ast.Name) else value
            # a call that makes a model is a finding of its own
            if not texts and not (isinstance(made, ast.Call) and _last(made) in host.models):
                texts = [""]
            for text in texts:
                yield Finding(FindingKind.MODEL, text, host.host, self.path, value.lineno, within)

    def _own_findings(self, call: ast.Call, last: str) -> Iterator[Finding]:
        if last == "reward":
            name = _keywords(call).get("name")
            texts = self._texts(name) if name is not None else []
            for _, text in texts or [("", "")]:
                yield Finding(FindingKind.REWARD, text, OWN, self.path, call.lineno)
        elif call.args:
            for _, text in self._texts(call.args[0]):
                yield Finding(FindingKind.POINT, text, OWN, self.path, call.lineno)

    def _full_name(self, node: ast.expr) -> str:
        """Return the full name of a called function, as far as imports determine it."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        top = self._names.get(node.id, node.id) if isinstance(node, ast.Name) else ""
        return ".".join([top, *reversed(parts)])

    def _texts(self, value: ast.expr, label: str = "", depth: int = 8) -> list[tuple[str, str]]:
        """Return the texts that an expression may be, each after the name it has; maybe none.

        Names that stand for names are followed ``depth`` steps: two may stand for each other.
        """
        parts: list[ast.expr] = []
        match value:
            case ast.Constant(value=str(text)) if text.strip():
                return [(label, text)]
            case ast.Name(id=name) if name in self._constants:
                label, parts = name, [self._constants[name]]
            case ast.IfExp(body=body, orelse=orelse):
                label, parts = "", [body, orelse]
            case ast.BoolOp(values=values):
                label, parts = "", values
            case ast.Call(args=[_, default]) if _last(value.func) in {"get", "getenv"}:
                parts = [default]
        return [pair for part in parts if depth for pair in self._texts(part, label, depth - 1)]


def _imports(tree: ast.Module) -> dict[str, str]:
    """Return the full name of each imported name."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name if alias.asname else alias.name.partition(".")[0]
                names[alias.asname or top] = top
                names.setdefault(alias.name, alias.name)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the values of a file's names that are assigned once."""
    values: dict[str, list[ast.expr | None]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(node.value)
    return {name: of[0] for name, of in values.items() if len(of) == 1 and of[0] is not None}


def host_of(name: str) -> Framework | None:
    """Return the host that a full name belongs to."""
    return next((host for host in FRAMEWORKS.values() if host.imports(name)), None)


def _keywords(call: ast.Call) -> dict[str, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg is not None}


def _last(node: ast.expr) -> str:
    while isinstance(node, ast.Call):
        node = node.func
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _sets_switch(node: ast.AST) -> bool:
    match node:
        case ast.Assign(targets=[ast.Subscript(slice=ast.Constant(value=name))]):
            return bool(name == SWITCH)
        case ast.Call(
            func=ast.Attribute(attr="setdefault" | "putenv"),
            args=[ast.Constant(value=name), *_],
        ):
            return bool(name == SWITCH)
        case _:
            return False
