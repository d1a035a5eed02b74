"""``tau-live doctor``: checks of the installation, the settings and the store, with fixes."""

import os
import platform
import shutil
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path

import click

from tau_live.boot.autostart import AutostartState, contents, files, site_packages, state_of
from tau_live.boot.boot import boot_state
from tau_live.boot.hosts import HostState, Standing, checked_adapter, load_adapter, version_of
from tau_live.cli.doctor_mistakes import FAIL, OK, WARN, Check, mistake
from tau_live.cli.doctor_store import store_checks, title
from tau_live.cli.init import project
from tau_live.cli.init.findings import Reading
from tau_live.cli.init.frameworks import FRAMEWORKS, older
from tau_live.cli.options import epilog, json_option, store_option
from tau_live.cli.output import print_all, print_json, safe, status_text, suggest, table_of
from tau_live.core.entry_points import host_of, origin, read_entry_points, unread_packages
from tau_live.core.errors import AccessError, SettingsError
from tau_live.core.guard import text_of
from tau_live.core.plugins import MUST_SEE, Plugins
from tau_live.core.settings import Settings, here, in_force
from tau_live.core.settings.kinds import nearest
from tau_live.core.switch import KILL, killed_by, switched_on
from tau_live.core.version import own_source, packages_for, this_version
from tau_live.operate.access import load_access, principal_of
from tau_live.operate.alert_plugins import COMMAND, URLS
from tau_live.runtime.builtin_plugins import load_plugins
from tau_live.store.opening import OLDEST_ENGINE, engine_version

NEEDS = ("click", "msgspec", "numpy", "pluggy", "rich", "sqlite-utils", "structlog", "wrapt")


def checks(environ: Mapping[str, str], path: Path | None, *, now: float) -> Iterator[Check]:
    """Yield every check; one that fails does not keep the others from being made.

    Args:
        environ: The environment.
        path: The value of ``--store``; ``None`` takes the store of the settings.
        now: Epoch seconds, UTC.
    """
    yield Check("python", OK, f"{platform.python_version()} on {platform.system()}")
    yield _packages()
    version, oldest = (".".join(map(str, of)) for of in (engine_version(), OLDEST_ENGINE))
    is_old = engine_version() < OLDEST_ENGINE
    yield mistake("sqlite-old", version, oldest=oldest) if is_old else Check("sqlite", OK, version)
    yield from _environment(environ)
    yield from _switch(environ)
    yield from _sources()
    yield _autostart()
    settings = None
    try:
        loaded = in_force(environ)
    except SettingsError as error:
        yield mistake("setting-wrong", str(error))
    else:
        settings = loaded.settings
        switch_warnings = switched_on(environ).warnings
        doubts = [doubt for doubt in loaded.doubts() if doubt not in switch_warnings]
        yield from (mistake("setting-doubtful", doubt) for doubt in doubts)
        if not doubts:
            given = sum(source != "default" for source in loaded.sources.values())
            yield Check("settings", OK, f"{given} set, the others at their defaults")
        yield _access(settings, environ)
        yield from _acting(settings)
        yield from _plugins(settings)
        yield from _hosts(settings)
    file = path or (settings.store if settings else None)
    if file is not None:
        yield from store_checks(file, settings, now=now)


def _packages() -> Check:
    versions, missing = [f"tau-live {this_version()}"], []
    for name in NEEDS:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return mistake(
            "packages-missing", f"missing: {', '.join(missing)}", packages=" ".join(missing)
        )
    return Check("packages", OK, ", ".join(versions))


def _environment(environ: Mapping[str, str]) -> Iterator[Check]:
    """Yield whether this is the Python that the agent runs in, as far as known."""
    activated = environ.get("VIRTUAL_ENV")
    folder = here()
    other = project.other_environment(folder) if folder else None
    if activated and Path(activated).resolve() != Path(sys.prefix).resolve():
        other, which = Path(activated), "activated"
    else:
        which = "the project's own"
    if other is None:
        yield Check("environment", OK, sys.prefix)
    else:
        have = "" if project.has_us(other) else ", and tau-live is not installed there"
        yield mistake(
            "other-environment",
            f"this is {sys.prefix}, and {which} is {other}{have}",
            folder=other,
            source=own_source(),
        )
    versions = dict.fromkeys(
        distribution.version for distribution in metadata.distributions(name="tau-live")
    )
    if len(versions) > 1:
        yield mistake(
            "installed-twice", f"{', '.join(versions)} are on the path; the first is used"
        )


def _switch(environ: Mapping[str, str]) -> Iterator[Check]:
    switch = switched_on(environ)
    killed = killed_by(environ)
    for warning in switch.warnings:
        if warning == killed:
            by_variable = mistake("killed", warning, ended_by=f"unset {KILL}")
            yield by_variable._replace(check="switch", state=WARN)
        else:
            yield mistake("switch-misspelt", warning)
    if switch.on:
        yield Check("switch", OK, "on in this shell")
    elif not switch.warnings:
        yield mistake("switch-off", "off in this shell")


def _sources() -> Iterator[Check]:
    """Yield late switches in the sources of this folder, and hosts missing in this Python."""
    folder = here()
    if folder is None:
        return
    late, importing = list[str](), dict[str, str]()
    for source in Reading(folder, files=500, entries=20_000, seconds=2.0).sources():
        late += source.late_switches()
        for host in source.hosts:
            importing.setdefault(host, source.path)
    yield from (mistake("switch-late", problem) for problem in late[:3])
    for host, path in importing.items():
        known = FRAMEWORKS[host]
        if project.installed_version(known) is None and not project.is_own(folder, known):
            yield mistake(
                "host-elsewhere", f"{path} imports {host}, which is not installed in {sys.prefix}"
            )


def _autostart() -> Check:
    """Return whether Pythons of this environment attach by themselves, with the line's checksum."""
    links = files(site_packages(), contents())
    state = state_of(links)
    existing = [f"{link.path} sha256 {link.sha256}" for link in links if link.sha256 is not None]
    summary = "; ".join([state.value, *existing])
    if state is AutostartState.CHANGED:
        return mistake("autostart-changed", summary)
    return Check("autostart", OK, summary)


def _access(settings: Settings, environ: Mapping[str, str]) -> Check:
    """Check who may change anything; fail if the access file cannot be read."""
    if settings.access is None:
        return Check("access", OK, "every user who can write to the store may change it")
    try:
        team_mode = load_access(settings.access).team_mode
    except AccessError as error:
        return mistake("access-broken", str(error))
    file = f"'{settings.access}'"
    policy = f"team mode, from {file}" if team_mode else f"{file}: no team mode"
    principal = principal_of(environ, settings.principal)
    return Check("access", OK, f"{policy}; you are {principal}")


def _acting(settings: Settings) -> Iterator[Check]:
    """Yield what the settings prevent, probably by mistake."""
    points = ", ".join(decision.point for decision in settings.decisions)
    if points and not settings.act:
        yield mistake("act-off", f"declared at {points}, but adapters may not act")
    elif settings.act and not points:
        yield mistake("nothing-declared", "adapters may act, but none is declared in the settings")
    plugins, adapters = read_entry_points()
    hosts = {host_of(point)[0] for point in adapters}
    known = {COMMAND, URLS, *hosts, *(point.name for point in plugins)}
    for name in settings.plugins_off:
        if name in known:
            yield mistake("plugin-off", f"{name} is switched off")
        else:
            near = nearest(name, known)
            unknown = mistake("plugin-unknown", f"{name} is switched off but not installed")
            yield unknown._replace(advice=f"did you mean {near}?") if near else unknown


def _has_urls(file: Path) -> bool:
    """Return whether a file has something like a URL; only Apprise can read it."""
    try:
        return b"://" in file.read_bytes()
    except OSError:
        return False


def _plugins(settings: Settings) -> Iterator[Check]:
    command = settings.alert_command
    if command and shutil.which(command[0]) is None:
        yield mistake(
            "alert-command-missing",
            f"alerts go to {command[0]!r}, which is missing or not executable",
        )
    urls = settings.alert_urls
    if urls is not None and not _has_urls(urls):
        problem = "is unreadable" if not os.access(urls, os.R_OK) else "has none"
        yield mistake("alert-urls-missing", f"alerts go to the URLs in {urls}, which {problem}")
    elif urls is not None and find_spec("apprise") is None:
        yield mistake("alert-urls-missing", "alerts go to URLs, but apprise is not installed")
    for package, problem in unread_packages():
        yield mistake("metadata-malformed", f"{package} is left out: {problem}")
    reports = load_plugins(settings).report()
    for report in reports:
        if report.problem or report.disabled:
            problem = f"{report.name}: {report.problem or 'disabled after failing'}"
            if MUST_SEE.isdisjoint(report.hooks):
                yield mistake("plugin-broken", problem)
            else:
                problem += "; it redacts, so no text is kept and the host makes its own choices"
                yield mistake("plugin-broken", problem)._replace(state=FAIL)
    sound = [
        f"{report.name} ({', '.join(report.hooks)})" for report in reports if not report.problem
    ]
    yield Check("plugins", OK, ", ".join(sound) or "none")


def _hosts(settings: Settings) -> Iterator[Check]:
    """Yield the doors that fired in this process, and whether each host's adapter would attach."""
    doors, standings = boot_state()
    yield Check("doors", OK, f"fired here: {', '.join(doors) or 'none'}")
    here = {
        standing.host: standing for standing in standings if standing.state is not HostState.WAITING
    }
    points, off = read_entry_points(), settings.plugins_off
    offers: dict[str, tuple[str, object, str]] = {}  # in the order in which a process finds them
    for point in points.adapters:
        host, module = host_of(point)
        offers.setdefault(host, (module, point, origin(point)))
    for point in points.foreign_plugins:
        plugins = Plugins(off=off)
        plugins.load([point])
        for host, adapter in plugins.adapters().items():
            offers.setdefault(host, (getattr(adapter, "module", ""), adapter, origin(point)))
    for host, (module, offered, package) in offers.items():
        check = _check_of(here.get(host) or _probe_host(host, module, offered, off))
        yield check._replace(found=f"{check.found} (adapter from {package})")
    if not points.lists_ours:
        yield mistake(
            "hosts-unlisted",
            "no host is listed in the metadata of the package tau-live",
            source=own_source(),
        )


def _probe_host(host: str, module: str, offered: object, off: Collection[str]) -> Standing:
    """Return an adapter's standing if its host were imported now; imports and probes it.

    Args:
        host: The host.
        module: The import that makes the adapter attach.
        offered: Its entry point, or the object that a plugin registered.
        off: The plugins that are switched off.
    """
    version, adapter = None, offered
    try:
        if not isinstance(adapter, metadata.EntryPoint):
            adapter = checked_adapter(adapter)
        if not _is_installed(module):
            return Standing(host=host, module=module)
        version = version_of(host, import_module(module))
        if isinstance(adapter, metadata.EntryPoint):
            adapter = load_adapter(adapter, off)
        missing = adapter.probe()
    except Exception as error:  # noqa: BLE001  # other people's code
        missing = f"{type(error).__name__}: {text_of(error)}"
    state = HostState.ATTACHED if missing is None else HostState.DISABLED
    return Standing(host=host, module=module, state=state, version=version, problem=missing)


def _is_installed(module: str) -> bool:
    """Return whether the package of a module is installed.

    A namespace package does not show that: any other part makes one, such as `opentelemetry` where
    only its API is installed. The first real package below it decides.
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
    name = title(standing)
    if standing.state is HostState.WAITING:
        return Check("hosts", OK, f"{name} is not installed here")
    if standing.state is HostState.DISABLED:
        return mistake("adapter-disabled", f"{name} is disabled: {standing.problem}")
    known = FRAMEWORKS.get(standing.host)
    oldest = known.oldest if known else None
    if older(standing.version, oldest):
        return mistake(
            "host-old",
            f"{name} is older than {oldest}, the oldest version tested with its adapter",
            packages=packages_for(standing.host),
        )
    return Check("hosts", OK, f"{name} can be attached to")


@click.command(epilog=epilog("doctor", "tau-live doctor", "tau-live doctor --json | jq .worst"))
@store_option
@json_option
@click.pass_context
def doctor(ctx: click.Context, path: Path | None, as_json: bool) -> None:
    """Check this installation, its settings and its store, and suggest fixes.

    Exit code 1 means that something does not work; warnings do not count. The word in
    parentheses names the mistake, as the documentation lists it.
    """
    results = [
        check._replace(found=suggest(check.found), advice=check.advice and suggest(check.advice))
        for check in checks(os.environ, path, now=time.time())
    ]
    states = {check.state for check in results}
    worst = next(state for state in (FAIL, WARN, OK) if state in states)
    if as_json:
        print_json({"worst": worst, "checks": [check._asdict() for check in results]})
    else:
        print_checks(results)
    ctx.exit(1 if worst == FAIL else 0)


def print_checks(results: Sequence[Check]) -> None:
    """Print the results of checks as a table."""
    rows: list[tuple[object, ...]] = []
    for check in results:
        rows.append((status_text(check.state), check.check, safe(check.found)))
        if check.advice:
            code = f" ({check.mistake})" if check.mistake else ""
            rows.append(("", "", safe(f"-> {check.advice}{code}", "dim")))
    print_all(table_of(("", "", ""), rows))
