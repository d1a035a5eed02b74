"""The proxy: a real process between a client and a real upstream, and what is stored of it."""

import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tau_live.core.records import AttemptStatus, Rollout
from tau_live.store.opening import open_at
from tau_live.store.records import Optimization
from tests.live.running import until
from tests.serve.gateway import BODY, CHAT, SECRET, Gateway
from tests.serve.upstream import ANSWER, NESTED, STREAM, Upstream

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Gateway, Upstream]]:
    with Upstream().serving() as upstream:
        gateway = Gateway(tmp_path_factory.mktemp("proxy"), upstream, "--timeout-ms", "1000")
        yield gateway, upstream
        gateway.close()


@pytest.fixture
def upstream(running: tuple[Gateway, Upstream]) -> Upstream:
    """The upstream, which answers whole."""
    own = running[1]
    own.mode, own.pause_s = "whole", 0.0
    own.requests.clear()
    own.left.clear()
    return own


@pytest.fixture
def gateway(running: tuple[Gateway, Upstream], upstream: Upstream) -> Gateway:
    """A proxy with a rollout of this test."""
    running[0].begin()
    return running[0]


def code_of(response: httpx.Response) -> str:
    error = response.json()["error"]
    assert error["type"] == "proxy_error"
    assert error["message"]
    return str(error["code"])


def test_a_call_comes_through_and_is_a_span_of_its_attempt(
    gateway: Gateway, upstream: Upstream
) -> None:
    by_path = gateway.post(authorization=f"Bearer {SECRET}", openai_project="p", x_trace_id="t-1")
    by_header = gateway.post(CHAT, x_rollout_id=gateway.other, x_attempt_id="1", x_sequence_id="4")

    for response in (by_path, by_header):
        assert response.status_code == 200
        assert response.content == json.dumps(ANSWER).encode()
        assert response.headers["x-request-id"] == "req-7"
        assert "set-cookie" not in response.headers
        assert "server" not in response.headers
    (method, path, headers, body), _ = upstream.requests
    assert (method, path) == ("POST", CHAT)
    assert json.loads(body) == BODY
    assert headers["authorization"] == f"Bearer {SECRET}"
    assert headers["openai-project"] == "p"
    assert not {name for name in headers if name.startswith("x-")}
    until(lambda: gateway.spans() and gateway.spans(gateway.other))
    [span], [other] = gateway.spans(), gateway.spans(gateway.other)
    assert span.status == "ok"
    assert span.name == "gpt-5-mini"
    assert span.attributes["usage"] == {"input_tokens": 11.0, "output_tokens": 7.0}
    assert span.attributes["finish_reason"] == "stop"
    assert span.attributes["http_status"] == 200
    assert span.attributes["trace_id"] == "t-1"
    assert other.attributes["sequence"] == 4
    with closing(open_at(gateway.store, read_only=True)) as store:
        assert store.rollouts.rollout(gateway.own).status == "running"


def test_a_stream_comes_through_byte_for_byte(gateway: Gateway, upstream: Upstream) -> None:
    upstream.mode = "stream"

    response = gateway.post()

    assert response.content == STREAM
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    until(gateway.spans)
    [span] = gateway.spans()
    assert span.attributes["streamed"] is True
    assert span.attributes["usage"] == {"input_tokens": 11.0, "output_tokens": 7.0}
    assert span.attributes["response_bytes"] == len(STREAM)
    assert span.attributes["response_id"] == "chatcmpl-2"


def test_chunks_come_as_they_are_sent(gateway: Gateway, upstream: Upstream) -> None:
    upstream.mode, upstream.pause_s = "stream", 0.3

    with gateway.client.stream("POST", gateway.by_path, json=BODY) as response:
        times = [time.monotonic() for _ in response.iter_raw()]

    assert len(times) >= 5
    assert times[-1] - times[0] > 0.9


def test_a_client_that_leaves_ends_the_call_of_the_upstream(
    gateway: Gateway, upstream: Upstream
) -> None:
    upstream.mode = "slow_stream"

    with gateway.client.stream("POST", gateway.by_path, json=BODY) as response:
        next(response.iter_raw())

    assert upstream.left.wait(3.0)
    until(gateway.spans)
    [span] = gateway.spans()
    assert (span.status, span.attributes["error"]) == ("error", "client_left")


def test_texts_are_kept_without_secrets_where_the_settings_say_so(
    tmp_path: Path, upstream: Upstream
) -> None:
    gateway = Gateway(tmp_path, upstream, TAU_LIVE_RL_CONTENT="redacted")
    gateway.post(authorization=f"Bearer {SECRET}")
    until(gateway.spans)
    gateway.close()

    [span] = gateway.spans()
    assert span.attributes["output"] == "It is 7 kg."
    assert "The password" in str(span.attributes["input"])
    for path in tmp_path.iterdir():
        assert SECRET.encode() not in path.read_bytes(), path


def test_no_text_and_no_key_is_on_disk(gateway: Gateway) -> None:
    gateway.post(authorization=f"Bearer {SECRET}")
    until(gateway.spans)

    for path in gateway.store.parent.iterdir():
        content = path.read_bytes()
        assert SECRET.encode() not in content, path
        assert b"hunter2" not in content, path
        assert b"It is 7 kg" not in content, path


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({}, "missing required header 'x-rollout-id'"),
        ({"x-rollout-id": "r-1"}, "missing required header 'x-attempt-id'"),
        ({"x-attempt-id": "1"}, "missing required header 'x-rollout-id'"),
        ({"x-rollout-id": "", "x-attempt-id": "1"}, "header 'x-rollout-id' cannot be empty"),
        ({"x-rollout-id": b"\xff", "x-attempt-id": "1"},
         "header 'x-rollout-id' must be valid utf-8"),
        ({"x-rollout-id": "r-1", "x-attempt-id": "-1"},
         "header 'x-attempt-id' must be an unsigned integer"),
        ({"x-rollout-id": "r-1", "x-attempt-id": "1", "x-sequence-id": "1.5"},
         "header 'x-sequence-id' must be an unsigned integer"),
        ({"x-rollout-id": "r-1", "x-attempt-id": "9" * 5000},
         "header 'x-attempt-id' must be an unsigned integer"),
    ],
)  # fmt: skip
def test_a_call_that_names_no_attempt_is_refused(
    gateway: Gateway, upstream: Upstream, headers: dict[str, Any], message: str
) -> None:
    response = gateway.client.post(CHAT, json=BODY, headers=headers)

    assert response.status_code == 400
    assert code_of(response) == "training_proxy_missing_or_invalid_attribution_header"
    assert response.json()["error"]["message"] == message
    assert upstream.requests == []


def test_a_path_and_a_header_that_differ_are_refused(gateway: Gateway) -> None:
    response = gateway.post(x_rollout_id=gateway.other)

    assert response.status_code == 400
    assert gateway.post(x_rollout_id=gateway.own, x_attempt_id="1").status_code == 200


def test_unknown_and_ended_attempts_are_not_forwarded(gateway: Gateway, upstream: Upstream) -> None:
    with closing(open_at(gateway.store)) as store:
        store.queue.finish(gateway.other, 1, AttemptStatus.FAILED)
    unknown = gateway.post(f"/rollout/r-9/attempt/1{CHAT}")
    no_attempt = gateway.post(f"/rollout/{gateway.own}/attempt/7{CHAT}")
    ended = gateway.post(f"/rollout/{gateway.other}/attempt/1{CHAT}")

    assert (unknown.status_code, code_of(unknown)) == (404, "training_proxy_unknown_rollout")
    assert (no_attempt.status_code, code_of(no_attempt)) == (404, "training_proxy_unknown_rollout")
    assert (ended.status_code, code_of(ended)) == (409, "training_proxy_attempt_ended")
    assert upstream.requests == []


def test_a_call_that_the_budget_has_no_room_for_is_not_forwarded(
    gateway: Gateway, upstream: Upstream
) -> None:
    with closing(open_at(gateway.store)) as store:
        run = store.optimizations.create(
            Optimization(
                run_id="", config_digest="ab" * 32, config_path="/", config={}, model_ref="m",
                store_path="s", created_at=1.0, incumbent="i",
                report={"limits": {"calls": 1, "tokens": 1000}},
            )
        )  # fmt: skip
        store.queue.enqueue(Rollout(rollout_id=f"b-{gateway.own}", queue=run.run_id))
        assert store.queue.claim("w-2", queues=[run.run_id]) is not None

    first = gateway.post(f"/rollout/b-{gateway.own}/attempt/1{CHAT}")
    second = gateway.post(f"/rollout/b-{gateway.own}/attempt/1{CHAT}")

    assert first.status_code == 200
    assert (second.status_code, code_of(second)) == (429, "training_proxy_budget_exhausted")
    assert len(upstream.requests) == 1
    until(lambda: gateway.spans(f"b-{gateway.own}"))
    with closing(open_at(gateway.store, read_only=True)) as store:
        spent = store.optimizations.run(run.run_id)
    assert (spent.calls, spent.tokens, spent.tokens_reserved) == (1, 18, 0)


@pytest.mark.parametrize(
    ("mode", "status", "code"),
    [
        ("silent", 504, "training_proxy_upstream_timeout"),
        ("reset", 502, "training_proxy_upstream_request_failed"),
        ("broken", 502, "training_proxy_upstream_response_read_failed"),
    ],
)
def test_a_failure_of_the_upstream_has_a_code(
    gateway: Gateway, upstream: Upstream, mode: str, status: int, code: str
) -> None:
    upstream.mode = mode

    response = gateway.post()

    assert (response.status_code, code_of(response)) == (status, code)
    until(gateway.spans)
    assert gateway.lines()[-1]["error_code"] == code
    assert gateway.spans()[0].status == "error"


def test_what_the_upstream_refuses_is_passed_on(gateway: Gateway, upstream: Upstream) -> None:
    upstream.mode = "refused"
    refused = gateway.post()
    upstream.mode = "redirect"
    redirected = gateway.post()

    assert refused.status_code == 429
    assert refused.headers["retry-after"] == "3"
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert refused.content == b'{"error": {"message": "slow down"}}'
    assert redirected.status_code == 302
    assert "location" not in redirected.headers


@pytest.mark.parametrize("mode", ["nested", "odd_header", "gzip", "long"])
def test_an_odd_answer_is_passed_on_as_it_is(
    gateway: Gateway, upstream: Upstream, mode: str
) -> None:
    upstream.mode = mode
    own = gateway.post()
    with httpx.Client(base_url=upstream.url) as direct:
        theirs = direct.post(CHAT, json=BODY)

    assert (own.status_code, own.content) == (200, theirs.content)
    for name in ("content-type", "content-encoding", "x-request-id"):
        assert own.headers.get(name) == theirs.headers.get(name)
    until(gateway.spans)
    assert gateway.spans()[0].status == "ok"


def test_usage_of_a_compressed_answer_is_known(gateway: Gateway, upstream: Upstream) -> None:
    upstream.mode = "gzip"
    gateway.post()
    until(gateway.spans)

    assert gateway.spans()[0].attributes["usage"] == {"input_tokens": 11.0, "output_tokens": 7.0}


def test_a_request_that_is_nested_deeply_is_forwarded(gateway: Gateway, upstream: Upstream) -> None:
    response = gateway.client.post(gateway.by_path, content=NESTED)

    assert response.status_code == 200
    assert upstream.requests[-1][3] == NESTED


def test_a_status_that_is_none_has_a_code(gateway: Gateway, upstream: Upstream) -> None:
    upstream.mode = "odd_status"

    response = gateway.post()

    code = "training_proxy_upstream_response_read_failed"
    assert (response.status_code, code_of(response)) == (502, code)


def test_a_client_that_does_not_wait_ends_the_call_of_the_upstream(
    gateway: Gateway, upstream: Upstream
) -> None:
    upstream.mode = "slow_end"

    with pytest.raises(httpx.ReadTimeout):
        gateway.client.post(gateway.by_path, json=BODY, timeout=0.5)

    assert upstream.left.wait(3.0)
    until(gateway.spans)
    assert gateway.spans()[0].attributes["error"] == "client_left"


@pytest.mark.parametrize("content", [b"no store" * 100, b""], ids=["damaged", "empty"])
def test_a_store_that_cannot_be_used_stops_no_start(
    tmp_path: Path, upstream: Upstream, content: bytes
) -> None:
    store = tmp_path / "store.sqlite"
    store.write_bytes(content)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "tau_live.cli", "proxy", "--upstream-url", upstream.url,
         "--bind", "127.0.0.1:0", "--store", str(store), "--allow-unattributed", "--json"],
        stdout=subprocess.PIPE, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["url"]

    responses = [httpx.post(f"{url}{CHAT}", json=BODY).status_code for _ in range(3)]
    process.terminate()
    process.communicate(timeout=20)

    assert responses == [200, 200, 200]


def test_a_body_that_is_too_large_is_refused(gateway: Gateway, upstream: Upstream) -> None:
    response = gateway.client.post(gateway.by_path, content=b"x" * (16 * 2**20 + 1))

    assert (response.status_code, code_of(response)) == (413, "training_proxy_body_too_large")
    assert upstream.requests == []


def test_only_the_endpoints_that_it_has_are_forwarded(gateway: Gateway, upstream: Upstream) -> None:
    unknown = gateway.post("/v1/files")
    wrong = gateway.client.get(gateway.by_path)
    models = gateway.client.get(f"/rollout/{gateway.own}/attempt/1/v1/models?limit=3")

    assert (unknown.status_code, code_of(unknown)) == (404, "training_proxy_unknown_endpoint")
    assert wrong.status_code == 405
    assert models.json() == {"data": []}
    assert upstream.requests[-1][1] == "/v1/models?limit=3"


@pytest.mark.parametrize(
    "headers",
    [{"host": "evil.example"}, {"origin": "https://evil.example"}, {"origin": "null"}],
)
def test_a_foreign_page_reaches_nothing(
    gateway: Gateway, upstream: Upstream, headers: dict[str, str]
) -> None:
    response = gateway.client.post(gateway.by_path, json=BODY, headers=headers)

    assert response.status_code == 403
    assert upstream.requests == []


def test_a_token_is_wanted_where_there_is_one_and_never_forwarded(
    tmp_path: Path, upstream: Upstream
) -> None:
    file = tmp_path / "token"
    file.write_text("0123456789abcdef\n")
    gateway = Gateway(tmp_path, upstream, "--token-file", str(file))

    without, wrong = gateway.post(), gateway.post(x_tau_token="0123456789abcdeg")
    right = gateway.post(x_tau_token="0123456789abcdef")
    gateway.close()

    assert (without.status_code, wrong.status_code, right.status_code) == (401, 401, 200)
    assert "x-tau-token" not in upstream.requests[-1][2]


def test_an_address_that_others_reach_needs_a_token(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tau_live.cli", "proxy", "--upstream-url", "http://h/v1",
         "--bind", "0.0.0.0:0", "--store", str(tmp_path / "store.sqlite")],
        capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip

    assert (done.returncode, done.stderr) == (
        1, "tau-live: 0.0.0.0 is reached from outside: name a --token-file\n"
    )  # fmt: skip


def test_calls_of_no_attempt_are_forwarded_where_that_is_allowed(
    tmp_path: Path, upstream: Upstream
) -> None:
    gateway = Gateway(tmp_path, upstream, "--allow-unattributed")
    response = gateway.post(CHAT)
    health = gateway.client.get("/training/proxy/health").json()
    gateway.close()

    assert response.status_code == 200
    assert (health["status"], health["forwarded"], health["unattributed"]) == ("ready", 1, 1)
    assert "rollout_id" not in gateway.lines()[0]


def test_a_store_that_is_locked_stops_no_call(gateway: Gateway) -> None:
    with closing(sqlite3.connect(gateway.store, isolation_level=None)) as db:
        db.execute("begin immediate")
        assert gateway.post().status_code == 200
        db.execute("rollback")
    until(gateway.spans)

    assert len(gateway.spans()) == 1


def test_a_log_that_cannot_be_written_stops_no_call_and_is_an_alert(
    tmp_path: Path, upstream: Upstream
) -> None:
    (tmp_path / "proxy-attribution.jsonl").symlink_to("/dev/full")
    gateway = Gateway(tmp_path, upstream, TAU_LIVE_RL="1")

    def alerts() -> list[str]:
        with closing(open_at(gateway.store, read_only=True)) as store:
            return [row.kind for row in store.alerts.latest(limit=10)]

    responses = [gateway.post().status_code for _ in range(3)]
    until(lambda: "events-dropped" in alerts())
    with closing(open_at(gateway.store, read_only=True)) as store:
        counts = store.counters.counts()
    gateway.close()

    assert responses == [200, 200, 200]
    assert counts["dropped_proxy_log_lines"] == 3
    assert "dropped_proxy_calls" not in counts


def test_lines_of_several_processes_are_whole(tmp_path: Path, upstream: Upstream) -> None:
    gateways = [Gateway(tmp_path, upstream) for _ in range(2)]

    def call(gateway: Gateway) -> None:
        with httpx.Client(base_url=gateway.url) as client:
            for _ in range(100):
                assert client.post(gateway.by_path, json=BODY).status_code == 200

    threads = [threading.Thread(target=call, args=(each,)) for each in gateways * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for gateway in gateways:
        gateway.close()

    lines = gateways[0].lines()
    assert len(lines) == 600
    assert {line["status_code"] for line in lines} == {200}
    assert len({line["request_bytes"] for line in lines}) == 1
