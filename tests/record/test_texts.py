"""Every text of an event comes by the plugins that redact texts, wherever it stands."""

from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tau_live.core.events import (
    Content,
    Decision,
    ErrorInfo,
    ModelEnd,
    Reward,
    RunEnd,
    RunStart,
    ToolCall,
    encode,
)
from tau_live.core.hookspecs import Text, hookimpl
from tau_live.core.records import Reward as StoredReward
from tau_live.core.redaction import Redactor
from tau_live.core.settings import Content as Kept
from tau_live.core.settings import Learner, Settings
from tau_live.core.settings.tables import DeclaredReward
from tau_live.record.pipeline import LEFT_OUT, Texts, known_rewards
from tau_live.runtime.build import pipeline_of
from tau_live.store.sqlite.store import SqliteStore
from tests.plugged import Seen, registered

NAME = "Ada Lovelace"
EVENTS = (
    RunStart(
        host="test",
        run_id="r1",
        at=1.0,
        name=f"for {NAME}",
        agent=f"{NAME}'s",
        tools=(f"mail {NAME}",),
        input=Content(text=f"I am {NAME}"),
        raw={"from": [NAME]},
        metadata={"customer": {NAME: [1, NAME]}},
    ),
    ModelEnd(
        host="test",
        run_id="r1",
        at=2.0,
        span_id="s1",
        model_used="m",
        output=Content(text=f"Dear {NAME}"),
        error=ErrorInfo(type="ValueError", message=f"no {NAME}"),
        tool_calls=(ToolCall(id="c", name="mail", args=Content(text=f'{{"to":"{NAME}"}}')),),
    ),
    Decision(
        host="test",
        run_id="r1",
        at=3.0,
        ordinal=1,
        point="model",
        options=("small", "large"),
        chosen="small",
        applied="small",
        context={"name": NAME, NAME: 1},
        features={"small": {"for": NAME}, "large": {"n": 1}},
    ),
    Reward(
        host="test",
        run_id="r1",
        at=4.0,
        name=f"asked by {NAME}",
        value=1.0,
        label=f"{NAME}: good",
        comment=Content(text=f"{NAME} is glad"),
    ),
    RunEnd(host="test", run_id="r1", at=5.0, output=Content(text=f"Bye {NAME}")),
)


class Hiding:
    """Hides the name, and remembers where it saw anything."""

    def __init__(self) -> None:
        self.seen: list[Text] = []

    @hookimpl
    def redact_text(self, text: Text) -> str:
        self.seen.append(text)
        return text.text.replace(NAME, "[name]")


class Failing:
    """Cannot tell."""

    @hookimpl
    def redact_text(self, text: Text) -> str:
        raise RuntimeError(text.text)


class Wrong:
    """Returns what is no text."""

    @hookimpl
    def redact_text(self, text: Text) -> int:
        return len(text.text)


def stored(folder: Path, *plugins: object, content: Kept = Kept.REDACTED) -> bytes:
    """Take the events into a store through its pipeline; return all that was written."""
    settings = Settings(store=folder / "store.sqlite", content=content, learner=Learner.OFF)
    with closing(SqliteStore.open(settings.store)) as store:
        pipeline = pipeline_of(
            store, settings, owner=None, plugins=registered(*plugins), recorder=None,
            on_poison=lambda _event, error: pytest.fail(str(error)),
        )  # fmt: skip
        pipeline.store(pipeline.prepare(EVENTS))
    return b"".join(file.read_bytes() for file in folder.iterdir())


@pytest.mark.parametrize("content", Kept)
def test_no_text_gets_by(tmp_path: Path, content: Kept) -> None:
    hiding = Hiding()

    written = stored(tmp_path, hiding, content=content)

    assert NAME.encode() not in written
    assert b"[name] is glad" in written
    assert {one.field for one in hiding.seen if NAME in one.text} == {
        *("name", "agent", "tools", "input", "raw", "metadata", "output", "error", "tool_calls"),
        *("context", "features", "comment", "label"),
    }


def test_without_such_a_plugin_texts_are_what_they_were(tmp_path: Path) -> None:
    assert NAME.encode() in stored(tmp_path)


def test_no_hash_tells_what_was_left_out() -> None:
    content = Redactor("none").with_content().redact(EVENTS[0])
    found = Redactor("none").redact(Texts(lambda text: text.text.replace(NAME, "x")).apply(content))

    same = Redactor("none").redact(
        RunStart(host="test", run_id="r1", at=1.0, input=Content(text="I am x"))
    )

    assert isinstance(found, RunStart)
    assert isinstance(same, RunStart)
    assert found.input == same.input
    assert found.input is not None
    assert found.input.text is None


@pytest.mark.parametrize("plugin", [Failing(), Wrong()])
def test_what_a_plugin_could_not_look_at_is_left_out_also_after_it_was_disabled(
    tmp_path: Path, plugin: object
) -> None:
    written = stored(tmp_path, Hiding(), plugin)

    assert NAME.encode() not in written
    assert b"is glad" not in written
    assert LEFT_OUT.encode() in written
    assert b"asked by" not in written


def test_other_plugins_are_shown_what_is_left(tmp_path: Path) -> None:
    seen = Seen()

    stored(tmp_path, seen, Hiding())

    assert NAME.encode() not in b"".join(map(encode, seen.events))


def test_one_that_leaves_everything_as_it_is_changes_nothing() -> None:
    unchanged = Texts(lambda text: text.text)

    assert all(unchanged.apply(event) is event for event in EVENTS)


def test_what_is_learned_from_stays_and_so_do_the_names_that_it_is_found_by() -> None:
    decision = replace(EVENTS[2], encoded=b"packed", options=(NAME, "large"))

    found = Texts(lambda _: None).apply(decision)

    assert isinstance(found, Decision)
    assert (found.encoded, found.point, found.options) == (b"packed", "model", (NAME, "large"))
    assert found.context == {LEFT_OUT: LEFT_OUT, f"{LEFT_OUT} (2)": 1}
    assert found.features == {"small": {LEFT_OUT: LEFT_OUT}, "large": {LEFT_OUT: 1}}


def test_a_plugin_hears_under_which_name_a_text_stands() -> None:
    hiding = Hiding()

    Texts(hiding.redact_text).apply(
        RunStart(host="t", run_id="r", at=1.0, metadata={"who": {"first": ["Ada"]}})
    )

    assert [(one.text, one.key) for one in hiding.seen] == [
        ("who", ""), ("first", ""), ("Ada", "first"),
    ]  # fmt: skip


def test_names_that_become_the_same_stay_apart() -> None:
    [start] = [RunStart(host="t", run_id="r", at=1.0, metadata={"Ada": 1, "Eve": 2})]

    found = Texts(lambda text: "[name]").apply(start)

    assert isinstance(found, RunStart)
    assert found.metadata == {"[name]": 1, "[name] (2)": 2}


def test_a_longer_text_is_bounded_and_a_new_secret_is_taken_out() -> None:
    redactor = Redactor("redacted", 100)
    told = Texts(lambda _: "AKIA" + "IOSFODNN7EXAMPLE " + "x" * 1_000)

    found = redactor.redact(told.apply(redactor.redact(EVENTS[4])))

    assert isinstance(found, RunEnd)
    assert found.output is not None
    assert found.output.text is not None
    assert len(found.output.text) <= 100
    assert "AKIA" not in found.output.text


def test_a_comment_of_the_command_line_comes_by_too() -> None:
    given = StoredReward(rollout_id="live-1", name="solved", comment=f"{NAME} is glad", at=1.0)

    kept = Texts(lambda text: text.text.replace(NAME, "[name]")).reward(given)
    failed = Texts(lambda _: None).reward(given)

    assert (kept.comment, failed.comment) == ("[name] is glad", LEFT_OUT)


def test_names_of_rewards_that_settings_know_stay_whatever_a_redactor_does() -> None:
    settings = Settings(rewards=(DeclaredReward(name="solved"),))
    texts = Texts(lambda _: None, known_rewards(settings))
    given = [Reward(host="test", run_id="r1", at=4.0, name=name, value=1.0, label=label)
             for name in ("reward", "solved", NAME)
             for label in ("true", NAME)]  # fmt: skip

    found = [texts.apply(one) for one in given]
    said = [texts.reward(StoredReward(rollout_id="live-1", name=one.name, label=one.label, at=1.0))
            for one in given]  # fmt: skip

    expected = [(name, label) for name in ("reward", "solved", LEFT_OUT)
                for label in ("true", LEFT_OUT)]  # fmt: skip
    assert [(one.name, one.label) for one in found if isinstance(one, Reward)] == expected
    assert [(one.name, one.label) for one in said] == expected
