"""The dashboard: a real process over a real store, and what it says and does."""

import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tau_live.core.records import AttemptStatus, Rollout, RolloutConfig, RolloutStatus
from tau_live.store.opening import open_at
from tau_live.store.records import Optimization
from tau_live.store.records import OptimizationState as State
from tests.cli.conftest import Read
from tests.cli.filled import FAILED, SOLVED
from tests.cli.served import Served, serving

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dashboard(lived: Path) -> Iterator[Served]:
    """A dashboard of a store to which nobody writes."""
    with serving("--store", lived) as served:
        yield served


@pytest.fixture
def acting(filled: Path) -> Iterator[Served]:
    """A dashboard of a store of its own."""
    with serving("--store", filled) as served:
        yield served


def code_of(response: httpx.Response) -> str:
    error = response.json()["error"]
    assert error["type"] == "dashboard_error"
    assert error["message"]
    return str(error["code"])


def test_every_figure_is_what_the_command_line_says(
    dashboard: Served, lived: Path, read: Read
) -> None:
    status: Any = read("status", "--store", lived)
    health = dashboard.read("/dashboard/health")
    figures = {
        widget["id"]: widget["value"] for widget in dashboard.read("/dashboard/widgets")["widgets"]
    }
    found = dashboard.read("/dashboard/facts")["facts"]["status"]

    assert {**found, "at": 0} == {**status, "at": 0}
    assert health["health"]["processed_case_count"] == status["rollouts"]["completed"]
    assert health["health"]["failure_streak"] == max(status["gate"]["streaks"].values(), default=0)
    assert health["training"]["total_rollouts"] == 192
    assert health["state"]["used_mb"] == status["retention"]["used_mb"]
    assert health["control"]["gate"] == status["gate"]
    trial = status["trials"]["model"]
    expected = {
        "gate": status["gate"]["state"],
        **{f"rollouts_{name}": count for name, count in status["rollouts"].items()},
        "waiting_for_reward": status["waiting_for_reward"],
        "queue_depth": 0,
        "mean_reward_first": status["mean_reward"]["first"],
        "mean_reward_last": status["mean_reward"]["last"],
        "version:model": status["in_service"]["model"]["version"],
        "exposure:model": trial["exposure"],
        "lift:model": trial["difference"]["estimate"],
        "lift_lower:model": trial["difference"]["lower"],
        "lift_upper:model": trial["difference"]["upper"],
    }
    assert {name: figures[name] for name in expected} == expected
    assert figures.keys() - expected.keys() == {"last_update", "dropped"}


def test_larger_sections_are_what_their_commands_print(
    dashboard: Served, lived: Path, read: Read
) -> None:
    report: Any = read("report", "--store", lived)
    rollouts: Any = read("rollouts", "--store", lived, "--limit", 7)
    versions: Any = read("policy", "list", "--store", lived)
    rollout = rollouts["rollouts"][0]["rollout_id"]

    summary = dashboard.read("/dashboard/summary")["summary"]
    page = dashboard.read("/training/rollouts", per_page=7)
    assert {name: summary[name] for name in report["summary"]} == report["summary"]
    assert page["total_records"] == rollouts["total"] == 192
    assert page["total_pages"] == 28
    keys = {"rollout_id": "rollout_id", "status": "status", "reward": "total_reward"}
    assert [{of: row[of] for of in keys} for row in page["records"]] == [
        {of: row[key] for of, key in keys.items()} for row in rollouts["rollouts"]
    ]
    shown = dashboard.read("/dashboard/versions")["versions"]
    assert {name: shown[name] for name in versions} == versions
    story: Any = read("show", rollout, "--store", lived)
    assert dashboard.read(f"/dashboard/rollouts/{rollout}")["rollout"] == story
    name = f"{rollout}:attempt-1:decision-1"
    why: Any = read("why", name, "--store", lived)
    found = dashboard.read(f"/dashboard/decisions/{name}")["decision"]
    sentences = found.pop("sentences")
    assert found == why
    assert sentences[0].startswith("A run of triage had to choose at model")
    newest = dashboard.read("/dashboard/decisions")["decisions"]
    assert len(newest) == 50
    assert newest[0]["decision_id"] == name
    assert newest[0]["propensity"] == why["decision"]["propensity"]
    figures = dashboard.read("/dashboard/figures")["figures"]
    [reward] = [figure for figure in figures[0]["figures"] if figure["name"] == "reward"]
    means = [stretch["reward"]["mean"] for stretch in report["stretches"]]
    assert reward["chart"]["panels"][0]["series"][0]["y"] == means


def events_of(served: Served, seconds: float, **headers: str) -> list[tuple[str, Any]]:
    """Return the events that come within some seconds."""
    found: list[tuple[str, Any]] = []
    until, name = time.monotonic() + seconds, ""
    timeout = httpx.Timeout(5.0, read=seconds)
    try:
        with httpx.stream(
            "GET", f"{served.url}/dashboard/stream", timeout=timeout, headers=headers
        ) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            for line in response.iter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    found.append((name, json.loads(line.removeprefix("data: "))))
                if time.monotonic() > until:
                    break
    except httpx.ReadTimeout:
        pass
    return found


def test_an_unchanged_store_sends_one_event(dashboard: Served) -> None:
    [(name, snapshot)] = events_of(dashboard, 5.0)

    assert name == "dashboard.snapshot"
    health = dashboard.read("/dashboard/health")
    for section in ("health", "training", "control", "state"):
        assert snapshot[section] == health[section]


def test_a_client_that_comes_back_hears_that_history_is_not_kept(dashboard: Served) -> None:
    (name, reset), (next_, _) = events_of(dashboard, 2.0, **{"last-event-id": "dashboard-3"})

    assert name == "dashboard.reset"
    assert reset == {
        "schema_version": 1, "reset": True, "last_event_id": "dashboard-3",
        "reason": "history_not_retained_request_full_snapshot",
    }  # fmt: skip
    assert next_ == "dashboard.snapshot"


def test_a_change_by_the_command_line_is_seen_within_seconds(
    acting: Served, filled: Path, read: Read
) -> None:
    found: list[tuple[str, Any]] = []
    watching = threading.Thread(target=lambda: found.extend(events_of(acting, 4.0)))
    watching.start()
    time.sleep(1.5)
    read("pause", "learning", "--reason", "odd rewards", "--store", filled)
    watching.join()

    before, after = found[0][1], found[-1][1]
    assert "learning" not in before["control"]["paused"]
    assert after["control"]["paused"]["learning"]["reason"] == "odd rewards"
    codes = {alert["code"] for alert in after["alerts"]}
    assert "dashboard_operator_pause_active" in codes


def test_actions_do_what_the_commands_do(acting: Served, filled: Path, read: Read) -> None:
    def status() -> Any:
        return read("status", "--store", filled)

    for action, expected in (("hold", "hold"), ("reset", "pass")):
        done = acting.act(action)
        assert done.status_code == 202, done.text
        assert done.json()["status"] == "accepted"
        assert done.json()["control"]["gate"]["state"] == expected == status()["gate"]["state"]
    before = {*status()["paused"]}
    assert acting.act("pause", part="deciding").status_code == 202
    assert {*status()["paused"]} == before | {"deciding"}
    assert acting.act("resume").json()["control"]["paused"] == {} == status()["paused"]
    assert acting.act("exposure", point="model", share=0.3).json()["result"]["exposure"] == 0.3
    assert status()["trials"]["model"]["exposure"] == 0.3
    assert acting.act("promote", point="model").json()["result"]["exposure"] == 0.95
    assert acting.act("rollback", point="model").status_code == 202
    assert acting.act("stop", point="model").status_code == 202
    assert status()["trials"]["model"]["stopped"].startswith("seen on the page")
    with closing(open_at(filled, read_only=True)) as store:
        newest = store.audit.entries(limit=8)
    assert [entry.action for entry in newest] == [
        "policy_stop", "policy_rollback", "policy_promote", "policy_exposure", "resume", "pause",
        "gate_reset", "gate_hold",
    ]  # fmt: skip
    assert {entry.reason for entry in newest} == {"seen on the page"}


def test_alerts_in_force_need_no_process_that_raises_them(acting: Served) -> None:
    def codes() -> set[str]:
        return {alert["code"] for alert in acting.read("/dashboard/alerts")["alerts"]}

    assert acting.act("hold").status_code == 202
    assert acting.act("stop", point="model").status_code == 202
    assert {"gate-hold", "learner-stopped"} <= codes()
    assert acting.act("reset").status_code == 202
    assert "gate-hold" not in codes()
    assert acting.client.post(
        "/dashboard/actions", json={"action": "refresh"}, headers={"x-tau-csrf": acting.csrf}
    ).status_code == 202  # fmt: skip
    newest = acting.read("/dashboard/health")["control"]["audit"][0]
    assert newest["action"] == "gate_reset"


def test_a_pause_without_more_stops_the_run_that_goes_on(tmp_path: Path, read: Read) -> None:
    path = tmp_path / "store.sqlite"
    with closing(open_at(path)) as store:
        run = store.optimizations.create(
            Optimization(
                run_id="", config_digest="ab" * 32, config_path="/", config={}, model_ref="m",
                store_path="s", created_at=1.0, incumbent="i", state=State.RUNNING,
            )
        )  # fmt: skip

    def state() -> object:
        found: Any = read("optimize", "show", run.run_id, "--store", path)
        return found["run_state"]

    with serving("--store", path) as served:
        paused = served.act("pause")
        assert paused.json()["result"]["state"] == "paused" == state()
        assert paused.json()["control"]["paused"] == {}
        shown = served.read("/dashboard/runs")["runs"]
        assert [each["run_state"] for each in shown] == ["paused"]
        assert served.read("/training/status")["training"]["run_state"] == "paused"
        assert served.act("resume", run=run.run_id).status_code == 202
        assert state() == "running"
        assert served.act("cancel", run=run.run_id).status_code == 202
        assert state() in {"cancelling", "cancelled"}
        assert served.act("resume", run=run.run_id).status_code == 409
        assert [*served.act("pause").json()["control"]["paused"]] == ["learning"]  # no run goes on
        assert served.act("cancel").status_code == 400


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_dashboard_action"),
        (b"\xff", 400, "invalid_dashboard_action"),
        (b'{"action": "delete", "reason": "x"}', 400, "invalid_dashboard_action"),
        (b'{"action": "hold"}', 400, "invalid_dashboard_action"),
        (b'{"action": "hold", "reason": " "}', 400, "invalid_dashboard_action"),
        (b'{"action": "promote", "reason": "x"}', 400, "invalid_dashboard_action"),
        (b'{"action": "hold", "reason": "x", "point": "model"}', 400, "invalid_dashboard_action"),
        (b'{"action": "exposure", "reason": "x", "point": "model"}', 400,
         "invalid_dashboard_action"),
        (b'{"action": "hold", "reason": "x", "part": "learning"}', 400,
         "invalid_dashboard_action"),
        (b'{"action": "rollback", "reason": "x", "point": "nowhere"}', 409, "refused"),
        ('{"action": "hold", "reason": "\u200b"}'.encode(), 400, "invalid_dashboard_action"),
        (b"x" * 70_000, 413, "dashboard_body_too_large"),
    ],
)  # fmt: skip
def test_a_malformed_action_changes_nothing(
    dashboard: Served, body: bytes, status: int, code: str
) -> None:
    before = dashboard.read("/dashboard/health")["health"]

    response = dashboard.client.post(
        "/dashboard/actions", content=body, headers={"x-tau-csrf": dashboard.csrf}
    )

    assert (response.status_code, code_of(response)) == (status, code)
    assert dashboard.read("/dashboard/health")["health"] == before


def test_an_action_on_a_store_that_lacks_a_table_has_a_code(filled: Path) -> None:
    with serving("--store", filled) as served:
        with closing(sqlite3.connect(filled)) as db:
            db.executescript("drop table rewards; drop view spans; drop table rollouts;")
        response = served.act("hold")

    assert (response.status_code, code_of(response)) == (503, "store_unavailable")


def test_foreign_pages_and_names_are_refused(dashboard: Served) -> None:
    body = {"action": "hold", "reason": "x"}
    own = {"x-tau-csrf": dashboard.csrf}
    for headers, code in (
        ({"host": "evil.example"}, "foreign_host"),
        ({"host": "127.0.0.1:80@evil.example"}, "foreign_host"),
        ({"host": "127.0.0.1, evil.example"}, "foreign_host"),
        ({**own, "origin": "https://evil.example"}, "foreign_origin"),
        ({}, "dashboard_csrf"),
        ({"x-tau-csrf": "guessed"}, "dashboard_csrf"),
    ):
        response = dashboard.client.post("/dashboard/actions", json=body, headers=headers)
        assert (response.status_code, code_of(response)) == (403, code)
    assert dashboard.read("/dashboard/health")["health"]["rollout_gate"] == "pass"


@pytest.mark.parametrize("own_first", [True, False])
@pytest.mark.parametrize("name", ["host", "origin"])
def test_a_header_that_is_there_twice_has_to_be_ours_twice(
    dashboard: Served, name: str, *, own_first: bool
) -> None:
    own = {"host": urlsplit(dashboard.url).netloc, "origin": dashboard.url}
    values = [own[name], own[name].replace("127.0.0.1", "evil.example")]
    connection = HTTPConnection(own["host"], timeout=20.0)
    connection.putrequest("GET", "/dashboard/health", skip_host=True)
    for value in values if own_first else values[::-1]:
        connection.putheader(name, value)
    if name != "host":
        connection.putheader("host", own["host"])
    connection.endheaders()

    response = connection.getresponse()
    body = response.read()
    connection.close()
    if name == "host" and response.status == 400:  # h11 refuses it itself, httptools does not
        assert body == b"Invalid HTTP request received."
    else:
        assert (response.status, json.loads(body)["error"]["code"]) == (403, f"foreign_{name}")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/training/rollouts?page=0", 400, "invalid_training_rollouts_page"),
        ("/training/rollouts?page=x", 400, "invalid_training_rollouts_page"),
        ("/training/rollouts?per_page=201", 400, "invalid_training_rollouts_per_page"),
        ("/training/rollouts?sort=name", 400, "invalid_training_rollouts_sort"),
        ("/training/rollouts?status=failed&status=succeeded", 400, "invalid_query"),
        ("/training/rollouts?text=%00", 400, "invalid_training_rollouts_text"),
        ("/training/rollouts?colour=red", 400, "invalid_training_rollouts"),
        ("/dashboard/queue-timeline?minutes=0", 400, "invalid_dashboard_queue_timeline_minutes"),
        ("/dashboard/health?store=1", 404, "dashboard_unknown_store"),
        ("/dashboard/rollouts/nobody", 404, "unknown"),
        ("/dashboard/rollouts/live-", 409, "ambiguous_id"),
        ("/dashboard/decisions/nobody", 404, "unknown"),
        ("/dashboard/nothing", 404, "dashboard_unknown_endpoint"),
        ("/../../etc/passwd", 404, "dashboard_unknown_endpoint"),
    ],
)
def test_bad_input_is_refused_with_a_code(
    dashboard: Served, path: str, status: int, code: str
) -> None:
    response = dashboard.client.get(path)

    assert (response.status_code, code_of(response)) == (status, code)


def test_every_answer_keeps_a_browser_to_the_page(dashboard: Served) -> None:
    for path in ("/", "/page.js", "/page.css", "/dashboard/health", "/dashboard/nothing"):
        headers = dashboard.client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers
    script = dashboard.client.get("/plotly.js")
    assert script.headers["content-encoding"] == "gzip"
    again = dashboard.client.get("/plotly.js", headers={"if-none-match": script.headers["etag"]})
    assert again.status_code == 304


def test_an_address_that_others_reach_needs_a_token(filled: Path, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a-token-of-32-characters-for-tests")
    file.chmod(0o620)
    writable = subprocess.run(
        [sys.executable, "-P", "-m", "tau_live.cli", "dashboard", "--store", filled,
         "--token-file", file],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (writable.returncode, "others may write the token" in writable.stderr) == (1, True)
    file.chmod(0o600)
    with serving("--store", filled, "--token-file", file) as served:
        for path in ("/dashboard/health", "/training/rollouts", "/dashboard/stream"):
            assert served.client.get(path).status_code == 401
        assert served.act("hold").status_code == 401
        served.client.headers["x-tau-token"] = "a-token-of-32-characters-for-tests"
        assert served.read("/dashboard/health")["health"]["rollout_gate"] in {"pass", "hold"}
        assert served.act("hold").status_code == 202


def test_access_rules_hold_on_the_page_too(filled: Path, tmp_path: Path) -> None:
    rules = tmp_path / "access.json"
    roles = {"reader": {"allow": ["control:rl:status", "control:rl:pause"], "deny": []}}
    bindings = [{"principal": "anna", "roles": ["reader"]}]
    rules.write_text(
        json.dumps({"schema_version": 1, "team_mode": True, "bindings": bindings, "roles": roles})
    )
    environ = {"TAU_LIVE_RL_ACCESS": str(rules), "TAU_LIVE_RL_PRINCIPAL": "anna"}
    with serving("--store", filled, **environ) as served:
        assert served.act("pause", part="learning").status_code == 202
        refused = served.act("hold")
        assert (refused.status_code, code_of(refused)) == (403, "access_denied")
        assert "anna" in refused.json()["error"]["message"]


def test_a_store_that_is_missing_or_damaged_is_shown_as_such(tmp_path: Path) -> None:
    missing, damaged = tmp_path / "missing.sqlite", tmp_path / "damaged.sqlite"
    damaged.write_bytes(b"this is no database " * 100)
    with serving("--store", missing, "--store", damaged) as served:
        for number, (path, code) in enumerate(
            ((missing, "training_status_missing"), (damaged, "training_status_read_failed"))
        ):
            health = served.read("/dashboard/health", store=number)
            assert health["health"]["health_state"] == "unknown"
            [diagnostic] = health["training"]["diagnostics"]
            assert diagnostic == f"{code}:{path}"
            assert health["state"]["store"] == str(path)
            alerts = served.read("/dashboard/alerts", store=number)["alerts"]
            assert [alert["code"] for alert in alerts] == ["dashboard_state_missing"]
            refused = served.client.get(f"/training/rollouts?store={number}")
            assert (refused.status_code, code_of(refused)) == (503, "store_unavailable")
        with closing(open_at(missing)) as store:  # it appears while the page is open
            store.queue.enqueue(Rollout(rollout_id="r-1"))
        assert served.read("/training/rollouts")["total_records"] == 1


def test_the_timeline_adds_up(tmp_path: Path) -> None:
    path, now = tmp_path / "store.sqlite", time.time()
    with closing(open_at(path)) as store:
        for number in range(6):
            config = RolloutConfig(max_attempts=2, retry_on=(AttemptStatus.FAILED,))
            store.queue.enqueue(Rollout(rollout_id=f"r-{number}", config=config), at=now - 300)
        for at in (200, 150, 100):
            claim = store.queue.claim("w-1", at=now - at)
            assert claim is not None
            end = AttemptStatus.FAILED if at == 150 else AttemptStatus.SUCCEEDED
            store.queue.finish(
                claim.rollout.rollout_id, claim.attempt.number, end, at=now - at + 20
            )
        store.queue.cancel("r-5", at=now - 50)
    with serving("--store", path) as served:
        buckets = served.read("/dashboard/queue-timeline", minutes=10)["queue_timeline"]
        depth = served.read("/dashboard/health")["health"]["queue_depth"]
    total = {name: sum(bucket[name] for bucket in buckets) for name in buckets[0]}

    assert len(buckets) == 10
    assert {name: total[name] for name in ("enqueued", "claimed", "requeued")} == {
        "enqueued": 6, "claimed": 3, "requeued": 1,
    }  # fmt: skip
    assert (total["succeeded"], total["failed"], total["cancelled"]) == (2, 0, 1)
    assert buckets[-1]["depth"] == depth == 3
    starts = [bucket["start_unix_ms"] for bucket in buckets]
    assert all(later - earlier == 60_000 for earlier, later in pairwise(starts))
    before = [bucket for bucket in buckets if bucket["start_unix_ms"] / 1000 + 60 < now - 300]
    assert {bucket["depth"] for bucket in before} == {0}


def test_rollouts_are_found_by_what_is_in_them(filled: Path, read: Read) -> None:
    with closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute(
            "update recorded_spans set attributes = ? where rollout_seq = "
            "(select seq from rollouts where rollout_id = ?)",
            (json.dumps({"answer": {"text": "Der Größte: 100%_sure"}}, ensure_ascii=False), SOLVED),
        )
        connection.execute(
            "update attempts set error_message = 'Tool Timed OUT' where rollout_seq = "
            "(select seq from rollouts where rollout_id = ?)",
            (FAILED,),
        )
    with serving("--store", filled) as served:

        def found(text: str) -> set[str]:
            page = served.read("/training/rollouts", text=text)
            own: Any = read("rollouts", "--text", text, "--store", filled)
            ids = {row["rollout_id"] for row in page["records"]}
            assert ids == {row["rollout_id"] for row in own["rollouts"]}
            assert page["total_records"] == own["total"]
            return ids

        assert found("größte") == {SOLVED}
        assert found("100%_s") == {SOLVED}
        assert found("timed out") == {FAILED}
        assert found(SOLVED[:20]) >= {SOLVED}
        assert found("100_%s") == set()
        of_status = served.read("/training/rollouts", status=RolloutStatus.FAILED.value)
        assert {row["status"] for row in of_status["records"]} == {"failed"}
