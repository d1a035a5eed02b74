"""A dashboard in a process of its own, and a client of it."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx


class Served:
    """A dashboard that runs.

    Attributes:
        url: Where it listens.
        client: A client of it.
        process: Its process.
    """

    def __init__(self, *words: str | Path, environ: Mapping[str, str] = {}) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tau_live.cli", "dashboard", "--bind", "127.0.0.1:0",
             "--json", *map(str, words)],
            stdout=subprocess.PIPE, text=True, env={**os.environ, **environ},
        )  # fmt: skip
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.wait()
        self.url = json.loads(line)["url"]
        self.client = httpx.Client(base_url=self.url, timeout=30.0)
        found = re.search(r'name="csrf" content="([^"]+)"', self.client.get("/").text)
        assert found is not None
        self.csrf = found[1]

    def read(self, path: str, **query: object) -> dict[str, Any]:
        """Return what an endpoint answers."""
        response = self.client.get(path, params={name: str(value) for name, value in query.items()})
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer

    def act(self, action: str, **more: object) -> httpx.Response:
        """Act as the page does."""
        body = {"action": action, "reason": "seen on the page", **more}
        return self.client.post("/dashboard/actions", json=body, headers={"x-tau-csrf": self.csrf})

    def close(self) -> None:
        """End it as Ctrl-C does."""
        self.client.close()
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=20)
        assert self.process.returncode in {0, 130}


@contextmanager
def serving(*words: str | Path, **environ: str) -> Iterator[Served]:
    """Run a dashboard, and end it."""
    served = Served(*words, environ=environ)
    try:
        yield served
    finally:
        served.close()
