"""Checks of the store: its place, its file, what stops it, and its newest rows."""

import os
import shutil
import stat
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path

from tau_live.boot.attachments import Attachment, attachments
from tau_live.boot.hosts import HostState, Standing
from tau_live.cli.doctor_mistakes import FAIL, OK, WARN, Check, mistake
from tau_live.cli.output import ago, number, seconds, since
from tau_live.cli.status import spool_text
from tau_live.core.addresses import address_in
from tau_live.core.errors import (
    SpoolOfOthersError,
    StoreBusyError,
    StoreDamagedError,
    StoreError,
    TauLiveError,
)
from tau_live.core.memory_holds import memory_holds
from tau_live.core.reasons import FOREIGN_DEFAULT, QUEUE_FULL, RERUNS, lost_events
from tau_live.core.records import RewardSource
from tau_live.core.settings import SPOOL_SUFFIX, Learner, Settings, here, spool_of
from tau_live.decisions.policies import check_policy
from tau_live.decisions.prompts import PromptHistory, is_signed, prompt_history, prompt_keys
from tau_live.learn.monitoring import monitor_figures
from tau_live.operate.alert_rules import growth_times, is_recent
from tau_live.operate.report.summary import MANY_RERUNS, deadlines, outside_range, range_advice
from tau_live.operate.status import (
    REWARDS,
    attached_processes,
    counters_of,
    now_learning,
    rewards_seen,
    rollouts_by_status,
    silent_processes,
    spool_status,
)
from tau_live.operate.stops import (
    disabled_plugins,
    ended_by,
    kill_file,
    killed_inside,
    mistaken,
    now_killed,
)
from tau_live.record.archive import MB, excess, limits_of
from tau_live.record.rewards import reward_range
from tau_live.record.trouble import advice
from tau_live.runtime.build import open_spool_of
from tau_live.store.opening import (
    OLDEST_SERVER,
    is_store,
    open_at,
    server_facts,
    why_unwritable,
)
from tau_live.store.recent import RecentDecision, RecentRows, recent_rows
from tau_live.store.records import ServerFacts
from tau_live.store.roles import Store

WAIT_S = 1.0
CHECK_S = 3.0
MOST_ODD = 5
"""How many odd rows of a table are listed."""

MOST_AHEAD_S = 1.0
"""Seconds by which the clock of a server may differ."""

LEAST_CONNECTIONS = 5

LEAST_DISK_BYTES = 200 * 1024 * 1024

LARGE_BYTES = 1_000_000_000
MOUNTS = Path("/proc/self/mountinfo")
NETWORKED = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "gpfs",
     "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs"}
)  # fmt: skip
LEAST_ROWS = 30
"""Fewer rows are not judged."""

OFTEN = 0.1
"""The share of late or refused decisions that is too high."""

MADE_UP = frozenset({RewardSource.INFERRED.value, RewardSource.DEFAULT.value})


def store_checks(file: Path, settings: Settings | None, *, now: float) -> Iterator[Check]:
    """Yield every check of a store; where it cannot be read, those that need no reading.

    Args:
        file: Its path, whether it exists or not.
        settings: The settings; ``None`` where they are wrong.
        now: Epoch seconds, UTC.
    """
    if here() is None and not file.is_absolute():
        yield mistake(
            "store-unplaced", f"{file} is a relative path, and the current folder no longer exists"
        )
        return
    try:
        file.exists()
    except OSError as error:
        problem = f"{file} cannot be accessed: {error.strerror or error}"
        advice = "run this as the agent's user, or give this user access to the folder"
        yield mistake("store-unwritable", problem)._replace(advice=advice)
        return
    yield _kill_switch(file, settings, now=now)
    yield from _file(file)
    yield from _place(file, settings)
    yield from _contents(file, settings, now=now)
    if settings is not None:
        yield from _prompts(file, settings)


def _contents(file: Path, settings: Settings | None, *, now: float) -> Iterator[Check]:
    """Yield the checks of what a store and its spool hold, as far as they can be read."""
    with ExitStack() as stack:
        store, hub_id = None, ""
        try:
            if file.exists():
                opened = stack.enter_context(closing(open_at(file, read_only=True)))
                hub_id, store = opened.id(), opened
        except TauLiveError as error:
            yield _unusable(error)
        if settings is not None:
            yield from _spool(replace(settings, store=file), hub_id=hub_id, now=now)
        if store is not None:
            try:
                yield from _inside(store, file, now=now)
            except TauLiveError as error:
                yield _unusable(error)
        yield from _attached_processes(file)
        if store is not None and settings is not None:
            with suppress(TauLiveError):  # the first check that fails reports it
                yield from _learning(store, file, settings, now=now)
            with suppress(TauLiveError):
                yield from _retention(store, settings, now=now)


def _spool(settings: Settings, *, hub_id: str, now: float) -> Iterator[Check]:
    """Yield what the spool of this host has yet to send, and whether it is the store's at all.

    Args:
        settings: Those of the store.
        hub_id: ``Store.id`` of the store; empty while it cannot be reached.
        now: Epoch seconds, UTC.
    """
    spool, path = spool_status(settings), spool_of(settings)
    if spool is None or path is None:
        return
    check = Check("spool", OK, spool_text(spool, now=now))
    try:
        open_spool_of(settings, path, hub_id=hub_id, read_only=True).close()
    except SpoolOfOthersError as error:
        check = mistake("spool-of-others", error.problem, todo=error.todo)
    except StoreError:  # one of before does not know whose it is
        pass
    yield check


def _prompts(file: Path, settings: Settings) -> Iterator[Check]:
    """Yield whether the prompts that are options of a decision can be read, and how many are."""
    keys, path = prompt_keys(settings), settings.prompts_store or file
    if not keys:
        if settings.prompts_store is not None:
            yield mistake("prompts-unused", f"no decision takes its options from {path}")
        return
    if path == file and not path.exists():
        return  # the check of the store reports it
    try:
        with closing(open_at(path, read_only=True)) as store:
            for key in keys:
                history = prompt_history(store, key)
                known = number(len(history.prompts))
                yield Check("prompts", OK, f"{known} versions of {key} in {path}")
                yield from _pools(history, key, settings)
    except TauLiveError as error:
        yield mistake("prompts-unread", str(error))


def _pools(history: PromptHistory, key: str, settings: Settings) -> Iterator[Check]:
    """Yield why the newest pool of lessons of a resource is offered to nobody, if so."""
    newest = next((prompt for prompt in history.prompts if prompt.state != "withdrawn"), None)
    if newest is None or not isinstance(newest.content, dict):
        return
    if not is_signed(newest.content, settings):
        yield mistake("pool-unsigned", f"{newest.version} of {key} has no stamp of this host's key")
    model = newest.content.get("model_id")
    for declared in settings.decisions:
        if declared.prompt_key == key and declared.model != model:
            own = declared.model or "no model"
            problem = f"{newest.version} of {key} was learned with {model}; {declared.point} "
            yield mistake(
                "pool-other-model", f"{problem}declares {own}", model=model, point=declared.point
            )


def _kill_switch(file: Path, settings: Settings | None, *, now: float) -> Check:
    """Return whether the kill switch is on; works without a store."""
    switch = kill_file(file, settings.kill_file if settings else None)
    killed = now_killed(switch)
    if killed is None:
        return Check("kill switch", OK, f"off: {switch} does not exist")
    problem = f"on since {ago(killed.at, now=now)}: {killed}"
    if mistaken(switch) is not None:
        return mistake("kill-file-wrong", problem)
    return mistake("killed", problem, ended_by='`tau-live unkill --reason "..."`')


def _file(file: Path) -> Iterator[Check]:
    folder = file.absolute().parent
    if not file.exists():
        nearest = next(parent for parent in file.absolute().parents if parent.exists())
        try:
            with tempfile.TemporaryFile(dir=nearest):  # permissions alone do not show it
                pass
        except OSError as error:
            problem = f"{file} cannot be created: {error.strerror or error}"
            advice = "set TAU_LIVE_RL_STORE to a file that can be created"
            yield mistake("store-unwritable", problem)._replace(advice=advice)
            return
        yield mistake("store-missing", f"{file} does not exist yet")
        return
    if not (os.access(file, os.R_OK | os.W_OK) and os.access(folder, os.W_OK)):
        yield mistake("store-unwritable", f"{file} cannot be written")
    for path, wanted, refused in ((file, "600", 0o077), (folder, "700", 0o022)):
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & refused:
            yield mistake(
                "store-open",
                f"other users can access {path} (mode {mode:o})",
                mode=wanted,
                path=path,
            )
    free = shutil.disk_usage(folder).free
    if free < LEAST_DISK_BYTES:
        full = mistake("disk-full", f"{free / 1e6:.0f} MB are free on its disk")
        # with less than a batch may need, the store fails now or soon
        yield full._replace(state=FAIL) if free < 4 * 1024 * 1024 else full


def _place(file: Path, settings: Settings | None) -> Iterator[Check]:
    """Yield what is wrong with the place of a store, whether it exists or not."""
    kind = file_system_of(file, MOUNTS)
    if kind in NETWORKED:
        yield mistake("store-on-network", f"{file} is on {kind}, where locks are unreliable")
    others = _other_stores(file, settings)
    if others:
        named = ", ".join(other.name for other in others[:3])
        yield mistake("stores-several", f"{len(others)} more in {file.absolute().parent}: {named}")


def file_system_of(file: Path, mounts: Path) -> str | None:
    """Return the kind of file system that a file is or will be on; ``None`` if unknown.

    Args:
        file: The file.
        mounts: The kernel's list of mounts, see ``man 5 proc``.
    """
    try:
        lines = mounts.read_text(errors="replace").splitlines()
        real = os.path.realpath(file)
    except OSError:
        return None
    best: tuple[int, str] | None = None
    for line in lines:
        head, _, rest = line.partition(" - ")
        parts, kind = head.split(" "), rest.partition(" ")[0]
        at = _unescape(parts[4]) if len(parts) > 4 else ""
        inside = real == at or real.startswith(at.rstrip("/") + "/")
        if at and inside and (best is None or len(at) >= best[0]):  # of one mount point the last
            best = (len(at), kind)
    return best[1] if best else None


def _unescape(path: str) -> str:
    """Return a path without the kernel's octal escapes of blanks."""
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path


def _other_stores(file: Path, settings: Settings | None) -> list[Path]:
    """Return the stores that lie beside one and are no spool of it, the newest first."""
    own = {file.absolute()}
    if settings is not None:
        own.add(settings.spool.absolute())
    try:
        beside = list(islice(file.absolute().parent.iterdir(), 200))
        if address_in(file) is not None:  # spools of all addresses, also those no longer used
            beside = [path for path in beside if not path.name.endswith(SPOOL_SUFFIX)]
        stores = [path for path in beside if path not in own and is_store(path)]
        return sorted(stores, key=lambda path: path.stat().st_mtime, reverse=True)
    except OSError:
        return []


def _unusable(error: TauLiveError) -> Check:
    """Return what is wrong with a store that cannot be used, and what to do."""
    if isinstance(error, StoreBusyError):
        return mistake("store-locked", str(error), advice=advice(error))
    if isinstance(error, StoreDamagedError):
        return mistake("store-damaged", str(error), advice=advice(error))
    return mistake("store-unusable", str(error), advice=advice(error))


def _inside(store: Store, file: Path, *, now: float) -> Iterator[Check]:
    """Yield the checks of an open store.

    Raises:
        TauLiveError: It cannot be read.
    """
    changes = list(store.seals.foreign_schema())
    if not changes:
        yield Check("schema", OK, f"{file}, {file.stat().st_size / 1e6:,.1f} MB")
    for change in changes:
        yield mistake("store-schema-changed", f"{change.what}: {change.detail}")
    yield from _server(server_facts(file))
    yield _gate(store, now=now)
    for hold in memory_holds(file):
        yield mistake(
            "held-in-memory",
            f"process {hold.pid} holds in memory since {ago(hold.since, now=now)}: {hold.reason}",
        )
    killed = killed_inside(store.leases)
    if killed is not None:
        yield mistake(
            "killed",
            f"on since {ago(killed.at, now=now)}: {killed}",
            ended_by=ended_by(killed.reason),
        )
    for part, pause in store.pauses.pauses().items():
        when = f"{part} has been paused since {ago(pause.at, now=now)}"
        yield mistake("paused", f"{when} by {pause.who}: {pause.reason}", part=part)
    for plugin in disabled_plugins(store.leases):
        yield mistake(
            "plugin-disabled",
            f"{plugin.plugin} is disabled in {plugin.process}: {plugin.problem}",
        )
    yield _processes(store)
    holder = now_learning(store)
    yield Check("learner", OK, f"{holder} is learning" if holder else "no update is running")
    yield _last_update(store, now=now)
    yield from _versions(store)
    yield _seals(store)
    yield _rewards_sent(store)
    yield from _drops(store, file, now=now)
    yield _integrity(store)
    yield from _odd_rows(store)
    yield _writable(file)
    for process, silence_s in silent_processes(store).items():
        yield mistake(
            "process-silent",
            f"{process} is alive but has written nothing for {number(round(silence_s))} s",
        )


def _gate(store: Store, *, now: float) -> Check:
    row = store.gate.load()
    if row.state == "pass":
        failures = ", ".join(f"{n} {kind}" for kind, n in row.streaks.items() if n)
        return Check("gate", OK, f"passes; failures in a row: {failures or 'none'}")
    return mistake(
        "gate-held", f"holds since {ago(row.since, now=now)}: {row.reason}: {row.detail}"
    )


def _processes(store: Store) -> Check:
    attached = attached_processes(store)
    if not attached:
        advice = "an agent that runs with TAU_LIVE_RL=1 is listed here"
        return Check("processes", OK, "no process is attached", advice)
    return Check("processes", OK, ", ".join(attached))


def _last_update(store: Store, *, now: float) -> Check:
    latest = store.policies.updates(limit=1)
    if not latest:
        return Check("last update", OK, "none yet")
    row = latest[0]
    when = f"#{row.update} {ago(row.at, now=now)}"
    if row.executed:
        return Check("last update", OK, f"{when}: learned")
    return mistake("update-skipped", f"{when}: skipped: {row.skipped_reason}", update=row.update)


def _versions(store: Store) -> Iterator[Check]:
    """Yield a warning for each serving version whose checkpoint is missing or damaged."""
    for point, served in sorted(store.policies.in_service().items()):
        if not served.version:
            continue
        try:
            check_policy(store.checkpoints, store.policies.version(served.version))
        except TauLiveError as error:
            yield mistake("policy-missing", f"{served.version} of '{point}': {error}")


def _seals(store: Store) -> Check:
    head = store.seals.head()
    keyed = f"with the key {head.key_id}" if head.key_id else "without a key"
    seals = f"{number(head.place)} made, the last {keyed}"
    return Check("seals", OK, seals, "`tau-live verify` detects edits")


def _rewards_sent(store: Store) -> Check:
    """Check whether rewards are sent at all, judged by the last rollouts of each point."""
    ready = {
        rollout.rollout.rollout_id: rollout
        for point in ("", *store.rewards.ready_points())
        for rollout in store.rewards.ready_rollouts(point, after=0, limit=100, newest=True)
    }
    sources = [reward.source for rollout in ready.values() for reward in rollout.rewards]
    sent = sum(source not in MADE_UP for source in sources)
    waiting = store.rewards.waiting()
    of = f"sent for the last {number(len(ready))} rollouts"
    summary = f"{number(sent)} {of}, {number(waiting)} wait for one"
    if sent or not (ready or waiting):
        return Check("rewards", OK, summary)
    is_inferred = RewardSource.INFERRED in sources
    without = (
        "only inferred ones are learned from"
        if is_inferred
        else "nothing is learned without rewards"
    )
    return mistake("rewards-never-sent", summary, without=without)


def _drops(store: Store, file: Path, *, now: float) -> Iterator[Check]:
    """Yield the recent losses of events; older ones need no action."""
    counts = counters_of(store, file)
    lost, grown = lost_events(counts), growth_times(counts, store.alerts.notes())
    recent = {name: n for name, n in lost.items() if is_recent(grown[name], now=now)}
    if not recent:
        before = f" in the last day; {number(sum(lost.values()))} before" if lost else ""
        yield Check("drops", OK, f"none{before}")
    for name, n in recent.items():
        at = grown[name]
        when = "" if at is None else f", last {since(at, now=now)}"
        dropped = mistake("events-dropped", f"{name}: {number(n)}{when}", counter=name)
        if name == QUEUE_FULL:
            advice = "raise TAU_LIVE_RL_QUEUE_LIMIT, or find out what slows the store down"
            dropped = dropped._replace(advice=advice)
        yield dropped


def _integrity(store: Store) -> Check:
    damage = store.damage(deadline=time.monotonic() + CHECK_S)
    if damage:
        advice = "`tau-live set-aside` keeps its files and starts an empty store"
        damaged = mistake("store-damaged", f"it is damaged: {damage}", advice=advice)
        return damaged._replace(check="integrity")
    if damage is None:
        return Check("integrity", OK, f"no damage found within {CHECK_S:g} s")
    return Check("integrity", OK, "every page is intact")


def _odd_rows(store: Store) -> Iterator[Check]:
    """Yield the rows that hold what tau-live never writes, the newest of each table."""
    odd = store.odd_rows(deadline=time.monotonic() + CHECK_S, most=MOST_ODD)
    for row in odd.rows:
        column = f"{row.column}: " if row.column else ""
        yield mistake("odd-row", f"{row.table} '{row.key}': {column}{row.problem}")
    for table, count in odd.counts.items():
        if count > MOST_ODD:
            yield mistake("odd-row", f"{table}: {number(count - MOST_ODD)} more")
    if not odd.rows:
        within = "" if odd.complete else f" within {CHECK_S:g} s"
        yield Check("rows", OK, f"no odd row found{within}")


def _writable(file: Path) -> Check:
    error = why_unwritable(file, wait_s=WAIT_S)
    if error is None:
        return Check("writing", OK, "it is writable")
    if isinstance(error, StoreBusyError):
        return _unusable(error)._replace(check="writing", state=WARN)
    unwritable = mistake("store-unwritable", str(error))
    return unwritable._replace(check="writing", advice=advice(error))


def access_checks(file: Path, settings: Settings) -> Iterator[Check]:
    """Yield whether a store can be reached, read and written, without a look at its rows."""
    try:
        facts = server_facts(file)
        yield from _server(facts)
        if facts is None:
            yield from _file(file)
            yield from _place(file, settings)
        if file.exists():
            with closing(open_at(file, read_only=True)) as store:
                yield Check("schema", OK, f"version {store.connection.version()}")
            if facts is None:  # else its rights say so
                yield _writable(file)
    except TauLiveError as error:
        yield _unusable(error)


def _server(facts: ServerFacts | None) -> Iterator[Check]:
    """Yield the checks of the server of a database; none of a file."""
    if facts is None:
        return
    yield Check("server", OK, f"PostgreSQL {facts.version}")
    if facts.version < OLDEST_SERVER:
        yield mistake("server-unfit", f"PostgreSQL {facts.version} is too old")
    if facts.standby:
        yield mistake("server-unfit", "it follows another server, and cannot be written")
    if facts.roles or facts.lacking:
        yield _rights(facts)
    yield Check("encryption", OK, facts.tls or "none")
    yield Check("clock", OK, f"the server's is {facts.ahead_s:+.3f} s ahead of this machine's")
    yield Check("round trip", OK, f"{1e3 * facts.round_trip_s:.1f} ms")
    yield Check("commits", OK, f"synchronous_commit = {facts.synchronous_commit}")
    yield Check("connections", OK, f"{number(facts.free_connections)} are free")
    yield from _doubts(facts)


def _doubts(facts: ServerFacts) -> Iterator[Check]:
    """Yield what works today and may hurt."""
    if facts.tls is None and not facts.local:
        advice = "let the address have sslmode=verify-full"
        yield mistake("server-doubtful", "nothing is encrypted on the way to it", advice=advice)
    if abs(facts.ahead_s) > MOST_AHEAD_S:
        found = f"its clock is {facts.ahead_s:+.1f} s ahead of this machine's"
        yield mistake("server-doubtful", found, advice="let both follow one clock")
    if facts.synchronous_commit == "off":
        found = "synchronous_commit is off: what was flushed may be lost when the server fails"
        yield mistake("server-doubtful", found, advice="set it to on for this login")
    if facts.free_connections < LEAST_CONNECTIONS:
        found = f"{number(facts.free_connections)} connections are free"
        advice = "raise max_connections, or put a pool in front"
        yield mistake("server-doubtful", found, advice=advice)


def _rights(facts: ServerFacts) -> Check:
    found = f"those of {', '.join(facts.roles) or 'none of the roles'}"
    if not facts.lacking:
        return Check("rights", OK, found)
    missing = ", ".join(facts.lacking[:MOST_ODD])
    lacking = mistake("rights-missing", f"{found}; this login may not {missing}")
    return lacking._replace(state=WARN) if facts.roles else lacking


def title(standing: Standing) -> str:
    """Return the name of a host with its version."""
    return f"{standing.host} {standing.version}" if standing.version else standing.host


def _attached_processes(store: Path) -> Iterator[Check]:
    """Yield the doors and hosts of the processes that were attached to a store.

    Of those that have ended only the first is listed.
    """
    processes = attachments(store)
    ended = [process for process in processes if not process.alive]
    for process in [*(process for process in processes if process.alive), *ended[:1]]:
        yield from _process_checks(process)


def _process_checks(attachment: Attachment) -> Iterator[Check]:
    pid = attachment.process.split(":")[1]
    process = f"process {pid}{'' if attachment.alive else ' (over)'}"
    attached = [title(host) for host in attachment.hosts if host.state is HostState.ATTACHED]
    doors = ", ".join(attachment.doors)
    yield Check("attached", OK, f"{process} by {doors}: {', '.join(attached) or 'no host'}")
    for host in attachment.hosts:
        if host.state is HostState.DISABLED:
            disabled = mistake(
                "adapter-disabled", f"{process}: {title(host)} disabled: {host.problem}"
            )
            advice = "its runs are not recorded; the host itself works"
            yield disabled._replace(check="attached", advice=advice)
        elif host.problem is not None:
            yield mistake("spans-unseen", f"{process}: {host.problem}")


def _retention(store: Store, settings: Settings, *, now: float) -> Iterator[Check]:
    """Yield how far a store is over its limits, or that it has none, and why it does not shrink."""
    limits, size = limits_of(settings), store.retention.size()
    if not limits:
        if size.used_bytes > LARGE_BYTES:
            mb = number(size.used_bytes / MB)
            yield mistake("store-grows", f"{mb} MB, and nothing is ever deleted")
        return
    surplus = excess(store.retention, limits, now=now)
    content = f"{size.rollouts:,} rollouts, {number(size.used_bytes / MB)} MB"
    if not surplus.over:
        yield Check("retention", OK, f"{content}: within its limits")
    elif surplus.kept.forgettable:
        advice = "a running process deletes it step by step, `tau-live gc` at once"
        yield Check("retention", OK, f"{content}: {surplus}", advice)
    else:
        yield mistake("retention-kept", f"{content}: {surplus}")


def _learning(store: Store, file: Path, settings: Settings, *, now: float) -> Iterator[Check]:
    """Yield the checks of a store's newest rows and counters.

    Raises:
        TauLiveError: It cannot be read.
    """
    rows = recent_rows(file, limit=2_000)
    counters = store.counters.counts()
    grown = growth_times(counters, store.alerts.notes())
    counts = {
        name: n for name, n in counters.items() if name in grown and is_recent(grown[name], now=now)
    }
    yield from _point_checks(rows.decisions, settings)
    for name, times in counts.items():
        point = name.removeprefix(FOREIGN_DEFAULT)
        if times and point != name:
            yield mistake(
                "default-unoffered",
                f"'{point}': the default was not among the options, {number(times)} times",
            )
    yield from _reward_checks(counts, rows, store, settings)
    if (runs := counts.get(RERUNS, 0)) >= MANY_RERUNS:
        yield mistake(
            "keys-repeated", f"{number(runs)} runs had the key of a run that had succeeded"
        )
    yield from _range_checks(store, settings, rows)
    ends = rollouts_by_status(store)
    if not ends["completed"] and ends["open"] >= 10:
        yield mistake("runs-never-end", f"{number(ends['open'])} have started and none has ended")
    yield from _learner_checks(store, settings)
    yield _clock(rows, now=now)


def _point_checks(decisions: Sequence[RecentDecision], settings: Settings) -> Iterator[Check]:
    points: dict[str, list[RecentDecision]] = {}
    for decision in decisions:
        points.setdefault(decision.point, []).append(decision)
    for point, rows in sorted(points.items()):
        if len(rows) < LEAST_ROWS:
            continue
        of = f"of the last {number(len(rows))}"
        if all(len(row.options) < 2 for row in rows):
            yield mistake(
                "one-option",
                f"'{point}': the last {number(len(rows))} decisions offered one option",
            )
        yield from _untried_options(point, rows, settings.exploration)
        refusals = [row.why_not for row in rows if (row.why_not or "").startswith("error: ")]
        if len(refusals) >= OFTEN * len(rows):
            for refusal, times in Counter(refusals).most_common(1):
                yield mistake("choices-refused", f"'{point}': {number(times)} {of}: {refusal}")
        late = sum(row.why_not == "deadline" for row in rows)
        if late >= OFTEN * len(rows):
            yield mistake(
                "decisions-late",
                f"'{point}': {number(late)} {of} missed the deadline",
                now_ms=settings.decide_deadline_ms,
            )


def _untried_options(
    point: str, rows: Sequence[RecentDecision], exploration: float
) -> Iterator[Check]:
    """Yield the options that should have been explored and were not.

    With ``exploration`` each is chosen at random in its share of that; where five such choices are
    expected, to see none is hardly chance (0.7 percent).
    """
    offered: Counter[str] = Counter()
    expected: dict[str, float] = {}
    ours = [row for row in rows if row.propensity is not None and len(row.options) > 1]
    for decision in ours:
        for option in {*decision.options} - {*decision.unexplored}:
            offered[option] += 1
            expected[option] = expected.get(option, 0.0) + exploration / len(decision.options)
    applied = {decision.applied for decision in ours}
    for option, times in sorted(offered.items()):
        enough = expected[option] >= 5.0 if exploration else times >= 300
        if enough and option not in applied:
            yield mistake(
                "option-untried",
                f"'{point}': {option} was offered {number(times)} times and never chosen",
            )


def _reward_checks(
    counts: Mapping[str, int], recent: RecentRows, store: Store, settings: Settings
) -> Iterator[Check]:
    for name in (
        "refused_rewards", "rewards_not_declared", "rewards_refused", "rewards_refused_from_inside",
        "rewards_refused_source", "rewards_without_a_run", "rewards_without_target",
    ):  # fmt: skip
        if counts.get(name):
            yield mistake("rewards-refused", f"{name}: {number(counts[name])}", counter=name)
    if beyond := counts.get("left_out_reward_out_of_range"):
        yield mistake(
            "rewards-out-of-range",
            f"{number(beyond)} rollouts were left out: a reward was outside its range",
        )
    if missed := counts.get("left_out_reward_missing"):
        lost, of = store.rewards.newest_missing(of=REWARDS)
        when = f"before the deadline, {lost} of the newest {of}"
        yield mistake(
            "rewards-missed",
            f"{number(missed)} rollouts got none {when}",
            deadlines=deadlines(settings),
        )
    sent = Counter(reward.source for reward in recent.rewards if reward.source not in MADE_UP)
    total = sent.total()
    for source, times in sent.most_common(1):
        is_somebody = ":" in source  # of many, such as `user:anna`
        if total >= LEAST_ROWS and times >= 0.9 * total and is_somebody:
            yield mistake(
                "rewards-of-one", f"{source} gave {number(times)} of the last {number(total)}"
            )


def _range_checks(store: Store, settings: Settings, recent: RecentRows) -> Iterator[Check]:
    """Yield whether rewards have a range, and the points where some are far beyond the others."""
    for point, monitor in store.monitors.monitors().items():
        if outliers := monitor_figures(monitor).outliers:
            yield mistake(
                "rewards-beyond",
                f"'{point}': {number(outliers)} of the newest are far beyond the others, and are "
                "clipped, large losses too",
            )
    seen = rewards_seen(store, settings)
    how = range_advice(seen, settings)
    if outside := outside_range(seen, settings):
        advice = f"if they are right: {how}; if not, find their source"
        yield mistake("rewards-out-of-range", outside)._replace(advice=advice)
    if len(seen.names) > 1 and all(reward.cost for reward in settings.rewards):
        yield mistake(
            "rewards-added-up",
            f"{', '.join(seen.names)} are added up, since none is declared, and the first ends the "
            "wait: what arrives after the next update is missed",
        )
    if recent.rewards and reward_range(settings) is None:
        yield Check(
            "rewards",
            OK,
            "no range is declared: outliers are clipped to the range of the others",
            f"to prove a difference, declare it: {how}",
        )


def _learner_checks(store: Store, settings: Settings) -> Iterator[Check]:
    is_off = settings.learner is Learner.OFF
    if now_learning(store) or (not is_off and attached_processes(store)):
        return
    enough = 2 * settings.update_interval
    for point in store.rewards.ready_points():
        after = store.policies.watermark(point)
        if store.rewards.ready_count(point, after=after, limit=enough) >= enough:
            waits = mistake(
                "nobody-learns",
                f"'{point}': {number(enough)} rollouts or more wait to be learned from",
            )
            advice = "run `tau-live learn`, or set TAU_LIVE_RL_LEARNER=thread"
            yield waits._replace(advice=advice) if is_off else waits


def _clock(recent: RecentRows, *, now: float) -> Check:
    times = [row.at for row in recent.decisions] + [row.at for row in recent.rewards]
    newest = max(times, default=now)
    if newest - now < 300.0:
        return Check("clock", OK, "no row is dated in the future")
    return mistake(
        "clock-ahead", f"the newest row is {seconds(newest - now)} ahead of this machine's clock"
    )
