"""Rewards by a host's own ids and by sessions: before, during, after, and from elsewhere."""

import logging
from pathlib import Path
from typing import Any

import pytest

import tau_live
from tau_live.core import events as ev
from tau_live.core.records import rollout_id_of
from tau_live.core.settings import InferReward, Settings
from tests.live.running import counters, done, process, rewards, rollout

HOST = "bakery"
R = rollout_id_of(HOST, "run-1")

REWARD = """
import json, sys, tau_live
given = json.loads(sys.argv[1])
print(tau_live.reward(1.0, name="solved", **given), tau_live.flush(30))
"""


@pytest.fixture
def settings(path: Path) -> Settings:
    return Settings(store=path, decide_deadline_ms=60_000.0, infer_reward=InferReward.OFF)


def tell(kind: type[ev.Event], run: str = "run-1", at: float = 1.0, **more: Any) -> None:
    runtime = tau_live.attach()
    assert runtime is not None
    known: dict[str, Any] = {"host": HOST, "run_id": run, "at": at, **more}
    assert runtime.emit(kind(**known))


def told(run: str = "run-1", host: str = HOST, **more: Any) -> None:
    """Tell a whole run."""
    tell(ev.RunStart, run, host=host, **more)
    tell(ev.ModelEnd, run, 2.0, host=host, response_id=f"response-of-{run}")
    tell(ev.RunEnd, run, 3.0, host=host, status=ev.Status.OK)


def earned(path: Path, rollout_id: str = R) -> dict[str, float | None]:
    assert tau_live.flush(30)
    return {one.name: one.value for one in rewards(path, rollout_id)}


@pytest.mark.parametrize(
    "own_id",
    [
        pytest.param("run-1", id="the run's"),
        pytest.param("response-of-run-1", id="a response's"),
        pytest.param("alias-1", id="another of the run's"),
    ],
)
def test_a_hosts_own_id_names_its_run_before_during_and_after_it(live: Path, own_id: str) -> None:
    taken = [tau_live.reward(1.0, host=HOST, run=own_id, name="before")]
    tell(ev.RunStart, aliases=("alias-1",))
    tell(ev.ModelEnd, at=2.0, response_id="response-of-run-1")
    taken += [tau_live.reward(2.0, host=HOST, run=own_id, name="during")]
    tell(ev.RunEnd, at=3.0, status=ev.Status.OK)
    taken += [tau_live.reward(4.0, host=HOST, run=own_id, name="after")]

    found = earned(live)

    assert taken == [True, True, True]
    assert found == {"before": 1.0, "during": 2.0, "after": 4.0}
    assert rollout(live, R).total_reward == 7.0


def test_an_id_of_one_host_is_nothing_to_another(live: Path) -> None:
    told()

    tau_live.reward(1.0, host="brewery", run="run-1")

    assert earned(live) == {}
    assert earned(live, rollout_id_of("brewery", "run-1")) == {"reward": 1.0}  # it may come yet


@pytest.mark.parametrize("host", [None, HOST])
def test_a_session_names_its_last_run(live: Path, host: str | None) -> None:
    told("run-0", session_id="user-1")
    told("run-1", session_id="user-1")
    told("inside", session_id="user-1", parent_run_id="run-1")
    told("run-2", session_id="user-2")

    taken = tau_live.reward(1.0, session="user-1", host=host, name="stars")

    assert taken
    assert earned(live) == {"stars": 1.0}


def test_a_session_of_the_public_door_names_its_last_run(live: Path) -> None:
    with tau_live.run("triage", session=17) as run:
        tau_live.reward(1.0, session=17, name="stars")

    assert earned(live, run.id) == {"stars": 1.0}


def test_a_run_that_is_named_inside_itself_is_valued_for_what_it_has_decided(live: Path) -> None:
    with tau_live.run("triage", key=1) as outer:
        outer.decide("model", ["a", "b"])
        with tau_live.run("inside"):
            tau_live.reward(1.0, host="tau_live", run=outer.run_id)
        outer.decide("model", ["a", "b"])
    assert tau_live.flush(30)

    [found] = rewards(live, outer.id)

    assert found.decisions_before == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        pytest.param({"session": "nobody"}, "session 'nobody' not found", id="no such session"),
        pytest.param({"session": "user-1"}, "bakery, brewery; say which", id="of two hosts"),
        pytest.param({"host": HOST, "run": "shared"}, "say which by its own", id="of two runs"),
    ],
)
def test_what_could_be_several_runs_is_refused_with_one_line(
    live: Path, given: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    for run in ("run-1", "run-2"):
        told(run, session_id="user-1", aliases=("shared",))
    told("run-3", host="brewery", session_id="user-1")
    assert tau_live.flush(30)

    with caplog.at_level(logging.WARNING, logger="tau_live"):
        tau_live.reward(1.0, **given)
        assert tau_live.flush(30)

    [line] = [record.getMessage() for record in caplog.records]
    assert "reward_refused" in line
    assert said in line
    assert counters(live)["rewards_without_a_run"] == 1
    assert earned(live) == {}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param({"host": HOST}, id="a host alone"),
        pytest.param({"host": HOST, "run": ""}, id="an empty id"),
        pytest.param({"session": "s", "run": "r"}, id="a session and a run"),
    ],
)
def test_what_names_no_run_is_refused_at_once(live: Path, given: dict[str, Any]) -> None:
    assert tau_live.reward(1.0, **given) is False


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        '{"host": "bakery", "run": "run-1"}',
        '{"host": "bakery", "run": "response-of-run-1"}',
        '{"session": "user-1"}',
    ],
)
def test_another_process_names_a_run_in_the_same_way(live: Path, given: str) -> None:
    told(session_id="user-1")
    assert tau_live.flush(30)

    with process(REWARD, live, given, TAU_LIVE_RL_INFER_REWARD="off") as other:
        said = done(other)

    assert said == "True True\n"
    assert earned(live) == {"solved": 1.0}
