"""Items of a run: executed once, scored, tried again where that helps."""

import re
import sqlite3
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from threading import Barrier, Thread

import pytest

from tau_live.core.errors import StoreUnavailableError
from tau_live.core.records import Attempt, Rollout, RolloutQuery
from tau_live.prompts.items import poll_backoff_s
from tau_live.prompts.lead import Shown
from tau_live.prompts.models import SurroundingsError, classify
from tau_live.store.records import Condition, Optimization
from tau_live.store.sqlite.store import SqliteStore
from tests.prompts.agents import HERE, ProviderError, notes
from tests.prompts.runs import Bench, Ended, Start, outcome, row, wait_for

SMALL = {
    "optimize": [],
    "validate": [row("val", number) for number in range(1, 4)],
    "search": {"initial_prompts": {"other": "Be kind."}},
}
"""A config of one phase."""

MANY = [row("train", number) for number in range(1, 2001)]


def items(store: SqliteStore, run: Optimization) -> list[Rollout]:
    found = store.rollouts.query(RolloutQuery()).rollouts
    return [rollout for rollout in found if rollout.queue == run.run_id]


def item_of(store: SqliteStore, run: Optimization, prompt: str) -> Rollout:
    """Return the first item of a row."""
    return min(
        (each for each in items(store, run) if each.input == {"prompt": prompt}),
        key=lambda each: each.seq,
    )


def attempts(store: SqliteStore, rollout: Rollout) -> list[Attempt]:
    return store.rollouts.attempts(rollout.rollout_id)


def adoption(run: Optimization) -> dict[str, object]:
    found = run.report["adoption"]
    assert isinstance(found, dict)
    return found


@pytest.mark.slow
def test_a_second_run_leaves_the_first_as_it_is(bench: Bench) -> None:
    first = bench.run()
    before = [
        (rollout, bench.store.rollouts.spans(rollout.rollout_id))
        for rollout in items(bench.store, first)
    ]
    stored = bench.store.optimizations.run(first.run_id)

    second = bench.run()

    after = [
        (rollout, bench.store.rollouts.spans(rollout.rollout_id))
        for rollout in items(bench.store, first)
    ]
    assert before
    assert after == before
    assert bench.store.optimizations.run(first.run_id) == stored
    assert second.state == "completed"
    assert [first.run_id[-2:], second.run_id[-2:]] == ["-1", "-2"]
    assert outcome(bench.store, second.run_id) == outcome(bench.store, first.run_id)
    assert second.calls == first.calls  # its budget counts anew


@pytest.mark.slow
def test_any_number_of_workers_finds_the_same(bench: Bench) -> None:
    one = bench.run(worker_count=1, model=f"function/{HERE}:slow_model")

    eight = bench.run(worker_count=8, model=f"function/{HERE}:slow_model")

    owners = {
        attempt.worker_id
        for rollout in items(bench.store, eight)
        for attempt in attempts(bench.store, rollout)
    }
    assert len(owners) > 1
    assert outcome(bench.store, eight.run_id) == outcome(bench.store, one.run_id)


@pytest.mark.slow
def test_workers_of_another_process_find_the_same(bench: Bench, start: Start) -> None:
    changes = {"agent": f"{HERE}:counted", "worker_count": 1}
    alone = bench.run(**changes)
    gate = bench.folder / "gate-train-old"
    gate.touch()

    leader = start("--config", bench.config(**changes), "--json")
    wait_for(lambda: notes("at"))
    helper = start("worker", "--workers", 2)
    wait_for(lambda: len(notes("executed")) > len(items(bench.store, alone)) + 4)
    gate.unlink()

    led, helped = Ended(leader), Ended(helper)
    run = bench.store.optimizations.run(led.json["run_id"])
    owners = {
        attempt.owner
        for rollout in items(bench.store, run)
        for attempt in attempts(bench.store, rollout)
    }
    assert (led.code, helped.code) == (0, 0), led.err + helped.err
    assert len(owners) == 2
    assert re.fullmatch(
        rf"helping {run.run_id} with 2 workers\ndid \d+ items of {run.run_id}, which is \w+\n",
        helped.out,
    )
    assert "did 0 items" not in helped.out
    assert outcome(bench.store, run.run_id) == outcome(bench.store, alone.run_id)


@pytest.mark.slow
def test_items_are_no_runs_that_a_live_store_misses(bench: Bench, start: Start) -> None:
    live = bench.folder / "live" / "store.sqlite"
    environ = {"TAU_LIVE_RL": "1", "TAU_LIVE_RL_STORE": str(live)}

    ended = Ended(start("--config", bench.config(**SMALL), "--json", **environ))

    assert ended.code == 0, ended.err
    assert ended.json["succeeded"] > 0
    assert "claimed_run_not_recorded" not in ended.err


def test_an_agent_that_raises_scores_0_and_is_not_tried_again(bench: Bench) -> None:
    run = bench.run(**SMALL, agent=f"{HERE}:raising", model=None, max_attempts=3)

    item = item_of(bench.store, run, "val 1")
    assert item.status == "failed"
    assert len(attempts(bench.store, item)) == 1
    assert isinstance(item.output, dict)
    assert item.output["score"] == 0.0
    assert item.output["notes"] == {"agent": "ValueError: cannot answer"}
    assert run.state == "completed"
    assert adoption(run)["missing"] == 0
    failed = bench.store.find(Rollout, Condition("status", "is", "failed")).records
    assert {item.error_type for item in failed} == {None}


def test_an_async_agent_asks_the_model_and_scores_itself(bench: Bench) -> None:
    run = bench.run(**SMALL, agent=f"{HERE}:awaited")

    item = item_of(bench.store, run, "val 2")
    spans = [span for span in bench.store.rollouts.spans(item.rollout_id) if span.kind != "run"]
    assert isinstance(item.output, dict)
    assert item.output["output"] == "unknown"
    assert item.output["scores"] == {"neat": 1.0}
    assert [span.kind for span in spans] == ["model", "runner"]
    assert spans[0].attributes["usage"] == {"input_tokens": 10, "output_tokens": 5}


def test_no_text_of_an_item_is_stored_where_none_is_wanted(bench: Bench) -> None:
    run = bench.run(**SMALL, agent=f"{HERE}:raising", model=None, content="none")

    found = items(bench.store, run)
    outputs = [item.output for item in found if isinstance(item.output, dict)]
    assert [item.input for item in found] == [None] * 6
    assert [output["output"] for output in outputs] == [None] * 6
    assert [output["notes"] for output in outputs if output["notes"]] == [
        {"agent": "ValueError"}, {"agent": "ValueError"},
    ]  # fmt: skip


@pytest.mark.slow
def test_two_runs_on_one_store_do_not_mix(bench: Bench) -> None:
    alone = bench.run(agent=f"{HERE}:counted")
    stores = [SqliteStore.open(bench.store.path) for _ in range(2)]
    benches = [Bench(bench.folder, store) for store in stores]
    runs = [own.begin(agent=f"{HERE}:counted") for own in benches]
    together = Barrier(2)

    def lead(own: Bench, run: Optimization) -> None:
        together.wait(timeout=30)
        own.lead(run)

    threads = [Thread(target=lead, args=pair) for pair in zip(benches, runs, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    for store in stores:
        store.close()

    ended = [outcome(bench.store, run.run_id) for run in (alone, *runs)]
    reasons = [each["adoption"]["reason_code"] for each in ended[1:]]
    assert sorted(reasons) == ["adopted", "incumbent_changed"]  # whoever is later
    assert ended[0]["scores"] == ended[1]["scores"] == ended[2]["scores"]
    assert len(notes("executed")) == len(set(notes("executed")))


@pytest.mark.slow
def test_a_store_that_is_locked_for_a_while_delays_a_run(bench: Bench) -> None:
    run = bench.begin(agent=f"{HERE}:steady", heartbeat_interval_ms=10_000)
    other = sqlite3.connect(bench.store.path, isolation_level=None, check_same_thread=False)

    def lock() -> None:
        wait_for(lambda: len(notes("executed")) > 3)
        other.execute("begin immediate")
        time.sleep(7.0)  # a connection waits for 5 s
        other.execute("rollback")

    locking = Thread(target=lock)
    locking.start()
    ended = bench.lead(run)
    locking.join()
    other.close()

    assert ended.state == "completed"
    assert bench.store.optimizations.items(run.run_id).missing == 0
    assert adoption(ended)["reason_code"] == "adopted"


def test_a_rate_limit_takes_another_attempt_each_and_keeps_the_score(bench: Bench) -> None:
    rows = [row("train", number) for number in (4, 5)]
    run = bench.run(
        optimize=rows, search={"algorithm": "none"}, model=f"function/{HERE}:limited_model",
        max_attempts=3,
    )  # fmt: skip

    found = items(bench.store, run)
    assert [item.output["score"] for item in found if isinstance(item.output, dict)] == [0.0, 1.0]
    assert [len(attempts(bench.store, item)) for item in found] == [3, 3]
    assert bench.store.optimizations.items(run.run_id).requeued == 4
    assert run.calls == 6


def test_providers_that_are_down_leave_items_missing_and_nothing_adopted(bench: Bench) -> None:
    run = bench.run(
        optimize=[], search={"initial_prompts": {"other": "Be kind."}},
        model=f"function/{HERE}:failing_model",
    )  # fmt: skip

    counts = bench.store.optimizations.items(run.run_id)
    assert run.state == "completed"
    assert (counts.total, counts.failed, counts.missing) == (24, 24, 24)
    assert len(notes("calls")) == 48
    assert adoption(run)["reason_code"] == "insufficient_pairs"


def test_a_provider_that_is_down_for_some_items_lets_nothing_be_adopted(bench: Bench) -> None:
    run = bench.run(model=f"function/{HERE}:patchy_model", max_attempts=1)

    assert run.state == "completed"
    assert adoption(run)["reason_code"] == "too_many_missing"
    assert (adoption(run)["pairs"], adoption(run)["missing"]) == (11, 1)
    scores = run.report["scores"]
    assert isinstance(scores, dict)
    assert scores["validate_incumbent"]["missing"] == 1
    failed = bench.store.find(Rollout, Condition("status", "is", "failed")).records
    assert {item.error_type for item in failed} == {"attempts_exhausted"}


def test_a_key_that_is_refused_ends_the_run(bench: Bench) -> None:
    run = bench.run(worker_count=1, model=f"function/{HERE}:rejecting_model")

    assert (run.state, run.reason_code) == ("failed", "provider_rejected")
    assert run.error == "ProviderError: HTTP 401"
    assert len(notes("calls")) == 1
    assert bench.store.optimizations.items(run.run_id).failed == 0


def test_a_model_that_does_not_exist_ends_the_run(bench: Bench) -> None:
    run = bench.run(model="nowhere/nothing")

    assert (run.state, run.reason_code) == ("failed", "provider_rejected")
    assert "'nowhere/nothing' cannot be used" in str(run.error)


@pytest.mark.slow
def test_a_scorer_that_fails_on_every_item_ends_the_run_after_the_baseline(bench: Bench) -> None:
    scorer = {"name": "python", "callable": f"{HERE}:failing_score"}

    run = bench.run(scorers=[scorer])

    assert (run.state, run.reason_code) == ("failed", "nothing_scored")
    assert run.error is not None
    assert "ValueError: no idea" in run.error
    assert run.rollouts == 6


@pytest.mark.slow
def test_an_agent_that_blocks_for_ever_is_left_behind(bench: Bench) -> None:
    run = bench.run(
        **SMALL, agent=f"{HERE}:blocking", model=None, attempt_timeout_secs=0.1, worker_count=1
    )

    item = item_of(bench.store, run, "val 1")
    assert item.status == "failed"
    assert [each.status for each in attempts(bench.store, item)] == ["timeout", "timeout"]
    assert run.state == "completed"
    assert adoption(run)["reason_code"] == "insufficient_pairs"


@pytest.mark.slow
def test_a_model_that_blocks_for_ever_is_left_behind(bench: Bench) -> None:
    run = bench.run(
        **SMALL, model=f"function/{HERE}:endless_model", attempt_timeout_secs=0.2, worker_count=1
    )

    assert run.state == "completed"
    assert item_of(bench.store, run, "val 1").output is None
    assert notes("calls").count("endless") == 4  # two attempts of two prompts


@pytest.mark.slow
def test_an_agent_that_exits_ends_its_worker_and_not_the_run(bench: Bench) -> None:
    run = bench.run(**SMALL, agent=f"{HERE}:exiting", model=None, worker_count=1)

    item = item_of(bench.store, run, "val 1")
    workers = [each.worker_id for each in attempts(bench.store, item)]
    assert run.state == "completed"
    assert item.status == "failed"
    assert item.output is None
    assert len(workers) == len(set(workers)) == 2
    assert bench.store.optimizations.items(run.run_id).missing == 2


def test_nothing_that_an_agent_returns_ends_a_worker(bench: Bench) -> None:
    run = bench.run(
        **{**SMALL, "validate": [row("val", number) for number in range(1, 21)]},
        agent=f"{HERE}:hostile", model=None, max_attempts=1, worker_count=2,
    )  # fmt: skip

    found = {each.input["prompt"]: each for each in items(bench.store, run)}  # type: ignore[index]
    notes_of = {name: each.output["notes"] for name, each in found.items() if each.output}  # type: ignore[index]
    assert run.state == "completed"
    assert bench.store.optimizations.items(run.run_id).open == 0
    assert notes_of["val 1"] == {"agent": "HostileError: <HostileError without a readable text>"}
    assert found["val 2"].status == "succeeded"
    assert "must have at most 1,000,000 characters" in notes_of["val 4"]["agent"]
    secrets = ("c3D4c3D4", "a1B2a1B2")
    content = b"".join(path.read_bytes() for path in bench.folder.glob("store.sqlite*"))
    assert not [secret for secret in secrets if secret.encode() in content]


@pytest.mark.slow
def test_a_run_whose_store_is_removed_fails(bench: Bench) -> None:
    run = bench.begin(model=f"function/{HERE}:slow_model", optimize=MANY)

    def remove(shown: Shown) -> None:
        if shown.done:
            for path in bench.folder.glob("store.sqlite*"):
                path.unlink()

    with pytest.raises(StoreUnavailableError, match="was removed"):
        bench.lead(run, show=remove)


@pytest.mark.parametrize("scorer", ["exiting_score", "huge_score"])
def test_nothing_that_a_scorer_does_ends_a_worker(bench: Bench, scorer: str) -> None:
    scorers = [{"name": "exact_match"}, {"name": "python", "callable": f"{HERE}:{scorer}"}]

    run = bench.run(**SMALL, scorers=scorers, max_attempts=1, worker_count=1)

    assert run.reason_code == ("nothing_scored" if scorer == "huge_score" else None)
    assert bench.store.optimizations.items(run.run_id).open == 0


@pytest.mark.slow
def test_a_scorer_that_blocks_takes_no_longer_than_an_attempt_may(bench: Bench) -> None:
    scorers = [{"name": "exact_match"}, {"name": "python", "callable": f"{HERE}:blocking_score"}]

    run = bench.run(
        **SMALL, scorers=scorers, max_attempts=1, attempt_timeout_secs=0.5
    )  # fmt: skip

    item = item_of(bench.store, run, "val 1")
    assert run.state == "completed"
    assert attempts(bench.store, item)[0].status == "timeout"


def test_an_agent_may_change_what_it_is_given(bench: Bench) -> None:
    rows = [{"input": {"n": n}, "metadata": {"n": n}, "expected": str(n)} for n in range(1, 21)]

    run = bench.run(
        **{**SMALL, "validate": rows}, agent=f"{HERE}:spoiling", model=None,
        resources={"system_prompt": "Be brief.", "rules": []},
    )  # fmt: skip

    counts = bench.store.optimizations.items(run.run_id)
    scores = run.report["scores"]
    assert (counts.total, counts.succeeded) == (40, 40)
    assert isinstance(scores, dict)
    assert scores["validate_finalist"]["mean"] == scores["validate_incumbent"]["mean"] == 1.0


@pytest.mark.slow
def test_a_network_that_fails_is_not_the_agents_fault(bench: Bench) -> None:
    config = {**SMALL, "validate": [row("val", number) for number in range(1, 11)]}

    run = bench.run(**config, agent=f"{HERE}:unreachable", model=None, max_attempts=2)

    found = items(bench.store, run)
    assert {each.status for each in found} == {"succeeded"}
    assert {each.attempt_count for each in found} == {2}


def test_errors_of_an_agent_that_look_like_those_of_a_provider_are_its_own(bench: Bench) -> None:
    run = bench.run(**SMALL, agent=f"{HERE}:mistaken", model=None, max_attempts=3)

    counts = bench.store.optimizations.items(run.run_id)
    assert run.state == "completed"
    assert (counts.failed, counts.missing, counts.requeued) == (6, 0, 0)


@pytest.mark.parametrize(
    ("interval_s", "pauses"),
    [(0.05, [0.05, 0.1, 0.2, 0.4, 0.4]), (0.01, [0.01, 0.02, 0.04, 0.08, 0.08])],
)
def test_polls_that_fail_wait_twice_as_long_each_time(
    interval_s: float, pauses: list[float]
) -> None:
    assert [poll_backoff_s(n, interval_s) for n in range(1, 6)] == pytest.approx(pauses)


@pytest.mark.slow
def test_heartbeats_go_on_while_the_agent_blocks(bench: Bench) -> None:
    changes = {"heartbeat_interval_ms": 30, "attempt_timeout_secs": 0.4, "max_attempts": 1}
    run = bench.run(**SMALL, **changes, agent=f"{HERE}:blocking", model=None)

    attempt = attempts(bench.store, item_of(bench.store, run, "val 1"))[0]
    assert attempt.status == "timeout"  # and not unresponsive, which it is after 90 ms
    assert attempt.last_heartbeat_at - attempt.started_at > 0.2


@pytest.mark.parametrize(
    ("error", "retry_after_s"),
    [
        (ProviderError(429), None),
        (ProviderError(503, retry_after=2), 2.0),
        (ProviderError(408, retry_after="1.5"), 1.5),
        (ProviderError(425, retry_after="Wed, 21 Oct 2026 07:28:00 GMT"), None),
        (ConnectionResetError("reset"), None),
        (ExceptionGroup("calls", [TimeoutError("late"), ConnectionResetError("reset")]), None),
    ],
)
def test_what_surrounds_an_agent_may_pass(error: Exception, retry_after_s: float | None) -> None:
    kind = classify(error)

    assert isinstance(kind, SurroundingsError)
    assert kind.retry_after_s == retry_after_s


def test_a_provider_may_name_the_time_until_which_to_wait() -> None:
    until = format_datetime(datetime.now(UTC) + timedelta(seconds=90), usegmt=True)

    kind = classify(ProviderError(429, retry_after=until))

    assert isinstance(kind, SurroundingsError)
    assert kind.retry_after_s == pytest.approx(89.5, abs=1.0)


def test_one_error_of_its_own_among_several_is_the_agents() -> None:
    errors = ExceptionGroup("calls", [ConnectionResetError("reset"), KeyError("name")])

    assert classify(errors, by_agent=True) is None
