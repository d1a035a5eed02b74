"""Projects with a real run: frozen, executed and compared, in a folder that can be copied."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tau_live.core.settings import Settings
from tau_live.evidence.artifacts import Names, Root, seconds_of
from tau_live.evidence.comparison import Reports, read_evidence, write_reports
from tau_live.evidence.proof import Verification, proof_of
from tau_live.evidence.records import ROLES, read_inputs
from tau_live.evidence.reports import DEFAULT_KEEPING, Keeping
from tau_live.evidence.running import run
from tau_live.evidence.summary import summary_of, write_summary
from tau_live.evidence.validation import Checked
from tau_live.rl.criteria import Criteria
from tests.evidence.projects import RIGHT, frozen, settings_of, smaller

ONE, TWO, ALL = "m24-one", "m24-two", "m24-all"
SUITE = "kept"
CRITERIA = Criteria(require_seed_reproducibility=False)
STORE = "store.sqlite"
MADE = "2096-02-29T07:30:00Z"
"""When reports are made: after every episode, whenever the tests run."""

DAY_S = 86_400


class Project(NamedTuple):
    """A folder with a store and the artifacts of runs.

    Attributes:
        root: The folder.
    """

    root: Root

    @property
    def settings(self) -> Settings:
        """The settings of its store."""
        return settings_of(self.root.folder)

    @property
    def against(self) -> Checked:
        """Itself with its store, on the day on which its reports are made."""
        return Checked(self.root, settings=self.settings, now=seconds_of(MADE))

    def place(self, path: str) -> Path:
        """Return where a path leads."""
        return self.root.place(path)

    def report(self, kind: str, run_id: str = ONE) -> Path:
        """Return the working report of a kind."""
        return self.place(Names(run_id).report(kind))


def project(folder: Path) -> Project:
    """Return the project in a folder."""
    return Project(Root(folder))


def copied(original: Project, folder: Path) -> Project:
    """Return a copy of a project."""
    shutil.copytree(original.root.folder, folder)
    return project(folder)


def measure(own: Project, run_id: str, trained: str = RIGHT) -> None:
    """Freeze a run and execute its episodes: a subject against the host's own choice."""
    suite = smaller(own.root.folder, 10, SUITE)
    frozen(own.root.folder, run_id, suite=suite, trained=trained, seeds=(1,), criteria=CRITERIA)
    run(own.root, read_inputs(own.root, run_id), ROLES, settings=own.settings)


def summarize(own: Project, *run_ids: str, keeping: Keeping = DEFAULT_KEEPING) -> Path:
    """Write a summary of runs, and return its file."""
    return own.place(
        write_summary(own.root, summary_of(own.root, ALL, run_ids, MADE, keeping=keeping))
    )


def compare(
    own: Project, run_id: str = ONE, *, made: str = MADE, keeping: Keeping = DEFAULT_KEEPING
) -> Reports:
    """Write the reports and the proof of a run that was executed, also where there are some."""
    own.report("significance", run_id).unlink(missing_ok=True)  # else those would stay as they are
    evidence = read_evidence(own.root, read_inputs(own.root, run_id))
    reports = write_reports(own.root, evidence, made, keeping=keeping)
    known = Verification(level="records", re_executed=0, seal_head=None)
    proof = proof_of(own.root, evidence, reports, verification=known, generated_at=made)
    own.root.write(Names(run_id).proof, proof)
    return reports


def tree(own: Project) -> Mapping[str, bytes | None]:
    """Return every folder and file of a project but the store, with its content."""
    return {
        place.relative_to(own.root.folder).as_posix(): None
        if place.is_dir()
        else place.read_bytes()
        for place in sorted(own.root.folder.rglob("*"))
        if not place.name.startswith(STORE)
    }
