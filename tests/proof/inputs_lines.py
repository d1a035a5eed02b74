"""Lines of every kind that is read, good to begin with, and then spoiled."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

WORST: tuple[Any, ...] = (
    None, True, 0, -1, 1e308, -1e308, 1e999, -1e999, float("nan"), 2**63, -(2**64), 10**4000, "",
    "nul \0", "\ud800", "é", "e\u0301", "x" * 5_000, "1e999", "NaN", "9" * 5_000, [], {}, [[]],
    [None], {"": 0}, {"\0": []}, [0] * 300, {"chars": -1}, "../../etc/passwd", "\x1b[31m", [1e999],
)  # fmt: skip
"""Values for any place in JSON, and some that only Python's reader accepts there."""

TOKENS: tuple[bytes, ...] = (
    b"1e999", b"NaN", b"-Infinity", b'"\\ud800"', b'"\\u0000"', b"\0", b"\xff\xfe", b"\xef\xbb\xbf",
    b"[" * 3_000, b'{"a":' * 3_000, b"9" * 5_000, b"]", b"}", b'"', b",", b"\r", b"\n", b"\\",
    b"\xed\xa0\x80", b"-", b"null", b";", b"\t", b"#", b"'''", b'"""', b"\xe2\x80\xae",
)  # fmt: skip
DEEPEST = 100_000


def spoiled(rng: random.Random, line: bytes) -> bytes:
    """Return a line with one to three things wrong with it."""
    for _ in range(rng.randrange(1, 4)):
        line = rng.choice(_WAYS)(rng, line)
    return line


def _flipped(rng: random.Random, line: bytes) -> bytes:
    if not line:
        return b"\0"
    at = rng.randrange(len(line))
    return line[:at] + bytes([rng.randrange(256)]) + line[at + 1 :]


def _cut(rng: random.Random, line: bytes) -> bytes:
    return line[: rng.randrange(len(line) + 1)]


def _doubled(rng: random.Random, line: bytes) -> bytes:
    at = rng.randrange(len(line) + 1)
    return line[:at] + line[at // 2 :]


def _with_token(rng: random.Random, line: bytes) -> bytes:
    at = rng.randrange(len(line) + 1)
    return line[:at] + rng.choice(TOKENS) + line[at + rng.randrange(3) :]


def _with_worst(rng: random.Random, line: bytes) -> bytes:
    """Put another value at any place of a JSON object."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return _with_token(rng, line)
    value = rng.choice(WORST)
    if rng.random() < 0.001:
        text = json.dumps(data)
        return text.replace("{", '{"deep":' + "[" * DEEPEST + "]" * DEEPEST + ",", 1).encode()
    inside: Any = data
    while isinstance(inside, (dict, list)) and inside:
        keys: Sequence[Any] = [*inside] if isinstance(inside, dict) else range(len(inside))
        key = rng.choice(keys)
        if not isinstance(inside[key], (dict, list)) or not inside[key] or rng.random() < 0.3:
            if rng.random() < 0.2 and isinstance(inside, dict):
                del inside[key]
            else:
                inside[key] = value
            break
        inside = inside[key]
    return json.dumps(data, ensure_ascii=rng.random() < 0.7).encode("utf-8", "surrogatepass")


_WAYS: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _flipped, _cut, _doubled, _with_token, _with_worst, _with_worst, _with_worst,
)  # fmt: skip


@lru_cache(maxsize=1)
def recordings() -> Sequence[bytes]:
    """Return what adapters have recorded of real hosts, a line each."""
    paths = sorted((ROOT / "hooks/golden").glob("*/*.jsonl"))
    return [line for path in paths for line in path.read_bytes().splitlines()]


ROWS: tuple[Mapping[str, object], ...] = (
    {"run": "r1", "step": 1, "point": "model", "option": "small", "options": ["small", "large"],
     "propensity": 0.5, "reward": 1.0, "context": {"words": 3, "kind": "x"}, "at": 1.5},
    {"run": "r1", "step": 2, "point": "model", "applied": "large", "chosen": "small",
     "options": {"small": {"f": 1.0}, "large": None}, "at": "2026-01-01T00:00:00Z"},
    {"option": "a", "options": "a;b;c", "probabilities": [0.2, 0.3, 0.5], "reward": True},
)  # fmt: skip
CSV = (
    b"run,step,option,options,propensity,reward,at",
    b"r1,1,small,small;large,0.5,1.0,1.5",
    b'r2,1,"la ""rge",small|large,,,2026-01-01',
)
OTEL: Mapping[str, object] = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "s"}}]},
            "scopeSpans": [
                {
                    "scope": {"name": "agent"},
                    "spans": [
                        {
                            "traceId": "t1", "spanId": "s1", "name": "invoke_agent",
                            "startTimeUnixNano": "1000000000", "endTimeUnixNano": "2000000000",
                            "status": {"code": 1},
                            "attributes": [
                                {"key": "gen_ai.operation.name",
                                 "value": {"stringValue": "invoke_agent"}},
                                {"key": "tau.reward", "value": {"doubleValue": 1.0}},
                            ],
                        },
                        {
                            "traceId": "t1", "spanId": "s2", "parentSpanId": "s1", "name": "chat",
                            "startTimeUnixNano": "1100000000", "endTimeUnixNano": "1200000000",
                            "events": [{"name": "e", "attributes": []}],
                            "links": [{"traceId": "t0", "spanId": "s0"}],
                            "attributes": [
                                {"key": "gen_ai.request.model", "value": {"stringValue": "small"}},
                                {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "12"}},
                                {"key": "tau.decision.options", "value": {"arrayValue": {
                                    "values": [{"stringValue": "a"}, {"stringValue": "b"}]}}},
                                {"key": "tau.decision.applied", "value": {"stringValue": "a"}},
                                {"key": "tau.decision.propensity", "value": {"doubleValue": 0.5}},
                            ],
                        },
                    ],
                }
            ],
        }
    ]
}  # fmt: skip
TAU: tuple[Mapping[str, object], ...] = (
    {"type": "agent_start"}, {"type": "turn_start", "turn": 1},
    {"type": "message_added", "role": "assistant", "text": "hello", "tool_calls": 1},
    {"type": "tool_execution_start", "tool_call_id": "c", "tool_name": "t", "arguments": {"a": 1}},
    {"type": "tool_execution_end", "tool_call_id": "c", "tool_name": "t", "is_error": False,
     "content": [1]},
    {"type": "cost_updated", "turn": 1, "turn_cost_usd": 0.1, "cumulative_cost_usd": 0.2,
     "budget_usd": 1.0},
    {"type": "safety_policy_applied", "stage": "tool_output", "mode": "block", "blocked": True,
     "matched_rules": ["r"], "reason_codes": ["secret_leak.jwt_token"]},
    {"type": "turn_end", "turn": 1, "tool_results": 1, "request_duration_ms": 5,
     "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}, "finish_reason": "stop"},
    {"type": "agent_end", "new_messages": 2},
)  # fmt: skip
TOML = b"""\
update-interval = 8
seed = 7
store = "s.sqlite"
reward-range = [0.0, 1.0]
plugins-off = ["a"]
[rewards.solved]
primary = true
weight = 2.0
range = [0.0, 1.0]
[rewards.harm]
cost = true
[safety]
blocked-penalty = 1.0
reason-code-penalties = { "a.b" = 0.5 }
[decisions.model]
options = { small = { price = 0.1 }, large = { price = 1.0 } }
every = "run"
exploit-only = ["large"]
[prices."gpt-x"]
input = 1.0
output = 2.0
"""


def lines_of(rows: Sequence[Mapping[str, object]]) -> list[bytes]:
    """Return rows as JSON, a line each."""
    return [json.dumps(row).encode() for row in rows]
