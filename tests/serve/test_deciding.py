"""Agents in any language: a model that is decided, and decisions by HTTP."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tau_live.core.records import Decision, Rollout, RolloutQuery
from tau_live.store.opening import open_at
from tests.live.running import until
from tests.serve.gateway import BODY, CHAT, SECRET, Gateway
from tests.serve.upstream import ANSWER, STREAM, Upstream

pytestmark = pytest.mark.slow

SETTINGS = """
[tool.tau-live.models.answer]
default = "small"
context-headers = ["x-tenant"]
context-metadata = ["lang"]

[tool.tau-live.models.answer.options.small]
model = "gpt-5-mini"
params = { temperature = 0.1 }
features = { usd = 0.1 }

[tool.tau-live.models.elsewhere.options]
one = { model = "qwen3", url = "URL/v1" }
two = { model = "llama", url = "URL/v1", key-env = "LARGE_KEY" }

[tool.tau-live.models.answer.options.large]
model = "gpt-5"
key-env = "LARGE_KEY"
features = { usd = 2.0 }
"""
ASKED = {**BODY, "model": "tau/answer", "metadata": {"lang": "de", "other": 1}}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gateway, Upstream]]:
    folder = tmp_path_factory.mktemp("deciding")
    with Upstream().serving() as upstream:
        (folder / "pyproject.toml").write_text(SETTINGS.replace("URL", upstream.url))
        gateway = Gateway(
            folder, upstream, TAU_LIVE_RL="1", LARGE_KEY="large-key-123",
            TAU_LIVE_RL_UPDATE_INTERVAL="8", TAU_LIVE_RL_REWARDS='{"quality": {"primary": true}}',
        )  # fmt: skip
        yield gateway, upstream
        gateway.close()


@pytest.fixture
def gateway(running: tuple[Gateway, Upstream]) -> Gateway:
    running[1].mode = "whole"
    running[1].requests.clear()
    return running[0]


@pytest.fixture
def upstream(running: tuple[Gateway, Upstream]) -> Upstream:
    return running[1]


def decisions(gateway: Gateway, point: str) -> list[tuple[Rollout, Decision]]:
    with closing(open_at(gateway.store, read_only=True)) as store:
        known = store.rollouts.query(RolloutQuery(limit=None)).rollouts
        return [
            (rollout, decision)
            for rollout in known
            for decision in store.decisions.decisions(rollout.rollout_id)
            if decision.point == point
        ]


def row_of(gateway: Gateway, decision_id: str) -> tuple[Rollout, Decision]:
    def found() -> list[tuple[Rollout, Decision]]:
        return [each for each in decisions(gateway, "answer") if each[1].decision_id == decision_id]

    until(found)
    return found()[0]


def test_a_model_is_decided_logged_and_rewarded_by_the_id_of_its_answer(
    gateway: Gateway, upstream: Upstream
) -> None:
    response = gateway.client.post(CHAT, json=ASKED, headers={"x-tenant": "acme"})
    option = response.headers["x-tau-option"]
    reward = {"id": response.json()["id"], "value": 1.0, "name": "quality"}
    rewarded = gateway.client.post("/tau/reward", json=reward)

    assert response.content == json.dumps(ANSWER).encode()
    assert (rewarded.status_code, rewarded.json()) == (202, {"accepted": True})
    sent = json.loads(upstream.requests[0][3])
    assert sent["model"] == {"small": "gpt-5-mini", "large": "gpt-5"}[option]
    assert sent["messages"] == BODY["messages"]
    assert sent.get("temperature") == {"small": 0.1, "large": None}[option]
    authorization = upstream.requests[0][2].get("authorization")
    assert authorization == {"small": None, "large": "Bearer large-key-123"}[option]
    rollout, decision = row_of(gateway, response.headers["x-tau-decision"])
    assert decision.context == {"x-tenant": "acme", "lang": "de"}
    assert decision.options == ("small", "large")
    assert decision.applied == option
    assert 0.0 < (decision.propensity or 0.0) < 1.0
    with closing(open_at(gateway.store, read_only=True)) as store:
        until(lambda: store.rewards.rewards(rollout.rollout_id))
        [known] = store.rewards.rewards(rollout.rollout_id)
        assert (known.name, known.value) == ("quality", 1.0)
        until(lambda: store.rollouts.rollout(rollout.rollout_id).status == "succeeded")


@pytest.mark.parametrize(("mode", "status"), [("whole", 200), ("stream", 200), ("refused", 429)])
def test_a_call_that_is_decided_is_one_span_and_a_line_of_its_rollout(
    tmp_path: Path, upstream: Upstream, mode: str, status: int
) -> None:
    upstream.mode = mode
    (tmp_path / "pyproject.toml").write_text(SETTINGS.replace("URL", upstream.url))
    gateway = Gateway(tmp_path, upstream, TAU_LIVE_RL="1", TAU_LIVE_RL_CONTENT="redacted")
    response = gateway.client.post(CHAT, json={**ASKED, "stream": mode == "stream"})
    rollout, _ = row_of(gateway, response.headers["x-tau-decision"])
    until(lambda: gateway.spans(rollout.rollout_id) and gateway.lines())
    gateway.close()

    [span] = gateway.spans(rollout.rollout_id)
    known = span.attributes
    own = {"endpoint": CHAT, "http_status": status}
    assert span.status == ("ok" if status == 200 else "error")
    assert span.ended_at is not None
    assert 1000 * (span.ended_at - span.started_at) >= 0.5
    text = json.dumps(known)
    assert [f'"{name}": {json.dumps(value)}' for name, value in own.items()
            if f'"{name}": {json.dumps(value)}' not in text] == []  # fmt: skip
    assert "The password is" in text
    assert SECRET not in text
    if status == 200:
        assert known["usage"] == {"input_tokens": 11.0, "output_tokens": 7.0}
        assert "It is 7 kg." in text
    [line] = gateway.lines()
    assert (line["rollout_id"], line["attempt_id"]) == (rollout.rollout_id, 1)
    assert line["status_code"] == status


def test_a_key_goes_to_no_other_upstream(gateway: Gateway, upstream: Upstream) -> None:
    asked = {**ASKED, "model": "tau/elsewhere"}
    headers = {"authorization": "Bearer mine", "openai-project": "p", "openai-beta": "b"}

    options = {
        gateway.client.post(CHAT, json=asked, headers=headers).headers["x-tau-option"]
        for _ in range(20)
    }

    assert options == {"one", "two"}
    sent = [(json.loads(each[3])["model"], each[2]) for each in upstream.requests]
    assert {(model, known.get("authorization")) for model, known in sent} == {
        ("qwen3", None), ("llama", "Bearer large-key-123")
    }  # fmt: skip
    assert not [known for _, known in sent if "openai-project" in known]
    assert {known["openai-beta"] for _, known in sent} == {"b"}


@pytest.mark.parametrize("text", ["\\ud800", "\\u0000", "x"])
def test_any_json_that_a_client_may_send_comes_through(
    gateway: Gateway, upstream: Upstream, text: str
) -> None:
    content = f'{{"model": "tau/answer", "messages": ["{text}"], "n": NaN, "m": 1e999}}'

    response = gateway.client.post(CHAT, content=content.encode())

    assert response.status_code == 200
    assert b"NaN" in upstream.requests[0][3]


def test_a_stream_of_a_model_that_is_decided_is_the_upstreams(
    gateway: Gateway, upstream: Upstream
) -> None:
    upstream.mode = "stream"

    response = gateway.client.post(CHAT, json={**ASKED, "stream": True})

    assert response.content == STREAM
    row_of(gateway, response.headers["x-tau-decision"])


def test_an_error_of_the_upstream_is_its_own(gateway: Gateway, upstream: Upstream) -> None:
    upstream.mode = "refused"

    response = gateway.client.post(CHAT, json=ASKED)

    assert response.status_code == 429
    assert response.content == b'{"error": {"message": "slow down"}}'
    rollout, _ = row_of(gateway, response.headers["x-tau-decision"])
    with closing(open_at(gateway.store, read_only=True)) as store:
        until(lambda: store.rollouts.rollout(rollout.rollout_id).status == "failed")


def test_a_model_that_is_not_declared_is_refused(gateway: Gateway) -> None:
    response = gateway.client.post(CHAT, json={**ASKED, "model": "tau/nothing"})

    assert response.status_code == 404
    assert response.json()["error"]["code"] == "tau_unknown_model"


def test_while_off_the_default_is_asked(tmp_path: Any, upstream: Upstream) -> None:
    (tmp_path / "pyproject.toml").write_text(SETTINGS.replace("URL", upstream.url))
    gateway = Gateway(tmp_path, upstream, TAU_LIVE_RL="0")
    upstream.mode = "whole"
    upstream.requests.clear()

    response = gateway.client.post(CHAT, json=ASKED)
    decided = gateway.client.post("/v1/decide", json={"point": "p", "options": ["a", "b"]})
    gateway.close()

    assert response.headers["x-tau-option"] == "small"
    assert json.loads(upstream.requests[0][3])["model"] == "gpt-5-mini"
    assert (decided.json()["option"], decided.json()["source"]) == ("a", "default")


def test_several_decisions_are_one_run(gateway: Gateway) -> None:
    post = gateway.client.post
    run = post("/v1/runs", json={"name": "triage", "key": "t-1", "session": "s"}).json()["run"]
    first = post(
        "/v1/decide",
        json={"point": "tool", "run": run, "options": {"search": {"usd": 0.1}, "answer": None},
              "context": {"words": 7}, "default": "answer"},
    ).json()  # fmt: skip
    second = post(
        "/v1/decide",
        json={"point": "tool", "run": run, "options": ["search", "answer"], "allowed": ["answer"]},
    ).json()
    assert post("/v1/reward", json={"id": first["decision"], "value": True}).status_code == 202
    assert post("/v1/reward", json={"id": run, "value": 0.5, "name": "quality"}).status_code == 202
    ended = post(f"/v1/runs/{run}/end", json={})
    again = post(f"/v1/runs/{run}/end", json={})

    assert (first["run"], second["run"], second["option"]) == (run, run, "answer")
    assert (ended.status_code, again.status_code) == (200, 404)
    until(lambda: len(decisions(gateway, "tool")) >= 2)
    with closing(open_at(gateway.store, read_only=True)) as store:
        until(lambda: len(store.rewards.rewards(run)) == 2)
        until(lambda: store.rollouts.rollout(run).status == "succeeded")
        rollout = store.rollouts.rollout(run)
        assert (rollout.name, rollout.session_id) == ("triage", "s")


def ready(gateway: Gateway) -> int:
    with closing(open_at(gateway.store, read_only=True)) as store:
        return store.rewards.ready_count("colour", after=0, limit=1000)


def test_it_learns_from_rewards(gateway: Gateway) -> None:
    taken: list[str] = []
    for _ in range(6):
        for _ in range(40):
            wanted = {"point": "colour", "options": ["red", "green", "blue"]}
            decided = gateway.client.post("/v1/decide", json=wanted).json()
            taken.append(decided["option"])
            value = float(decided["option"] == "blue")
            given = {"id": decided["decision"], "value": value, "name": "quality"}
            gateway.client.post("/v1/reward", json=given)
        until(lambda: ready(gateway) >= len(taken), deadline_s=10.0)

    assert Counter(taken[:6])["blue"] < 6
    assert Counter(taken[-60:])["blue"] > 50


PATHS = ("/v1/decide", "/v1/reward", "/tau/reward", "/v1/runs", "/v1/runs/x/end", CHAT)


def anything(rng: random.Random, depth: int = 0) -> Any:
    if depth < 3 and rng.random() < 0.4:
        names = [*"abc", "point", "options", "id", "value", "name", "run", "context", "model"]
        if rng.random() < 0.7:
            return {rng.choice(names): anything(rng, depth + 1) for _ in range(rng.randrange(4))}
        return [anything(rng, depth + 1) for _ in range(rng.randrange(4))]
    return rng.choice(
        [None, True, 0, -1, 1.5, 1e308, 10**30, "", "a", "\0", "\ud800", "x" * 3000, "tau/answer"]
    )


def test_bad_input_is_refused_and_never_fails(gateway: Gateway, upstream: Upstream) -> None:
    rng, statuses = random.Random(5), Counter[int]()

    for number in range(1500):
        given = anything(rng)
        content = json.dumps(given).encode("utf-8", "surrogatepass")
        if number % 7 == 0:
            content = bytes(rng.randrange(256) for _ in range(rng.randrange(60)))
        response = gateway.client.post(PATHS[number % len(PATHS)], content=content)
        statuses[response.status_code] += 1
        if response.status_code >= 400:
            assert response.json()["error"]["code"]

    assert not [status for status in statuses if status >= 500], statuses
    assert statuses[400] > 500
    assert gateway.client.post(CHAT, json=ASKED).status_code == 200


@pytest.mark.parametrize(
    ("path", "before"),
    [("/v1/decide", b'{"point": "p", "options": ["a"], "context": {"a": '),
     ("/v1/runs", b'{"name": "n", "metadata": {"a": ')],
)  # fmt: skip
def test_what_is_nested_too_deeply_is_malformed(gateway: Gateway, path: str, before: bytes) -> None:
    content = before + b"[" * 5000 + b"]" * 5000 + b"}}"

    response = gateway.client.post(path, content=content)

    assert (response.status_code, response.json()["error"]["code"]) == (400, "tau_malformed")


def test_a_reward_that_is_not_taken_is_not_accepted(tmp_path: Any, upstream: Upstream) -> None:
    gateway = Gateway(tmp_path, upstream, TAU_LIVE_RL="0")

    response = gateway.client.post("/v1/reward", json={"id": "chatcmpl-1", "value": 1.0})
    gateway.close()

    assert (response.status_code, response.json()) == (200, {"accepted": False})


def test_a_call_that_is_not_forwarded_has_no_reward_for_what_was_chosen(
    gateway: Gateway, upstream: Upstream
) -> None:
    upstream.requests.clear()
    headers = {"x-rollout-id": "nobody", "x-attempt-id": "1"}

    response = gateway.client.post(CHAT, json=ASKED, headers=headers)

    def last() -> Rollout | None:
        with closing(open_at(gateway.store, read_only=True)) as store:
            page, _ = store.rollouts.query(RolloutQuery(descending=True, limit=1))
            return page[0] if page and page[0].ended_at is not None else None

    assert (response.status_code, upstream.requests) == (404, [])
    until(last)
    assert (found := last()) is not None
    assert (found.status, found.total_reward) == ("failed", None)


def test_what_it_takes_is_described(gateway: Gateway) -> None:
    document = gateway.client.get("/openapi.json").json()

    assert document["openapi"] == "3.1.0"
    assert {*document["paths"]} == {
        "/v1/decide", "/v1/reward", "/tau/reward", "/v1/runs", "/v1/runs/{run}/end"
    }  # fmt: skip
    assert {*document["components"]["schemas"]} >= {"Decide", "GiveReward", "BeginRun", "EndRun"}
