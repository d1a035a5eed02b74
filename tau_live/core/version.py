"""The version of tau-live and the source it was installed from, for modules below the API."""

import sys


def this_version() -> str:
    """Return the package's version."""
    return str(vars(sys.modules["tau_live"])["__version__"])


def packages_for(extra: str) -> str:
    """Return the packages of an extra as arguments of pip, quoted for a shell.

    The packages themselves, which every index has: ``tau-live[extra]`` works only where tau-live
    was installed from one.
    """
    from importlib import metadata

    try:
        needed = metadata.requires("tau-live") or []
    except metadata.PackageNotFoundError:  # run from its sources
        needed = []
    marker = f"extra == '{extra}'"
    names = [name.strip() for name, _, when in (need.partition(";") for need in needed)
             if when.replace('"', "'").strip() == marker]  # fmt: skip
    return " ".join(f"'{name}'" for name in names) or f"'tau-live[{extra}]'"


def own_source() -> str:
    """Return pip's argument for this tau-live: the source it came from, as PEP 610 records it.

    The name alone where it came from an index.
    """
    import json
    from importlib import metadata

    try:
        record = metadata.distribution("tau-live").read_text("direct_url.json")
        source = json.loads(record) if record else {}
    except (metadata.PackageNotFoundError, ValueError):
        source = {}
    url = str(source.get("url", ""))
    version_control = source.get("vcs_info")
    if isinstance(version_control, dict):
        url = f"{version_control.get('vcs', 'git')}+{url}@{version_control.get('commit_id', '')}"
    return f"'tau-live @ {url}'" if url else "tau-live"
