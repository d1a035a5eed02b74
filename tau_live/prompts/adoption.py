"""Adoption: a candidate is published only if it is better on held-out rows, by a paired test."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from tau_live.core.errors import ConflictError, TauLiveError
from tau_live.core.prompts import META, prompt_version
from tau_live.core.records import AuditEntry, Resource
from tau_live.core.sanitize import JsonObject
from tau_live.prompts.config import Adoption
from tau_live.prompts.search import Prompt, weighted_mean
from tau_live.prompts.versions import name_versions, whole_version
from tau_live.rl.paired import holm, sign_flip_p, t_interval, t_upper_bound
from tau_live.store.records import Candidate, Optimization
from tau_live.store.roles import Store

DIGITS = 12

NUMBERED = "resources-"
"""Begins a version of a resource by its number alone."""

PASSING = frozenset({"adopted", "propose_only"})
"""The reasons of a prompt that passes every check."""


@dataclass(slots=True)
class Measured:
    """The scores of a prompt on rows.

    Attributes:
        scores: Its mean score, by the row's index.
        costs: Its mean safety cost, by the row's index.
        critical: The rows on which it violates safety critically.
        uncosted: The rows whose safety cost is unknown, each with the reason.
        missing: The rows that can be scored and have no score.
        usd: What each item cost, in US dollars; ``None`` where that is unknown.
        weights: The weights of the rows.
    """

    scores: dict[int, float] = field(default_factory=dict)
    costs: dict[int, float] = field(default_factory=dict)
    critical: set[int] = field(default_factory=set)
    uncosted: dict[int, str] = field(default_factory=dict)
    missing: set[int] = field(default_factory=set)
    usd: list[float | None] = field(default_factory=list)
    weights: dict[int, float] = field(default_factory=dict)

    @property
    def mean(self) -> float | None:
        """The weighted mean score; ``None`` without any."""
        return weighted_mean(self.scores, self.weights)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a prompt is adopted, and why.

    Attributes:
        reason_code: ``adopted``, or the first check that failed.
        prompt_version: The finalist; ``None`` if there was none.
        delta: The mean difference of scores, finalist minus incumbent; ``None`` without pairs.
        p_value: Of the one-sided sign-flip test, adjusted for several finalists.
        pairs: Rows with a score on both sides.
        better: Rows on which the finalist is better.
        worse: Rows on which it is worse.
        missing: Rows without a score on either side.
        interval: Of the mean difference, two-sided 95 %, by Student's t; for people.
        cost_ratio: Mean US dollars per item, finalist over incumbent; ``None`` if unknown.
        cost_bound: The one-sided 95 % bound of the mean difference of safety costs.
        uncosted: Rows whose safety cost is unknown on either side.
        uncosted_why: Why the first of them is; ``None`` without any.
        alpha: As configured.
        min_delta: As configured.
    """

    reason_code: str
    prompt_version: str | None = None
    delta: float | None = None
    p_value: float | None = None
    pairs: int = 0
    better: int = 0
    worse: int = 0
    missing: int = 0
    interval: tuple[float, float] | None = None
    cost_ratio: float | None = None
    cost_bound: float | None = None
    uncosted: int = 0
    uncosted_why: str | None = None
    alpha: float
    min_delta: float


class Finalist(NamedTuple):
    """A prompt that may be adopted.

    Attributes:
        prompt: The prompt.
        measured: What it earned on the held-out rows.
        leaks: What it repeats of held-out rows; ``None`` if nothing.
    """

    prompt: Prompt
    measured: Measured
    leaks: str | None


def verdicts(
    incumbent: Measured, finalists: Sequence[Finalist], rows: int, config: Adoption, *, seed: int
) -> list[Verdict]:
    """Return what the evidence says of each finalist, before anything is published.

    Args:
        incumbent: What the incumbent earned on the held-out rows.
        finalists: The prompts that may be adopted.
        rows: How many held-out rows can be scored.
        config: The bounds.
        seed: Of the test's draws.
    """
    differences = [_differences(incumbent, finalist.measured) for finalist in finalists]
    adjusted = holm([sign_flip_p(own, seed=seed) for own in differences])
    return [
        _verdict(incumbent, finalist, differences=own, p_value=p_value, rows=rows, config=config)
        for finalist, own, p_value in zip(finalists, differences, adjusted, strict=True)
    ]


def _differences(incumbent: Measured, finalist: Measured) -> list[float]:
    """Return the differences of scores, in the order of the rows, without errors of floats."""
    both = sorted(incumbent.scores.keys() & finalist.scores.keys())
    return [round(finalist.scores[row] - incumbent.scores[row], DIGITS) for row in both]


def _verdict(
    incumbent: Measured,
    finalist: Finalist,
    *,
    differences: Sequence[float],
    p_value: float,
    rows: int,
    config: Adoption,
) -> Verdict:
    own = finalist.measured
    pairs = len(differences)
    delta = sum(differences) / pairs if pairs else None
    both = sorted(incumbent.costs.keys() & own.costs.keys())
    costs = [own.costs[row] - incumbent.costs[row] for row in both]
    bound = t_upper_bound(costs) if len(costs) > 1 else (costs[0] if costs else None)
    ratio = _cost_ratio(incumbent.usd, own.usd)
    missing = max(len(incumbent.missing), len(own.missing))
    uncosted = incumbent.uncosted | own.uncosted
    margin = config.safety_margin
    checks = {
        "leaks_rows": finalist.leaks is not None,
        "insufficient_pairs": pairs < config.min_pairs,
        "too_many_missing": bool(rows) and missing / rows > config.max_missing_share,
        "no_significant_improvement": p_value > config.alpha,
        "below_min_delta": delta is None or delta < config.min_delta,
        "safety_regression": bool(own.critical - incumbent.critical)
        or (margin is not None and bound is not None and bound > margin)
        or (margin is not None and bool(rows) and len(uncosted) / rows > config.max_missing_share),
        "cost_regression": config.max_cost_ratio is not None
        and (ratio is None or ratio > config.max_cost_ratio),
        "propose_only": config.mode == "propose",
    }
    return Verdict(
        reason_code=next((code for code, fails in checks.items() if fails), "adopted"),
        prompt_version=finalist.prompt.version,
        delta=delta,
        p_value=p_value if pairs else None,
        pairs=pairs,
        better=sum(d > 0 for d in differences),
        worse=sum(d < 0 for d in differences),
        missing=len(incumbent.missing | own.missing),
        interval=t_interval(differences) if pairs > 1 else None,
        cost_ratio=ratio,
        cost_bound=bound,
        uncosted=len(uncosted),
        uncosted_why=uncosted[min(uncosted)] if uncosted else None,
        alpha=config.alpha,
        min_delta=config.min_delta,
    )


def _cost_ratio(incumbent: Sequence[float | None], own: Sequence[float | None]) -> float | None:
    before = [cost for cost in incumbent if cost is not None]
    after = [cost for cost in own if cost is not None]
    if not before or not after or not sum(before):
        return None
    return (sum(after) / len(after)) / (sum(before) / len(before))


def adopt(  # noqa: PLR0913  # what is written down
    store: Store,
    run: Optimization,
    candidate: Candidate,
    verdict: Verdict,
    *,
    prompt_key: str,
    algorithm: str,
    scores: Mapping[str, float | None],
    who: str,
) -> Verdict:
    """Publish a prompt, if the incumbent is still the one that the run began with.

    The resource, where it comes from, the candidate's state, the report and the line of the audit
    are one transaction. A prompt that is only proposed is not published, and compared all the same.

    Args:
        store: The store.
        run: The run.
        candidate: The prompt.
        verdict: The evidence, which is one of ``PASSING``.
        prompt_key: The name of the resource.
        algorithm: How it was found.
        scores: The mean scores of the incumbent (``baseline``) and of the prompt (``score``).
        who: Who is on record for it.
    """
    at = time.time()
    meta = {
        "prompt_version": candidate.version,
        "parent_version": run.incumbent,
        "run_id": run.run_id,
        "algorithm": algorithm,
        "baseline_score": scores["baseline"],
        "score": scores["score"],
        "pairs": verdict.pairs,
        "delta": verdict.delta,
        "p_value": verdict.p_value,
        "alpha": verdict.alpha,
        "adopted_at": at,
    }
    began_with = run.resources.get(prompt_key, 0)
    expected = {prompt_key: began_with if isinstance(began_with, int) else 0}
    adopts = verdict.reason_code == "adopted"
    new = {prompt_key: candidate.text, META + prompt_key: meta} if adopts else {}
    try:
        with store.begin():
            published = store.resources.publish(new, at=at, expected=expected)
            conclude(store, candidate, verdict, state="adopted" if adopts else "finalist")
            store.optimizations.amend_report(run.run_id, adoption=msgspec.to_builtins(verdict))
            if adopts:
                details = {**meta, "resource": prompt_key, "version": published[prompt_key].version}
                store.audit.add(
                    AuditEntry(at=at, who=who, action="optimize adopt", reason=run.run_id,
                               details=details)
                )  # fmt: skip
    except ConflictError:
        changed = msgspec.structs.replace(verdict, reason_code="incumbent_changed")
        with store.begin():
            conclude(store, candidate, changed, state="finalist")
            store.optimizations.amend_report(run.run_id, adoption=msgspec.to_builtins(changed))
        return changed
    return verdict


def replaced_version(store: Store, prompt_key: str, resources: JsonObject) -> str | None:
    """Return the adopted prompt in force that the resources of a config put out of force.

    Args:
        store: The store.
        prompt_key: The resource.
        resources: Those of the config.
    """
    latest, text = store.resources.latest().get(prompt_key), resources.get(prompt_key)
    if latest is None or text is None or latest.content == text:
        return None
    version = prompt_version(str(latest.content))
    is_adopted = store.optimizations.prompt_states().get(version) in {"adopted", "champion"}
    return version if is_adopted else None


def conclude(store: Store, candidate: Candidate, verdict: Verdict, *, state: str) -> None:
    """Store what the evidence makes of a finalist."""
    why = None if verdict.reason_code in PASSING else verdict.reason_code
    store.optimizations.keep(msgspec.structs.replace(candidate, state=state, why=why))


def publish_earlier(
    store: Store, version: str | None, *, prompt_key: str, reason: str, who: str
) -> int:
    """Publish an earlier prompt again, and return the number of the resource's new version.

    The prompt in force until then is withdrawn, and the one that is put back is the champion: live
    agents are offered it without another trial.

    Args:
        store: The store.
        version: Its prompt version or the beginning of it, or a version of the resource,
            ``NAME@NUMBER`` or ``resources-NUMBER``;
            ``None`` is the prompt before the one in force, and after a rollback the one before
            that: one that was put aside does not come back by itself.
        prompt_key: The name of the resource.
        reason: Why.
        who: Who is on record for it.

    Raises:
        TauLiveError: Nothing stored is that prompt; then nothing is changed.
    """
    versions = store.resources.versions(prompt_key)
    numbered = {f"{prompt_key}@{known.version}": known.content for known in versions}
    known = {prompt_version(text): text for text in numbered.values() if isinstance(text, str)}
    runs = {
        run.run_id: run.config.get("prompt_key") for run in store.optimizations.runs("optimize")
    }
    for candidate in store.optimizations.candidates():
        if candidate.text is not None and runs.get(candidate.run_id) == prompt_key:
            known.setdefault(prompt_version(candidate.text), candidate.text)
    version = whole_version(version, known)
    if version is not None and version.startswith(NUMBERED):
        version = f"{prompt_key}@{version.removeprefix(NUMBERED)}"
    text = numbered.get(version or "", known.get(version or ""))
    if version is None:
        text = _before(versions)
    if not versions or not isinstance(text, str):
        wanted = version or f"a version of {prompt_key} before the one in force"
        choices = name_versions(store, known, key=prompt_key)
        raise TauLiveError(f"failed to load rollback checkpoint '{wanted}': {choices}")
    at = time.time()
    meta = {"prompt_version": prompt_version(text), "rolled_back_at": at}
    replaced = versions[0].content
    with store.begin():
        if isinstance(replaced, str) and prompt_version(replaced) != prompt_version(text):
            store.optimizations.set_prompt_state(
                prompt_version(replaced), "withdrawn", why=f"rolled back: {reason}"
            )
        store.optimizations.set_prompt_state(prompt_version(text), "champion")
        published = store.resources.publish({prompt_key: text, META + prompt_key: meta}, at=at)
        number = published[prompt_key].version
        details = {"resource": prompt_key, "version": number, **meta}
        store.audit.add(
            AuditEntry(at=at, who=who, action="optimize rollback", reason=reason, details=details)
        )
    return number


def _before(versions: Sequence[Resource]) -> object:
    """Return the text before the one in force, which may itself have been put back."""
    texts = [known.content for known in reversed(versions)]
    first = texts.index(texts[-1]) if texts else 0
    return texts[first - 1] if first else None
