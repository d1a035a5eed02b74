"""Each door attaches to the host of an unchanged agent; none does anything while we are off."""

import json
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.scratch import ROOT, Scratch

pytestmark = pytest.mark.slow
RUN = ("-m", "tau_live.cli", "run", "--")


def runs(scratch: Scratch) -> list[tuple[str, str]]:
    """Return host and key of every stored rollout."""
    found = json.loads(scratch.cli("rollouts", "--json"))
    return sorted((one["host"], one["run_id"]) for one in found["rollouts"])


def left(scratch: Scratch) -> list[str]:
    return sorted(path.name for path in scratch.folder.iterdir() if path.name != "__pycache__")


def test_run_attaches_to_a_script(scratch: Scratch) -> None:
    said = scratch.said(*RUN, scratch.python, "agent.py", "rye")

    assert said == "ran rye\n"
    assert runs(scratch) == [("bakery", "rye")]


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["agent.py", "rye"], id="a Python file"),
        pytest.param(["-m", "agent", "rye"], id="a module"),
        pytest.param(["./script", "rye"], id="a program that starts a Python"),
    ],
)
def test_run_takes_what_is_run_as_it_is_usually_given(scratch: Scratch, command: list[str]) -> None:
    script = scratch.write("script", f'#!/bin/sh\nexec "{scratch.python}" agent.py "$@"\n')
    script.chmod(0o755)

    said = scratch.said("-m", "tau_live.cli", "run", *command)

    assert said == "ran rye\n"
    assert runs(scratch) == [("bakery", "rye")]


def test_run_attaches_to_pytest(scratch: Scratch) -> None:
    scratch.write("test_it.py", "import bakery\n\n\ndef test_it():\n    bakery.call('tested')\n")

    scratch.said(*RUN, scratch.python, "-m", "pytest", "-q", "-p", "no:cacheprovider")

    assert runs(scratch) == [("bakery", "tested")]


def test_run_ends_as_its_command_does(scratch: Scratch) -> None:
    scratch.write("ends.py", "import sys\n\nsys.exit(7)\n")

    done = scratch.run(*RUN, scratch.python, "ends.py")

    assert (done.returncode, done.stdout, done.stderr) == (7, "", "")


def test_run_of_what_is_not_there_says_so_in_one_line(scratch: Scratch) -> None:
    done = scratch.run(*RUN, "no-such-program")

    assert (done.returncode, done.stderr) == (1, "tau-live: no-such-program: no such program\n")


def test_run_runs_the_sitecustomize_that_it_hides(scratch: Scratch) -> None:
    scratch.write("theirs/sitecustomize.py", "import builtins\n\nbuiltins.theirs = 'was run'\n")
    scratch.write("look.py", "import sys, sitecustomize\nprint(theirs, sitecustomize.__file__)")
    theirs = str(scratch.folder / "theirs")

    said = scratch.said(*RUN, scratch.python, "look.py", environ=scratch.environ(PYTHONPATH=theirs))

    assert said == f"was run {theirs}/sitecustomize.py\n"


def test_run_boots_behind_a_sitecustomize_that_raises(scratch: Scratch) -> None:
    scratch.write("theirs/sitecustomize.py", "raise ValueError('theirs')\n")
    environ = scratch.environ(PYTHONPATH=str(scratch.folder / "theirs"))

    done = scratch.run(*RUN, scratch.python, "agent.py", "rye", environ=environ)

    alone = scratch.run("agent.py", "rye", environ={**environ, "TAU_LIVE_RL": "0"})
    assert (done.stdout, done.returncode) == ("ran rye\n", 0)
    assert "ValueError: theirs" in done.stderr
    assert done.stderr == 2 * alone.stderr  # told by the Python of tau-live and by the agent's
    assert runs(scratch) == [("bakery", "rye")]


def test_run_leaves_the_search_path_as_it_was(scratch: Scratch) -> None:
    scratch.write("look.py", "import sys\nprint(sys.path)")

    said = scratch.said(*RUN, scratch.python, "look.py")

    assert said == scratch.said("look.py")


def test_a_python_without_us_is_run_without_us(scratch: Scratch) -> None:
    (scratch.site / "_ours.pth").unlink()
    environ = scratch.environ(PYTHONPATH=str(ROOT / "tau_live/boot/on_path"))

    done = scratch.run("agent.py", "rye", environ=environ)

    assert (done.stdout, done.returncode) == ("ran rye\n", 0)
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("tau-live: not in ")


@pytest.mark.parametrize("first", ["import bakery", "import tau_live.auto"])
def test_auto_attaches_also_to_what_was_imported_before(scratch: Scratch, first: str) -> None:
    code = f"{first}; import tau_live.auto; import bakery; bakery.call('rye')"

    scratch.said("-c", code)

    assert runs(scratch) == [("bakery", "rye")]


def test_doors_that_open_one_after_the_other_attach_once(scratch: Scratch) -> None:
    code = "import tau_live.auto; from tau_live.boot.boot import boot, boot_state; boot('auto');"
    code += "import bakery; boot('mine'); bakery.call('rye'); print(boot_state()[0])"

    said = scratch.said(*RUN, scratch.python, "-c", code)

    assert said == "('run', 'auto', 'mine')\n"
    assert runs(scratch) == [("bakery", "rye")]


@pytest.mark.parametrize(
    ("group", "load"),
    [
        pytest.param(
            "llm",
            "import pluggy; print(pluggy.PluginManager('llm').load_setuptools_entrypoints('llm'))",
            id="llm: its pluggy manager",
        ),
        pytest.param(
            "opentelemetry_instrumentor",
            "from importlib.metadata import entry_points as found\n"
            "for one in found(group='opentelemetry_instrumentor'):\n"
            "    if one.dist.version == '1.2.3': one.load()().instrument(skip_dep_check=True)\n"
            "print(1)",
            id="opentelemetry-instrument",
        ),
    ],
)
def test_a_hosts_own_entry_points_attach(scratch: Scratch, group: str, load: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own = "".join(f"{k} = {v}\n" for k, v in project["entry-points"][group].items())
    scratch.install("installed", "", f"[{group}]\n{own}")

    said = scratch.said("-c", f"{load}\nimport bakery; bakery.call('rye')")

    assert said == "1\n"
    assert runs(scratch) == [("bakery", "rye")]


FALSY = [None, "", "0", "perhaps"]
LOOK = """
import sys
import bakery
bakery.call("rye")
heavy = {"numpy", "wrapt", "structlog", "pluggy", "msgspec", "sqlite3", "bakery_hook"}
print(heavy & set(sys.modules), [finder for finder in sys.meta_path if "wrapt" in repr(finder)])
"""


@pytest.mark.parametrize("switch", FALSY)
@pytest.mark.parametrize("door", ["run", "autostart", "auto"])
def test_off_is_off_at_every_door(scratch: Scratch, door: str, switch: str | None) -> None:
    scratch.write("look.py", LOOK if door != "auto" else f"import tau_live.auto\n{LOOK}")
    if door == "autostart":
        scratch.cli("autostart", "enable")
    before = left(scratch)

    done = scratch.run(
        *(RUN if door == "run" else ()),
        *([scratch.python] if door == "run" else []),
        "look.py",
        environ=scratch.environ(switch),
    )

    assert (done.stdout, done.returncode) == ("set() []\n", 0), done.stderr
    assert left(scratch) == before


def test_a_process_without_a_host_starts_nothing(scratch: Scratch) -> None:
    before = left(scratch)

    said = scratch.said(
        *RUN, scratch.python, "-c", "import sys, threading; print('numpy' in sys.modules,"
        " threading.active_count())",
    )  # fmt: skip

    assert said == "False 1\n"
    assert left(scratch) == before


def test_off_under_autostart_imports_nothing_of_ours(scratch: Scratch) -> None:
    scratch.cli("autostart", "enable")
    code = "import sys; print([name for name in sys.modules if name.startswith('tau_live')])"

    said = scratch.said("-c", code, environ=scratch.environ(None))

    assert said == "[]\n"


def test_a_signal_reaches_what_is_run(scratch: Scratch) -> None:
    scratch.write("waits.py", "import signal, sys\nprint('up', flush=True)\nsignal.pause()\n")
    command = [str(scratch.python), *RUN, str(scratch.python), "waits.py"]
    with subprocess.Popen(
        command, cwd=scratch.folder, env=scratch.environ(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()

        process.terminate()

        assert process.wait(30) == -15


def test_the_store_is_where_the_agent_runs(scratch: Scratch) -> None:
    scratch.said(*RUN, scratch.python, "agent.py", "rye")

    assert (scratch.folder / Path(".tau/live/store.sqlite")).is_file()
