"""Real projects with real runs, and subjects to measure."""

import json
import shutil
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from tau_live.core.settings import Settings
from tau_live.evidence.artifacts import Names, Root, digest, digest_of, parse
from tau_live.evidence.proof import SEALS
from tau_live.evidence.proving import Proved, prove
from tau_live.evidence.running import Frozen, freeze, store_of
from tau_live.evidence.suites import Case, Suite, load_suite, suite_bytes
from tau_live.evidence.validation import Checked, Validation, validate

RUN = "m24-right-1"
RIGHT = "python:tests.evidence.projects:right"
SEEDS = (1, 2, 3)


def right(case: Case, seed: int) -> dict[str, object]:
    """Choose the right tool."""
    del seed
    return {"output": case.expected_outcome, "cost_usd": 0.001, "tokens": 12}


def unsafe(case: Case, seed: int) -> dict[str, object]:
    """Choose the right tool, and break something with every fourth."""
    penalty = 0.9 if case.seed % 4 == 0 else 0.0
    return {**right(case, seed), "safety_penalty": penalty}


def lucky(case: Case, seed: int) -> str:
    """Choose the right tool with one seed, and the first with others."""
    return case.expected_outcome if seed == SEEDS[0] else next(iter(case.options))


def failing(case: Case, seed: int) -> str:
    """Fail on every tenth case."""
    if case.seed % 10 == seed % 10:
        raise ValueError(f"no tool for {case.case_id}")
    return case.expected_outcome


def unreachable(case: Case, seed: int) -> str:
    """Lose the connection on every tenth case."""
    if case.seed % 10 == seed % 10:
        raise ConnectionError("the network is unreachable")
    return case.expected_outcome


def leaving(case: Case, seed: int) -> str:
    """Leave on every tenth case."""
    if case.seed % 10 == seed % 10:
        sys.exit(3)
    return case.expected_outcome


def blocking(case: Case, seed: int) -> str:
    """Never answer to the first case."""
    if case.case_id == "tool-001" and seed == SEEDS[0]:
        threading.Event().wait()
    return case.expected_outcome


def settings_of(folder: Path) -> Settings:
    return Settings(store=folder / "store.sqlite")


def frozen(folder: Path, run_id: str = RUN, **changes: Any) -> Root:
    """Return a project with frozen inputs: the right tools against the host's own choice."""
    folder.mkdir(parents=True, exist_ok=True)
    root, settings = Root(folder), settings_of(folder)
    plan = Frozen("tool-use-suite-v1", "host", RIGHT, SEEDS)._replace(**changes)
    with closing(store_of(settings)) as store:
        freeze(root, run_id, plan, store=store, settings=settings)
    return root


def proved(folder: Path, run_id: str = RUN, **changes: Any) -> Proved:
    """Return the proof of a project."""
    return prove(frozen(folder, run_id, **changes), run_id, settings=settings_of(folder))


def smaller(folder: Path, cases: int, suite_id: str = "smaller") -> str:
    """Write the first cases of a suite that ships, and return the path."""
    whole = load_suite("suite:tool-use-suite-v1", Root(folder)).suite
    own = Suite(
        suite_id=suite_id, suite_version="1", family=whole.family, description="The first cases.",
        cases=whole.cases[:cases],
    )  # fmt: skip
    (folder / f"{suite_id}.json").write_bytes(suite_bytes(own))
    return f"{suite_id}.json"


class Forger:
    """Changes the files of a proved run, with all digests that nobody keeps from a forger.

    Args:
        source: The project of the run, which is copied.
        folder: Where the copy is changed.
    """

    def __init__(self, source: Path, folder: Path, run_id: str = RUN) -> None:
        shutil.copytree(source, folder, symlinks=True)
        self.folder = folder
        self.names = Names(run_id)
        self.root = Root(folder)

    def change(self, path: str, how: Callable[[Any], object]) -> None:
        """Change a JSON file."""
        place = self.folder / path
        document = parse(place.read_bytes())
        how(document)
        place.write_text(json.dumps(document))  # what our own writer would refuse, too

    def change_lines(self, role: str, how: Callable[[list[bytes]], list[bytes]]) -> None:
        """Change the lines of a role's records."""
        place = self.folder / self.names.records(role)
        lines = place.read_bytes().splitlines(keepends=True)
        place.write_bytes(b"".join(how(lines)))

    def reseal(self) -> None:
        """Make every digest right again, from the files to the proof."""
        for role in ("baseline", "trained"):
            path = self.names.records(role)
            own = digest((self.folder / path).read_bytes())
            kinds = ("baseline",) if role == "baseline" else ("trained", "significance")
            for kind in kinds:
                if (self.folder / self.names.report(kind)).exists():
                    self.change(self.names.report(kind), partial(_set_sha, own))

        def seal(proof: dict[str, Any]) -> None:
            for own in proof["artifacts"].values():
                place = self.folder / own["path"]
                if place.exists():
                    own["sha256"] = digest(place.read_bytes())
            proof["proof_sha256"] = digest_of(proof, without=SEALS)

        self.change(self.names.proof, seal)

    def codes(self, path: str | None = None, *, store: bool = False, **more: Any) -> set[str]:
        """Return the codes of everything that is wrong with a file, by default the proof."""
        return {fault.code for fault in self.validation(path, store=store, **more).errors}

    def validation(
        self, path: str | None = None, *, store: bool = False, **more: Any
    ) -> Validation:
        """Return what is wrong with a file, by default the proof."""
        settings = settings_of(self.folder) if store else None
        against = Checked(self.root, settings=settings, **more)
        return validate(self.folder / (path or self.names.proof), against)


def _set_sha(own: str, report: dict[str, Any]) -> None:
    report["records"]["sha256"] = own
