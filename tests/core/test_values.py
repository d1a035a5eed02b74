"""What a host hands over is read within a bound, whatever it is."""

import array
import tracemalloc
from collections.abc import Callable

import pytest

from tau_live.core.offers import HASHED_CHARS, finite, key_text, read_options, text_of

HUGE_TEXT = "x" * 20_000_000


@pytest.mark.parametrize(
    ("read", "value"),
    [
        pytest.param(text_of, HUGE_TEXT, id="a text of 20 MB"),
        pytest.param(key_text, HUGE_TEXT, id="a key of 20 MB"),
        pytest.param(key_text, bytes(20_000_000), id="a key of bytes"),
        pytest.param(key_text, [[0] * 999] * 10_000, id="a key of lists"),
        pytest.param(key_text, array.array("d", bytes(8_000_000)), id="a key of numbers"),
        pytest.param(key_text, 1 << 40_000_000, id="a long integer"),
        pytest.param(finite, memoryview(HUGE_TEXT.encode()), id="bytes for a number"),
        pytest.param(read_options, dict.fromkeys(range(10**6)), id="a million options"),
    ],
)
def test_no_more_of_it_is_copied_than_is_read(
    read: Callable[[object], object], value: object
) -> None:
    read(value)  # once before, so that nothing is imported while it is measured
    tracemalloc.start()

    read(value)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2_500_000  # all of it is 5 to 40 MB


def test_texts_that_differ_at_either_end_or_in_length_are_told_apart() -> None:
    texts = ("a" + HUGE_TEXT, HUGE_TEXT + "a", HUGE_TEXT, HUGE_TEXT[1:])

    found = {text_of(text) for text in texts}

    assert len(found) == len(texts)
    assert all(len(text) > 2 * HASHED_CHARS for text in texts)


def test_a_key_that_is_too_large_to_be_printed_names_nothing() -> None:
    assert key_text(list(range(100_000))) is None
    assert key_text(("user", 7)) == "('user', 7)"


@pytest.mark.parametrize("given", [memoryview(b"1"), array.array("b", b"1"), b"1", "1", object()])
def test_what_holds_bytes_is_no_number(given: object) -> None:
    assert finite(given) is None
