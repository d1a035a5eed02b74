"""Secrets and unwanted content never get past the redactor."""

import hashlib
import time
from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.errors import SettingsError
from tau_live.events import (
    Content,
    Decision,
    ErrorInfo,
    Event,
    Message,
    ModelEnd,
    ModelStart,
    Retry,
    Reward,
    RunEnd,
    RunStart,
    ToolCall,
    ToolEnd,
    decode,
    encode,
)
from tau_live.redaction import Redactor, clean_id
from tau_live.secret_kinds import KEYWORDS, PHRASES, TOKENS, is_secret_key

NONE = Redactor()
KEEPS = Redactor("redacted", 200)

# Put together here, so that no scanner takes this file for a leak.
LETTERS = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9" * 4
HEX = "0123456789abcdef" * 4
UPPER = "ABCDEFGHIJ234567KLMNOPQRST" * 3
SECRETS = {
    "anthropic": ["sk-" + "ant-api03-" + LETTERS[:40]],
    "openai": ["sk-" + "proj-" + LETTERS[:40], "sk-" + LETTERS[:48]],
    "github": ["gh" + "p_" + LETTERS[:36], "github" + "_pat_" + LETTERS[:60]],
    "gitlab": ["gl" + "pat-" + LETTERS[:20]],
    "slack": [
        "xox" + "b-123456789012-" + LETTERS[:24],
        "hooks.slack" + ".com/services/T00000000/B00000000/" + LETTERS[:24],
    ],
    "aws": ["AK" + "IA" + UPPER[:16]],
    "google": [
        "AI" + "za" + LETTERS[:35],
        "ya" + "29." + LETTERS[:40],
        "GOC" + "SPX-" + LETTERS[:28],
    ],
    "stripe": ["sk" + "_live_" + LETTERS[:24], "wh" + "sec_" + LETTERS[:32]],
    "twilio": ["S" + "K" + HEX[:32]],
    "sendgrid": ["S" + "G." + LETTERS[:22] + "." + LETTERS[:43]],
    "mailgun": ["ke" + "y-" + HEX[:32]],
    "npm": ["np" + "m_" + LETTERS[:36]],
    "pypi": ["py" + "pi-AgEIcHlwaS5vcmc" + LETTERS[:60]],
    "huggingface": ["h" + "f_" + LETTERS[:34]],
    "groq": ["gs" + "k_" + LETTERS[:52]],
    "xai": ["xa" + "i-" + LETTERS[:80]],
    "replicate": ["r" + "8_" + LETTERS[:37]],
    "databricks": ["dap" + "i" + HEX[:32]],
    "digitalocean": ["do" + "p_v1_" + HEX[:64]],
    "shopify": ["shp" + "at_" + HEX[:32]],
    "docker": ["dckr" + "_pat_" + LETTERS[:27]],
    "vault": ["hv" + "s." + LETTERS[:40]],
    "linear": ["lin" + "_api_" + LETTERS[:40]],
    "newrelic": ["NRA" + "K-" + UPPER[:27]],
    "age": ["AGE-SECRET" + "-KEY-1" + UPPER[:58]],
    "jwt": ["ey" + "J" + LETTERS[:20] + ".ey" + "J" + LETTERS[:30] + "." + LETTERS[:43]],
    "private_key": [
        "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIE+/=\nab-c\n-----END RSA " + "PRIVATE KEY-----",
        "-----BEGIN " + "PRIVATE KEY-----\\nMIIE",
    ],
    "url_password": [
        "postgresql://app:hunter2hunter2@db.example.com/x",
        "redis://:hunter2hunter2@localhost:6379/0",
        "https://me:p@ss:w0rd-hunter2@example.com/",
    ],
    "azure": [
        "AccountKey=" + LETTERS[:60] + "==",
        "https://x.blob.core.windows.net/c?se=1&sig=" + LETTERS[:40] + "%3D",
    ],
    "bearer": ["Bearer " + LETTERS[:30], "bearer  " + LETTERS[:30] + "=="],
    "authorization": [
        "Authorization: Basic " + LETTERS[:20],
        '"authorization": "Token ' + LETTERS[:20] + '"',
    ],
    "cookie": ["Cookie: sid=hunter2hunter2; theme=dark", '"set-cookie": "sid=hunter2hunter2"'],
    "password": [
        "password=hunter2hunter2",
        "DB_PASSWORD: 'hunter2 hunter2'",
        '{"pwd": "hunter2hunter2"}',
        '\\"passwd\\": \\"hunter2hunter2\\"',
        "passphrase => hunter2hunter2",
    ],
    "secret": [
        "api_key: hunter2hunter2",
        "APIKEY=hunter2hunter2",
        "client_secret='hunter2hunter2'",
        '{"access_token": "hunter2hunter2"}',
        "aws_secret_access_key = hunter2hunter2",
        "AWS_ACCESS_KEY_ID=hunter2hunter2",
    ],
}
CASES = [
    pytest.param(kind, secret, id=f"{kind}-{number}")
    for kind, secrets in SECRETS.items()
    for number, secret in enumerate(secrets)
]
BENIGN = [
    "The secretary's token of appreciation: see https://example.com:8080/a?b=c@d",
    "max_tokens=4096, input_tokens: 12, token_count: 77",
    "skip the task-list, mask-image and risk-free desk-work",
    "the bearer of good news and a cookie",
    "monkey-see monkey-do, eyJ is how a JWT begins",
    "commit 0123456789abcdef0123456789abcdef01234567 on main",
    "user@example.com wrote to http://example.com/~user",
    "5f0d7f0e-2b0c-5c53-9a5e-0d1f6f1d7c11",
]


def message(text: str) -> Message:
    return Message(host="h", run_id="r", at=1.0, role="user", content=Content(text=text))


def mapped(raw: dict[str, object]) -> Event:
    return Event(event="x", host="h", run_id="r", at=1.0, raw=raw)


def test_every_kind_has_an_example() -> None:
    kinds = {*TOKENS, *PHRASES, *KEYWORDS}

    assert kinds == set(SECRETS)
    assert len(kinds) >= 25


@pytest.mark.parametrize(("kind", "secret"), CASES)
def test_a_secret_is_replaced_by_its_kind(kind: str, secret: str) -> None:
    found = KEEPS.scrub(f"see ({secret}) and go on")

    assert f"[redacted:{kind}]" in found
    assert found.startswith("see (")
    for part in ("hunter2", LETTERS[:16], HEX[:16], UPPER[:16], "MIIE"):
        assert part not in found


@pytest.mark.parametrize("text", BENIGN)
def test_ordinary_text_stays(text: str) -> None:
    assert KEEPS.scrub(text) == text


@pytest.mark.parametrize(("kind", "secret"), CASES)
@pytest.mark.parametrize("redactor", [NONE, KEEPS], ids=["none", "redacted"])
def test_no_secret_gets_out_of_any_place(redactor: Redactor, kind: str, secret: str) -> None:
    event = ModelStart(
        host="h",
        run_id="r",
        at=1.0,
        agent=secret,
        model_requested=secret,
        error=ErrorInfo(type="E", message=secret),
        raw={"a": [{"b": secret}], secret: 1},
        params={"c": (secret,)},
        messages=Content(text=secret),
        tools_offered=(secret,),
    )

    line = encode(redactor.redact(event)).decode()

    for part in ("hunter2", LETTERS[:16], HEX[:16], UPPER[:16], "MIIE"):
        assert part not in line


PIECES = st.sampled_from(
    [
        *(secret for secrets in SECRETS.values() for secret in secrets),
        *(secret[: len(secret) // 2] for secrets in SECRETS.values() for secret in secrets),
        *BENIGN,
        *"\"'\\ :=@-/.,;&[]()\n\t",
        "[redacted:x]",
        "…",
        "a" * 70,
        "\0",
        "\ud800",
    ]
)
TEXTS = st.lists(PIECES | st.text(st.characters(codec=None), max_size=5), max_size=9).map("".join)
VALUES = st.recursive(
    TEXTS | st.integers() | st.floats() | st.none() | st.booleans(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(TEXTS | st.sampled_from(["password", "token"]), inner, max_size=4)
    ),
    max_leaves=12,
)
RAWS = st.dictionaries(TEXTS, VALUES, max_size=5)


class Loud(str):
    """Equals its text and is none."""

    __slots__ = ()


DECISION = Decision(host="h", run_id="r", at=1.0, ordinal=1, point="model", options=("a",))


@st.composite
def events(draw: st.DrawFn) -> Event:
    content = st.none() | st.builds(Content, text=TEXTS | st.none())
    calls = st.lists(st.builds(ToolCall, id=TEXTS, name=TEXTS, args=content), max_size=2)
    errors = st.builds(ErrorInfo, type=TEXTS, message=TEXTS, fatal=st.booleans())
    kinds: list[Event] = [
        Message(host="h", run_id="r", at=1.0, role=draw(TEXTS), content=draw(content)),
        RunStart(host="h", run_id="r", at=1.0, metadata=draw(RAWS), input=draw(content)),
        ModelEnd(host="h", run_id="r", at=1.0, tool_calls=tuple(draw(calls))),
        Retry(host="h", run_id="r", at=1.0, reason=draw(TEXTS)),
        replace(
            DECISION,
            options=(draw(TEXTS), "b"),
            context=draw(RAWS),
            features={"a": draw(RAWS)},
        ),
    ]
    return replace(
        draw(st.sampled_from(kinds)),
        run_id=draw(TEXTS),
        agent=draw(TEXTS | st.none()),
        raw=draw(RAWS),
        error=draw(st.none() | errors),
    )


@pytest.mark.slow
@given(events(), st.sampled_from([NONE, KEEPS, Redactor("redacted"), Redactor("none", 64)]))
def test_to_redact_again_changes_nothing(event: Event, redactor: Redactor) -> None:
    once = redactor.redact(event)

    again = redactor.redact(once)

    assert again == once


@pytest.mark.slow
@given(events(), st.sampled_from([NONE, KEEPS]))
def test_what_was_redacted_can_be_written_and_read_back(event: Event, redactor: Redactor) -> None:
    found = redactor.redact(event)

    assert decode(encode(found)) == found


def test_fault_17_without_content_only_size_and_hash_of_a_text_are_kept() -> None:
    event = message("who am I, at home in Lübeck?")

    found = NONE.redact(event)

    text = "who am I, at home in Lübeck?"
    expected = Content(chars=len(text), sha256=hashlib.sha256(text.encode()).hexdigest())
    assert isinstance(found, Message)
    assert found.content == expected


def test_with_content_a_text_is_kept_scrubbed_and_cut() -> None:
    secret = SECRETS["github"][0]
    text = f"use {secret} " + "and so on " * 100

    found = KEEPS.redact(message(text))

    assert isinstance(found, Message)
    assert found.content is not None
    assert found.content.text is not None
    assert found.content.text.startswith("use [redacted:github] and so on")
    assert 150 < len(found.content.text) <= 200
    assert found.content.chars == len(text)
    assert found.content.sha256 == hashlib.sha256(text.encode()).hexdigest()


def test_a_secret_on_the_cut_is_no_secret_left_over() -> None:
    secret = SECRETS["github"][0]

    for room in range(120, 200):
        found = KEEPS.redact(message("x" * room + " " + secret + "y" * 300))

        assert secret[:16].encode() not in encode(found)


@pytest.mark.parametrize("tail", [0, 300, 20_000])
@pytest.mark.parametrize("length", [20, 500, 30_000])
def test_of_a_long_secret_on_the_cut_nothing_is_left(length: int, tail: int) -> None:
    claims = "cLaIm" * (length // 5)
    token = "ey" + "J" + LETTERS[:20] + ".ey" + "J" + claims + "." + LETTERS[:43]

    found = KEEPS.redact(message("x" * 100 + " " + token + " and so on" * tail))

    assert b"cLaIm" not in encode(found)


def test_a_password_whose_end_is_behind_the_cut_is_found() -> None:
    url = "https://me:" + "hunter2" * 40 + "@example.com/ "

    found = KEEPS.redact(message("x" * 100 + " " + url + "and so on " * 1_000))

    assert b"hunter2" not in encode(found)


def test_free_text_in_a_decisions_context_is_only_kept_with_content() -> None:
    text = "my name is Jane and " * 5
    event = replace(DECISION, context={"q": text})

    without, with_ = NONE.redact(event), KEEPS.redact(event)

    assert isinstance(without, Decision)
    assert isinstance(with_, Decision)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    assert without.context == {"q": {"chars": 100, "sha256": sha256}}
    assert with_.context == {"q": text}


def test_what_stands_under_a_secret_key_is_hidden_whatever_it_is() -> None:
    event = mapped({"headers": {"X-Api-Key": "a", "password": 12, "authorization": ["a"]}})

    found = KEEPS.redact(event)

    assert found.raw == {
        "headers": dict.fromkeys(["X-Api-Key", "password", "authorization"], "[redacted:key]")
    }


@pytest.mark.parametrize(
    ("key", "secret"),
    [
        *((key, True) for key in ("api_key", "apiKey", "OPENAI_API_KEY", "x-auth-token", "Cookie")),
        *((key, True) for key in ("clientSecret", "aws_secret_access_key", "db password", "pwd")),
        *((key, False) for key in ("max_tokens", "tokens", "key", "keyword", "monkey", "author")),
    ],
)
def test_keys_that_name_a_secret(key: str, secret: bool) -> None:
    assert is_secret_key(key) is secret


def test_counts_of_tokens_are_not_secrets() -> None:
    event = mapped(
        {"usd_per_token": 0.5, "bos_token": 1, "has_password": True, "token": None, "x_token": 7}
    )

    found = KEEPS.redact(event)

    assert found == event


def test_an_event_without_anything_to_hide_is_returned_itself() -> None:
    event = ToolEnd(host="h", run_id="r", at=1.0, tool="read_file", call_id="c", is_error=False)

    assert NONE.redact(event) is event


def test_the_event_that_came_in_is_not_changed() -> None:
    raw: dict[str, object] = {"password": "hunter2", "list": [1, SECRETS["aws"][0]]}

    NONE.redact(mapped(raw))

    assert raw == {"password": "hunter2", "list": [1, SECRETS["aws"][0]]}


def test_what_only_equals_plain_data_becomes_plain_data() -> None:
    event = mapped({"a": np.float64(1.5), "b": Loud("text"), "c": OrderedDict(d=True)})

    found = NONE.redact(event)

    assert {name: type(value) for name, value in found.raw.items()} == {
        "a": float,
        "b": str,
        "c": dict,
    }


def test_usage_keeps_numbers_only() -> None:
    event = RunEnd(host="h", run_id="r", at=1.0, usage={"a": 1, "b": float("inf"), "c": 2.5})

    found = NONE.redact(event)

    assert isinstance(found, RunEnd)
    assert found.usage == {"a": 1, "c": 2.5}


def test_patterns_of_ones_own() -> None:
    redactor = Redactor("redacted", extra={"ticket": r"TICKET-\d{4}"})

    assert redactor.scrub("see TICKET-1234.") == "see [redacted:ticket]."


@pytest.mark.parametrize(
    ("kind", "pattern"), [("bad name", "x"), ("x", "("), ("x", "(a)"), ("x", "a*")]
)
def test_a_malformed_pattern_is_refused_by_name(kind: str, pattern: str) -> None:
    with pytest.raises(SettingsError, match=kind):
        Redactor(extra={kind: pattern})


def test_a_limit_below_what_is_kept_of_any_string_is_refused() -> None:
    with pytest.raises(ValueError, match="payload_limit must be at least 64, got 3"):
        Redactor("none", 3)


@given(st.text(st.characters(codec=None), max_size=700))
def test_an_id_stays_one_that_can_be_stored(text: str) -> None:
    found = clean_id(text)

    assert clean_id(found) == found
    assert len(found.encode()) <= 4 * 512


def test_long_ids_stay_apart() -> None:
    assert clean_id("a" * 600 + "b") != clean_id("a" * 600 + "c")


ADVERSARIAL = [
    *(secret for secrets in SECRETS.values() for secret in secrets),
    *(secret[:-8] for secrets in SECRETS.values() for secret in secrets),
    *("password", "password ", "password=", "password='", "://", "://:a", "://a:", "-", "-----"),
    *("-----BEGIN PRIVATE KEY-----", "eyJaaaaaaaa-", "eyJaaaaaaaa.eyJaaaa", "bearer ", "Bearer a"),
    *("authorization: a ", 'token"', "=", "cookie:", "SG.aaaaaaaaaaaaaaaaaaaa.", "sk-", "\\", "\0"),
    *("a", "A", " ", "\n", "key-", "&sig=", "AKIA", "token: ", 'secret"', '"\\'),
]


@pytest.mark.slow
@pytest.mark.parametrize("piece", ADVERSARIAL)
def test_a_megabyte_of_anything_takes_linear_time(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    began = time.thread_time()

    Redactor("redacted", 2_000_000).scrub(text)

    assert time.thread_time() - began < 2.5  # measured: 0.002 to 0.4; quadratic would take minutes


def test_what_somebody_says_of_a_run_is_kept_without_secrets() -> None:
    said = Content(text="too slow, token ghp_" + "a" * 36)

    kept = Redactor("none").redact(Reward(host="h", run_id="r", at=1.0, comment=said))

    assert isinstance(kept, Reward)
    assert kept.comment is not None
    assert str(kept.comment.text).startswith("too slow, token [redacted:")


NAMES = st.one_of(
    st.text(st.characters(max_codepoint=127), max_size=80),
    st.sampled_from(["password", "token", "api_key", "sk-" + "a" * 40, "tokens"]),
)


@given(st.dictionaries(NAMES, st.floats() | st.integers(), max_size=6))
def test_numbers_at_once_are_kept_and_hidden_as_one_by_one(features: dict[str, object]) -> None:
    redactor = Redactor()

    found = redactor._other("features", {"a": features})

    asked = {"a": {**features, "\x7fnot a number": ""}}  # so that each name is asked about
    expected = redactor._other("features", asked)
    assert isinstance(found, dict)
    assert isinstance(expected, dict)
    expected["a"].pop("\x7fnot a number")
    assert repr(found) == repr(expected)
