"""All checks of `tau-live doctor`; each reports what it found and what to do."""

import os
import platform
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

import tau_live
from tau_live.alerts.growing import grew, lately
from tau_live.builtin import load_plugins
from tau_live.cli.doctor_checks.check import FAIL, OK, WARN, Check
from tau_live.cli.doctor_checks.environment import environment_checks, source_checks
from tau_live.cli.doctor_checks.hosts import attached_checks, autostart_check, host_checks
from tau_live.cli.doctor_checks.learning import acting_checks, learning_checks
from tau_live.cli.doctor_checks.places import place_checks
from tau_live.cli.doctor_checks.retention import retention_checks
from tau_live.cli.doctor_checks.stops import (
    access_check,
    inside_checks,
    kill_check,
    memory_hold_checks,
    pause_checks,
    plugin_checks,
)
from tau_live.cli.doctor_checks.stores import schema_checks, store_checks, unusable
from tau_live.cli.text import ago, number, since
from tau_live.errors import SettingsError, TauLiveError
from tau_live.plugins import MUST_SEE
from tau_live.policies.files import check_policy, checkpoint_folder
from tau_live.reasons import QUEUE_FULL, lost_events
from tau_live.rollouts import RewardSource
from tau_live.settings import Settings, switched_on
from tau_live.settings.places import here
from tau_live.status import attached_processes, counted, now_learning
from tau_live.store.roles import Store
from tau_live.store.sqlite import SqliteStore
from tau_live.switch import KILL, SWITCH, killed_by

NEEDS = ("click", "msgspec", "numpy", "pluggy", "rich", "sqlite-utils", "structlog", "wrapt")
OLDEST_SQLITE = (3, 37, 0)
"""The first with strict tables."""

LEAST_DISK_BYTES = 200 * 1024 * 1024
FULL_DISK_BYTES = 4 * 1024 * 1024
"""With less than a batch may need, the store fails now or soon."""

LOOKED_AT = 100


def checks(environ: Mapping[str, str], path: Path | None, *, now: float) -> Iterator[Check]:
    """Yield every check; one that fails does not keep the others from being made.

    Args:
        environ: The environment.
        path: What ``--store`` says.
        now: Epoch seconds, UTC.
    """
    yield Check("python", OK, f"{platform.python_version()} on {platform.system()}")
    yield _packages()
    yield _sqlite()
    yield from environment_checks(environ)
    yield from _switch(environ)
    yield from source_checks()
    yield autostart_check()
    try:
        loaded = Settings.from_env(environ, directory=here())
    except SettingsError as error:
        advice = "fix it; `tau-live config` lists all settings"
        yield Check("settings", FAIL, str(error), advice, "setting-wrong")
        settings = None
    else:
        settings = loaded.settings
        of_switch = switched_on(environ).warnings
        doubts = [one for one in loaded.doubts() if one not in of_switch]
        for warning in doubts:
            advice = "fix it; it has no effect now or will lose it soon"
            yield Check("settings", WARN, warning, advice, "setting-doubtful")
        if not doubts:
            given = sum(source != "default" for source in loaded.sources.values())
            yield Check("settings", OK, f"{given} set, the others at their defaults")
        yield access_check(loaded.settings, environ)
        yield from acting_checks(loaded.settings)
        yield from _plugins(loaded.settings)
        yield from host_checks(loaded.settings)
    file = path or (settings.store if settings else None)
    if file is not None:
        yield from _of_store(file, settings, now=now)


def _of_store(file: Path, settings: Settings | None, *, now: float) -> Iterator[Check]:
    if here() is None and not file.is_absolute():
        found = f"{file} is a relative path, and the current folder no longer exists"
        advice = f"set {SWITCH}_STORE to an absolute path"
        yield Check("store", FAIL, found, advice, "store-unplaced")
        return
    try:
        file.exists()
    except OSError as error:
        found = f"{file} cannot be accessed: {error.strerror or error}"
        advice = "run this as the agent's user, or give this user access to the folder"
        yield Check("store", FAIL, found, advice, "store-unwritable")
        return
    yield kill_check(file, settings, now=now)
    yield from _file(file)
    yield from place_checks(file)
    yield from _inside(file, now=now)
    yield from attached_checks(file)
    if settings is not None:
        yield from learning_checks(file, settings, now=now)
        yield from retention_checks(file, settings, now=now)


def _packages() -> Check:
    found, missing = [f"tau-live {tau_live.__version__}"], []
    for name in NEEDS:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        said = f"missing: {', '.join(missing)}"
        advice = f"pip install {' '.join(missing)}"
        return Check("packages", FAIL, said, advice, "packages-missing")
    return Check("packages", OK, ", ".join(found))


def _sqlite() -> Check:
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        advice = f"use a Python with at least {wanted}"
        return Check("sqlite", FAIL, sqlite3.sqlite_version, advice, "sqlite-old")
    return Check("sqlite", OK, sqlite3.sqlite_version)


def _switch(environ: Mapping[str, str]) -> Iterator[Check]:
    switch = switched_on(environ)
    killed = killed_by(environ)
    for warning in switch.warnings:
        if warning == killed:
            yield Check("switch", WARN, warning, f"unset {KILL}", "killed")
        else:
            yield Check("switch", WARN, warning, f"set {SWITCH}=1 or unset it", "switch-misspelt")
    if switch.on:
        yield Check("switch", OK, "on in this shell")
    elif not switch.warnings:
        advice = f"set {SWITCH}=1 where your agent runs; this shell does not need it"
        yield Check("switch", WARN, "off in this shell", advice, "switch-off")


def _plugins(settings: Settings) -> Iterator[Check]:
    command = settings.alert_command
    if command and shutil.which(command[0]) is None:
        found = f"alerts go to {command[0]!r}, which is missing or not executable"
        advice = "fix TAU_LIVE_RL_ALERT_COMMAND, then run `tau-live alerts test`"
        yield Check("alerts", WARN, found, advice, "alert-command-missing")
    reports = load_plugins(settings).report()
    for report in reports:
        if report.problem or report.disabled:
            found = f"{report.name}: {report.problem or 'disabled after failing'}"
            advice = f"fix it, or name it in {SWITCH}_PLUGINS_OFF"
            if MUST_SEE.isdisjoint(report.hooks):
                yield Check("plugins", WARN, found, advice, "plugin-broken")
            else:
                found += "; it redacts, so no text is kept and the host makes its own choices"
                yield Check("plugins", FAIL, found, advice, "plugin-broken")
    well = [f"{one.name} ({', '.join(one.hooks)})" for one in reports if not one.problem]
    yield Check("plugins", OK, ", ".join(well) or "none")


def _file(file: Path) -> Iterator[Check]:
    if not file.exists():
        there = next(folder for folder in file.absolute().parents if folder.exists())
        try:
            with tempfile.TemporaryFile(dir=there):  # permissions alone do not tell
                pass
        except OSError as error:
            found = f"{file} cannot be created: {error.strerror or error}"
            advice = f"set {SWITCH}_STORE to a file that can be created"
            yield Check("store", FAIL, found, advice, "store-unwritable")
            return
        advice = f"run your agent with {SWITCH}=1, or `tau-live demo`"
        yield Check("store", WARN, f"{file} does not exist yet", advice, "store-missing")
        return
    writable = os.access(file, os.R_OK | os.W_OK) and os.access(file.absolute().parent, os.W_OK)
    if not writable:
        found = f"{file} cannot be written"
        yield Check("store", FAIL, found, "make this user its owner", "store-unwritable")
    for what in (file, file.absolute().parent):
        mode = stat.S_IMODE(what.stat().st_mode)
        if mode & 0o077 and (what == file or mode & 0o022):
            wanted = "600" if what == file else "700"
            found = f"other users can access {what} (mode {mode:o})"
            yield Check("permissions", WARN, found, f"chmod {wanted} {what}", "store-open")
    free = shutil.disk_usage(file.absolute().parent).free
    if free < LEAST_DISK_BYTES:
        found = f"{free / 1e6:.0f} MB are free on its disk"
        advice = "free disk space, or run `tau-live gc --older-than 30d`"
        if free < FULL_DISK_BYTES:
            yield Check("disk", FAIL, found, advice, "disk-full")
        else:
            yield Check("disk", WARN, found, advice, "disk-full")


def _inside(file: Path, *, now: float) -> Iterator[Check]:
    if not file.exists():
        return
    try:
        store = SqliteStore.open(file, read_only=True)
    except TauLiveError as error:
        yield unusable(error)
        return
    try:
        yield from schema_checks(store, file)
        yield _gate(store, now=now)
        yield from memory_hold_checks(file, now=now)
        yield from inside_checks(store, now=now)
        yield from pause_checks(store, now=now)
        yield from plugin_checks(store, now=now)
        yield _processes(store, now=now)
        yield _learner(store, now=now)
        yield _last_update(store, now=now)
        yield from _versions(store, checkpoint_folder(Settings(store=file)))
        yield _seals(store)
        yield _rewards(store)
        yield from _drops(store, file, now=now)
        yield from store_checks(file, now=now)
    except TauLiveError as error:
        yield unusable(error)
    finally:
        store.close()


def _gate(store: Store, *, now: float) -> Check:
    row = store.gate.load()
    if row.state == "pass":
        failures = ", ".join(f"{n} {kind}" for kind, n in row.streaks.items() if n)
        return Check("gate", OK, f"passes; failures in a row: {failures or 'none'}")
    found = f"holds since {ago(row.since, now=now)}: {row.reason}: {row.detail}"
    advice = 'fix the cause, then `tau-live gate reset --reason "..."`'
    return Check("gate", FAIL, found, advice, "gate-held")


def _versions(store: Store, folder: Path) -> Iterator[Check]:
    """Yield a warning for each serving version whose file is missing or damaged."""
    for point, served in sorted(store.policies.in_service().items()):
        if not served.version:
            continue
        try:
            check_policy(folder, store.policies.version(served.version))
        except TauLiveError as error:
            advice = "an older version decides instead; restore the file, or `tau-live policy use`"
            found = f"{served.version} of '{point}': {error}"
            yield Check("version", WARN, found, advice, "policy-missing")


def _seals(store: SqliteStore) -> Check:
    head = store.seals.head()
    keyed = f"with the key {head.key_id}" if head.key_id else "without a key"
    advice = "`tau-live verify` detects edits"
    return Check("seals", OK, f"{number(head.place)} seals, the last {keyed}", advice)


def _processes(store: Store, *, now: float) -> Check:
    attached = attached_processes(store, now=now)
    if not attached:
        advice = f"an agent that runs with {SWITCH}=1 is listed here"
        return Check("processes", OK, "no process is attached", advice)
    return Check("processes", OK, ", ".join(attached))


def _learner(store: Store, *, now: float) -> Check:
    holder = now_learning(store, now=now)
    return Check("learner", OK, f"{holder} is learning" if holder else "no update is running")


def _last_update(store: Store, *, now: float) -> Check:
    latest = store.policies.updates(limit=1)
    if not latest:
        return Check("last update", OK, "none yet")
    row = latest[0]
    what = "learned" if row.executed else f"skipped: {row.skipped_reason}"
    found = f"#{row.update} {ago(row.at, now=now)}: {what}"
    if row.executed:
        return Check("last update", OK, found)
    advice = f"see `tau-live updates {row.update}`"
    return Check("last update", WARN, found, advice, "update-skipped")


def _rewards(store: Store) -> Check:
    """Check whether rewards are sent at all, judged by the last rollouts of each point."""
    made_up = {RewardSource.INFERRED, RewardSource.DEFAULT}
    points = store.rewards.ready_points()
    ready = {
        one.rollout.rollout_id: one
        for point in ("", *points)
        for one in store.rewards.ready_rollouts(point, after=0, limit=LOOKED_AT, newest=True)
    }
    given = [reward for one in ready.values() for reward in one.rewards]
    sent = sum(reward.source not in made_up for reward in given)
    waiting = store.rewards.waiting()
    of = f"sent for the last {number(len(ready))} rollouts"
    found = f"{number(sent)} {of}, {number(waiting)} wait for one"
    if sent or not (ready or waiting):
        return Check("rewards", OK, found)
    inferred = any(reward.source == RewardSource.INFERRED for reward in given)
    without = (
        "only inferred ones are learned from" if inferred else "nothing is learned without rewards"
    )
    advice = f"call tau_live.reward(...) or `tau-live reward`: {without}"
    return Check("rewards", WARN, found, advice, "rewards-never-sent")


def _drops(store: Store, file: Path, *, now: float) -> Iterator[Check]:
    """Yield what was lost lately; older losses need no action."""
    counts = counted(store, file)
    lost, grown = lost_events(counts), grew(counts, store.alerts.noted())
    recent = {name: n for name, n in lost.items() if lately(grown[name], now=now)}
    if not recent:
        before = f" in the last day; {number(sum(lost.values()))} before" if lost else ""
        yield Check("drops", OK, f"none{before}")
    for name, n in recent.items():
        advice = (
            "raise TAU_LIVE_RL_QUEUE_LIMIT, or find out what slows the store down"
            if name == QUEUE_FULL
            else f"see {name} in docs/howto/runbook.md"
        )
        at = grown[name]
        when = "" if at is None else f", last {since(at, now=now)}"
        yield Check("drops", WARN, f"{name}: {number(n)}{when}", advice, "events-dropped")
