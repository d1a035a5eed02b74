"""Checks of the environment, and of sources that do not fit it."""

import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from tau_live.cli.doctor_checks.check import OK, WARN, Check
from tau_live.projects import surroundings
from tau_live.projects.findings import hosts_in
from tau_live.projects.frameworks import FRAMEWORKS
from tau_live.projects.late import late_switches
from tau_live.projects.sources import Bounds, Reading
from tau_live.projects.surroundings import has_us, other_environment
from tau_live.settings.places import here
from tau_live.version import own_source

LOOKS = Bounds(files=500, entries=20_000, seconds=2.0)
SAID = 3


def environment_checks(environ: Mapping[str, str]) -> Iterator[Check]:
    """Yield whether this is the Python that the agent runs in, as far as that can be told."""
    activated = environ.get("VIRTUAL_ENV")
    folder = here()
    other = other_environment(folder) if folder else None
    if activated and Path(activated).resolve() != Path(sys.prefix).resolve():
        other, which = Path(activated), "activated"
    else:
        which = "the project's own"
    if other is None:
        yield Check("environment", OK, sys.prefix)
    else:
        have = "" if has_us(other) else ", and tau-live is not installed there"
        found = f"this is {sys.prefix}, and {which} is {other}{have}"
        install = f"{other}/bin/python -m pip install {own_source()}"
        advice = f"{install}; then {other}/bin/tau-live doctor"
        yield Check("environment", WARN, found, advice, "other-environment")
    versions = dict.fromkeys(one.version for one in metadata.distributions(name="tau-live"))
    if len(versions) > 1:
        found = f"{', '.join(versions)} are on the path; the first is used"
        advice = "run `pip uninstall tau-live` until none is left, then install it once"
        yield Check("packages", WARN, found, advice, "installed-twice")


def source_checks() -> Iterator[Check]:
    """Yield what sources in this folder do too late, or need and do not find in this Python."""
    folder = here()
    if folder is None:
        return
    late, importing = list[str](), dict[str, str]()
    for one in Reading(folder, LOOKS).sources():
        late += late_switches(one)
        for host in hosts_in(one):
            importing.setdefault(host, one.path)
    for said in late[:SAID]:
        advice = "set it before Python starts, or above that import"
        yield Check("switch", WARN, said, advice, "switch-late")
    for host, path in importing.items():
        known = FRAMEWORKS[host]
        if surroundings.installed(known) is None and not surroundings.is_own(folder, known):
            said = f"{path} imports {host}, which is not installed in {sys.prefix}"
            advice = "run the `tau-live` of the agent's Python; install it there"
            yield Check("environment", WARN, said, advice, "host-elsewhere")
