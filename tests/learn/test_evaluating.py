"""Evaluation of logs: right, complete, and refused where the log says too little."""

import csv
import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau_live.core.errors import PolicyError
from tau_live.learn.evaluation.files import records_of
from tau_live.learn.evaluation.model import CHUNK, WIDTH, predictions
from tau_live.learn.evaluation.records import (
    Record,
    Records,
    best_fixed,
    constant,
    function_target,
    policy_target,
    returns_of,
    uniform,
)
from tau_live.learn.evaluation.report import PASSES, EvalRequest, Report, joint_report, report_of
from tau_live.rl import features
from tau_live.rl.crossing import Scale, cross, rows
from tau_live.rl.evaluation.estimators import Estimator
from tau_live.rl.evaluation.log import Log, Offered
from tau_live.rl.features import encode, pack, unpack
from tau_live.rl.policy import Policy, PolicyConfig
from tests.rl.fitting import cross_fitted

pytestmark = pytest.mark.slow

NAMES = ("a", "b", "c")
SHARES = (0.6, 0.3, 0.1)
MEANS = {"de": (0.2, 0.8, 0.5), "en": (0.6, 0.1, 0.5)}
TRUTH = {"uniform": 0.45, "constant:a": 0.4, "constant:b": 0.45, "constant:c": 0.5}


def quiet(_: int) -> None:
    """Tell nobody."""


def made(decisions: int, *, seed: int = 3) -> list[dict[str, object]]:
    """Return decisions whose options earn what is known, chosen with known probabilities."""
    rng = np.random.default_rng(seed)
    found: list[dict[str, object]] = []
    for _ in range(decisions):
        lang = "de" if rng.random() < 0.5 else "en"
        at = int(rng.choice(3, p=SHARES))
        reward = float(rng.random() < MEANS[lang][at])
        found.append({"option": NAMES[at], "propensity": SHARES[at], "reward": reward,
                      "lang": lang, "words": float(rng.integers(5, 100))})  # fmt: skip
    return found


def as_csv(folder: Path, found: list[dict[str, object]]) -> Path:
    path = folder / "log.csv"
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(found[0]))
        writer.writeheader()
        writer.writerows(found)
    return path


def as_jsonl(folder: Path, found: list[dict[str, object]]) -> Path:
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in found))
    return path


def report(found: Records, policy: str = "uniform", **asked: object) -> Report:
    target = uniform if policy == "uniform" else constant(policy.partition(":")[2])
    return report_of(found, target, EvalRequest(**asked), tell=quiet)  # type: ignore[arg-type]  # by the test


@pytest.mark.parametrize("policy", TRUTH)
def test_the_estimates_are_what_the_policy_earns(policy: str, tmp_path: Path) -> None:
    found = records_of(as_csv(tmp_path, made(4_000)), tell=quiet)

    told = report(found, policy)

    estimates = told.decisions.estimates
    assert set(estimates) == {"ips", "snips", "dm", "dr", "sndr"}
    for name, one in estimates.items():
        assert one.value == pytest.approx(TRUTH[policy], abs=0.05), name
        assert one.bootstrap is not None
        assert one.bootstrap.low < (one.value or 0.0) < one.bootstrap.high
        if name is not Estimator.DM:
            assert one.bernstein is not None
            assert one.bernstein.low < TRUTH[policy] < one.bernstein.high
    assert told.decisions.logged == pytest.approx(0.6 * 0.4 + 0.3 * 0.45 + 0.1 * 0.5, abs=0.05)
    assert told.rollouts is None
    assert told.refusals == ()


def test_csv_and_json_lines_say_the_same(tmp_path: Path) -> None:
    found = made(300)

    tables = [records_of(make(tmp_path, found), tell=quiet) for make in (as_csv, as_jsonl)]

    first, second = ([one._replace(rollout="") for one in table.records] for table in tables)
    assert first == second
    assert tables[0].records[0].options == tuple(dict.fromkeys(str(d["option"]) for d in found))


def test_a_version_is_evaluated_on_the_features_of_the_log(tmp_path: Path) -> None:
    found = records_of(as_csv(tmp_path, made(200)), tell=quiet)
    rng = np.random.default_rng(1)
    config = PolicyConfig()
    policy = Policy.from_arrays({
        **Policy.initial(config).arrays(), "weights": rng.normal(size=config.cross_width),
    })  # fmt: skip

    target = policy_target(policy)

    for record in found.records[:20]:
        expected = policy.probabilities(unpack(record.packed))
        np.testing.assert_array_equal(target(record), expected)


def test_the_best_fixed_option_is_the_best(tmp_path: Path) -> None:
    found = records_of(as_csv(tmp_path, made(4_000)), tell=quiet)

    assert best_fixed(found) == "c"
    assert best_fixed(Records()) is None


@pytest.mark.parametrize("largest", [1e-300, 1e50, 1e300, 1.7e308])
def test_huge_and_tiny_rewards_are_used_or_counted_without_a_warning(
    largest: float, tmp_path: Path
) -> None:
    found = made(200)
    for number, row in enumerate(found):
        row["reward"] = largest * (number % 3 - 1)

    told = report(records_of(as_csv(tmp_path, found), tell=quiet))

    used = told.decisions.weights.decisions
    assert used == (200 if largest <= 1e50 else sum(not row["reward"] for row in found))
    assert used + sum(told.decisions.left_out.values()) == 200


def test_every_line_is_used_or_counted(tmp_path: Path) -> None:
    found = made(200)
    found[0]["reward"] = ""
    found[1]["reward"] = "inf"
    found[2]["propensity"] = ""
    found[3]["propensity"] = 0.0
    found[4]["propensity"] = 1.5
    found[5]["reward"] = 9.0

    told = report(records_of(as_csv(tmp_path, found), tell=quiet), reward_range=(0.0, 1.0))

    left_out = {reason.value: count for reason, count in told.decisions.left_out.items()}
    assert left_out == {
        "no_reward": 1,
        "reward_not_finite": 1,
        "no_propensity": 1,
        "propensity_not_positive": 1,
        "propensity_above_one": 1,
        "reward_out_of_range": 1,
    }
    assert told.decisions.weights.decisions + sum(left_out.values()) == told.read == 200


def test_options_that_are_listed_are_those_that_were_offered(tmp_path: Path) -> None:
    found: list[dict[str, object]] = [
        {"option": "a", "propensity": 0.5, "reward": 1, "options": ["a", "b"]},
        {"option": "b", "propensity": 1.0, "reward": 0, "options": {"b": {"usd": 2.0}}},
        {"option": "z", "propensity": 0.5, "reward": 0, "options": ["a", "b"]},
        {"option": "a", "propensity": 0.5, "reward": 0, "options": []},
        {"option": "a", "propensity": 0.5, "reward": 0},
    ]

    records = records_of(as_jsonl(tmp_path, found), tell=quiet).records

    assert [one.options for one in records] == [("a", "b"), ("b",), ("a", "b"), (), ()]
    assert [one.applied for one in records] == [0, 0, -1, -1, -1]
    told = report(Records(records), reward_range=(0.0, 1.0))
    assert dict(told.decisions.left_out) == {"mask_missing": 2, "applied_not_offered": 1}


@pytest.mark.parametrize("cell", ["a|b", '["a", "b"]', '{"a": null, "b": {"usd": 1}}'])
def test_options_in_a_table_are_separated_or_json(cell: str, tmp_path: Path) -> None:
    path = as_csv(tmp_path, [{"option": "b", "propensity": 1, "reward": 1, "options": cell}])

    assert records_of(path, tell=quiet).records[0].options == ("a", "b")


def test_rollouts_of_several_steps_are_evaluated_as_a_whole_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    found: list[dict[str, object]] = []
    for rollout in range(600):
        wins = [int(rng.random() < 0.5) for _ in range(2)]
        for step, won in enumerate(wins):
            reward = float(all(wins)) if step else 0.0
            found.append({"rollout": f"r{rollout}", "option": "ab"[won], "propensity": 0.5,
                          "reward": reward, "options": "a|b"})  # fmt: skip

    told = report(records_of(as_csv(tmp_path, found), tell=quiet), "constant:b")

    assert told.rollouts is not None
    assert told.decisions.logged == pytest.approx(0.25, abs=0.05)
    assert told.decisions.estimates[Estimator.SNIPS].value == pytest.approx(0.5, abs=0.06)
    assert told.rollouts.estimates[Estimator.WPDIS].value == pytest.approx(1.0)
    assert told.rollouts.estimates[Estimator.PDIS].value == pytest.approx(1.0, abs=0.15)
    assert told.rollouts.weights.decisions == 600


def test_a_reward_in_the_last_line_of_a_run_is_that_of_all_of_its_steps(tmp_path: Path) -> None:
    step = {"option": "a", "propensity": 0.5, "options": "a|b", "reward": ""}
    given_late = [step | {"rollout": "r1"}, step | {"rollout": "r1", "reward": 2}]
    never_given = [step | {"rollout": "r2", "reward": 1}, step | {"rollout": "r2"}]

    found = records_of(as_csv(tmp_path, [*given_late, *never_given]), tell=quiet)

    assert [record.reward for record in found.records[:3]] == [0.0, 2.0, 1.0]
    assert math.isnan(found.records[3].reward)


def test_where_the_log_says_too_little_there_is_no_number(tmp_path: Path) -> None:
    found = [one | {"propensity": 1.0, "option": "a"} for one in made(200)]
    found[0] |= {"option": "b", "propensity": 0.001}

    told = report(records_of(as_csv(tmp_path, found), tell=quiet), "constant:b")

    assert told.decisions.estimates[Estimator.DR].value is None
    assert any("effective sample size 1" in why for why in told.refusals)


def held(logged: tuple[float, float], *, count: int = 400) -> Records:
    """Return decisions between ``a`` and ``b``, of which ``b`` was unsafe to explore."""
    rng = np.random.default_rng(7)
    encoded = pack(encode({}, [("a", None), ("b", None)]))
    records = []
    for n in range(count):
        at = int(rng.random() < logged[1])
        records.append(
            Record(f"r{n}", ("a", "b"), None, at, None, logged[at], float(rng.random() < 0.5),
                   encoded, (True, False), logged)
        )  # fmt: skip
    return Records(records)


@pytest.mark.parametrize(("policy", "decisions"), [("uniform", 400), ("constant:b", 400)])
def test_of_what_was_unsafe_to_explore_and_hardly_chosen_nothing_is_claimed(
    policy: str, decisions: int
) -> None:
    told = report(held((1.0 - 1e-6, 1e-6)), policy, reward_range=(0.0, 1.0))

    assert told.unexplored == decisions
    assert any("unsafe to explore and hardly ever chosen" in why for why in told.refusals)
    assert all(one.value is None for one in told.decisions.estimates.values())
    assert {one.status for one in told.decisions.estimates.values()} == {"insufficient support"}


@pytest.mark.parametrize(
    ("policy", "logged"), [("constant:a", (1.0, 0.0)), ("constant:b", (0.4, 0.6))]
)
def test_what_was_chosen_often_enough_may_be_claimed_though_it_was_not_explored(
    policy: str, logged: tuple[float, float]
) -> None:
    told = report(held(logged), policy, reward_range=(0.0, 1.0))

    assert (told.unexplored, told.refusals) == (0, ())


def test_where_somebody_else_chose_only_its_own_choice_has_support() -> None:
    found = held((0.5, 0.5))
    silent = Records([one._replace(logged=()) for one in found.records])

    told = report(silent, "constant:b", reward_range=(0.0, 1.0))

    assert 150 < told.unexplored == sum(one.applied == 0 for one in silent.records)
    assert told.refusals


def test_the_model_is_that_of_cross_fitting(tmp_path: Path) -> None:
    found = records_of(as_csv(tmp_path, made(120)), context=["lang"], tell=quiet)
    rewards = returns_of(found)
    encoded = [unpack(record.packed) for record in found.records]
    seen = rows(encoded, [None] * len(encoded), Scale.initial(features.WIDTH))
    targets = Offered.of([uniform(r) for r in found.records],
                         np.array([r.applied for r in found.records]))  # fmt: skip
    log = Log(
        rollouts=np.array([r.rollout for r in found.records]),
        propensities=np.array([r.propensity for r in found.records]),
        rewards=rewards,
        targets=targets,
    )

    ours = predictions(found.records, rewards, reward_range=(0.0, 1.0), tell=quiet)

    theirs = cross_fitted(
        log, cross(*seen, width=features.WIDTH, cross_width=WIDTH), reward_range=(0.0, 1.0)
    ).targets
    assert isinstance(theirs, Offered)
    assert theirs.predictions is not None
    np.testing.assert_allclose(np.concatenate(ours), theirs.predictions, atol=1e-9)


def test_work_is_told_as_it_is_done(tmp_path: Path) -> None:
    path = as_csv(tmp_path, made(CHUNK + 500))
    told: list[int] = []

    found = records_of(path, tell=told.append)
    assert sum(told) == (CHUNK + 500) // 1_000 * 1_000
    told.clear()
    report_of(found, uniform, EvalRequest(replicates=10), tell=told.append)

    assert sum(told) == PASSES * len(found.records)


@given(
    st.lists(st.tuples(st.sampled_from("xyz"), st.integers(-8, 8).map(lambda n: n / 4)), max_size=8)
)
def test_returns_are_what_came_until_the_end_of_the_rollout(steps: list[tuple[str, float]]) -> None:
    records = [Record(rollout, NAMES, None, 0, None, 1.0, reward, b"") for rollout, reward in steps]

    found = returns_of(Records(records))

    expected = [
        sum(reward for other, reward in steps[at:] if other == rollout)
        for at, (rollout, _) in enumerate(steps)
    ]
    assert found.tolist() == expected


def test_what_may_not_be_chosen_has_no_probability() -> None:
    record = Record("r", NAMES, (True, False, True), 0, None, 0.5, 1.0, b"")

    assert uniform(record).tolist() == [0.5, 0.0, 0.5]
    assert constant("a")(record).tolist() == [1.0, 0.0, 0.0]
    assert constant("b")(record).tolist() == [0.5, 0.0, 0.5]
    assert constant("z")(record).tolist() == [0.5, 0.0, 0.5]


def test_the_interval_of_the_direct_method_holds_although_its_model_is_wrong() -> None:
    """What is best hangs on the product of two numbers, which slopes cannot say."""
    held = {Estimator.DM: 0, Estimator.DR: 0}
    logs = 40
    for seed in range(logs):
        rng = np.random.default_rng([seed, 23])
        found = Records()
        for line in range(500):
            x, y = rng.choice([-1.0, 1.0], 2).tolist()
            option = int(rng.random() < 0.2)
            reward = float(rng.random() < (0.9 if option == (x * y > 0.0) else 0.1))
            known = encode({"x": x, "y": y}, [("a", None), ("b", None)])
            found.records.append(
                Record(f"{line}", ("a", "b"), None, option, None, (0.8, 0.2)[option], reward,
                       pack(known), context={"x": x, "y": y})
            )  # fmt: skip

        target = function_target(lambda told, _: "b" if told["x"] * told["y"] > 0 else "a", "rule")  # type: ignore[operator]  # numbers
        estimates = report_of(
            found, target, EvalRequest(replicates=200), tell=quiet
        ).decisions.estimates
        for name in held:
            interval = estimates[name].bootstrap
            assert interval is not None
            held[name] += interval.low <= 0.9 <= interval.high

    assert held[Estimator.DR] >= 0.85 * logs
    assert held[Estimator.DM] >= held[Estimator.DR]


@pytest.mark.parametrize("scale", [{"a": 1.0}, {"a": 0.8, "b": 1.6}])
def test_wrong_propensities_of_an_option_refuse_every_estimate(
    scale: dict[str, float], tmp_path: Path
) -> None:
    """In the mean of all weights the two errors cancel."""
    lines = made(4_000)
    for line in lines:
        option, propensity = str(line["option"]), line["propensity"]
        assert isinstance(propensity, float)
        line["propensity"] = propensity * scale.get(option, 1.0)

    found = report(records_of(as_csv(tmp_path, lines), tell=quiet), "constant:c")

    if len(scale) == 1:
        assert found.refusals == ()
    else:
        assert "mean weight 1.2" in found.refusals[0]
        assert "'a'" in found.refusals[0]


def test_a_function_is_asked_with_what_was_known_and_what_was_allowed(tmp_path: Path) -> None:
    asked: list[tuple[object, object]] = []

    def rule(context: Mapping[str, object], options: Mapping[str, object]) -> object:
        asked.append((context, options))
        return {"b": 0.75, "a": 0.25} if context["lang"] == "de" else "a"

    found = records_of(as_jsonl(tmp_path, made(40)), tell=quiet)
    shares = [function_target(rule, "rule")(record) for record in found.records]
    first = found.records[0]
    masked = first._replace(allowed=tuple(name != "b" for name in first.options))
    with pytest.raises(PolicyError, match="must return"):
        function_target(lambda _c, _o: "b", "rule")(masked)

    assert {*asked[0][1]} == {"a", "b", "c"}  # type: ignore[misc]  # a mapping
    for record, share in zip(found.records, shares, strict=True):
        assert record.context is not None
        german = record.context["lang"] == "de"
        by_name = dict(zip(record.options, share.tolist(), strict=True))
        assert by_name == {"c": 0.0} | ({"a": 0.25, "b": 0.75} if german else {"a": 1.0, "b": 0.0})


@pytest.mark.parametrize(
    "answer",
    [None, "never", {"a": 2.0}, {"a": float("nan")}, {"a": "b"}, {"a": 0.5, "z": 0.5}, ["a"]],
)
def test_an_answer_that_is_none_is_named(answer: object, tmp_path: Path) -> None:
    record = records_of(as_jsonl(tmp_path, made(3)), tell=quiet).records[0]

    with pytest.raises(PolicyError, match="rule must return"):
        function_target(lambda _context, _options: answer, "rule")(record)


def test_a_function_that_raises_is_named(tmp_path: Path) -> None:
    record = records_of(as_jsonl(tmp_path, made(3)), tell=quiet).records[0]

    with pytest.raises(PolicyError, match="rule raised KeyError"):
        function_target(lambda context, _options: context["none"], "rule")(record)


def test_two_points_together_are_worth_what_neither_is_alone() -> None:
    """A run is good where both points choose alike; each alone is worth a half."""
    rng = np.random.default_rng(23)
    packed = pack(encode({}, [("a", None), ("b", None)]))
    first, second = Records(), Records()
    for number in range(400):
        one, other = rng.integers(2, size=2).tolist()
        for found, chosen in ((first, one), (second, other)):
            found.records.append(
                Record(f"{number}", ("a", "b"), None, chosen, None, 0.5, float(one == other),
                       packed, total=float(one == other))
            )  # fmt: skip
    parts = [(first, constant("a")), (second, constant("a"))]

    alone = report(first, "constant:a").decisions.estimates[Estimator.IPS]
    together = joint_report(parts, EvalRequest(reward_range=(0.0, 1.0)), tell=quiet).rollouts

    assert together is not None
    estimates = together.estimates
    assert alone.value == pytest.approx(0.5, abs=0.1)
    assert estimates[Estimator.WPDIS].value == pytest.approx(1.0)
    assert estimates[Estimator.PDIS].value == pytest.approx(1.0, abs=0.2)
    assert together.weights.rollouts == 400
