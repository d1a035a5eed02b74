"""Logs into a store: each row as law 3 says, once, and none lost for another's fault."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau_live.core.errors import LogLineError, TauLiveError
from tau_live.core.reasons import CRITIC_ONLY, LEFT_OUT, WhyNot
from tau_live.core.records import Decision, RolloutStatus
from tau_live.core.settings import Settings
from tau_live.learn.learner import Learner
from tau_live.learn.trajectories import why_not
from tau_live.rl.config import PPOConfig
from tau_live.rl.features import encode, unpack
from tau_live.runtime.importing.log import LogSource, import_log
from tau_live.runtime.importing.rows import parse_map
from tau_live.runtime.importing.runs import OPEN_RUNS
from tests.live.running import decisions, exported, opened, rewards, rollouts
from tests.runtime.importing.conftest import Import, written

ROW = {"at": 1.7e9, "options": ["small", "large"], "option": "small", "propensity": 0.4}


def stored(path: Path) -> list[Decision]:
    return [one for rollout in rollouts(path) for one in decisions(path, rollout.rollout_id)]


def test_a_row_with_a_propensity_is_what_a_policy_chose(
    tmp_path: Path, store: Path, imported: Import
) -> None:
    row = {**ROW, "context": {"words": 7}, "features": {"large": {"usd": 2}}, "reward": 1}

    found = imported(written(tmp_path / "log.jsonl", [row]))

    (one,) = stored(store)
    (rollout,) = rollouts(store)
    assert (found.decisions, found.with_propensity, found.rollouts) == (1, 1, 1)
    assert (one.chosen, one.applied, one.propensity, one.default) == ("small", "small", 0.4, None)
    assert (one.arm, one.source, one.at) == ("import", "import", 1.7e9)
    assert why_not(one) == []
    assert (rollout.status, rollout.total_reward) == (RolloutStatus.SUCCEEDED, 1.0)
    live = encode({"words": 7}, [("small", None), ("large", {"usd": 2})])
    assert unpack(one.encoded).values.tolist() == live.values.tolist()
    assert unpack(one.encoded).indices.tolist() == live.indices.tolist()


def test_a_row_without_one_is_recorded_as_the_hosts_own_choice(
    tmp_path: Path, store: Path, imported: Import
) -> None:
    imported(written(tmp_path / "log.jsonl", [{**ROW, "propensity": None, "reward": 1}]))

    (one,) = stored(store)
    assert (one.propensity, one.applied, one.default) == (None, "small", "small")
    assert why_not(one) == [WhyNot.NO_PROPENSITY]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param(
            {"chosen": "large"}, [WhyNot.APPLIED_DIFFERS], id="applied is not what was chosen"
        ),
        pytest.param(
            {"propensity": 0},
            [WhyNot.ZERO_PROPENSITY, WhyNot.PROPENSITY_OUT_OF_RANGE],
            id="a propensity of zero",
        ),
    ],
)
def test_what_cannot_be_learned_from_is_kept_and_left_out_by_name(
    more: dict[str, object], expected: list[WhyNot], tmp_path: Path, store: Path, imported: Import
) -> None:
    imported(written(tmp_path / "log.jsonl", [{**ROW, **more}]))

    assert [why_not(one) for one in stored(store)] == [expected]


def test_no_probabilities_are_unknown_ones(tmp_path: Path, store: Path, imported: Import) -> None:
    imported(written(tmp_path / "log.jsonl", [{**ROW, "probabilities": []}]))

    (one,) = stored(store)
    assert (one.probabilities, one.propensity) == ((), 0.4)


def test_of_a_folder_it_is_said_which_of_its_files_to_import(
    tmp_path: Path, imported: Import
) -> None:
    with pytest.raises(TauLiveError, match=r"is a folder.*decisions\.parquet"):
        imported(tmp_path)


def test_a_reward_that_is_not_there_is_unknown_and_not_inferred(
    tmp_path: Path, store: Path, imported: Import
) -> None:
    found = imported(written(tmp_path / "log.jsonl", [ROW, {**ROW, "reward": 0}]))

    assert found.rewards == 1
    assert [rollout.total_reward for rollout in rollouts(store)] == [None, 0.0]


def test_rows_of_one_run_are_its_steps_and_the_last_reward_is_the_runs(
    tmp_path: Path, store: Path, imported: Import
) -> None:
    rows: list[dict[str, object]] = [
        {**ROW, "run": run, "at": 10.0 * step, "reward": reward}
        for step, reward in ((1, 0.25), (2, None), (3, 5.0))
        for run in ("a", "b")
    ]

    imported(written(tmp_path / "log.jsonl", rows))

    first, second = rollouts(store)
    own = decisions(store, first.rollout_id)
    assert {first.run_id, second.run_id} == {"a", "b"}
    assert [one.at for one in own] == [10.0, 20.0, 30.0]
    assert (first.started_at, first.ended_at) == (10.0, 30.0)
    assert (first.run_reward, first.total_reward) == (5.0, 5.25)
    earned = {reward.decision_id: reward.value for reward in rewards(store, first.rollout_id)}
    assert earned == {own[0].decision_id: 0.25, None: 5.0}


def test_a_run_that_goes_on_after_very_many_others_loses_nothing(
    tmp_path: Path, store: Path, imported: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tau_live.runtime.importing.runs.OPEN_RUNS", 3)
    rows = [{**ROW, "run": str(run)} for run in (*range(9), 0)]

    found = imported(written(tmp_path / "log.jsonl", rows))

    assert OPEN_RUNS > 3
    assert (found.decisions, len(stored(store)), len(rollouts(store))) == (10, 10, 9)


@pytest.mark.slow
@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "option": st.sampled_from(["small", "large"]),
                "propensity": st.none() | st.floats(0.1, 1.0),
                "reward": st.none() | st.floats(-1, 1),
                "run": st.none() | st.sampled_from("abc"),
                "context": st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=3),
            }
        ),
        max_size=12,
    )
)
def test_a_log_makes_the_same_of_two_stores_and_nothing_more_of_one(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, object]]
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    path = written(folder / "log.jsonl", [{**ROW, **row} for row in rows])
    one, two = folder / "one.sqlite", folder / "two.sqlite"
    source = LogSource(path=str(path), point="model")

    for store in (one, two, two):
        import_log(source, Settings(store=store), progress=lambda done, total: None)

    assert exported(one) == exported(two)
    assert len(stored(one)) == len(rows)


def test_a_log_that_has_grown_adds_what_is_new(
    tmp_path: Path, store: Path, imported: Import
) -> None:
    path = written(tmp_path / "log.jsonl", [ROW, ROW])
    imported(path)

    again = imported(written(path, [ROW, ROW, ROW]))

    assert (again.decisions, again.rollouts, len(rollouts(store))) == (3, 1, 3)


@pytest.mark.parametrize("runs", [(None, None, None), ("a", "a", "b")], ids=["none", "named"])
def test_a_log_without_times_that_has_grown_adds_what_is_new(
    runs: tuple[str | None, ...], tmp_path: Path, store: Path, imported: Import
) -> None:
    timeless = {name: value for name, value in ROW.items() if name != "at"}
    rows: list[dict[str, object]] = [{**timeless, "run": run, "reward": 1} for run in runs]
    path = written(tmp_path / "log.jsonl", rows[:2])
    os.utime(path, (1.7e9, 1.7e9))
    imported(path)

    imported(written(path, rows))  # written later, which is all that is known of its times

    found = stored(store)
    assert len(found) == 3
    assert {one.attempt for one in found} == {1}
    assert sum(len(rewards(store, one.rollout_id)) for one in rollouts(store)) == 3


BAD = [
    (b'{"option": "small"', "19", "not JSON"),
    (b"\xff\xfe", "1", "not JSON"),
    (b"[1]", None, "expected an object"),
    (b'{"options": ["small"]}', "option", "expected an option"),
    (b'{"option": "huge", "options": ["small"]}', "option", "expected one of 1 options"),
    (b'{"option": "small", "propensity": 1.5}', "propensity", "from 0 to 1"),
    (b'{"option": "small", "reward": "much"}', "reward", "expected a finite number"),
    (b'{"option": "small", "at": "yesterday"}', "at", "expected a time"),
    (b'{"option": "small", "context": [1]}', "context", "expected an object"),
    (b'{"option": "a", "options": ["a", "a"]}', "options", "every option once"),
    (b'{"option": "a", "options": ["a"], "probabilities": [0.5]}', "probabilities", "sum to 1"),
]


@pytest.mark.parametrize(("line", "column", "reason"), BAD)
def test_a_bad_line_is_told_with_its_place_and_costs_no_other(
    line: bytes, column: str | None, reason: str, tmp_path: Path, store: Path, imported: Import
) -> None:
    good = json.dumps(ROW).encode()
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"\n".join([good, b"", line, good]))

    found = imported(path)

    assert (found.decisions, found.bad_lines, len(rollouts(store))) == (2, 1, 2)
    assert (found.bad[0].line, found.bad[0].column) == (3, column)
    assert reason in found.bad[0].reason


def test_strict_stops_at_the_first_bad_line(tmp_path: Path, imported: Import) -> None:
    rows = [{**ROW, "p": 0.5}, {**ROW, "p": 2}, ROW]

    with pytest.raises(LogLineError, match=r"line 2, column p: .* from 0 to 1, got 2") as raised:
        imported(written(tmp_path / "log.jsonl", rows), map_="propensity=p", strict=True)

    assert (raised.value.line, raised.value.column) == (2, "p")


def test_a_column_that_no_row_has_is_told(tmp_path: Path, imported: Import) -> None:
    found = imported(written(tmp_path / "log.jsonl", [ROW]), map_="reward=-cost,context=a+b")

    assert list(found.unseen) == ["a", "b", "cost"]


OPEN_BANDIT = """,timestamp,item_id,position,click,propensity_score,user_feature_0,affinity_0
0,2019-11-24 00:00:18.123456+00:00,14,1,1,0.0125,young,0.5
1,2019-11-24 00:00:20+00:00,27,3,0,0.0125,"old, at heart",
2,2019-11-24 00:00:20+00:00,x,3,maybe,0.0125,old,1
"""


def test_a_table_of_open_bandit_fits_by_its_columns(
    tmp_path: Path, store: Path, imported: Import
) -> None:
    path = tmp_path / "log.csv"
    path.write_text(OPEN_BANDIT)

    found = imported(
        path,
        map_="option=item_id,reward=click,propensity=propensity_score,at=timestamp,"
        "context=user_feature_*+affinity_0+position",
        options=("all",),
    )

    first, second = stored(store)
    assert (found.format, found.decisions, found.bad_lines) == ("csv", 2, 1)
    assert (found.bad[0].line, found.bad[0].column) == (4, "click")
    assert (first.options, first.applied, first.propensity) == (("14", "27", "x"), "14", 0.0125)
    assert first.at == pytest.approx(1574553618.123456)
    assert first.context == {"user_feature_0": "young", "affinity_0": 0.5, "position": 1.0}
    assert second.context["user_feature_0"] == "old, at heart"
    assert [rollout.total_reward for rollout in rollouts(store)] == [1.0, 0.0]


VOWPAL = {
    "_label_cost": -0.75,
    "_label_probability": 0.8,
    "_label_Action": 2,
    "_labelIndex": 1,
    "Timestamp": "2024-05-01T10:00:00.0000000Z",
    "EventId": "e1",
    "a": [2, 1],
    "p": [0.8, 0.2],
    "c": {"User": {"age": 7}, "_multi": [{"Ad": {"price": 1}}, {"Ad": {"price": [2, 3]}}]},
}


def test_a_line_of_vowpal_wabbit_fits_by_its_paths(
    tmp_path: Path, store: Path, imported: Import
) -> None:
    found = imported(
        written(tmp_path / "log.dsjson", [VOWPAL]),
        map_="run=EventId,at=Timestamp,option=_labelIndex,options=c._multi,context=c,"
        "propensity=_label_probability,reward=-_label_cost",
    )

    (one,) = stored(store)
    assert (found.bad_lines, list(found.unseen)) == (0, [])
    assert (one.options, one.applied, one.propensity) == (("0", "1"), "1", 0.8)
    assert one.context == {"User.age": 7}
    assert one.features == {"0": {"Ad.price": 1}, "1": {"Ad.price.0": 2, "Ad.price.1": 3}}
    assert rollouts(store)[0].total_reward == 0.75


@pytest.mark.parametrize(
    "text", ["reward", "reward=", "wealth=x", "reward=a,reward=b", "context=a++b"]
)
def test_a_map_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"mapped twice|not one of|names no column"):
        parse_map(text)


def logged_by_chance(path: Path, *, propensity: float | None) -> Path:
    """Write a log whose options were taken by turns; each is right for one kind of question."""
    kinds, options = ("sum", "fact"), ("small", "large")
    rows = [
        {
            "at": 1.7e9 + n,
            "options": options,
            "option": options[n // 2 % 2],
            "propensity": propensity,
            "reward": float(n % 2 == n // 2 % 2),
            "context": {"kind": kinds[n % 2]},
        }
        for n in range(200)
    ]
    return written(path, rows)


@pytest.mark.slow
def test_what_was_logged_with_propensities_teaches_the_policy(
    tmp_path: Path, store: Path, imported: Import
) -> None:
    imported(logged_by_chance(tmp_path / "log.jsonl", propensity=0.5))
    learnt = Settings(store=store, max_rollouts_per_update=200)

    with opened(store) as open_:
        learned = Learner(open_, learnt, holder="me").run_next(now=2e9)

    assert learned is not None
    assert learned.policy is not None
    assert learned.update.samples == 200
    for kind, right in (("sum", 0), ("fact", 1)):
        asked = encode({"kind": kind}, [("small", None), ("large", None)])
        assert learned.policy.probabilities(asked)[right] > 0.6


@pytest.mark.slow
def test_a_log_goes_in_whole_however_many_versions_are_made_of_it(
    tmp_path: Path, store: Path, imported: Import
) -> None:
    imported(logged_by_chance(tmp_path / "log.jsonl", propensity=0.5))
    settings = Settings(store=store, update_interval=1, max_rollouts_per_update=1)

    with opened(store) as open_:
        learner = Learner(open_, settings, holder="me")
        while learner.run_next(now=2e9) is not None:
            pass
        updates = open_.policies.updates()
        counted = open_.counters.counts()

    learned = [row for row in updates if row.executed]
    assert len(learned) > PPOConfig().lag_bound + 8
    assert learned[-1].first_ready == 1
    assert sum(row.trajectories for row in learned) == learned[0].last_ready == 200
    assert not any(name.startswith((LEFT_OUT, CRITIC_ONLY)) for name in counted)


@pytest.mark.slow
def test_what_was_logged_without_teaches_the_actor_nothing(
    tmp_path: Path, store: Path, imported: Import
) -> None:
    imported(logged_by_chance(tmp_path / "log.jsonl", propensity=None))

    with opened(store) as open_:
        learned = Learner(open_, Settings(store=store), holder="me").run_next(now=2e9)

    assert learned is not None
    assert (learned.policy, learned.update.executed) == (None, False)
    assert learned.update.report["left_out"] == {"no_propensity": 200, "no_usable_decisions": 200}


@pytest.mark.slow
def test_a_pipe_is_read_as_a_file_is_and_memory_does_not_grow_with_it(
    tmp_path: Path, store: Path
) -> None:
    code = """
import resource, sys
from pathlib import Path
from tau_live.runtime.importing.log import LogSource, import_log
from tau_live.core.settings import Settings
peaks = []
def progress(done, total):
    peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
source = LogSource(path="-", point="model")
found = import_log(source, Settings(store=Path(sys.argv[1])), progress=progress)
print(found.decisions, peaks[-1] - peaks[len(peaks) // 3])
"""
    lines = "".join(json.dumps({**ROW, "reward": n % 2}) + "\n" for n in range(3_000))

    done = subprocess.run(
        [sys.executable, "-c", code, store],
        input=lines,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )

    told, grown_kb = map(int, done.stdout.split())
    assert told == len(rollouts(store)) == 3_000
    assert grown_kb < 8_192
