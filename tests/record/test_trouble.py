"""A store that fails: reported once for each cause, and believed again only when it works."""

import logging

import pytest

from tau_live.core.errors import StoreUnavailableError
from tau_live.core.gate_keeper import GateKeeper
from tau_live.record.trouble import Trouble

LIMIT = 3


def _failing() -> tuple[GateKeeper, Trouble]:
    gate = GateKeeper(limit=LIMIT, who="me")
    return gate, Trouble(gate, limit=LIMIT)


def _fail(trouble: Trouble) -> None:
    for _ in range(LIMIT):
        trouble.record_failure(StoreUnavailableError("store 'x' cannot be used: reading it failed"))


def test_a_store_that_works_again_lets_the_gate_pass() -> None:
    gate, trouble = _failing()
    _fail(trouble)
    held = gate.passes

    trouble.record_success()

    assert (held, gate.passes, trouble.is_failing) == (False, True, False)


def test_one_that_fails_again_at_once_is_not_believed_the_next_time() -> None:
    gate, trouble = _failing()
    _fail(trouble)
    trouble.record_success()
    _fail(trouble)

    trouble.record_success()

    assert not gate.passes
    assert trouble.is_failing


def test_a_name_made_at_random_is_no_new_cause(caplog: pytest.LogCaptureFixture) -> None:
    _, trouble = _failing()
    caplog.set_level(logging.WARNING, "tau_live")

    for name in ("a8Z_x1", "kk0Qw3"):
        trouble.log(
            StoreUnavailableError(
                f"store 's' cannot be opened: [Errno 28] No space: '/d/.s.{len(name)}-{name}.part'"
            )
        )

    assert len([line for line in caplog.messages if "store_fails" in line]) == 1


def test_two_threads_that_meet_the_same_cause_log_it_once(caplog: pytest.LogCaptureFixture) -> None:
    _, trouble = _failing()
    caplog.set_level(logging.WARNING, "tau_live")
    full = StoreUnavailableError("store 's' cannot be used: the disk is full")

    trouble.record_failure(full)
    trouble.record_learner_failure(full)

    assert len([line for line in caplog.messages if "store_fails" in line]) == 1
