"""The house as it is: its floors, what stands on each, and what imports what; read off the code."""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = {"tau_live": ROOT / "tau_live", "tau_live_hooks": ROOT / "hooks/tau_live_hooks"}
LAYERS = re.compile(r"^layers = \[\n(.*?)^\]", re.DOTALL | re.MULTILINE)
WIDTH = 92


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """A floor of the house, as the contract of import-linter draws it.

    Attributes:
        number: Counted from the ground, which is 1.
        name: What it is called.
        says: What it is for.
        layers: What stands on it, from above: those of one layer do not import each other, unless
            the contract lets them.
    """

    number: int
    name: str
    says: str
    layers: tuple[tuple[str, ...], ...]

    @property
    def members(self) -> list[str]:
        """Every module and package of it, by its dotted name."""
        return [name for layer in self.layers for name in layer]


def floors() -> list[Floor]:
    """Return the floors from above: comments in the contract name them, its layers follow."""
    found = LAYERS.search((ROOT / "pyproject.toml").read_text())
    lines = found[1].splitlines() if found else []
    named: list[tuple[str, str, list[tuple[str, ...]]]] = []
    for line in map(str.strip, lines):
        if line.startswith("#"):
            name, _, says = line.removeprefix("#").strip().partition(": ")
            named.append((name, says, []))
        else:
            named[-1][2].append(members_of(line.strip('",')))
    return [
        Floor(number=len(named) - n, name=name, says=says, layers=tuple(layers))
        for n, (name, says, layers) in enumerate(named)
    ]


def contract() -> list[tuple[str, ...]]:
    """Return the layers that import-linter holds, from above."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    first = document["tool"]["importlinter"]["contracts"][0]
    return [members_of(layer) for layer in first["layers"]]


def members_of(layer: str) -> tuple[str, ...]:
    """Return what stands in one layer of the contract."""
    return tuple(re.split(r"\s*[|:]\s*", layer.strip()))


def modules() -> dict[str, Path]:
    """Return the file of every module, by its dotted name."""
    found = {}
    for root, folder in SOURCES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join([root, *parts]).removesuffix(".__init__")] = path
    return found


def home(module: str) -> str:
    """Return what a module belongs to in the contract: a package, or itself."""
    first, *rest = module.split(".")
    return first if first != "tau_live" or not rest else f"{first}.{rest[0]}"


def imported() -> dict[str, set[str]]:
    """Return what each member of the contract imports of the others, anywhere in its code."""
    known = modules()
    found: dict[str, set[str]] = {}
    for module, path in known.items():
        uses = found.setdefault(home(module), set())
        uses |= {home(name) for name in _imports(ast.parse(path.read_text()), known)}
    for member, uses in found.items():
        uses -= {member, "tau_live"}
    return found


def _imports(tree: ast.Module, known: Iterable[str]) -> Iterator[str]:
    names = frozenset(known)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module in names:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in names else node.module


def stands_on(floor: Floor, house: Iterable[Floor], uses: dict[str, set[str]]) -> list[int]:
    """Return the numbers of the floors from which a floor imports, from above."""
    needed = {name for member in floor.members for name in uses.get(member, ())}
    return [one.number for one in house if one is not floor and needed & {*one.members}]


def drawn() -> str:
    """Return the house as text: each floor with what stands on it and what it stands on."""
    house, uses = floors(), imported()
    rule = "─" * WIDTH
    lines = [f"┌{rule}┐"]
    for floor in house:
        below = " ".join(map(str, stands_on(floor, house, uses)))
        head = f"{floor.number:>2}  {floor.name}"
        arrow = f"──► {below}" if below else "──► nothing of ours"
        lines.append(f"│ {head}{arrow:>{WIDTH - 2 - len(head)}} │")
        for layer in floor.layers:
            said = " · ".join(name.removeprefix("tau_live.") for name in layer)
            lines += [f"│     {part:<{WIDTH - 5}}│" for part in _wrapped(said, WIDTH - 6)]
        lines.append(f"├{rule}┤")
    lines[-1] = f"└{rule}┘"
    return "```text\n" + "\n".join(lines) + "\n```\n"


def _wrapped(text: str, width: int) -> Iterator[str]:
    line = ""
    for word in text.split(" · "):
        if line and len(line) + 3 + len(word) > width:
            yield f"{line} ·"
            line = word
        else:
            line = f"{line} · {word}" if line else word
    yield line


def first_sentence(path: Path) -> str:
    """Return what the docstring of a module begins with."""
    said = ast.get_docstring(ast.parse(path.read_text())) or ""
    return said.split("\n\n")[0].replace("\n", " ").replace("``", "`")


def thread_names() -> set[str]:
    """Return the name of every thread that anything of ours starts."""
    found = set()
    for path in modules().values():
        text = path.read_text()
        if "threading.Thread(" in text:
            found |= set(re.findall(r"[\"'](tau-live-[a-z-]+)[\"']", text))
    return found


def listed() -> str:
    """Return every module of every floor, with what its docstring begins with, as tables."""
    known = modules()
    parts = []
    for floor in floors():
        said = f"{floor.says[:1].upper()}{floor.says[1:]}."
        lines = [f"### {floor.number}. {floor.name}", "", said, "", "| module | what it is |"]
        lines.append("| --- | --- |")
        for member in floor.members:
            for name, path in known.items():
                if f"{name}.".startswith(f"{member}."):
                    first = first_sentence(path).replace("|", "\\|")
                    lines.append(f"| `{name}` | {first} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"
