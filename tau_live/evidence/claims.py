"""Claims: what names a run, so that nothing of it may be purged."""

import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import NamedTuple

from tau_live.core.errors import TauLiveError, UnknownError
from tau_live.core.settings import Settings
from tau_live.evidence.artifacts import REPORTS, ArtifactError, Names, Root, digest, parse
from tau_live.evidence.index import Entry
from tau_live.evidence.records import read_inputs
from tau_live.evidence.reports import KINDS
from tau_live.evidence.running import store_of
from tau_live.evidence.subjects import SEED, checkpoint_at
from tau_live.store.roles import Store

BUNDLES = "*-gate-evidence-*.json"
IN_USE = frozenset({"adopted", "champion"})
"""The states of prompts that are served."""

_PROOF_SHA256 = re.compile(rb'"proof_sha256": *"([0-9a-f]{64})"')


class InUse(NamedTuple):
    """The versions and prompts that a store serves.

    Attributes:
        policies: Versions in service and champions, as ``POINT@VERSION``.
        sha256s: The digests of their checkpoints.
        prompts: Prompts that are adopted.
    """

    policies: frozenset[str]
    sha256s: frozenset[str]
    prompts: frozenset[str]


class Claims(NamedTuple):
    """Everything that names runs.

    Attributes:
        in_use: What the store serves; ``None`` if there is no store that could tell.
        mentions: Who names a text: lines of the audit log, and gate bundles.
    """

    in_use: InUse | None
    mentions: Mapping[str, str]

    def on(self, root: Root, entries: list[Entry]) -> str | None:
        """Return why nothing of a run may be purged; ``None`` if nothing names it.

        Args:
            root: The project.
            entries: The published reports of the run.
        """
        run_id = entries[0].run_id
        names = {*_names(run_id), *(_last(entry.archive_path) for entry in entries)}
        names |= {*(entry.sha256 for entry in entries), *_digests(root, run_id)}
        mentioned = next((self.mentions[name] for name in names if name in self.mentions), None)
        if all(entry.report_kind == "summary" for entry in entries):
            return mentioned  # it measures nothing of its own
        return mentioned or self._on_subject(root, run_id)

    def _on_subject(self, root: Root, run_id: str) -> str | None:
        """Return why what a run has measured is in use; its baseline is not what it proves."""
        try:
            inputs = read_inputs(root, run_id)
        except ArtifactError as error:
            return f"nobody can tell what it has measured: {error}"
        subject = inputs.roles.trained.subject
        kind, _, rest = subject.partition(":")
        if kind not in {"policy", "prompt", "checkpoint"}:
            return None
        if self.in_use is None:
            return f"no store can tell whether {subject} is in use"
        texts = {rest.replace(SEED, str(seed)) for seed in inputs.seeds}
        served = self.in_use.policies if kind == "policy" else self.in_use.prompts
        if kind == "checkpoint":
            try:
                texts = {checkpoint_at(root, text).sha256 for text in texts}
            except (TauLiveError, OSError, ValueError) as error:
                return f"nobody can tell whether {subject} is in use: {error}"
            served = self.in_use.sha256s
        return None if texts.isdisjoint(served) else f"{subject} is in use"


def claims_of(root: Root, settings: Settings | None) -> Claims:
    """Return what names runs in a project and its store.

    Raises:
        ArtifactError: A gate bundle cannot be read, so nobody knows what it names.
        StoreUnavailableError: The store cannot be read.
    """
    mentions = dict(_in_bundles(root))
    if settings is None:
        return Claims(None, mentions)
    with closing(store_of(settings, read_only=True)) as store:
        for entry in store.audit.entries():
            named = f"the audit log names it: {entry.action}"
            mentions |= dict.fromkeys(_names_in(entry.details), named)
        return Claims(_in_use(store), mentions)


def _in_use(store: Store) -> InUse:
    served = {(point, now.version) for point, now in store.policies.in_service().items()}
    for point, trial in store.trials.trials().items():
        champions = (trial.champion, trial.previous)
        served |= {(point, version) for version in champions if version is not None}
    digests = set[str]()
    for _, version in served:
        try:
            digests.add(store.policies.version(version).sha256)
        except UnknownError:
            continue  # the untrained policy, or one that was deleted
    states = store.optimizations.prompt_states()
    return InUse(
        policies=frozenset(f"{point}@{version}" for point, version in served),
        sha256s=frozenset(digests),
        prompts=frozenset(version for version, state in states.items() if state in IN_USE),
    )


def _in_bundles(root: Root) -> Iterator[tuple[str, str]]:
    for place in sorted(root.place(REPORTS).glob(BUNDLES)):
        path = f"{REPORTS}/{place.name}"
        for name in _names_in(parse(root.read(path))):
            yield name, f"{path} names it"


def _names_in(value: object) -> Iterator[str]:
    """Yield every text in JSON data, and of paths their folders and file names."""
    if isinstance(value, str):
        yield from {value, *value.split("/")}
    elif isinstance(value, Mapping):
        for own in value.values():
            yield from _names_in(own)
    elif isinstance(value, list | tuple):
        for own in value:
            yield from _names_in(own)


def _names(run_id: str) -> Iterator[str]:
    """Yield what a run and its files are called by; file names without their folders."""
    names = Names(run_id)
    yield run_id
    yield _last(names.proof)
    yield from (_last(names.report(kind)) for kind in KINDS)


def _digests(root: Root, run_id: str) -> Iterator[str]:
    """Yield the digests that a run's files are known by."""
    names = Names(run_id)
    for path in (names.proof, *(names.report(kind) for kind in KINDS)):
        try:
            content = root.read(path)
        except ArtifactError:
            continue  # it was never made
        yield digest(content)
        if path == names.proof:
            yield from (own.decode() for own in _PROOF_SHA256.findall(content))


def _last(path: str) -> str:
    return path.rpartition("/")[2]
