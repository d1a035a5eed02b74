"""A clock that was set is noticed, once, and by how much."""

from hypothesis import given
from hypothesis import strategies as st

from tau_live.core.clock import JUMP_S, Jump, Jumps

SECONDS = st.floats(0.0, 3_600.0)
JUMPS = st.floats(-4e8, 4e8).filter(lambda by: abs(by) > 2 * JUMP_S)


class Clocks:
    """A clock on the wall, and one that nobody sets."""

    def __init__(self) -> None:
        self.wall = 1.8e9
        self.steady = 5.0

    def pass_(self, seconds: float) -> None:
        """Let time pass."""
        self.wall += seconds
        self.steady += seconds


@given(st.lists(st.tuples(SECONDS, JUMPS), max_size=5), SECONDS)
def test_every_jump_is_seen_once_and_time_that_passes_is_none(
    times: list[tuple[float, float]], rest: float
) -> None:
    clocks = Clocks()
    jumps = Jumps(lambda: clocks.wall, lambda: clocks.steady)
    found: list[Jump | None] = []

    for seconds, by in times:
        clocks.pass_(seconds)
        found.append(jumps.take_jump())
        clocks.wall += by
        found.append(jumps.take_jump())
    clocks.pass_(rest)
    found.append(jumps.take_jump())

    assert found[::2] == [None] * (len(times) + 1)
    assert all(
        jump is not None and abs(jump.by_s - by) < 1e-3
        for jump, (_, by) in zip(found[1::2], times, strict=True)
    )


def test_a_small_correction_is_no_jump() -> None:
    clocks = Clocks()
    jumps = Jumps(lambda: clocks.wall, lambda: clocks.steady)

    clocks.wall -= JUMP_S / 2

    assert jumps.take_jump() is None


def test_the_real_clocks_agree() -> None:
    assert Jumps().take_jump() is None
