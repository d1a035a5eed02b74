"""What was found harmless once is not searched again, and hides nothing that stands beside it."""

from typing import Any

import pytest

from tau_live.core.events import Decision
from tau_live.core.redaction import Redactor
from tests.secret_examples import SECRETS

GITHUB = SECRETS["github"][0]
HALF = len(GITHUB) // 2


def decision(context: dict[str, object]) -> Decision:
    return Decision(
        host="h", run_id="r", at=1.0, ordinal=1, point="p", options=("a",), context=context
    )


def context_of(redactor: Redactor, context: dict[str, object]) -> Any:
    found = redactor.redact(decision(context))
    assert isinstance(found, Decision)
    return found.context


def test_words_of_a_mapping_are_searched_once() -> None:
    redactor = Redactor("redacted")
    context = {"language": "english", "tier": "premium", "length": 12}

    found = [context_of(redactor, context) for _ in range(3)]

    assert found == [context] * 3
    searches = redactor._are_clean_words.cache_info()
    assert (searches.misses, searches.hits) == (1, 2)


@pytest.mark.parametrize(
    "context",
    [
        pytest.param({"language": "english", "note": GITHUB}, id="beside it"),
        pytest.param({"language": GITHUB[:HALF], "note": GITHUB[HALF:]}, id="over two of them"),
        pytest.param({"first": {"a": GITHUB[:HALF]}, "last": {"a": GITHUB[HALF:]}}, id="nested"),
        pytest.param({"language": "english", "password": "S3cr3tPassw0rd"}, id="under its name"),
    ],
)
def test_a_secret_is_found_beside_words_that_are_known(context: dict[str, object]) -> None:
    redactor = Redactor("redacted")
    for known in ("english", GITHUB[:HALF], GITHUB[HALF:]):
        context_of(redactor, {"language": known})
        context_of(redactor, {"a": known})

    found = context_of(redactor, context)

    assert found == context_of(Redactor("redacted"), context)
    assert found != context
    assert GITHUB not in repr(found)
    assert "S3cr3t" not in repr(found)
    assert context_of(redactor, context) == found
