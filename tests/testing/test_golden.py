"""Which scenarios are recorded, as the module of a play says it."""

from pathlib import Path

import pytest

from tau_live.testing.expected import Scenario
from tau_live.testing.golden import cannot_of, main

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


ADAPTER, PLAY = "tau_live_hooks.langchain:ADAPTER", "json:dumps"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "the following arguments are required: adapter, play, golden"),
        ([ADAPTER, PLAY], "the following arguments are required: golden"),
        (["json", PLAY, "golden"], "expected module:name, got 'json'"),
        ([PLAY, PLAY, "golden"], "expected json:dumps to be of the kind Adapter"),
        ([ADAPTER, "no_such_module:play", "golden"], "No module named 'no_such_module'"),
        ([ADAPTER, "json:play", "golden"], "module 'json' has no attribute 'play'"),
        ([ADAPTER, "json:__name__", "golden"], "expected json:__name__ to be a function"),
        ([ADAPTER, PLAY, "file/golden"], "Not a directory: 'file/golden'"),
    ],
)
def test_wrong_arguments_end_in_the_usage_and_no_traceback(
    arguments: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["testing", *arguments])

    with pytest.raises(SystemExit) as ended:
        main()

    err = capsys.readouterr().err
    assert ended.value.code == 2
    assert err.startswith("usage: python -m tau_live.testing")
    assert problem in err
