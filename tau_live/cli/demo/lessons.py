"""The demo of ``tau-live experience``: from groups of attempts to a lesson that an agent takes."""

import os
import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import click
import msgspec

import tau_live
from tau_live.cli.optimize_progress import showing
from tau_live.cli.output import print_all, print_json, table_of
from tau_live.core.files import make_folders
from tau_live.core.prompts import POOL
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Learner, Settings
from tau_live.core.settings.tables import DeclaredDecision, DeclaredReward
from tau_live.core.switch import SWITCH
from tau_live.experience.config import Read, read_config
from tau_live.experience.demo import MODEL, attempt, write_demo
from tau_live.experience.log import Log
from tau_live.experience.operations import describe, ship
from tau_live.experience.runner import Loaded, begin, lead, load, preflight, resume
from tau_live.experience.tasks import load_tasks
from tau_live.operate.optimizations import state_now
from tau_live.prompts.budget import Preflight, Prices
from tau_live.store.opening import open_at
from tau_live.store.records import Optimization, OptimizationState
from tau_live.store.roles import Store
from tau_live.store.sealing import Keys, key_in

LIVE_RUNS = 400
OWN = "Answer the question about lengths."
DOMAIN = "units"
REASON = "the test of the demo has proven it"


def play(path: Path, *, as_json: bool) -> None:
    """Run the demo, and print what it found.

    One that was interrupted goes on, and one that has ended is shown again.

    Args:
        path: Its store.
        as_json: Whether JSON is printed in place of text.

    Raises:
        TauLiveError: It cannot run.
    """
    folder = path.absolute().parent
    make_folders(folder)
    key_file = folder / "audit.key"
    key_in(key_file, make=True)
    keys = Keys.read(key_file)
    loaded = load(_read(folder, keys), keys)
    settings = Settings(store=path.absolute(), audit_key_file=key_file)
    tell: Callable[[str], None] = (lambda _: None) if as_json else click.echo
    with closing(open_at(settings.store, key_file=key_file)) as store:
        run = _led(store, settings, loaded, tell)
        report = _report(store, run, keys)
        if report["ship"] == "shipped" and not store.optimizations.prompt_states():
            ship(store, keys, run, reason=REASON, who="demo")
    report["live"] = _live(settings, loaded)
    if as_json:
        print_json(report)
    else:
        _print(report)


def _read(folder: Path, keys: Keys) -> Read:
    given = {
        "tasks": f"families:{DOMAIN}", "pack": [write_demo(folder, keys).name], "model": MODEL,
        "runs-root": "runs", "task-id": "demo",
    }  # fmt: skip
    return read_config({}, folder, given=given)


def _led(
    store: Store, settings: Settings, loaded: Loaded, tell: Callable[[str], None]
) -> Optimization:
    """Return the demo's run, as it ended."""
    known = store.optimizations.runs("experience", limit=1)
    if known and known[0].state is OptimizationState.COMPLETED:
        tell(f"{known[0].run_id} has ended before")
        return known[0]
    before = preflight(loaded, Prices())
    if known and state_now(known[0])[0] is OptimizationState.FAILED:
        run = resume(store, known[0], loaded)
    else:
        run = begin(store, loaded, before, store_path=str(settings.store))
    most = Preflight(0, before.attempts, before.evaluations, 0, 0, 0, before.calls, None, None)
    with showing(most, quiet=False) as show:
        return lead(store, run, loaded, settings=settings, show=show, tell=tell)


def _report(store: Store, run: Optimization, keys: Keys) -> dict[str, object]:
    """Return what the run found."""
    log = Log(store, keys, repairs=False)
    effects = log.effects()
    steps = [*store.experience.steps(run.run_id)]
    rows = [msgspec.convert(step.content["row"], dict[str, object]) for step in steps]
    test = next((step.content for step in steps if step.phase == "test"), {})
    newest = dict(sorted(log.lessons))
    return {
        "run_id": run.run_id,
        "ship": test.get("ship"),
        "test": test.get("row"),
        "epochs": [
            {key: row.get(key) for key in ("epoch", "phase", "mean_gt", "gate", "ops", "rejects")}
            for row in rows
        ],
        "lessons": [
            describe(log.lessons[item], effects.get(item), in_force=item in log.pool)
            for item in newest.items()
        ],
    }


def _live(settings: Settings, loaded: Loaded) -> JsonObject:
    """Return how a live agent fares that is offered the pool, and how without."""
    declared = DeclaredDecision(
        point="prompt", options_from=f"experience:{DOMAIN}", model=loaded.config.model_id,
        exposure=1.0,
    )  # fmt: skip
    live = replace(
        settings, decisions=(declared,), learner=Learner.FLUSH,
        rewards=(DeclaredReward(name="right", range=(0.0, 1.0)),),
    )  # fmt: skip
    tasks = (
        load_tasks(f"families:{DOMAIN}", loaded.folder, seed=1)["transfer"]
        or (load_tasks(f"families:{DOMAIN}", loaded.folder, seed=1)["test"])
    )
    os.environ[SWITCH] = "1"
    tau_live.detach()
    tau_live.attach(live)
    rewards: dict[bool, list[float]] = {True: [], False: []}
    try:
        for number in range(LIVE_RUNS):
            task = tasks[number % len(tasks)]
            with tau_live.run("live", key=f"demo-{number}") as run:
                prompt = run.prompt(OWN)
                answer = attempt(prompt, task.prompt, random.Random(number))  # noqa: S311  # chance
                right = float(answer == task.expected)
                run.reward(right, name="right")
                rewards["<notes>" in prompt].append(right)
            if number % 50 == 49:
                tau_live.flush()
    finally:
        tau_live.flush()
        tau_live.detach()
    with closing(open_at(settings.store, read_only=True)) as store:
        trials = store.trials.trials()
    trial = next((each for point, each in trials.items() if POOL in point), None)
    return {
        "runs": LIVE_RUNS,
        "with_pool": len(rewards[True]),
        "reward_with": _mean(rewards[True]),
        "reward_without": _mean(rewards[False]),
        "exposure": None if trial is None else trial.exposure,
    }


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _print(report: dict[str, object]) -> None:
    lessons = msgspec.convert(report["lessons"], list[dict[str, object]])
    rows = [
        (
            f"{each['id']}@{each['version']}",
            "in force" if each["in_force"] else "left",
            "not measured" if each["uplift"] is None else f"{each['uplift']:+.3f}",
            f"{each['exposures']}/{each['withheld']}",
            each["summary32"],
        )
        for each in lessons
    ]
    print_all(table_of(["lesson", "state", "uplift", "with/without", "text"], rows))
    epochs = msgspec.convert(report["epochs"], list[dict[str, object]])
    refused = 0
    for row in epochs:
        rejects = msgspec.convert(row["rejects"] or {}, dict[str, int])
        refused += sum(count for why, count in rejects.items() if why.startswith("unsafe"))
    click.echo(f"{refused} lessons that repeat a planted order were refused")
    test = msgspec.convert(report["test"] or {}, dict[str, object])
    if test.get("mean_gt") is not None:
        click.echo(
            f"test: {test['mean_gt_without']:.3f} without lessons, {test['mean_gt']:.3f} with "
            f"them: {report['ship']}"
        )
    live = msgspec.convert(report["live"], dict[str, int | float | None])
    shown = {
        key: "unknown" if live[key] is None else f"{live[key]:.3f}"
        for key in ("reward_with", "reward_without")
    }
    click.echo(
        f"live: of {live['runs']} runs {live['with_pool']} took the lessons, reward "
        f"{shown['reward_with']}; the others {shown['reward_without']}"
    )
