"""Tens of thousands of random steps of several processes on one store."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tau_live.core.errors import StoreUnavailableError
from tau_live.core.gate import GateEntry, GateRow, Kind
from tau_live.core.gate_keeper import GateKeeper, GateStore

Connect = Callable[[], GateStore]
NAMES = ("one", "two", "three")


# Every step is written at once: the keepers must be exactly what this model says.


@dataclass
class Life:
    """What a model process knows of its own."""

    failures: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    answers_for: set[Kind] = field(default_factory=set)


@dataclass
class Model:
    """The rules of the shared gate, said as simply as possible."""

    limit: int
    reason: str | None = None
    streaks: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    lives: dict[str, Life] = field(default_factory=lambda: {name: Life() for name in NAMES})

    def failed(self, name: str, kind: Kind) -> None:
        if self.reason is None:
            own = self.lives[name]
            own.failures[kind] += 1
            own.answers_for.add(kind)
            self.streaks[kind] = max(self.streaks[kind] + 1, own.failures[kind])
            if self.streaks[kind] >= self.limit:
                self.reason = f"{kind}_failures"

    def succeeded(self, name: str, kind: Kind) -> None:
        if self.reason is None and kind in self.lives[name].answers_for:
            self.lives[name].answers_for.remove(kind)
            self.lives[name].failures[kind] = 0
            self.streaks[kind] = 0

    def hold(self) -> None:
        self.reason = self.reason or "operator"

    def reset(self) -> None:
        self.reason = None
        self.streaks = dict.fromkeys(Kind, 0)
        for life in self.lives.values():
            life.failures = dict.fromkeys(Kind, 0)
            life.answers_for = set()

    def restart(self, name: str) -> None:
        found = {kind for kind in Kind if self.streaks[kind]}
        self.lives[name] = Life(answers_for=found)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_written_at_once_every_process_agrees_with_the_model(connect: Connect, limit: int) -> None:
    rng, store = random.Random(limit), connect()
    model = Model(limit=limit)
    keepers = {name: GateKeeper(limit=limit, who=name) for name in NAMES}
    for keeper in keepers.values():
        keeper.refresh(store)
    for at in range(6_000):
        name, kind = rng.choice(NAMES), rng.choice(list(Kind))
        keeper = keepers[name]
        keeper.refresh(store)

        match rng.choices(["-", "+", "hold", "reset", "restart"], [50, 40, 1, 4, 5])[0]:
            case "-":
                keeper.record_failure(kind, "full", at=at)
                model.failed(name, kind)
            case "+":
                keeper.record_success(kind, at=at)
                model.succeeded(name, kind)
            case "hold":
                keeper.hold("operator", at=at, who="anna")
                model.hold()
            case "reset":
                keeper.reset("walk", who="anna", at=at)
                model.reset()
            case "restart":
                keepers[name] = keeper = GateKeeper(limit=limit, who=name)
                model.restart(name)
        keeper.refresh(store)

        row = store.load()
        assert (row.state, row.reason) == ("hold" if model.reason else "pass", model.reason)
        assert {kind: row.streaks.get(kind, 0) for kind in Kind} == model.streaks
        assert keeper.passes == (model.reason is None)
        assert not keeper.has_unsaved
    assert_history_explains(store)


# Steps are written whenever it happens, the disk fails, processes die, others write in between.


class Disk:
    """A connection that fails at random, also after it has written, and lets others go first."""

    def __init__(self, store: GateStore, rng: random.Random) -> None:
        self._store = store
        self._rng = rng
        self.fails = 0.0
        self.others: Callable[[], object] = lambda: None
        self.log_was_read = False

    def _may_fail(self) -> None:
        if self._rng.random() < self.fails:
            raise StoreUnavailableError("disk I/O error")

    def load(self) -> GateRow:
        self._may_fail()
        return self._store.load()

    def save(self, row: GateRow, *, entry: GateEntry | None) -> bool:
        self._may_fail()
        if self._rng.random() < 0.1:
            self.others()
        saved = self._store.save(row, entry=entry)
        self._may_fail()
        return saved

    def log(self, *, limit: int | None = None) -> list[GateEntry]:
        self._may_fail()
        self.log_was_read = True
        return self._store.log(limit=limit)


class Walk:
    """Three processes and an operator who act at random, and what may never happen."""

    def __init__(self, connect: Connect, *, seed: int, limit: int) -> None:
        self.rng = random.Random(seed)
        self.limit = limit
        self.at = 0.0
        self.store = connect()
        self.disks = {name: Disk(connect(), self.rng) for name in NAMES}
        self.keepers: dict[str, GateKeeper] = {}
        self.failures: dict[tuple[str, Kind], list[float]] = {}
        self.held: list[tuple[str, float]] = []
        self.counts = dict.fromkeys(["hold", "reset", "death", "broken disk", "end of a hold"], 0)
        for name in NAMES:
            self.start(name)

    def start(self, name: str) -> None:
        self.keepers[name] = GateKeeper(limit=self.limit, who=f"{name} since {self.at}")
        self.failures = {key: at for key, at in self.failures.items() if key[0] != name}

    def step(self) -> None:
        self.at += 1.0
        name, kind = self.rng.choice(NAMES), self.rng.choice(list(Kind))
        keeper = self.keepers[name]
        passed = keeper.passes
        act = self.rng.choices(
            [self.fail, self.succeed, self.look, self.operate, self.die, self.change_disk],
            [30, 25, 35, 3, 2, 5],
        )[0]
        act(name, kind)
        if passed and not keeper.passes and act in (self.fail, self.look):
            self.held.append((name, self.at))
        self.check(name, kind)

    def fail(self, name: str, kind: Kind) -> None:
        if self.keepers[name].passes:
            self.failures.setdefault((name, kind), []).append(self.at)
        self.keepers[name].record_failure(kind, "full", at=self.at)

    def succeed(self, name: str, kind: Kind) -> None:
        if self.keepers[name].passes:
            self.failures.pop((name, kind), None)
        self.keepers[name].record_success(kind, at=self.at)

    def look(self, name: str, kind: Kind) -> None:
        self.refresh(name)

    def change_disk(self, name: str, kind: Kind) -> None:
        self.disks[name].fails = self.rng.choice([0.0, 0.0, 0.3, 1.0])
        self.counts["broken disk"] += self.disks[name].fails > 0

    def refresh(self, name: str, *, nested: bool = False) -> None:
        keeper, disk = self.keepers[name], self.disks[name]
        passed, held_since = keeper.passes, keeper.gate.since
        other = self.rng.choice([other for other in NAMES if other != name])
        disk.others = lambda: None if nested else self.refresh(other, nested=True)
        disk.log_was_read = False
        keeper.refresh(disk)
        disk.others = lambda: None

        resets = [line.at for line in self.store.log() if line.event == "reset"]
        if not passed and keeper.passes:  # a hold is left only by a reset that came after it
            assert resets
            assert max(resets) > held_since
            self.counts["end of a hold"] += 1
        if disk.log_was_read and resets:
            for key in [key for key in self.failures if key[0] == name]:
                self.failures[key] = [at for at in self.failures[key] if at > max(resets)]

    def operate(self, name: str, kind: Kind) -> None:
        operator = GateKeeper(limit=self.limit, who="terminal")
        operator.refresh(self.store)
        if self.rng.random() < 0.9:
            operator.reset("walk", who="anna", at=self.at)
            self.counts["reset"] += 1
        else:
            operator.hold("operator", at=self.at, who="anna")
            self.counts["hold"] += 1
        operator.refresh(self.store)
        assert not operator.has_unsaved

    def die(self, name: str, kind: Kind) -> None:
        self.counts["death"] += 1
        self.held = [(other, at) for other, at in self.held if other != name]
        self.start(name)

    def check(self, name: str, kind: Kind) -> None:
        keeper = self.keepers[name]
        own = self.failures.get((name, kind), [])
        assert keeper.passes == keeper.gate.passes
        if keeper.passes:  # limit failures in a row in one process always hold
            assert len(own) < self.limit
            assert keeper.gate.streak(kind) >= len(own)

    def settle(self) -> None:
        for _ in range(2):
            self.at += 1.0
            for name in NAMES:
                self.disks[name].fails = 0.0
                self.refresh(name)
        row = self.store.load()
        for keeper in self.keepers.values():
            assert not keeper.has_unsaved
            assert keeper.gate.state == row.state


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_whatever_happens_a_hold_is_kept_explained_and_shared(connect: Connect, seed: int) -> None:
    walk = Walk(connect, seed=seed, limit=1 + seed % 4)
    for _ in range(10):
        for _ in range(400):
            walk.step()
        walk.settle()

    assert all(walk.counts.values())
    assert_history_explains(walk.store)
    lines = walk.store.log()
    assert len({(e.at, e.who, e.kind, e.event) for e in lines}) == len(lines)
    written = {(line.who.split(" since ")[0], line.at) for line in lines if line.event != "reset"}
    foreign = {line.at for line in lines if line.event == "hold"}
    for name, at in walk.held:  # by a line of its own, or by another's that it has come to know
        assert (name, at) in written or any(line <= at for line in foreign)


def assert_history_explains(store: GateStore) -> None:
    """Follow the history from its beginning; it must end where the gate stands."""
    state = "pass"
    for line in reversed(store.log()):
        assert line.who
        if line.event == "reset":
            state = "pass"
        elif line.event == "hold":
            state = "hold"
        assert line.state == state
    assert state == store.load().state
