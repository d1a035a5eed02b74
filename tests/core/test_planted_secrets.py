"""Secrets of every kind are found in every place, and nothing in ordinary sentences."""

import json
import pydoc_data.topics
import random
import re
from collections.abc import Callable
from importlib.metadata import distributions
from itertools import product
from urllib.parse import quote

import pytest
from msgspec.structs import replace

from tau_live.core.events import (
    Content,
    Decision,
    ErrorInfo,
    Event,
    Message,
    ModelEnd,
    ModelStart,
    Retry,
    Reward,
    RunStart,
    ToolCall,
    ToolEnd,
    encode,
)
from tau_live.core.redaction import clean_id, scrub_text
from tests.proof.planted import KINDS, pieces
from tests.secret_examples import KEEPS, NONE

SEED = 13
BASE = Decision(host="h", run_id="r", at=1.0, ordinal=1, point="model", options=("a", "b"))


def _written(event: Event) -> str:
    """Return what is written of an event, with content and without."""
    return "\n".join(encode(redactor.redact(event)).decode() for redactor in (NONE, KEEPS))


def _start(**fields: object) -> str:
    return _written(RunStart(**{"host": "h", "run_id": "r", "at": 1.0} | fields))  # type: ignore[arg-type]  # each by its name


IDS: dict[str, Callable[[str], str]] = {
    "key of a run": clean_id,
    "behind a word in an id": lambda text: clean_id(f"user_{text}"),
    "between words in an id": lambda text: clean_id(f"run:{text}:2"),
    "session": lambda text: _start(session_id=text),
    "option": lambda text: _written(replace(BASE, options=(text, "b"))),
    "source of a reward": lambda text: _written(
        Reward(host="h", run_id="r", at=1.0, name="n", value=1.0, source=text)
    ),
    "call": lambda text: _written(ToolEnd(host="h", run_id="r", at=1.0, call_id=text)),
}
TEXTS: dict[str, Callable[[str], str]] = {
    "metadata": lambda text: _start(metadata={"a": [{"b": text}]}),
    "name in metadata": lambda text: _start(metadata={text: 1}),
    "context": lambda text: _written(
        replace(BASE, context={"q": f"please run {text}"})
    ),
    "input": lambda text: _start(input=Content(text=f"please run\n{text}\nnow")),
    "answer": lambda text: _written(
        Message(host="h", run_id="r", at=1.0, role="user", content=Content(text=f"({text})"))
    ),
    "arguments of a tool": lambda text: _written(
        ModelEnd(
            host="h", run_id="r", at=1.0,
            tool_calls=(ToolCall(id="c", name="t", args=Content(text=json.dumps({"c": text}))),),
        )
    ),
    "parameters of a model": lambda text: _written(
        ModelStart(host="h", run_id="r", at=1.0, params={"headers": (text,)})
    ),
    "error": lambda text: _start(error=ErrorInfo(type="E", message=f"failed: {text}")),
    "reason": lambda text: _written(Retry(host="h", run_id="r", at=1.0, reason=text)),
    "log line": lambda text: scrub_text(f"INFO call returned {text}"),
    "URL": lambda text: scrub_text(f"https://example.com/?q={quote(text, safe='')}&r=1"),
}  # fmt: skip


@pytest.mark.slow
def test_of_secrets_in_every_place_99_in_100_are_found_and_all_in_ids() -> None:
    rng = random.Random(SEED)
    left: list[tuple[str, str]] = []

    for (kind, draw), (place, write) in product(KINDS.items(), (IDS | TEXTS).items()):
        secret = draw(rng)
        kept = write(secret.text)
        spellings = (secret.core, quote(secret.core, safe=""), json.dumps(secret.core)[1:-1])
        if any(part in kept for spelling in spellings for part in pieces(spelling)):
            left.append((kind, place))

    assert len(KINDS) >= 72
    assert len(IDS | TEXTS) >= 18
    assert not [kind for kind, place in left if place in IDS]
    assert len(left) <= 0.01 * len(KINDS) * len(IDS | TEXTS), left


SUBJECTS = (
    "password", "passphrase", "token", "secret", "API key", "access key", "private key",
    "credentials", "passcode", "bearer token", "cookie", "license key", "client secret",
    "refresh token", "auth token", "session cookie",
)  # fmt: skip
REMARKS = (
    "is required", "is wrong", "was changed yesterday", "is stored in the vault", "is not set",
    "must be at least 12 characters", "expired on 2026-01-01", "rotates every 90 days",
    "is hashed with SHA256", "uses PBKDF2-HMAC-SHA256", "is 32 bytes long",
    "was revoked at 12:30", "for gpt-4o-mini-2024-07-18 is missing", "and username",
    "has 3 uses left", "is explained in section 4.2.1", "of user42 was reset",
    "as base64-encoded text", "is end-to-end-encrypted now", "is what-you-see-is-what-you-get",
    "is at https://example.com/docs/2024", "counts: 12, 34", "accepts UTF-8 text",
    "prices fell 3.5%", "with gpt-4.1-nano or claude-3-5-sonnet-20241022",
)  # fmt: skip
STARTS = ("The", "Please note that the", "My", "Their old", "Every", "A second")


def sentences(rng: random.Random) -> list[str]:
    """Return ten thousand: of manuals, and those that speak of secrets without one."""
    manual = [str(text) for text in pydoc_data.topics.topics.values()]
    described = [found.read_text("METADATA") or "" for found in distributions()]
    split = (re.split(r"(?<=[.!?])\s+|\n\n+", text) for text in [*manual, *described])
    prose = {found for some in split for found in some if 20 < len(found) < 400}
    spoken = [
        f"{start} {subject} {remark}."
        for start, subject, remark in product(STARTS, SUBJECTS, REMARKS)
    ]
    return [*spoken, *rng.sample(sorted(prose), 10_000 - len(spoken))]


EXAMPLES_IN_MANUALS = re.compile(
    r"(?i)password ?[=:]|secret=|[?&]token=|your-secret-key|cookie:|://[^/\s]*:[^/\s]*@|\x00"
)


@pytest.mark.slow
def test_in_ten_thousand_ordinary_sentences_nothing_is_taken_for_a_secret() -> None:
    texts = [
        text for text in sentences(random.Random(SEED)) if not EXAMPLES_IN_MANUALS.search(text)
    ]

    taken = [text for text in texts if scrub_text(text) != text]

    assert len(texts) > 9_900
    assert taken == []


@pytest.mark.parametrize(
    "spelling", [json.dumps, str, lambda account: json.dumps(account).replace("\\n", "\n")]
)
def test_of_a_service_account_as_a_key_nothing_of_its_private_key_is_left(
    spelling: Callable[[object], str],
) -> None:
    lines = [f"MIIEvQ{n:02}IBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7" for n in range(24)]
    pem = "\n".join([f"-----BEGIN {'PRIVATE'} KEY-----", *lines, f"-----END {'PRIVATE'} KEY-----"])
    text = spelling({"type": "service_account", "private_key": pem, "client_id": "1"})

    kept = [clean_id(text), scrub_text(text), clean_id(f"key={text}")]

    assert "MIIEvQ" not in "".join(kept)


def test_cards_in_ids_stay_apart_by_what_a_receipt_shows() -> None:
    one, other = clean_id("pay 4111111111111111"), clean_id("pay 4012888888881881")

    assert (one, other) == ("pay [redacted:card:411111-1111]", "pay [redacted:card:401288-1881]")
    assert clean_id(one) == one
