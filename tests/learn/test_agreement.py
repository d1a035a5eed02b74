"""Agreement of a policy that is only asked with what the host does."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins
from msgspec.structs import replace

from tau_live.core.reasons import WhyNot
from tau_live.core.records import Shadowed
from tau_live.core.settings import Settings
from tau_live.learn.promotion.outcomes import HABITS, WINDOW, agreement, agreements
from tau_live.learn.trajectories import why_not
from tau_live.operate.status import status_of
from tau_live.store.sqlite.store import SqliteStore
from tests.contracts.making import begun, decision
from tests.runtime.importing.conftest import written
from tests.writes import writes

OPTIONS = ("a", "b", "c")


@given(st.lists(st.tuples(st.sampled_from(OPTIONS), st.permutations([0.2, 0.3, 0.5])), min_size=1))
def test_it_is_the_share_of_decisions_where_nothing_was_more_probable(
    drawn: list[tuple[str, list[float]]],
) -> None:
    rows = [Shadowed(OPTIONS, applied, tuple(shares)) for applied, shares in drawn]

    found = agreement(rows)

    given_to = [shares[OPTIONS.index(applied)] for applied, shares in drawn]
    assert found is not None
    assert found.decisions == len(rows)
    assert found.agreement == given_to.count(0.5) / len(rows)
    assert found.probability == pytest.approx(sum(given_to) / len(rows))
    assert sum(found.host.values()) == pytest.approx(1.0)
    assert list(found.host.values()) == sorted(found.host.values(), reverse=True)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(Shadowed(("a",), "a", (1.0,)), id="there was no choice"),
        pytest.param(Shadowed(("a", "b"), "c", (0.5, 0.5)), id="what was done was not offered"),
        pytest.param(Shadowed(("a", "b"), "a", (1.0,)), id="probabilities that do not fit"),
    ],
)
def test_what_says_nothing_of_agreement_is_passed_over(row: Shadowed) -> None:
    certain = Shadowed(("a", "b"), "b", (0.1, 0.9))

    found = agreement([row, certain])

    assert agreement([row]) is None
    assert found is not None
    assert (found.decisions, found.agreement, found.host) == (1, 1.0, {"b": 1.0})


def test_a_tie_agrees_and_rare_habits_are_not_listed() -> None:
    names = tuple(f"option {n}" for n in range(2 * HABITS))
    even = (1.0 / len(names),) * len(names)

    found = agreement([Shadowed(names, name, even) for name in names])

    assert found is not None
    assert (found.agreement, len(found.host)) == (1.0, HABITS)


def test_the_status_has_it_for_the_newest_decisions_of_every_point(tmp_path: Path) -> None:
    settings = Settings(store=tmp_path / "s.sqlite")
    store = SqliteStore.open(settings.store)
    begun(store)
    shadow = replace(decision(), propensity=None)
    for n in range(WINDOW + 40):
        applied = "small" if n < 40 else "large"  # the policy prefers the large one
        writes(store).add_decision(replace(shadow, ordinal=n + 1, applied=applied))

    found = to_builtins(status_of(store, settings, now=0.0).agreement)
    store.close()

    assert why_not(replace(shadow, chosen="small")) == [WhyNot.NO_PROPENSITY]
    assert found == {
        "model": {
            "decisions": WINDOW,
            "agreement": 1.0,
            "probability": 0.75,
            "host": {"large": 1.0},
        }
    }


def test_a_log_of_what_a_policy_would_have_done_is_in_shadow(tmp_path: Path) -> None:
    from tau_live.runtime.importing.log import LogSource, import_log

    rows = [
        {"options": ["a", "b"], "option": option, "chosen": "a", "probabilities": [0.8, 0.2]}
        for option in ("a", "a", "b", "a")
    ]
    path = written(tmp_path / "log.jsonl", rows)
    settings = Settings(store=tmp_path / "s.sqlite")
    source = LogSource(path=str(path), point="model")

    done = import_log(source, settings, progress=lambda done, total: None)

    store = SqliteStore.open(settings.store)
    found = agreements(store)["model"]
    store.close()
    assert done.with_propensity == 0
    assert (found.decisions, found.agreement, found.host) == (4, 0.75, {"a": 0.75, "b": 0.25})
    assert found.probability == pytest.approx(0.65)
