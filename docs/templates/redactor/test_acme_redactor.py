"""What the redactor leaves of a text, and that nothing else gets into a store."""

from pathlib import Path

import acme_redactor
import pluggy
import pytest

import tau_live
from tau_live.core.hookspecs import Text
from tau_live.core.settings import Content, Settings


@pytest.mark.parametrize(
    ("said", "kept"),
    [("Where is AC-123456?", "Where is [order]?"), ("Where is AC-1?", None)],
)
def test_no_number_of_an_order_is_left(said: str, kept: str | None) -> None:
    text = Text(text=said, event="message", field="content")

    assert acme_redactor.redact_text(text) == kept


def test_none_gets_into_the_store_or_a_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    manager = pluggy.PluginManager("acme")
    manager.register(acme_redactor)
    tau_live.attach(
        Settings(
            store=tmp_path / "store.sqlite",
            record=tmp_path / "record.jsonl",
            content=Content.REDACTED,
        )
    )
    tau_live.attach(manager)

    with tau_live.run("help", metadata={"asked": "Where is AC-123456?"}) as run:
        run.decide("model", ["small", "large"], context={"order": "AC-123456", "chars": 19})
        run.reward(1.0, name="solved", comment="AC-123456 was found")
    tau_live.flush()
    tau_live.detach()

    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"AC-123456" not in written
    assert written.count(b"[order] was found") > 0
