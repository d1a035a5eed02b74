"""When updates run, how much they take, and that each rollout is learned from once (laws 8, 9)."""

import json
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import tau_live
from tau_live.core.settings import Learner as LearnerMode
from tau_live.core.settings import Settings
from tau_live.learn.learner import Learner
from tau_live.operate.records import Backlog
from tau_live.operate.status import status_file, status_of
from tests.contracts.making import ready
from tests.live.learned import LEARNS, due, updates, versions
from tests.live.running import exported, line, opened, process, rounds, until
from tests.live.test_poison import add, worth


def test_an_update_is_due_at_the_interval_and_not_before(live: Path) -> None:
    rounds(7)
    assert tau_live.flush(30)
    early = updates(live)

    rounds(1, start=7)
    assert tau_live.flush(30)

    assert early == []
    assert [(update.first_ready, update.last_ready) for update in updates(live)] == [(1, 8)]


@pytest.mark.parametrize(
    ("waiting", "expected"),
    [
        pytest.param(6, [(1, 6)], id="not behind"),
        pytest.param(15, [(1, 15)], id="behind"),
        pytest.param(31, [(1, 24), (25, 31)], id="far behind"),
    ],
)
def test_an_update_takes_at_most_so_many_and_four_times_as_many_when_behind(
    path: Path, waiting: int, expected: list[tuple[int, int]]
) -> None:
    settings = Settings(store=path, update_interval=4, max_rollouts_per_update=6)
    with opened(path) as store:
        for number in range(waiting):
            add(store, number, total=worth(number))
        learner = Learner(store, settings, holder="test")

        while learner.run_next(now=1.0) is not None:
            pass

    assert [(row.first_ready, row.last_ready) for row in updates(path)] == expected


def test_rollouts_without_decisions_are_passed_over_with_the_newest_before_them(path: Path) -> None:
    settings = Settings(store=path, update_interval=4, max_rollouts_per_update=6)
    with opened(path) as store:
        learner = Learner(store, settings, holder="test")
        for first, waiting in ((0, 4), (4, 5), (9, 25)):
            for number in range(first, first + waiting):
                ready(store, f"live-{number}", at=float(number))
            while learner.run_next(now=None) is not None:
                pass
        watermark = store.policies.watermark("")

    assert [(row.first_ready, row.last_ready, row.at) for row in updates(path)] == [
        (1, 4, 3.0),
        (4, 9, 8.0),
        (10, 33, 32.0),
    ]
    assert {row.skipped_reason for row in updates(path)} == {"no decisions"}
    assert watermark == 33


def test_what_skipped_updates_leave_no_room_for_is_counted(path: Path) -> None:
    settings = Settings(store=path, update_interval=4, max_rollouts_per_update=6)
    with opened(path) as store:
        learner = Learner(store, settings, holder="test")
        for number in range(20):
            add(store, number, total=1.0 if number < 16 else worth(number))
            learner.run_next(now=1.0)
        last = store.policies.updates(limit=1)[0]
        counted = store.counters.counts()

    assert (last.executed, last.first_ready, last.last_ready) == (True, 15, 20)
    assert last.report["left_out"] == {"no_room": 14}
    assert counted["left_out_no_room"] == 14


POINTS = ("a", "b", "c")


@pytest.mark.slow
def test_points_that_are_all_due_take_turns_and_none_waits_for_two_rounds(path: Path) -> None:
    settings = Settings(store=path, update_interval=2, max_rollouts_per_update=2)
    with opened(path) as store:
        learner = Learner(store, settings, holder="test")
        number, order = 0, []
        for _ in range(9):
            for _ in range(8):  # more than an update takes: every point stays due
                for point in POINTS:
                    add(store, number, total=worth(number), point=point)
                    number += 1
            learned = learner.run_next(now=1.0)
            assert learned is not None
            order.append(learned.update.point)

    assert order == [*POINTS] * 3


def test_status_says_where_the_learner_is_behind_and_what_the_next_update_takes(
    path: Path,
) -> None:
    settings = Settings(store=path, update_interval=2, max_rollouts_per_update=2)
    with opened(path) as store:
        for number in range(10):
            add(store, number, total=worth(number), point="busy")
        for number in range(10, 12):
            add(store, number, total=worth(number), point="idle")

        found = status_of(store, settings, now=1.0)

    assert found.ready_to_learn == {"busy": 10, "idle": 2}
    assert found.behind == {"busy": Backlog(ready=10, update_takes=8)}


def test_an_update_that_is_skipped_is_a_row_with_its_reason_too(live: Path) -> None:
    for key in range(8):
        with tau_live.run("triage", key=key) as run:
            run.decide("model", ["small", "large"])
            run.reward(0.5)
    assert tau_live.flush(30)

    row = updates(live)[0]
    status = json.loads(status_file(Settings(store=live)).read_text())
    assert (row.executed, row.skipped_reason) == (False, "fewer than two distinct rewards")
    assert (status["executed"], status["skipped_reason"]) == (False, row.skipped_reason)


def test_the_report_is_published_and_not_wiped_by_the_next_rollout(
    live: Path, settings: Settings
) -> None:
    rounds(8)
    assert tau_live.flush(30)
    published = json.loads(status_file(settings).read_text())

    rounds(1, start=8)
    assert tau_live.flush(30)

    fields = {
        *("executed", "trajectories", "samples", "mean_total_loss", "observed_approx_kl"),
        *("early_stop_triggered", "skipped_reason", "gate", "policies_in_service"),
    }
    assert fields <= set(published)
    assert published["trajectories"] == 8
    assert json.loads(status_file(settings).read_text()) == published
    report = tau_live.snapshot()["last_report"]
    assert isinstance(report, dict)
    assert report["update"] == published["update"] == 1
    assert oct(status_file(settings).stat().st_mode & 0o777) == "0o600"


@pytest.mark.slow
def test_a_reader_of_the_report_never_sees_half_of_it(live: Path, settings: Settings) -> None:
    stop, seen = threading.Event(), Counter[str]()

    def read() -> None:
        while not stop.is_set():
            if status_file(settings).exists():
                seen[json.loads(status_file(settings).read_text())["update"]] += 1

    reader = threading.Thread(target=read)
    reader.start()
    for start in range(0, 160, 8):
        rounds(8, start=start)
        assert tau_live.flush(30)
    stop.set()
    reader.join(30)

    assert len(seen) > 3
    assert len(updates(live)) == 20


@pytest.mark.slow
@pytest.mark.parametrize("mode", [LearnerMode.THREAD, LearnerMode.FLUSH])
def test_flush_waits_until_what_was_learned_serves(
    live: Path, settings: Settings, mode: LearnerMode
) -> None:
    tau_live.detach()
    assert tau_live.attach(replace(settings, learner=mode)) is not None

    for start in range(0, 80, 8):
        rounds(8, start=start)
        assert tau_live.flush(30)
        with opened(live) as store:
            serving = store.policies.in_service().get("model")
        assert tau_live.snapshot()["policies_in_service"] == (
            {"model": serving.version} if serving else {}
        )
        assert not due(live)


@pytest.mark.slow
def test_only_flush_learns_where_that_is_asked_for(live: Path, settings: Settings) -> None:
    tau_live.detach()
    assert tau_live.attach(replace(settings, learner=LearnerMode.FLUSH)) is not None
    rounds(16)
    with opened(live) as store:
        until(lambda: store.rewards.ready_count("model", after=0) == 16)
    threading.Event().wait(1.5)  # longer than the learner's own round

    before = updates(live)
    flushed = tau_live.flush(30)

    assert before == []
    assert flushed
    assert len(updates(live)) == 1


@pytest.mark.slow
def test_flush_waits_for_a_learner_in_another_process(live: Path, settings: Settings) -> None:
    tau_live.detach()
    assert tau_live.attach(replace(settings, learner=LearnerMode.OFF)) is not None
    rounds(8)
    alone = tau_live.flush(0.5)

    with process(LEARNS, live, live) as learner:
        assert line(learner) == "ready"
        together = tau_live.flush(30)
        with opened(live) as store:
            serving = store.policies.in_service()["model"].version
        seen = tau_live.snapshot()["policies_in_service"]

    assert (alone, together) == (False, True)
    assert seen == {"model": serving}
    assert not due(live)


@pytest.mark.slow
def test_flush_says_when_it_was_not_done_in_time(live: Path) -> None:
    rounds(200)

    in_no_time = tau_live.flush(0.0)
    in_time = tau_live.flush(30)

    assert (in_no_time, in_time) == (False, True)


@pytest.mark.slow
def test_the_same_stream_and_seed_make_the_same_versions_in_two_stores(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        path = tmp_path / name / "store.sqlite"
        with opened(path) as store:
            learner = Learner(store, Settings(store=path), holder=name)
            for number in range(64):
                add(store, number, total=worth(number))
                learner.run_next(now=float(number))
        found.append((exported(path), [row.sha256 for row in versions(path)]))

    assert found[0] == found[1]
    assert len(found[0][1]) > 1
