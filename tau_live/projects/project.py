"""A project as it was found: its hosts, and what its sources name of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tau_live.projects import surroundings
from tau_live.projects.findings import OWN, Finding, Kind, findings
from tau_live.projects.frameworks import FRAMEWORKS
from tau_live.projects.sources import Bounds, Reading
from tau_live.version import own_source

MOST_FINDINGS = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFound:
    """A host that a project has to do with.

    Attributes:
        host: Its name.
        version: What is installed here; ``None`` for nothing.
        declared: Whether the project says that it needs it.
        imported: The files that import it.
    """

    host: str
    version: str | None
    declared: bool
    imported: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """What was found.

    Attributes:
        folder: Where.
        hosts: The supported hosts that are installed, declared or imported, by name.
        found: What the sources name, each thing once in a file's line.
        read: How many files were parsed.
        unread: By reason, the files that were not.
        doubts: What could not be looked at, and what seems wrong around the project.
    """

    folder: Path
    hosts: tuple[HostFound, ...]
    found: tuple[Finding, ...]
    read: int
    unread: dict[str, list[str]]
    doubts: tuple[str, ...]

    def of(self, kind: Kind) -> list[Finding]:
        """Return what of one kind was found."""
        return [one for one in self.found if one.kind is kind]

    def texts(self, kind: Kind) -> list[str]:
        """Return the different texts of one kind, in the order in which they were found."""
        return [*dict.fromkeys(one.text for one in self.of(kind) if one.text)]


def looked_at(folder: Path, bounds: Bounds | None = None) -> Project:
    """Return what a project says of itself; nothing of it is imported or run."""
    reading = Reading(folder, bounds or Bounds())
    declared, problems = surroundings.declared(folder)
    shadowed = {
        host.host
        for host in FRAMEWORKS.values()
        if host.host not in declared and surroundings.is_own(folder, host)
    }
    found: list[Finding] = []
    for source in reading.sources():
        own = (one for one in findings(source) if one.host not in shadowed)
        found.extend(sorted(own, key=lambda one: one.line))
        if len(found) > MOST_FINDINGS:
            reading.cut = f"they name more than {MOST_FINDINGS:,} items"
            break
    hosts = _hosts(declared, found)
    return Project(
        folder=folder,
        hosts=hosts,
        found=tuple(dict.fromkeys(found)),
        read=reading.read,
        unread=reading.unread,
        doubts=(*problems, *_doubts(folder, hosts, reading)),
    )


def _hosts(declared: set[str], found: Iterable[Finding]) -> tuple[HostFound, ...]:
    imported: dict[str, list[str]] = {}
    for one in found:
        if one.kind is Kind.HOST and one.host != OWN:
            imported.setdefault(one.host, []).append(one.path)
    all_hosts = (
        HostFound(
            host=name,
            version=surroundings.installed(host),
            declared=name in declared,
            imported=tuple(imported.get(name, ())),
        )
        for name, host in FRAMEWORKS.items()
    )
    return tuple(one for one in all_hosts if one.version or one.declared or one.imported)


def _doubts(folder: Path, hosts: Iterable[HostFound], reading: Reading) -> Iterable[str]:
    if reading.cut:
        yield f"not every source was read: {reading.cut}; run this in the agent's folder"
    if reading.notebooks:
        yield f"notebooks are not read ({reading.notebooks:,} found)"
    other = surroundings.other_environment(folder)
    if other is not None:
        installs = "" if surroundings.has_us(other) else f": {other}/bin/pip install {own_source()}"
        yield f"the project has its own environment, {other}, and this is another{installs}"
    for host in hosts:
        if host.version is None and (host.imported or host.declared):
            whose = f"imported by {host.imported[0]}" if host.imported else "declared"
            yield (
                f"{host.host} is {whose} and not installed here: "
                "run this in the agent's environment"
            )
