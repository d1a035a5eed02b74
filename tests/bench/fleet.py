"""A store in PostgreSQL beside one in a file: rates, what a rollout costs, and questions by size.

Rates are those of 1, 8 and 32 writing processes, each of which stores batches of 64 rollouts of one
decision, three spans and one reward, as a writer does. The server, its clients and the file share
the same processors; the file's commits survive the death of a process, the server's that of the
machine.
"""

import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import NamedTuple

import click
from msgspec.structs import replace

from tau_live.core.records import (
    AttemptStatus,
    RolloutQuery,
    RolloutStatus,
    Trial,
    WholeRollout,
)
from tau_live.store.opening import open_at
from tau_live.store.retention import OLDEST, Place
from tau_live.store.roles import Store
from tests.bench.items import Found, print_figures
from tests.bench.timing import LEAST_ROUNDS, machine
from tests.contracts.making import attempt, decision, reward, rollout, span, update
from tests.postgres import server

BATCH, SPANS, SECONDS = 64, 3, 3.0
GOALS = {1: 0.5, 8: 1.5, 32: 1.2}
"""The share of the file's rate to reach, by the number of clients."""

LONGEST_GOAL = 0.5

BATCHES = 60
"""How many batches a slope is of."""

SMALL, LARGE = 10_000, 1_000_000
"""How many rollouts a store has when it is asked."""

GROWTH_GOAL = 2.0

KEPT, STEP = 100_000, 200
"""How many rollouts a database has that forgets as many as it stores, and by how many at a time."""


class Rate(NamedTuple):
    """What writing processes reached together.

    Attributes:
        rollouts_s: Rollouts a second.
        longest_s: The longest batch, in seconds.
    """

    rollouts_s: float
    longest_s: float


def whole(rollout_id: str) -> WholeRollout:
    """Return a rollout that is over."""
    return WholeRollout(
        rollout=rollout(rollout_id),
        attempt=attempt(rollout_id),
        decisions=[replace(decision(1, rollout_id), arm="learner", share=0.5)],
        rewards=[reward(1.0, rollout_id)],
    )


def write(
    number: int, address: str, seconds: float, start: Barrier, written: "Queue[tuple[int, float]]"
) -> None:
    """Store batches for some seconds, once every process has stored two."""
    store, count, longest_s = open_at(address, busy_timeout_s=60.0), 0, 0.0
    for warm in range(2):
        store_batch(store, [f"warm-{number}-{warm}-{place}" for place in range(BATCH)])
    start.wait(120.0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        store_batch(store, [f"live-{number}-{count + place}" for place in range(BATCH)])
        longest_s = max(longest_s, time.monotonic() - began)
        count += BATCH
    written.put((count, longest_s))
    store.close()


def store_batch(store: Store, ids: list[str], *, at: float = 5.0) -> None:
    """Store rollouts that are over, since a time, and ready to be learned from."""
    with store.begin(), store.batch(ids) as batch:
        for id_ in ids:
            batch.add_whole(whole(id_))
            batch.add_spans([span(f"s-{place}", id_, ended_at=3.0) for place in range(SPANS)])
            batch.set_status(id_, RolloutStatus.SUCCEEDED, at=at)
            batch.mark_ready(id_, total_reward=1.0)


def rate(address: str, clients: int, seconds: float) -> Rate:
    """Let so many processes write to a new store."""
    spawn = multiprocessing.get_context("spawn")
    start, written = spawn.Barrier(clients), spawn.Queue()
    processes = [
        spawn.Process(target=write, args=(number, address, seconds, start, written))
        for number in range(clients)
    ]
    for process in processes:
        process.start()
    found = [written.get(timeout=300.0) for _ in processes]
    for process in processes:
        process.join()
    return Rate(sum(count for count, _ in found) / seconds, max(longest for _, longest in found))


def measure(
    rounds: int,
    *,
    seconds: float = SECONDS,
    clients: tuple[int, ...] = (*GOALS,),
    advance: Callable[[], None] = lambda: None,
) -> list[Found]:
    """Measure both in turn, each round in new stores."""
    ratios: dict[int, list[float]] = {count: [] for count in clients}
    longest: list[float] = []
    rates: dict[int, list[float]] = {count: [] for count in clients}
    for _ in range(rounds):
        for count in clients:
            with tempfile.TemporaryDirectory(prefix="tau-live-bench-") as folder:
                file = rate(f"sqlite:{Path(folder) / 'store.sqlite'}", count, seconds)
            database = rate(server().new_database(), count, seconds)
            ratios[count].append(database.rollouts_s / file.rollouts_s)
            rates[count].append(database.rollouts_s)
            if count == max(clients):
                longest.append(database.longest_s / file.longest_s)
            advance()
    return [
        *(
            Found(
                f"{count} clients: rollouts a second, share of the file's "
                f"({median(rates[count]):,.0f} a second)",
                ratios[count], GOALS.get(count, 1.0), at_least=True,
            )
            for count in clients
        ),
        Found(f"{max(clients)} clients: longest batch, share of the file's", longest, LONGEST_GOAL),
    ]  # fmt: skip


class Slope(NamedTuple):
    """What storing one rollout costs.

    Attributes:
        client_us: Microseconds of the client's processor.
        server_us: Microseconds of the server's; 0 for a file.
        log_bytes: Bytes of the server's log; 0 for a file.
        disk_bytes: Bytes on the disk.
    """

    client_us: float
    server_us: float
    log_bytes: float
    disk_bytes: float


def store_live(store: Store, ids: list[str]) -> None:
    """Store rollouts that begin in one batch, end in the next, and earn in a third."""
    with store.begin(), store.batch(ids) as batch:
        for id_ in ids:
            batch.begin_rollout(rollout(id_))
            batch.begin_attempt(attempt(id_))
        batch.add_spans([span("s-0", id_) for id_ in ids])
    with store.begin(), store.batch(ids) as batch:
        ended = [span(f"s-{place}", id_, ended_at=3.0) for id_ in ids for place in range(SPANS)]
        batch.add_spans(ended)
        for id_ in ids:
            batch.add_decision(replace(decision(1, id_), arm="learner", share=0.5))
            batch.set_attempt_status(id_, 1, AttemptStatus.SUCCEEDED, at=4.0)
            batch.set_status(id_, RolloutStatus.SUCCEEDED, at=5.0)
            batch.await_reward(id_, until=1e12)
    with store.begin(), store.batch(ids) as batch:
        for id_ in ids:
            batch.add_reward(reward(1.0, id_))
            batch.mark_ready(id_, total_reward=1.0)


SHAPES: Mapping[str, Callable[[Store, list[str]], None]] = {
    "that are over": store_batch,
    "as they live": store_live,
}
"""How rollouts are stored: whole, as from a spool or a recording, or in three batches."""


def slope(address: str, write_some: Callable[[Store, list[str]], None]) -> Slope:
    """Return what a rollout costs in a new store."""
    store, count = open_at(address, busy_timeout_s=60.0), BATCHES * BATCH
    write_some(store, [f"warm-{place}" for place in range(BATCH)])
    before, began = _server_state(address), time.process_time()
    for number in range(BATCHES):
        write_some(store, [f"run-{number}-{place}" for place in range(BATCH)])
    took, after = time.process_time() - began, _server_state(address)
    store.close()
    used = [(now - then) / count for then, now in zip(before, after, strict=True)]
    return Slope(1e6 * took / count, 1e6 * used[0], *used[1:])


def _server_state(address: str) -> tuple[float, float, float]:
    """Return the server's processor seconds, and the bytes of its log and of the store."""
    if address.startswith("sqlite:"):
        return 0.0, 0.0, float(Path(address.removeprefix("sqlite:")).stat().st_size)
    import psycopg

    own = server()
    lead = (own.data / "postmaster.pid").read_text().split()[0]
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if lead in {process.name, fields[1]}:
            ticks += int(fields[11]) + int(fields[12])
        if lead == process.name:  # and of those that have ended
            ticks += int(fields[13]) + int(fields[14])
    with psycopg.connect(address, autocommit=True) as connection:
        row = connection.execute(
            "select pg_current_wal_lsn() - '0/0', pg_database_size(current_database())"
        ).fetchone()
    assert row is not None
    return ticks / os.sysconf("SC_CLK_TCK"), float(row[0]), float(row[1])


def slopes(
    rounds: int, *, advance: Callable[[], None] = lambda: None
) -> Mapping[str, Sequence[tuple[Slope, Slope]]]:
    """Return what a rollout costs in a file and in the database, by its shape, in each round."""
    found: dict[str, list[tuple[Slope, Slope]]] = {shape: [] for shape in SHAPES}
    for _ in range(rounds):
        for shape, write_some in SHAPES.items():
            with tempfile.TemporaryDirectory(prefix="tau-live-bench-") as folder:
                file = slope(f"sqlite:{Path(folder) / 'store.sqlite'}", write_some)
            found[shape].append((file, slope(server().new_database(), write_some)))
        advance()
    return found


def figures_of(found: Mapping[str, Sequence[tuple[Slope, Slope]]]) -> list[Found]:
    """Return the figures of slopes, the server's beside the file's."""
    return [
        Found(f"{shape}: {what}", [part(own) / base(file) for file, own in pairs], goal)
        for shape, pairs in found.items()
        for what, part, base, goal in SHARES
    ]


SHARES: Sequence[tuple[str, Callable[[Slope], float], Callable[[Slope], float], float]] = (
    (
        "server's processor time, share of the client's with a file",
        attrgetter("server_us"),
        attrgetter("client_us"),
        0.5,
    ),
    (
        "client's processor time, share of that with a file",
        attrgetter("client_us"),
        attrgetter("client_us"),
        1.0,
    ),
    (
        "bytes on the disk, share of the file's",
        attrgetter("disk_bytes"),
        attrgetter("disk_bytes"),
        1.0,
    ),
)
"""What is compared: a slope of the database's, and of the file's, and what to reach."""


def sizing(found: Mapping[str, Sequence[tuple[Slope, Slope]]]) -> dict[str, dict[str, float]]:
    """Return the median slopes of the database, by shape."""
    return {
        shape: {
            name: round(median(getattr(own, name) for _, own in pairs), 1) for name in Slope._fields
        }
        for shape, pairs in found.items()
    }


def grow(address: str, size: int) -> None:
    """Copy the rollouts of a store until it has so many."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("set session_replication_role = replica")  # counts come at the end
        row = connection.execute("select count(*) from rollouts").fetchone()
        assert row is not None
        for number in range(1, size // row[0]):
            for table, shifted in SHIFTED.items():
                columns = [
                    name
                    for (name,) in connection.execute(
                        "select column_name from information_schema.columns where "
                        "table_schema = 'public' and table_name = %s and is_generated = 'NEVER'",
                        (table,),
                    )
                ]
                values = [
                    f"'{number}-' || rollout_id" if name == "rollout_id"
                    else f"{name} + {number * shifted[name] * row[0]}" if name in shifted
                    else name
                    for name in columns
                ]  # fmt: skip
                owned = "rollout_seq" in shifted
                where = f"rollout_seq <= {row[0]}" if owned else "rollout_id like 'run-%'"
                connection.execute(
                    f"insert into {table} ({', '.join(columns)}) overriding system value "
                    f"select {', '.join(values)} from {table} where {where}"
                )
        connection.execute(
            "update sequences set value = (select max(ready_seq) from rollouts) "
            "where name = 'ready'"
        )
        connection.execute("delete from status_shards")
        connection.execute(
            "insert into status_shards select status, 0, count(*) from rollouts group by status"
        )
        connection.execute("analyze")


SHIFTED: Mapping[str, Mapping[str, int]] = {
    "ids": {},
    "rollouts": {"seq": 1, "ready_seq": 1},
    "attempts": {"rollout_seq": 1},
    "recorded_spans": {"rollout_seq": 1, "seq": SPANS},
    "decisions": {"rollout_seq": 1, "seq": 1},
    "arms": {"rollout_seq": 1, "place": 1},
    "ready_points": {"rollout_seq": 1, "ready_seq": 1},
    "rewards": {"seq": 1},
}
"""The numbers in a copied row that move on, by as many rows as a rollout has there."""


def ask(store: Store, rounds: int) -> dict[str, list[float]]:
    """Return the seconds that each question takes."""
    last = store.rewards.became_ready()
    questions: Mapping[str, Callable[[], object]] = {
        "the next 64 to learn from": lambda: store.rewards.ready_rollouts(
            "model", after=last - 1_000, limit=BATCH
        ),
        "how many are ready": lambda: store.rewards.ready_count("model", after=last - 1_000),
        "a window of 256": lambda: store.rewards.ready_rollouts(
            "model", after=0, limit=256, newest=True
        ),
        "one rollout by its id": lambda: store.rollouts.rollout("run-50-7"),
        "its spans": lambda: store.rollouts.spans("run-50-7"),
        "counts by status": store.rollouts.counts_by_status,
        "the newest 20 rollouts": lambda: store.rollouts.query(
            RolloutQuery(limit=20, descending=True)
        ),
    }
    took: dict[str, list[float]] = {name: [] for name in questions}
    for number in range(rounds + 1):
        for name, question in questions.items():
            began = time.perf_counter()
            question()
            if number:  # the first time plans are made
                took[name].append(time.perf_counter() - began)
    return took


def growth(rounds: int, *, small: int = SMALL, large: int = LARGE) -> list[Found]:
    """Measure questions to a small and to a large store, beside each other."""
    addresses = [server().new_database() for _ in range(2)]
    stores = []
    for address, size in zip(addresses, (small, large), strict=True):
        store = open_at(address, busy_timeout_s=60.0)
        stores.append(store)
        for number in range(small // 100):
            store_batch(store, [f"run-{number}-{place}" for place in range(100)])
        grow(address, size)
    took: list[dict[str, list[float]]] = [{}, {}]
    for _ in range(rounds):
        for before, store in zip(took, stores, strict=True):
            for name, seconds in ask(store, 3).items():
                before.setdefault(name, []).append(median(seconds))
    few, many = (sum(store.rollouts.counts_by_status().values()) for store in stores)
    for store in stores:
        store.close()
    return [
        Found(
            f"{name}: with {many:,} rollouts, share of {few:,} ({1e3 * median(own):.2f} ms)",
            [after / before for before, after in zip(took[0][name], own, strict=True)],
            GROWTH_GOAL,
        )
        for name, own in took[1].items()
    ]


def _tidy(address: str) -> None:
    """Let the server do what it does by itself, now and then."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("vacuum (analyze)")


def forgetting(
    rounds: int, *, kept: int = KEPT, advance: Callable[[], None] = lambda: None
) -> list[Found]:
    """Store and forget a fifth of a database in turn, in the steps of ``tau-live gc``."""
    address, turn = server().new_database(), kept // 5
    store = open_at(address, busy_timeout_s=60.0)
    stored_us, forgotten_us, sizes = [], [], []
    for number in range(rounds + 5):
        states = [_server_state(address)]
        for first in range(0, turn, BATCH):
            ids = [f"run-{number}-{place}" for place in range(first, min(first + BATCH, turn))]
            store_batch(store, ids, at=number * turn + first)
        states.append(_server_state(address))
        if number < 5:
            _tidy(address)
            continue
        store.policies.add_update(update(store.rewards.became_ready()), None)
        store.trials.save(Trial(point="model", watermark=turn * (number + 1), revision=number - 4))
        place: Place | None = OLDEST
        for first in range(0, turn, STEP):
            assert place is not None
            limit = min(STEP, turn - first)
            place = store.retention.sweep(before=1e12, limit=limit, after=place).place
        _tidy(address)
        states.append(_server_state(address))
        seconds = [state[0] for state in states]
        stored_us.append(1e6 * (seconds[1] - seconds[0]) / turn)
        forgotten_us.append(1e6 * (seconds[2] - seconds[1]) / turn)
        sizes.append(states[2][2])
        assert store.retention.size().rollouts == kept
        advance()
    store.close()
    return [
        Found(
            f"server's processor time to forget one of {kept:,} rollouts, share of that to store "
            f"it ({median(forgotten_us):.0f} of {median(stored_us):.0f} us)",
            [gone / came for gone, came in zip(forgotten_us, stored_us, strict=True)],
            1.0,
        ),
        Found(
            "bytes on the disk after a turn, share of those after the first",
            [size / sizes[0] for size in sizes[1:]],
            1.1,
        ),
    ]


@click.command(name="fleet", help="A store in PostgreSQL beside one in a file")
@click.option("--rounds", default=LEAST_ROUNDS, show_default=True, type=click.IntRange(min=1))
@click.option(
    "--what",
    type=click.Choice(["rates", "slopes", "growth", "forgetting"]),
    default="rates",
    show_default=True,
)
@click.option("--write", type=click.Path(path_type=Path), help="Write the slopes here, as JSON.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object.")
def main(rounds: int, what: str, write: Path | None, as_json: bool) -> None:
    """Measure, and print a table."""
    if what == "slopes":
        found = slopes(rounds)
        figures = figures_of(found)
        if write is not None:
            content = {"slopes": sizing(found), "rounds": rounds, **machine()}
            write.write_text(json.dumps(content, indent=2) + "\n")
    else:
        measured: Mapping[str, Callable[[int], list[Found]]] = {
            "rates": measure, "growth": growth, "forgetting": forgetting,
        }  # fmt: skip
        figures = measured[what](rounds)
    print_figures("fleet", "A store in PostgreSQL", figures, as_json=as_json)


if __name__ == "__main__":
    main()
