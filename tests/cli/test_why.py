"""``tau-live why``: every stored decision can be explained, and recomputed from what is stored."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

import tau_live
from tau_live.core.gate import GateEntry
from tau_live.core.records import Decision, Rollout, RolloutQuery
from tau_live.core.settings import Settings
from tau_live.operate.why import gate_at
from tau_live.store.files import policies_of
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run
from tests.cli.filled import FAILED, SOLVED
from tests.writes import writes

ROLLOUTS = 24


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store in which two points have learned, with masks and defaults."""
    path = tmp_path_factory.mktemp("learned") / "store.sqlite"
    patch = pytest.MonkeyPatch()
    patch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    tau_live.attach(Settings(store=path, decide_deadline_ms=60_000.0))
    for key in range(ROLLOUTS):
        with tau_live.run("triage", key=key) as run:
            context = {"words": key % 5, "lang": "de" if key % 2 else "en"}
            options = {"small": {"usd": 0.1}, "large": {"usd": 2.0}, "huge": None}
            allowed = None if key % 3 else ["small", "large"]
            first = run.decide(
                "model",
                options,
                context=context,
                default="large",
                allowed=allowed,
                exploit_only=["small"] if key % 2 else None,
            )
            tau_live.reward(0.5, decision=first, name="speed")
            run.decide("tool", ["search", "answer"], context=context)
            run.reward(float(first.option == "small"))
        if key % 8 == 7:
            assert tau_live.flush(30)
    tau_live.detach()
    yield path
    patch.undo()


def stored(path: Path) -> list[Decision]:
    store = SqliteStore.open(path, read_only=True)
    rows: list[Rollout] = store.rollouts.query(RolloutQuery(limit=None)).rollouts
    found = [one for row in rows for one in store.decisions.decisions(row.rollout_id)]
    store.close()
    return sorted(found, key=lambda one: one.seq)


@pytest.mark.slow
def test_every_stored_decision_is_recomputed_to_what_is_stored(learned: Path, read: Read) -> None:
    decisions = stored(learned)

    found = [
        read("why", one.decision_id, "--recompute", "--store", learned)
        for one in [*decisions[:6], *decisions[-12:]]
    ]

    versions = set()
    for one in found:
        assert isinstance(one, dict)
        versions.add(one["decision"]["policy_version"])
        told = one["recomputed"]
        assert told["problem"] is None
        assert told["difference"] == 0.0
        assert told["probabilities"] == one["decision"]["probabilities"]
        assert len(told["terms"]) >= 4
    assert len(decisions) == 2 * ROLLOUTS
    assert len(versions) > 1


def test_it_shows_features_terms_rewards_and_credit(learned: Path, run: Run) -> None:
    one = next(d for d in stored(learned) if d.policy_version and d.allowed and d.exploit_only)

    result = run("why", one.decision_id, "--recompute", "--store", learned)

    told = result.stdout
    assert result.exit_code == 0, result.stderr
    for said in ("context words", "usd=0.1", "ridge estimate", "kernel estimate",
                 "uncertainty bonus", "ppo residual",
                 "ppo network", "host default", "not allowed", "not explored", "reward speed",
                 "0.5 for this decision",
                 "for the whole run", "return", "advantage", "gate", "pass",
                 f"version {one.policy_version}", "recomputed: the same"):  # fmt: skip
        assert said in told, said


def test_the_credit_is_the_return_after_the_decision(learned: Path, read: Read) -> None:
    model, tool = stored(learned)[:2]

    found = [read("why", one.decision_id, "--store", learned) for one in (model, tool)]

    solved = float(model.applied == "small")
    got = [one["credit"] for one in found if isinstance(one, dict)]
    assert [one["return"] for one in got] == [0.5 + solved, solved]
    assert [one["state"] for one in got] == ["learned", "learned"]
    assert [one["advantage"] for one in got] == pytest.approx(
        [0.5 + solved - (model.value or 0.0), solved - (tool.value or 0.0)]
    )


def test_a_decision_is_found_by_the_beginning_of_its_rollout(learned: Path, read: Read) -> None:
    one = stored(learned)[3]
    beginning = one.rollout_id[:20]

    found = [
        read("why", f"{beginning}{end}", "--store", learned)
        for end in (":2", ":decision-2", ":attempt-1:decision-2")
    ]

    assert {one["decision"]["decision_id"] for one in found if isinstance(one, dict)} == {
        one.decision_id
    }


def test_without_its_number_the_decisions_of_a_rollout_are_listed(learned: Path, run: Run) -> None:
    one = stored(learned)[0]

    result = run("why", one.rollout_id, "--store", learned)

    assert result.exit_code == 1
    assert f"{one.rollout_id}:attempt-1:decision-1, " in result.stderr


@pytest.mark.parametrize("asked", ["nothing", "nothing:1", f"{SOLVED}:9", f"{SOLVED}:attempt-9:1"])
def test_what_is_not_there_is_one_line(asked: str, filled: Path, run: Run) -> None:
    result = run("why", asked, "--store", filled)

    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert "not found" in result.stderr


def test_a_decision_that_was_changed_is_found_out(learned: Path, run: Run, tmp_path: Path) -> None:
    changed = copied(learned, tmp_path)
    one = stored(learned)[-1]
    given = [one.probabilities[0] - 1e-6, one.probabilities[1] + 1e-6]
    with closing(sqlite3.connect(changed)) as connection:
        connection.execute(
            "update decisions set probabilities = ? where seq = ?", (json.dumps(given), one.seq)
        )
        connection.commit()

    shown = run("why", one.decision_id, "--store", changed)
    checked = run("why", one.decision_id, "--recompute", "--json", "--store", changed)

    assert shown.exit_code == 0
    assert checked.exit_code == 1
    assert json.loads(checked.stdout)["recomputed"]["difference"] == pytest.approx(1e-6)
    assert checked.stderr == (
        f"tau-live: {one.decision_id}: version {one.policy_version} gives other probabilities "
        "than those stored, by up to 1e-06\n"
    )


def test_of_a_pruned_checkpoint_the_rest_is_shown(learned: Path, run: Run, tmp_path: Path) -> None:
    pruned = copied(learned, tmp_path)
    one = stored(learned)[-1]
    for file in policies_of(pruned).iterdir():
        file.unlink()

    shown = run("why", one.decision_id, "--store", pruned)
    checked = run("why", one.decision_id, "--recompute", "--store", pruned)

    said = f"the checkpoint of version {one.policy_version} was pruned"
    assert shown.exit_code == 0
    assert said in shown.stdout
    assert checked.exit_code == 1
    assert checked.stderr == f"tau-live: cannot recompute {one.decision_id}: {said}\n"


def test_of_version_0_it_says_that_settings_may_have_changed(learned: Path, run: Run) -> None:
    one = stored(learned)[0]

    changed = run(
        "why", one.decision_id, "--recompute", "--store", learned, TAU_LIVE_RL_EXPLORATION="0.3"
    )

    assert changed.exit_code == 1
    assert "version 0 is built from the settings" in changed.stderr


def test_a_decision_whose_features_are_damaged_is_shown(filled: Path, run: Run) -> None:
    shown = run("why", f"{SOLVED}:1", "--store", filled)
    checked = run("why", f"{SOLVED}:1", "--store", filled, "--recompute")

    assert shown.exit_code == 0
    assert "left out" in shown.stdout
    assert "The stored features cannot be read." in checked.stderr


def test_a_rollout_that_waits_says_so(filled: Path, read: Read) -> None:
    store = SqliteStore.open(filled)
    writes(store).begin_rollout(
        structs.replace(store.rollouts.rollout(FAILED), rollout_id="live-waits")
    )
    writes(store).begin_attempt(
        structs.replace(store.rollouts.attempts(FAILED)[0], rollout_id="live-waits")
    )
    writes(store).add_decision(
        structs.replace(store.decisions.decisions(FAILED)[0], rollout_id="live-waits")
    )
    store.close()

    found = read("why", "live-waits", "--store", filled)

    assert isinstance(found, dict)
    assert found["credit"]["state"] == "waiting"


def test_the_gate_is_that_of_its_time(filled: Path) -> None:
    store = SqliteStore.open(filled)
    for at, state in ((60.0, "hold"), (70.0, "pass")):
        row = store.gate.load()
        store.gate.save(
            replace(row, state=state, since=at, revision=row.revision + 1),
            entry=GateEntry(at=at, event=state, state=state, kind=None, reason=None, who="anna"),
        )

    found = [gate_at(store, at) for at in (1.0, 59.0, 60.0, 69.0, 70.0)]
    store.close()

    assert found == ["pass", "pass", "hold", "hold", "pass"]


def copied(source: Path, folder: Path) -> Path:
    """Return the path of a copy of a store, with its checkpoints."""
    for file in source.parent.rglob("*"):
        if file.is_file():
            target = folder / file.relative_to(source.parent)
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            target.write_bytes(file.read_bytes())
    return folder / source.name


@pytest.fixture
def updated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """A store whose only update has learned from eight runs, and the last of them."""
    path = tmp_path / "updated.sqlite"
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    tau_live.attach(Settings(store=path, decide_deadline_ms=60_000.0))
    for key in range(8):
        with tau_live.run("triage", key=key) as run:
            run.decide("model", ["small", "large"])
            run.reward(float(key % 2), name="solved")
    assert tau_live.flush(30)
    tau_live.detach()
    return path, run.id


@pytest.mark.parametrize(
    ("late", "since"),
    [
        (
            ["-0.5", "--name", "stars"],
            (
                "the reward has changed since update 1 learned from it, from 1 to 0.5; these "
                "figures are those of 1"
            ),
        ),
        (
            ["0", "--name", "solved"],
            (
                "rewards were sent again since update 1 learned from it, so these figures may not "
                "be those that it learned from"
            ),
        ),
        (["--comment", "good"], None),
        (["0", "--name", "neutral"], None),
    ],
)
def test_a_reward_that_came_after_the_update_is_not_taken_for_what_it_learned_from(
    updated: tuple[Path, str], run: Run, read: Read, late: list[str], since: str | None
) -> None:
    path, rollout_id = updated
    before = read("why", rollout_id, "--store", path)
    assert isinstance(before, dict)

    run("reward", *late, "--run", rollout_id, "--store", path)

    after = read("why", rollout_id, "--store", path)
    assert isinstance(after, dict)
    assert (before["credit"]["state"], before["credit"]["since"]) == ("learned", None)
    assert after["credit"]["since"] == since
    if since is None or "are those of" in since:
        assert {**after["credit"], "since": None} == before["credit"]
    for command in ("why", "show"):
        text = " ".join(run(command, rollout_id, "--store", path).stdout.split())
        assert (since is None) is ("since update 1" not in text)
