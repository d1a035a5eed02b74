"""A project: its hosts, and the findings in its sources."""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tau_live.cli.init.findings import OWN, Finding, FindingKind, Reading
from tau_live.cli.init.frameworks import FRAMEWORKS, Framework
from tau_live.core.errors import SettingsError
from tau_live.core.sanitize import mapping, sequence
from tau_live.core.settings.kinds import Table
from tau_live.core.settings.sources import PYPROJECT, read_toml
from tau_live.core.version import own_source

_NAME = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?")


IN_EXTRA = "pydantic-ai"
"""The host that our own extra ``optimize`` installs, which says nothing about a project."""


def installed_version(host: Framework) -> str | None:
    """Return the installed version of a host; ``None`` if it is not installed here."""
    for package in host.packages:
        with suppress(Exception):  # metadata may be missing or broken
            return metadata.version(package)
    return None


def declared_hosts(folder: Path) -> tuple[set[str], list[str]]:
    """Return the hosts that a project declares, and the problems with reading them."""
    names, problems = set[str](), list[str]()
    files = [
        file
        for pattern in ("requirements*.txt", "requirements*.in", "requirements/*.txt")
        for file in sorted(folder.glob(pattern))
    ]
    for file in [file for file in files if file.is_file()][:20]:
        try:
            with file.open("rb") as opened:
                lines = opened.read(1_000_000).decode(errors="replace").splitlines()
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
    """Return whether a host's import is a module of the project itself, as `agents` often is."""
    tops = {module.partition(".")[0] for module in host.modules if not module.endswith("_")}
    return any(
        (place / f"{top}.py").is_file() or (place / top).is_dir()
        for top in tops
        for place in (folder, folder / "src")
    )


def other_environment(folder: Path) -> Path | None:
    """Return the project's own environment, if it is not the one that runs now."""
    for name in (".venv", "venv"):
        environment = folder / name
        is_there = (environment / "pyvenv.cfg").is_file()
        if is_there and environment.resolve() != Path(sys.prefix).resolve():
            return environment
    return None


def has_us(environment: Path) -> bool:
    """Return whether tau-live is installed in an environment."""
    places = ("lib/python3*/site-packages", "Lib/site-packages")
    return any(
        any(site.glob("tau_live-*.dist-info"))
        for place in places
        for site in environment.glob(place)
    )


def is_committed(folder: Path) -> bool:
    """Return whether git would see a store in this folder."""
    try:
        ignored = (folder / ".gitignore").read_text(errors="replace").splitlines()
    except OSError:
        ignored = []
    return (folder / ".git").exists() and not any(".tau" in line for line in ignored)


def _names(lines: Iterable[str]) -> Iterator[str]:
    """Yield the packages that lines require; ours with an extra as ``tau-live:extra``."""
    for line in lines:
        match = _NAME.match(line)
        if match:
            name = re.sub(r"[-_.]+", "-", match[1]).lower()
            yield name
            if name == "tau-live":
                yield from (f"tau-live:{extra.strip()}" for extra in (match[2] or "").split(","))


def _dependencies(document: Table) -> Iterator[str]:
    """Yield every requirement in a ``pyproject.toml``, of any table."""
    project, poetry = mapping(document.get("project")), mapping(document.get("tool")).get("poetry")
    groups = [
        project.get("dependencies"),
        *mapping(project.get("optional-dependencies")).values(),
        *mapping(document.get("dependency-groups")).values(),
    ]
    for group in groups:
        yield from (item for item in sequence(group) if isinstance(item, str))
    for table in (poetry, *mapping(mapping(poetry).get("group")).values()):
        yield from map(str, mapping(mapping(table).get("dependencies")))


MOST_FINDINGS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectHost:
    """A host that is installed here, or that a project declares or imports.

    Attributes:
        host: Its name.
        version: The installed version; ``None`` if it is not installed here.
        declared: Whether the project declares it.
        imported: The files that import it.
    """

    host: str
    version: str | None
    declared: bool
    imported: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The hosts and findings of a project.

    Attributes:
        folder: Its folder.
        hosts: The supported hosts that are installed, declared or imported, by name; the one that
            comes with an extra of ours only if it is declared or imported.
        findings: The findings in its sources, each once in a file's line.
        read: The number of files that were parsed.
        unread: The files that were not, by reason.
        doubts: Parts that could not be read, and what seems wrong around the project.
    """

    folder: Path
    hosts: tuple[ProjectHost, ...]
    findings: tuple[Finding, ...]
    read: int
    unread: dict[str, list[str]]
    doubts: tuple[str, ...]

    def of(self, kind: FindingKind) -> list[Finding]:
        """Return the findings of one kind."""
        return [finding for finding in self.findings if finding.kind is kind]

    def texts(self, kind: FindingKind) -> list[str]:
        """Return the different texts of one kind, in the order of the findings."""
        return [*dict.fromkeys(finding.text for finding in self.of(kind) if finding.text)]


def inspect_project(reading: Reading) -> Project:
    """Return the hosts and findings of a project; nothing of it is imported or run."""
    folder = reading.folder
    packages, problems = declared_hosts(folder)
    shadowed = {
        host.host
        for host in FRAMEWORKS.values()
        if host.host not in packages and is_own(folder, host)
    }
    items: list[Finding] = []
    for source in reading.sources():
        own = (finding for finding in source.findings() if finding.host not in shadowed)
        items.extend(sorted(own, key=lambda finding: finding.line))
        if len(items) > MOST_FINDINGS:
            reading.cut = f"they name more than {MOST_FINDINGS:,} items"
            break
    hosts = _hosts(packages, items)
    return Project(
        folder=folder,
        hosts=hosts,
        findings=tuple(dict.fromkeys(items)),
        read=reading.read,
        unread=reading.unread,
        doubts=(*problems, *_doubts(folder, hosts, reading)),
    )


def _hosts(declared: set[str], items: Iterable[Finding]) -> tuple[ProjectHost, ...]:
    imported: dict[str, list[str]] = {}
    for item in items:
        if item.kind is FindingKind.HOST and item.host != OWN:
            imported.setdefault(item.host, []).append(item.path)
    all_hosts = (
        ProjectHost(
            host=name,
            version=installed_version(host),
            declared=name in declared,
            imported=tuple(imported.get(name, ())),
        )
        for name, host in FRAMEWORKS.items()
    )
    return tuple(
        host
        for host in all_hosts
        if host.declared or host.imported or (host.version and host.host != IN_EXTRA)
    )


def _doubts(folder: Path, hosts: Iterable[ProjectHost], reading: Reading) -> Iterable[str]:
    if reading.cut:
        yield f"not every source was read: {reading.cut}; run this in the agent's folder"
    if reading.notebooks:
        yield f"notebooks are not read ({reading.notebooks:,} found)"
    other = other_environment(folder)
    if other is not None:
        installs = "" if has_us(other) else f": {other}/bin/pip install {own_source()}"
        yield f"the project has its own environment, {other}, and this is another{installs}"
    for host in hosts:
        if host.version is None and (host.imported or host.declared):
            whose = f"imported by {host.imported[0]}" if host.imported else "declared"
            yield (
                f"{host.host} is {whose} and not installed here: "
                "run this in the agent's environment"
            )
