"""Where a project's sources switch tau-live on when it is too late to attach."""

import ast
from collections.abc import Iterator

from tau_live.projects.findings import host_of
from tau_live.projects.sources import Source
from tau_live.switch import SWITCH

DOOR = "tau_live.auto"


def late_switches(source: Source) -> Iterator[str]:
    """Yield where the switch is set behind an import that had needed it, in words."""
    imports: list[tuple[int, str]] = []
    for top in source.tree.body:
        if isinstance(top, ast.Import):
            imports += [(top.lineno, one.name) for one in top.names]
        elif isinstance(top, ast.ImportFrom) and top.module and not top.level:
            imports += [(top.lineno, f"{top.module}.{one.name}") for one in top.names]
    needing = [(line, name) for line, name in imports if name == DOOR or host_of(name)]
    for node in ast.walk(source.tree):
        before = [name for line, name in needing if line < getattr(node, "lineno", 0)]
        if before and _sets_switch(node):
            line = getattr(node, "lineno", 0)
            yield f"{source.path}:{line} sets {SWITCH}, after the import of {before[0]}"


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
