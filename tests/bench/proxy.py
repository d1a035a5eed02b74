"""The proxy: what it adds until the first byte of a stream, and how many calls it takes a second.

Upstream, proxy and clients are processes of their own, on the same machine.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import click
import httpx

from tests.bench.items import Found, print_figures
from tests.bench.living import ROOT
from tests.bench.timing import LEAST_ROUNDS
from tests.serve.gateway import BODY, CHAT, Gateway
from tests.serve.upstream import Upstream

CALLS, CLIENTS, SECONDS = 40, 16, 3.0
ASKED = {**BODY, "model": "tau/answer"}
SETTINGS = """
[tool.tau-live.models.answer.options]
small = { model = "gpt-5-mini" }
large = { model = "gpt-5" }
"""


@contextmanager
def upstream(mode: str) -> Iterator[Upstream]:
    """Start an upstream in a process of its own; yields what names its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.proxy", "--upstream", mode], cwd=ROOT,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        if process.stdout is None:
            raise RuntimeError("it has no output")
        own = Upstream()
        own.server_close()
        own.url = process.stdout.readline().strip()
        yield own
    finally:
        process.terminate()
        process.communicate()


async def first_byte_ms(client: httpx.AsyncClient, url: str) -> float:
    """Return the milliseconds until the first byte of an answer."""
    began = time.perf_counter()
    async with client.stream("POST", url, json=BODY) as response:
        async for _ in response.aiter_raw():
            return 1000 * (time.perf_counter() - began)
    raise RuntimeError("it has no answer")


async def added_ms(direct: str, through: str) -> float:
    """Return the median of what the proxy adds, call by call in turn."""
    async with httpx.AsyncClient() as client:
        pairs = [
            (await first_byte_ms(client, through)) - (await first_byte_ms(client, direct))
            for _ in range(CALLS)
        ]
    return statistics.median(pairs)


def calls_a_second(url: str, body: dict[str, object]) -> float:
    """Return how many calls are answered a second, by clients in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.proxy", "--client", url, json.dumps(body)], cwd=ROOT,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(done.stdout)


def answered(url: str, body: object) -> float:
    """Call for a while, and return how many calls were answered a second."""
    parts, content = urlsplit(url), json.dumps(body).encode()
    end, counts = time.monotonic() + SECONDS, []

    def call() -> None:
        connection = HTTPConnection(parts.netloc, timeout=30.0)
        while time.monotonic() < end:
            connection.request("POST", parts.path, content, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            if response.status != 200:
                raise RuntimeError(f"it answers {response.status}")
            counts.append(1)
        connection.close()

    with ThreadPoolExecutor(CLIENTS) as pool:
        for done in [pool.submit(call) for _ in range(CLIENTS)]:
            done.result()
    return len(counts) / SECONDS


def measure(rounds: int) -> list[Found]:
    """Measure each in turn."""
    added: list[float] = []
    forwarded: list[float] = []
    decided: list[float] = []
    os.environ["TAU_LIVE_RL"] = "1"
    with TemporaryDirectory(prefix="tau-live-bench-") as name, upstream("stream") as streaming:
        with upstream("whole") as whole:
            for number in range(rounds):
                folder = Path(name, str(number))
                folder.mkdir()
                (folder / "pyproject.toml").write_text(SETTINGS)
                gateway = Gateway(folder, streaming)
                through = f"{gateway.url}{gateway.by_path}"
                added.append(asyncio.run(added_ms(f"{streaming.url}{CHAT}", through)))
                gateway.close()
                gateway = Gateway(folder, whole)
                through = f"{gateway.url}{gateway.by_path}"
                forwarded.append(calls_a_second(through, {**BODY}))
                decided.append(calls_a_second(f"{gateway.url}{CHAT}", {**ASKED}))
                gateway.close()
    return [
        Found("ms that it adds until the first byte of a stream", added, 20.0),
        Found("calls a second, each a span of its attempt", forwarded, 200.0, at_least=True),
        Found("calls a second, each a decision between two models", decided, 200.0, at_least=True),
    ]


@click.command(name="proxy", help="What the proxy adds, and how many calls it takes a second")
@click.option("--rounds", default=LEAST_ROUNDS, show_default=True, type=click.IntRange(min=1))
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def main(rounds: int, as_json: bool) -> None:
    """Measure, and print a table."""
    print_figures("proxy", "The proxy", measure(rounds), as_json=as_json)


def _serve(mode: str) -> None:
    own = Upstream()
    own.mode = mode
    sys.stdout.write(f"{own.url}\n")
    sys.stdout.flush()
    own.serve_forever()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--upstream"]:
        _serve(sys.argv[2])
    elif sys.argv[1:2] == ["--client"]:
        sys.stdout.write(str(answered(sys.argv[2], json.loads(sys.argv[3]))))
    else:
        main()
