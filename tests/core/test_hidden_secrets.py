"""Secrets that are escaped, encoded, broken over lines or cut in two are found where they stand."""

import base64
import json
from urllib.parse import quote

import pytest

from tau_live.core.guard import text_of
from tau_live.core.offers import text_of as handed_text
from tau_live.core.redaction import clean_id, scrub_text
from tau_live.core.sanitize import MARKER_ROOM, Limits, shorten
from tau_live.decisions.runs import RunEvents, run_id_of
from tests.secret_examples import KEEPS, LETTERS, SECRETS, mapped

WORD = "Zx9hunterQ7"
GITHUB = SECRETS["github"][0]
OPENAI = SECRETS["openai"][0]
B64 = base64.b64encode(f"{GITHUB} ".encode()).decode()
WIDE = base64.b64encode(GITHUB.encode("utf-16")).decode()
TWICE = base64.b64encode(base64.b64encode(f"it is {GITHUB} yes".encode())).decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            f"a {quote(f'api_key={GITHUB}&b')} z", "a api_key%3D[redacted:github]%26b z", id="URL"
        ),
        pytest.param(
            f"a \\u0022{GITHUB}\\u0022 z", "a \\u0022[redacted:github]\\u0022 z", id="unicode"
        ),
        pytest.param(
            f"a {GITHUB[:3]}\u200b{GITHUB[3:9]}\u2060\ufeff{GITHUB[9:]} z",
            "a [redacted:github] z",
            id="of no width",
        ),
        pytest.param(
            f"a {GITHUB[:3]}\\u200b{GITHUB[3:]} z", "a [redacted:github] z", id="that, escaped"
        ),
        pytest.param(
            "a pass\u00adword\u200b=hunter2hunter2 z",
            "a pass\u00adword\u200b=[redacted:password] z",
            id="hyphens that are not seen",
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
    assert scrub_text(text) == expected


@pytest.mark.parametrize(
    "secret",
    [
        GITHUB,
        SECRETS["anthropic"][0],
        SECRETS["slack"][0],
        SECRETS["google"][0],
        SECRETS["npm"][0],
        *SECRETS["gitlab"],
        *SECRETS["stripe"],
        *SECRETS["sendgrid"],
        *SECRETS["pypi"],
        *SECRETS["digitalocean"],
        *SECRETS["shopify"],
        *SECRETS["docker"],
    ],
)
@pytest.mark.parametrize("before", ["x", "token", "9"])
def test_a_token_of_a_certain_look_is_found_behind_a_letter(before: str, secret: str) -> None:
    found = scrub_text(f"see {before}{secret} there")

    assert found.startswith(f"see {before}[redacted:")
    assert found.endswith("] there")


def test_a_secret_in_json_in_json_is_found() -> None:
    text = json.dumps({"body": json.dumps({"password": "hunter2hunter2"})})

    assert "hunter2" not in scrub_text(text)


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


@pytest.mark.parametrize("spelling", [quote(f"https://me:{WORD}@host", safe=":"), B64, WIDE])
def test_an_id_has_no_secret_in_another_spelling(spelling: str) -> None:
    found = clean_id(f"job {spelling}")

    assert "[redacted:" in found
    assert not any(spoken in found for spoken in (WORD, B64[:20], WIDE[:20]))
    assert clean_id(found) == found


@pytest.mark.parametrize(
    "secret", [f"https://me:{WORD}@host", f"Authorization: Basic {WORD}", f"token={WORD}"]
)
def test_a_run_that_is_named_by_a_secret_does_not_hide_it_in_its_id(secret: str) -> None:
    ids = [run_id_of(secret, secret), run_id_of(secret, "other"), run_id_of("other", secret)]

    assert WORD not in "".join(ids)
    assert len(set(ids)) == len(ids)


def test_runs_whose_name_ends_in_a_secret_are_kept_apart() -> None:
    events = RunEvents(stream="s", limits=Limits())

    found = {
        events.handle("pwd=abc", key=None, session=None, parent=None, epoch=0, recorded=True).run_id
        for _ in range(3)
    }

    assert len(found) == 3


@pytest.mark.parametrize("secret", [f"https://me:{WORD}@host/path", GITHUB, SECRETS["aws"][0]])
def test_where_a_text_is_cut_no_part_of_a_secret_stays(secret: str) -> None:
    for room in range(100, 200):
        text = f"{'so ' * 99}"[:room] + f" {secret}{' and so on' * 50}"

        for kept in (handed_text(text), shorten(text, 200 + MARKER_ROOM)):
            left = scrub_text(kept)
            assert not any(part in left for part in (WORD[:3], LETTERS[:12], "AKIA"))
