"""Checks of doors and hosts, here and in attached processes."""

from collections.abc import Collection, Iterator, Mapping
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path

from tau_live.attaching.attachments import Attachment, attachments
from tau_live.attaching.autostart import AutostartState, contents, files, site_packages, state_of
from tau_live.attaching.booting import booted
from tau_live.attaching.hosts import (
    ADAPTERS,
    HostState,
    Standing,
    built_in,
    declared,
    entered,
    version_of,
)
from tau_live.builtin import load_plugins
from tau_live.cli.doctor_checks.check import OK, WARN, Check
from tau_live.guard import text_of
from tau_live.projects.frameworks import FRAMEWORKS, older
from tau_live.settings import Settings
from tau_live.version import packages_for


class BuiltIn(str):
    """The module of an adapter that comes with us; what plugins register may be any text."""

    __slots__ = ()


OVER = 1
"""Of so many processes that are over it is said what they were attached to."""


def autostart_check() -> Check:
    """Say whether Pythons of this environment attach by themselves, with the line's checksum."""
    found = files(site_packages(), contents())
    state = state_of(found)
    there = [f"{one.path} sha256 {one.sha256}" for one in found if one.sha256 is not None]
    said = "; ".join([state.value, *there])
    if state is AutostartState.CHANGED:
        advice = "`tau-live autostart enable` rewrites it for this version, `disable` removes it"
        return Check("autostart", WARN, said, advice, "autostart-changed")
    return Check("autostart", OK, said)


def host_checks(settings: Settings) -> Iterator[Check]:
    """Yield the doors that fired in this process, and how the adapter of each host would fare."""
    doors, standings = booted()
    yield Check("doors", OK, f"fired here: {', '.join(doors) or 'none'}")
    here = {one.host: one for one in standings if one.state is not HostState.WAITING}
    for host, (module, adapter) in _known(settings).items():
        standing = here.get(host) or _looked_at(host, module, adapter, settings.plugins_off)
        yield _check_of(standing)


def attached_checks(store: Path) -> Iterator[Check]:
    """Yield what the processes that were attached to a store said of their doors and hosts."""
    said = attachments(store)
    over = [one for one in said if not one.alive]
    for one in [*(one for one in said if one.alive), *over[:OVER]]:
        yield from _of_process(one)


def _of_process(one: Attachment) -> Iterator[Check]:
    pid = one.process.split(":")[1]
    process = f"process {pid}{'' if one.alive else ' (over)'}"
    attached = [_named(host) for host in one.hosts if host.state is HostState.ATTACHED]
    doors = ", ".join(one.doors)
    yield Check("attached", OK, f"{process} by {doors}: {', '.join(attached) or 'no host'}")
    for host in one.hosts:
        if host.state is HostState.DISABLED:
            found = f"{process}: {_named(host)} disabled: {host.problem}"
            advice = "its runs are not recorded; the host itself works"
            yield Check("attached", WARN, found, advice, "adapter-disabled")
        elif host.problem is not None:
            found = f"{process}: {host.problem}"
            advice = "set a provider at the start of the program: pip install opentelemetry-sdk"
            yield Check("attached", WARN, found, advice, "spans-unseen")


def _known(settings: Settings) -> Mapping[str, tuple[str, object]]:
    """Return by host the import that makes it attach, and its adapter or the module that has it."""
    from tau_live_hooks import HOSTS

    known: dict[str, tuple[str, object]] = {
        host: (trigger, BuiltIn(module)) for module, (host, trigger) in HOSTS.items()
    }
    for point in metadata.entry_points(group=ADAPTERS):
        known.setdefault(point.name, (point.name, point))
    for host, adapter in load_plugins(settings).adapters().items():
        known.setdefault(host, (getattr(adapter, "module", ""), adapter))
    return known


def _looked_at(host: str, module: str, adapter: object, off: Collection[str]) -> Standing:
    """Return how an adapter would stand if its host were imported now; imports and probes it."""
    version = None
    try:
        third = None
        if not isinstance(adapter, BuiltIn | metadata.EntryPoint):
            third = declared(adapter)
        if not _installed(module):
            return Standing(host=host, module=module)
        version = version_of(host, import_module(module))
        if isinstance(adapter, metadata.EntryPoint):
            third = entered(adapter, off)
        missing = (third or built_in(str(adapter))).probe()
    except Exception as error:  # noqa: BLE001  # other people's code
        missing = f"{type(error).__name__}: {text_of(error)}"
    state = HostState.ATTACHED if missing is None else HostState.DISABLED
    return Standing(host=host, module=module, state=state, version=version, problem=missing)


def _installed(module: str) -> bool:
    """Say whether the package that a module is in is there.

    A namespace package says nothing of that: what else lies in it makes one, such as
    `opentelemetry` where only its API is installed. The first real package below it decides.
    """
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        spec = find_spec(".".join(parts[:end]))
        if spec is None:
            return False
        if spec.origin is not None:
            return True
    return False


def _check_of(standing: Standing) -> Check:
    name = _named(standing)
    match standing.state:
        case HostState.WAITING:
            return Check("hosts", OK, f"{name} is not installed here")
        case HostState.ATTACHED:
            known = FRAMEWORKS.get(standing.host)
            oldest = known.oldest if known else None
            if older(standing.version, oldest):
                found = f"{name} is older than {oldest}, the oldest version tested with its adapter"
                advice = f"pip install --upgrade {packages_for(standing.host)}"
                return Check("hosts", WARN, found, advice, "host-old")
            return Check("hosts", OK, f"{name} can be attached to")
        case HostState.DISABLED:
            advice = "its runs are not recorded; please report what is missing"
            found = f"{name} is disabled: {standing.problem}"
            return Check("hosts", WARN, found, advice, "adapter-disabled")


def _named(standing: Standing) -> str:
    return f"{standing.host} {standing.version}" if standing.version else standing.host
