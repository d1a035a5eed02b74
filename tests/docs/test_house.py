"""The names that the house refuses, and circles of imports."""

import pytest

from tests.house import counts, modules

pytestmark = pytest.mark.slow

# ``told`` stands in migrations, since columns had that name; ``asked`` is counted in stored trials
ALLOWED = {"the word `told`": 7, "the word `asked`": 3}

HELD = (
    "circles of imports",
    "the word `told`",
    "the word `said`",
    "the word `asked`",
    "the word `begun`",
    "variables called `found` or `one`",
    "names of functions that are a participle alone",
    "docstrings that begin with a circumlocution",
)


@pytest.fixture(scope="module")
def measures() -> dict[str, tuple[int, int | None]]:
    return {measure.name: (measure.now, measure.goal) for measure in counts(modules())}


@pytest.mark.parametrize("name", HELD)
def test_a_measure_of_the_house_is_kept(
    measures: dict[str, tuple[int, int | None]], name: str
) -> None:
    now, goal = measures[name]

    assert goal is not None
    assert now <= ALLOWED.get(name, goal)
