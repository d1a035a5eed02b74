"""Who may give rewards, and how much of an update one source may be."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tau_live.core.errors import SettingsError
from tau_live.core.records import LearnableRollout
from tau_live.core.reward_rules import cap_sources, refuses, trusted_rewards
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredReward
from tests.contracts.making import reward, rollout


def valued(number: int, *sources: str) -> LearnableRollout:
    id_ = f"live-{number}"
    return LearnableRollout(rollout(id_), [], [reward(1.0, id_, source=one) for one in sources])


@pytest.mark.parametrize(
    ("source", "value", "refused"),
    [
        ("reviewer", 1.0, False),
        ("user:anna", 1.0, False),
        ("agent", 1.0, True),
        ("safety", -1.0, True),
        ("inferred", 1.0, True),
    ],
)
def test_only_listed_sources_give_rewards(source: str, value: float, refused: bool) -> None:
    settings = Settings(reward_sources=("reviewer", "user:*"))

    assert refuses(reward(value, source=source), settings) is refused


def test_a_reward_may_have_a_list_of_its_own() -> None:
    solved = DeclaredReward(name="solved", sources=("tests",))
    settings = Settings(rewards=(solved,), reward_sources=("user",))

    assert refuses(reward(1.0, name="solved", source="user"), settings)
    assert not refuses(reward(1.0, name="solved", source="tests"), settings)
    assert not refuses(reward(1.0, name="other", source="user"), settings)


def test_without_a_list_everybody_may_but_safety_gives_nothing() -> None:
    assert not refuses(reward(1.0, source="anybody"), Settings())
    assert not refuses(reward(-1.0, source="safety"), Settings())
    assert refuses(reward(9.0, source="safety"), Settings())


def test_what_is_stored_stops_counting_when_its_source_is_taken_off_the_list() -> None:
    stored = [reward(1.0, source=one) for one in ("user", "agent", "safety", "inferred")]

    kept = trusted_rewards(stored, Settings(reward_sources=("user",)))

    assert [one.source for one in kept] == ["user", "safety", "inferred"]
    assert trusted_rewards(stored, Settings()) == stored


SOURCES = st.lists(st.sampled_from(["checked", "user:a", "user:b", "judge"]), max_size=2)


@given(st.lists(SOURCES, max_size=60), st.floats(0.05, 1.0), st.floats(0.05, 1.0))
@example([["user:a"]] * 4 + [["user:a", "judge"]] * 4, 0.46875, 1.0)
def test_a_capped_source_is_never_more_than_its_share_and_one(
    given_by: list[list[str]], users: float, judge: float
) -> None:
    rollouts = [valued(number, *sources) for number, sources in enumerate(given_by)]
    settings = Settings(source_caps={"user:*": users, "judge": judge})

    kept, over = cap_sources(rollouts, settings)

    by_user = sum(any(r.source.startswith("user") for r in one.rewards) for one in kept)
    free = [one for one in rollouts if {r.source for r in one.rewards} <= {"checked"}]
    assert by_user <= users * len(kept) + 2
    assert all(one in kept for one in free)
    assert sorted(one.rollout.rollout_id for one in [*kept, *over]) == sorted(
        one.rollout.rollout_id for one in rollouts
    )


def test_over_many_updates_a_share_below_one_rollout_is_kept_too() -> None:
    settings = Settings(source_caps={"user": 0.1})
    kept_of = [
        cap_sources(
            [valued(8 * n + k, "user" if k < 4 else "checked") for k in range(8)], settings
        )[0]
        for n in range(300)
    ]  # fmt: skip

    users = sum(any(r.source == "user" for r in one.rewards) for kept in kept_of for one in kept)

    assert 0.06 < users / sum(map(len, kept_of)) < 0.14


def test_without_caps_everything_is_learned_from() -> None:
    rollouts = [valued(number, "user") for number in range(9)]

    assert cap_sources(rollouts, Settings()) == (rollouts, [])


@pytest.mark.parametrize("caps", ['{"user": 0.0}', '{"user": 1.5}', '{"user": "much"}', "x"])
def test_a_cap_is_a_share(caps: str) -> None:
    with pytest.raises(SettingsError, match="SOURCE_CAPS"):
        Settings.from_env({"TAU_LIVE_RL_SOURCE_CAPS": caps})
