"""Adoption: what the evidence must be, and what is published on it."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tau_live.core.errors import TauLiveError
from tau_live.core.prompts import prompt_version
from tau_live.core.records import AuditEntry, RolloutMode, RolloutQuery
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredPrice
from tau_live.prompts.adoption import Finalist, Measured, Verdict, publish_earlier, verdicts
from tau_live.prompts.config import Adoption
from tau_live.prompts.control import move
from tau_live.prompts.lead import Shown
from tau_live.prompts.search import Prompt
from tau_live.store.opening import open_at
from tau_live.store.sqlite.store import SqliteStore
from tests.prompts.conftest import Ended, Optimize
from tests.prompts.stubs import BROKEN, LEAK, PROMPT, REF, RULE, rows


def measured(scores: Sequence[float]) -> Measured:
    known = dict(enumerate(scores))
    return Measured(scores=known, weights=dict.fromkeys(known, 1.0))


def verdict(
    differences: Sequence[float], *, incumbent: Measured | None = None, seed: int = 0, **config: Any
) -> Verdict:
    """Return the verdict of a finalist that is so much better than the incumbent on each row."""
    incumbent = incumbent or measured([0.5] * len(differences))
    own = measured([0.5 + difference for difference in differences])
    finalist = Finalist(Prompt("p-1", "text", "r1-p1-c1", 1), own, None)
    return verdicts(incumbent, [finalist], len(differences), Adoption(**config), seed=seed)[0]


# The vectors of the evidence


@pytest.mark.parametrize(
    ("better", "worse", "p", "reason_code"),
    [
        (7, 1, 9 / 256, "adopted"),
        (5, 0, 1 / 32, "adopted"),
        (4, 0, 1 / 16, "no_significant_improvement"),
    ],
)
def test_the_evidence_of_20_rows(better: int, worse: int, p: float, reason_code: str) -> None:
    found = verdict([0.5] * better + [-0.5] * worse + [0.0] * (20 - better - worse))

    assert (found.reason_code, found.p_value) == (reason_code, p)
    assert (found.better, found.worse, found.pairs) == (better, worse, 20)
    assert found.delta == pytest.approx((better - worse) / 40)


def test_too_few_pairs_are_no_evidence_whatever_their_p_value() -> None:
    differences = [0.2, 0.1, -0.05, 0.3, 0.0, 0.15, 0.25, -0.1, 0.05, 0.2]

    found = verdict(differences)

    assert found.reason_code == "insufficient_pairs"
    assert found.delta == pytest.approx(0.11)
    assert found.p_value == 0.021484375
    assert verdict(differences, min_pairs=10).reason_code == "adopted"


def test_what_sums_of_floats_add_is_no_difference() -> None:
    equal = measured([0.1 + 0.2] * 20)  # a mean over repeats may be either
    finalist = Finalist(Prompt("p-1", "text", "r1-p1-c1", 1), equal, None)

    found = verdicts(measured([0.3] * 20), [finalist], 20, Adoption(min_delta=0.0), seed=0)[0]

    assert (found.p_value, found.better) == (1.0, 0)


def test_several_finalists_are_corrected_for() -> None:
    incumbent = measured([0.0] * 20)
    texts = ("five better", "six better")
    finalists = [
        Finalist(Prompt(text, text, text, 1), measured([1.0] * n + [0.0] * (20 - n)), None)
        for text, n in zip(texts, (5, 6), strict=True)
    ]

    found = verdicts(incumbent, finalists, 20, Adoption(finalists=2), seed=0)

    assert [each.p_value for each in found] == [1 / 32, 2 / 64]
    found = verdicts(incumbent, finalists * 2, 20, Adoption(finalists=4), seed=0)
    assert [each.p_value for each in found] == [4 / 64] * 4


def test_checks_have_the_order_of_the_table() -> None:
    incumbent = Measured(
        scores=dict.fromkeys(range(8), 0.5), costs=dict.fromkeys(range(20), 0.0),
        missing={*range(8, 20)}, usd=[1.0],
    )  # fmt: skip
    own = Measured(scores={0: 1.0}, costs=dict.fromkeys(range(20), 1.0), critical={3}, usd=[2.0])
    worst = Finalist(Prompt("p-1", "text", "r1-p1-c1", 1), own, "the expected answer of row 1")
    slightly = replace(own, scores={n: 0.5 + 0.1 * (n < 4) for n in range(8)})
    much = replace(own, scores=dict.fromkeys(range(8), 0.55))
    strict = {"max_cost_ratio": 1.0, "mode": "propose", "min_delta": 0.1}

    def reason(finalist: Finalist, **config: Any) -> str:
        return verdicts(incumbent, [finalist], 20, Adoption(**config), seed=0)[0].reason_code

    found = [
        reason(worst, **strict),
        reason(worst._replace(leaks=None), **strict),
        reason(Finalist(worst.prompt, slightly, None), **strict, min_pairs=8),
    ]
    incumbent.missing = set()
    found += [
        reason(Finalist(worst.prompt, slightly, None), **strict, min_pairs=8),
        reason(Finalist(worst.prompt, much, None), **strict, min_pairs=8),
        reason(Finalist(worst.prompt, much, None), **strict | {"min_delta": 0.0}, min_pairs=8),
    ]
    much.costs, much.critical = {}, set()
    found += [
        reason(Finalist(worst.prompt, much, None), **strict | {"min_delta": 0.0}, min_pairs=8),
        reason(Finalist(worst.prompt, much, None), mode="propose", min_pairs=8),
        reason(Finalist(worst.prompt, much, None), min_pairs=8),
    ]

    assert found == [
        "leaks_rows", "insufficient_pairs", "too_many_missing", "no_significant_improvement",
        "below_min_delta", "safety_regression", "cost_regression", "propose_only", "adopted",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("costs", "critical", "margin", "reason_code"),
    [
        pytest.param([0.0] * 20, set(), 0.0, "adopted", id="no difference"),
        pytest.param([0.04] * 20, set(), 0.05, "adopted", id="within the margin"),
        pytest.param([0.06] * 20, set(), 0.05, "safety_regression", id="beyond it"),
        pytest.param(
            [0.0, 0.08] * 10, set(), 0.05, "safety_regression", id="the bound, not the mean"
        ),
        pytest.param([1.0] * 20, set(), None, "adopted", id="no margin"),
        pytest.param([0.0] * 20, {4}, None, "safety_regression", id="a critical violation"),
    ],
)
def test_safety_may_not_get_worse(
    costs: list[float], critical: set[int], margin: float | None, reason_code: str
) -> None:
    incumbent, own = measured([0.0] * 20), measured([1.0] * 20)
    incumbent.costs = dict.fromkeys(range(20), 0.0)
    own.costs, own.critical = dict(enumerate(costs)), critical
    finalist = Finalist(Prompt("p-1", "text", "r1-p1-c1", 1), own, None)

    found = verdicts(incumbent, [finalist], 20, Adoption(safety_margin=margin), seed=0)[0]

    assert found.reason_code == reason_code


def test_a_critical_violation_of_both_is_no_regression() -> None:
    incumbent, own = measured([0.0] * 20), measured([1.0] * 20)
    incumbent.critical, own.critical = {4, 5}, {4}
    finalist = Finalist(Prompt("p-1", "text", "r1-p1-c1", 1), own, None)

    assert verdicts(incumbent, [finalist], 20, Adoption(), seed=0)[0].reason_code == "adopted"


@pytest.mark.parametrize(
    ("uncosted", "margin", "reason_code"),
    [
        pytest.param(20, 0.05, "safety_regression", id="an unknown safety cost is not a safe one"),
        pytest.param(1, 0.05, "safety_regression", id="one of 20 is too many"),
        pytest.param(20, None, "adopted", id="no margin"),
    ],
)
@pytest.mark.parametrize("side", ["incumbent", "finalist"])
def test_safety_that_is_unknown_is_no_evidence(
    uncosted: int, margin: float | None, reason_code: str, side: str
) -> None:
    incumbent, own = measured([0.0] * 20), measured([1.0] * 20)
    unknown = incumbent if side == "incumbent" else own
    unknown.uncosted = dict.fromkeys(range(uncosted), "cost: ValueError: oops")
    finalist = Finalist(Prompt("p-1", "text", "r1-p1-c1", 1), own, None)

    found = verdicts(incumbent, [finalist], 20, Adoption(safety_margin=margin), seed=0)[0]

    assert found.reason_code == reason_code
    assert (found.uncosted, found.uncosted_why) == (uncosted, "cost: ValueError: oops")


@pytest.mark.slow
def test_equal_prompts_are_adopted_as_seldom_as_alpha_promises() -> None:
    adopted = 0
    for seed in range(1_000):
        rng = np.random.default_rng(seed)
        ours, theirs = rng.integers(0, 2, size=(2, 40)).astype(float)
        finalist = Finalist(Prompt("p-1", "text", "r1-p1-c1", 1), measured(ours), None)
        found = verdicts(measured(theirs), [finalist], 40, Adoption(), seed=seed)[0]
        adopted += found.reason_code == "adopted"

    assert 10 <= adopted <= 73  # the 99.9 % quantile at 5 %; about 34 are to be expected


# Whole runs


def audit(ended: Ended) -> list[AuditEntry]:
    return [entry for entry in ended.store.audit.entries() if "optimize" in entry.action]


@pytest.mark.slow
def test_a_better_prompt_is_adopted_with_all_that_is_known_of_it(
    store: SqliteStore, optimize: Optimize
) -> None:
    store.resources.publish({"tone": "dry", "system_prompt": "An older one."})

    ended = optimize(test=rows(2000, 10))

    better = f"{PROMPT}\n{RULE}"
    assert ended.adoption["reason_code"] == "adopted"
    assert ended.scores["validate_incumbent"]["mean"] == pytest.approx(0.4)
    assert ended.scores["validate_finalist"]["mean"] == 1.0
    latest = {name: each.content for name, each in store.resources.latest().items()}
    meta: Any = latest.pop("_meta.system_prompt")
    assert latest == {"tone": "dry", "system_prompt": better}
    assert meta.pop("adopted_at") > 0
    assert meta == {
        "prompt_version": prompt_version(better),
        "parent_version": prompt_version(PROMPT),
        "run_id": ended.run.run_id,
        "algorithm": "beam",
        "baseline_score": pytest.approx(0.4),
        "score": 1.0,
        "pairs": 30,
        "delta": pytest.approx(0.6),
        "p_value": 2.0**-18,
        "alpha": 0.05,
    }
    assert ended.run.report["test"] == {
        "incumbent": pytest.approx(0.4), "adopted": 1.0, "pairs": 10,
        "interval": pytest.approx([0.2306, 0.9694], abs=1e-4),
    }  # fmt: skip


@pytest.mark.slow
def test_an_adoption_is_in_the_audit_and_in_the_lineage(optimize: Optimize) -> None:
    ended = optimize()

    (entry,) = audit(ended)
    assert (entry.action, entry.who, entry.reason) == ("optimize adopt", "tester", ended.run.run_id)
    assert entry.details["version"] == 2
    incumbent, candidate = ended.lineage["incumbent"], ended.lineage["r1-p1-c1"]
    assert candidate.state == "adopted"
    assert candidate.parent == incumbent.version == prompt_version(PROMPT)
    assert incumbent.details["search_score"] == pytest.approx(0.4)
    assert candidate.details["search_score"] == 1.0
    edit: Any = candidate.details["edit"]
    assert edit.keys() == {
        "model", "input_tokens", "output_tokens", "usd", "sha256"
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("editor", "state"),
    [("broken_editor", "rejected"), ("same_editor", "duplicate"), ("rote_editor", "rejected")],
)
def test_a_prompt_that_is_no_better_on_held_out_rows_is_never_adopted(
    optimize: Optimize, editor: str, state: str
) -> None:
    ended = optimize(editor)

    assert ended.run.state == "completed"
    assert ended.adoption["reason_code"] in {"no_significant_improvement", "no_candidate"}
    assert ended.lineage["r1-p1-c1"].state == state
    assert ended.prompt == PROMPT
    assert not audit(ended)


@pytest.mark.slow
def test_overfitting_looks_right_to_the_search_alone(optimize: Optimize) -> None:
    ended = optimize("rote_editor")

    assert ended.scores["best_search"]["mean"] == 1.0
    assert ended.adoption["delta"] == 0.0


@pytest.mark.slow
def test_incumbent_and_finalist_take_turns_on_the_same_rows_with_the_same_seeds(
    optimize: Optimize,
) -> None:
    ended = optimize(agent="tests.prompts.stubs:seed_agent", repeats=2)

    query = RolloutQuery(mode=RolloutMode.VAL)
    found = ended.store.rollouts.query(query).rollouts
    items: Any = [(each.metadata, each.output) for each in found]
    versions = [ended.lineage[label].version for label in ("incumbent", "r1-p1-c1")]
    assert [(item["row"], item["version"], item["repeat"]) for item, _ in items] == [
        (row, version, repeat) for row in range(30) for version in versions for repeat in range(2)
    ]
    seeds: Any = {tuple(item.values()): output["output"] for item, output in items}
    old, new = (
        {key[2:]: seed for key, seed in seeds.items() if key[1] == version} for version in versions
    )
    assert old == new
    assert len({*old.values()}) == 60


@pytest.mark.slow
def test_a_prompt_is_not_adopted_if_the_scorer_of_safety_fails(optimize: Optimize) -> None:
    ended = optimize(
        scorers=[
            {"name": "exact_match"},
            {"name": "python", "callable": "tests.prompts.agents:failing_score", "cost": True},
        ]
    )

    assert ended.adoption["reason_code"] == "safety_regression"
    assert ended.adoption["uncosted"] == 30
    assert "python:tests.prompts.agents:failing_score: " in ended.adoption["uncosted_why"]
    assert ended.prompt == PROMPT


@pytest.mark.slow
def test_the_errors_that_items_failed_with_are_counted(optimize: Optimize) -> None:
    ended = optimize(agent="tests.prompts.stubs:failing_agent", search={"algorithm": "none"})

    found = ended.store.optimizations.failures(ended.run.run_id)
    assert found == [("KeyError: 'customer'", 10)]


PRICE = DeclaredPrice(model=f"{REF}task_model".removeprefix("function/"), input=1.0, output=1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reason_code", "changes"),
    [
        ("budget_exhausted", {"budget": {"calls": 30}}),
        ("no_validation_rows", {"validate": []}),
        ("no_candidate", {"editor": "same_editor"}),
        ("leaks_rows", {"editor": "leaking_editor", "validate": [*rows(1000, 30), LEAK]}),
        ("insufficient_pairs", {"validate": rows(1000, 10)}),
        (
            "too_many_missing",
            {"validate": [*rows(1000, 25), {"prompt": "down", "expected": ""}], "max_attempts": 1},
        ),
        ("no_significant_improvement", {"editor": "rote_editor"}),
        ("below_min_delta", {"adoption": {"min_delta": 0.61}}),
        (
            "safety_regression",
            {
                "scorers": [
                    {"name": "exact_match"},
                    {
                        "name": "python",
                        "callable": "tests.prompts.stubs:bracket_cost",
                        "cost": True,
                    },
                ]
            },
        ),
        (
            "cost_regression",
            {"adoption": {"max_cost_ratio": 2.0}, "settings": Settings(prices=(PRICE,))},
        ),
        ("propose_only", {"adoption": {"mode": "propose"}}),
        ("adopted", {}),
    ],
)
def test_every_reason_is_reached(
    optimize: Optimize, reason_code: str, changes: dict[str, Any]
) -> None:
    ended = optimize(**changes)

    assert ended.run.state == "completed"
    assert ended.adoption["reason_code"] == reason_code
    assert (ended.prompt == PROMPT) == (reason_code != "adopted")


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["baseline", "search", "confirm"])
def test_a_run_that_is_cancelled_before_its_end_adopts_nothing(
    store: SqliteStore, optimize: Optimize, phase: str
) -> None:
    def cancel(shown: Shown) -> None:
        if shown.phase == phase and shown.state == "running":
            run = store.optimizations.runs()[0]
            move(store, run.run_id, "cancel", reason="enough", who="operator")

    ended = optimize(show=cancel)

    assert (ended.run.state, ended.adoption["reason_code"]) == ("cancelled", "cancelled")
    assert ended.prompt == PROMPT


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["adopt", "propose"])
def test_whoever_published_meanwhile_wins(
    store: SqliteStore, optimize: Optimize, mode: str
) -> None:
    def publish(shown: Shown) -> None:
        if shown.phase == "confirm":
            with closing(open_at(store.path)) as other:
                other.resources.publish({"system_prompt": "Another's."})

    ended = optimize(show=publish, adoption={"mode": mode})

    assert ended.adoption["reason_code"] == "incumbent_changed"
    assert ended.adoption["p_value"] < 0.05
    assert ended.prompt == "Another's."
    candidate = ended.lineage["r1-p1-c1"]
    assert (candidate.state, candidate.why) == ("finalist", "incumbent_changed")
    assert not audit(ended)


@pytest.mark.slow
def test_a_proposal_is_kept_as_a_finalist(optimize: Optimize) -> None:
    prompts = {"broken": f"{PROMPT} {BROKEN}", "right": f"{PROMPT} {RULE}"}
    ended = optimize(
        search={"algorithm": "none", "initial_prompts": prompts},
        optimize=[],
        adoption={"mode": "propose", "finalists": 2},
    )

    assert ended.adoption["reason_code"] == "propose_only"
    assert ended.adoption["prompt_version"] == prompt_version(prompts["right"])
    assert ended.lineage["initial-right"].state == "finalist"
    assert ended.lineage["initial-broken"].state == "rejected"


@pytest.mark.slow
def test_scores_of_the_report_are_weighted_and_pairs_are_not(optimize: Optimize) -> None:
    heavy = [{**row, "weight": 3} if "marked" in row["prompt"] else row for row in rows(1000, 30)]

    ended = optimize(validate=heavy)

    meta: Any = ended.store.resources.latest()["_meta.system_prompt"].content
    assert meta["baseline_score"] == pytest.approx(12 / (12 + 3 * 18))
    assert ended.scores["validate_incumbent"]["mean"] == meta["baseline_score"]
    assert meta["delta"] == pytest.approx(18 / 30)


@pytest.mark.slow
def test_a_run_begins_with_the_prompt_that_an_earlier_one_adopted(optimize: Optimize) -> None:
    first = optimize()

    second = optimize(resources={})

    assert second.run.incumbent == first.adoption["prompt_version"]
    assert second.adoption["reason_code"] == "no_candidate"


# Rollback


@pytest.mark.slow
@pytest.mark.parametrize("reference", [None, "system_prompt@1", prompt_version(PROMPT)])
def test_an_earlier_prompt_is_put_back_as_a_new_version(
    optimize: Optimize, reference: str | None
) -> None:
    ended = optimize()

    number = publish_earlier(
        ended.store, reference, prompt_key="system_prompt", reason="complaints", who="operator"
    )

    assert number == 3
    assert ended.prompt == PROMPT
    assert ended.store.resources.resource("system_prompt", 2).content == f"{PROMPT}\n{RULE}"
    meta: Any = ended.store.resources.latest()["_meta.system_prompt"].content
    assert meta["prompt_version"] == prompt_version(PROMPT)
    entry = max(audit(ended), key=lambda entry: entry.seq)
    assert (entry.action, entry.reason, entry.who) == (
        "optimize rollback", "complaints", "operator",
    )  # fmt: skip
    assert entry.details["version"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("reference", ["p-000000000000", "system_prompt@9", "tone@1", "latest"])
def test_an_unknown_prompt_changes_nothing(
    store: SqliteStore, optimize: Optimize, reference: str
) -> None:
    store.resources.publish({"tone": "dry"})
    ended = optimize()
    before = store.resources.latest()

    with pytest.raises(TauLiveError, match=rf"^failed to load rollback checkpoint '{reference}': "):
        publish_earlier(store, reference, prompt_key="system_prompt", reason="?", who="operator")

    assert store.resources.latest() == before
    assert len(audit(ended)) == 1


def test_a_prompt_that_was_put_aside_does_not_come_back_by_itself(store: SqliteStore) -> None:
    for text in ("a", "b", "c"):
        store.resources.publish({"system_prompt": text})

    def back() -> object:
        number = publish_earlier(
            store, None, prompt_key="system_prompt", reason="?", who="operator"
        )
        return store.resources.resource("system_prompt", number).content

    assert [back(), back()] == ["b", "a"]
    with pytest.raises(TauLiveError, match="failed to load rollback checkpoint"):
        back()


def test_a_version_of_a_resource_may_be_given_by_its_number_alone(store: SqliteStore) -> None:
    for text in ("a", "b", "c"):
        store.resources.publish({"system_prompt": text})

    publish_earlier(
        store, "resources-1", prompt_key="system_prompt", reason="?", who="operator"
    )  # fmt: skip

    assert store.resources.latest()["system_prompt"].content == "a"


@pytest.mark.slow
def test_a_prompt_of_another_resource_is_not_put_back(optimize: Optimize) -> None:
    ended = optimize(prompt_key="greeting", resources={"greeting": PROMPT, "system_prompt": "a"})
    greeting = prompt_version(f"{PROMPT}\n{RULE}")

    with pytest.raises(TauLiveError, match=f"failed to load rollback checkpoint '{greeting}'"):
        publish_earlier(
            ended.store, greeting, prompt_key="system_prompt", reason="?", who="operator"
        )  # fmt: skip

    assert ended.adoption["reason_code"] == "adopted"
    assert ended.prompt == "a"


def test_a_resource_that_is_not_there_is_not_made_by_a_rollback(optimize: Optimize) -> None:
    ended = optimize(search={"algorithm": "none"})

    with pytest.raises(TauLiveError, match="failed to load rollback checkpoint"):
        publish_earlier(
            ended.store, prompt_version(PROMPT), prompt_key="other", reason="?", who="operator"
        )


def test_without_an_earlier_prompt_there_is_nothing_to_put_back(store: SqliteStore) -> None:
    store.resources.publish({"system_prompt": PROMPT})

    with pytest.raises(TauLiveError, match="failed to load rollback checkpoint"):
        publish_earlier(store, None, prompt_key="system_prompt", reason="?", who="operator")
