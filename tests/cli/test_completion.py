"""What shells are told to complete: asked by the protocol of all three, and by a real bash."""

import os
import pty
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from tau_live.cli import main
from tau_live.core.records import Trial
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Run
from tests.cli.filled import FAILED, SOLVED

PROTOCOL = {
    "bash": lambda words, last: {"COMP_WORDS": words, "COMP_CWORD": last},
    "zsh": lambda words, last: {"COMP_WORDS": words, "COMP_CWORD": last},
    "fish": lambda words, last: {"COMP_WORDS": words, "COMP_CWORD": words.split(" ")[int(last)]},
}
WRAPPER = """#!/bin/sh
exec {python} -m tau_live.cli "$@"
"""


def offered(shell: str, *words: str, store: Path | None = None) -> list[str]:
    """Return what a shell would be told behind ``tau-live``; the last word is only begun."""
    line = " ".join(["tau-live", *words])
    environ = {"_TAU_LIVE_COMPLETE": f"{shell}_complete", **PROTOCOL[shell](line, str(len(words)))}
    if store is not None:
        environ["TAU_LIVE_RL_STORE"] = str(store)
    result = CliRunner().invoke(
        main, [], env=environ, prog_name="tau-live", complete_var="_TAU_LIVE_COMPLETE"
    )
    assert result.stderr == ""
    lines = result.stdout.splitlines()
    if shell == "zsh":
        return lines[1::3]
    return [line.partition(",")[2].split("\t")[0] for line in lines if line]


@pytest.mark.parametrize("shell", PROTOCOL)
def test_ids_versions_points_and_options_are_completed(shell: str, filled: Path) -> None:
    assert offered(shell, "sho") == ["show"]
    assert set(offered(shell, "show", SOLVED[:12], store=filled)) == {SOLVED, FAILED}
    assert offered(shell, "policy", "show", "", store=filled) == ["2", "1"]
    assert offered(shell, "policy", "pin", "mo", store=filled) == ["model"]
    assert "--store" in offered(shell, "status", "--")
    assert offered(shell, "rollouts", "--status", "succ") == ["succeeded"]


def test_the_newest_rollouts_are_offered_where_nothing_is_begun(filled: Path) -> None:
    found = offered("zsh", "show", "", store=filled)

    assert SOLVED in found
    assert len(found) == 5


def test_the_decisions_of_a_rollout_are_offered_behind_its_id(filled: Path) -> None:
    ids = [f"{SOLVED}:attempt-1:decision-{number}" for number in (1, 2, 3)]

    assert offered("bash", "why", SOLVED, store=filled) == [SOLVED, *ids]
    assert offered("bash", "why", ids[1], store=filled) == [ids[1]]
    assert offered("bash", "why", "live-none:a", store=filled) == []


def test_the_store_that_the_line_names_is_asked(filled: Path) -> None:
    found = offered("bash", "updates", "--store", str(filled), "")

    assert found == ["3", "2", "1"]


def test_what_a_shell_would_take_for_its_own_is_not_offered(filled: Path) -> None:
    store = SqliteStore.open(filled)
    bad = ("$(touch evil)", ";x", " del", "\x1b[2J", "`x`", "*", "{a,b}", ",x", "!x", "~")
    for point in (*(f"mo{one}" for one in bad), "moon"):
        store.trials.save(Trial(point=point, revision=1))
    store.close()

    found = {shell: offered(shell, "policy", "pin", "mo", store=filled) for shell in PROTOCOL}

    assert found == {shell: ["model", "moon"] for shell in PROTOCOL}


@pytest.mark.parametrize("content", [None, b"no store at all" * 99])
def test_where_there_is_no_store_nothing_is_offered_and_nothing_said(
    content: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / "store.sqlite"
    if content is not None:
        path.write_bytes(content)
    before = sorted(tmp_path.iterdir())

    assert offered("bash", "show", "", store=path) == []
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("shell", PROTOCOL)
def test_every_shell_has_its_script(shell: str, run: Run) -> None:
    result = run("completion", shell)

    assert result.exit_code == 0
    assert f"_TAU_LIVE_COMPLETE={shell}_complete" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("shell", PROTOCOL)
def test_a_shell_that_is_installed_completes_by_its_script(
    shell: str, filled: Path, tmp_path: Path, run: Run
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin/tau-live"
    command.write_text(WRAPPER.format(python=sys.executable))
    command.chmod(0o755)
    script = tmp_path / "completion"
    script.write_text(run("completion", shell).stdout)
    asks = {
        "bash": f"""
            source {script}
            COMP_WORDS=(tau-live show {SOLVED[:-1]}) COMP_CWORD=2
            _tau_live_completion tau-live
            printf '%s\\n' "${{COMPREPLY[@]}}"
        """,
        "zsh": f"autoload -U compinit; compinit -u; source {script}; whence _tau_live_completion",
        "fish": f"source {script}; complete -C 'tau-live show {SOLVED[:-1]}'",
    }

    told = subprocess.run(
        [shell, "-c", asks[shell]],
        env={
            "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "TAU_LIVE_RL_STORE": str(filled),
            "PYTHONPATH": ":".join(path for path in sys.path if path), "HOME": str(tmp_path),
        },
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert (SOLVED if shell != "zsh" else "_tau_live_completion") in told.stdout
    assert told.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("typed", "stands"),
    [
        (f"tau-live show {SOLVED[:12]}", SOLVED[:-1]),  # two begin so
        (f"tau-live why {SOLVED}:att", f"{SOLVED}:attempt-1:decision-"),
        (f"tau-live reward 1 --decision {SOLVED}:a", f"{SOLVED}:attempt-1:decision-"),
        ("tau-live rollouts --status succ", "succeeded"),
        ("tau-live status --store my\\ st", "my store.sqlite"),
    ],
)
def test_what_is_typed_into_a_bash_stands_there_after_tab(
    typed: str, stands: str, filled: Path, tmp_path: Path, run: Run
) -> None:
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin/tau-live"
    command.write_text(WRAPPER.format(python=sys.executable))
    command.chmod(0o755)
    breaks = "COMP_WORDBREAKS=${COMP_WORDBREAKS//:}\n"  # as the help of the command says
    (tmp_path / "rc").write_text(breaks + run("completion", "bash").stdout)
    (tmp_path / "my store.sqlite").touch()
    environ = {
        "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "TAU_LIVE_RL_STORE": str(filled),
        "PYTHONPATH": ":".join(path for path in sys.path if path), "TERM": "dumb",
    }  # fmt: skip
    terminal, theirs = pty.openpty()
    to_start = b"\x01"  # Ctrl-A

    with subprocess.Popen(
        ["bash", "--noprofile", "--rcfile", tmp_path / "rc", "-i"], stdin=theirs,
        stdout=theirs, stderr=theirs, env=environ, cwd=tmp_path, start_new_session=True,
    ) as bash:  # fmt: skip
        os.close(theirs)
        os.write(terminal, f"{typed}\t".encode() + to_start + b"printf '%s\\n' \x05 >said; exit\n")
        with suppress(OSError):  # the end of a terminal
            while os.read(terminal, 4_096):
                pass
        bash.wait(timeout=30)
    os.close(terminal)

    assert (tmp_path / "said").read_text().splitlines()[-1] == stands
