"""Secrets and unwanted content never get past the redactor."""

import hashlib
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tau_live.core.events import (
    Content,
    Decision,
    ErrorInfo,
    Event,
    Message,
    ModelEnd,
    Retry,
    Reward,
    RunEnd,
    RunStart,
    ToolCall,
    ToolEnd,
    decode,
    encode,
)
from tau_live.core.redaction import Redactor, clean_id
from tests.secret_examples import BENIGN, KEEPS, LETTERS, NONE, SECRETS, mapped


def message(text: str) -> Message:
    return Message(host="h", run_id="r", at=1.0, role="user", content=Content(text=text))


def told_by(name: str) -> ToolEnd:
    """Return an event in which a name stands as a text and as an id."""
    return ToolEnd(host="h", run_id="r", at=1.0, agent=name, tool=name, call_id=name)


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


@given(st.tuples(TEXTS, TEXTS, TEXTS, TEXTS, TEXTS))
def test_each_id_is_written_as_if_it_were_the_only_one(ids: tuple[str, ...]) -> None:
    run_id, span_id, parent, call_id, retry_of = ids
    event = ToolEnd(
        host="h", run_id=run_id, at=1.0, span_id=span_id, parent_span_id=parent,
        call_id=call_id, retry_of=retry_of,
    )  # fmt: skip

    kept = NONE.redact(event)

    found = (kept.run_id, kept.span_id, kept.parent_span_id, kept.call_id, kept.retry_of)
    assert found == tuple(id_ and clean_id(id_) for id_ in ids)


@given(TEXTS, TEXTS)
def test_what_was_written_before_changes_nothing(first: str, second: str) -> None:
    fresh, used = Redactor(), Redactor()
    used.redact(told_by(first))
    used.redact(told_by(second))

    found = used.redact(told_by(second))

    assert found == fresh.redact(told_by(second))


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


REDACTORS = st.sampled_from([NONE, KEEPS, Redactor("redacted"), Redactor("none", 64)])
BEGUN, HALF = SECRETS["private_key"][0][:37], SECRETS["github"][0][:20]


@pytest.mark.slow
@given(events(), REDACTORS)
@example(mapped({"": [BEGUN, HALF]}), NONE)
def test_to_redact_again_changes_nothing(event: Event, redactor: Redactor) -> None:
    once = redactor.redact(event)

    again = redactor.redact(once)

    assert again == once


class ApiToken:
    """Nothing that could be written; its name ends as a secret's does."""


Leaky = type(SECRETS["github"][0], (), {})
PARTS = st.one_of(
    st.sampled_from(["--password", "api_key", "DB_PASSWORD", "://me:", "x-77-1", "p@host", ""]),
    st.sampled_from(["password=x-77-1", "so on " * 20, "a" * 70, BEGUN, HALF, "[redacted:key]"]),
    st.sampled_from([secret for secrets in SECRETS.values() for secret in secrets]).flatmap(
        lambda secret: st.integers(0, len(secret)).flatmap(
            lambda at: st.sampled_from([secret[:at], secret[at:]])
        )
    ),
)
ODD_ONES = st.sampled_from([ApiToken(), Leaky(), b"bytes", 2**64, 2**520, float("inf"), None, 1])
IN_ORDER = st.lists(
    PARTS | ODD_ONES | st.lists(PARTS, max_size=2) | st.dictionaries(PARTS, PARTS, max_size=2),
    max_size=6,
)
KEYS = PARTS | st.sampled_from([2**64, 2**500, float("nan"), None, True, 1.5])


@pytest.mark.slow
@given(IN_ORDER, st.dictionaries(KEYS, PARTS | ODD_ONES, max_size=3), REDACTORS)
@example([BEGUN, HALF], {}, NONE)
@example(["password=x-77-1", "x-77-1"], {}, NONE)
@example(["--password", "so on " * 20, "x-77-1"], {}, NONE)
@example([ApiToken(), "x-77-1"], {}, NONE)
@example([Leaky()], {}, NONE)
@example([], {2**500: 1}, NONE)
def test_strings_in_order_are_the_same_when_they_are_redacted_again(
    values: list[object], keyed: dict[object, object], redactor: Redactor
) -> None:
    once = redactor.redact(mapped({"in order": values, "keyed": keyed}))

    again = redactor.redact(once)

    assert again == once


@pytest.mark.slow
@given(st.lists(PARTS, max_size=6).map(tuple), REDACTORS)
@example(("password=x-77-1", "x-77-1"), NONE)
def test_names_in_order_are_the_same_when_they_are_redacted_again(
    names: tuple[str, ...], redactor: Redactor
) -> None:
    once = redactor.redact(RunStart(host="h", run_id="r", at=1.0, tools=names, aliases=names))

    again = redactor.redact(once)

    assert again == once


@pytest.mark.slow
@given(st.lists(TEXTS, min_size=1, max_size=5, unique=True).map(tuple))
@example(("--password", "x-77-1"))
@example(("a" * 70, "b"))
@example((SECRETS["github"][0], "b"))
def test_what_may_be_chosen_is_written_as_what_is_offered(options: tuple[str, ...]) -> None:
    event = replace(DECISION, options=options, allowed=options, exploit_only=options[:1])

    found = NONE.redact(event)

    assert isinstance(found, Decision)
    assert found.allowed == found.options
    assert found.exploit_only == found.options[:1]


@pytest.mark.parametrize("redactor", [NONE, KEEPS], ids=["none", "redacted"])
@pytest.mark.parametrize("length", [65, 400])
def test_what_stands_under_a_long_secret_key_is_hidden(redactor: Redactor, length: int) -> None:
    found = redactor.redact(mapped({"x" * length + "_api_key": "hunter2"}))

    assert [*found.raw.values()] == ["[redacted:key]"]


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


@pytest.mark.parametrize("redactor", [NONE, KEEPS], ids=["none", "redacted"])
def test_a_secret_is_no_name_of_a_number(redactor: Redactor) -> None:
    event = RunEnd(host="h", run_id="r", at=1.0, usage={SECRETS["github"][0]: 1.0, "input": 2.0})

    found = redactor.redact(event)

    assert isinstance(found, RunEnd)
    assert found.usage == {"[redacted:github]": 1.0, "input": 2.0}
    assert redactor.redact(found) == found


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


@pytest.mark.slow
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
