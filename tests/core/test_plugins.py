"""Plugins are found, called one after the other, and cannot hurt the host or one another."""

import threading
from collections.abc import Callable, Iterator

import pytest

from tau_live.core import hookspecs
from tau_live.core.events import Event
from tau_live.core.hookspecs import (
    Answer,
    DecisionRequest,
    Promotion,
    Register,
    RewardPart,
    RolloutSummary,
    Text,
    hookimpl,
)
from tau_live.core.plugins import Plugins
from tau_live.core.records import RolloutStatus, Span
from tests.plugged import (
    EVENT,
    REQUEST,
    SUMMARY,
    Broken,
    Listening,
    OurOwn,
    Promoted,
    Seen,
    registered,
)

SPAN = Span(
    rollout_id="live-1",
    attempt=1,
    span_id="s1",
    kind="tool",
    name="search",
    attributes={"key": "secret", "size": 3},
    started_at=1.0,
)

TEXT = Text(text="Where is my order?", event="message", field="content")


class Choosing:
    """Always gives the same answer."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    @hookimpl
    def decide(self, request: DecisionRequest) -> object:
        return self.answer


def test_an_empty_hook_is_known_to_be_empty() -> None:
    plugins = Plugins()

    assert not any(
        plugins.listening[hook]
        for hook in (
            "observe",
            "decide",
            "infer_reward",
            "redact",
            "redact_text",
            "gate_changed",
            "update_finished",
            "policy_promoted",
            "register_hosts",
            "register_commands",
        )
    )
    plugins.tell("observe", EVENT)
    assert plugins.decide(REQUEST) is None
    assert plugins.infer_reward(SUMMARY) == []
    assert plugins.redact(SPAN) is SPAN
    assert plugins.redact_text(TEXT) == TEXT.text


def test_every_plugin_is_shown_every_event() -> None:
    first, second = Seen(), Seen()
    plugins = registered(first, second)

    plugins.tell("observe", EVENT)

    assert plugins.listening["observe"]
    assert first.events == second.events == [EVENT]


def test_one_that_raises_is_skipped_and_counted_and_the_others_are_called() -> None:
    seen, broken = Seen(), Broken()
    plugins = registered(seen, broken)

    plugins.tell("observe", EVENT)

    assert seen.events == [EVENT]
    report = {line.name: line for line in plugins.report()}
    assert (report["broken-1"].failures, report["broken-1"].disabled) == (1, False)
    assert report["broken-1"].problem == "observe: RuntimeError: out of order"
    assert report["seen-0"].problem is None


def test_after_three_failures_it_is_disabled_until_restart() -> None:
    seen, broken = Seen(), Broken()
    plugins = registered(seen, broken)

    for _ in range(5):
        plugins.tell("observe", EVENT)
        plugins.decide(REQUEST)

    assert broken.calls == 3
    assert len(seen.events) == 5
    assert plugins.listening["observe"]
    assert not plugins.listening["decide"]
    (broken_line, _) = plugins.report()
    assert (broken_line.failures, broken_line.disabled) == (3, True)
    assert broken_line.hooks == ("decide", "infer_reward", "observe", "redact")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(), GeneratorExit()])
def test_what_belongs_to_the_host_passes_through_a_plugin(error: BaseException) -> None:
    plugins = registered(Broken(error))

    with pytest.raises(type(error)):
        plugins.tell("observe", EVENT)

    assert plugins.report()[0].failures == 0


def test_the_first_answer_wins_and_ours_is_asked_last() -> None:
    plugins = registered(Choosing(Answer(option="large")), OurOwn(), Choosing(None))

    answer = plugins.decide(REQUEST)

    assert answer == Answer(option="large")


def test_ours_answers_when_nobody_else_does() -> None:
    plugins = registered(OurOwn(), Choosing(None), Broken())

    assert plugins.decide(REQUEST) == Answer(option="small", probability=0.5)


@pytest.mark.parametrize("answer", ["large", Answer(option="huge"), 3, Answer(option=None)])  # type: ignore[arg-type]  # garbage on purpose
def test_an_answer_that_was_not_offered_is_a_failure_and_the_next_is_asked(answer: object) -> None:
    plugins = registered(OurOwn(), Choosing(answer))

    assert plugins.decide(REQUEST) == Answer(option="small", probability=0.5)
    assert plugins.report()[0].failures == 1


@pytest.mark.parametrize("probability", [0.0, -0.1, 1.1, float("nan")])
def test_a_probability_that_nothing_can_be_chosen_with_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match="probability must be in"):
        Answer(option="small", probability=probability)


class Inferring:
    def __init__(self, **parts: float) -> None:
        self.parts = parts

    @hookimpl
    def infer_reward(self, summary: RolloutSummary) -> Iterator[RewardPart]:
        return (RewardPart(name=name, value=value) for name, value in self.parts.items())


def test_parts_of_rewards_are_put_together_and_the_first_of_a_name_counts() -> None:
    plugins = registered(Inferring(speed=0.1, tone=0.2), Inferring(tone=0.9))

    parts = plugins.infer_reward(SUMMARY)

    assert {part.name: part.value for part in parts} == {"tone": 0.9, "speed": 0.1}


def test_a_plugin_that_raises_half_way_or_infers_nonsense_adds_no_part() -> None:
    plugins = registered(Inferring(tone=0.9), Inferring(tone=float("nan")), Broken())

    parts = plugins.infer_reward(SUMMARY)

    assert parts == [RewardPart(name="tone", value=0.9)]
    assert [line.failures for line in plugins.report()] == [1, 0, 1]


def test_a_part_that_is_no_part_is_a_failure() -> None:
    class Sloppy:
        @hookimpl
        def infer_reward(self, summary: RolloutSummary) -> object:
            return [RewardPart(name="tone", value=0.9), ("speed", 1.0)]

    plugins = registered(Sloppy())

    assert plugins.infer_reward(SUMMARY) == []
    assert plugins.report()[0].problem == (
        "infer_reward: TypeError: expected RewardPart, got tuple"
    )


class Redacting:
    def __init__(self, change: Callable[[Span], object]) -> None:
        self.change = change

    @hookimpl
    def redact(self, span: Span) -> object:
        return self.change(span)


def without(key: str) -> Callable[[Span], Span]:
    def change(span: Span) -> Span:
        kept = {name: value for name, value in span.attributes.items() if name != key}
        return Span(
            rollout_id="another",
            attempt=9,
            span_id="another",
            kind="another",
            name=span.name,
            attributes=kept,
            started_at=9.0,
        )

    return change


def test_each_redactor_gets_what_the_one_before_returned_and_cannot_change_whose_span_it_is() -> (
    None
):
    plugins = registered(
        Redacting(without("size")), Redacting(lambda _: None), Redacting(without("key"))
    )

    redacted = plugins.redact(SPAN)

    assert redacted.attributes == {}
    assert (redacted.rollout_id, redacted.span_id, redacted.attempt) == ("live-1", "s1", 1)


@pytest.mark.parametrize("redactor", [Broken(), Redacting(lambda _: "no span")])
@pytest.mark.parametrize("others", [(), (Redacting(lambda _: None),)], ids=["alone", "with others"])
def test_what_a_redactor_could_not_look_at_is_not_kept(
    redactor: object, others: tuple[object, ...]
) -> None:
    plugins = registered(*others, redactor)

    kept = [dict(plugins.redact(SPAN).attributes) for _ in range(5)]

    assert kept == [{}] * 5  # nor after it was disabled
    assert plugins.listening["redact"]


def test_plugins_hear_of_the_gate_of_updates_and_may_add_commands() -> None:
    listening, cli = Listening(), object()
    plugins = registered(listening)

    plugins.tell("gate_changed", {"state": "hold"})
    plugins.tell("update_finished", {"executed": True})
    plugins.tell("register_commands", cli)

    assert listening.heard == [{"state": "hold"}, {"executed": True}, cli]


class Hosting:
    """Knows two hosts, one of which is wrong."""

    @hookimpl
    def register_hosts(self, register: Register) -> None:
        register("mine", Silent)
        register("wrong", None)


class Silent:
    """A host whose lines tell nothing."""

    def __init__(self, stream: str, clock: Callable[[], float]) -> None:
        self.bad: dict[str, int] = {}

    def events(self, line: bytes) -> list[Event]:
        return []

    def end(self) -> list[Event]:
        return []


def test_plugins_make_hosts_known_and_a_wrong_one_is_left_out() -> None:
    plugins = registered(Hosting())

    hosts = plugins.hosts()

    assert hosts == {"mine": Silent}
    assert plugins.report()[0].failures == 1


def test_plugins_hear_which_version_decides() -> None:
    promotion = Promotion(point="model", version=2, was=1, pinned=False, at=5.0)
    listening = Promoted()
    plugins = registered(listening)

    plugins.tell("policy_promoted", promotion)

    assert listening.heard == [promotion]


def test_every_hook_says_what_it_is_for() -> None:
    hooks = [found for found in vars(hookspecs).values() if hasattr(found, "tau_live_spec")]

    assert len(hooks) == 11
    assert all((hook.__doc__ or "").rstrip().endswith(".") for hook in hooks)


def test_threads_disable_a_broken_plugin_once_and_lose_no_event() -> None:
    seen, broken = Seen(), Broken()
    plugins = registered(seen, broken)
    barrier, took_part = threading.Barrier(4), []

    def work() -> None:
        barrier.wait(timeout=30)
        for _ in range(100):
            plugins.tell("observe", EVENT)
        took_part.append(threading.get_ident())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)

    assert len(took_part) == 4
    assert len(seen.events) == 400
    assert 3 <= plugins.report()[0].failures == broken.calls
    assert plugins.report()[0].disabled


def test_one_of_ours_is_given_what_there_is_and_another_a_copy() -> None:
    given: dict[str, RolloutSummary] = {}

    class Rewarder:
        def __init__(self, name: str) -> None:
            self._name = name

        @hookimpl
        def infer_reward(self, summary: RolloutSummary) -> None:
            given[self._name] = summary

    plugins = Plugins()
    plugins.register(Rewarder("ours"), name="ours", is_ours=True)
    plugins.register(Rewarder("theirs"), name="theirs")
    summary = RolloutSummary(
        rollout_id="live-1", host="h", status=RolloutStatus.SUCCEEDED, metadata={"x": [1]}
    )

    plugins.infer_reward(summary)

    assert given["ours"] is summary
    assert given["theirs"] == summary
    assert given["theirs"].metadata is not summary.metadata
