"""Where ``-o`` leads: a file is replaced as a whole, a device or a pipe is written to."""

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.conftest import Run

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes devices")
outputs = pytest.mark.parametrize(
    "command", [["export", "-o"], ["metrics", "-o"], ["report", "--html"]]
)


@pytest.mark.slow
@outputs
@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_written_to(command: list[str], linked: bool, filled: Path, run: Run) -> None:
    pipe = Path("pipe")
    os.mkfifo(pipe)
    Path("link").symlink_to(pipe)
    with ThreadPoolExecutor() as pool:
        heard = pool.submit(pipe.read_bytes)

        result = run(*command, "link" if linked else pipe, "--store", filled)

        if not pipe.is_fifo() or result.exit_code:  # or nobody ends the reading
            os.close(os.open("pipe", os.O_WRONLY | os.O_NONBLOCK))
    assert result.exit_code == 0, result.stderr
    assert pipe.is_fifo()
    assert Path("link").is_symlink()
    run(*command, "file", "--store", filled)
    first = {"export": b'{"table"', "metrics": b"# HELP", "report": b"<!"}[command[0]]
    assert heard.result().startswith(first)
    assert Path("file").read_bytes().startswith(first)


@pytest.mark.slow
@needs_root
@outputs
def test_a_device_stays_one(command: list[str], filled: Path, run: Run) -> None:
    os.mknod("null", 0o600 | stat.S_IFCHR, os.makedev(1, 3))

    result = run(*command, "null", "--store", filled)

    assert result.exit_code == 0, result.stderr
    assert Path("null").is_char_device()


@pytest.mark.slow
@outputs
def test_the_file_that_a_link_leads_to_is_replaced(
    command: list[str], filled: Path, run: Run
) -> None:
    Path("folder").mkdir()
    Path("folder/file").write_text("before")
    Path("link").symlink_to("folder/file")

    result = run(*command, "link", "--store", filled)

    assert result.exit_code == 0, result.stderr
    assert Path("link").is_symlink()
    assert len(Path("folder/file").read_bytes()) > len("before")
    assert [path.name for path in Path("folder").iterdir()] == ["file"]


@pytest.mark.slow
def test_what_standard_output_is_added_to_is_kept(filled: Path) -> None:
    Path("file").write_text("before\n")
    Path("link").symlink_to("/proc/self/fd/1")

    with Path("file").open("ab") as file:
        done = subprocess.run(
            [sys.executable, "-m", "tau_live.cli", "export", "-o", "link", "--store", filled],
            stdout=file,
            check=False,
        )

    assert done.returncode == 0
    assert Path("link").is_symlink()
    assert Path("file").read_text().startswith('before\n{"table"')


@pytest.mark.slow
@outputs
@pytest.mark.parametrize("name", ["", "folder"])
def test_a_folder_is_refused(command: list[str], name: str, filled: Path, run: Run) -> None:
    Path("folder").mkdir()

    result = run(*command, name, "--store", filled)

    assert result.exit_code in {1, 2}
    assert "directory" in result.stderr
    assert "internal error" not in result.stderr


def test_tables_go_into_a_folder_only(filled: Path, run: Run) -> None:
    os.mkfifo("pipe")

    result = run("export", "--format", "parquet", "-o", "pipe", "--store", filled)

    assert result.exit_code == 1
    assert "writes a folder, and pipe is none" in result.stderr
    assert Path("pipe").is_fifo()


def test_what_a_killed_export_has_left_is_taken_away(filled: Path, run: Run) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = Path(f".out.jsonl.{gone.pid}-1.part")
    other = Path(f".other.jsonl.{gone.pid}-1.part")
    left.touch()
    other.touch()

    run("export", "-o", "out.jsonl", "--store", filled)

    assert not left.exists()
    assert other.exists()
    assert Path("out.jsonl").exists()


@pytest.mark.parametrize(
    "command",
    [["rollouts", "--page"], ["updates", "--limit"], ["gate", "log", "--limit"], ["policy", "show"],
     ["policy", "use"], ["evaluate", "--policy"]],
)  # fmt: skip
def test_a_number_that_no_store_holds_is_one_line(
    command: list[str], filled: Path, run: Run
) -> None:
    more = ["--reason", "x"] if command[-1] == "use" else []

    result = run(*command, str(10**30), *more, "--store", filled)

    assert result.exit_code in {1, 2}
    assert "Python int" not in result.stderr
    assert result.stderr.count("\n") == 1


def test_settings_in_a_pipe_are_refused_and_not_waited_for(run: Run) -> None:
    os.mkfifo("pyproject.toml")

    result = run("init", "--dry-run")

    assert result.exit_code == 1
    assert "is no file" in result.stderr


def test_a_range_that_no_number_spans_is_refused(filled: Path, run: Run) -> None:
    result = run(
        "evaluate", "--policy", "uniform", "--reward-range", "-1e308", "1e308", "--store", filled
    )

    assert result.exit_code == 2
    assert "expected finite LOW < HIGH" in result.stderr
