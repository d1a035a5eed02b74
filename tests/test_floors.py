"""What only one floor may touch; that imports go down only is import-linter's."""

import ast
from functools import cache
from pathlib import Path

import pytest

import tau_live

ROOT = Path(tau_live.__file__).parent

ALLOWED = {
    "sqlite_utils": ("tau_live.store",),
    "pluggy": ("tau_live.plugins", "tau_live.hookspecs"),
    "click": ("tau_live.cli",),
    "rich": ("tau_live.cli", "tau_live.demo"),
    "matplotlib": ("tau_live.cli",),
    "wrapt": ("tau_live.attaching", "tau_live.machine.children"),
    "pickle": (),
    "marshal": (),
    "shelve": (),
}
READS_THE_ENVIRONMENT = {
    "tau_live.attaching.booting",
    "tau_live.door",
    "tau_live.lean",
    "tau_live.process_switch",
}


@cache
def modules() -> dict[str, ast.Module]:
    return {dotted(path): ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def stands_in(name: str, place: str) -> bool:
    return f"{name}.".startswith(f"{place}.")


def imported(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_a_package_is_imported_on_its_own_floor_only(package: str) -> None:
    strangers = [
        name
        for name, tree in modules().items()
        if package in imported(tree)
        and not any(stands_in(name, place) for place in ALLOWED[package])
    ]

    assert strangers == []


def test_the_environment_is_read_at_the_door_and_on_the_command_line_only() -> None:
    readers = {
        name
        for name, tree in modules().items()
        if any(
            isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}
            for node in ast.walk(tree)
        )
    }

    assert {name for name in readers if not stands_in(name, "tau_live.cli")} == (
        READS_THE_ENVIRONMENT
    )


def test_numpy_allow_pickle_is_never_true() -> None:
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), name
                assert node.value.value is False, name


LONGEST = 600
"""Lines of a module. A limit is no reason to cut one thing in two."""


def test_every_module_is_short_enough_to_read() -> None:
    long = {
        path.relative_to(ROOT).as_posix(): lines
        for path in ROOT.rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > LONGEST
    }

    assert long == {}
