"""What the redactor leaves of a step."""

import acme_redactor
import pytest

from tau_live.rollouts import Span


def step(**attributes: object) -> Span:
    return Span(
        rollout_id="live-1",
        attempt=1,
        span_id="s-1",
        kind="message",
        name="message.added",
        status="ok",
        attributes=attributes,
        started_at=1.0,
    )


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("Where is AC-123456?", "Where is [order]?"),
        ({"AC-123456": ["AC-654321", 7]}, {"[order]": ["[order]", 7]}),
    ],
)
def test_no_number_of_an_order_is_left(said: object, kept: object) -> None:
    found = acme_redactor.redact(step(content=said))

    assert found is not None
    assert found.attributes == {"content": kept}


def test_a_step_without_one_stays_what_it_is() -> None:
    assert acme_redactor.redact(step(content="Where is AC-1?", chars=14)) is None
