"""What only a real process shows: exit codes, pipes, signals, what is imported."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from tau_live.cli.output import configure
from tau_live.core.guard import logger
from tests.cli.filled import SOLVED, hold

CLI = [sys.executable, "-m", "tau_live.cli"]
pytestmark = pytest.mark.slow


def called(*arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLI, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**_environ(), **environ},
        check=False,
    )


def executed(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=_environ(), check=False
    )


def _environ() -> dict[str, str]:
    roots = [str(Path(__file__).parents[2]), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, roots))}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["status"], 0), (["gate"], 0), (["show", "nobody"], 1), (["--bogus"], 2)],
)
def test_exit_codes_reach_the_shell(arguments: list[str], code: int, filled: Path) -> None:
    result = called(*arguments, TAU_LIVE_RL_STORE=str(filled))

    assert result.returncode == code
    assert "Traceback" not in result.stderr


def test_a_gate_that_holds_is_exit_code_3(filled: Path) -> None:
    hold(filled)

    result = called("gate", "--store", filled)

    assert result.returncode == 3


@pytest.mark.parametrize("format_", ["rollouts", "export"])
def test_a_reader_that_leaves_early_is_no_error(format_: str, filled: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)

    result = subprocess.run(
        [*CLI, format_, "--store", str(filled)],
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=60,
        env=_environ(),
        check=False,
    )
    os.close(writer)

    assert result.stderr == b""
    assert result.returncode == 141


def test_only_the_first_line_is_wanted(filled: Path) -> None:
    command = f"{' '.join(CLI)} export --store {filled} | head -1"

    result = subprocess.run(
        ["sh", "-c", command], capture_output=True, timeout=60, env=_environ(), check=False
    )

    assert result.stdout.count(b"\n") == 1
    assert result.stderr == b""


def test_help_imports_neither_numpy_nor_the_store() -> None:
    code = (
        "import sys\n"
        "from tau_live.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'rich', 'sqlite_utils', 'structlog', 'msgspec', 'pluggy'}\n"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)\n"
    )

    result = executed(code)

    assert (result.returncode, result.stderr) == (0, "")


def test_a_command_that_logs_nothing_does_not_import_structlog(filled: Path) -> None:
    code = (
        "import sys\n"
        "from tau_live.cli import main\n"
        f"try: main(['gate', 'status', '--store', {str(filled)!r}])\n"
        "except SystemExit: pass\n"
        "print(sorted({'asyncio', 'attr', 'structlog'} & set(sys.modules)))\n"
        "from tau_live.core.guard import logger\n"
        "logger().info('not_shown')\n"
        "logger().warning('shown', number=1)\n"
    )

    result = executed(code)

    assert result.stdout.splitlines()[-1] == "[]"
    assert "[warning  ] shown" in result.stderr
    assert "number=1" in result.stderr
    assert "not_shown" not in result.stderr


@pytest.mark.parametrize(
    "words", ["rollouts", "reward 1 --run any", "gate", "optimize list", "export"]
)
def test_a_command_that_computes_nothing_does_not_import_numpy(filled: Path, words: str) -> None:
    code = (
        "import sys\n"
        "from tau_live.cli import main\n"
        f"try: main({[*words.split(), '--store', str(filled)]!r})\n"
        "except SystemExit: pass\n"
        "sys.exit('numpy' in sys.modules)\n"
    )

    result = executed(code)

    assert result.returncode == 0, result.stderr


def test_a_structlog_that_is_configured_already_stays_as_it_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    structlog.configure(processors=[structlog.processors.JSONRenderer()])

    configure(verbose=False)
    logger().warning("by the host", number=1)

    assert json.loads(capsys.readouterr().out) == {"event": "by the host", "number": 1}


def test_a_pipe_gets_whole_lines_without_colours(filled: Path) -> None:
    result = called("rollouts", "--store", filled)

    assert "\x1b" not in result.stdout
    assert any(SOLVED in line and "2023-11-14" in line for line in result.stdout.splitlines())


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_long_work_stops_when_it_is_asked_to(asked: signal.Signals) -> None:
    code = (
        "import threading\n"
        "from tau_live.cli.terminal import stopping\n"
        "stop = threading.Event()\n"
        "with stopping(stop):\n"
        "    print('ready', flush=True)\n"
        "    while not stop.wait(0.1): pass\n"
        "print('ended', flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=_environ()
    )
    assert process.stdout is not None
    process.stdout.readline()

    process.send_signal(asked)
    said, _ = process.communicate(timeout=60)

    assert said == "ended\n"
    assert process.returncode == 0


def test_a_signal_in_the_middle_of_waiting_for_it_stops_the_work() -> None:
    code = (
        "import signal, threading\n"
        "from tau_live.cli.terminal import stopping\n"
        "stop = threading.Event()\n"
        "with stopping(stop):\n"
        "    with stop._cond: signal.raise_signal(signal.SIGTERM)  # as inside wait()\n"
        "    print(stop.wait(30))\n"
    )

    ended = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        env=_environ(),
        timeout=60,
    )

    assert (ended.stdout, ended.stderr) == ("True\n", "")


def closed(stream: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Call a command whose standard output or standard error is closed."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {stream}>&-', "sh", *CLI, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        env=_environ(),
        check=False,
    )


@pytest.mark.parametrize("stream", [1, 2])
def test_where_nobody_can_be_told_what_stops_and_tells_works(stream: int, filled: Path) -> None:
    at = ("--store", filled)

    killed = closed(stream, "kill", "--reason", "nonsense", *at)
    there = Path(f"{filled}.off").exists()
    resumed = closed(stream, "unkill", "--reason", "mended", *at)
    rewarded = closed(stream, "reward", "0.5", "--run", SOLVED, *at)

    assert (killed.returncode, resumed.returncode, rewarded.returncode) == (0, 0, 0)
    assert there
    assert not Path(f"{filled}.off").exists()
    assert "0.5" in called("show", SOLVED, "--json", *at).stdout


@pytest.mark.parametrize(
    "arguments",
    [["status"], ["gate"], ["updates"], ["doctor"], ["config"], ["policy", "list"], ["export"],
     ["top", "--frames", "1"]],
)  # fmt: skip
def test_what_cannot_be_printed_is_said_in_one_line(arguments: list[str], filled: Path) -> None:
    at = [] if arguments == ["config"] else ["--store", filled]

    silent, loud = closed(1, *arguments, *at), closed(2, *arguments, *at)

    assert silent.returncode == 1
    assert silent.stderr == "tau-live: standard output is closed\n"
    assert loud.returncode == called(*arguments, *at).returncode
    assert loud.stdout
