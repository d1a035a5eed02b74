"""pydantic-ai is seen, and undisturbed, after it has been reloaded or imported anew."""

from pathlib import Path

import pytest

from tests.live.running import done, process, rollouts

pytest.importorskip("pydantic_ai")

AGENT = """
import asyncio, importlib, sys
import tau_live, tau_live.auto

def ask(name):
    import pydantic_ai
    from pydantic_ai.models.test import TestModel
    agent = pydantic_ai.Agent(TestModel(), name=name)
    agent.tool_plain(lambda: 1, name="look")
    print(asyncio.run(agent.run("what?")).output)

ask("first")
for module in sys.argv[1:]:
    importlib.reload(importlib.import_module(module))
if not sys.argv[1:]:
    for name in [one for one in sys.modules if one.partition(".")[0] == "pydantic_ai"]:
        del sys.modules[name]
ask("second")
assert tau_live.flush(30)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "modules",
    [
        pytest.param(["pydantic_ai"], id="the package"),
        pytest.param(["pydantic_ai.agent", "pydantic_ai"], id="what is wrapped"),
        pytest.param(["pydantic_ai.capabilities", "pydantic_ai"], id="what the adapter builds on"),
        pytest.param([], id="all of it, by another import"),
    ],
)
def test_a_reloaded_host_is_seen_once_and_says_the_same(path: Path, modules: list[str]) -> None:
    with process(AGENT, path, *modules) as agent:
        said = done(agent).splitlines()

    assert said == ['{"look":1}'] * 2
    assert [one.name for one in rollouts(path)] == ["first", "second"]
