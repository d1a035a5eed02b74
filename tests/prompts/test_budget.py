"""Budgets: no call is made that may exceed one, however many workers ask at once."""

import re
from pathlib import Path
from threading import Barrier, Thread

import pytest

from tau_live.core.errors import ConfigError
from tau_live.core.settings.tables import DeclaredPrice
from tau_live.prompts.budget import Prices, check_prices, tokens_at_most
from tau_live.prompts.config import read_config
from tau_live.prompts.models import Models, StoppedError
from tau_live.prompts.optimizer import resume
from tau_live.store.records import Limits, Optimization, OptimizationState
from tau_live.store.sqlite.store import SqliteStore
from tests.prompts.agents import HERE, notes
from tests.prompts.runs import Bench, row

PRICES = Prices([DeclaredPrice(model="task", input=0.15, output=0.60)], known=False)
REF = "function/task"


def reason_of(run: Optimization) -> object:
    adoption = run.report["adoption"]
    assert isinstance(adoption, dict)
    return adoption["reason_code"]


def test_a_call_reserves_the_most_that_it_can_cost(bench: Bench) -> None:
    run = bench.begin()
    usd = PRICES.usd(REF, 1200, 256)
    assert usd is not None

    reserved = [
        bench.store.optimizations.reserve(run.run_id, Limits(usd=0.006672), tokens=1456, usd=usd)
        for _ in range(21)
    ]

    assert usd == pytest.approx(0.0003336)
    assert reserved == [True] * 20 + [False]
    assert bench.store.optimizations.run(run.run_id).usd_reserved == pytest.approx(0.006672)


@pytest.mark.parametrize(
    ("text", "tokens"), [("You are a concise assistant.", 10), ("在回答之前", 5)]
)
def test_three_bytes_are_a_token(text: str, tokens: int) -> None:
    assert tokens_at_most(text) == tokens


def test_what_was_spent_takes_the_place_of_what_was_reserved(bench: Bench) -> None:
    run = bench.begin()
    limits = Limits(tokens=100)
    optimizations = bench.store.optimizations

    first = optimizations.reserve(run.run_id, limits, tokens=90, usd=0.0)
    second = optimizations.reserve(run.run_id, limits, tokens=90, usd=0.0)
    optimizations.settle(run.run_id, tokens=10, usd=0.0, tokens_reserved=90, usd_reserved=0.0)
    third = optimizations.reserve(run.run_id, limits, tokens=90, usd=0.0)

    assert (first, second, third) == (True, False, True)


@pytest.mark.slow
def test_eight_workers_make_exactly_as_many_calls_as_the_budget_has(bench: Bench) -> None:
    run = bench.run(worker_count=8, budget={"calls": 20}, model=f"function/{HERE}:slow_model",
                    optimize=[row("train", number) for number in range(1, 41)])  # fmt: skip

    counts = bench.store.optimizations.items(run.run_id)
    assert len(notes("calls")) == 20
    assert run.calls == 20
    assert (run.state, run.reason_code) == ("completed", "budget_exhausted")
    assert reason_of(run) == "budget_exhausted"
    assert (counts.succeeded, counts.cancelled, counts.failed) == (20, 20, 0)
    assert bench.store.resources.latest()["system_prompt"].content == "Be brief."


@pytest.mark.slow
def test_an_item_that_is_tried_again_counts_once(bench: Bench) -> None:
    rows = [row("val", number) for number in range(1, 6)]

    run = bench.run(
        optimize=[], validate=rows, search={"initial_prompts": {"other": "Be kind."}},
        agent=f"{HERE}:unreachable", model=None, budget={"rollouts": 10},
    )  # fmt: skip

    assert run.rollouts == 10
    assert run.reason_code is None
    assert bench.store.optimizations.items(run.run_id).succeeded == 10


def test_a_dead_process_reserves_nothing(bench: Bench) -> None:
    run = bench.begin()
    bench.store.optimizations.reserve(run.run_id, Limits(), tokens=90, usd=0.5)
    bench.store.optimizations.change(
        run.run_id, state=OptimizationState.FAILED, reason_code="interrupted"
    )

    resume(bench.store, run.run_id, who="ada")

    found = bench.store.optimizations.run(run.run_id)
    assert (found.tokens_reserved, found.usd_reserved) == (0, 0.0)


def test_an_agent_that_hides_a_refused_call_is_not_scored(bench: Bench) -> None:
    run = bench.run(budget={"calls": 3}, agent=f"{HERE}:careless")

    counts = bench.store.optimizations.items(run.run_id)
    assert run.reason_code == "budget_exhausted"
    assert (counts.succeeded, counts.cancelled) == (3, 3)


def test_tokens_are_never_more_than_the_budget(bench: Bench) -> None:
    run = bench.run(
        worker_count=8, budget={"tokens": 200}, max_output_tokens=20,
        model=f"function/{HERE}:slow_model",
    )  # fmt: skip

    assert run.reason_code == "budget_exhausted"
    assert 0 < run.tokens <= 200
    assert run.tokens == 15 * run.calls
    assert run.tokens_reserved == 0


def test_items_are_never_more_than_the_budget(bench: Bench) -> None:
    run = bench.run(worker_count=4, budget={"rollouts": 4}, agent=f"{HERE}:counted")

    assert len(notes("executed")) == 4
    assert run.reason_code == "budget_exhausted"
    assert reason_of(run) == "budget_exhausted"


@pytest.mark.slow
def test_the_time_of_a_run_ends(bench: Bench) -> None:
    rows = [row("train", number) for number in range(1, 401)]

    run = bench.run(budget={"seconds": 0.5}, agent=f"{HERE}:steady", optimize=rows)

    assert (run.state, run.reason_code) == ("completed", "budget_exhausted")
    assert len(notes("executed")) < 400


def test_a_model_without_a_price_violates_a_budget_in_dollars(bench: Bench) -> None:
    path = bench.config(budget={"usd": 1.0})
    config = read_config(path, model=None).config

    with pytest.raises(ConfigError) as caught:
        check_prices(config, Prices(known=False), path=str(path))

    assert len(caught.value.lines) == 3  # the model, the critic, the editor
    assert all(line.startswith(f"{path}: /budget/usd: ") for line in caught.value.lines)
    named = re.findall(r'\[tool\.tau-live\.prices\."(.+)"\]', "\n".join(caught.value.lines))
    declared = [DeclaredPrice(model=name, input=1.0, output=2.0) for name in named]
    check_prices(config, Prices(declared, known=False), path=str(path))


def test_an_agent_cannot_spend_dollars_that_nobody_counts(bench: Bench) -> None:
    run = bench.begin(agent=f"{HERE}:awaited", search={"algorithm": "none"})
    limits = {"calls": None, "rollouts": None, "tokens": None, "usd": 1.0}
    bench.store.optimizations.amend_report(run.run_id, limits=limits)

    ended = bench.lead(bench.store.optimizations.run(run.run_id))

    assert (ended.state, ended.reason_code) == ("failed", "provider_rejected")
    assert "is unknown, and the budget is in US dollars" in str(ended.error)
    assert notes("calls") == []


def test_threads_never_call_beyond_the_budget(bench: Bench) -> None:
    run = bench.begin()
    limits = Limits(calls=5)
    models = Models(Path(bench.store.path), run.run_id, limits, prices=PRICES, timeout_s=10.0)
    together = Barrier(8)
    refused = []

    def call() -> None:
        together.wait(timeout=30)
        try:
            models.call(f"function/{HERE}:slow_model", system="", user="train 1", seed=0,
                        temperature=0.0, max_tokens=5)  # fmt: skip
        except StoppedError as error:
            refused.append(str(error))

    threads = [Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    models.close()

    assert refused == ["budget_exhausted"] * 3
    assert len(notes("calls")) == 5


def test_calls_count_anew_in_a_resumed_run_without_a_limit_of_its_own(bench: Bench) -> None:
    run = bench.begin()
    limits = run.report["limits"]
    assert isinstance(limits, dict)
    most = limits["calls"]
    assert isinstance(most, int)
    _fail(bench.store, run, calls=7)

    resume(bench.store, run.run_id, who="ada")

    limits = bench.store.optimizations.run(run.run_id).report["limits"]
    assert isinstance(limits, dict)
    assert limits["calls"] == most + 7


def test_a_limit_of_calls_holds_for_a_resumed_run_too(bench: Bench) -> None:
    run = bench.begin(budget={"calls": 9})
    _fail(bench.store, run, calls=7)

    resume(bench.store, run.run_id, who="ada")

    limits = bench.store.optimizations.run(run.run_id).report["limits"]
    assert isinstance(limits, dict)
    assert limits["calls"] == 9


def _fail(store: SqliteStore, run: Optimization, *, calls: int) -> None:
    store.optimizations.change(run.run_id, state="failed", reason_code="interrupted", calls=calls)
