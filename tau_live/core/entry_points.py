"""The entry points of installed plugins and adapters, tau-live's own among them."""

from collections.abc import Iterator
from importlib import metadata
from typing import NamedTuple

from tau_live.core.errors import pass_on, suppress

PLUGINS = "tau_live"
"""The entry-point group of plugins."""

ADAPTERS = "tau_live_hosts"
"""The entry-point group of adapters, named by their host's import, to be loaded after it."""

_OURS = frozenset({"tau_live", "tau_live_hooks"})


class Installed(NamedTuple):
    """The entry points of an environment; ours first, so that others are called before them.

    Attributes:
        plugins: Those of the group ``tau_live``.
        adapters: Those of the group ``tau_live_hosts``.
    """

    plugins: list[metadata.EntryPoint]
    adapters: list[metadata.EntryPoint]

    @property
    def lists_ours(self) -> bool:
        """Whether our own adapters are listed; not where our code was copied without metadata."""
        return any(map(is_ours, self.adapters))

    @property
    def foreign_plugins(self) -> list[metadata.EntryPoint]:
        """The plugins of other packages: ours redact nothing, and add neither command nor host."""
        return [point for point in self.plugins if not is_ours(point)]


def read_entry_points() -> Installed:
    """Return the entry points of this environment's packages; imports none of them."""
    plugins, adapters = (
        sorted(filter(_is_whole, points), key=lambda point: not is_ours(point))
        for points in _grouped_points()
    )
    return Installed(plugins, adapters)


def _is_whole(point: metadata.EntryPoint) -> bool:
    """Return whether an entry point names a module, and maybe something in it."""
    return point.pattern.match(point.value) is not None


def _grouped_points() -> tuple[list[metadata.EntryPoint], list[metadata.EntryPoint]]:
    """Return the plugins and the adapters; one package's malformed file spoils no other's."""
    try:
        points = metadata.entry_points()  # once for both: reading them takes milliseconds
        return [*points.select(group=PLUGINS)], [*points.select(group=ADAPTERS)]
    except Exception as error:  # noqa: BLE001 - whatever a malformed file makes of it
        pass_on(error)
    readable = [*_readable_points()]
    plugins = [point for point in readable if point.group == PLUGINS]
    return plugins, [point for point in readable if point.group == ADAPTERS]


def _readable_points() -> Iterator[metadata.EntryPoint]:
    """Yield the entry points of every package whose own can be read; the first of a name wins."""
    seen = set()
    for package in metadata.distributions():
        try:
            name, points = package.name, [*package.entry_points]
        except Exception as error:  # noqa: BLE001 - malformed, or not UTF-8
            pass_on(error)
            continue
        if name not in seen:
            seen.add(name)
            yield from points


def unread_packages() -> Iterator[tuple[str, str]]:
    """Yield each package whose plugins or adapters are left out, and why."""
    from tau_live.core.guard import text_of  # not at the start of a command

    for package in metadata.distributions():
        try:
            points = [*package.entry_points]
            lines = (package.read_text("entry_points.txt") or "").split("\n")
        except Exception as error:  # noqa: BLE001 - malformed, or not UTF-8
            pass_on(error)
            yield _name_of(package), f"{type(error).__name__}: {text_of(error)}"
            continue
        first = next((line for line in lines if line.strip() and line.strip()[0] not in "#;"), "[")
        if not first.strip().startswith("["):
            yield _name_of(package), f"{first.strip()!r} is in no section"
        for point in points:
            if point.group in {PLUGINS, ADAPTERS} and not _is_whole(point):
                yield _name_of(package), f"'{point.name} = {point.value}' names no module"


def _name_of(package: metadata.Distribution) -> str:
    """Return the name of a package, or its folder where its metadata cannot be read."""
    with suppress(Exception):
        return f"{package.name} {package.version}"
    return str(package.locate_file(""))


def is_ours(point: metadata.EntryPoint) -> bool:
    """Return whether an entry point is tau-live's own."""
    return point.module.partition(".")[0] in _OURS


def host_of(point: metadata.EntryPoint) -> tuple[str, str]:
    """Return the host of an adapter, and the import that makes it attach.

    The name is both, such as ``smolagents``, or holds both: ``openai-agents@agents.run``.
    """
    host, _, module = point.name.partition("@")
    return host, module or host


def origin(point: metadata.EntryPoint) -> str:
    """Return the name and version of the distribution that an entry point comes from."""
    distribution = point.dist
    return f"{distribution.name} {distribution.version}" if distribution else point.module
