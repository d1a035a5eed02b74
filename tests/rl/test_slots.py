"""Which slots names and words get."""

import tracemalloc

from tau_live.rl.features import word_slot


def test_words_without_end_are_not_kept() -> None:
    tracemalloc.start()
    for number in range(500):
        word_slot("text", f"{number}" + 4_000 * "x", 4_096)

    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 500_000
