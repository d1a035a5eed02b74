"""Which prompts are on offer, to which share of the rollouts, and what a broken store does."""

from pathlib import Path

import pytest

from tau_live.core.errors import SettingsError
from tau_live.core.prompts import (
    FIRST_SHARE,
    exposure_draw,
    fill_prompt,
    prompt_of_trial,
    prompt_version,
    trial_of_prompt,
)
from tau_live.core.records import Trial
from tau_live.core.settings.tables import DeclaredDecision
from tau_live.decisions.prompts import Prompts, prompt_history, prompt_offers
from tau_live.store.opening import open_at
from tau_live.store.sqlite.store import SqliteStore
from tests.adopted import BETTER, FIRST, KEY, OTHER, adopt, publish, settings_with

VERSION = "p-fa07597c3d9b"


@pytest.mark.parametrize(
    ("rollout_id", "u"),
    [
        ("live-1", 0.09371869770224972),
        ("live-2", 0.8547990445586382),
        ("live-3", 0.7599506324425533),
    ],
)
def test_the_vectors_of_the_exposure(rollout_id: str, u: float) -> None:
    assert exposure_draw(0, rollout_id, VERSION) == u


def test_a_trial_of_a_prompt_is_named_by_its_version() -> None:
    assert prompt_of_trial(trial_of_prompt(VERSION)) == VERSION
    assert prompt_of_trial("prompt") is None
    assert prompt_of_trial("prompt@opt-aef0db2e52d6-1") is None


def offers(store: SqliteStore, *trials: Trial) -> list[tuple[str, float]]:
    """Return the versions on offer, with the share of each."""
    known = {trial.point: trial for trial in trials}
    found = prompt_offers(prompt_history(store, KEY), known)
    return [(offer.version, offer.share) for offer in found]


def test_a_published_prompt_is_offered_to_all_and_an_adopted_one_to_few(
    store: SqliteStore,
) -> None:
    first, better = publish(store, FIRST), adopt(store, BETTER)

    assert offers(store) == [(first, 1.0), (better, FIRST_SHARE)]


def test_a_share_is_that_of_the_trial(store: SqliteStore) -> None:
    better = adopt(store, BETTER)

    assert offers(store, Trial(point=trial_of_prompt(better), exposure=0.25)) == [(better, 0.25)]


@pytest.mark.parametrize(
    ("changed_at", "share"),
    [
        pytest.param(30.0, None, id="withdrawn here: not offered"),
        pytest.param(15.0, FIRST_SHARE, id="adopted again since: another trial"),
    ],
)
def test_a_prompt_withdrawn_here_is_offered_again_only_if_adopted_again(
    store: SqliteStore, changed_at: float, share: float | None
) -> None:
    better = adopt(store, BETTER, at=20.0)
    trial = Trial(
        point=trial_of_prompt(better), exposure=0.25, stopped="worse", changed_at=changed_at
    )

    assert dict(offers(store, trial)).get(better) == share


def test_a_withdrawn_prompt_is_not_offered_and_the_one_before_is(store: SqliteStore) -> None:
    first, _ = publish(store, FIRST), adopt(store, BETTER, state="withdrawn")

    assert offers(store) == [(first, 1.0)]


def test_at_most_three_are_on_trial_the_newest(store: SqliteStore) -> None:
    versions = [adopt(store, f"Prompt {n}", at=20.0 + n) for n in range(4)]

    assert [version for version, _ in offers(store)] == versions[:0:-1]


def test_an_empty_prompt_is_no_option(store: SqliteStore) -> None:
    publish(store, " ")

    assert offers(store) == []


def test_only_the_point_prompt_can_have_options_from_resources() -> None:
    with pytest.raises(SettingsError, match="only decision 'prompt'"):
        DeclaredDecision(point="model", options_from="resources")
    with pytest.raises(SettingsError, match="resources, resources:KEY or experience:DOMAIN"):
        DeclaredDecision(point="prompt", options_from="elsewhere")


@pytest.mark.parametrize(
    ("source", "key"),
    [("resources", "system_prompt"), ("resources:triage", "triage"), (None, None)],
)
def test_the_resource_is_named_by_its_key(source: str | None, key: str | None) -> None:
    assert DeclaredDecision(point="prompt", options_from=source).prompt_key == key


def test_own_instructions_stand_where_a_prompt_wants_them() -> None:
    assert fill_prompt(BETTER, "Help.") == "Help. Be exact."
    assert fill_prompt(OTHER, "Help.") == OTHER
    assert prompt_version(f" {OTHER}\n") == prompt_version(OTHER)


@pytest.mark.parametrize("damage", ["missing", "no store", "older"])
def test_without_a_usable_store_of_prompts_none_is_offered_and_it_is_counted_once(
    store: SqliteStore, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = tmp_path / "prompts.sqlite"
    if damage == "no store":
        other.write_bytes(b"no store at all" * 1_000)
    elif damage == "older":
        other.touch()
    counted: list[str] = []
    prompts = Prompts(
        settings_with(store.path, prompts_store=other),
        open_=lambda: open_at(other, read_only=True),
        count=counted.append,
    )

    prompts.refresh(store)
    prompts.refresh(store)

    assert counted == ["prompts_not_read"]
    assert [line.message.count("prompts_not_read") for line in caplog.records] == [1]
    assert other.exists() == (damage != "missing")
