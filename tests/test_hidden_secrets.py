"""Secrets that are escaped, encoded, broken over lines or cut in two are found where they stand."""

import base64
import json
from urllib.parse import quote

import pytest

from tau_live.guard import text_of
from tau_live.redaction import clean_id, scrubbed
from tests.secret_examples import KEEPS, LETTERS, SECRETS, mapped

GITHUB = SECRETS["github"][0]
OPENAI = SECRETS["openai"][0]
B64 = base64.b64encode(f"{GITHUB} ".encode()).decode()
WIDE = base64.b64encode(GITHUB.encode("utf-16")).decode()
TWICE = base64.b64encode(base64.b64encode(f"it is {GITHUB} yes".encode())).decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            f"a {quote(f'api_key={GITHUB}&b')} z", "a api_key%3D[redacted:secret]%26b z", id="URL"
        ),
        pytest.param(
            f"a \\u0022{GITHUB}\\u0022 z", "a \\u0022[redacted:github]\\u0022 z", id="unicode"
        ),
        pytest.param(f"a {B64} z", "a [redacted:github] z", id="base64"),
        pytest.param(f"a {TWICE} z", "a [redacted:github] z", id="base64 twice"),
        pytest.param(f"a {WIDE} z", "a [redacted:github] z", id="of UTF-16"),
        pytest.param(f"a {GITHUB.encode().hex()} z", "a [redacted:github] z", id="hexadecimal"),
        pytest.param(
            f"a {GITHUB[:12]}\n  {GITHUB[12:]} z", "a [redacted:github] z", id="two lines"
        ),
        pytest.param(
            f'a = "{GITHUB[:12]}" +\n  "{GITHUB[12:]}"',
            'a = "[redacted:github]"',
            id="two literals",
        ),
    ],
)
def test_a_secret_in_another_spelling_is_replaced_where_it_stands(text: str, expected: str) -> None:
    assert scrubbed(text) == expected


def test_a_secret_in_json_in_json_is_found() -> None:
    text = json.dumps({"body": json.dumps({"password": "hunter2hunter2"})})

    assert "hunter2" not in scrubbed(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([OPENAI[:12], OPENAI[12:]], [OPENAI[:12], "[redacted:split]"]),
        (["psql", "--password", "correcthorse"], ["psql", "--password", "[redacted:split]"]),
        (
            [{"name": "API_KEY", "value": "x-77-1"}],
            [{"name": "API_KEY", "value": "[redacted:split]"}],
        ),
        (["username", "password", "email"], ["username", "password", "email"]),
        (["sk-fast-model", "gpt-4o-mini-2024-07-18"], ["sk-fast-model", "gpt-4o-mini-2024-07-18"]),
        (["--token", "--verbose-output"], ["--token", "--verbose-output"]),
    ],
)
def test_of_strings_that_follow_each_other_one_may_end_the_others_secret(
    value: object, expected: object
) -> None:
    assert KEEPS.redact(mapped({"args": value})).raw == {"args": expected}


def test_an_id_keeps_apart_what_it_names_without_the_secret() -> None:
    one, other = clean_id(f"user-{GITHUB}"), clean_id(f"user-{GITHUB[:-1]}x")

    assert one != other
    assert LETTERS[:12] not in one + other
    assert clean_id(one) == one


def test_an_id_has_no_hash_of_what_could_be_guessed() -> None:
    assert (
        clean_id("https://me:hunter2@example.com")
        == "https://me:[redacted:url_password]@example.com"
    )


def test_what_an_exception_says_has_no_secret_even_on_the_cut() -> None:
    for room in range(440, 500):
        assert LETTERS[:12] not in text_of(ValueError(f"{'x' * room} {GITHUB}"))
