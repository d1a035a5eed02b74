"""``tau-live report``: the same facts as JSON and as a page, from any store, whole and private."""

import json
import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tau_live.core.records import Reason, Rollout, RolloutStatus
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run
from tests.cli.filled import hold
from tests.cli.lived import ALARM, ATTACK, ROLLOUTS
from tests.cli.test_keys import undocumented
from tests.writes import writes


@pytest.fixture(scope="module")
def facts(lived: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    from click.testing import CliRunner

    from tau_live.cli import main

    result = CliRunner().invoke(main, ["report", "--json", "--store", str(lived)])
    assert result.exit_code == 0, result.output
    found: Mapping[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.slow
def test_json_has_the_documented_keys_and_no_others(facts: Mapping[str, Any]) -> None:
    assert undocumented("report", facts) == (set(), set())


def test_every_rollout_of_a_small_store_is_looked_at_once(facts: Mapping[str, Any]) -> None:
    stretches = facts["stretches"]

    assert facts["rollouts"] == facts["looked_at"] == ROLLOUTS
    assert sum(one["looked_at"] for one in stretches) == ROLLOUTS
    assert sum(one["reward"]["count"] for one in stretches) == ROLLOUTS
    assert [one["first"] for one in stretches[1:]] == [one["last"] + 1 for one in stretches[:-1]]
    assert all(one["duration_s"]["median"] >= 0.0 for one in stretches)
    assert sum(one["cost_usd"]["count"] for one in stretches) == ROLLOUTS // 2


def test_the_choice_is_seen_to_hang_on_what_the_reward_hangs_on(facts: Mapping[str, Any]) -> None:
    (point,) = facts["points"]
    first, *others = point["contexts"]

    assert (point["point"], point["decisions"]) == ("model", ROLLOUTS)
    assert set(point["options"]) == {"small", ATTACK}
    assert first["key"] == "lang"
    assert [one["key"] for one in others] == ["words"]
    assert first["information"] > others[0]["information"]
    assert {one["value"] for one in first["values"]} == {"de", "en", ATTACK}
    assert sum(one["decisions"] for one in first["values"]) == ROLLOUTS


def test_both_arms_and_the_share_of_the_learner_are_shown(facts: Mapping[str, Any]) -> None:
    (point,) = facts["points"]
    stretches = point["stretches"]
    learner = sum(one["learner"]["count"] for one in stretches)
    control = sum(one["control"]["count"] for one in stretches)

    assert learner + control == ROLLOUTS
    assert 0.6 < learner / ROLLOUTS < 0.8
    for one in stretches:
        assert one["share"] == pytest.approx(0.7)
        assert one["exposure"]["lower"] <= one["exposure"]["mean"] <= one["exposure"]["upper"]


def test_what_came_is_compared_with_what_was_expected(facts: Mapping[str, Any]) -> None:
    (point,) = facts["points"]
    expected = [one["expected"] for one in point["calibration"]]

    assert expected == sorted(expected)
    assert sum(one["came"]["count"] for one in point["calibration"]) == point["error"]["count"]
    assert sum(one["error"]["count"] for one in point["errors"]) == point["error"]["count"]
    assert point["alarms"] == [ALARM]
    assert any(one["estimate"]["mean"] is not None for one in point["compared"])
    for one in point["compared"]:
        assert (one["refused"] is None) == (one["estimate"]["mean"] is not None)
        assert one["live"]["count"] >= 16
        assert one["estimate"]["count"] <= one["log"]  # nothing of what it is compared with


def test_marks_stand_where_they_happened(facts: Mapping[str, Any]) -> None:
    marks = [mark for mark in facts["marks"] if mark["sentence"].endswith(ATTACK)]

    kinds = [mark["kind"] for mark in marks]
    assert kinds == ["hold", "reset", "promotion", "rollback", "exposure", "stop"]
    assert {mark["who"] for mark in marks} == {"anna", "evidence"}
    places = [mark["place"] for mark in marks]
    assert places == sorted(places)
    assert all(abs(at - near) < 30 for at, near in zip(places, range(48, 192, 24), strict=True))
    assert facts["drops"] == {"dropped_queue_full": 3}


@pytest.mark.slow
def test_the_page_is_one_private_file_that_loads_nothing_and_the_same_twice(
    lived: Path, run: Run
) -> None:
    pytest.importorskip("matplotlib")

    results = [run("report", "--html", name, "--store", lived) for name in ("out.html", "again")]

    assert [(one.exit_code, one.stdout) for one in results] == [(0, "")] * 2
    page, text = Path("out.html"), Path("out.html").read_text()
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert {one.name for one in Path().iterdir()} == {"out.html", "again"}
    assert without_time(text) == without_time(Path("again").read_text())
    assert text.count('role="img"') == 2 * 10  # for wide screens and for narrow ones
    assert not re.findall(r"<(?:script|link|img|iframe|object|style )", text)
    assert not re.findall(r"<[^>]*\s(?:style|src|on\w+)=", text)
    assert not re.findall(r"(?:href|url)[=(]\s*[\"']?(?!#|\"#)", text)
    assert len(text) < 500_000


def without_time(text: str) -> str:
    return re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", "", text)


def test_neither_html_nor_json_is_wrong_usage(filled: Path, run: Run) -> None:
    result = run("report", "--store", filled)

    assert result.exit_code == 2
    assert "--html FILE, --json, or both" in result.stderr


def test_without_matplotlib_it_says_what_to_install(
    filled: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "tau_live.cli.page.drawing", raising=False)

    result = run("report", "--html", "out.html", "--store", filled)

    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert result.stderr.endswith("pip install 'matplotlib>=3.9'\n")
    assert not Path("out.html").exists()


def test_json_needs_no_matplotlib(
    filled: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "tau_live.cli.page.drawing", raising=False)

    found = read("report", "--store", filled)

    assert isinstance(found, dict)
    assert found["rollouts"] == 5


def test_a_store_is_not_written_over_by_its_report(filled: Path, run: Run) -> None:
    pytest.importorskip("matplotlib")
    before = filled.read_bytes()

    result = run("report", "--html", filled, "--store", filled)

    assert result.exit_code == 2
    assert "is the store itself" in result.stderr
    assert filled.read_bytes() == before


@pytest.mark.slow
def test_a_folder_that_is_not_there_is_one_line(filled: Path, run: Run) -> None:
    pytest.importorskip("matplotlib")

    result = run("report", "--html", "no/such/out.html", "--store", filled)

    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "No such file or directory" in result.stderr


def test_no_store_is_one_line(run: Run) -> None:
    result = run("report", "--json", "--store", "nowhere.sqlite")

    assert result.exit_code == 1
    assert "no store at nowhere.sqlite yet" in result.stderr


def test_an_empty_store_says_what_to_do_first(tmp_path: Path, run: Run, read: Read) -> None:
    SqliteStore.open(tmp_path / "empty.sqlite").close()

    found = read("report", "--store", tmp_path / "empty.sqlite")

    assert isinstance(found, dict)
    assert (found["rollouts"], found["stretches"], found["points"]) == (0, [], [])
    assert "Run your agent with `TAU_LIVE_RL=1`" in found["summary"]["next"][0]


def test_a_held_store_says_why_and_how_to_go_on(filled: Path, read: Read) -> None:
    hold(filled)

    found = read("report", "--store", filled)

    assert isinstance(found, dict)
    summary = found["summary"]
    assert (summary["on"]["state"], summary["on"]["answer"]) == ("bad", "held")
    assert "collection_failures: disk full" in summary["healthy"]["sentence"]
    assert "tau-live gate reset" in summary["next"][0]


@pytest.mark.slow
@pytest.mark.parametrize("rollouts", [0, 1, 2])
def test_a_page_is_made_of_next_to_nothing(tmp_path: Path, run: Run, rollouts: int) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "tiny.sqlite"
    store = SqliteStore.open(path)
    for number in range(rollouts):
        writes(store).begin_rollout(
            Rollout(rollout_id=f"live-{number}", status=RolloutStatus.RUNNING, started_at=1.7e9)
        )
        writes(store).set_status(
            f"live-{number}", RolloutStatus.SUCCEEDED, at=1.7e9 + 1, reason=Reason.COMPLETED
        )
        writes(store).mark_ready(f"live-{number}", total_reward=0.5)
    store.close()

    result = run("report", "--html", "out.html", "--store", path)

    assert result.exit_code == 0, result.stderr
    assert Path("out.html").read_text().count("<figure") == 4
