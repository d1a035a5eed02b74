"""Versions of prompts: those that runs executed, and those that the resources hold."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from tau_live.core.prompts import META, prompt_version
from tau_live.core.records import Resource
from tau_live.store.records import Candidate
from tau_live.store.roles import Store

DEFAULT_KEY = "system_prompt"

OFFERED = frozenset({"adopted", "champion", "withdrawn"})
"""The states of prompts that were published."""

MOST_NAMED = 10
"""Versions that a message names."""


class PromptVersion(NamedTuple):
    """A version of a prompt, and where it stands.

    Attributes:
        candidate: The proposal that says most about it.
        others: Other proposals of the same text.
        resource: Its newest place in the resources, ``NAME@NUMBER``; ``None`` if it has none.
        in_force: Whether that is the newest version of the resource.
    """

    candidate: Candidate
    others: Sequence[Candidate]
    resource: str | None
    in_force: bool


def prompt_versions(store: Store) -> list[PromptVersion]:
    """Return every version of a prompt once, in the order in which they were first made."""
    proposals: dict[str, list[Candidate]] = {}
    for candidate in store.optimizations.candidates():
        if candidate.version:
            proposals.setdefault(candidate.version, []).append(candidate)
    keys = {
        str(run.config.get("prompt_key", DEFAULT_KEY))
        for run in store.optimizations.runs("optimize")
    }
    places: dict[str, tuple[str, bool]] = {}
    for key in sorted(keys):
        known = store.resources.versions(key)
        for place, resource in enumerate(known):
            if isinstance(resource.content, str):
                version = prompt_version(resource.content)
                places.setdefault(version, (f"{key}@{resource.version}", place == 0))
    return [_version(of, *places.get(version, (None, False))) for version, of in proposals.items()]


def _version(of: Sequence[Candidate], resource: str | None, in_force: bool) -> PromptVersion:
    published = [known for known in of if known.state in OFFERED]
    executed = [known for known in of if known.state != "duplicate"]
    chosen = [*published[-1:], *executed, *of][0]
    return PromptVersion(chosen, [other for other in of if other is not chosen], resource, in_force)


def whole_version(version: str | None, known: Iterable[str]) -> str | None:
    """Return the prompt version that begins like this, if only one does; else what was given."""
    if version is None or not version.startswith("p-"):
        return version
    matching = {each for each in known if each.startswith(version)}
    return matching.pop() if len(matching) == 1 else version


def name_versions(store: Store, known: Mapping[str, object], *, key: str) -> str:
    """Return what can be put back, for a message.

    Args:
        store: The store.
        known: Texts of prompts by their version.
        key: The name of the resource.
    """
    versions = store.resources.versions(key)
    if not versions:
        names = [name for name in store.resources.latest() if not name.startswith(META)]
        others = f", only {_first(names)}" if names else ""
        return f"there is no resource '{key}'{others}"
    numbered = [
        f"{key}@{resource.version} ({_content_name(resource)}{', in force' if not place else ''})"
        for place, resource in enumerate(versions)
    ]
    named = {_content_name(resource) for resource in versions}
    more = [each for each in reversed([*known]) if each not in named]
    prompts = f"; of runs: {_first(more)}" if more else ""
    return f"there are {_first(numbered)}{prompts}"


def _content_name(resource: Resource) -> str:
    content = resource.content
    return prompt_version(content) if isinstance(content, str) else "no text"


def _first(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(islice(names, MOST_NAMED)) + (f" and {more} more" if more > 0 else "")
