"""What is added to a TOML file as text says what was meant, and leaves the rest as it was."""

import tomllib
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.cli.init.writing import Addition, value_text, with_additions
from tau_live.core.errors import SettingsError

TABLE = ("tool", "tau-live")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
PLAIN = st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXTS | st.floats(allow_nan=False)
VALUES = st.recursive(
    PLAIN,
    lambda of: st.lists(of, max_size=3) | st.dictionaries(TEXTS, of, max_size=3),
    max_leaves=5,
)
LINES = st.sampled_from(
    ["# a remark", "", "x = 1", "[a]", "[a.b]  # far", "[tool.ruff]", "  [tool.tau-live]  # ours",
     '[tool."tau-live"]', "[tool.tau-live.rewards.solved]", 'y = """', '"""', "[[rows]]",
     "tool.tau-live.seed = 3", "[tool]", "tau-live = { seed = 1 }"]
)  # fmt: skip


@pytest.mark.slow
@given(VALUES)
def test_a_value_is_read_as_it_was_written(value: object) -> None:
    assert tomllib.loads(f"x = {value_text(value)}")["x"] == value


@given(st.lists(LINES, max_size=8), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_nothing_but_the_addition_changes_whatever_the_layout(
    lines: list[str], end: str, ended: bool
) -> None:
    text = end.join(lines) + (end if ended else "")
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    try:
        after = with_additions(text, [Addition(TABLE, {"act": False})])
    except SettingsError:  # said, and nothing is written
        return

    found = tomllib.loads(after)
    assert found["tool"]["tau-live"].pop("act") is False
    assert without_empty(found) == without_empty(before)
    assert all(line in after.splitlines() for line in text.splitlines())


def without_empty(table: Mapping[str, object]) -> dict[str, object]:
    """Return a table without the tables that only the addition has made."""
    inner = {key: without_empty(of) if isinstance(of, dict) else of for key, of in table.items()}
    return {key: of for key, of in inner.items() if of != {}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", "[tool.tau-live]\n# why\nact = false\n", id="an empty file"),
        pytest.param(
            "a = 1", "a = 1\n\n[tool.tau-live]\n# why\nact = false\n", id="a line without an end"
        ),
        pytest.param(
            "[tool.tau-live] # us\nseed = 1\n\n[b]\n",
            "[tool.tau-live] # us\n# why\nact = false\nseed = 1\n\n[b]\n",
            id="a table that is there",
        ),
        pytest.param(
            "[tool.tau-live]",
            "[tool.tau-live]\n# why\nact = false\n",
            id="a header that ends the file",
        ),
    ],
)
def test_it_stands_where_one_would_have_put_it(text: str, expected: str) -> None:
    added = with_additions(text, [Addition(TABLE, {"act": False}, {"act": "why"})])

    assert added == expected


def test_a_file_of_our_own_gets_its_values_before_its_first_table() -> None:
    added = with_additions("# ours\n\n[decisions.model]\n", [Addition((), {"act": False})])

    assert added == "# ours\n\nact = false\n[decisions.model]\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("[tool]\ntau-live = { seed = 1 }\n", id="an inline table"),
        pytest.param('x = """\n[tool.tau-live]\n"""\n[tool.tau-live]\n', id="a text like a header"),
        pytest.param("tool = 3\n", id="no table at all"),
    ],
)
def test_a_layout_that_cannot_be_added_to_is_refused_and_not_rewritten(text: str) -> None:
    with pytest.raises(SettingsError):
        with_additions(text, [Addition(TABLE, {"act": False})])
