"""``tau-live evaluate``: on the store, on a log from elsewhere, and refused where it must be."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import tau_live
from tau_live.core.settings import Settings
from tau_live.learn.evaluation.records import stored_records
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run

pytestmark = pytest.mark.slow

ROLLOUTS = 160


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A store in which a point with one step and one with two have learned."""
    path = tmp_path_factory.mktemp("lived") / "store.sqlite"
    patch = pytest.MonkeyPatch()
    patch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    tau_live.attach(
        Settings(store=path, decide_deadline_ms=60_000.0, exploration=0.5, keep_checkpoints=100)
    )
    for key in range(ROLLOUTS):
        with tau_live.run("triage", key=key) as run:
            lang = "de" if key % 2 else "en"
            first = run.decide("model", ["small", "large"], context={"lang": lang})
            steps = [run.decide("tool", ["a", "b"]).option for _ in range(2)]
            run.reward(float((first.option == "large") == (lang == "de")) + steps.count("a"))
        if key % 40 == 39:
            assert tau_live.flush(30)
    tau_live.detach()
    yield path
    patch.undo()


def test_a_constant_is_worth_what_it_would_earn(lived: Path, read: Read) -> None:
    found = read("evaluate", "--policy", "constant:large", "--point", "model", "--store", lived)

    assert isinstance(found, dict)
    assert (found["policy"], found["point"], found["status"]) == ("constant:large", "model", "ok")
    assert found["read"] == found["decisions"]["used"] == ROLLOUTS
    assert found["rollouts"] is None
    estimates = found["decisions"]["estimates"]
    assert set(estimates) == {"ips", "snips", "dm", "dr", "sndr"}
    logged = found["decisions"]["logged"]
    for name, one in estimates.items():
        low, high = one["bootstrap"]
        assert low < one["value"] < high, name
        assert one["value"] == pytest.approx(logged, abs=0.8)


def test_the_bottom_line_is_said_in_words(lived: Path, run: Run, tmp_path: Path) -> None:
    with (tmp_path / "wrong.py").open("w") as file:
        file.write("def choose(c, o):\n    return 'small' if c['lang'] == 'de' else 'large'\n")

    def line(policy: str) -> str:
        told = run("evaluate", "--policy", policy, "--point", "model", "--store", lived).stdout
        return next(one for one in told.splitlines() if one.startswith("in short"))

    wrong, first = line("wrong:choose"), line("1")

    assert first.split()[2] == wrong.split()[2] == "DR"
    assert "as logged, interval " in first
    assert first.endswith(": no clear difference")
    assert wrong.endswith(": probably worse")


def test_a_version_is_worth_more_than_what_was_logged_and_the_untrained_one(
    lived: Path, read: Read
) -> None:
    store = SqliteStore.open(lived, read_only=True)
    newest = max(row.version for row in store.policies.versions("model"))
    store.close()

    trained, untrained, uniform = (
        read("evaluate", "--policy", name, "--point", "model", "--store", lived)
        for name in (newest, 0, "uniform")
    )

    values = []
    for one in (trained, untrained, uniform):
        assert isinstance(one, dict)
        values.append(one["decisions"]["estimates"]["dr"]["value"])
    assert values[0] > values[1]
    assert values[1] == values[2]  # without a default the untrained policy is uniform


def test_rollouts_of_several_steps_are_evaluated_as_a_whole_too(lived: Path, read: Read) -> None:
    found = read("evaluate", "--policy", "uniform", "--point", "tool", "--store", lived)

    assert isinstance(found, dict)
    assert found["read"] == 2 * ROLLOUTS
    assert set(found["rollouts"]["estimates"]) == {"pdis", "wpdis"}
    assert found["rollouts"]["used"] == ROLLOUTS


@pytest.mark.parametrize("limit", [1, 7, ROLLOUTS - 1, ROLLOUTS, 10 * ROLLOUTS])
def test_a_limit_takes_the_newest(limit: int, lived: Path) -> None:
    store = SqliteStore.open(lived, read_only=True)
    every = stored_records(store, Settings(store=lived), "model", tell=lambda _: None).records

    found = stored_records(store, Settings(store=lived), "model", limit=limit, tell=lambda _: None)

    store.close()
    assert found.records == every[-limit:]


def test_only_rollouts_since_a_time_are_taken(lived: Path, read: Read) -> None:
    found = [
        read("evaluate", "--policy", "uniform", "--point", "model", "--since", since, "--store",
             lived)
        for since in ("1d", "2000-01-01")
    ]  # fmt: skip

    assert [one["read"] for one in found if isinstance(one, dict)] == [ROLLOUTS, ROLLOUTS]
    store = SqliteStore.open(lived, read_only=True)
    later = stored_records(store, Settings(store=lived), "model", since=4e9, tell=lambda _: None)
    store.close()
    assert later.records == []


def test_where_too_little_is_left_it_says_so_and_ends_with_4(lived: Path, run: Run) -> None:
    asked = ("evaluate", "--policy", "uniform", "--point", "model", "--limit", 5, "--store", lived)

    told, plain = run(*asked), run(*asked, "--json")

    said = "insufficient support: 5 rollouts, not 50; effective sample size"
    for result in (told, plain):
        assert result.exit_code == 4
        assert result.stderr.startswith(f"tau-live: {said}")
        assert result.stderr.count("\n") == 1
    assert "mean reward as logged" in told.stdout
    found = json.loads(plain.stdout)
    assert found["status"] == "insufficient support"
    assert found["decisions"]["estimates"]["dr"]["value"] is None


def test_for_people_it_prints_a_table(lived: Path, run: Run) -> None:
    result = run("evaluate", "--policy", "best-fixed", "--point", "tool", "--store", lived,
                 "--reward-range", 0, 3)  # fmt: skip

    assert result.exit_code == 0, result.stderr
    parts = ["best-fixed (a)", "the store, point tool", "0 to 3", "SNIPS", "SNDR", "WPDIS"]
    for said in [*parts, "bootstrap 95%", "anytime 95%", "sample size", "whole rollouts"]:
        assert said in result.stdout, said


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--policy", "uniform"], 1, "choose a --point; points with rewarded rollouts: 'model', "),
        (["--policy", "uniform", "--point", "x"], 1, "no rewarded rollout decided at 'x'"),
        (["--policy", "nonsense", "--point", "tool"], 1, "no policy 'nonsense': name a version"),
        (["--policy", "constant:z", "--point", "tool"], 1, "no decision had an option 'z'"),
        (["--policy", "99"], 1, "'99' not found"),
        (["--policy", "1", "--point", "nowhere"], 1, "version 1 is for point"),
        (["--policy", "uniform", "--point", "tool", "--context", "x"], 2, "--context belongs to"),
        (["--policy", "uniform", "--reward-range", "1", "0"], 2, "LOW < HIGH, got 1.0 and 0.0"),
        (["--policy", "uniform", "--reward-range", "0", "inf"], 2, "LOW < HIGH, got 0.0 and inf"),
        (["--policy", "uniform", "--weight-cap", "nan"], 2, "--weight-cap: expected a number"),
        (["--policy", "uniform", "--confidence", "nan"], 2, "--confidence: expected a number"),
        ([], 2, "Missing option '--policy'"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    arguments: list[str], code: int, said: str, lived: Path, run: Run
) -> None:
    result = run("evaluate", *arguments, "--store", lived)

    assert result.exit_code == code
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_log_needs_no_store(tmp_path: Path, read: Read) -> None:
    rng = np.random.default_rng(1)
    rows = [f"{'ab'[int(rng.random() < 0.5)]},0.5,{rng.random():.3f}" for _ in range(200)]
    log = tmp_path / "log.csv"
    log.write_text("\n".join(["option,propensity,reward", *rows]))

    found = read("evaluate", "--policy", "constant:a", "--log", log)

    assert isinstance(found, dict)
    assert found["log"] == str(log)
    assert (found["status"], found["point"], found["read"]) == ("ok", None, 200)
    assert found["decisions"]["estimates"]["dr"]["value"] == pytest.approx(0.5, abs=0.1)


def test_a_version_may_be_evaluated_on_a_log(tmp_path: Path, lived: Path, read: Read) -> None:
    log = tmp_path / "log.jsonl"
    names = ["small", "large"]
    rows = [
        {"option": names[n % 2], "options": names, "propensity": 0.5, "reward": n % 3, "lang": "de"}
        for n in range(200)
    ]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))

    found = read("evaluate", "--policy", "1", "--log", log, "--store", lived,
                 "--reward-range", 0, 2)  # fmt: skip

    assert isinstance(found, dict)
    assert (found["policy"], found["status"]) == ("version 1", "ok")


def test_a_bad_line_of_a_log_is_one_line(tmp_path: Path, run: Run) -> None:
    log = tmp_path / "log.csv"
    log.write_text("option,propensity,reward\na,half,1\n")

    result = run("evaluate", "--policy", "uniform", "--log", log)

    assert result.exit_code == 1
    assert result.stderr == (
        f"tau-live: {log}:2: column 'propensity': expected a number, got 'half'\n"
    )


def test_a_pruned_version_is_one_line(lived: Path, run: Run, tmp_path: Path) -> None:
    copied = tmp_path / "store.sqlite"
    copied.write_bytes(lived.read_bytes())

    result = run("evaluate", "--policy", "1", "--store", copied)

    assert result.exit_code == 1
    assert result.stderr == "tau-live: the checkpoint of version 1 has been pruned\n"


def test_what_cannot_be_used_is_counted_so_that_all_are_accounted_for(
    lived: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "store.sqlite"
    copied.write_bytes(lived.read_bytes())
    with closing(sqlite3.connect(copied)) as connection:
        connection.execute(
            "update decisions set propensity = null where point = 'tool' and ordinal = 2 "
            "and rollout_seq % 4 = 0"
        )
        connection.execute("update decisions set applied = null where rollout_seq % 8 = 1")
        connection.execute("update rollouts set metadata = '{\"dropped_events\": 1}' where seq = 2")
        connection.commit()
    store = SqliteStore.open(copied, read_only=True)

    found = stored_records(store, Settings(store=copied), "tool", tell=lambda _: None)

    store.close()
    assert found.left_out == {"no_propensity": 40, "applied_unknown": 40, "events_dropped": 2}
    assert len(found.records) + sum(found.left_out.values()) == 2 * ROLLOUTS
    assert len(found.incomplete) == 40 + 20 + 1


def test_a_function_of_the_user_may_be_evaluated(
    lived: Path, read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows what made an option right, so it earns more than what was logged."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_rules.py").write_text(
        "def choose(context, options):\n"
        "    assert {*options} == {'small', 'large'}\n"
        "    return 'large' if context['lang'] == 'de' else 'small'\n"
    )

    found = read("evaluate", "--policy", "own_rules:choose", "--point", "model", "--store", lived)

    assert isinstance(found, dict)
    decided = found["decisions"]
    assert found["policy"] == "own_rules:choose"
    assert decided["estimates"]["dr"]["value"] > decided["logged"] + 0.1


@pytest.mark.parametrize(
    ("policy", "said"),
    [("no_such_module:choose", "cannot import no_such_module"), ("json:no", "no function 'no'")],
)
def test_a_function_that_is_not_there_is_one_line(
    lived: Path, run: Run, policy: str, said: str
) -> None:
    found = run("evaluate", "--policy", policy, "--point", "model", "--store", lived)

    assert found.exit_code == 1
    assert said in found.stderr


def test_policies_of_several_points_are_judged_together(lived: Path, read: Read) -> None:
    found = read(
        "evaluate", "--policy", "model=uniform", "--policy", "tool=uniform", "--store", lived
    )

    assert isinstance(found, dict)
    assert (found["policy"], found["point"]) == ("model=uniform, tool=uniform", "model, tool")
    assert found["read"] == 3 * ROLLOUTS
    assert found["rollouts"]["used"] == ROLLOUTS
    assert found["rollouts"]["estimates"]["wpdis"]["value"] == pytest.approx(1.5, abs=0.3)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--policy", "uniform"), "need a point each"),
        (("--policy", "model=0"), "need a point each"),
        (("--policy", "tool=uniform", "--limit", "9"), "one policy alone"),
    ],
)
def test_several_policies_need_a_point_each(
    lived: Path, run: Run, more: tuple[str, ...], said: str
) -> None:
    found = run("evaluate", "--policy", "model=uniform", *more, "--store", lived)

    assert found.exit_code == 2
    assert said in found.stderr
