"""The real ``llm`` command with us installed: the same to the byte, and never out of order."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.scratch import Scratch

pytest.importorskip("llm")

pytestmark = pytest.mark.slow

PLUGIN = '''
import json

import llm


class Geographer(llm.Model):
    can_stream = True
    supports_tools = True
    supports_schema = True
    attachment_types = {"image/png"}

    class Options(llm.Options):
        loud: bool | None = None

    def __init__(self, model_id, answer):
        self.model_id, self.answer = model_id, answer

    def execute(self, prompt, stream, response, conversation):
        response.set_usage(input=5, output=2)
        if "break" in prompt.prompt:
            yield "half "
            raise ConnectionError("nobody there")
        if "upper" in prompt.prompt and not prompt.tool_results:
            response.add_tool_call(llm.ToolCall("upper", {"text": "x"}, tool_call_id="call-1"))
            return
        yield self.answer.upper() if prompt.options.loud else self.answer
        told = [prompt.system, bool(prompt.schema), len(prompt.messages), len(prompt.attachments)]
        yield json.dumps([*told, [str(one) for one in prompt.fragments]])


@llm.hookimpl
def register_models(register):
    register(Geographer("small", "nowhere "))
    register(Geographer("large", "Paris "))


@llm.hookimpl
def register_tools(register):
    def upper(text: str) -> str:
        """In capitals."""
        return text.upper()

    register(upper)
'''
SCHEMA = '{"type": "object", "properties": {"city": {"type": "string"}}}'
COMMANDS = (
    pytest.param(["hello"], id="a prompt"),
    pytest.param(["hello", "--no-stream", "--usage"], id="not streamed"),
    pytest.param(["upper", "-T", "upper", "--td"], id="a tool"),
    pytest.param(["break"], id="an error in the middle"),
    pytest.param(["hello", "-s", "Be good.", "-o", "loud", "1"], id="instructions and options"),
    pytest.param(["hello", "-o", "quiet", "1"], id="an option that it has not"),
    pytest.param(["hello", "-t", "mood", "-p", "mood", "kind"], id="a template"),
    pytest.param(["hello", "-f", "fragment.txt", "-a", "image.png"], id="what is attached"),
    pytest.param(["hello", "-a", "fragment.txt"], id="what cannot be attached"),
    pytest.param(["hello", "--schema", SCHEMA], id="a schema"),
)


WARM_UP = """
import tau_live

with tau_live.run("warm up") as run:
    run.reward(1.0)
    run.decide("tool_gate", ["a", "b"], default="a")
tau_live.flush()
"""
ANEW = """
import sys

import llm

llm.get_model("tau")
for name in [name for name in sys.modules if name.partition(".")[0] in ("llm", "llm_geographer")]:
    del sys.modules[name]

import llm
import tau_live
from tau_live.core.hookspecs import Answer, hookimpl


class Always:
    @hookimpl
    def decide(self, request):
        return Answer(option=next(iter(request.options)), probability=1.0)


def upper(text: str) -> str:
    return text.upper()


tau_live.attach().plugins.register(Always(), name="always")
tau_live.flush()  # what is in force has been read
chain = llm.get_model("tau").chain("upper", tools=[upper])
chain.text()
last = chain._responses[-1]
print(last.prompt.tool_results[0].output, last.resolved_model)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Scratch:
    """Return an environment with llm, us, and a plugin with two models and a tool."""
    scratch = Scratch(tmp_path_factory.mktemp("llm"))
    scratch.install("llm_geographer", PLUGIN, "[llm]\ngeographer = llm_geographer\n")
    scratch.write("user/templates/mood.yaml", "system: Be $mood.\nprompt: Say $input\n")
    scratch.write("user/aliases.json", json.dumps({"tau-default": "small"}))
    scratch.write("fragment.txt", "a fragment")
    (scratch.folder / "image.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    declared = '[tool.tau-live.decisions.model]\noptions = ["small", "large"]\n'
    scratch.write("pyproject.toml", declared)
    return scratch


def called(
    home: Scratch, *arguments: str, switch: str = "0", **more: str
) -> subprocess.CompletedProcess[str]:
    """Run ``llm`` with arguments."""
    environ = home.environ(switch, LLM_USER_PATH=str(home.folder / "user"), **more)
    return home.run("-W", "ignore::DeprecationWarning", "-m", "llm", *arguments, environ=environ)


def shown(done: subprocess.CompletedProcess[str]) -> tuple[str, str, int]:
    return done.stdout, done.stderr, done.returncode


@pytest.mark.parametrize("arguments", COMMANDS)
def test_tau_is_another_name_for_its_model_in_every_condition(
    home: Scratch, arguments: list[str]
) -> None:
    alone = shown(called(home, *arguments, "-m", "small"))

    seen = shown(called(home, *arguments, "-m", "small", switch="1"))
    off = shown(called(home, *arguments, "-m", "tau"))
    acting = shown(called(home, *arguments, "-m", "tau", switch="1", TAU_LIVE_RL_ACT="1"))

    assert [seen, off, acting] == [alone, alone, alone]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"TAU_LIVE_RL_STORE": "fragment.txt/store.sqlite"}, id="no store"),
        pytest.param({"TAU_LIVE_RL_SEED": "many"}, id="a wrong setting"),
        pytest.param({"PYTHONPATH": "broken"}, id="an installation that is broken"),
    ],
)
def test_what_is_wrong_with_us_changes_no_command(home: Scratch, more: dict[str, str]) -> None:
    home.write("broken/wrapt.py", "raise ImportError('broken on purpose')\n")
    alone = called(home, "hello", "-m", "small")

    done = called(home, "hello", "-m", "tau", switch="1", **more)

    assert (done.stdout, done.returncode) == (alone.stdout, 0)
    assert "Traceback" not in done.stderr


def test_without_our_package_being_whole_llm_runs(home: Scratch) -> None:
    home.write("half/tau_live_hooks/__init__.py", "raise ValueError('broken on purpose')\n")

    done = called(home, "hello", "-m", "small", switch="1", PYTHONPATH="half")

    assert (done.stdout.split()[0], done.returncode) == ("nowhere", 0)


def test_tau_as_the_default_stays_when_we_are_switched_off(home: Scratch) -> None:
    assert called(home, "models", "default", "tau").returncode == 0

    done = called(home, "hello")

    (home.folder / "user/default_model.txt").unlink()
    assert (done.stdout.split()[0], done.returncode) == ("nowhere", 0)


def test_a_conversation_goes_on_with_tau(home: Scratch) -> None:
    called(home, "hello", "-m", "tau")

    done = called(home, "-c", "again")

    logged = json.loads(called(home, "logs", "-n", "1", "--json").stdout)
    assert done.returncode == 0
    assert done.stdout == 'nowhere ["", false, 3, 0, []]\n'
    assert (logged[0]["model"], logged[0]["resolved_model"]) == ("tau", "small")


def test_the_runs_of_the_command_are_stored_by_its_own_ids(home: Scratch) -> None:
    store = {"TAU_LIVE_RL_STORE": str(home.folder / "own/store.sqlite")}
    called(home, "upper", "-m", "small", "-T", "upper", switch="1", **store)
    logged = json.loads(called(home, "logs", "-n", "2", "--json").stdout)

    found = json.loads(home.cli("rollouts", "--json", environ=home.environ(**store)))

    [run] = found["rollouts"]
    assert (run["host"], run["name"], run["status"]) == ("llm", "chain", "succeeded")
    assert run["run_id"] == logged[0]["id"]
    assert run["session_id"] == logged[0]["conversation_id"]


def test_its_status_is_told(home: Scratch) -> None:
    off = json.loads(called(home, "tau-status", "--json").stdout)
    on = json.loads(called(home, "tau-status", "--json", switch="1").stdout)
    read = called(home, "tau-status", switch="1").stdout

    assert off == {"on": False, "asks": "small", "may_ask": [], "unknown": []}
    assert (on["on"], on["adapter"], on["may_ask"]) == (True, "attached", ["small", "large"])
    assert "tau uses   small" in read


def test_an_llm_that_is_imported_anew_is_served_too(home: Scratch) -> None:
    environ = home.environ(
        LLM_USER_PATH=str(home.folder / "user"),
        TAU_LIVE_RL_STORE=str(home.folder / "anew/store.sqlite"),
        TAU_LIVE_RL_DECISIONS='{tool_gate = {options = {no = "Ask first."}}}',
        TAU_LIVE_RL_ACT="1",
    )
    home.said("-c", WARM_UP, environ=environ)
    home.cli("policy", "exposure", "tool_gate", "1", "--reason", "test", environ=environ)

    done = home.run("-c", ANEW, environ=environ)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "Cancelled: Ask first. small\n"


def test_switched_off_nothing_is_made_and_nothing_heavy_imported(
    home: Scratch, tmp_path: Path
) -> None:
    code = (
        "import sys; from llm.cli import cli; import llm; llm.get_model('tau');"
        "heavy = {'msgspec', 'wrapt', 'structlog', 'tau_live.runtime.runtime'};"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    environ = home.environ("0", LLM_USER_PATH=str(home.folder / "user"))
    before = sorted(path.name for path in home.folder.iterdir())

    done = home.run("-c", code, environ=environ)

    assert (done.stdout, done.stderr) == ("[]\n", "")
    assert sorted(path.name for path in home.folder.iterdir()) == before
