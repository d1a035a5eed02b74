"""What begins and ends within a batch is stored as if each event had come alone."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tau_live.core import events as ev
from tau_live.core.records import decision_id_of, rollout_id_of
from tau_live.core.settings import InferReward, Settings
from tau_live.core.settings.tables import DeclaredReward, SafetySettings
from tau_live.record.collector import Collector
from tau_live.record.rewards import Rewarding
from tau_live.runtime.builtin_plugins import load_plugins
from tau_live.store.sealing import SEALED, Sealer
from tau_live.store.sqlite.store import SqliteStore
from tests.store.everything import everything
from tests.streams import HOST, event, opened, streams

ARMS = [("learner", 1.0), ("learner", 0.5), ("control", 0.5), ("import", None)]

HOW = [
    Settings(),
    Settings(reward_deadline_s=0.5),
    Settings(infer_reward=InferReward.OFF),
    Settings(safety=SafetySettings(reject_rollout_on_hard_gate=True)),
    Settings(rewards=(DeclaredReward(name="reward"), DeclaredReward(name="other", weight=2.0))),
]


@st.composite
def told(draw: st.DrawFn) -> list[ev.Event]:
    """Draw a stream in which runs have other names, and decisions and rewards are of all kinds."""
    found = [_varied(draw, one) for one in draw(streams())]
    again = draw(st.lists(st.sampled_from(found), max_size=3)) if found else []
    return [*found, *again]


def _varied(draw: st.DrawFn, one: ev.Event) -> ev.Event:
    name = draw(st.sampled_from(["", "name-0", "name-1"]))
    match one:
        case ev.RunStart():
            return replace(one, aliases=(name,) if name else (), session_id=name or None)
        case ev.Message() if name:
            blocked = event(ev.Policy, run=one.run_id, blocked=name == "name-0", stage="input")
            return replace(blocked, at=one.at, seq=one.seq, pid=one.pid, execution=one.execution)
        case ev.ModelEnd():
            return replace(one, response_id=name or None)
        case ev.Decision():
            arm, share = draw(
                st.sampled_from(
                    [("learner", 1.0), ("learner", 0.5), ("control", 0.5), ("import", None)]
                )
            )
            point = draw(st.sampled_from(["model", "tool"]))
            context = draw(st.dictionaries(st.sampled_from("ab"), st.integers(0, 9)))
            return replace(
                one, arm=arm, share=share, point=point, context=context, encoded=b"\0" * len(point)
            )
        case ev.Reward():
            return _reward(draw, one, name)
    return one


def _reward(draw: st.DrawFn, one: ev.Reward, name: str) -> ev.Reward:
    rollout_id = rollout_id_of(HOST, one.run_id)
    change: dict[str, Any] = draw(
        st.sampled_from(
            [
                {},
                {"name": "other", "label": "good"},
                {"decision_id": decision_id_of(rollout_id, 1, 1)},
                {"run_id": name or one.run_id},
                {"run_id": "", "session_id": name or "nobody"},
                {"value": None, "comment": ev.Content(text="fine")},
            ]
        )
    )
    return replace(one, **change)


@contextmanager
def a_store() -> Iterator[SqliteStore]:
    with tempfile.TemporaryDirectory() as folder, closing(opened(Path(folder))) as store:
        yield store


def rows(events: Sequence[ev.Event], how: Settings, *, at_once: int) -> dict[str, list[Any]]:
    """Return what is stored of events, so many of them in each batch."""
    with a_store() as store:
        collector = Collector(store, rewarding=Rewarding(how, load_plugins(how)), owner="here:1:1")
        for at in range(0, len(events), at_once):
            with store.begin():
                collector.apply(events[at : at + at_once])
        assert [one for one in store.seals.broken_links(Sealer()) if one] == []
        assert [*store.seals.changed_rows(SEALED)] == []
        return everything(store._connection)


@pytest.mark.slow
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(told(), st.sampled_from(HOW), st.integers(2, 60))
def test_a_batch_stores_what_its_events_would_store_alone(
    events: list[ev.Event], how: Settings, at_once: int
) -> None:
    alone = rows(events, how, at_once=1)

    together = rows(events, how, at_once=at_once)

    assert together == alone


def test_what_one_statement_inserts_is_any_number_of_rows() -> None:
    events = [
        one
        for number in range(350)
        for one in (
            event(ev.RunStart, run=f"r{number}", at=1.0),
            event(ev.Decision, run=f"r{number}", at=2.0, ordinal=1, point="p", options=("a",)),
            event(ev.Reward, run=f"r{number}", at=2.5, value=1.0),
            event(ev.RunEnd, run=f"r{number}", at=3.0, status=ev.Status.OK),
        )
    ]

    found = rows(events, Settings(), at_once=len(events))

    counts = {table: len(found[table]) for table in ("rollouts", "decisions", "rewards")}
    assert counts == {"rollouts": 350, "decisions": 350, "rewards": 350}
    assert sorted(row[2] for row in found["ready_points"]) == [*range(1, 351)]
