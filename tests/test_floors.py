"""What only one floor may touch; that imports go down only is import-linter's."""

import ast
from pathlib import Path

import pytest

import tau_live

ROOT = Path(tau_live.__file__).parent

ALLOWED = {
    "sqlite_utils": {"store"},
    "pluggy": {"plugins", "hookspecs"},
    "click": {"cli"},
    "rich": {"cli", "demo"},
    "matplotlib": {"cli"},
    "wrapt": {"hosts", "children"},
    "pickle": set[str](),
    "marshal": set[str](),
    "shelve": set[str](),
}


def modules() -> dict[str, ast.Module]:
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text())
        for path in sorted(ROOT.rglob("*.py"))
    }


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
    users = {
        name.partition("/")[0].removesuffix(".py")
        for name, tree in modules().items()
        if package in imported(tree)
    }

    assert users <= ALLOWED[package]


def test_the_environment_is_read_at_the_door_and_on_the_command_line_only() -> None:
    readers = {
        name
        for name, tree in modules().items()
        if any(
            isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv"}
            for node in ast.walk(tree)
        )
    }

    assert {name for name in readers if not name.startswith("cli/")} <= {
        "booting.py",
        "door.py",
        "switching.py",
    }


def test_numpy_allow_pickle_is_never_true() -> None:
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), name
                assert node.value.value is False, name


def test_every_module_is_short_enough_to_read() -> None:
    long = {
        path.relative_to(ROOT).as_posix(): lines
        for path in ROOT.rglob("*.py")
        if (lines := len(path.read_text().splitlines())) > 400
    }

    assert long == {}
