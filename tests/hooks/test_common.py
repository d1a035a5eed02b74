"""What adapters share: choices on any host's requests, and the book of any host's run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest

from tau_live.core import events as ev
from tau_live.core.hookspecs import Answer, DecisionRequest, hookimpl
from tau_live.core.prompts import fill_prompt
from tau_live.core.records import Decision, Trial
from tau_live.core.settings import Learner, Settings
from tau_live.core.settings.tables import DeclaredDecision, Every, Point
from tau_live.decisions.runs import RunHandle
from tau_live.runtime.build import open_store
from tau_live.runtime.runtime import Runtime, start
from tau_live.testing.expected import Recorded, recorded_in
from tau_live_hooks.common import RunBook, content_of, positive_counts, situation_of
from tau_live_hooks.common_choices import Choices

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Request:
    """What some host asks a model."""

    model: str = "small"
    prompt: str = "Be good."
    tools: tuple[str, ...] = ("look", "take")


class Seam:
    """Reads and changes it; this host refuses to change its model to a broken one."""

    def value_at(self, point: Point, request: Request) -> object:
        if point is Point.TOOLS:
            return list(request.tools) or None
        if point is Point.PARAMS:
            return None
        return request.model if point is Point.MODEL else request.prompt

    def is_own(self, request: Request, model: object) -> bool:
        return model == request.model

    def put(self, point: Point, request: Request, value: object) -> Request:
        if value == "broken":
            raise LookupError("no such model")
        if point is Point.TOOLS:
            assert isinstance(value, list)
            return replace(request, tools=tuple(value))
        if point is Point.MODEL:
            return replace(request, model=str(value))
        return replace(request, prompt=str(value))

    def instructions(self, request: Request) -> str:
        return request.prompt


class Wanted:
    """Answers each point with what a test wants there."""

    def __init__(self, wanted: Mapping[str, str]) -> None:
        self._wanted = wanted

    @hookimpl
    def decide(self, request: DecisionRequest) -> Answer | None:
        option = self._wanted.get(request.point)
        known = option is not None and option in request.options
        return Answer(option=str(option), probability=1.0) if known else None


@contextmanager
def deciding(
    path: Path, *told: DeclaredDecision, **wanted: str
) -> Iterator[tuple[Choices, RunHandle]]:
    """Let a learner that wants this decide everything in one run."""
    settings = Settings(
        store=path, learner=Learner.FLUSH, act=True, decisions=told, decide_deadline_ms=60_000.0
    )
    store = open_store(settings)
    with store.begin():
        for one in told:
            store.trials.save(Trial(point=one.point, ladder=True, exposure=1.0, revision=1))
    store.close()
    with running(settings) as runtime:
        runtime.plugins.register(Wanted(wanted), name="wanted")
        handle = begun(runtime)
        yield Choices(runtime, handle), handle
        runtime.end_run(handle, None)


@contextmanager
def running(settings: Settings) -> Iterator[Runtime]:
    runtime = start({}, settings)
    assert runtime is not None
    try:
        yield runtime
    finally:
        runtime.flush(30.0)
        runtime.close(30.0)


def begun(runtime: Runtime, *, resumed: Mapping[str, object] | None = None) -> RunHandle:
    return runtime.begin_run(
        "some", key="run-1", session=None, metadata=None, parent=None, host="some-host",
        resumed=resumed,
    )  # fmt: skip


def stored(path: Path) -> Recorded:
    [one] = recorded_in(Settings(store=path))
    return one


def rows(path: Path) -> list[Decision]:
    return list(stored(path).decisions)


MODEL = DeclaredDecision(point="model", options={"small": "small", "large": "large"})
PROMPT = DeclaredDecision(point="prompt", options={"kind": "{instructions} Be kind."})
TOOLS = DeclaredDecision(
    point="tools", options={"less": ["take", "burn"], "none": [], "theirs": ["burn"]}
)


def test_what_is_chosen_is_in_the_request(path: Path) -> None:
    with deciding(path, MODEL, PROMPT, TOOLS, model="large", prompt="kind", tools="less") as (
        choices,
        _,
    ):
        request, pending = choices.change_request(Seam(), Request(), {})
        pending.settle_sent(request)

    assert request == Request("large", "Be good. Be kind.", ("take",))
    assert {row.point: (row.applied, row.why_not) for row in rows(path)} == {
        "model": ("large", None),
        "prompt": ("kind", None),
        "tools": ("less", None),
    }


@pytest.mark.parametrize("own", ["", "Be good."])
def test_a_prompt_that_says_what_is_there_leaves_the_request_alone(path: Path, own: str) -> None:
    told = DeclaredDecision(point="prompt", options={"same": "{instructions}"})
    asked = Request(prompt=own)

    with deciding(path, told, prompt="same") as (choices, _):
        request, pending = choices.change_request(Seam(), asked, {})
        pending.settle_sent(request)
    [row] = rows(path)

    assert request is asked
    assert (row.applied, row.why_not) == ("same", None)


def test_no_tool_is_ever_added_and_none_offered_that_is_not_there(path: Path) -> None:
    with deciding(path, TOOLS, tools="theirs") as (choices, _):
        request, pending = choices.change_request(Seam(), Request(), {})
        pending.settle_sent(request)
        bare, _ = choices.change_request(Seam(), Request(tools=()), {})
    [row] = rows(path)

    assert set(request.tools) <= {"look", "take"}
    assert bare == Request(tools=())
    assert row.options == ("less", "none", "theirs", "own")
    assert set(row.allowed or ()) == {"less", "none", "own"}


def test_an_option_that_is_all_the_tools_is_the_hosts_own(path: Path) -> None:
    told = DeclaredDecision(point="tools", options={"all": ["take", "look", "burn"], "none": []})

    with deciding(path, told, tools="all") as (choices, _):
        request, pending = choices.change_request(Seam(), Request(), {})
        pending.settle_sent(request)
    [row] = rows(path)

    assert request == Request()
    assert (row.options, row.default, row.applied) == (("all", "none"), "all", "all")


def test_a_point_that_fails_is_the_hosts_and_the_others_go_on(path: Path) -> None:
    told = DeclaredDecision(point="model", options={"broken": "broken"})

    with deciding(path, told, PROMPT, model="broken", prompt="kind") as (choices, _):
        request, pending = choices.change_request(Seam(), Request(), {})
        pending.settle_sent(request)

    assert request == Request(prompt="Be good. Be kind.")
    assert {row.point: (row.applied, row.why_not) for row in rows(path)} == {
        "model": (None, "error: LookupError"),
        "prompt": ("kind", None),
    }


@pytest.mark.parametrize(
    ("sent", "why_not"),
    [
        pytest.param(Request("other"), "replaced", id="somebody chose otherwise"),
        pytest.param(None, "not_asked", id="nothing was sent"),
    ],
)
def test_what_did_not_happen_was_not_applied(
    path: Path, sent: Request | None, why_not: str
) -> None:
    with deciding(path, MODEL, model="large") as (choices, _):
        _, pending = choices.change_request(Seam(), Request(), {})
        if sent is not None:
            pending.settle_sent(sent)
        pending.settle_unsent()
    [row] = rows(path)

    assert (row.chosen, row.applied, row.why_not) == ("large", None, why_not)


@pytest.mark.parametrize(("every", "decided"), [(Every.RUN, 1), (Every.REQUEST, 3)])
def test_a_choice_stays_for_as_long_as_was_said(path: Path, every: Every, decided: int) -> None:
    told = replace(MODEL, every=every)

    with deciding(path, told, model="large") as (choices, _):
        sent = []
        for _ in range(3):
            request, pending = choices.change_request(Seam(), Request(), {})
            pending.settle_sent(request)
            sent.append(request.model)

    assert sent == ["large"] * 3
    assert len(rows(path)) == decided


@pytest.mark.parametrize(
    ("wanted", "known", "said"),
    [
        pytest.param("veto", {"tool": "burn"}, "Not now.", id="vetoed"),
        pytest.param("own", {"tool": "burn"}, None, id="run"),
        pytest.param("veto", {"tool": "look"}, None, id="never vetoed"),
    ],
)
def test_a_tool_is_vetoed_where_it_may_be(
    path: Path, wanted: str, known: Mapping[str, object], said: str | None
) -> None:
    told = Settings(
        decisions={  # type: ignore[arg-type]  # as TOML has it
            "tool_gate": {
                "options": {"veto": "Not now."},
                "never": [{"option": "veto", "where": {"tool": "look"}}],
            }
        }
    ).decisions

    with deciding(path, *told, tool_gate=wanted) as (choices, _):
        assert choices.veto(known) == said

    assert [row.applied for row in rows(path)] == ["veto" if said else "own"]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("wanted", ["again", "stop"])
def test_a_failure_is_tried_again_where_that_is_chosen(path: Path, own: bool, wanted: str) -> None:
    told = DeclaredDecision(point="retry", options={"again": True, "stop": False})

    with deciding(path, told, retry=wanted) as (choices, _):
        tried = choices.should_retry({"what": "tool"}, own=own)
    [row] = rows(path)

    assert tried is (wanted == "again")
    assert (row.default, row.applied) == ("again" if own else "stop", wanted)


def test_nothing_declared_is_nothing_decided(path: Path) -> None:
    with deciding(path) as (choices, _):
        request, _pending = choices.change_request(Seam(), Request(), {})

        retried = choices.should_retry({}, own=True)

        assert (request, choices.veto({}), retried) == (Request(), None, True)

    assert rows(path) == []


def test_a_book_adds_up_what_a_run_takes(path: Path) -> None:
    with running(Settings(store=path, learner=Learner.FLUSH)) as runtime:
        book = RunBook(runtime, begun(runtime), agent="giver")
        for number in (1, 2):
            book.begin_turn(number)
            book.begin_turn(number)
            book.start_model(f"model:{number}")
            book.note_token(f"model:{number}")
            book.note_token(f"model:{number}")
            book.end_model(f"model:{number}", {}, usage={"input_tokens": 3.0}, cost=0.5)
            book.start_tool(f"call-{number}", "look")
            book.end_tool(f"call-{number}", "look", {"result": content_of("seen")})
        book.hand_over("taker", reason="it knows more")
        book.end()
    one = stored(path)
    [handoff] = one.of("handoff")

    assert one.rollout.metadata["usage"] == {"input_tokens": 6.0}
    assert (one.rollout.metadata["cost_usd"], one.rollout.metadata["turns"]) == (1.0, 2)
    assert [span.attributes["tool_calls"] for span in one.of("turn")] == [1, 1]
    assert all(float(str(span.attributes["ttft_ms"])) >= 0.0 for span in one.of("model"))
    assert {span.parent_span_id for span in one.of("tool")} == {"turn:1", "turn:2"}
    assert handoff.attributes["from_agent"] == "giver"
    assert handoff.attributes["agent"] == "giver"


@pytest.mark.parametrize(
    ("status", "is_error"),
    [(ev.Status.VETOED, False), (ev.Status.INTERRUPTED, False), (ev.Status.RETRY, True)],
)
def test_what_was_meant_is_no_failure_of_a_tool(
    path: Path, status: ev.Status, is_error: bool
) -> None:
    with running(Settings(store=path, learner=Learner.FLUSH)) as runtime:
        book = RunBook(runtime, begun(runtime))
        book.start_tool("c", "look")
        book.end_tool("c", "look", status=status)
        book.end()
    [tool] = stored(path).of("tool")

    assert (tool.status, tool.attributes["is_error"]) == (status.value, is_error)


def test_a_run_that_was_interrupted_goes_on_as_another_attempt(path: Path) -> None:
    with running(Settings(store=path, learner=Learner.FLUSH)) as runtime:
        first = RunBook(runtime, begun(runtime))
        first.begin_turn()
        first.interrupt("approval", resume_key="k")
        first.end()
        assert runtime.flush(30.0)
        meanwhile = stored(path).rollout.status
        second = RunBook(runtime, begun(runtime, resumed={"resume_key": "k"}))
        second.begin_turn()
        second.end()
    one = stored(path)

    assert (meanwhile, one.rollout.status) == ("running", "succeeded")
    assert [(tried.number, tried.status) for tried in one.attempts] == [
        (1, "succeeded"),
        (2, "succeeded"),
    ]
    assert [span.name for span in one.of("run")] == ["agent.interrupt", "agent.resume"]
    assert [span.attempt for span in one.of("turn")] == [1, 2]


class _Text(str):
    """A text of some host's own kind, which says something else of itself."""

    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


def test_a_hosts_own_kind_of_text_is_kept_as_a_plain_one() -> None:
    found = content_of(_Text("hello"))

    assert found is not None
    assert type(found.text) is str
    assert found.text == "hello"
    assert msgspec.json.encode(found) == msgspec.json.encode(content_of("hello"))


def test_of_metadata_only_what_is_short_and_plain_is_known() -> None:
    metadata = {"tier": "gold", "age": 7, "text": "x" * 65, "list": [1], 3: "no name"}

    assert situation_of({"agent": "a"}, metadata) == {"agent": "a", "tier": "gold", "age": 7}


@pytest.mark.parametrize(
    ("own", "said"), [("Be good.", "Be good. Be brief."), ("", "Be brief.")], ids=["some", "none"]
)
def test_a_prompt_stands_with_the_agents_own_instructions(own: str, said: str) -> None:
    assert fill_prompt("{instructions} Be brief.", own) == said


def test_only_numbers_that_say_something_are_counted() -> None:
    said = {"a": 1, "b": 0, "c": float("nan"), "d": "7", "e": 2.5, "f": -5, "g": float("inf")}

    assert positive_counts(said) == {"a": 1.0, "e": 2.5}
