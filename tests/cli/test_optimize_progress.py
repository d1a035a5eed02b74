"""What ``tau-live optimize`` shows while it runs."""

import re
from pathlib import Path

import pytest

from tau_live.cli.optimize_progress import Items
from tau_live.prompts.budget import Preflight
from tau_live.prompts.lead import Shown
from tau_live.store.records import OptimizationState
from tests.cli.conftest import Run
from tests.cli.terminal import in_terminal

MOST = Preflight(
    candidates=5, search_items=60, confirm_items=40, test_items=20, search_calls=10,
    policy_items=0, calls=260, tokens=None, usd=None,
)  # fmt: skip


def shown(phase: str, done: int, total: int) -> Shown:
    return Shown(phase, OptimizationState.RUNNING, done, total, 0.0, done)


def test_what_a_phase_did_not_need_is_not_ahead_any_more() -> None:
    items = Items(MOST)

    found = [
        items.at_most(shown(*at))
        for at in [
            ("", 0, 0),
            ("baseline", 5, 10),
            ("search", 30, 30),
            ("confirm", 30, 70),
            ("confirm", 70, 70),
            ("final", 70, 90),
        ]
    ]

    assert found == [120, 120, 120, 90, 90, 90]


@pytest.mark.slow
def test_a_pipe_gets_a_line_for_each_phase(run: Run) -> None:
    ended = run("optimize", "--demo")

    phases = [line.partition(":")[0] for line in ended.stderr.splitlines()]
    assert ended.exit_code == 0, ended.output
    assert phases == ["baseline", "search", "confirm", "final"]
    assert re.search(r"^confirm: \d+ items, \d+ calls so far$", ended.stderr, re.MULTILINE)


@pytest.mark.slow
def test_a_terminal_has_a_bar_whose_columns_stay_where_they_are(tmp_path: Path) -> None:
    ended = in_terminal(
        "optimize", "--demo", "--store", tmp_path / "store.sqlite", columns=100, TERM="xterm"
    )

    text = re.sub(r"\x1b\[[0-9;]*m", "", ended.output)
    lines = re.findall(r"[^\x1b\r\n]* elapsed [^\x1b\r\n]*", text.replace("\x1b[2K", ""))
    assert ended.code == 0, ended.output
    assert {line.index("elapsed") for line in lines} == {lines[0].index("elapsed")}
    assert {line.index("left") for line in lines} == {lines[0].index("left")}
    assert lines[0].startswith("preparing  ")
    done = re.search(r" (\d+)/(\d+) ", lines[-1])
    assert done is not None
    assert done[1] == done[2]
