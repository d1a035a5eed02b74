"""Which scenarios are recorded, as the module of a play says it."""

from pathlib import Path

import pytest

from tau_live.testing.expected import Scenario
from tau_live.testing.golden import cannot_of

MODULE = """
from tau_live.testing import Scenario

CANNOT = {Scenario.HANDOFF: "there is one agent"}
CANNOT_CODE = {Scenario.RETRY: "what fails is the code"}
"""


@pytest.mark.parametrize(
    ("play", "expected"),
    [
        pytest.param("some_plays:play", [Scenario.HANDOFF], id="the play"),
        pytest.param("some_plays:play_code", [Scenario.HANDOFF, Scenario.RETRY], id="another"),
        pytest.param("some_plays:code", [Scenario.HANDOFF, Scenario.RETRY], id="of that name"),
        pytest.param("some_plays:routed", [Scenario.HANDOFF], id="one with nothing of its own"),
        pytest.param("no_exceptions:play", [], id="a module that says nothing"),
    ],
)
def test_a_play_has_the_exceptions_of_its_module_and_its_own(
    play: str, expected: list[Scenario], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "some_plays.py").write_text(MODULE)
    (tmp_path / "no_exceptions.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)

    found = cannot_of(play)

    assert found == expected
