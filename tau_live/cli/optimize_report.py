"""The report of a run and the prompts, as ``tau-live optimize`` prints them for people."""

from collections.abc import Iterator, Sequence
from difflib import ndiff
from typing import TYPE_CHECKING

import click

from tau_live.cli.output import (
    facts_of,
    line_of,
    listing_of,
    number,
    plural,
    print_all,
    prompt_text,
    seconds,
)
from tau_live.core.sanitize import JsonObject
from tau_live.operate.optimizations import state_now
from tau_live.prompts.versions import PromptVersion
from tau_live.store.records import Candidate, Optimization, OptimizationState
from tau_live.store.roles import Store

if TYPE_CHECKING:
    from tau_live.learn.promotion.rules import PromptStatus

STYLES = {"+": "green", "-": "red"}
"""The colours of lines of a prompt that came and went."""

FIGURES = (
    *("executed", "trajectories", "samples", "updates", "mean_reward_first", "mean_reward_last"),
    "skipped_reason",
)
"""The figures of the optimizer on its line; ``--json`` has all of them."""


def print_report(store: Store, run: Optimization, status: JsonObject) -> None:
    """Print what a run found, for people."""
    adoption = status["adoption"] if isinstance(status["adoption"], dict) else {}
    candidates = store.optimizations.candidates(run.run_id)
    failures = [
        (f"{plural(failure.items, 'item')} failed", failure.error)
        for failure in store.optimizations.failures(run.run_id)
    ]
    print_all(facts_of([*_facts(run, adoption), *failures]))
    texts = {known.version: known.text or "" for known in candidates if known.version}
    chosen = adoption.get("prompt_version")
    if chosen in texts and chosen != run.incumbent:
        before, after = texts[run.incumbent].splitlines(), texts[str(chosen)].splitlines()
        changes = [line for line in ndiff(before, after) if not line.startswith("?")]
        is_in = adoption.get("reason_code") == "adopted"
        print_all(
            "",
            *([] if is_in else [f"not adopted ({chosen}):"]),
            *(line_of(line[:2], line[2:], STYLES.get(line[0], "")) for line in changes),
            "",
        )
    state = state_now(run)[0]
    ended = "complete" if state is OptimizationState.COMPLETED else state
    click.echo(
        f"prompt optimization {ended}: model={run.model_ref} store={run.store_path} "
        f"total={status['total_rollouts']} succeeded={status['succeeded']} "
        f"failed={status['failed']} cancelled={status['cancelled']}"
    )
    optimizer = status.get("rl_optimizer")
    if isinstance(optimizer, dict):
        words = " ".join(f"{name}={_word(optimizer.get(name))}" for name in FIGURES)
        click.echo(f"prompt optimization rl optimizer: {words}")


def _word(value: object) -> str:
    """Return a value of a report as one word."""
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value).lower()


def _facts(run: Optimization, adoption: JsonObject) -> Iterator[tuple[str, object]]:
    state, why = state_now(run)
    yield "run", run.run_id
    yield "state", f"{state}{f': {why}' if why not in {None, state} else ''}"
    yield "error", run.error
    yield "search ended", run.report.get("search_ended")
    scores = run.report.get("scores")
    for name, summary in scores.items() if isinstance(scores, dict) else ():
        if summary is not None:
            yield name.replace("_", " "), f"{number(summary['mean'])} on {summary['rows']} rows"
    if adoption.get("delta") is not None:
        low_high = adoption.get("interval")
        between = f" [{low_high[0]:+.3f}, {low_high[1]:+.3f}]" if isinstance(low_high, list) else ""
        counts = f"{adoption['better']} better, {adoption['worse']} worse"
        found = f"{adoption['delta']:+.3f}{between}, p = {adoption['p_value']:.4g}"
        yield "difference", f"{found}, {adoption['pairs']} pairs: {counts}"
    if adoption.get("uncosted_why") is not None:
        yield "safety unknown", f"on {adoption['uncosted']} rows: {adoption['uncosted_why']}"
    if adoption:
        what = adoption.get("prompt_version") or "nothing"
        reason = str(adoption["reason_code"])
        yield "adopted", what if reason == "adopted" else f"nothing: {reason}"
    used = f"{plural(run.calls, 'call')}, {plural(run.tokens, 'token')}"
    yield "used", f"{used}, {dollars(run)}, {seconds(run.seconds)}"


def dollars(run: Optimization) -> str:
    """Return what a run has spent; a price that is unknown is not 0."""
    before = run.report.get("preflight")
    if isinstance(before, dict) and before.get("usd") is not None:
        return f"${run.usd:.4f}"
    return f"at least ${run.usd:.4f}" if run.usd else "US dollars unknown"


def print_candidates(candidates: Sequence[Candidate]) -> None:
    """Print the candidates of a run, for people."""
    rows = [
        (
            known.label,
            known.version or "-",
            known.parent or "-",
            _score(known),
            known.state,
            known.why or "",
        )
        for known in candidates
    ]
    print_all("", listing_of(["label", "prompt", "parent", "score#", "state", "why"], rows))


def print_prompt(known: PromptVersion, live: "PromptStatus | None") -> None:
    """Print a version of a prompt with its text, for people."""
    candidate, mark = known.candidate, " (in force)" if known.in_force else ""
    facts = [
        ("prompt", f"{candidate.version}{mark}"),
        ("resource", known.resource),
        ("run", f"{candidate.run_id} {candidate.label}"),
        ("also", ", ".join(f"{other.run_id} {other.label}" for other in known.others) or None),
        ("parent", candidate.parent),
        ("score", None if "search_score" not in candidate.details else _score(candidate)),
        ("state", f"{candidate.state}{f': {candidate.why}' if candidate.why else ''}"),
        ("live", None if live is None else prompt_text(live)),
    ]
    lines = (candidate.text or "(empty)").splitlines()
    print_all(facts_of(facts), *(line_of("  ", line) for line in lines), "")


def _score(known: Candidate) -> str:
    score = known.details.get("search_score")
    return number(score if isinstance(score, int | float) else None)
