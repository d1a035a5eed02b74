"""What only one floor may touch; that imports go down only is import-linter's."""

import ast
from functools import cache
from pathlib import Path

import pytest

import tau_live

ROOT = Path(tau_live.__file__).parent

ALLOWED = {
    "sqlite_utils": ("tau_live.store",),
    "pluggy": ("tau_live.core.plugins", "tau_live.core.hookspecs"),
    "click": ("tau_live.cli",),
    "rich": ("tau_live.cli",),
    "matplotlib": ("tau_live.cli",),
    "pydantic": ("tau_live.prompts",),
    "wrapt": ("tau_live.boot", "tau_live.core.processes"),
    "pickle": (),
    "marshal": (),
    "shelve": (),
}
READS_THE_ENVIRONMENT = {
    "tau_live.boot.boot",
    "tau_live.runtime.api",
    "tau_live.operate.lean",
    "tau_live.core.switch",
    "tau_live.evidence.operations.__main__",  # the door of the processes that check
    "tau_live.core.addresses",  # only where this machine keeps the state of programs
    "tau_live.engines.ray",  # only to tell Ray that it reports nothing
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


@pytest.mark.slow
@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_a_package_is_imported_on_its_own_floor_only(package: str) -> None:
    strangers = [
        name
        for name, tree in modules().items()
        if package in imported(tree)
        and not any(stands_in(name, place) for place in ALLOWED[package])
    ]

    assert strangers == []


@pytest.mark.slow
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


@pytest.mark.slow
def test_no_module_takes_the_name_of_a_public_function() -> None:
    names = {name.split(".")[1] for name in modules() if name.count(".")}

    assert not names.intersection(tau_live.__all__)  # importing one would replace the function


@pytest.mark.slow
def test_numpy_allow_pickle_is_never_true() -> None:
    for name, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), name
                assert node.value.value is False, name
