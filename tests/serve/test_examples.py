"""The clients for agents in TypeScript and in Go, run where Node or Go is at hand."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.conftest import ROOT
from tests.serve.gateway import Gateway
from tests.serve.upstream import Upstream

pytestmark = pytest.mark.slow

AGENT = """
import { Tau } from "./tau.js";

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


def test_the_client_decides_rewards_and_falls_back(tmp_path: Path) -> None:
    node, compiler = shutil.which("node"), shutil.which("tsc")
    if node is None or compiler is None:
        pytest.skip("node or TypeScript is not installed")
    shutil.copy(ROOT / "docs/examples/tau.ts", tmp_path)
    (tmp_path / "agent.ts").write_text(AGENT)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "node.d.ts").write_text("declare const process: { argv: string[] };")
    subprocess.run(
        [compiler, "--strict", "--target", "es2022", "--module", "nodenext", "--lib",
         "es2022,dom", "--types", "", "agent.ts", "node.d.ts"],
        cwd=tmp_path, check=True,
    )  # fmt: skip
    with Upstream().serving() as upstream:
        gateway = Gateway(tmp_path, upstream, TAU_LIVE_RL="1")
        done = subprocess.run(
            [node, "agent.js", gateway.url], cwd=tmp_path, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        gateway.close()

    assert done.stdout == '[["policy",true,true],"b",false]\n', done.stderr


GO_AGENT = """
package main

import (
	"errors"
	"fmt"
	"os"

	"agent/tau"
)

func main() {
	client := tau.Client{URL: os.Args[1]}
	options := map[string]map[string]any{"search": {"usd": 0.1}, "answer": nil}
	err := client.Run("triage", func(run string) error {
		choice := client.Decide(tau.Request{
			Point: "tool", Options: options, Default: "answer", Run: run,
			Context: map[string]any{"words": 7},
		})
		fmt.Println(choice.Source, choice.Run == run, client.Reward(choice.Decision, 1))
		return errors.New("it failed")
	})
	down := tau.Client{URL: "http://127.0.0.1:1"}
	own := down.Decide(tau.Request{Point: "tool", Options: options, Default: "answer"})
	fmt.Println(err, own.Option, own.Source, down.Reward("x", 1))
}
"""


def test_the_client_in_go_does_the_same(tmp_path: Path) -> None:
    command = shutil.which("go")
    if command is None:
        pytest.skip("go is not installed")
    shutil.copytree(ROOT / "docs/examples/tau", tmp_path / "tau")
    (tmp_path / "go.mod").write_text("module agent\n\ngo 1.19\n")
    (tmp_path / "agent.go").write_text(GO_AGENT)
    environ = {**os.environ, "GOCACHE": str(tmp_path / "cache"), "GOFLAGS": "-mod=mod"}
    subprocess.run([command, "vet", "./..."], cwd=tmp_path, env=environ, check=True)
    with Upstream().serving() as upstream:
        gateway = Gateway(tmp_path, upstream, TAU_LIVE_RL="1")
        done = subprocess.run(
            [command, "run", ".", gateway.url], cwd=tmp_path, env=environ,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        gateway.close()

    assert done.stdout == "policy true true\nit failed answer default false\n", done.stderr
