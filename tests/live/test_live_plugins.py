"""Plugins that really take part in a running process."""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pluggy
import pytest

import tau_live
from tau_live.cli.doctor_store import store_checks
from tau_live.core.events import Event
from tau_live.core.hookspecs import (
    Alert,
    Answer,
    DecisionRequest,
    RewardPart,
    RolloutSummary,
    Text,
    hookimpl,
)
from tau_live.core.settings import InferReward, Settings
from tau_live.operate.report.summary import summary_of
from tau_live.operate.status import status_of
from tests.live.running import (
    decisions,
    done,
    gate,
    opened,
    process,
    rewards,
    rollout,
    rounds,
    until,
)


class Everything:
    """Hears of everything and answers what it is asked."""

    def __init__(self, *, probability: float | None = 0.5) -> None:
        self.seen: list[Event] = []
        self.gates: list[object] = []
        self.reports: list[Mapping[str, object]] = []
        self.probability = probability

    @hookimpl
    def observe(self, event: Event) -> None:
        self.seen.append(event)

    @hookimpl
    def decide(self, request: DecisionRequest) -> Answer | None:
        if request.point != "asked":
            return None
        return Answer(option=[*request.options][-1], probability=self.probability)

    @hookimpl
    def infer_reward(self, summary: RolloutSummary) -> Iterable[RewardPart]:
        return [RewardPart(name="mine", value=0.25)]

    @hookimpl
    def gate_changed(self, snapshot: Mapping[str, object]) -> None:
        self.gates.append(snapshot["state"])

    @hookimpl
    def update_finished(self, report: Mapping[str, object]) -> None:
        self.reports.append(report)


class Raises:
    """Fails whatever it is asked."""

    @hookimpl
    def observe(self, event: Event) -> None:
        raise ZeroDivisionError

    @hookimpl
    def decide(self, request: DecisionRequest) -> Answer | None:
        raise ZeroDivisionError

    @hookimpl
    def update_finished(self, report: Mapping[str, object]) -> None:
        raise ZeroDivisionError


def attached(plugin: object, settings: Settings) -> None:
    """Attach through a host's own plugin manager."""
    manager = pluggy.PluginManager("a_host")
    manager.register(plugin, name="ours")
    tau_live.detach()
    assert tau_live.attach(settings) is not None
    assert tau_live.attach(manager) is not None


@pytest.fixture
def plugin(live: Path, settings: Settings) -> Iterator[Everything]:
    found = Everything()
    attached(found, settings)
    yield found


def test_a_plugin_sees_every_event_and_every_update(live: Path, plugin: Everything) -> None:
    rounds(8)

    assert tau_live.flush(30)

    kinds = [event.event for event in plugin.seen]
    assert [kinds.count(kind) for kind in ("run.start", "decision", "reward", "run.end")] == [8] * 4
    assert [report["update"] for report in plugin.reports] == [1]


@pytest.mark.parametrize("probability", [0.5, None])
def test_what_a_plugin_decides_is_applied_and_logged(
    live: Path, plugin: Everything, probability: float | None
) -> None:
    plugin.probability = probability

    with tau_live.run("one") as run:
        choice = run.decide("asked", ["a", "b", "c"], default="a")
        own = run.decide("model", ["a", "b", "c"], default="a")
    assert tau_live.flush(30)

    first, second = decisions(live, run.id)
    assert (choice.option, choice.probability) == ("c", probability)
    assert (first.applied, first.propensity, first.probabilities) == ("c", probability, ())
    assert second.propensity == own.probability


def test_a_reward_is_inferred_only_where_nothing_better_has_come(
    live: Path, settings: Settings, plugin: Everything
) -> None:
    attached(plugin, replace(settings, infer_reward=InferReward.END))

    with tau_live.run("given", key=1) as given:
        given.reward(1.0)
    with tau_live.run("nothing", key=1) as nothing:
        pass
    assert tau_live.flush(30)
    inferred = [(r.source, r.value) for r in rewards(live, nothing.id)]
    nothing.reward(2.0)
    assert tau_live.flush(30)

    assert [(r.source, r.value) for r in rewards(live, given.id)] == [("api", 1.0)]
    assert inferred == [("inferred", 0.25)]
    assert rollout(live, nothing.id).total_reward == 2.0


def test_a_plugin_hears_of_hold_and_reset(live: Path, plugin: Everything) -> None:
    runtime = tau_live.attach()
    assert runtime is not None

    runtime._gate.hold("operator", at=1.0)
    until(lambda: plugin.gates == ["hold"])
    runtime._gate.reset("seen", who="tests", at=2.0)
    until(lambda: plugin.gates == ["hold", "pass"])


def test_a_plugin_that_raises_is_switched_off_and_hurts_nobody(
    live: Path, settings: Settings
) -> None:
    attached(Raises(), settings)

    rounds(8)
    assert tau_live.flush(30)

    report = tau_live.snapshot()["plugins"]
    assert isinstance(report, list)
    mine = next(one for one in report if one["name"] == "host:ours")
    assert (mine["disabled"], mine["failures"]) == (True, 3)
    assert gate()["streaks"] == {"collection": 0, "update": 0, "decision": 0}
    assert tau_live.snapshot()["last_report"]


@pytest.mark.parametrize("wrong", ["no manager", 7, object()])
def test_what_is_no_plugin_manager_is_told_and_left_out(live: Path, wrong: object) -> None:
    runtime = tau_live.attach(wrong)

    refused = tau_live.snapshot()["refused"]
    assert runtime is tau_live.attach()
    assert isinstance(refused, dict)
    assert refused["targets_refused"] == 1


@pytest.mark.slow
def test_an_installed_plugin_is_found_by_its_entry_point(path: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    info = site / "lucky-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lucky\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tau_live]\nlucky = lucky\nbroken = no_such_module\n")
    (site / "lucky.py").write_text(
        "from tau_live.core.hookspecs import Answer, hookimpl\n"
        "@hookimpl\n"
        "def decide(request):\n"
        "    return Answer(option=[*request.options][-1], probability=0.25)\n"
    )
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import tau_live\n"
        "assert tau_live.attach() is not None\n"
        "choice = tau_live.decide('model', ['a', 'b'])\n"
        "assert tau_live.flush(30)\n"
        "plugins = {p['name']: p['problem'] for p in tau_live.snapshot()['plugins']}\n"
        "print(choice.option, choice.probability, plugins['lucky'], bool(plugins['broken']))\n"
    )

    with process(code, path, site, TAU_LIVE_RL_DECIDE_DEADLINE_MS="60000") as host:
        found = done(host).split()

    assert found == ["b", "0.25", "None", "True"]
    assert sys.modules.get("lucky") is None


class Redacts:
    """A redactor that fails from some moment on."""

    def __init__(self) -> None:
        self.fails = False

    @hookimpl
    def redact_text(self, text: Text) -> str | None:
        if self.fails:
            raise ZeroDivisionError
        return text.text.replace("Ada", "[name]")


class Misspells(Redacts):
    """Its other function has an argument that there is none of, so it is left out as a whole."""

    @hookimpl
    def infer_reward(self, summary: RolloutSummary, more: object) -> list[RewardPart]:
        return []


@pytest.mark.slow
@pytest.mark.parametrize("redactor", [Redacts(), Misspells()], ids=["disabled", "left out"])
def test_a_redactor_that_is_not_called_is_reported_and_leaves_decisions_to_the_host(
    redactor: Redacts, live: Path, settings: Settings
) -> None:
    heard = Hears()
    attached(redactor, settings)
    manager = pluggy.PluginManager("another_host")
    manager.register(heard, name="hears")
    tau_live.attach(manager)
    redactor.fails = True
    with tau_live.run("work", metadata={"who": "Ada", "where": "here", "why": "so"}) as run:
        run.reward(1.0)
    assert tau_live.flush(10.0)

    with tau_live.run("work") as run:
        choice = run.decide("model", ["a", "b"], context={"who": "Ada"}, default="b")
        run.reward(1.0)
    assert tau_live.flush(10.0)
    until(lambda: heard.alerts)

    assert (choice.option, choice.source) == ("b", "default")
    assert decisions(live, run.id)[0].why_not == "redactor_disabled"
    assert heard.alerts == [("plugin-disabled", "host:ours")]
    with opened(live) as store:
        said = status_of(store, settings, now=time.time())
        healthy = summary_of(said, [], [], settings=settings).healthy
    mistakes = [check.mistake for check in store_checks(live, settings, now=time.time())]
    assert healthy.answer == "look closer"
    assert "Plugin host:ours is disabled in 1 process" in healthy.sentence
    assert "no text is kept, and the host makes its own choices" in healthy.sentence
    assert mistakes.count("plugin-disabled") == 1


class Hears:
    """Hears alerts."""

    def __init__(self) -> None:
        self.alerts: list[tuple[str, str]] = []

    @hookimpl
    def alert_raised(self, alert: Alert) -> None:
        self.alerts.append((alert.kind, alert.subject))
