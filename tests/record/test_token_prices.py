"""What tokens cost: by declared prices, and what is added to events that do not say it."""

import sys
from collections.abc import Mapping
from importlib.abc import MetaPathFinder
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.core import events as ev
from tau_live.core.errors import SettingsError
from tau_live.core.prices import Pricer, _has_price_table, cost_of, tokens_of
from tau_live.core.settings import SETTINGS, Settings, value_text
from tau_live.core.settings.tables import DeclaredPrice, tables_of

BREAD = DeclaredPrice(model="bread-1*", input=2.0, output=8.0, cached=0.5, cache_write=3.0)
PLAIN = DeclaredPrice(model="bread-1-plain", input=1.0, output=4.0)
TOML = """
[tool.tau-live.prices."bread-1*"]
input = 2.0
output = 8
cached = 0.5
cache-write = 3
"""
COUNT = st.integers(0, 10_000_000)


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        pytest.param({"input_tokens": 1e6}, 2.0, id="in"),
        pytest.param({"output_tokens": 1e6}, 8.0, id="out"),
        pytest.param({"prompt_tokens": 1e6, "completion_tokens": 1e6}, 10.0, id="OpenAI's names"),
        pytest.param(
            {"input_tokens": 1e6, "cache_read_tokens": 4e5}, 0.6 * 2.0 + 0.4 * 0.5,
            id="cached ones are among those that go in",
        ),
        pytest.param(
            {"input_tokens": 1e6, "cache_write_tokens": 4e5}, 0.6 * 2.0 + 0.4 * 3.0,
            id="so are those put into a cache",
        ),
        pytest.param(
            {
                "input_tokens": 1e6,
                "cache_read_input_tokens": 1e6,
                "cache_creation_input_tokens": 1e6,
            },
            2.0 + 0.5 + 3.0, id="Anthropic counts them apart",
        ),
        pytest.param(
            {"input_tokens": 1e6, "input_tokens_details.cached_tokens": 1e6}, 0.5,
            id="OpenAI's details",
        ),
        pytest.param({"output_tokens": 1e6, "reasoning_tokens": 5e5}, 8.0, id="reasoning is out"),
    ],
)  # fmt: skip
def test_tokens_cost_what_is_declared(usage: Mapping[str, float], expected: float) -> None:
    found = cost_of(usage, model="bread-1", prices=[BREAD])

    assert found == pytest.approx(expected, rel=1e-12)


@given(COUNT, COUNT, COUNT, COUNT)
def test_a_cost_is_the_sum_of_what_each_kind_of_token_costs(
    fresh: int, read: int, written: int, out: int
) -> None:
    usage = {
        "input_tokens": fresh + read + written,
        "cache_read_tokens": read,
        "cache_write_tokens": written,
        "output_tokens": out,
    }

    found = cost_of(usage, model="bread-1", prices=[BREAD])

    expected = (2.0 * fresh + 0.5 * read + 3.0 * written + 8.0 * out) / 1e6
    assert found == (pytest.approx(expected) if fresh + read + written + out else None)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("bread-1", 2.0),
        ("Bread-1-Large", 2.0),
        ("bakery:bread-1", 2.0),
        ("bakery/bread-1", 2.0),
        ("gateway:bakery/bread-1", 2.0),
        ("bread-1-plain", 1.0),  # the longer name says more
        ("bread-2", None),
        (None, None),
    ],
)
def test_a_model_is_found_by_its_name_or_a_pattern(
    model: str | None, expected: float | None
) -> None:
    found = cost_of({"input_tokens": 1e6}, model=model, prices=[BREAD, PLAIN], known=False)

    assert found == expected


def test_cached_tokens_without_a_price_of_their_own_cost_as_others() -> None:
    usage = {"input_tokens": 1e6, "cache_read_tokens": 5e5, "cache_write_tokens": 5e5}

    assert cost_of(usage, model="bread-1-plain", prices=[PLAIN]) == 1.0


@pytest.mark.parametrize("usage", [{}, {"requests": 3.0}, {"input_tokens": float("nan")}])
def test_what_was_not_counted_costs_not_nothing_but_an_unknown_sum(
    usage: Mapping[str, float],
) -> None:
    assert tokens_of(usage) is None
    assert cost_of(usage, model="bread-1", prices=[BREAD]) is None


def run(*answers: ev.ModelEnd, end: ev.RunEnd | None = None) -> list[ev.Event]:
    pricer = Pricer([BREAD], known=False)
    start = ev.ModelStart(host="h", run_id="r", at=1.0, model_requested="bread-1")
    return [
        pricer.with_cost(one)
        for one in (start, *answers, end or ev.RunEnd(host="h", run_id="r", at=9))
    ]


def answer(**fields: object) -> ev.ModelEnd:
    known: dict[str, object] = {"host": "h", "run_id": "r", "at": 2.0, **fields}
    return ev.ModelEnd(**known)  # type: ignore[arg-type]  # fields of any kind


def costs(events: list[ev.Event]) -> list[float | None]:
    return [one.cost_usd for one in events if isinstance(one, ev.ModelEnd | ev.RunEnd)]


def test_answers_and_their_run_get_a_cost() -> None:
    first = answer(model_used="bread-1-large", usage={"input_tokens": 1e6})
    second = answer(usage={"output_tokens": 1e6})  # of the model that was asked

    assert costs(run(first, second)) == [2.0, 8.0, 10.0]


def test_what_a_host_says_counts() -> None:
    told = answer(usage={"input_tokens": 1e6}, cost_usd=7.0)
    other = answer(usage={"input_tokens": 1e6})
    end = ev.RunEnd(host="h", run_id="r", at=9.0, cost_usd=100.0)

    assert costs(run(told, other)) == [7.0, 2.0, 9.0]
    assert costs(run(told, other, end=end)) == [7.0, 2.0, 100.0]


def test_a_run_with_an_answer_of_unknown_cost_has_none() -> None:
    known = answer(usage={"input_tokens": 1e6})
    unknown = answer(model_used="cake-1", usage={"input_tokens": 1e6})
    refused = answer(status=ev.Status.ERROR)

    assert costs(run(known, unknown)) == [2.0, None, None]
    assert costs(run(known, refused)) == [2.0, None, 2.0]


def test_prices_are_declared_in_toml(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(TOML)

    settings = Settings.from_env({}, directory=tmp_path).settings

    assert settings.prices == (BREAD,)
    row = next(row for row in SETTINGS if row.field == "prices")
    again = Settings.from_env({"TAU_LIVE_RL_PRICES": value_text(row, settings)}).settings
    assert again.prices == settings.prices
    assert tables_of(settings.prices)["bread-1*"]["cache-write"] == 3.0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ('{"m": {"input": 1}}', "must have an output"),
        ('{"m": {"input": -1, "output": 1}}', "the input price of 'm'"),
        ('{"m": {"input": 1, "outptu": 1}}', "cannot have a 'outptu'"),
        ('{" ": {"input": 1, "output": 1}}', "must name a model"),
    ],
)
def test_a_price_that_is_wrong_is_an_error_that_says_so(given: str, said: str) -> None:
    with pytest.raises(SettingsError, match="TAU_LIVE_RL_PRICES.*" + said):
        Settings.from_env({"TAU_LIVE_RL_PRICES": given})


USAGE = {"input_tokens": 1_000_000.0}


def test_other_models_are_looked_up_where_genai_prices_is_installed() -> None:
    pytest.importorskip("genai_prices")

    found = cost_of(USAGE, model="openai:gpt-4o-mini", provider="openai")
    declared = DeclaredPrice(model="gpt-4o-mini", input=7.0, output=0.0)

    assert found is not None
    assert 0.01 < found < 10.0
    assert cost_of(USAGE, model="gpt-4o-mini", provider="a gateway of ours") == found
    assert cost_of(USAGE, model="gpt-4o-mini", known=False) is None
    assert cost_of(USAGE, model="gpt-4o-mini", prices=[declared]) == 7.0
    assert cost_of(USAGE, model="no-such-model-at-all") is None


class _Searched(MetaPathFinder):
    """Notes every search for genai-prices, and finds it nowhere."""

    def __init__(self) -> None:
        self.searches = 0

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "genai_prices":
            self.searches += 1
            raise ModuleNotFoundError(fullname)


def test_where_genai_prices_is_not_installed_it_is_searched_for_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched = _Searched()
    monkeypatch.delitem(sys.modules, "genai_prices", raising=False)
    monkeypatch.setattr(sys, "meta_path", [searched, *sys.meta_path])
    _has_price_table.cache_clear()

    try:
        found = [cost_of(USAGE, model="gpt-4o-mini") for _ in range(3)]
    finally:
        _has_price_table.cache_clear()

    assert found == [None, None, None]
    assert searched.searches == 1
