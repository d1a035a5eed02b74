"""Adopted prompts in an agent that runs: who is offered which, and what stops it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tau_live
from tau_live.core.hookspecs import Answer, DecisionRequest, hookimpl
from tau_live.core.prompts import exposure_draw, trial_of_prompt
from tau_live.core.reasons import Part
from tau_live.core.records import Assigned, Decision, Trial
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredDecision
from tau_live.operate.stops import pause_parts
from tau_live.operate.trials import Order, stop
from tau_live.prompts.adoption import publish_earlier
from tests.adopted import BETTER, FIRST, KEY, adopt, publish, settings_with, state_of
from tests.live.running import decisions, opened, until

OWN = "Help."
pytestmark = pytest.mark.slow


class Preferring:
    """Answers every decision with an option, where that is allowed."""

    def __init__(self, option: str) -> None:
        self._option = option

    @hookimpl
    def decide(self, request: DecisionRequest) -> Answer | None:
        known = self._option in request.options
        return Answer(option=self._option, probability=1.0) if known else None


@contextmanager
def attached(
    wanted: Settings, monkeypatch: pytest.MonkeyPatch, *, prefers: str = "own"
) -> Iterator[None]:
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    runtime = tau_live.attach(wanted)
    assert runtime is not None
    runtime.plugins.register(Preferring(prefers), name="preferring")
    try:
        yield
    finally:
        tau_live.detach()


def ask(key: object) -> tuple[str, str]:
    """Run the agent once; return the prompt it used, and the id of its rollout."""
    with tau_live.run("ask", key=key) as run:
        prompt = run.prompt(OWN, context={"words": 3})
        run.reward(1.0, name="good")
        return prompt, run.id


def row_of(path: Path, rollout_id: str) -> Decision:
    assert tau_live.flush()
    [row] = decisions(path, rollout_id)
    return row


def assigned(path: Path, version: str) -> list[Assigned]:
    assert tau_live.flush()
    with opened(path) as store:
        return store.trials.assignments(trial_of_prompt(version), after=0, limit=99)


def test_off_it_is_the_own_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TAU_LIVE_RL", raising=False)

    with tau_live.run("ask") as run:
        assert run.prompt(OWN) == OWN
    assert tau_live.prompt(OWN) == OWN


def test_without_a_declaration_nothing_is_decided(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with attached(settings_with(path, decisions=()), monkeypatch):
        prompt, rollout_id = ask(1)
        assert tau_live.flush()

        assert (prompt, decisions(path, rollout_id)) == (OWN, [])


def test_a_declared_prompt_is_an_option_in_plain_python_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = DeclaredDecision(point="prompt", options={"kind": "{instructions} Be kind."})

    with attached(settings_with(path, decisions=(declared,)), monkeypatch, prefers="kind"):
        prompt, rollout_id = ask(1)

        assert prompt == "Help. Be kind."
        assert row_of(path, rollout_id).applied == "kind"
        assert tau_live.prompt(OWN) == "Help. Be kind."


class Hostile(str):
    """Instructions whose methods raise."""

    def __bool__(self) -> bool:
        raise ValueError("no")

    __len__ = replace = strip = format = __str__ = __bool__  # type: ignore[assignment]


def test_instructions_whose_methods_raise_are_part_of_the_prompt_that_was_chosen(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = DeclaredDecision(point="prompt", options={"kind": "{instructions} Be kind."})

    with attached(settings_with(path, decisions=(declared,)), monkeypatch, prefers="kind"):
        with tau_live.run("ask", key=1) as run:
            prompt = run.prompt(Hostile(OWN), context={"words": 3})

        assert prompt == "Help. Be kind."
        assert row_of(path, run.id).applied == "kind"


def test_a_prompt_is_offered_to_the_share_that_its_draw_says_and_the_row_names_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as store:
        first, better = publish(store, FIRST), adopt(store, BETTER)
        store.trials.save(Trial(point=trial_of_prompt(better), exposure=0.5, revision=1))

    with attached(settings_with(path), monkeypatch, prefers=better):
        runs = [ask(key) for key in range(16)]
        arms = {one.rollout.rollout_id: one for one in assigned(path, better)}

        for prompt, rollout_id in runs:
            offered = exposure_draw(0, rollout_id, better) < 0.5
            row, arm = row_of(path, rollout_id), arms[rollout_id]
            assert row.options == ("own", first, better)
            assert row.allowed == (None if offered else ("own", first))
            assert (arm.arm, arm.share) == ("learner" if offered else "control", 0.5)
            assert (row.applied == better) == (prompt == "Help. Be exact.") == offered
    assert {arm.arm for arm in arms.values()} == {"learner", "control"}


def test_the_draw_is_sticky_and_the_incumbent_is_no_trial(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as store:
        first, better = publish(store, FIRST), adopt(store, BETTER)

    with attached(settings_with(path), monkeypatch, prefers=first):
        with tau_live.run("ask", key="sticky") as run:
            prompts = [run.prompt(OWN) for _ in range(3)]

        assert prompts == ["Help. Be brief."] * 3
        assert len(assigned(path, better)) == 1
        assert assigned(path, first) == []


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_running_process_hears_of_an_adoption_and_of_a_rollback(
    path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    other = path.with_name("prompts.sqlite") if elsewhere else path
    with opened(other) as store:
        publish(store, FIRST)
    wanted = settings_with(path, prompts_store=other if elsewhere else None)

    with attached(wanted, monkeypatch):
        with opened(other) as store:
            better = adopt(store, BETTER)
        until(lambda: better in row_of(path, ask(None)[1]).options, deadline_s=5.0)
        with opened(other) as store:
            publish_earlier(store, None, prompt_key=KEY, reason="complaints", who="anna")
            assert state_of(store, better) == "withdrawn"

        until(lambda: better not in row_of(path, ask(None)[1]).options, deadline_s=5.0)


def test_what_is_put_back_is_offered_to_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(path) as store:
        publish(store, FIRST)
        better = adopt(store, BETTER)
        publish_earlier(store, None, prompt_key=KEY, reason="complaints", who="anna")
        publish_earlier(store, better, prompt_key=KEY, reason="it was right", who="anna")
        assert state_of(store, better) == "champion"

    with attached(settings_with(path), monkeypatch, prefers=better):
        prompt, rollout_id = ask(1)

        assert prompt == "Help. Be exact."
        assert row_of(path, rollout_id).allowed is None


def test_a_missing_store_of_prompts_hurts_nobody(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = path.with_name("prompts.sqlite")

    with attached(settings_with(path, prompts_store=other), monkeypatch):
        prompt, rollout_id = ask(1)
        counts = tau_live.snapshot()["refused"]

        assert prompt == OWN
        assert row_of(path, rollout_id).options == ("own",)
        assert isinstance(counts, dict)
        assert counts["prompts_not_read"] == 1
        with opened(other) as store:
            first = publish(store, FIRST)
        until(lambda: first in row_of(path, ask(None)[1]).options, deadline_s=5.0)


@pytest.mark.parametrize("stopped_by", ["kill switch", "pause", "stopped learner", "shadow"])
def test_what_stops_deciding_gives_the_own_prompt_and_tries_none(
    path: Path, monkeypatch: pytest.MonkeyPatch, stopped_by: str
) -> None:
    with opened(path) as store:
        better = adopt(store, BETTER)
        store.trials.save(Trial(point=trial_of_prompt(better), exposure=0.5, revision=1))
    wanted = settings_with(path)
    with attached(wanted, monkeypatch):
        ask("before")
        before = len(assigned(path, better))
    with opened(path) as store:
        if stopped_by == "pause":
            pause_parts(store, [Part.DECIDING], reason="test", who="anna", at=1.0)
        elif stopped_by == "stopped learner":
            stop(store, wanted, Order("policy_stop", "prompt", "because", "anna", 1.0))
        elif stopped_by == "shadow":
            known = store.trials.trial("prompt")
            store.trials.save(Trial(point="prompt", exposure=0.0, revision=known.revision + 1))
        else:
            path.with_name(f"{path.name}.off").touch()

    with attached(wanted, monkeypatch, prefers=better):
        assert [ask(key)[0] for key in range(8)] == [OWN] * 8
        tau_live.flush()

    with opened(path) as store:
        after = store.trials.assignments(trial_of_prompt(better), after=0, limit=99)
    assert before == 1
    assert len(after) == before
