"""What is packed by the form of a decision is what is packed of the decision itself."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau_live.rl.features import encode, pack
from tau_live.rl.shapes import Shapes

NAMES = st.sampled_from(["kind", "words", "score", "", "ü", "x" * 300])
VALUES = st.one_of(
    st.floats(),
    st.integers(),
    st.booleans(),
    st.none(),
    st.sampled_from(["sum", "a few words of text", "", "7"]),
    st.lists(st.integers(), max_size=2),
)
OPTIONS = st.lists(st.sampled_from(["small", "large", ""]), min_size=1, max_size=3, unique=True)


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.dictionaries(NAMES, VALUES, max_size=5),
    st.lists(st.lists(st.floats() | st.integers(), min_size=5, max_size=5), max_size=3),
    OPTIONS.map(tuple),
)
def test_the_same_bytes_come_of_every_decision_of_a_form(
    context: dict[str, object], others: list[list[float]], names: tuple[str, ...]
) -> None:
    shapes = Shapes(width=64)
    kinds = [type(value) for value in context.values()]
    alike = [
        {
            name: float(number) if kind is float else int(number) if kind is int else value
            for (name, value), kind, number in zip(context.items(), kinds, numbers, strict=False)
        }
        for numbers in others
        if all(abs(number) < 1e300 for number in numbers)
    ]

    for one in (context, context, *alike, context):
        expected = pack(encode(one, [(name, None) for name in names], width=64))
        assert shapes.pack(one, names) == expected
