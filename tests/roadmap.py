"""The roadmap, kept true: which claims are met follows from their proofs alone.

    python -m tests.roadmap             # rewrites docs/roadmap.md
    python -m tests.roadmap --check     # prints what differs; exits with 1
    python -m tests.roadmap --tracker   # prints the text for an issue tracker

Tests are collected and not run: CI runs them. Commands that are proofs are run each time, so
only quick ones should be named.
"""

import json
import os
import shlex
import subprocess
import sys
import tomllib
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

ROOT = Path(__file__).parents[1]
SOURCE = "docs/roadmap.toml"
PAGE = "docs/roadmap.md"
BLOCKS = ("ROADMAP_STATUS", "ROADMAP_GAP_STATUS")
PROGRAMS = {"python": [], "tau-live": ["-m", "tau_live.cli"]}
COMMAND_S = 60.0
COLLECT_S = 300.0

Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
IssueState = Literal["open", "closed"]


class Exit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What has to hold at the end of a stage.

    Attributes:
        claim: The claim, a sentence; unique.
        proof: A test, a file, or a command.
    """

    claim: Text
    proof: Text


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stage of the roadmap; there is no field for its state.

    Attributes:
        title: Its name.
        objective: What it is for.
        issues: Its issues in a tracker.
        entry: Stages by their number, all before it, and claims, on which it builds.
        exit: What has to hold at its end.
    """

    title: Text
    objective: Text
    issues: Sequence[int]
    entry: Sequence[int | str]
    exit: Annotated[Sequence[Exit], msgspec.Meta(min_length=1)]


class Roadmap(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All stages, in order."""

    stage: Sequence[Stage]


class Issue(msgspec.Struct, frozen=True):
    """An issue of a tracker."""

    number: int
    state: IssueState


class Tracker(msgspec.Struct, frozen=True):
    """What a tracker says: the states of issues, and that of all others."""

    default_state: IssueState
    issues: Sequence[Issue] = ()

    def state(self, number: int) -> IssueState:
        """Return the state of an issue."""
        known = {issue.number: issue.state for issue in self.issues}
        return known.get(number, self.default_state)


class Standing(NamedTuple):
    """A stage as it stands.

    Attributes:
        number: Its number, from 0.
        stage: The stage.
        met: Its claims that are met.
        done: Whether all are, and those that it builds on.
    """

    number: int
    stage: Stage
    met: Collection[str]
    done: bool

    @property
    def name(self) -> str:
        """Its number and its title."""
        return f"Stage {self.number}: {self.stage.title}"

    @property
    def state(self) -> str:
        """``done`` or ``open``."""
        return "done" if self.done else "open"

    @property
    def progress(self) -> str:
        """How many of its claims are met."""
        return f"{len(self.met)} of {len(self.stage.exit)}"

    @property
    def open(self) -> list[Exit]:
        """Its claims that are not met."""
        return [end for end in self.stage.exit if end.claim not in self.met]


def stages_of(root: Path) -> Sequence[Stage]:
    """Return the stages.

    Raises:
        ValueError: The file is no roadmap, a claim is there twice, or a stage builds on what is not
            before it.
    """
    document = tomllib.loads((root / SOURCE).read_text())
    stages = msgspec.convert(document, Roadmap).stage
    claims = [end.claim for stage in stages for end in stage.exit]
    if len({*claims}) < len(claims):
        raise ValueError(f"{SOURCE}: each claim must be there once")
    for number, stage in enumerate(stages):
        for entry in stage.entry:
            if entry not in claims and entry not in range(number):
                raise ValueError(f"{SOURCE}: stage {number} builds on {entry!r}, not before it")
    return stages


def standings(stages: Sequence[Stage], met: Collection[str]) -> list[Standing]:
    """Return every stage as it stands.

    Args:
        stages: The stages.
        met: The claims that are met, of all of them.
    """
    found: list[Standing] = []
    for number, stage in enumerate(stages):
        own = [end.claim for end in stage.exit if end.claim in met]
        begun = all(
            found[entry].done if isinstance(entry, int) else entry in met for entry in stage.entry
        )
        found.append(Standing(number, stage, own, begun and len(own) == len(stage.exit)))
    return found


def met_claims(stages: Sequence[Stage], root: Path) -> set[str]:
    """Return the claims whose proof is there."""
    ends = [end for stage in stages for end in stage.exit]
    files = sorted({end.proof.partition("::")[0] for end in ends if "::" in end.proof})
    tests = collect([file for file in files if (root / file).is_file()], root)
    return {end.claim for end in ends if is_there(end.proof, tests, root)}


def is_there(proof: str, tests: Collection[str], root: Path) -> bool:
    """Return whether a test is collected, a command succeeds, or a file is there and can be read.

    Args:
        proof: The proof; a test without parameters stands for the test with any.
        tests: The ids of the tests that are collected.
        root: The folder of the repository.
    """
    if "::" in proof:
        return any(test == proof or test.startswith(f"{proof}[") for test in tests)
    if proof.partition(" ")[0] in PROGRAMS:
        return succeeds(proof, root)
    return is_readable(root / proof)


def collect(files: Sequence[str], root: Path) -> set[str]:
    """Return the ids of all tests of some files, by one run of pytest that runs none of them."""
    if not files:
        return set()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider",
         f"--rootdir={root}", *files],
        cwd=root, env={**os.environ, "PYTEST_ADDOPTS": ""}, capture_output=True, text=True,
        timeout=COLLECT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        end = f"{done.stdout}{done.stderr}"[-2_000:]
        print(f"pytest did not collect all tests:\n{end}", file=sys.stderr)
    return {line for line in done.stdout.splitlines() if "::" in line}


def succeeds(command: str, root: Path) -> bool:
    """Return whether a command exits with 0, in time."""
    program, *arguments = shlex.split(command)
    try:
        done = subprocess.run(
            [sys.executable, *PROGRAMS[program], *arguments],
            cwd=root, capture_output=True, timeout=COMMAND_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def is_readable(file: Path) -> bool:
    """Return whether a file is there, is not empty, and parses if it is JSON or TOML."""
    readers = {".json": json.loads, ".toml": tomllib.loads}
    try:
        text = file.read_text()
        readers.get(file.suffix, str)(text)
    except (OSError, ValueError):
        return False
    return bool(text.strip())


def status(found: Sequence[Standing]) -> Iterator[str]:
    """Yield the lines of a table of the stages, and of the claims of each."""
    yield "| stage | objective | builds on | claims met | state |"
    yield "| --- | --- | --- | --- | --- |"
    for one in found:
        entry = ", ".join(map(str, one.stage.entry)) or "-"
        issues = "".join(f" #{number}" for number in one.stage.issues)
        title = f"{one.number} {one.stage.title}{issues}"
        yield f"| {title} | {one.stage.objective} | {entry} | {one.progress} | {one.state} |"
    for one in found:
        yield f"\n### {one.name}\n"
        for end in one.stage.exit:
            yield f"- {'met' if end.claim in one.met else 'open'}: {end.claim} `{end.proof}`"


def gaps(found: Sequence[Standing]) -> Iterator[str]:
    """Yield a line for every claim that is open, with its stage."""
    lines = [
        f"- {one.name}: {end.claim} `{end.proof}` is not there."
        for one in found
        for end in one.open
    ]
    yield from lines or ["Nothing."]


def with_blocks(page: str, blocks: Mapping[str, Iterator[str]]) -> str:
    """Return a page with the text between the markers of each block replaced.

    Raises:
        ValueError: A marker is missing.
    """
    for name, lines in blocks.items():
        begin, end = (f"<!-- {name}:{word} -->\n" for word in ("BEGIN", "END"))
        before, has_begin, rest = page.partition(begin)
        _, has_end, after = rest.partition(end)
        if not has_begin or not has_end:
            raise ValueError(f"{PAGE}: the markers of {name} are missing")
        page = f"{before}{begin}\n" + "".join(f"{line}\n" for line in lines) + f"\n{end}{after}"
    return page


def tracker_text(found: Sequence[Standing], tracker: Tracker | None) -> Iterator[str]:
    """Yield the lines for an issue tracker: what is done, what is open, which issues disagree."""
    for one in found:
        yield f"{one.name}: {one.state}, {one.progress} claims met"
        yield from (f"- [ ] {end.claim} `{end.proof}`" for end in one.open)
        for number in one.stage.issues:
            state = tracker.state(number) if tracker is not None else None
            if state is not None and (state == "closed") != one.done:
                yield f"- #{number} is {state}, and the stage is {one.state}"


def check(before: str, after: str) -> Iterator[str]:
    """Yield how a page differs, and which claims have lost their proof; nothing where it does not.

    Args:
        before: The page.
        after: The page as it should be.
    """
    known = {*before.splitlines()}
    yield from unified_diff(
        before.splitlines(), after.splitlines(), PAGE, f"{PAGE} (generated)", lineterm=""
    )
    for line in after.splitlines():
        if line.endswith(" is not there.") and line not in known:
            yield line.removeprefix("- ")
    if before != after:
        yield "run `python -m tests.roadmap`"


def main(arguments: Sequence[str], *, root: Path = ROOT) -> int:
    """Rewrite, check or print the roadmap; return the exit code."""
    parser = ArgumentParser(
        "python -m tests.roadmap", description=__doc__, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="compare, and exit with 1 if it differs"
    )
    parser.add_argument(
        "--quiet", action="store_true", help="print nothing but what --tracker asks for"
    )
    parser.add_argument(
        "--tracker", action="store_true", help="print the text for an issue tracker"
    )
    parser.add_argument(
        "--fixture", type=Path, metavar="FILE",
        help="the states of issues as JSON, for --tracker; the page does not depend on them",
    )  # fmt: skip
    chosen = parser.parse_args(arguments)
    stages = stages_of(root)
    found = standings(stages, met_claims(stages, root))
    if chosen.tracker:
        fixture = chosen.fixture
        tracker = fixture and msgspec.json.decode(fixture.read_bytes(), type=Tracker)
        print(*tracker_text(found, tracker), sep="\n")
        return 0
    before = (root / PAGE).read_text()
    after = with_blocks(before, dict(zip(BLOCKS, (status(found), gaps(found)), strict=True)))
    if not chosen.check:
        (root / PAGE).write_text(after)
        return 0
    if not chosen.quiet:
        print("\n".join(check(before, after)), end="\n" * (before != after))
    return int(before != after)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
