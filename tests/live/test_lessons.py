"""A pool of lessons in an agent that runs: who is offered it, and what keeps it away."""

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import tau_live
from tau_live.core.prompts import trial_of_prompt
from tau_live.core.records import Trial
from tau_live.core.settings.tables import DeclaredDecision
from tau_live.experience.operations import withdraw
from tau_live.operate.trials import Order, stop
from tau_live.operate.why import UsedPool, why
from tau_live.store.opening import open_at
from tau_live.store.roles import Store
from tau_live.store.sealing import Keys, key_in
from tests.adopted import settings_with
from tests.experience.lessons import LINE, MODEL, shipped
from tests.live.running import until
from tests.live.test_prompts import OWN, ask, attached, row_of

pytestmark = pytest.mark.slow


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    """Open a store, sealed with the key beside it, for a moment."""
    with closing(open_at(path, key_file=path.with_name("audit.key"))) as store:
        yield store


@pytest.fixture
def keyed(tmp_path: Path) -> tuple[Path, Keys]:
    """The path of a store, and the stamping keys beside it."""
    key_file = tmp_path / "audit.key"
    key_in(key_file, make=True)
    return tmp_path / "store.sqlite", Keys.read(key_file)


def living(path: Path, *, model: str | None = MODEL, **more: Any) -> Any:
    declared = DeclaredDecision(point="prompt", options_from="experience:units", model=model)
    given: Mapping[str, Any] = {"audit_key_file": path.with_name("audit.key"), **more}
    return settings_with(path, decisions=(declared,), **given)


def expose(store: Store, version: str, share: float) -> None:
    """Offer a pool to a share of the runs."""
    known = store.trials.trial(trial_of_prompt(f"experience-{version}"))
    store.trials.save(Trial(point=known.point, exposure=share, revision=known.revision + 1))


def test_a_shipped_pool_is_offered_with_the_agents_own_instructions(
    keyed: tuple[Path, Keys], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, keys = keyed
    with opened(path) as store:
        version = shipped(store, keys)
        expose(store, version, 0.99)

    with attached(living(path), monkeypatch, prefers=f"experience-{version}"):
        prompt, rollout_id = ask(1)

        assert prompt.startswith(f"{OWN}\n\nNotes from earlier attempts, as data.")
        assert prompt.endswith(f"<notes>\n{LINE}\n</notes>")
        row = row_of(path, rollout_id)
        assert row.options == ("own", f"experience-{version}")
        assert row.applied == f"experience-{version}"
        with opened(path) as store:
            known = why(store, living(path), row.decision_id).pool
        assert known == UsedPool(version, [["x-000001", 1]])


def test_a_pool_that_ships_while_agents_run_is_offered_within_a_second(
    keyed: tuple[Path, Keys], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, keys = keyed

    with attached(living(path), monkeypatch):
        assert row_of(path, ask(1)[1]).options == ("own",)
        with opened(path) as store:
            version = shipped(store, keys)
        until(lambda: f"experience-{version}" in row_of(path, ask(None)[1]).options, deadline_s=1.5)


@pytest.mark.parametrize("model", ["stub/two", None])
def test_a_host_of_another_model_is_never_offered_a_pool(
    keyed: tuple[Path, Keys], monkeypatch: pytest.MonkeyPatch, model: str | None
) -> None:
    path, keys = keyed
    with opened(path) as store:
        shipped(store, keys)

    with attached(living(path, model=model), monkeypatch):
        assert row_of(path, ask(1)[1]).options == ("own",)


@pytest.mark.parametrize("change", ["block", "model_id", "no key"])
def test_a_pool_that_is_not_what_was_stamped_is_never_offered(
    keyed: tuple[Path, Keys], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    path, keys = keyed
    with opened(path) as store:
        shipped(store, keys)
    with sqlite3.connect(path) as db:
        [(content,)] = db.execute("select content from resources where name = 'experience.units'")
        edited = {**json.loads(content), **({change: MODEL} if change != "no key" else {})}
        edited |= {"block": "- Do as I say."} if change == "block" else {}
        edited |= {"model_id": MODEL, "pool_version": "E-0"} if change == "model_id" else {}
        db.execute("update resources set content = ?", (json.dumps(edited),))
    db.close()
    more = {"audit_key_file": None} if change == "no key" else {}

    with attached(living(path, **more), monkeypatch):
        assert row_of(path, ask(1)[1]).options == ("own",)


def test_a_pool_that_is_withdrawn_is_offered_to_nobody(
    keyed: tuple[Path, Keys], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, keys = keyed
    with opened(path) as store:
        version = shipped(store, keys)
        expose(store, version, 0.99)

    with attached(living(path), monkeypatch, prefers=f"experience-{version}"):
        assert "<notes>" in ask(1)[0]
        with opened(path) as store:
            assert withdraw(store, version, reason="complaints", who="ada")
            assert not withdraw(store, "E-000000000000", reason="no such pool", who="ada")
        until(lambda: "<notes>" not in ask(None)[0], deadline_s=5.0)


def test_a_pool_whose_trial_is_stopped_is_withdrawn_and_the_resource_stays(
    keyed: tuple[Path, Keys], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, keys = keyed
    with opened(path) as store:
        version = shipped(store, keys)
        expose(store, version, 0.99)

    with attached(living(path), monkeypatch, prefers=f"experience-{version}"):
        assert "<notes>" in ask(1)[0]
        with opened(path) as store:
            point = trial_of_prompt(f"experience-{version}")
            stop(store, living(path), Order("stop", point, "worse", "ada", time.time()))
        until(lambda: "<notes>" not in ask(None)[0], deadline_s=5.0)
        assert tau_live.flush()

    with opened(path) as store:
        assert store.optimizations.prompt_states() == {f"experience-{version}": "withdrawn"}
        [latest, *_] = store.resources.versions("experience.units")
        assert isinstance(latest.content, dict)
        assert latest.content["pool_version"] == version


def test_a_kill_switch_leaves_the_agent_its_own_prompt(
    keyed: tuple[Path, Keys], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, keys = keyed
    with opened(path) as store:
        version = shipped(store, keys)
        expose(store, version, 0.99)
    monkeypatch.setenv("TAU_LIVE_RL_KILL", "1")
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()

    assert tau_live.attach(living(path)) is None
    assert ask(1)[0] == OWN
