"""A proxy in a process of its own, its store, and a client of it."""

import json
import os
import signal
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from tau_live.core.records import Rollout, RolloutConfig, Span
from tau_live.store.opening import open_at
from tests.serve.upstream import Upstream

CHAT = "/v1/chat/completions"
SECRET = "sk-proj-0123456789abcdef0123456789abcdef"
BODY = {
    "model": "gpt-5-mini", "max_tokens": 20,
    "messages": [{"role": "user", "content": f"The password is hunter2, the key {SECRET}."}],
}  # fmt: skip


class Gateway:
    """A proxy that runs, its store, and a client of it.

    Attributes:
        own: The rollout of this test, whose first attempt is under way; ``other`` is another.
    """

    def __init__(self, folder: Path, upstream: Upstream, *words: str, **environ: str) -> None:
        self.store = folder / "store.sqlite"
        self.log = folder / "proxy-attribution.jsonl"
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tau_live.cli", "proxy", "--upstream-url",
             f"{upstream.url}/v1", "--bind", "127.0.0.1:0", "--store", str(self.store), "--json",
             *words],
            stdout=subprocess.PIPE, text=True, cwd=folder, env={**os.environ, **environ},
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.wait()
        self.url = json.loads(line)["url"]
        self.client = httpx.Client(base_url=self.url, timeout=20.0)
        self.begin()

    def begin(self) -> None:
        """Let a worker claim two new rollouts."""
        self.own, self.other = f"r-{uuid.uuid4().hex[:8]}", f"s-{uuid.uuid4().hex[:8]}"
        with closing(open_at(self.store)) as store:
            for name in (self.own, self.other):
                config = RolloutConfig(max_attempts=2)
                store.queue.enqueue(Rollout(rollout_id=name, config=config))
                assert store.queue.claim("w-1") is not None
        self.by_path = f"/rollout/{self.own}/attempt/1{CHAT}"

    def close(self) -> None:
        self.client.close()
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=20)
        assert self.process.returncode in {0, 130}

    def post(self, path: str = "", /, **headers: str) -> httpx.Response:
        own = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(path or self.by_path, json=BODY, headers=own)

    def spans(self, rollout_id: str = "") -> list[Span]:
        with closing(open_at(self.store, read_only=True)) as store:
            return [
                span
                for span in store.find(Span, limit=1000).records
                if (span.rollout_id, span.kind) == (rollout_id or self.own, "model")
            ]

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]
