import json
import os
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run


def test_figures_are_printed_or_written_for_everybody_to_read(
    filled: Path, run: Run, tmp_path: Path
) -> None:
    out = tmp_path / "tau_live.prom"

    printed = run("metrics", "--store", filled)
    before = os.umask(0o077)  # that of root's cron in many places
    try:
        written = run("metrics", "--store", filled, "--out", out)
    finally:
        os.umask(before)

    assert (written.exit_code, written.output) == (0, "")
    assert out.read_text().splitlines()[0] == printed.stdout.splitlines()[0]
    assert 'tau_live_policy_version{point="model"} 2.0\n' in out.read_text()
    assert out.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".part"] == []


def test_a_file_that_cannot_be_written_stays_what_it_was(
    filled: Path, run: Run, tmp_path: Path
) -> None:
    result = run("metrics", "--store", filled, "--out", tmp_path / "nowhere/tau_live.prom")

    assert result.exit_code == 1
    assert result.stderr == (
        f"tau-live: {tmp_path / 'nowhere/tau_live.prom'} could not be written and is unchanged: "
        "No such file or directory\n"
    )


def test_the_store_itself_is_not_written_over(filled: Path, run: Run) -> None:
    before = filled.read_bytes()

    result = run("metrics", "--store", filled, "--out", filled)

    assert result.exit_code == 2
    assert "is the store itself" in result.stderr
    assert filled.read_bytes() == before


def test_without_the_library_it_says_what_to_install_and_prints_json_all_the_same(
    filled: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    text, data = run("metrics", "--store", filled), run("metrics", "--store", filled, "--json")

    assert (text.exit_code, text.stdout) == (1, "")
    assert "pip install" in text.stderr
    assert text.stderr.count("\n") == 1
    assert json.loads(data.stdout)["metrics"]
