"""What is around a project's sources: what it depends on, what is installed, whose Python."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from tau_live.errors import SettingsError
from tau_live.projects.frameworks import FRAMEWORKS, Framework
from tau_live.settings.sources import PYPROJECT, read_toml

REQUIREMENTS = ("requirements*.txt", "requirements*.in", "requirements/*.txt")
MOST_FILES, MOST_BYTES = 20, 1_000_000
ENVIRONMENTS = (".venv", "venv")
_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?")


def installed(host: Framework) -> str | None:
    """Return the version of a host that is installed here; ``None`` where it is not."""
    for package in host.packages:
        with suppress(Exception):  # metadata may be missing or broken
            return metadata.version(package)
    return None


def declared(folder: Path) -> tuple[set[str], list[str]]:
    """Return the hosts that a project says it needs, and what could not be read."""
    names, problems = set[str](), list[str]()
    for file in _requirements(folder):
        try:
            with file.open("rb") as opened:
                lines = opened.read(MOST_BYTES).decode(errors="replace").splitlines()
        except OSError as error:
            problems.append(f"{file.name} cannot be read: {error.strerror or error}")
        else:
            names |= set(_names(lines))
    try:
        document = read_toml(folder / PYPROJECT) if (folder / PYPROJECT).exists() else {}
    except SettingsError as error:
        document = {}
        problems.append(str(error))
    names |= set(_names(_dependencies(document)))
    hosts = {host.host for host in FRAMEWORKS.values() if {*host.packages} & names}
    extras = {name.removeprefix("tau-live:") for name in names if name.startswith("tau-live:")}
    return hosts | (extras & FRAMEWORKS.keys()), problems


def is_own(folder: Path, host: Framework) -> bool:
    """Say whether the import of a host is a module of the project itself, as `agents` often is."""
    tops = {one.partition(".")[0] for one in host.modules if not one.endswith("_")}
    return any(
        (place / f"{top}.py").is_file() or (place / top).is_dir()
        for top in tops
        for place in (folder, folder / "src")
    )


def other_environment(folder: Path) -> Path | None:
    """Return the project's own environment where that is not the one that runs now."""
    for name in ENVIRONMENTS:
        found = folder / name
        if (found / "pyvenv.cfg").is_file() and found.resolve() != Path(sys.prefix).resolve():
            return found
    return None


def has_us(environment: Path) -> bool:
    """Say whether tau-live is installed in an environment."""
    places = ("lib/python3*/site-packages", "Lib/site-packages")
    return any(
        any(site.glob("tau_live-*.dist-info"))
        for place in places
        for site in environment.glob(place)
    )


def is_committed(folder: Path) -> bool:
    """Say whether a store in this folder would be seen by git."""
    try:
        ignored = (folder / ".gitignore").read_text(errors="replace").splitlines()
    except OSError:
        ignored = []
    return (folder / ".git").exists() and not any(".tau" in line for line in ignored)


def _requirements(folder: Path) -> list[Path]:
    found = [file for one in REQUIREMENTS for file in sorted(folder.glob(one)) if file.is_file()]
    return found[:MOST_FILES]


def _names(lines: Iterable[str]) -> Iterator[str]:
    """Yield the packages that lines require; ours with an extra as ``tau-live:extra``."""
    for line in lines:
        found = _NAME.match(line)
        if found:
            name = re.sub(r"[-_.]+", "-", found[1]).lower()
            yield name
            if name == "tau-live":
                yield from (f"tau-live:{extra.strip()}" for extra in (found[2] or "").split(","))


def _dependencies(document: Mapping[str, object]) -> Iterator[str]:
    """Yield every requirement that a ``pyproject.toml`` has, wherever it has it."""
    project = _table(document, "project")
    yield from _texts(project.get("dependencies"))
    for of in (_table(project, "optional-dependencies"), _table(document, "dependency-groups")):
        for group in of.values():
            yield from _texts(group)
    poetry = _table(_table(document, "tool"), "poetry")
    yield from map(str, _table(poetry, "dependencies"))
    for group in _table(poetry, "group").values():
        if isinstance(group, Mapping):
            yield from map(str, _table(group, "dependencies"))


def _table(of: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = of.get(name)
    return found if isinstance(found, Mapping) else {}


def _texts(found: object) -> Iterator[str]:
    if isinstance(found, list):
        yield from (one for one in found if isinstance(one, str))
