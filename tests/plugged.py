"""Plugins of every kind, and what they are shown."""

from collections.abc import Iterator, Mapping

from tau_live.core.events import Event, RunStart
from tau_live.core.hookspecs import (
    Answer,
    DecisionRequest,
    Promotion,
    RewardPart,
    RolloutSummary,
    hookimpl,
)
from tau_live.core.plugins import Plugins
from tau_live.core.records import RolloutStatus, Span

EVENT = RunStart(host="test", run_id="r1", at=1.0)
REQUEST = DecisionRequest(
    run_id="r1", rollout_id="live-1", point="model", options={"small": {}, "large": {}}
)
SUMMARY = RolloutSummary(rollout_id="live-1", host="test", status=RolloutStatus.SUCCEEDED)


class Seen:
    """Keeps what it is shown."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    @hookimpl
    def observe(self, event: Event) -> None:
        self.events.append(event)


class Broken:
    """Raises in every hook."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.calls = 0
        self.error = error or RuntimeError("out of order")

    def _fail(self) -> None:
        self.calls += 1
        raise self.error

    @hookimpl
    def observe(self, event: Event) -> None:
        self._fail()

    @hookimpl
    def decide(self, request: DecisionRequest) -> Answer | None:
        self._fail()
        return None

    @hookimpl
    def infer_reward(self, summary: RolloutSummary) -> Iterator[RewardPart]:
        yield RewardPart(name="half", value=0.5)
        self._fail()

    @hookimpl
    def redact(self, span: Span) -> Span | None:
        self._fail()
        return None


def registered(*plugins: object, strict: bool = False) -> Plugins:
    made = Plugins(strict=strict)
    for number, plugin in enumerate(plugins):
        made.register(plugin, name=f"{type(plugin).__name__.lower()}-{number}")
    return made


class Promoted:
    """Remembers what it hears."""

    def __init__(self) -> None:
        self.heard: list[Promotion] = []

    @hookimpl
    def policy_promoted(self, promotion: Promotion) -> None:
        self.heard.append(promotion)


class OurOwn:
    """Answers when nobody else does."""

    @hookimpl(trylast=True)
    def decide(self, request: DecisionRequest) -> Answer:
        return Answer(option="small", probability=0.5)


class Listening:
    """Remembers what it hears."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    @hookimpl
    def gate_changed(self, snapshot: Mapping[str, object]) -> None:
        self.heard.append(snapshot)

    @hookimpl
    def update_finished(self, report: Mapping[str, object]) -> None:
        self.heard.append(report)

    @hookimpl
    def register_commands(self, cli: object) -> None:
        self.heard.append(cli)
