"""The title of a figure is its finding."""

import pytest

from tau_live.cli.page.saying import finding_of
from tau_live.reporting.facts import Mean


def means(*values: float, width: float = 0.1) -> list[Mean]:
    return [Mean(count=50, mean=v, lower=v - width, upper=v + width) for v in values]


@pytest.mark.parametrize(
    ("known", "title"),
    [
        pytest.param([], "Reward is unknown", id="nothing"),
        pytest.param(means(0.5), "Reward is 0.5", id="one stretch"),
        pytest.param(means(0.2, 0.5, 0.8), "Reward rose from 0.2 to 0.8", id="up"),
        pytest.param(means(0.8, 0.5, 0.2), "Reward fell from 0.8 to 0.2", id="down"),
        pytest.param(
            means(0.5, 0.1, 0.55),
            "Reward: no clear change, 0.5 at first and 0.55 lately",
            id="within the noise",
        ),
        pytest.param(
            [Mean(count=1, mean=0.0), *means(0.5, 0.9)],
            "Reward: no clear change, 0 at first and 0.9 lately",
            id="without an interval nothing is claimed",
        ),
        pytest.param(
            means(0.5, 0.55, width=0.01), "Reward rose from 0.5 to 0.55", id="small but certain"
        ),
    ],
)
def test_a_change_is_claimed_where_it_is_twice_its_standard_error(
    known: list[Mean], title: str
) -> None:
    assert finding_of("Reward", known) == title
