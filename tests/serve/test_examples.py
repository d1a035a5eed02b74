"""The client for agents in TypeScript, run by Node where that strips types itself."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.conftest import ROOT
from tests.serve.gateway import Gateway
from tests.serve.upstream import Upstream

pytestmark = pytest.mark.slow

LEAST_NODE = 22

AGENT = """
import { Tau } from "./tau.ts";

const tau = new Tau(process.argv[2]);
const inside = await tau.run("triage", async (run) => {
  const options = { search: { usd: 0.1 }, answer: null };
  const choice = await tau.decide("tool", options, { run, context: { words: 7 } });
  return [choice.source, choice.run === run, await tau.reward(choice.decision, 1)];
});
const down = new Tau("http://127.0.0.1:1");
const own = await down.decide("tool", ["a", "b"], { default: "b" });
console.log(JSON.stringify([inside, own.option, await down.reward("x", 1)]));
"""


def node() -> str:
    """Return Node, or skip."""
    found = shutil.which("node")
    if found is None:
        pytest.skip("node is not installed")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
    if int(re.findall(r"\d+", version.stdout)[0]) < LEAST_NODE:
        pytest.skip(f"node strips no types before version {LEAST_NODE}")
    return found


def test_the_client_decides_rewards_and_falls_back(tmp_path: Path) -> None:
    command = node()
    shutil.copy(ROOT / "docs/examples/tau.ts", tmp_path)
    (tmp_path / "agent.ts").write_text(AGENT)
    with Upstream().serving() as upstream:
        gateway = Gateway(tmp_path, upstream, TAU_LIVE_RL="1")
        done = subprocess.run(
            [command, "--experimental-strip-types", "agent.ts", gateway.url], cwd=tmp_path,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        gateway.close()

    assert done.stdout == '[["policy",true,true],"b",false]\n', done.stderr
