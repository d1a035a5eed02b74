"""Masks through the public door: never chosen, never applied, stored, exported and replayed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import tau_live
from tau_live.core.hookspecs import Answer, DecisionRequest, hookimpl
from tau_live.core.settings import Settings
from tau_live.runtime.replay import replay_file
from tests.live.running import decisions, exported, gate


def test_a_masked_option_is_listed_and_never_chosen(live: Path) -> None:
    with tau_live.run("masked") as run:
        found = [run.decide("tool", ["a", "b", "c"], allowed=["b", "c"]) for _ in range(50)]
    assert tau_live.flush(30)

    rows = decisions(live, run.id)
    assert {choice.option for choice in found} == {"b", "c"}
    assert {choice.source for choice in found} == {"policy"}
    assert {row.options for row in rows} == {("a", "b", "c")}
    assert {row.allowed for row in rows} == {("b", "c")}
    assert {row.probabilities[0] for row in rows} == {0.0}
    assert all(row.propensity == row.probabilities[row.options.index(row.applied or "")]
               for row in rows)  # fmt: skip


def test_without_a_run_a_mask_holds_too(live: Path) -> None:
    assert tau_live.decide("tool", ["a", "b"], allowed=["b"]).option == "b"


def test_a_mask_that_allows_all_is_none(live: Path) -> None:
    with tau_live.run("masked") as run:
        run.decide("tool", ["a", "b"], allowed=["b", "a", "z"])
    assert tau_live.flush(30)

    assert decisions(live, run.id)[0].allowed is None


def test_a_masked_default_gives_way_to_the_first_that_is_allowed(live: Path) -> None:
    with tau_live.run("masked") as run:
        during = run.decide("tool", ["a", "b"], default="a", allowed=["b"])
    after = run.decide("tool", ["a", "b", "c"], default="a", allowed=["c", "b"])
    assert tau_live.flush(30)

    row = decisions(live, run.id)[0]
    assert (during.option, during.source) == ("b", "policy")
    assert (row.default, row.applied, row.allowed) == ("a", "b", ("b",))
    assert (after.option, after.source) == ("b", "default")


def test_where_nothing_is_allowed_nothing_is_chosen_and_it_is_counted(live: Path) -> None:
    with tau_live.run("masked") as run:
        choice = run.decide("tool", ["a", "b"], default="a", allowed=[])

    refused = tau_live.snapshot()["refused"]
    assert (choice.option, choice.source) == (None, "default")
    assert isinstance(refused, dict)
    assert refused["decisions_without_an_allowed_option"] == 1
    assert gate()["state"] == "pass"


def test_a_mask_that_cannot_be_read_is_counted_and_the_host_keeps_its_choice(live: Path) -> None:
    with tau_live.run("masked") as run:
        choice = run.decide("tool", ["a", "b"], default="a", allowed={"b": True})

    refused = tau_live.snapshot()["refused"]
    assert (choice.option, choice.source) == ("a", "default")
    assert isinstance(refused, dict)
    assert refused["masks_refused"] == 1


class Reckless:
    """A plugin that chooses what is not allowed."""

    asked: DecisionRequest | None = None

    @hookimpl
    def decide(self, request: DecisionRequest) -> Answer:
        self.asked = request
        return Answer(option="a", probability=1.0)


def test_a_plugin_is_not_offered_what_is_masked_and_cannot_choose_it(live: Path) -> None:
    plugin = Reckless()
    runtime = tau_live.attach()
    assert runtime is not None
    runtime.plugins.register(plugin, name="reckless")

    with tau_live.run("masked") as run:
        choice = run.decide("tool", ["a", "b", "c"], default="a", allowed=["c", "b"])
    assert tau_live.flush(30)

    assert plugin.asked is not None
    assert list(plugin.asked.options) == ["b", "c"]
    assert plugin.asked.default is None
    assert choice.option in {"b", "c"}
    assert decisions(live, run.id)[0].applied == choice.option


def test_when_a_decision_is_late_the_host_does_what_is_allowed(
    path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    tau_live.detach()
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.attach(replace(settings, decide_deadline_ms=1e-9))

    with tau_live.run("late") as run:
        choice = run.decide("tool", ["a", "b", "c"], default="a", allowed=["c", "b"])
    assert tau_live.flush(30)
    tau_live.detach()

    row = decisions(path, run.id)[0]
    assert (choice.option, choice.source) == ("b", "default")
    assert (row.applied, row.why_not, row.propensity) == ("b", "deadline", None)


def test_masks_are_exported_replayed_and_learned_under(
    path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tau_live.detach()
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    recorded = tmp_path / "events.jsonl"
    tau_live.attach(replace(settings, record=recorded, update_interval=8))
    for key in range(16):
        with tau_live.run("masked", key=key) as run:
            choice = run.decide("tool", ["a", "b", "c"], allowed=["a", "bc"[key % 2]])
            run.reward(float(choice.option == "a"))
    assert tau_live.flush(30)
    tau_live.detach()

    again = tmp_path / "again.sqlite"
    replay_file(recorded, replace(settings, store=again), progress=lambda done, total: None)

    rows = [json.loads(line) for line in exported(again)]
    found = [row["allowed"] for row in rows if row["table"] == "decisions"]
    assert found == [["a", "b"], ["a", "c"]] * 8
    assert [row for row in rows if row["table"] == "decisions"] == [
        row for row in map(json.loads, exported(path)) if row["table"] == "decisions"
    ]
