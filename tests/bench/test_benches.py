"""Every bench still runs, on a size that shows no more than that."""

import json
from collections.abc import Callable
from functools import partial

import pytest
from click.testing import CliRunner

from tests.bench import cartpole, digits, drift, harness, logged, promotion, routing, suite
from tests.bench.harness import OURS, Bench, Contestant, Figures, Goal, command
from tests.bench.players import EachStep, Learner
from tests.bench.tasks import TASKS, Task, task_of

BENCHES = (cartpole, digits, drift, logged, promotion, routing)
NEEDS = {
    **dict.fromkeys(
        ("2 classes", "5 classes", "20 classes", "wine", "breast cancer", "moons", "digits",
         "escalation"),
        "sklearn",
    ),
    **dict.fromkeys(("segments", "phishing", "bananas", "lamps"), "river"),
}  # fmt: skip


def doubled(seed: int) -> Figures:
    return {"twice": 2.0 * seed}


TOY = Bench(
    name="toy",
    needs=(),
    goals=(Goal("twice", 3.0, at_least=False),),
    contestants=(
        Contestant(OURS, doubled),
        Contestant("peer", doubled, needs=("no_such_module",)),
    ),
)


@pytest.fixture(autouse=True)
def _no_such_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(harness.PACKAGES, "no_such_module", "no-such-package")
    monkeypatch.setenv("TAU_LIVE_RL", "0")  # the benches switch it on; afterwards it is as before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("play", "needs", "figure"),
    [
        pytest.param(
            partial(digits.play_ours, limit=24, passes=1), "sklearn", "pass 1", id="digits",
        ),
        pytest.param(partial(routing.play_ours, rollouts=40), "sklearn", "end", id="routing"),
        pytest.param(partial(drift.play_ours, before=16, after=8), "sklearn", "before", id="drift"),
        pytest.param(partial(cartpole.play_ours, most=8), "gymnasium", "rollouts", id="cartpole"),
        pytest.param(
            partial(logged.play_ours, "table", rows=96), None, "table, 96 rows", id="logged",
        ),
        pytest.param(
            partial(suite.play_sb3, 64, "support", most=96), "stable_baselines3", "support",
            id="steps",
        ),
        pytest.param(
            partial(promotion.play, rollouts=400, equal=2, unequal=2), None, promotion.AA,
            id="promotion",
        ),
    ],
)  # fmt: skip
def test_a_bench_goes_through(
    play: Callable[[int], Figures], needs: str | None, figure: str
) -> None:
    if needs is not None:
        pytest.importorskip(needs)

    figures = play(0)

    assert figures[figure] >= 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_task_goes_through(name: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])

    figures = suite.play_ours(name, 0, most=17)

    assert figures[f"{name}, regret"] >= 0.0 or name == "escalation"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chain, 3 to 5 steps", "articles, linear"])
@pytest.mark.parametrize(
    ("peer", "needs"),
    [
        pytest.param(partial(suite.linear, "ucb", 0.3), "mabwiser", id="MABWiser"),
        pytest.param(partial(suite.vw, "-q ca"), "vowpalwabbit", id="VW"),
        pytest.param(partial(suite.twenty_lines, 0.3), "numpy", id="LinUCB"),
        pytest.param(partial(suite.table, 0.1), "numpy", id="table"),
    ],
)
def test_a_peer_goes_through(
    name: str, peer: Callable[[Task, str, int], Learner], needs: str
) -> None:
    pytest.importorskip(needs)
    task = task_of(name, 0, most=17)

    worth, best = suite.earned(task, EachStep(lambda point: peer(task, point, 0)), 0)

    assert len(worth) == task.runs
    assert sum(worth) <= sum(best)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_figures() -> None:
    first, second = (suite.play_ours("chain, all of 3", 3, most=40) for _ in range(2))

    assert first == second


def test_a_verdict_compares_with_the_best_peer_and_the_best_fixed_choice() -> None:
    bench = Bench(name="toy", contestants=())
    found = harness.Measured(bench, [0, 1])
    for seed in (0, 1):
        best = [1.0] * 2_000
        for who, worth in ((OURS, 0.75 + seed / 4), ("peer", 0.5), (suite.FIXED, 0.8)):
            found.add(who, seed, suite.figures("task", [worth] * 2_000, best))

    verdict = suite.verdict(found, "task")

    assert verdict is not None
    assert (verdict.ours, verdict.peer, verdict.theirs) == (0.875, suite.FIXED, 0.8)
    assert verdict.error == pytest.approx(0.125)
    assert verdict.worst == pytest.approx(-0.05)
    assert verdict.first == (0.875, 0.8)


def test_each_seed_and_the_mean_are_told_as_json() -> None:
    ran = CliRunner().invoke(command(TOY), ["--seeds", "3", "--no-peers", "--json"])

    told = json.loads(ran.stdout)
    assert told["figures"][OURS]["twice"] == {"mean": 2.0, "each": [0.0, 2.0, 4.0]}
    assert told["goals"] == [{"figure": "twice", "goal": "<= 3", "mean": 2.0, "met": True}]
    assert {OURS, "numpy"} <= set(told["versions"])


def test_without_json_a_table_is_printed() -> None:
    ran = CliRunner().invoke(command(TOY), ["--seeds", "2", "--only", OURS])

    assert ran.exit_code == 0
    assert "1.0000 (0.0000 to 2.0000)" in ran.stdout


def test_a_peer_that_is_not_installed_is_named_and_so_is_the_way_out() -> None:
    ran = CliRunner().invoke(command(TOY), [])

    assert ran.exit_code == 1
    assert ran.stderr == (
        "Error: no-such-package not installed: pip install 'tau-live[bench]', "
        "or leave the peers out with --no-peers\n"
    )


@pytest.mark.parametrize("bench", [module.BENCH for module in BENCHES], ids=lambda one: one.name)
def test_every_goal_is_for_somebody_who_takes_part(bench: Bench) -> None:
    names = [(one.name, one.part) for one in bench.contestants]

    assert OURS in {name for name, _ in names}
    assert len(set(names)) == len(names)
