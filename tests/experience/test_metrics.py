"""Files of metrics: one row for each key, and memory that does not grow with them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tau_live.experience.metrics import append_rows, fold, rows_in
from tests.experience.test_runner import environ

ROW = {"run_id": "tfg-a-1", "phase": "train", "epoch": 1, "token_total": 5, "cost_usd": 0.5}


def test_a_row_is_appended_once_and_a_torn_line_is_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    other = {**ROW, "epoch": 2}
    append_rows(path, [ROW])
    with path.open("ab") as file:
        file.write(b'{"run_id": "tfg-a-1", "pha')

    append_rows(path, [ROW, other])

    assert list(rows_in(path)) == [ROW, other]


def test_lines_that_somebody_edited_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_rows(path, [ROW])
    with path.open("ab") as file:
        file.write(b'tfg-a-1 {broken\n[1]\n{"note": "by hand"}\n')

    append_rows(path, [ROW])

    rows = list(rows_in(path))
    assert rows == [ROW, {"note": "by hand"}]
    assert fold(rows)["runs"]["tfg-a-1"]["token_total"] == 5  # type: ignore[index]


READ = """
import re
import sys
from pathlib import Path
from tau_live.experience.metrics import append_rows, fold, rows_in
path = Path(sys.argv[1])
append_rows(path, [{"run_id": "tfg-new-1", "phase": "train", "epoch": 1}])
runs = len(fold(rows_in(path))["runs"])
print(runs, re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_history(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    pad = 1000 * "."
    with path.open("w") as file:
        for number in range(200_000):
            run, epoch = f"tfg-{number % 50}", number // 50
            file.write(json.dumps({**ROW, "run_id": run, "epoch": epoch, "pad": pad}) + "\n")
    assert path.stat().st_size > 200_000_000

    done = subprocess.run(
        [sys.executable, "-P", "-c", READ, str(path)], text=True, capture_output=True, check=True,
        env=environ(tmp_path),
    )  # fmt: skip

    runs, kilobytes = map(int, done.stdout.split())
    assert runs == 51
    assert kilobytes < 100_000
