from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as changed

from tau_live.core.records import AttemptStatus, RolloutQuery, RolloutStatus
from tau_live.store.roles import Store
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run
from tests.cli.filled import CHILD, FAILED, SOLVED
from tests.contracts.making import attempt, begun, decision, rollout, span
from tests.writes import writes


def test_a_rollout_is_told_as_a_tree(filled: Path, run: Run) -> None:
    told = run("show", SOLVED, "--store", filled).stdout

    lines = told.splitlines()
    assert lines[0].startswith(f"{SOLVED} · triage · tests · succeeded (completed) · reward 1")
    depth = {name: _depth(lines, name) for name in ("attempt 1", "run search", "tool search")}
    assert depth["attempt 1"] < depth["run search"] < depth["tool search"]
    assert "solved 1 · by user" in told
    assert "note comment · for decision-1 · by user" in told
    assert "well done" in told
    assert f"{CHILD} · look up · cancelled" in told


def test_a_decision_shows_its_probabilities_as_bars(filled: Path, run: Run) -> None:
    told = run("show", SOLVED, "--store", filled).stdout

    assert "decision 1 · model · by policy version 3, control · 12 us" in told
    small, large = [line for line in told.splitlines() if "%" in line][:2]
    assert "25.0%  chosen, applied" in small
    assert "75.0%  host's own" in large
    assert (small.count("█"), large.count("█")) == (5, 15)


@pytest.mark.parametrize(
    "beginning", [SOLVED, SOLVED[:-1] + "1", "5f0d7f0e-0000-5000-8000-000000000001"]
)
def test_an_id_may_lack_its_live(beginning: str, filled: Path, read: Read) -> None:
    found = read("show", beginning, "--store", filled)

    assert isinstance(found, dict)
    assert found["rollout"]["rollout_id"] == SOLVED


def test_the_beginning_of_an_id_is_enough(filled: Path, read: Read) -> None:
    found = read("show", "live-aa", "--store", filled)

    assert isinstance(found, dict)
    assert found["rollout"]["rollout_id"] == CHILD


def test_a_beginning_that_several_share_lists_them(filled: Path, run: Run) -> None:
    result = run("show", "5f0d7f0e", "--store", filled)

    assert result.exit_code == 1
    assert result.stderr == (
        f"tau-live: several rollouts begin with '5f0d7f0e': {SOLVED}, {FAILED}\n"
    )


def test_an_exact_id_wins_over_longer_ones(filled: Path, read: Read) -> None:
    with_store(filled, lambda store: writes(store).begin_rollout(rollout(SOLVED + "0")))

    found = read("show", SOLVED, "--store", filled)

    assert isinstance(found, dict)
    assert found["rollout"]["rollout_id"] == SOLVED


@pytest.mark.parametrize("beginning", ["nobody", "%", "_", "", "\x1b[2J", "'; drop table x"])
def test_an_id_that_nobody_has_is_one_line(beginning: str, filled: Path, run: Run) -> None:
    result = run("show", beginning, "--store", filled)

    assert result.exit_code == 1
    assert result.stderr.startswith("tau-live: rollout '")
    assert result.stderr.count("\n") == 1
    assert "\x1b" not in result.stderr


def test_spans_without_a_parent_in_a_ring_and_very_deep_are_all_shown(
    filled: Path, run: Run
) -> None:
    with_store(filled, _odd_spans)

    told = run("show", "odd", "--store", filled, COLUMNS="100").stdout

    named = [f"name-{n}" for n in range(40)] + ["orphan", "ring-a", "ring-b", "self"]
    assert [name for name in named if told.count(f"{name} ") != 1] == []


def test_runs_and_decisions_have_spans_in_json_and_one_line_each_in_the_tree(
    filled: Path, run: Run, read: Read
) -> None:
    with_store(filled, _only_decides)

    found = read("show", "decides", "--store", filled)
    lines = run("show", "decides", "--store", filled).stdout.splitlines()

    assert isinstance(found, dict)
    assert [(span["kind"], span["span_id"]) for span in found["spans"]] == [
        ("run", "decides:attempt-1"),
        ("decision", found["decisions"][0]["decision_id"]),
    ]
    assert sum("attempt 1" in line for line in lines) == 1
    assert sum("model" in line and "by policy" in line for line in lines) == 1
    assert not any("decides:attempt-1" in line or " run " in line for line in lines)


def test_a_span_that_comes_before_its_parent_hangs_under_it(filled: Path, run: Run) -> None:
    with_store(filled, _late_parent)

    lines = run("show", "late", "--store", filled).stdout.splitlines()

    assert _depth(lines, "grandparent") < _depth(lines, "parent ") < _depth(lines, "child")


def test_names_cannot_steer_the_terminal(filled: Path, run: Run) -> None:
    with_store(filled, _evil_names)

    told = run("show", "evil", "--store", filled).stdout

    assert all(character.isprintable() for character in told.replace("\n", ""))
    assert told.count(r"\x1b[2J") == 4


def test_a_narrow_terminal_is_not_overrun(filled: Path, run: Run) -> None:
    told = run("show", SOLVED, "--store", filled, COLUMNS="50").stdout

    assert max(map(len, told.splitlines())) <= 50


def test_the_narrowest_terminal_shows_the_deepest_span_whole(filled: Path, run: Run) -> None:
    with_store(filled, _odd_spans)

    told = run("show", "odd", "--store", filled, COLUMNS="40").stdout

    assert max(map(len, told.splitlines())) <= 40
    assert all(told.count(f"tool name-{n} ") == 1 for n in range(40))


def test_a_span_tells_when_it_began_its_tokens_and_its_cost(filled: Path, run: Run) -> None:
    with_store(filled, _paid)

    told = run("show", "paid", "--store", filled).stdout

    first, _, spent = told.splitlines()[:3]
    assert first.endswith("1,200 + 30 tokens · $0.004")
    assert "model large · ok · +500 ms · 1.5 s · 1,200 + 30 tokens · $0.0021" in spent


def test_tokens_that_are_no_numbers_are_left_out(filled: Path, run: Run) -> None:
    with_store(filled, lambda store: _paid(store, usage={"input_tokens": "[red]many"}, cost="?"))

    told = run("show", "paid", "--store", filled).stdout

    assert "tokens" not in told
    assert "$" not in told


def test_each_decision_is_told_with_the_credit_that_an_update_gave_it(
    lived: Path, run: Run, read: Read
) -> None:
    known = learned_ids(lived)

    told = run("show", known[0], "--store", lived).stdout
    found = read("show", known[0], "--store", lived)

    assert isinstance(found, dict)
    (credit,) = found["credits"]
    assert credit["decision_id"] == f"{known[0]}:attempt-1:decision-1"
    assert credit["return"] == found["rollout"]["total_reward"]
    line = next(line for line in told.splitlines() if "advantage" in line)
    assert f"return {credit['return']:.4g}" in line
    assert f"advantage {credit['advantage']:+.3g}" in line
    assert f"update {credit['update']}" in line


def test_decisions_that_taught_nothing_are_told_together_with_the_reason(
    filled: Path, run: Run
) -> None:
    told = run("show", SOLVED, "--store", filled).stdout

    assert "decision 1, 2 · left out: The stored features cannot be read." in told
    assert "decision 3 · left out: The probability with which" in told


def learned_ids(path: Path) -> list[str]:
    """Return the rollouts whose decision an update learned from, oldest first."""
    store = SqliteStore.open(path, read_only=True)
    rows = store.rollouts.query(RolloutQuery(limit=40)).rollouts
    found = [
        row.rollout_id
        for row in rows
        for one in store.decisions.decisions(row.rollout_id)
        if one.source == "policy"
    ]
    store.close()
    return found


def with_store(path: Path, write: Callable[[Store], object]) -> None:
    store = SqliteStore.open(path)
    write(store)
    store.close()


def _odd_spans(store: Store) -> None:
    writes(store).begin_rollout(rollout("odd"))
    writes(store).begin_attempt(attempt("odd"))
    chain = [(f"name-{n}", f"name-{n - 1}" if n else None) for n in range(40)]
    odd = [("orphan", "gone"), ("ring-a", "ring-b"), ("ring-b", "ring-a"), ("self", "self")]
    for name, parent in [*chain, *odd]:
        writes(store).add_span(changed(span(name, "odd"), name=name, parent_span_id=parent))


def _only_decides(store: Store) -> None:
    begun(store, "decides")
    writes(store).add_decision(decision(1, "decides"))


def _paid(store: Store, *, usage: object = None, cost: object = 0.0021) -> None:
    usage = {"input_tokens": 1200.0, "output_tokens": 30.0} if usage is None else usage
    row = rollout("paid", started_at=0.5)
    whole = {"usage": usage, "cost_usd": 0.004 if cost == 0.0021 else cost}
    writes(store).begin_rollout(replace(row, metadata=whole))
    writes(store).begin_attempt(attempt("paid"))
    one = span("asked", "paid", ended_at=2.5, status="ok")
    said = {"usage": usage, "cost_usd": cost}
    writes(store).add_span(
        changed(one, kind="model", name="large", started_at=1.0, attributes=said)
    )


def _late_parent(store: Store) -> None:
    writes(store).begin_rollout(rollout("late"))
    writes(store).begin_attempt(attempt("late"))
    for name, parent in [("child", "parent"), ("parent", "grandparent"), ("grandparent", "gone")]:
        writes(store).add_span(changed(span(name, "late"), name=name, parent_span_id=parent))


def _evil_names(store: Store) -> None:
    evil = "\x1b[2J"
    writes(store).begin_rollout(replace(rollout("evil"), name=evil))
    writes(store).begin_attempt(attempt("evil"))
    writes(store).add_span(changed(span("one", "evil"), name=evil))
    writes(store).add_decision(
        replace(decision(1, "evil"), point=evil, options=(evil, "large"), chosen=None, applied=None)
    )


def _depth(lines: list[str], name: str) -> int:
    return next(line.index(name) for line in lines if f" {name}" in line)


def test_what_went_wrong_inside_a_turn_is_drawn_with_its_message_and_the_texts_kept(
    filled: Path, run: Run
) -> None:
    broken = {"error": {"type": "ConnectionError", "message": "the model is down"}, "turn": 1}
    asked = {"input": {"text": "Where is my order?", "chars": 18}, "turn": 2}

    def add(store: Store) -> None:
        for id_, name, status, attributes, parent in (
            ("t1", "agent.turn.1", "ok", {"turn": 1}, None),
            ("m1", "model.large", "error", broken, None),
            ("t2", "agent.turn.2", "ok", {"turn": 2}, None),
            ("m2", "model.small", "ok", asked, "t2"),
        ):
            kind = "turn" if id_.startswith("t") else "model"
            one = span(id_, SOLVED, ended_at=3.0, status=status, attributes=attributes)
            one = changed(one, kind=kind, name=name, parent_span_id=parent)
            writes(store).add_span(one)

    with_store(filled, add)

    told = run("show", SOLVED, "--store", filled).stdout

    lines = {line.split(" · ")[0].split("─ ")[-1]: line for line in told.splitlines()}
    assert " · failed inside · " in lines["turn agent.turn.1"]
    assert " · error · " in lines["model model.large"]
    assert " · ok · " in lines["turn agent.turn.2"]
    assert "ConnectionError: the model is down" in told
    assert "input: Where is my order?" in told


def test_the_attempt_of_a_cancelled_run_is_drawn_as_cancelled(filled: Path, run: Run) -> None:
    def add(store: Store) -> None:
        writes(store).begin_rollout(rollout("live-gone"))
        writes(store).begin_attempt(attempt("live-gone"))
        writes(store).set_attempt_status("live-gone", 1, AttemptStatus.FAILED, at=5.0)
        writes(store).set_status("live-gone", RolloutStatus.CANCELLED, at=5.0)

    with_store(filled, add)

    told = run("show", "live-gone", "--store", filled).stdout

    assert "attempt 1 · cancelled" in told
