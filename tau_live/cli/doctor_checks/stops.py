"""Checks of what operators stopped, and of who may."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from tau_live.cli.doctor_checks.check import FAIL, OK, WARN, Check
from tau_live.cli.text import ago
from tau_live.errors import AccessError
from tau_live.gate import memory_holds
from tau_live.operators.access import principal_of, read
from tau_live.operators.disabled_plugins import disabled_plugins
from tau_live.operators.kill_switch import SETTING, ended_by, kill_file, mistaken, now_killed
from tau_live.operators.killed_processes import killed_inside
from tau_live.settings import Settings
from tau_live.store.roles import Store


def access_check(settings: Settings, environ: Mapping[str, str]) -> Check:
    """Say who may change anything, and fail where nobody can tell."""
    principal = principal_of(environ, settings.principal)
    if settings.access is None:
        return Check("access", OK, "every user who can write to the store may change it")
    try:
        team_mode = read(settings.access).team_mode
    except AccessError as error:
        advice = "fix the file; until then everything is read-only"
        return Check("access", FAIL, str(error), advice, "access-broken")
    found = (
        f"team mode, from '{settings.access}'"
        if team_mode
        else f"'{settings.access}': no team mode"
    )
    return Check("access", OK, f"{found}; you are {principal}")


def pause_checks(store: Store, *, now: float) -> Iterator[Check]:
    """Yield a warning for each part that rests."""
    for part, pause in store.pauses.pauses().items():
        found = (
            f"{part} has been paused since {ago(pause.at, now=now)} by {pause.who}: {pause.reason}"
        )
        yield Check("pauses", WARN, found, f'`tau-live resume {part} --reason "..."`', "paused")


def memory_hold_checks(file: Path, *, now: float) -> Iterator[Check]:
    """Yield a failure for each process that holds because the store cannot be written."""
    for hold in memory_holds(file):
        found = f"process {hold.pid} holds in memory since {ago(hold.since, now=now)}"
        advice = "see store_fails in its log; it resumes by itself once the store works"
        yield Check("gate", FAIL, f"{found}: {hold.reason}", advice, "held-in-memory")


def plugin_checks(store: Store, *, now: float) -> Iterator[Check]:
    """Yield a failure for each plugin that an attached process does not call any more."""
    for one in disabled_plugins(store.leases, now=now):
        found = f"{one['plugin']} is disabled in {one['process']}: {one['problem']}"
        advice = "fix it, or name it in TAU_LIVE_RL_PLUGINS_OFF, and restart that process"
        yield Check("plugins", FAIL, found, advice, "plugin-disabled")


def inside_checks(store: Store, *, now: float) -> Iterator[Check]:
    """Yield that the variable stops processes which are attached."""
    killed = killed_inside(store.leases, now=now)
    if killed is not None:
        found = f"on since {ago(killed.at, now=now)}: {killed}"
        yield Check("kill switch", FAIL, found, ended_by(killed.reason), "killed")


def kill_check(file: Path, settings: Settings | None, *, now: float) -> Check:
    """Say whether the kill switch is on; works without a store."""
    switch = kill_file(file, settings.kill_file if settings else None)
    killed = now_killed(switch)
    if killed is None:
        return Check("kill switch", OK, f"off: {switch} does not exist")
    found = f"on since {ago(killed.at, now=now)}: {killed}"
    if mistaken(switch) is not None:
        advice = f"correct {SETTING}, where the agent runs too; it names something else"
        return Check("kill switch", FAIL, found, advice, "kill-file-wrong")
    return Check("kill switch", FAIL, found, '`tau-live unkill --reason "..."`', "killed")
