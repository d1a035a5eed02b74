"""Plugins that mean no good, or know no better, hurt neither the host nor one another."""

import asyncio
import threading
from collections.abc import Generator, Mapping
from contextlib import suppress

import pytest
from msgspec.structs import replace

from tau_live.core.events import Event, RunStart
from tau_live.core.hookspecs import Answer, DecisionRequest, RolloutSummary, Text, hookimpl
from tests.plugged import EVENT, REQUEST, SUMMARY, Broken, Listening, OurOwn, Seen, registered


class Writing:
    """Writes into what it is given, and goes on with what was never offered."""

    @hookimpl
    def decide(self, request: DecisionRequest) -> Answer:
        request.options["forbidden"] = {}  # type: ignore[index]  # as a plugin may try
        return Answer(option="forbidden", probability=1.0)

    @hookimpl
    def observe(self, event: Event) -> None:
        with suppress(TypeError):  # Python 3.13 lets it
            object.__setattr__(event, "run_id", "another")
        event.raw["who"].append("a plugin")  # type: ignore[attr-defined]  # as a plugin may try

    @hookimpl
    def gate_changed(self, snapshot: Mapping[str, object]) -> None:
        snapshot["state"] = "pass"  # type: ignore[index]  # as a plugin may try

    @hookimpl
    def infer_reward(self, summary: RolloutSummary) -> None:
        summary.metadata["cost_usd"] = 0.0  # type: ignore[index]  # as a plugin may try


def test_what_a_plugin_writes_into_what_it_is_given_reaches_nobody() -> None:
    seen, listening = Seen(), Listening()
    plugins = registered(seen, listening, Writing())
    event = RunStart(host="t", run_id="r", at=1.0, raw={"who": ["a host"]})
    snapshot, summary = {"state": "hold"}, replace(SUMMARY, metadata={"cost_usd": 1.0})

    plugins.tell("observe", event)
    plugins.tell("gate_changed", snapshot)
    plugins.infer_reward(summary)

    assert event.run_id == seen.events[0].run_id == "r"
    assert event.raw == seen.events[0].raw == {"who": ["a host"]}
    assert listening.heard == [snapshot] == [{"state": "hold"}]
    assert summary.metadata == {"cost_usd": 1.0}
    assert not any(one.failures for one in plugins.report())


class Shouting:
    """Redacts."""

    @hookimpl
    def redact_text(self, text: Text) -> str:
        return f"{text.text}!"


class Wrapping:
    """Is left out, for pluggy's wrappers are not called."""

    @hookimpl(wrapper=True)
    def redact_text(self, text: Text) -> Generator[None, str, str]:
        return (yield)


class Misspelt:
    """Is left out, for there is no such hook."""

    @hookimpl
    def redact_text(self, text: Text) -> str:
        return ""

    @hookimpl
    def redact_everything(self, text: Text) -> str:
        return ""


@pytest.mark.parametrize("plugin", [Wrapping(), Misspelt()])
def test_a_redactor_that_is_left_out_lets_no_text_through(plugin: object) -> None:
    plugins = registered(plugin)

    assert plugins.redact_text(Text(text="Ada", event="message", field="content")) is None
    assert plugins.listening["redact_text"]


def test_a_redactor_that_is_registered_twice_is_called_once() -> None:
    shouting = Shouting()
    plugins = registered(shouting, shouting)

    assert plugins.redact_text(Text(text="Ada", event="message", field="content")) == "Ada!"


def test_a_plugin_cannot_offer_what_the_host_does_not() -> None:
    plugins = registered(OurOwn(), Writing())
    request = replace(REQUEST, options={"small": {}, "large": {}})

    assert plugins.decide(request) == Answer(option="small", probability=0.5)


def test_a_plugin_that_cancels_cancels_no_task_of_the_host() -> None:
    plugins = registered(OurOwn(), Broken(asyncio.CancelledError()))

    async def decides() -> Answer | None:
        return plugins.decide(REQUEST)

    assert asyncio.run(decides()) == Answer(option="small", probability=0.5)
    assert plugins.report()[0].failures == 1


class Leaving:
    """Wants the process to end."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    @hookimpl
    def observe(self, event: Event) -> None:
        raise self.error


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), BaseException()])
def test_a_plugin_that_exits_ends_no_thread_of_ours(error: BaseException) -> None:
    seen = Seen()
    plugins, after = registered(seen, Leaving(error)), list[str]()

    def work() -> None:
        plugins.tell("observe", EVENT)
        after.append("still here")

    thread = threading.Thread(target=work, name="tau-live-writer")
    thread.start()
    thread.join()

    assert after == ["still here"]
    assert sum(report.failures for report in plugins.report()) == 1


def test_an_operator_who_wants_the_main_thread_to_end_is_heard() -> None:
    plugins = registered(Leaving(SystemExit(3)))

    with pytest.raises(SystemExit):
        plugins.tell("observe", EVENT)
