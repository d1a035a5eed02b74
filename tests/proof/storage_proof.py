"""What happens to a host and to its data when something happens to the store's file."""

import itertools
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.proof import storage_happenings as on
from tests.proof.figures import Figure, Progress, Tier
from tests.proof.storage_cases import Outcome, can_mount, flipped, zeroed

PROCESSES = {Tier.QUICK: 6, Tier.LONG: 3}
"""At once: a case mostly waits, and 60 s of a lock would end no test."""

LOCKED_S = {Tier.QUICK: (0.1, 5.0), Tier.LONG: (0.1, 5.0, 60.0)}
SLOW_S = {Tier.QUICK: (0.05, 0.5), Tier.LONG: (0.05, 0.5, 5.0)}
DAMAGES = 50
"""For each file and kind of damage, in the long tier."""


def prove(tier: Tier, progress: Progress) -> Iterator[Figure]:
    """Let everything happen that can be made to happen here."""
    with tempfile.TemporaryDirectory() as folder:
        with ThreadPoolExecutor(1) as beside:
            slow_runs = beside.submit(_slow, Path(folder), tier)
            outcomes = _run_cases(Path(folder), tier, progress)
            slow = slow_runs.result()
    names = {outcome.name for outcome in outcomes}
    for outcome in outcomes:
        is_good = outcome.reported and outcome.recovered
        if not is_good or outcome.raised or outcome.lost or outcome.deleted:
            print(outcome, file=sys.stderr)
    yield Figure(1, "things that happened to a store", len(outcomes), at_least=15)
    yield Figure(1, "different ones", len(names), at_least=15)
    yield Figure(1, "exceptions that reached the host", _sum(outcomes, "raised"), at_most=0)
    yield Figure(2, "answers that were not among the options", _sum(outcomes, "strange"), at_most=0)
    yield Figure(1, "longest run meanwhile, ms of the host's thread",
                 max(outcome.slowest_ms for outcome in outcomes), at_most=50)  # fmt: skip
    silent = sum(not outcome.reported for outcome in outcomes)
    yield Figure(1, "cases that nothing reported", silent, at_most=0)
    yield Figure(1, "most often that trouble was logged before it was over",
                 max(outcome.repeats for outcome in outcomes), at_most=1)  # fmt: skip
    kept = [outcome for outcome in outcomes if outcome.acknowledged]
    yield Figure(3, "acknowledged runs, where the file survived", _sum(kept, "acknowledged"),
                 at_least=100)  # fmt: skip
    yield Figure(3, "of these, lost", _sum(kept, "lost"), at_most=0)
    yield Figure(4, "files deleted", _sum(outcomes, "deleted"), at_most=0)
    stuck = sum(not outcome.recovered for outcome in outcomes)
    yield Figure(1, "cases after which it did not go on", stuck, at_most=0)
    passing = [outcome for outcome in outcomes if outcome.by_itself]
    yield Figure(1, "cases over by themselves with their cause", len(passing), at_least=7)
    yield Figure(1, "longest time from the end of the cause to a gate that passes, s",
                 max(outcome.recovery_s for outcome in passing), at_most=10)  # fmt: skip
    for outcome in outcomes:
        if outcome.name.startswith("locked"):
            share = outcome.sources.get("policy", 0) / max(1, sum(outcome.sources.values()))
            yield Figure(2, f"share of decisions that the policy made: {outcome.name}", share,
                         at_least=1)  # fmt: skip
    for seconds, took in slow:
        slower = f"with each sync {seconds * 1e3:g} ms slower"
        p95 = took[int(0.95 * len(took))]  # of 200, and the machine has more to do
        yield Figure(1, f"a run {slower}, p95 in ms of the host's time", p95,
                     at_most=5 if tier is Tier.LONG else None)  # fmt: skip
        waits = sum(ms >= seconds * 1e3 for ms in took)
        yield Figure(1, f"runs that took as long as a sync, {slower}", waits,
                     at_most=len(took) // 100)  # fmt: skip


def _slow(place: Path, tier: Tier) -> list[tuple[float, list[float]]]:
    return [
        (seconds, on.slow_disk(place / f"slow-{seconds}" / "store.sqlite", seconds))
        for seconds in SLOW_S[tier]
    ]


def _run_cases(place: Path, tier: Tier, progress: Progress) -> list[Outcome]:
    cases = _cases(place, tier)
    outcomes: list[Outcome] = []
    lock = threading.Lock()

    def happen(number: int) -> None:
        folder = place / f"{number}"
        folder.mkdir()
        outcome = cases[number](folder)
        with lock:
            outcomes.append(outcome)
            progress(len(outcomes), len(cases))

    with ThreadPoolExecutor(PROCESSES[tier]) as pool:
        for done in [pool.submit(happen, number) for number in range(len(cases))]:
            done.result()
    return sorted(outcomes, key=lambda outcome: outcome.name)


def _cases(place: Path, tier: Tier) -> Sequence[on.Happening]:
    base = on.killed_store(place / "killed")
    cases = [on.locked_for(seconds) for seconds in reversed(LOCKED_S[tier])]
    cases += [
        on.under_way("removed", on.removed),
        on.under_way("its file alone removed", Path.unlink),
        on.under_way("replaced by another store", on.replaced_by_another),
        on.under_way("replaced by garbage", on.replaced_by_garbage),
        on.under_way("overwritten with garbage", on.overwritten),
        on.under_way("cut in half", on.cut_in_half),
        on.under_way("emptied", on.emptied),
        on.at_start("a directory in its place", on.a_directory),
        on.at_start("a newer schema", on.a_newer_schema),
        on.no_home,
    ]
    if can_mount(place):
        cases += [on.full_disk, on.full_at_start, on.read_only_mount]
    else:
        cases.append(on.no_file_may_grow)
    kinds = [("", zeroed), ("-wal", flipped), ("", flipped), ("-wal", zeroed)]
    if tier is Tier.QUICK:
        return [*cases, *(on.damaged(base, end, damage, 0) for end, damage in kinds[:2])]
    damages = itertools.product(range(DAMAGES), kinds)
    return [
        *cases,
        on.no_file_may_grow,
        *(on.damaged(base, end, damage, seed) for seed, (end, damage) in damages),
    ]


def _sum(outcomes: Sequence[Outcome], name: str) -> int:
    return sum(int(getattr(outcome, name)) for outcome in outcomes)
