"""The lines of OpenTelemetry's collector: a trace is a rollout, in whichever order it comes."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tau_live.core.reasons import WhyNot
from tau_live.core.records import RolloutStatus
from tau_live.learn.trajectories import why_not
from tau_live.runtime.importing.log import Format
from tests.contracts.making import steps
from tests.live.running import decisions, exported, opened, rewards, rollouts
from tests.runtime.importing.conftest import Import, written

NANO = 10**9
Span = dict[str, object]


def value(of: object) -> dict[str, object]:
    if isinstance(of, bool):
        return {"boolValue": of}
    if isinstance(of, int):
        return {"intValue": str(of)}
    if isinstance(of, float):
        return {"doubleValue": of}
    if isinstance(of, list):
        return {"arrayValue": {"values": [value(one) for one in of]}}
    if isinstance(of, dict):
        return {"kvlistValue": {"values": attributes(of)}}
    return {"stringValue": of}


def attributes(of: Mapping[str, object]) -> list[dict[str, object]]:
    return [{"key": key, "value": value(one)} for key, one in of.items()]


def span(id_: str, at: int, *, trace: str = "t1", parent: str = "", **more: object) -> Span:
    return {
        "traceId": trace,
        "spanId": id_,
        "parentSpanId": parent,
        "name": id_,
        "startTimeUnixNano": str((1_700_000_000 + at) * NANO),
        "endTimeUnixNano": str((1_700_000_001 + at) * NANO),
        **more,
    }


def batch(*spans: Span) -> dict[str, object]:
    resource = {"attributes": attributes({"service.name": "shop"})}
    scope = {"scope": {"name": "agent"}, "spans": list(spans)}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}


CHAT = span(
    "chat",
    2,
    parent="root",
    attributes=attributes(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "large",
            "gen_ai.response.model": "large-2",
            "gen_ai.usage.input_tokens": 12,
            "gen_ai.response.finish_reasons": ["stop"],
        }
    ),
)
DECIDED = span(
    "choose",
    1,
    parent="root",
    attributes=attributes(
        {
            "tau.decision.point": "prompt",
            "tau.decision.options": ["short", "long"],
            "tau.decision.chosen": "long",
            "tau.decision.propensity": 0.25,
            "tau.decision.context": {"words": 9},
            "tau.decision.context.kind": "faq",
        }
    ),
)
TOOL = span(
    "search",
    3,
    parent="root",
    status={"code": 2},
    attributes=attributes({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}),
)
HTTP = span("GET", 4, parent="root", attributes=attributes({"http.request.method": "GET"}))
SCORED = {
    "name": "gen_ai.evaluation.result",
    "attributes": attributes(
        {"gen_ai.evaluation.name": "quality", "gen_ai.evaluation.score.value": 0.5}
    ),
}
ROOT = span(
    "root",
    0,
    endTimeUnixNano=str(1_700_000_009 * NANO),
    events=[SCORED],
    attributes=attributes({"gen_ai.operation.name": "invoke_agent", "tau.reward": 1}),
)


def test_a_trace_becomes_a_rollout_with_its_spans_decisions_and_rewards(
    tmp_path: Path, store: Path, imported: Import
) -> None:
    found = imported(written(tmp_path / "traces.jsonl", [batch(CHAT, TOOL, HTTP, DECIDED, ROOT)]))

    (rollout,) = rollouts(store)
    with opened(store) as open_:
        spans = steps(open_, rollout.rollout_id)
    assert (found.format, found.bad_lines, found.decisions, found.with_propensity) == (
        "otel", 0, 2, 1,
    )  # fmt: skip
    assert (rollout.run_id, rollout.name, rollout.status) == (
        "t1", "root", RolloutStatus.SUCCEEDED,
    )  # fmt: skip
    assert (rollout.started_at, rollout.ended_at) == (1_700_000_000.0, 1_700_000_009.0)
    assert rollout.metadata["service"] == "shop"
    assert {(one.name, one.status, one.parent_span_id) for one in spans} == {
        ("model.large", "ok", "root"), ("agent.turn.1", "ok", "root"),
        ("tool.search", "error", "root"),
    }  # fmt: skip
    given = {(one.name, one.value) for one in rewards(store, rollout.rollout_id)}
    assert given == {("quality", 0.5), ("reward", 1.0)}


def test_its_decisions_are_those_it_names_and_the_models_that_were_asked(
    tmp_path: Path, store: Path, imported: Import
) -> None:
    imported(written(tmp_path / "traces.jsonl", [batch(CHAT, DECIDED, ROOT)]))

    (rollout,) = rollouts(store)
    prompt, model = decisions(store, rollout.rollout_id)
    assert (prompt.point, prompt.options, prompt.applied) == ("prompt", ("short", "long"), "long")
    assert (prompt.propensity, prompt.context["kind"]) == (0.25, "faq")
    assert why_not(prompt) == []
    assert (model.point, model.options, model.applied) == ("model", ("large",), "large")
    assert (model.propensity, why_not(model)) == (None, [WhyNot.NO_PROPENSITY])


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param([[ROOT, DECIDED, CHAT, TOOL]], id="the root first"),
        pytest.param([[CHAT], [TOOL], [DECIDED], [ROOT]], id="a line for each"),
        pytest.param([[ROOT], [CHAT], [DECIDED, TOOL]], id="children after their parent's end"),
    ],
)
def test_the_order_of_spans_changes_nothing_that_is_learned_from(
    cut: Sequence[Sequence[Span]], tmp_path: Path, store: Path, imported: Import
) -> None:
    other = tmp_path / "other.sqlite"
    imported(written(tmp_path / "one.jsonl", [batch(DECIDED, CHAT, TOOL, ROOT)]), to=other)

    imported(written(tmp_path / "two.jsonl", [batch(*spans) for spans in cut]))

    assert told(store) == told(other)


def told(path: Path) -> list[object]:
    tables = {"rollouts", "decisions", "rewards"}
    rows = [json.loads(row) for row in exported(path)]
    return [row for row in rows if row["table"] in tables and row.pop("seq", 0) is not None]


def test_an_agent_inside_of_another_is_a_run_inside_of_its_run(
    tmp_path: Path, store: Path, imported: Import
) -> None:
    agent = attributes({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"})
    inner = span("inner", 1, parent="root", attributes=agent)
    asked = {**CHAT, "parentSpanId": "inner"}

    imported(written(tmp_path / "traces.jsonl", [batch(asked, inner, ROOT)]))

    found = {one.run_id: one for one in rollouts(store)}
    assert set(found) == {"t1", "t1:inner"}
    assert found["t1:inner"].parent_id == found["t1"].rollout_id
    assert [one.point for one in decisions(store, found["t1:inner"].rollout_id)] == ["model"]


def test_spans_that_go_round_in_circles_are_told_all_the_same(
    tmp_path: Path, store: Path, imported: Import
) -> None:
    here, there = (
        {**CHAT, "parentSpanId": "there"},
        {**CHAT, "spanId": "there", "parentSpanId": "chat"},
    )

    found = imported(written(tmp_path / "traces.jsonl", [batch(here, there)]))

    assert (found.bad_lines, found.decisions) == (0, 2)


def test_traces_twice_add_nothing(tmp_path: Path, store: Path, imported: Import) -> None:
    path = written(tmp_path / "traces.jsonl", [batch(CHAT, DECIDED, ROOT)])
    imported(path)
    before = exported(store)

    again = imported(path)

    assert exported(store) == before
    assert again.rollouts == 0


def test_a_trace_without_its_root_is_abandoned_and_one_that_failed_has_failed(
    tmp_path: Path, store: Path, imported: Import
) -> None:
    failed = span("root", 0, trace="t2", status={"code": "STATUS_CODE_ERROR"})

    imported(written(tmp_path / "traces.jsonl", [batch(CHAT, failed)]))

    ends = {one.run_id: (one.status.value, one.reason) for one in rollouts(store)}
    assert ends["t1"][1] == "abandoned"
    assert ends["t2"] == ("failed", "error")


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (span("x", 1, traceId=7), "expected traceId"),
        (span("x", 1, startTimeUnixNano="soon"), "finite number"),
        (span("x", 1, attributes=[{"value": {}}]), "the key of an attribute"),
        (span("x", 1, attributes=attributes({"tau.decision.point": "p"})), "expected an option"),
        (span("x", 1, attributes=attributes({"tau.reward": "good"})), "finite number"),
    ],
)
def test_a_bad_span_is_told_with_its_place_and_costs_no_other(
    bad: Span, reason: str, tmp_path: Path, store: Path, imported: Import
) -> None:
    path = written(tmp_path / "traces.jsonl", [batch(ROOT), batch(CHAT, bad, DECIDED), {"no": 1}])

    found = imported(path, format=Format.OTEL)

    assert (found.decisions, found.bad_lines, len(rollouts(store))) == (2, 2, 1)
    assert found.bad[0].line == 2
    assert found.bad[0].column == "resourceSpans[0].scopeSpans[0].spans[1]"
    assert reason in found.bad[0].reason


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param({"resource": {"attributes": [{"value": {}}]}}, id="no key of an attribute"),
        pytest.param({"resource": [1]}, id="a list for a resource"),
    ],
)
def test_a_malformed_resource_costs_none_of_its_spans(
    spoil: dict[str, object], tmp_path: Path, store: Path, imported: Import
) -> None:
    whole = batch(ROOT, CHAT, DECIDED)
    resources = whole["resourceSpans"]
    assert isinstance(resources, list)
    spoiled = {"resourceSpans": [{**resources[0], **spoil}]}

    found = imported(written(tmp_path / "traces.jsonl", [spoiled]), format=Format.OTEL)

    assert (found.decisions, len(rollouts(store))) == (2, 1)


@pytest.mark.parametrize("code", [[2], {}, None, "2"])
def test_a_status_of_any_kind_is_read(
    code: object, tmp_path: Path, store: Path, imported: Import
) -> None:
    path = written(tmp_path / "traces.jsonl", [batch(span("root", 0, status={"code": code}))])

    imported(path, format=Format.OTEL)

    assert [one.status.value for one in rollouts(store)] == [
        "failed" if code == "2" else "succeeded"
    ]
