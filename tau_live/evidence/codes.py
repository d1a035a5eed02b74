"""Codes: why a run does not pass and what to do, and what may be wrong with an artifact."""

from collections.abc import Mapping
from typing import NamedTuple


class Reason(NamedTuple):
    """Why a run does not pass.

    Attributes:
        means: What is not met, as a sentence.
        todo: What to do about it, as a sentence.
    """

    means: str
    todo: str


REASONS: Mapping[str, Reason] = {
    "insufficient_pairs": Reason(
        "There are fewer pairs than the criteria ask for.",
        "Use a suite with more cases; more seeds of the same cases add no pairs.",
    ),
    "too_many_missing": Reason(
        "Too many results are missing, or more on one side than on the other.",
        "Look at `error` in the records, mend what failed around the subjects (a provider, a "
        "network, a scorer), and measure under a new run id.",
    ),
    "reward_gain_below_threshold": Reason(
        "The mean difference is smaller than the criteria ask for.",
        "The subject is not better by as much as you require: improve it, and leave the "
        "threshold alone.",
    ),
    "p_value_above_threshold": Reason(
        "Differences like these occur too often by chance.",
        "Use a suite with more cases, or accept that nothing is shown.",
    ),
    "confidence_below_threshold": Reason(
        "The interval was made with less confidence than the criteria ask for.",
        "Make the reports again; the command always uses the confidence that was frozen.",
    ),
    "interval_contains_zero": Reason(
        "The interval of the mean difference reaches 0 or below.",
        "Use a suite with more cases, or accept that nothing is shown.",
    ),
    "checkpoint_promotion_blocked_safety_regression": Reason(
        "The mean safety penalty rose by more than is allowed.",
        "Look at the cases whose penalties differ, and do not put the subject into service.",
    ),
    "safety_bound_above_threshold": Reason(
        "The safety penalty may have risen by more than is allowed, at 95 % confidence.",
        "Use a suite with more cases, which narrows the bound, or make the subject safer.",
    ),
    "safety_unknown": Reason(
        "Nothing watched safety in at least one pair.",
        "Give every case `safety`, or let the subject report a `safety_penalty`.",
    ),
    "checkpoint_promotion_blocked_seed_reproducibility": Reason(
        "The seeds give results that are too different, or there are fewer than three.",
        "Freeze with at least three seeds; where they disagree, use more cases, or train and "
        "measure again.",
    ),
    "checkpoint_promotion_blocked_sample_sensitivity": Reason(
        "The result changes too much when cases are left out, or there are too few to tell.",
        "Use at least twice `min_pairs` cases; where they drift, a few cases carry the effect.",
    ),
}
"""Every reason of a verdict, in the order of the criteria."""

FAULTS: Mapping[str, str] = {
    "not_json": "The file is no JSON.",
    "not_an_object": "The document is no JSON object.",
    "duplicate_key": "An object has a key twice.",
    "too_large": "The file has more than 64 MiB.",
    "unsupported_schema_version": "`schema_version` is not 1.",
    "missing_field": "A field is missing.",
    "unknown_field": "A field is none of the artifact's.",
    "wrong_type": "A value is of another type; `true` is no number.",
    "blank_string": "A text is empty or blank.",
    "not_finite": "A number is NaN or infinite, also where it is written as a text.",
    "out_of_range": "A number is out of its range, or a text not of its form.",
    "bad_run_id": "The run id is not of its form.",
    "bad_timestamp": "A time is not RFC 3339 in UTC, in whole seconds.",
    "clock_order": "Something was made before what it is made from, or in the future.",
    "template_not_filled": "A value of the empty template is left.",
    "suite_malformed": "The suite breaks a rule.",
    "artifact_missing": "A file that is named is not there, or is no file.",
    "artifact_outside_root": "A path is absolute, has `..`, or leaves the root through a link.",
    "artifact_hash_mismatch": "A file is not the one whose digest is named.",
    "records_missing": "The records of a role are not there.",
    "records_malformed": "A record is torn, has a wrong structure, or contradicts itself.",
    "records_foreign_run": "A record is of another run, role or plan.",
    "records_duplicate_episode": "Something was executed once and is recorded twice.",
    "records_count_mismatch": "There are fewer or more records than planned, or than reported.",
    "inputs_mismatch": "Something differs from what was frozen, or the inputs were changed.",
    "suite_hash_mismatch": "The suite or a case is not the one that was frozen.",
    "planned_n_mismatch": "The planned numbers do not follow from suite, seeds and repeats.",
    "seed_mismatch": "A seed or repeat differs from the plan, or a seed is named twice.",
    "same_policy": "Both roles are one subject.",
    "policy_hash_missing": "A subject has no digest of what it is made of.",
    "copied_records": "The records of one role were copied from the other.",
    "contaminated_case": "A case was read by a training in the store.",
    "record_not_in_store": "With `--store`: the store has no rollout for a record.",
    "record_differs_from_store": "With `--store`: the store holds another outcome.",
    "seal_broken": "With `--store`: rows of the store were edited, removed or added.",
    "re_execution_differs": "With `--re-execute`: the same case has another outcome now.",
    "mean_mismatch": "A mean is not what the records give.",
    "delta_mismatch": "A difference or effect size is not what the records give.",
    "p_value_mismatch": "A p-value, or how it was computed, is not what the records give.",
    "interval_mismatch": "An interval is not what the records give.",
    "safety_mismatch": "A figure of safety is not what the records give.",
    "holm_mismatch": "The number of claims that share the data is wrong.",
    "sensitivity_mismatch": "The effect of leaving out cases is not what the records give.",
    "reproducibility_mismatch": "The agreement of the seeds is not what the records give.",
    "confidence_level_invalid": "The confidence is not the one that was declared before.",
    "criteria_loosened": "The criteria are not those that were frozen.",
    "pass_mismatch": "The verdict is not what the criteria give; a stored one is never believed.",
    "reason_codes_mismatch": "The reasons are not what the criteria give.",
    "insufficient_pairs": "Claims to pass with too few pairs.",
    "too_many_missing": "Claims to pass with too many missing results.",
    "safety_unknown": "Claims to pass where nothing watched safety.",
    "bad_report_kind": "The document is no artifact of this protocol.",
    "bad_report_path": "A file has another name or place than its run and kind give it.",
    "bad_archive_path": "The place in the archive is not that of the run, kind and month.",
    "path_run_id_mismatch": "The file has the name of another run or kind.",
    "bad_retention_policy": "The policy is neither `archive-then-purge` nor `retain-only`.",
    "bad_retain_days": "`retain_days` is not above 0.",
    "bad_archive_after_days": "`archive_after_days` is not from 0 to `retain_days`.",
    "bad_purge_after": "`purge_after` is not `generated_at` and `retain_days`.",
    "proof_hash_mismatch": "The digest of the proof is not that of its other fields.",
    "proof_hmac_mismatch": "The signature was not made with the audit key.",
    "unknown_key_id": "The signature is of another audit key.",
    "already_published": "Another content is published under that path.",
    "wrong_suffix": "A file of a drill has another ending than its kind.",
    "evidence_hash_mismatch": "A log or snapshot of a drill is not the one whose digest is named.",
    "not_killed": "Nothing was in flight, or the process did not end by signal 9.",
    "not_resumed": "What was in flight is not in the events after the restart.",
    "rows_lost": "A row that the control has is missing.",
    "rows_doubled": "A row is there twice.",
    "policy_differs": "The policy is not the control's.",
    "wrong_resume_status": "`resume_status` is not `succeeded`.",
    "wrong_reason_code": "`recovery_reason_code` is not `job_recovered_after_restart`.",
    "operations_failed": "A check of operations has failed, or a runbook is missing.",
    "gate_flag_mismatch": "A flag of a gate bundle is not what the artifact it names gives.",
}
"""Every code of a validation, in the order in which they are looked for."""
