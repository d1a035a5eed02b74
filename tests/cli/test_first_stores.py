"""A store and its export as 0.1.0 wrote both before the house was redrawn (8fb338e).

24 runs with decisions at two points, six updates, a hold and a reset; without the checkpoints of
its versions, which are large.
"""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from tau_live.store.opening import open_at
from tests.cli.conftest import Run

GOLDEN = Path(__file__).parents[1] / "golden" / "store-0.1.0"


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """Unpack the store, and migrate it as a process that writes does."""
    file = tmp_path / "store.sqlite"
    file.write_bytes(gzip.decompress((GOLDEN / "store.sqlite.gz").read_bytes()))
    open_at(file).close()
    return file


def test_its_export_is_the_same_bytes_but_for_spans_of_runs_and_decisions(
    first: Path, run: Run
) -> None:
    exported = run("export", "--store", first)

    lines = exported.stdout_bytes.splitlines(keepends=True)
    spans = [json.loads(line) for line in lines if line.startswith(b'{"table": "spans"')]
    others = b"".join(line for line in lines if not line.startswith(b'{"table": "spans"'))
    assert others == gzip.decompress((GOLDEN / "export.jsonl.gz").read_bytes())
    assert Counter(span["kind"] for span in spans) == {"run": 24, "decision": 48}


def test_none_of_its_seals_is_broken(first: Path, run: Run) -> None:
    report = json.loads(run("verify", "--store", first, "--json").stdout)

    assert report["seals"] > 100
    assert {finding["code"] for finding in report["findings"]} == {"checkpoint"}


def test_it_takes_rewards_for_its_rollouts(first: Path, run: Run) -> None:
    lines = gzip.decompress((GOLDEN / "export.jsonl.gz").read_bytes()).splitlines()
    rollout = json.loads(lines[0])["rollout_id"]

    given = run("reward", "1.0", "--run", rollout, "--name", "late", "--store", first)

    assert (given.exit_code, given.stderr) == (0, "")
    assert "late" in run("show", rollout, "--store", first).stdout
