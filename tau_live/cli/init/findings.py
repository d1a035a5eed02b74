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
"""Folders in which nobody's own sources are; besides them hidden ones and environments."""


@dataclass(slots=True)
class Reading:
    """A walk through a project.

    Attributes:
        folder: Where it begins.
        files: Python files, at most.
        entries: Files and folders of any kind that are passed on the way, at most.
        file_bytes: What a longer file has is not read.
        seconds: Reading ends after so long.
        clock: Tells the time, in seconds.
        read: How many files were parsed.
        unread: By reason, the files that were not.
        cut: Why the walk ended before everything was seen; ``None`` if it did not.
        notebooks: How many notebooks there are; they are not read.
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
        passed = 0

        def note_closed(error: OSError) -> None:
            name = os.path.relpath(str(error.filename), self.folder)
            self.unread.setdefault("cannot be opened", []).append(name)

        for folder, folders, files in os.walk(self.folder, onerror=note_closed):
            at = Path(folder)
            folders[:] = sorted(child for child in folders if _is_own(at / child))
            for name in sorted(files):
                self.notebooks += name.endswith(".ipynb")
                if name.endswith(".py"):
                    yield at / name
            passed += len(files) + len(folders)
            if passed > self.entries:
                self.cut = f"there are more than {self.entries:,} files"
            elif self.clock() > until:  # also where there is no Python file at all
                self.cut = f"it took longer than {self.seconds:g} s"
            if self.cut:
                return


def _is_own(folder: Path) -> bool:
    name = folder.name
    left_out = name in LEFT_OUT or name.startswith(".") or name.endswith(".egg-info")
    return not left_out and not (folder / "pyvenv.cfg").exists()


def _parse(path: Path, most: int) -> ast.Module | str:
    """Return the syntax tree of a file, or why it was not parsed."""
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):  # to read it may never end
            return "not a file"
        if about.st_size > most:
            return f"larger than {most / 1e6:g} MB"
        content = path.read_bytes()
    except OSError:
        return "cannot be read"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what the compiler thinks of other people's code
            return ast.parse(content)
    except SyntaxError:
        return "syntax error"
    except (ValueError, RecursionError, MemoryError):
        return "cannot be parsed"


DOOR = "tau_live.auto"
OWN = ""
"""The host of what a project's code does by itself."""

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
        kind: What it is.
        text: Its name, or for a prompt its text; empty where the source does not say, as for a
            model that is an object.
        host: Whose; empty for what is the project's own.
        path: The file.
        line: Where in it.
        within: For a prompt, what it was called; for a model the class that was given it.
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
        """Yield what it names, in the order of its lines within each kind of syntax."""
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
        """Yield where the switch is set behind an import that had needed it, in words."""
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
            before = [name for line, name in needing if line < at]
            if before and _sets_switch(node):
                yield f"{self.path}:{at} sets {SWITCH}, after the import of {before[0]}"

    def _in_call(self, call: ast.Call) -> Iterator[Finding]:
        """Yield what a call names."""
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
            yield from self._of_ours(call, last)

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
            for called, text in self._texts(given[key]):
                yield Finding(
                    FindingKind.PROMPT, text, host.host, self.path, given[key].lineno, called
                )
        tools = given.get("tools")
        for tool in tools.elts if isinstance(tools, ast.List | ast.Tuple) else ():
            if last := _last(tool):
                yield Finding(FindingKind.TOOL, last, host.host, self.path, tool.lineno)

    def _models(
        self, call: ast.Call, host: Framework, *, within: str, first: bool = False
    ) -> Iterator[Finding]:
        given = _keywords(call)
        named = [given[key] for key in ("model", "model_id", "model_name") if key in given]
        for value in named or (call.args[:1] if first else []):
            texts = [text for _, text in self._texts(value)]
            made = self._constants.get(value.id) if isinstance(value, ast.Name) else value
            # a call that makes a model names it where it stands
            if not texts and not (isinstance(made, ast.Call) and _last(made) in host.models):
                texts = [""]
            for text in texts:
                yield Finding(FindingKind.MODEL, text, host.host, self.path, value.lineno, within)

    def _of_ours(self, call: ast.Call, last: str) -> Iterator[Finding]:
        if last == "reward":
            name = _keywords(call).get("name")
            texts = self._texts(name) if name is not None else []
            for _, text in texts or [("", "")]:
                yield Finding(FindingKind.REWARD, text, OWN, self.path, call.lineno)
        elif call.args:
            for _, text in self._texts(call.args[0]):
                yield Finding(FindingKind.POINT, text, OWN, self.path, call.lineno)

    def _full_name(self, node: ast.expr) -> str:
        """Return the whole name of what is called, as far as imports determine it."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        top = self._names.get(node.id, node.id) if isinstance(node, ast.Name) else ""
        return ".".join([top, *reversed(parts)])

    def _texts(self, value: ast.expr, called: str = "", left: int = 8) -> list[tuple[str, str]]:
        """Return the texts that an expression may be, each behind the name it has; maybe none.

        Names that stand for names are followed ``left`` steps: two may stand for each other.
        """
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
        return [pair for part in parts if left for pair in self._texts(part, called, left - 1)]


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
    """Return what a file's names are, of those that are given something once."""
    values: dict[str, list[ast.expr | None]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(node.value)
    return {name: of[0] for name, of in values.items() if len(of) == 1 and of[0] is not None}


def host_of(name: str) -> Framework | None:
    """Return the host that a whole name belongs to."""
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
