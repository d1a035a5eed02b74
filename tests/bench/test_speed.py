"""The benches of speed still run; what they find is not judged here."""

import json

import pytest
from click.testing import CliRunner

from tests.bench import (
    decide,
    engines,
    fleet,
    gae,
    importing,
    ingest,
    items,
    keeping,
    overhead,
    ppo,
    startup,
    store,
    wakeups,
)
from tests.bench.timing import Goal, Measured, command, installed, interleaved
from tests.postgres import needs_postgres

pytestmark = pytest.mark.slow


def assert_measured(found: list[Measured], *, peer: str) -> None:
    for one in found:
        assert one.ours
        assert min(one.ours) > 0.0
        assert bool(one.theirs) == installed(peer)


def test_ppo_runs_and_agrees_with_the_peer_where_that_is_installed() -> None:
    assert_measured(ppo.measure(1, epochs=1), peer="stable_baselines3")


def test_gae_runs_and_agrees_with_the_peers_where_they_are_installed() -> None:
    assert_measured([gae.buffer(1)], peer="stable_baselines3")
    assert_measured([gae.stream(1, steps=20_000)], peer="tianshou")
    assert_measured([gae.ragged(1, rollouts=500, looped=5)], peer="stable_baselines3")


def test_decide_runs_and_every_decision_is_ours() -> None:
    found = decide.measure(1, decisions=10)

    against_ourselves = [one for one in found if one.peer == "no updates"]
    assert_measured(against_ourselves, peer="tau_live")
    assert_measured([one for one in found if one not in against_ourselves], peer="vowpalwabbit")


def test_startup_runs_and_off_is_next_to_nothing() -> None:
    found = startup.measure(1, processes=1)

    assert_measured(found, peer="numpy")
    assert all(one.ours[0] < 0.5 * one.theirs[0] for one in found if one.work.startswith("off"))


def test_ingest_runs_and_everything_told_is_stored() -> None:
    found = ingest.measure(1, events=20, loops=20)

    for one, peer in zip(
        found,
        ("opentelemetry.sdk", "langfuse", "opentelemetry.sdk", "opentelemetry.sdk"),
        strict=True,
    ):
        assert_measured([one], peer=peer)


def test_overhead_runs_every_host_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAU_LIVE_RL", "1")

    found = overhead.measure(1, runs=2)

    hosts = [host for host in overhead.HOSTS if installed(host.module)]
    assert len(found) == 2 * len(hosts)
    assert all(one.ours and one.theirs for one in found)


def test_wakeups_runs_with_and_without_us() -> None:
    found = wakeups.measure(1, seconds=0.1)

    assert all(one.ours and one.theirs for one in found)


def test_store_runs_beside_the_peers_that_are_installed() -> None:
    rollouts, spans, read = store.measure(1, rollouts=2, rows=10, read=2)

    assert_measured([rollouts], peer="agentlightning")
    assert_measured([spans, read], peer="numpy")


def test_importing_runs_both_commands_whole() -> None:
    assert_measured(importing.measure(1, rows=20), peer="sqlite3")


def test_keeping_loses_nothing_of_a_burst_and_next_to_nothing_at_a_kill() -> None:
    ours = keeping.measure(1, after_s=0.3, burst=500, watched=50)[0]

    assert ours.burst == 1.0
    assert ours.lost <= 300
    assert ours.commit_p99_s < 5.0


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    ours, theirs = iter([9.0, 1.0, 2.0, 1.0]), iter([9.0, 4.0, 4.0, 9.0])

    found = interleaved(
        "work",
        lambda: next(ours),
        lambda: next(theirs),
        peer="peer",
        rounds=3,
        goal=Goal(4.0, faster=True),
    )

    assert found.ratios == [4.0, 2.0, 9.0]
    assert found.ratio == 4.0
    assert found.met


def test_json_says_what_was_measured() -> None:
    found = Measured("work", "peer", [1.0], [], Goal(0.5, faster=False))

    result = CliRunner().invoke(command("bench", "A bench", lambda rounds: [found]), ["--json"])

    assert result.exit_code == 0
    assert json.loads(result.output)["measured"][0]["met"] is None


def test_all_engines_give_the_same_bits() -> None:
    found = engines.measure(1, decisions=500, replicates=60)

    assert found[-1].each == [0]
    assert min(figure.found for figure in found[:-1]) > 0.0


@needs_postgres
@pytest.mark.slow
def test_clients_of_a_database_and_of_a_file_store_rollouts() -> None:
    found = fleet.measure(1, seconds=0.2, clients=(1, 2))

    assert [len(figure.each) for figure in found] == [1, 1, 1]
    assert min(figure.found for figure in found) > 0.0


@needs_postgres
@pytest.mark.slow
def test_a_store_grows_before_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "BATCHES", 10)

    found = fleet.growth(1, small=5_100, large=15_300)
    costs = fleet.sizing(fleet.slopes(1))

    forgotten = fleet.forgetting(2, kept=1_000)

    assert all("with 15,300 rollouts, share of 5,100" in figure.what for figure in found)
    assert all(0.5 < figure.found < 50.0 for figure in forgotten)
    assert all(min(slope.values()) > 0.0 for slope in costs.values())


def test_items_run_and_every_one_is_counted() -> None:
    found = items.measure(1, few=10, many=40, waiting=8, start=20, long=48)

    assert [len(figure.each) for figure in found] == [1] * 6
    assert min(figure.found for figure in found[1:5]) > 0.0
