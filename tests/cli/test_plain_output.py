"""Where it is piped or NO_COLOR is set a command prints text alone; 40 columns break nothing."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_commands import EVERY
from tests.cli.test_keys import BENCH, CALLS, WITHOUT_STORE, make_inputs

pytestmark = pytest.mark.slow

MORE = {
    "alerts": ["alerts"], "completion": ["completion", "zsh"], "gate": ["gate"],
    "policy": ["policy"], "--help": ["--help"],
    "why --recompute": [*CALLS["why"], "--recompute"],
    "unknown": ["nothing"], "not there": ["show", "nobody"],
}  # fmt: skip
ALL = {**CALLS, **MORE, "metrics": ["metrics"]}
WITHOUT = WITHOUT_STORE | {"completion", "gate", "policy", "--help", "unknown", "alerts"}
NOT_RUN = {"tau-live policy undo", "tau-live demo", "tau-live proxy", "tau-live run",
           "tau-live report", "tau-live dashboard", "tau-live otlp",
           "tau-live autostart enable", "tau-live autostart disable",
           "tau-live optimize worker", "tau-live optimize aliases", "tau-live bench suite",
           "tau-live bench suite check", "tau-live bench suite list", "tau-live bench template",
           *(f"tau-live {command}" for command in BENCH), "tau-live start", "tau-live ship",
           *(path for path in EVERY if path.startswith("tau-live store")),
           *(path for path in EVERY if path.startswith("tau-live experience"))}  # fmt: skip
"""Learns for a minute, needs an order, runs something else, changes the environment, or draws."""

STEERING = re.compile(r"[^\n\x20-\x7e\u00a0-\uffff]")


def called(command: str, filled: Path) -> list[str]:
    make_inputs(Path.cwd())
    store = [] if command in WITHOUT else ["--store", str(filled)]
    return [*ALL[command], *store]


@pytest.mark.parametrize("environ", [{}, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, {"COLUMNS": "40"}],
                         ids=["piped", "NO_COLOR", "40 columns"])  # fmt: skip
@pytest.mark.parametrize("command", ALL)
def test_a_command_prints_nothing_but_text(
    command: str, environ: dict[str, str], filled: Path, run: Run
) -> None:
    result = run(
        *called(command, filled), TAU_LIVE_RL="1", TAU_LIVE_RL_UPDATE_INTERVAL="1", **environ
    )

    assert set(STEERING.findall(result.output)) == set()
    assert "internal error" not in result.stderr
    assert result.output


def test_every_command_is_looked_at() -> None:
    known = {" ".join(call[:2]) for call in ALL.values()}
    known |= {" ".join(call[:1]) for call in ALL.values()}

    assert {path.removeprefix("tau-live ") for path in EVERY if path != "tau-live"} <= known | {
        path.removeprefix("tau-live ") for path in NOT_RUN
    }


@pytest.mark.parametrize("command", ["rollouts", "doctor", "gate", "--help", "alerts"])
def test_in_40_columns_tables_are_folded_and_nothing_is_cut(
    command: str, filled: Path, run: Run
) -> None:
    arguments = [*ALL[command], *(() if command == "--help" else ("--store", filled))]
    wide = run(*arguments, COLUMNS="200", TAU_LIVE_RL="1").stdout

    narrow = run(*arguments, COLUMNS="40", TAU_LIVE_RL="1").stdout

    assert "…" not in narrow
    assert len(narrow.splitlines()) >= len(wide.splitlines())


@pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal of Unix")
@pytest.mark.parametrize(("environ", "steers"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_on_a_real_terminal_no_color_leaves_nothing_but_text(
    environ: dict[str, str], steers: bool, filled: Path
) -> None:
    master, slave = os.openpty()
    own = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "TERM"}}
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-m", "tau_live.cli", "rollouts", "--store", str(filled)],
        stdout=slave, stderr=slave, env={**own, "TERM": "xterm", "PYTHONPATH": paths, **environ},
        check=True,
    )  # fmt: skip
    os.close(slave)
    said = os.read(master, 65_536)
    os.close(master)

    assert done.returncode == 0
    assert (b"\x1b[" in said) is steers
