"""Every kind of secret is found, and nothing else."""

import time

import pytest

from tau_live.core.events import Content, ErrorInfo, ModelStart, encode
from tau_live.core.redaction import Redactor
from tau_live.core.secret_kinds import KEYWORDS, PHRASES, TOKENS, is_secret_key
from tests.secret_examples import BENIGN, HEX, KEEPS, LETTERS, NONE, SECRETS, UPPER, mapped

CASES = [
    pytest.param(kind, secret, id=f"{kind}-{number}")
    for kind, secrets in SECRETS.items()
    for number, secret in enumerate(secrets)
]


def test_every_kind_has_an_example() -> None:
    kinds = {*TOKENS, *PHRASES, *KEYWORDS, "card"}

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
def test_a_long_text_of_anything_takes_linear_time(piece: str) -> None:
    text = piece * (250_000 // len(piece))
    began = time.thread_time()

    Redactor("redacted", 2_000_000).scrub(text)

    assert time.thread_time() - began < 5.0  # measured: 0.001 to 0.6; quadratic takes much longer
