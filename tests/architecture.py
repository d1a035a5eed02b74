"""The rooms of the house as they are: what each holds and imports; read off the code."""

import ast
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = {"tau_live": ROOT / "tau_live", "tau_live_hooks": ROOT / "hooks/tau_live_hooks"}


def rooms() -> list[str]:
    """Return every member of the contract of imports, from above: rooms, and names for others."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = document["tool"]["importlinter"]["contracts"][0]["layers"]
    return [name for layer in layers for name in re.split(r"\s*\|\s*", layer)]


def modules() -> dict[str, Path]:
    """Return the file of every module, by its dotted name."""
    paths = {}
    for root, folder in SOURCES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            paths[".".join([root, *parts]).removesuffix(".__init__")] = path
    return paths


def room_of(module: str) -> str:
    """Return the member of the contract that a module belongs to."""
    first, *rest = module.split(".")
    return first if first != "tau_live" or not rest else f"{first}.{rest[0]}"


def imported() -> dict[str, set[str]]:
    """Return the other rooms that each room imports from, anywhere in its code."""
    known = modules()
    rooms: dict[str, set[str]] = {}
    for module, path in known.items():
        names = _imports(ast.parse(path.read_text()), known)
        rooms.setdefault(room_of(module), set()).update(map(room_of, names))
    return {room: others - {room, "tau_live"} for room, others in rooms.items()}


def _imports(tree: ast.Module, known: Iterable[str]) -> Iterator[str]:
    names = frozenset(known)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module in names:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in names else node.module


def table() -> str:
    """Return a row for each room: its name, what it holds, how many modules, what it imports."""
    known, imports = modules(), imported()
    lines = ["| room | what it holds | modules | imports |", "| --- | --- | --- | --- |"]
    for room in rooms():
        path = known.get(room)
        count = sum(room_of(name) == room for name in known)
        below = ", ".join(
            f"`{other.removeprefix('tau_live.')}`" for other in rooms() if other in imports[room]
        )
        holds = "" if path is None else _first_line(path).replace("|", "\\|")
        lines.append(f"| `{room}` | {holds} | {count} | {below or 'nothing of ours'} |")
    return "\n".join(lines) + "\n"


def _first_line(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    return text.split("\n\n")[0].replace("\n", " ").replace("``", "`")


def thread_names() -> set[str]:
    """Return the name of every thread that anything of ours starts."""
    names = set()
    for path in modules().values():
        text = path.read_text()
        if "threading.Thread(" in text:
            names |= set(re.findall(r"[\"'](tau-live-[a-z-]+)[\"']", text))
    return names
