"""Work in one thread that reaches the fault points, each from a state that was made before.

A workload says where what it leaves is whole. It is done again after a crash; where that may be,
it then comes to the same as if it had never been stopped.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import tau_live
from tau_live.cli.gate import reset_gate
from tau_live.core import events as ev
from tau_live.core.errors import StoreUnavailableError
from tau_live.core.files import sweep
from tau_live.core.gate import Kind
from tau_live.core.gate_keeper import GateKeeper
from tau_live.core.plugins import Plugins
from tau_live.core.processes import this_process
from tau_live.core.records import AttemptStatus, RolloutConfig, RolloutStatus
from tau_live.core.settings import Settings
from tau_live.evidence.artifacts import DAY_S, Names, Root, timestamp
from tau_live.evidence.comparison import read_evidence, write_reports
from tau_live.evidence.publication import COMPARED, archive, purge
from tau_live.evidence.publication import publish as publish_reports
from tau_live.evidence.records import ROLES, read_inputs
from tau_live.evidence.running import Frozen, freeze, run, store_of
from tau_live.evidence.validation import Checked
from tau_live.learn import learner as unfinished
from tau_live.learn.promotion import promoter
from tau_live.learn.promotion.promoter import Promoter
from tau_live.operate.status import publish, status_file, status_of
from tau_live.operate.trials import (
    Order,
    expose,
    freeze_champion,
    pin,
    roll_back,
    stop,
    unpin,
)
from tau_live.record.collector import Collector
from tau_live.record.pipeline import Pipeline
from tau_live.record.recording import Recorder
from tau_live.record.shipper import Shipper
from tau_live.record.writer import REOPEN_S, Listeners, Writer
from tau_live.runtime.build import learner_of, open_store, pipeline_of
from tau_live.store.files import policies_of
from tau_live.store.opening import open_spool
from tau_live.store.roles import Store
from tests.contracts.making import begun, queued, reward
from tests.evidence.projects import RIGHT, RUN, SEEDS, smaller
from tests.live.running import rounds
from tests.live.test_poison import add, worth
from tests.streams import ByReward, event, stamped
from tests.trialled import NOW, Arms, fill, serve, settings_of
from tests.writes import forget_old, writes

STORE, SPOOL = "s.sqlite", "spool.sqlite"
DEAD = "nowhere:0:0"
"""A process that does not live any more."""


class PlantedError(StoreUnavailableError, OSError):
    """What a step fails with, in a process that lives on."""


class Workload(NamedTuple):
    """Something that a process does.

    Attributes:
        prepare: Makes what is there before, in an empty folder.
        work: Does it; what is there is whole at each yield.
        whole: The points at which it is whole as well.
        repeats: Whether doing it again after a crash comes to the same.
        threads: Whether it runs in several threads, so that points are not reached in one order.
        tried: The points at which it is tried begin so.
    """

    prepare: Callable[[Path], None]
    work: Callable[[Path], Iterator[None]]
    whole: frozenset[str] = frozenset()
    repeats: bool = True
    threads: bool = False
    tried: tuple[str, ...] = ("",)


def settings(folder: Path) -> Settings:
    """Return settings under which little makes an update due, and few checkpoints are kept."""
    return Settings(
        store=folder / STORE,
        record=folder / "events.jsonl",
        keep_checkpoints=2,
        max_rollouts_per_update=8,
        window=8,
        decide_deadline_ms=60_000.0,
    )


def strict(folder: Path) -> Settings:
    """Return settings under which even choices hold the gate."""
    return replace(settings(folder), window=64, option_share_limit=0.3)


def nothing(_folder: Path) -> None:
    """Prepare nothing."""


def made(folder: Path) -> None:
    """Prepare a store that holds nothing."""
    open_store(settings(folder)).close()


def make(folder: Path) -> Iterator[None]:
    """Make a store."""
    open_store(settings(folder)).close()
    yield


def collect(folder: Path) -> Iterator[None]:
    """Record and store what a host tells in four batches, and end what it left open."""
    gate = GateKeeper(limit=3, who="test")
    known = settings(folder)
    recorder = Recorder(folder / "events.jsonl")

    def opened() -> tuple[Store, Pipeline]:
        store = open_store(known)
        return store, pipeline_of(
            store, known, owner=None, plugins=Plugins(), recorder=recorder,
            on_poison=_refuse,
        )  # fmt: skip

    listeners = Listeners(
        ready=lambda: None,
        changed=lambda _store, _topics: None,
        look=lambda _store, _keeps: None,
        failed=_fail,
        failing=lambda: None,
        gate_changed=lambda: None,
        counts=dict,
        mark=lambda reached: reached(),
    )
    writer = Writer(
        opened, gate=gate, owner=this_process(), settings=known, listeners=listeners,
        clock=lambda: 300.0,
    )  # fmt: skip
    writer.tick()
    yield
    for first in range(0, 20, 5):
        writer.write([told for number in range(first, first + 5) for told in run_of(number)])
        writer.tick()
        yield
    writer.close()
    recorder.close()
    yield


def run_of(number: int) -> Iterator[ev.Event]:
    """Tell a run with a decision, and the reward of one that ended before."""
    run, at = f"r{number}", 10.0 * number
    yield event(ev.RunStart, run, at + 1.0, name="agent")
    yield event(ev.ToolStart, run, at + 2.0, tool="grep", call_id="c")
    yield event(
        ev.Decision, run, at + 3.0, ordinal=1, point="model",
        options=("a", "b"), chosen="a", applied="a", propensity=0.5,
    )  # fmt: skip
    yield event(ev.ToolEnd, run, at + 4.0, tool="grep", call_id="c")
    yield event(ev.RunEnd, run, at + 5.0, status=ev.Status.OK)
    yield event(ev.Reward, f"r{max(0, number - 3)}", at + 6.0, value=float(number % 2))


def learnable(folder: Path) -> None:
    """Prepare a store with versions, with what an update left behind that died, and with more."""
    with_versions(settings(folder), 32)
    store = open_store(settings(folder))
    policies = policies_of(settings(folder).store)
    store.clock = lambda: 0.0
    for name in ("000000005-0123456789abcdef.npz", "000000007-0123456789abcdef.npz"):
        unfinished.add_note(store, name, DEAD, ttl_s=60.0)
        (policies / name).touch()
    (policies / ".000000005-0123456789abcdef.npz.99999999-1.part").touch()
    for number in range(32, 48):
        add(store, number, total=worth(number))
    store.close()


def with_versions(known: Settings, rollouts: int) -> None:
    """Prepare a store that has learned from so many rollouts."""
    store = open_store(known)
    learner = learner_of(store, known, owner="test")
    for number in range(rollouts):
        add(store, number, total=worth(number))
        learner.run_next(now=float(number))
    store.close()


def learn(folder: Path) -> Iterator[None]:
    """Run the updates that are due, and publish what came of each."""
    yield from learned(settings(folder))


def learned(known: Settings) -> Iterator[None]:
    """Run the updates that are due under these settings."""
    store = open_store(known)
    learner = learner_of(store, known, owner=this_process())
    learner.sweep()
    yield
    while learner.run_next(now=1.0):
        publish(status_file(known), status_of(store, known, now=1.0))
        yield
    store.close()


def about_to_hold(folder: Path) -> None:
    """Prepare a store whose next update finds a reason to hold the gate."""
    with_versions(strict(folder), 71)
    store = open_store(strict(folder))
    add(store, 71, total=worth(71))
    assert store.gate.load().state == "pass"
    store.close()


def hold(folder: Path) -> Iterator[None]:
    """Run that update; the gate then holds."""
    yield from learned(strict(folder))
    store = open_store(strict(folder))
    assert store.gate.load().state == "hold"
    store.close()


def in_trial(folder: Path) -> None:
    """Prepare a store with a learner that is better at first, and then worse."""
    store = open_store(settings_of(folder / STORE))
    serve(store, settings_of(folder / STORE), 1)
    fill(store, 120, Arms(learner=1.0, control=0.0), seed=1)
    fill(store, 120, Arms(learner=0.0, control=1.0), seed=2, start=120)
    store.close()


def promote(folder: Path) -> Iterator[None]:
    """Count all evidence, and do what follows from it."""
    promoter.PAGE = 48
    known = settings_of(folder / STORE)
    store = open_store(known)
    Promoter(store, known, holder="test").advance(now=NOW)
    store.close()
    yield


def ordered(folder: Path) -> Iterator[None]:
    """Do what an operator may do with a point."""
    known = settings(folder)
    store = open_store(known)

    def order(action: str) -> Order:
        return Order(action, "model", "because", "anna", 5.0)

    expose(store, known, order("policy_exposure"), share=0.5)
    yield
    pin(store, known, order("policy_pin"))
    yield
    unpin(store, known, order("policy_unpin"))
    yield
    freeze_champion(store, known, order("policy_freeze"))
    yield
    roll_back(store, known, order("policy_rollback"), pin=True)
    yield
    stop(store, known, order("policy_stop"))
    store.close()
    yield


def trip(folder: Path) -> Iterator[None]:
    """Let the gate count, trip, be reset, and be held and reset before that could be stored."""
    known = settings(folder)
    store = open_store(known)
    keeper = GateKeeper(limit=3, who="test")
    keeper.refresh(store.gate)
    for number in range(3):
        keeper.record_failure(Kind.COLLECTION, "the disk is full", at=2.0 + number)
        keeper.refresh(store.gate)
        yield
    reset_gate(store, known, reason="mended", who="anna", at=6.0)
    yield
    keeper.refresh(store.gate)
    keeper.hold("rewards_missing", at=8.0, detail="of 10 rollouts none")
    keeper.reset("mended", who="anna", at=9.0)
    keeper.hold("rewards_missing", at=10.0, detail="of 20 rollouts none")
    keeper.refresh(store.gate)
    store.close()
    yield


def old(folder: Path) -> None:
    """Prepare a store with rollouts that may be forgotten."""
    store = open_store(settings(folder))
    for number in range(300):
        rollout_id = f"old-{number}"
        begun(store, rollout_id)
        writes(store).add_reward(reward(1.0, rollout_id, at=2.0))
        writes(store).set_status(rollout_id, RolloutStatus.SUCCEEDED, at=3.0)
        writes(store).mark_ready(rollout_id, total_reward=1.0)
    store.close()


def forget(folder: Path) -> Iterator[None]:
    """Forget old rollouts, and give their space back."""
    store = open_store(settings(folder))
    while forget_old(store, before=10.0, limit=100):
        yield
    store.retention.vacuum()
    store.close()
    yield


def hand_out(folder: Path) -> Iterator[None]:
    """Enqueue rollouts and resources, and work on them."""
    store = open_store(settings(folder))
    store.resources.publish({"prompt": "be brief"}, at=1.0)
    yield
    for name in ("q-1", "q-2"):
        config = RolloutConfig(max_attempts=2, retry_on=(AttemptStatus.FAILED,))
        store.queue.enqueue(queued(name, config), at=1.0)
        yield
    for status in (AttemptStatus.FAILED, AttemptStatus.SUCCEEDED, AttemptStatus.SUCCEEDED):
        claim = store.queue.claim("worker", at=2.0)
        yield
        assert claim is not None
        store.queue.finish(claim.rollout.rollout_id, claim.attempt.number, status, at=3.0)
        yield
    store.close()


def frozen(folder: Path) -> None:
    """Prepare the frozen inputs of a run."""
    plan = Frozen(smaller(folder, 10), "host", RIGHT, SEEDS)
    with closing(store_of(settings(folder))) as store:
        freeze(Root(folder), RUN, plan, store=store, settings=settings(folder))


def execute(folder: Path) -> Iterator[None]:
    """Execute the episodes of a run that have no record."""
    root = Root(folder)
    run(root, read_inputs(root, RUN), ROLES, settings=settings(folder))
    yield


def compared(folder: Path) -> None:
    """Prepare a run of a suite, with its reports."""
    frozen(folder)
    list(execute(folder))
    root = Root(folder)
    evidence = read_evidence(root, read_inputs(root, RUN))
    write_reports(root, evidence, timestamp(time.time()))
    tau_live.detach()  # what was executed attached it, and its learner would open the store later


def keep(folder: Path) -> Iterator[None]:
    """Publish the reports of a run, archive and purge them."""
    root = Root(folder)
    against, now = Checked(root, settings=settings(folder)), time.time()
    publish_reports(against, [root.place(Names(RUN).report(kind)) for kind in COMPARED])
    yield
    archive(against, now=now + 31 * DAY_S)
    yield
    purge(against, now=now + 366 * DAY_S)
    yield


def live(folder: Path) -> Iterator[None]:
    """Attach, let agents run, and learn from them."""
    known = replace(settings(folder), max_rollouts_per_update=64)
    assert tau_live.attach(known) is not None
    for start in range(0, 16, 8):
        rounds(8, start=start, name=f"agent-{time.time_ns()}")
        assert tau_live.flush(30)
    tau_live.detach()
    yield


def spooled(folder: Path) -> None:
    """Prepare a spool with runs that have ended, and a hub that has none of them."""
    made(folder)
    with closing(open_spool(folder / SPOOL)) as spool, spool.begin():
        Collector(spool, rewarding=ByReward(), owner=None, settles=False).apply(
            stamped(
                told
                for run in ("one", "two", "three", "four", "five")
                for told in (
                    event(ev.RunStart, run=run, name="agent"),
                    event(ev.Reward, run=run, value=1.0),
                    event(ev.RunEnd, run=run, status=ev.Status.OK),
                )
            )
        )


def ship(folder: Path) -> Iterator[None]:
    """Send what a spool holds, two runs at a time."""
    with (
        closing(open_spool(folder / SPOOL)) as spool,
        closing(open_store(settings(folder))) as hub,
    ):
        shipper = Shipper(spool, hub, Collector(hub, rewarding=ByReward(), owner=None))
        while copies := spool.copies(limit=2):
            shipper.ship(copies)
            yield


def swept(folder: Path) -> None:
    """Do what the start of a process does about files."""
    known = settings(folder)
    sweep(folder)
    store = open_store(known)
    learner_of(store, known, owner=this_process()).sweep()
    store.close()


def _refuse(told: ev.Event, error: Exception) -> None:
    raise AssertionError(f"{told} was refused") from error


def _fail(error: Exception) -> None:
    if not isinstance(error, PlantedError):  # which the writer outlives
        raise error
    threading.Event().wait(REOPEN_S)


WORKLOADS = {
    "make": Workload(nothing, make, whole=frozenset({"store.begin"})),  # before it is sealed
    "collect": Workload(
        nothing, collect, whole=frozenset({"writer.prepared", "writer.stored"}), repeats=False
    ),
    "learn": Workload(learnable, learn, whole=frozenset({"update.leased"})),
    "hold": Workload(about_to_hold, hold, whole=frozenset({"update.leased"})),
    "promote": Workload(in_trial, promote, whole=frozenset({"promotion.seen"})),
    "order": Workload(lambda folder: with_versions(settings(folder), 24), ordered, repeats=False),
    "trip": Workload(made, trip, whole=frozenset({"gate.written"}), repeats=False),
    "forget": Workload(old, forget),
    "hand out": Workload(made, hand_out, repeats=False),
    "execute": Workload(frozen, execute, repeats=False, threads=True, tried=("evidence.",)),
    "keep": Workload(compared, keep, repeats=False),  # none is published again that was purged
    "ship": Workload(spooled, ship),
    "live": Workload(nothing, live, repeats=False, threads=True, tried=("update.", "writer.")),
}
