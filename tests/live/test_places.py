"""Where a store is when the host goes elsewhere, or when there is nowhere to be."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tau_live
from tau_live.core.settings import Learner, Settings
from tests.live.running import done, process, rollouts

GONE = """
import logging, os, pathlib, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s")
gone = pathlib.Path("gone").absolute()
gone.mkdir()
os.chdir(gone)
gone.rmdir()
import tau_live
with tau_live.run("one") as run:
    print(run.decide("model", ["a", "b"], default="b").option)
print(tau_live.flush(30), tau_live.snapshot()["enabled"])
"""


def test_a_host_that_goes_elsewhere_leaves_its_store_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    settings = Settings(
        store=Path("store.sqlite"),
        record=Path("events.jsonl"),
        audit_key_file=Path("key"),
        learner=Learner.FLUSH,
    )
    tau_live.detach()
    assert tau_live.attach(settings) is not None

    os.chdir(tmp_path / "there")
    for number in range(8):
        with tau_live.run("job") as run:
            run.decide("p", ["a", "b"])
            run.reward(float(number % 2))
    flushed = tau_live.flush(30)
    again = tau_live.attach(settings)
    refused = tau_live.snapshot()["refused"]
    tau_live.detach()

    assert flushed
    assert again is not None
    assert refused == {}
    assert list((tmp_path / "there").iterdir()) == []
    assert len(rollouts(tmp_path / "here" / "store.sqlite")) == 8
    assert (tmp_path / "here" / "store-policies").is_dir()
    assert (tmp_path / "here" / "events.jsonl").is_file()


@pytest.mark.slow
def test_without_a_folder_to_run_in_an_absolute_store_is_used(path: Path) -> None:
    with process(GONE, path, HOME="") as host:
        found = done(host).split("\n")

    assert found[-2] == "True True"
    assert len(rollouts(path)) == 1


@pytest.mark.slow
def test_without_a_folder_to_run_in_a_relative_store_is_refused_in_one_line(path: Path) -> None:
    with process(GONE, path, HOME="", TAU_LIVE_RL_STORE="here/store.sqlite") as host:
        found = done(host).strip().split("\n")

    [refused] = [line for line in found if "settings_refused" in line]
    assert "the current folder no longer exists" in refused
    assert (found[-2:], len(found)) == (["b", "True False"], 3)


ELSEWHERE = """
import multiprocessing, os, subprocess, sys
import tau_live


def work(number):
    with tau_live.run("child", key=number) as run:
        run.decide("model", ["a", "b"])
    return tau_live.flush(30)


CHILD = '''
import os, tau_live
with tau_live.run("child", key="subprocess"):
    pass
print(tau_live.flush(30))
'''

if __name__ == "__main__":
    with tau_live.run("parent") as run:
        tau_live.decide("model", ["a", "b"])
        os.chdir("there")
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.map(work, [1]))
        for environ in (None, {"PATH": os.environ["PATH"], "TAU_LIVE_RL": "1",
                              "PYTHONPATH": os.environ["PYTHONPATH"]}):
            print(subprocess.run([sys.executable, "-c", CHILD], env=environ, check=True,
                                 capture_output=True, text=True).stdout.strip())
    print(subprocess.run([sys.executable, "-c", CHILD.replace("subprocess", "outside")],
                         check=True, capture_output=True, text=True).stdout.strip())
    print(tau_live.flush(30))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "expected"),
    [
        pytest.param("stored/here.sqlite", "stored/here.sqlite", id="a variable"),
        pytest.param("", ".tau/live/store.sqlite", id="the default"),
        pytest.param("", "kept/a.sqlite", id="the project's file"),
    ],
)
def test_children_started_elsewhere_find_the_store_of_their_parent(
    tmp_path: Path, store: str, expected: str
) -> None:
    here = tmp_path / "here"
    (here / "there").mkdir(parents=True)
    if expected.startswith("kept"):
        (here / "pyproject.toml").write_text('[tool.tau-live]\nstore = "kept/a.sqlite"\n')
        (here / "there" / "pyproject.toml").write_text("[tool.tau-live]\nseed = 3\n")
    script = here / "agent.py"
    script.write_text(ELSEWHERE)
    environ = {**os.environ, "TAU_LIVE_RL": "1", "TAU_LIVE_RL_STORE": store,
               "PYTHONPATH": os.pathsep.join(sys.path)}  # fmt: skip

    result = subprocess.run(
        [sys.executable, script], cwd=here, env=environ, capture_output=True, text=True, check=False
    )

    assert result.stdout.split("\n")[:-1] == ["[True]", "True", "True", "True", "True"]
    names = sorted(rollout.name for rollout in rollouts(here / expected))
    assert names == ["child", "child", "child", "parent"]
    assert [file.name for file in (here / "there").iterdir() if file.suffix != ".toml"] == []
