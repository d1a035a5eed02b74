"""What a run takes at most, before its first call."""

from typing import Any

import pytest

from tau_live.core.records import RolloutMode, RolloutQuery
from tau_live.core.settings.tables import DeclaredPrice
from tau_live.prompts.budget import Preflight, Prices, preflight, tokens_at_most
from tau_live.prompts.config import OptimizationConfig
from tau_live.prompts.rows import row_of
from tests.prompts.conftest import Optimize
from tests.prompts.stubs import plain

MODEL = "test/test"
ALL = RolloutQuery()


def before(
    optimize: int, validate: int, test: int = 0, *, prices: Prices | None = None, **changes: Any
) -> Preflight:
    models = {"critic_model": MODEL, "editor_model": MODEL}
    search = {"algorithm": "beam", **models, **changes.pop("search", {})}
    config = OptimizationConfig.model_validate({"model": MODEL, **changes, "search": search})
    counts = {RolloutMode.TRAIN: optimize, RolloutMode.VAL: validate, RolloutMode.TEST: test}
    rows = {mode: [row_of(plain(n), n) for n in range(count)] for mode, count in counts.items()}
    return preflight(config, rows, incumbent="Answer.", prices=prices or Prices(known=False))


def test_a_beam_with_the_defaults() -> None:
    found = before(10, 20)

    assert found[:5] == (5, 60, 40, 0, 10)
    assert found.calls == 2 * (60 + 40 + 10)  # each is tried twice


def test_a_beam_with_more_of_everything() -> None:
    found = before(
        40,
        60,
        repeats=2,
        search={
            "candidates_per_parent": 2,
            "temperature": 1.0,
            "initial_prompts": {"other": "Answer briefly."},
        },
        adoption={"finalists": 2},
    )

    assert found[:5] == (12, 1120, 360, 0, 24)


def test_a_reflective_search_and_test_rows() -> None:
    found = before(10, 20, 30, search={"algorithm": "reflective", "iterations": 7})

    assert found[:5] == (15, 160, 40, 60, 14)


def test_a_policy_takes_items_of_its_own() -> None:
    without, by_default = before(10, 20), before(10, 20, rl_optimizer={"enabled": True})

    found = before(10, 20, rl_optimizer={"enabled": True, "rollouts": 30})

    assert (by_default.policy_items, found.policy_items) == (10, 30)
    assert found.items == without.items + 30
    assert (found.calls or 0) - (without.calls or 0) == 2 * 30


def test_few_screening_rows() -> None:
    assert before(10, 20, search={"screen_rows": 4}).search_items == 6 * 4


def test_without_a_search_only_the_first_prompts_are_executed() -> None:
    found = before(10, 20, search={"algorithm": "none"})
    with_another = before(
        10, 20, search={"algorithm": "none", "initial_prompts": {"other": "Answer briefly."}}
    )

    assert found[:5] == (0, 10, 20, 0, 0)
    assert with_another[:5] == (0, 20, 40, 0, 0)


def test_money_is_known_where_every_price_is() -> None:
    prices = Prices([DeclaredPrice(model="test", input=1.0, output=2.0)], known=False)

    assert before(10, 20).usd is None
    assert (before(10, 20, prices=prices).usd or 0.0) > 0.0


def test_a_long_first_prompt_takes_more_tokens() -> None:
    def tokens(text: str) -> int:
        search = {"algorithm": "none", "initial_prompts": {"other": text}}
        return before(10, 20, search=search).tokens or 0

    assert tokens("word " * 3_000) - tokens("word") == 2 * (20 + 40) * (5_000 - 3)


def test_the_calls_of_an_agent_are_its_own() -> None:
    found = before(10, 20, agent="tests.prompts.stubs:seed_agent")

    assert found[:6] == (5, 60, 40, 0, 10, 0)
    assert found[6:] == (None, None, None)


@pytest.mark.parametrize(
    ("text", "tokens"), [("You are a concise assistant.", 10), ("在回答之前", 5), ("", 0)]
)
def test_the_estimate_of_tokens(text: str, tokens: int) -> None:
    assert tokens_at_most(text) == tokens


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["beam", "reflective"])
def test_a_run_takes_no_more_than_was_said_before(optimize: Optimize, algorithm: str) -> None:
    ended = optimize("rote_editor", search={"algorithm": algorithm, "rounds": 2, "iterations": 3})

    most: Any = ended.run.report["preflight"]
    counts = dict.fromkeys(RolloutMode, 0)
    for rollout in ended.store.rollouts.query(ALL).rollouts:
        counts[rollout.mode or RolloutMode.TRAIN] += 1
    assert counts[RolloutMode.TRAIN] <= most["search_items"]
    assert counts[RolloutMode.VAL] <= most["confirm_items"]
    assert ended.run.calls <= most["calls"]
    assert len(ended.lineage) <= most["candidates"] + 1
