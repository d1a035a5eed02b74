"""The measures of the house: modules, rooms, arrows, names, and the calls of four ways through it.

Printed beside their values before the house was redrawn (8fb338e), their values without the
capabilities that were built on it since, and their goals.

    python -m tests.house
    python -m tests.house --json
"""

import ast
import json
import os
import re
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

ROOT = Path(__file__).parents[1]
PACKAGES = ("tau_live", "hooks/tau_live_hooks")

SHORT = 40
"""Lines below which a module is counted as one of the short ones."""

REFUSED = ("told", "said", "asked", "begun")
VAGUE = ("found", "one")
PARTICIPLES = frozenset(
    """
    begun bound built caught done drawn driven fed felt found given gone grown heard held hidden
    kept known laid left lent lived lost made meant met paid said seen sent shown stood taken told
    thought understood woken won worn written
    """.split()  # noqa: SIM905  # a list of words
)
"""Irregular ones that are no imperative, as ``put`` is; the regular end with ``ed``."""

SINCE = re.compile(
    r"tau_live\.(?:prompts|evidence|experience|serve|operate\.(?:follow|otlp)"
    r"|cli\.(?:optimize|bench|experience|start|proxy|dashboard|notebook|otlp|page\.proof"
    r"|demo\.(?:proof|lessons)))"
)
"""Begins the modules of capabilities that came after the goals were set: issues 15 to 18."""

HOSTS = frozenset({"enabled"})
"""Names of a host's interface."""

CIRCUMLOCUTION = re.compile(r"What\b")
UNTYPED = re.compile(r"\b(?:Mapping|dict)\[str, object\]")


class Measure(NamedTuple):
    """A figure, what it was at 8fb338e, and what it is to be at most."""

    name: str
    now: int
    before: int
    goal: int | None
    without: int | None = None
    """The figure without the capabilities that came later; ``None`` where they have no part."""


class Module(NamedTuple):
    """A module of ours."""

    name: str
    text: str
    tree: ast.Module
    is_package: bool

    @property
    def room(self) -> str:
        """The first-level name that it belongs to."""
        parts = self.name.split(".")
        return parts[1] if parts[0] == "tau_live" and len(parts) > 1 else parts[0]


def modules(root: Path = ROOT) -> dict[str, Module]:
    """Return every module of tau-live and its adapters by its dotted name."""
    found = {}
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to((root / package).parent).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            text = path.read_text()
            found[name] = Module(name, text, ast.parse(text), is_package)
    return found


def imports(module: Module, known: Mapping[str, object]) -> set[str]:
    """Return the modules of ours that a module imports, for types alone and late ones too."""
    names: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return {
        nearest for name in names if (nearest := _nearest(name, known)) and nearest != module.name
    }


def _nearest(name: str, known: Mapping[str, object]) -> str:
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def circles(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """Return the groups of modules of which each imports each, if only by way of others."""
    reached = {name: _reached(graph, name) for name in graph}
    return {
        frozenset(other for other in reached[name] if name in reached[other])
        for name in graph
        if name in reached[name]
    }


def _reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    ahead = [*graph[start]]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += graph[name]
    return found


def _statements(tree: ast.Module) -> int:
    return sum(
        isinstance(node, ast.stmt)
        and not (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        )
        for node in ast.walk(tree)
    )


def _nodes(known: Iterable[Module], *kinds: type[ast.AST]) -> Iterator[Any]:
    for module in known:
        for node in ast.walk(module.tree):
            if isinstance(node, kinds):
                yield node


def _is_participle(name: str) -> bool:
    word = name.strip("_")
    return (
        "_" not in word
        and name not in HOSTS
        and (word in PARTICIPLES or (word.endswith("ed") and len(word) > 4))
    )


def _docstrings(known: Iterable[Module]) -> Iterator[str]:
    for node in _nodes(known, ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef):
        if text := ast.get_docstring(node):
            yield text


def standing(root: Path = ROOT) -> list[Measure]:
    """Return what can be counted without running anything."""
    whole = modules(root)
    earlier = {name: module for name, module in whole.items() if not SINCE.match(name)}
    return [
        measure._replace(without=before.now)
        for measure, before in zip(counts(whole), counts(earlier), strict=True)
    ]


def counts(known: Mapping[str, Module]) -> list[Measure]:
    """Return what can be counted of some modules."""
    lines = [module.text.count("\n") for module in known.values()]
    graph = {name: imports(module, known) for name, module in known.items()}
    arrows = {
        (known[name].room, known[other].room)
        for name, others in graph.items()
        for other in others
        if known[name].room != known[other].room
    }
    words = Counter(
        word for module in known.values() for word in re.findall(r"\b[a-z]+\b", module.text)
    )
    stored = Counter(
        node.id for node in _nodes(known.values(), ast.Name) if isinstance(node.ctx, ast.Store)
    )
    functions = list(_nodes(known.values(), ast.FunctionDef, ast.AsyncFunctionDef))
    texts = [module.text for module in known.values()]
    return [
        Measure("modules", len(known), 463, 240),
        Measure(f"modules of less than {SHORT} lines", sum(n < SHORT for n in lines), 64, 12),
        Measure("lines", sum(lines), 69_091, 56_000),
        Measure("statements", sum(_statements(one.tree) for one in known.values()), 33_321, 27_000),
        Measure("classes", len(list(_nodes(known.values(), ast.ClassDef))), 700, 520),
        Measure("arrows between rooms", len(arrows), 414, 60),
        Measure("circles of imports", len(circles(graph)), 3, 0),
        Measure(
            "modules that name `latency_us`", sum("latency_us" in text for text in texts), 20, 4
        ),
        *(
            Measure(f"the word `{word}`", words[word], before, 0)
            for word, before in zip(REFUSED, (978, 607, 440, 257), strict=True)
        ),
        Measure("variables called `found` or `one`", sum(stored[word] for word in VAGUE), 944, 60),
        Measure(
            "names of functions that are a participle alone",
            len({node.name.strip("_") for node in functions if _is_participle(node.name)}),
            242,
            0,
        ),
        Measure(
            "docstrings that begin with a circumlocution",
            sum(CIRCUMLOCUTION.match(text) is not None for text in _docstrings(known.values())),
            326,
            40,
        ),
        Measure(
            "annotations `Mapping[str, object]` or `dict[str, object]`",
            sum(len(UNTYPED.findall(text)) for text in texts),
            412,
            120,
        ),
    ]


WRITER, LEARNER = "tau-live-writer", "tau-live-learner"
BATCH = "Writer.write"
"""Around what the end of a run costs; what the writer looks after by the clock is not of a run."""

PATIENCE_S = 60.0


class Trace:
    """Counts calls of ours and statements to SQLite, in one thread at a time."""

    def __init__(self) -> None:
        self._thread = self._within = ""
        self._open = True
        self._calls: dict[str, list[str]] = defaultdict(list)
        self._statements: Counter[str] = Counter()

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """Take what happens; given to ``setprofile``."""
        name = threading.current_thread().name
        if name != self._thread:
            return
        if event in {"call", "return"} and frame.f_code.co_qualname == self._within:
            self._open = event == "call"
        if not self._open:
            return
        file = frame.f_code.co_filename
        if event == "call" and f"{os.sep}tau_live" in file:
            self._calls[name].append(file)
        elif event == "c_call" and getattr(argument, "__name__", "").startswith("execute"):
            self._statements[name] += 1

    def watch(self, thread: str, *, within: str = "") -> None:
        """Count what one thread does from now on, maybe within one function; no name for none."""
        self._within, self._open = within, not within
        self._thread = thread

    def taken(self, thread: str) -> tuple[int, int, int]:
        """Return the calls, the files and the statements of a thread, and forget them."""
        calls = self._calls.pop(thread, [])
        return len(calls), len(set(calls)), self._statements.pop(thread, 0)


class Player:
    """Plays runs of one decision, some of them watched."""

    def __init__(self) -> None:
        self.trace = Trace()
        self._key = 0

    def play(self, runs: int = 1, *, decide: str = "", end: str = "") -> None:
        """Make runs.

        Args:
            runs: How many.
            decide: The thread in which the decision is watched; this one.
            end: The thread in which the end is watched.
        """
        import tau_live

        for _ in range(runs):
            self._key += 1
            with tau_live.run("agent", key=self._key) as run:
                self.trace.watch(decide)
                sys.setprofile(self.trace.note if decide else None)
                choice = run.decide(
                    "model", ["small", "large"], context={"x": 1.0, "kind": "a"}, default="small"
                )
                sys.setprofile(None)
                run.reward(float(choice.option == "large"))
                if end:
                    self.settle()
                    self.trace.watch(end, within=BATCH)
            if end:
                time.sleep(0.5)  # the writer takes it by itself
        self.trace.watch("")

    def settle(self, watch: str = "") -> None:
        """Let everything that waits be stored and learned from."""
        import tau_live

        self.trace.watch(watch)
        tau_live.flush(PATIENCE_S)
        self.trace.watch("")


def walked() -> list[Measure]:
    """Return the calls of a decision, of the end of a run, of a look and of an update, all warm."""
    player = Player()
    threading.setprofile(player.trace.note)
    os.environ["TAU_LIVE_RL"] = "1"
    import tau_live
    from tau_live.core.settings import Learner, Settings

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.sqlite"
        tau_live.attach(Settings(store=path, stream="house", learner=Learner.THREAD))
        player.play(16)
        player.settle()
        player.play(3)
        player.settle()
        here = threading.current_thread().name
        player.play(decide=here)
        decided = player.trace.taken(here)
        player.settle()
        player.settle(LEARNER)
        looked = player.trace.taken(LEARNER)
        player.play(end=WRITER)
        ended = player.trace.taken(WRITER)
        player.settle()
        player.play(2)
        player.settle()
        player.trace.watch(LEARNER)
        player.play(8)
        player.settle(LEARNER)
        updated = player.trace.taken(LEARNER)
        tau_live.detach()
    return [
        Measure("a decision in the host's thread: calls", decided[0], 103, 45),
        Measure("a decision in the host's thread: files", decided[1], 26, 12),
        Measure("the end of a run in the writer's thread: calls", ended[0], 250, 120),
        Measure("the end of a run in the writer's thread: files", ended[1], 34, 16),
        Measure("a look of the learner, no update due: calls", looked[0], 708, 80),
        Measure("a look of the learner, no update due: statements", looked[2], 66, 4),
        Measure("an update of 8 rollouts: files", updated[1], 102, 45),
    ]


def main() -> None:
    """Print the measures."""
    measures = [*standing(), *walked()]
    if "--json" in sys.argv:
        print(json.dumps([one._asdict() for one in measures], indent=1))
        return
    table = Table("measure", "8fb338e", "now", "without issues 15 to 18", "to reach")
    for one in measures:
        reached = one.goal is None or one.now <= one.goal
        table.add_row(
            escape(one.name),
            f"{one.before:,}",
            f"[{'green' if reached else 'red'}]{one.now:,}",
            "" if one.without is None else f"{one.without:,}",
            "" if one.goal is None else f"{one.goal:,}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
