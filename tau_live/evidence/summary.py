"""Summaries: several runs side by side, with p-values adjusted for being several."""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from tau_live.core.errors import TauLiveError
from tau_live.core.sanitize import JsonObject
from tau_live.evidence.artifacts import (
    ArtifactError,
    Digest,
    Fault,
    Names,
    Natural,
    Positive,
    Root,
    RunId,
    Share,
    Timestamp,
    check,
    plain,
)
from tau_live.evidence.comparison import (
    publication_of,
    read_evidence,
    retention_of,
    significance_of,
)
from tau_live.evidence.differences import differences
from tau_live.evidence.records import Inputs, read_inputs
from tau_live.evidence.reports import (
    DEFAULT_KEEPING,
    Keeping,
    Part,
    Publication,
    Retention,
    Significance,
)
from tau_live.rl.paired import case_means, holm
from tau_live.rl.stability import Repeatability, repeatability

KIND = "summary"
SMOKE = 200
"""A run of fewer pairs is a smoke run: it finds large differences alone."""


class SummaryRun(Part, frozen=True, kw_only=True):
    """A run of a summary.

    Attributes:
        run_id: The run.
        suite: The name of its suite.
        inputs_sha256: The digest of its frozen inputs.
        records_sha256: The digests of its records: baseline, trained.
        pairs: Its pairs.
        smoke: Whether they are fewer than 200.
        mean_delta: Trained minus baseline; ``None`` without pairs.
        p_value: Two-sided, of this run alone.
        pass_: Whether it passes, with its adjusted p-value.
    """

    run_id: RunId
    suite: str
    inputs_sha256: Digest
    records_sha256: list[Digest]
    pairs: Natural
    smoke: bool
    mean_delta: float | None
    p_value: Share
    pass_: bool = msgspec.field(name="pass")


class SummaryCounts(Part, frozen=True, kw_only=True):
    """How many runs a summary has.

    Attributes:
        runs: All of them.
        passed: Those that pass.
        smoke: Those of fewer than 200 pairs.
    """

    runs: Positive
    passed: Natural
    smoke: Natural


class Summary(Part, frozen=True, kw_only=True):
    """Several runs side by side.

    Attributes:
        schema_version: 1.
        report_kind: ``summary``.
        run_id: The id of the summary.
        generated_at: When it was made.
        runs: The runs, in the order in which they were named.
        holm: Their p-values, adjusted for being several.
        counts: How many.
        publication: Where it is published.
        retention: How long it is kept.
    """

    schema_version: Literal[1] = 1
    report_kind: Literal["summary"] = "summary"
    run_id: RunId
    generated_at: Timestamp
    runs: list[SummaryRun]
    holm: list[Share]
    counts: SummaryCounts
    publication: Publication
    retention: Retention


def summary_of(
    root: Root,
    run_id: str,
    run_ids: Sequence[str],
    generated_at: str,
    *,
    keeping: Keeping = DEFAULT_KEEPING,
) -> Summary:
    """Return a summary of runs, computed from their records.

    Args:
        root: The project.
        run_id: The id of the summary.
        run_ids: The runs.
        generated_at: When it is made.
        keeping: How long it is to be kept.

    Raises:
        ArtifactError: Inputs or records of one are missing or wrong.
    """
    if len({*run_ids}) < len(run_ids):
        raise TauLiveError("name each run once")
    result = [_compare_run(root, read_inputs(root, item)) for item in run_ids]
    adjusted = holm([own.p_value for _, _, own in result])
    runs = [
        SummaryRun(
            run_id=inputs.run_id, suite=inputs.suite.suite_id, inputs_sha256=inputs.inputs_sha256,
            records_sha256=digests, pairs=own.pairs, smoke=own.pairs < SMOKE,
            mean_delta=own.mean_delta, p_value=own.p_value,
            pass_=own.pass_ and p_value <= inputs.criteria.max_p_value,
        )
        for (inputs, digests, own), p_value in zip(result, adjusted, strict=True)
    ]  # fmt: skip
    return Summary(
        run_id=run_id,
        generated_at=generated_at,
        runs=runs,
        holm=adjusted,
        counts=SummaryCounts(
            runs=len(runs), passed=sum(run.pass_ for run in runs),
            smoke=sum(run.smoke for run in runs),
        ),
        publication=publication_of(run_id, KIND, generated_at),
        retention=retention_of(generated_at, keeping),
    )  # fmt: skip


def _compare_run(root: Root, inputs: Inputs) -> tuple[Inputs, list[str], Significance]:
    evidence = read_evidence(root, inputs)
    digests = [evidence.baseline.sha256, evidence.trained.sha256]
    return inputs, digests, significance_of(evidence)


def write_summary(root: Root, summary: Summary) -> str:
    """Write a summary, and return its path. Raises: TauLiveError."""
    path = Names(summary.run_id).report(KIND)
    root.write(path, summary)
    return path


def summary_differences(document: JsonObject, root: Root) -> Iterator[Fault]:
    """Yield where a summary is not what the records of its runs give."""
    faults = check(document, Summary)
    if faults:
        yield from faults
        return
    known = msgspec.convert(document, Summary)
    ids = [run.run_id for run in known.runs]
    if not ids or len({*ids}) < len(ids):
        yield Fault("holm_mismatch", "/runs", "must name each run once, and at least one")
        return
    try:
        wanted = plain(summary_of(root, known.run_id, ids, known.generated_at))
    except ArtifactError as error:
        yield from error.faults
        return
    yield from differences(document, wanted)


def repeatability_of(root: Root, run_ids: Sequence[str], *, tolerance: float) -> Repeatability:
    """Return how far the rewards of one subject lie apart from run to run, by case.

    Args:
        root: The project.
        run_ids: Runs of one suite and one trained subject, at least two.
        tolerance: The largest range that a case may have, in units of reward.

    Raises:
        TauLiveError: They are not of one suite and subject.
        ArtifactError: Inputs or records of one are missing or wrong.
    """
    every = [read_inputs(root, item) for item in run_ids]
    marks = {(own.suite.sha256, own.roles.trained) for own in every}
    if len(every) < 2 or len(marks) > 1:
        raise TauLiveError("name at least two runs of one suite and one trained subject")
    means = [
        case_means(
            (record.case_id, record.reward)
            for record in read_evidence(root, inputs).trained.records
            if record.reward is not None
        )
        for inputs in every
    ]
    shared = [case for case in means[0] if all(case in own for own in means)]
    return repeatability([{case: own[case] for case in shared} for own in means],
                         tolerance=tolerance)  # fmt: skip
