"""The cases of an attached process, and what its store holds of them in the end."""

import gc
import sqlite3
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pluggy

import tau_live
from tau_live.core.events import KINDS, Event
from tau_live.core.hookspecs import hookimpl
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredDecision
from tests.proof.inputs_live import PROMPTS, Live
from tests.proof.inputs_surface import MINE, missing, surface
from tests.proof.inputs_tally import Tally
from tests.proof.inputs_values import CATALOGUE, HUGE, Named, Values

OWN = ("run.start", "run.end")
FLUSH_EVERY = 2_000
FLUSH_S = 120.0


class Seen:
    """Counts the events on their way into the store."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()

    @hookimpl
    def observe(self, event: Event) -> None:
        """Count one."""
        self.events[event.event] += 1


def attached_cases(tally: Tally, seed: int, cases: range, folder: Path) -> Mapping[str, object]:
    """Make cases in this process; return further facts for the result."""
    path, seen = folder / "store.sqlite", Seen()
    prompt = DeclaredDecision(point="prompt", options=PROMPTS)
    tau_live.attach(Settings(store=path, decide_deadline_ms=60_000.0, decisions=(prompt,)))
    manager = pluggy.PluginManager("host")
    manager.register(seen)
    tau_live.attach(manager)
    live = Live(tally, seed)
    for name in HUGE:
        Values.named(name)
    gc.collect()
    gc.freeze()  # what the generator holds is not the host's
    for begin in range(cases.start, cases.stop, FLUSH_EVERY):
        live.many(iter(range(begin, min(begin + FLUSH_EVERY, cases.stop))))
        tally.check(tau_live.flush(FLUSH_S), "odd", "what was taken is not stored")
    if cases.start == 0:
        _grid(live, step=max(1, 40_000 // max(1, len(cases))))
    return _ended(tally, live, seen, path)


def _grid(live: Live, *, step: int) -> None:
    """Make a case of each argument of each call with each value of the catalogue, or of some."""
    everything = [
        (called, argument, name)
        for called in surface().values()
        for argument in called.arguments
        for name in CATALOGUE
        if argument not in MINE
    ]
    for n, (called, argument, name) in enumerate(everything[::step]):
        live.each(called, argument, Values.named(name) if name in HUGE else _fresh(name))
        if n % FLUSH_EVERY == 0:
            tau_live.flush(FLUSH_S)


def _fresh(name: str) -> Named:
    return Named(name, CATALOGUE[name]())


def _ended(tally: Tally, live: Live, seen: Seen, path: Path) -> Mapping[str, object]:
    tally.case = "in the end"
    before = tau_live.snapshot()
    with tau_live.run("good", key="last") as run:
        choice = run.decide("model", ["small", "large"], context={"words": 3})
        run.reward(1.0)
    live.taken.update(decisions=1, rewards=1)
    tally.check(choice.source == "policy", "odd", f"decided by {choice.source}")
    tally.check(tau_live.flush(FLUSH_S), "odd", "what was taken is not stored")
    snapshot = tau_live.snapshot()
    gate = snapshot["gate"]
    assert isinstance(gate, dict)
    tally.check(gate["state"] == "pass", "odd", f"the gate: {gate}")
    tally.check(not live.uncovered() and not missing(surface()), "odd", "calls without cases")
    tau_live.detach(60.0)
    with sqlite3.connect(path) as store:
        good = store.execute("select count(*) from rollouts where rollout_id = ?", (run.id,))
        tally.check(good.fetchone()[0] == 1, "odd", "the good run is not stored")
        sound = store.execute("pragma integrity_check").fetchone()[0]
        tally.check(sound == "ok", "odd", f"integrity: {sound}")
        off = _not_adding_up(store, live.taken, seen.events)
    store.close()
    for words in off:
        tally.add("not counted", words)
    return {"taken": live.taken, "refused": before["refused"]}


def _not_adding_up(store: sqlite3.Connection, taken: Counter[str], seen: Counter[str]) -> list[str]:
    """Return the sums of offers that were neither stored, refused, dropped nor duplicates."""
    counters = Counter(dict(store.execute("select name, value from counters").fetchall()))
    known = ("safety", "inferred")  # which nobody offered
    decisions = store.execute("select count(*) from decisions").fetchone()[0]
    rewards = store.execute("select count(*) from rewards where source not in (?, ?)", known)
    steps = [kind for kind in KINDS if kind not in (*OWN, "decision", "reward")]
    sums = {
        "decisions": (
            taken["decisions"] + taken["events decision"],
            decisions
            + _sum(counters, "duplicate_decisions", "dropped_unmade", "events_refused_decision"),
        ),
        "decisions refused": (
            taken["decisions refused"],
            _sum(counters, "options_refused", "masks_refused", "decisions_of_nothing",
                 "decisions_without_an_allowed_option", "decisions_not_recorded"),
        ),
        "rewards": (
            taken["rewards"] + taken["events reward"],
            rewards.fetchone()[0]
            + _sum(counters, "duplicate_rewards", "conflicting_rewards", "refused_rewards",
                   "rewards_without_a_run", "events_refused_reward"),
        ),
        "rewards refused": (
            taken["rewards refused"],
            _sum(counters, "rewards_refused", "rewards_without_target"),
        ),
        "events refused": (taken["events refused"], counters["events_malformed"]),
        "steps": (
            taken["adapter steps"] + _sum(taken, *(f"events {kind}" for kind in steps)),
            _sum(seen, *steps) + sum(counters[f"events_refused_{kind}"] for kind in steps),
        ),
    }  # fmt: skip
    dropped = {name: n for name, n in counters.items() if name.startswith("dropped_") and n}
    off = [
        f"{name}: {offered} offered, {accounted} accounted for"
        for name, (offered, accounted) in sums.items()
        if offered != accounted
    ]
    return [*off, f"dropped: {dropped}, {counters}"] if off else []


def _sum(counted: Counter[str], *names: str) -> int:
    return sum(counted[name] for name in names)
