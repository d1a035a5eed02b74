"""Ids can be stored, stay apart, and hold no secret."""

from base64 import b64encode

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tau_live.core.events import ToolEnd
from tau_live.core.redaction import clean_id, scrub_text
from tests.secret_examples import NONE


@given(st.text(st.characters(codec=None), max_size=700))
def test_an_id_stays_one_that_can_be_stored(text: str) -> None:
    found = clean_id(text)

    assert clean_id(found) == found
    assert len(found.encode()) <= 4 * 512


@pytest.mark.slow
@given(
    st.uuids().map(str)
    | st.from_regex(r"[0-9a-f]{1,31}(-[0-9a-f]{1,31}){0,6}", fullmatch=True)
    | st.from_regex(r"[0-9]{1,31}(-[0-9]{1,31}){0,6}", fullmatch=True)
)
@example("4111-1111-1111-1111")
@example("run-1-4111111111111111")
def test_nothing_that_a_search_finds_is_left_in_a_hexadecimal_id(text: str) -> None:
    found = clean_id(text)

    assert scrub_text(found) == found


def test_the_number_of_a_card_among_ids_is_found() -> None:
    told = ToolEnd(
        host="h", run_id="r", at=1.0, span_id="4111-1111-1111-1111", call_id="1", tool=""
    )

    found = NONE.redact(told)

    assert found.span_id == "[redacted:card:411111-1111]"


def test_long_ids_stay_apart() -> None:
    assert clean_id("a" * 600 + "b") != clean_id("a" * 600 + "c")


@pytest.mark.parametrize(
    "id_",
    [
        pytest.param("postgres:%2F%2Fanna:S3cr3tPassw0rd%40db", id="percent"),
        pytest.param(b64encode(b"password=S3cr3tPassw0rd of anna").decode(), id="base64"),
        pytest.param(b"password=S3cr3tPassw0rd of anna".hex(), id="hexadecimal"),
    ],
)
def test_a_secret_that_is_encoded_in_an_id_is_found_among_others(id_: str) -> None:
    told = ToolEnd(host="h", run_id="r", at=1.0, span_id="step 1", call_id=id_, tool="search")

    found = NONE.redact(told)

    assert isinstance(found, ToolEnd)
    assert (found.span_id, found.tool) == ("step 1", "search")
    assert id_ not in str(found.call_id)
    assert "[redacted:" in str(found.call_id)
