"""Every mistake that the doctor knows, made by a function under its code."""

import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tau_live import __version__
from tau_live.boot.attachments import note
from tau_live.boot.hosts import Standing
from tau_live.cli import doctor, doctor_store
from tau_live.cli.init import project
from tau_live.core.plugins import PluginReport
from tau_live.core.processes import PROCESSES, this_process
from tau_live.core.reasons import Part, Pause
from tau_live.core.records import Monitor, MonitorNumbers
from tau_live.operate.stops import Notices
from tau_live.store.files import policies_of
from tau_live.store.opening import open_spool
from tau_live.store.records import ServerFacts
from tau_live.store.sealing import Keys, key_in
from tau_live.store.sqlite.connection import connect
from tau_live.store.sqlite.store import SqliteStore
from tau_live_hooks.opentelemetry import PROBLEM
from tests.cli.filled import hold
from tests.cli.written import decide, installed, writing
from tests.contracts.making import begun, decision, ready, reward, update
from tests.core.gate.holding import holding
from tests.experience.lessons import shipped
from tests.writes import writes

Environ = dict[str, str]
Make = Callable[[Path, pytest.MonkeyPatch], Environ | None]
"""Makes a mistake around a filled store; returns what is to be set besides."""

MAKE: dict[str, Make] = {}
OPEN: list[Callable[[], None]] = []


def makes(code: str) -> Callable[[Make], Make]:
    def known(make: Make) -> Make:
        MAKE[code] = make
        return make

    return known


@makes("packages-missing")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(doctor, "NEEDS", (*doctor.NEEDS, "tau-live-nobody-has-it"))


@makes("sqlite-old")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(doctor, "OLDEST_ENGINE", (99, 0, 0))


@makes("other-environment")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    Path(".venv").mkdir()
    Path(".venv/pyvenv.cfg").touch()


@makes("host-elsewhere")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(project, "installed_version", lambda _: None)
    Path("agent.py").write_text("from langchain.agents import create_agent\n")


@makes("installed-twice")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.syspath_prepend(installed(Path.cwd(), "tau-live", "0.0.1"))


@makes("switch-off")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    return {"TAU_LIVE_RL": ""}


@makes("switch-misspelt")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    return {"TAU_LIVE_RL": "jes"}


@makes("switch-late")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    Path("agent.py").write_text(
        "import os\nimport tau_live.auto\n\nos.environ['TAU_LIVE_RL'] = '1'\n"
    )


@makes("killed")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    return {"TAU_LIVE_RL_KILL": "1"}


@makes("kill-file-wrong")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    return {"TAU_LIVE_RL_KILL_FILE": str(file)}


@makes("paused")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    with writing(file) as store:
        store.pauses.begin(
            Pause(part=Part.LEARNING, reason="a release", who="anna", at=time.time())
        )


@makes("access-broken")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    Path("access.json").write_text("{")
    return {"TAU_LIVE_RL_ACCESS": "access.json"}


@makes("setting-wrong")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    return {"TAU_LIVE_RL_SEED": "many"}


@makes("setting-doubtful")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    return {"TAU_LIVE_RL_EXPLORATOIN": "0.1"}


@makes("act-off")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    Path("pyproject.toml").write_text('[tool.tau-live.decisions.model]\noptions = ["a", "b"]\n')


@makes("nothing-declared")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    return {"TAU_LIVE_RL_ACT": "1"}


@makes("autostart-changed")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    (Path.cwd() / "tau_live_autostart.pth").write_text("# somebody's own\n")
    patch.setattr("tau_live.cli.doctor.site_packages", Path.cwd)


@makes("alert-command-missing")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    return {"TAU_LIVE_RL_ALERT_COMMAND": "/nowhere/page-somebody --loud"}


@makes("alert-urls-missing")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    urls = Path.cwd() / "urls.txt"
    urls.write_text("# none yet\n")
    return {"TAU_LIVE_RL_ALERT_URLS": str(urls)}


@makes("plugin-broken")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    points = "[tau_live]\nbroken = nothing_of_that_name\n"
    patch.syspath_prepend(installed(Path.cwd(), "broken", "1.0", points))


@makes("metadata-malformed")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.syspath_prepend(installed(Path.cwd(), "malformed", "1.0", "no section = here\n"))


@makes("plugin-unknown")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    return {"TAU_LIVE_RL_PLUGINS_OFF": "reference-rewarders"}


@makes("plugin-off")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    points = "[tau_live]\nbroken = nothing_of_that_name\n"
    patch.syspath_prepend(installed(Path.cwd(), "broken", "1.0", points))
    return {"TAU_LIVE_RL_PLUGINS_OFF": "broken"}


@makes("spans-unseen")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    standing = Standing(host="opentelemetry", module="opentelemetry.sdk.trace", problem=PROBLEM)
    note(file, this_process(), ["run"], [standing])


@makes("adapter-disabled")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    site = installed(Path.cwd(), "mill", "1.0", "[tau_live_hosts]\nmill = mill_hook:ADAPTER\n")
    (site / "mill.py").touch()
    patch.syspath_prepend(site)
    patch.delitem(sys.modules, "mill", raising=False)


@makes("host-old")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    site = installed(Path.cwd(), "llm", "0.1")
    (site / "llm").mkdir()
    (site / "llm/__init__.py").touch()
    points = (  # in place of ours, which would miss more than a version
        "[tau_live_hosts]\nllm = llm_hook:ADAPTER\nsmolagents = tau_live_hooks.smolagents:ADAPTER\n"
    )
    site = installed(Path.cwd() / "hook", "tau-live", __version__, points)
    (site / "llm_hook.py").write_text(
        "from tau_live.runtime.adapters import Adapter\n"
        "ADAPTER = Adapter(host='llm', module='llm', probe=lambda: None, attach=print)\n"
    )
    for folder in (Path.cwd() / "site", site):
        patch.syspath_prepend(folder)
    for name in [one for one in sys.modules if one.partition(".")[0] == "llm"]:
        patch.delitem(sys.modules, name)


@makes("hosts-unlisted")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.syspath_prepend(installed(Path.cwd(), "tau-live", __version__))


@makes("store-unplaced")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    gone = Path.cwd() / "gone"
    gone.mkdir()
    patch.chdir(gone)
    gone.rmdir()
    return {"store": "store.sqlite"}


@makes("store-missing")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    return {"store": "elsewhere/store.sqlite"}


@makes("store-unwritable")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    return {"store": "/proc/nowhere/store.sqlite"}


@makes("store-locked")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(doctor_store, "WAIT_S", 0.05)
    connection = connect(file, busy_timeout_s=1.0, read_only=False)
    connection.raw.execute("begin immediate")
    OPEN.append(connection.raw.close)


@makes("store-unusable")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    with closing(connect(file, busy_timeout_s=1.0, read_only=False)) as connection:
        connection.change("pragma user_version = 99")


SERVER = ServerFacts(
    version=15, schema=1, tls="TLSv1.3", local=False, standby=False, synchronous_commit="on",
    free_connections=90, round_trip_s=0.001, ahead_s=0.0, roles=["tau_live_host"], lacking=[],
)  # fmt: skip


@makes("server-unfit")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(doctor_store, "server_facts", lambda _: SERVER._replace(version=14))


@makes("server-doubtful")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(doctor_store, "server_facts", lambda _: SERVER._replace(tls=None))


@makes("rights-missing")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    facts = SERVER._replace(roles=[], lacking=["insert rollouts"])
    patch.setattr(doctor_store, "server_facts", lambda _: facts)


@makes("store-damaged")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    with closing(connect(file, busy_timeout_s=1.0, read_only=False)) as connection:
        connection.rows("pragma wal_checkpoint(truncate)")
        root = connection.count("select rootpage from sqlite_master where name = 'rewards_by_time'")
    with file.open("r+b") as opened:
        opened.seek((root - 1) * 4096 + 3)
        opened.write(b"\xff" * 8)


@makes("odd-row")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    with closing(connect(file, busy_timeout_s=1.0, read_only=False)) as connection:
        connection.change("update trials set evidence = '{' where point = 'model'")


@makes("store-schema-changed")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    with closing(connect(file, busy_timeout_s=1.0, read_only=False)) as connection:
        connection.change(
            "create trigger rollouts_counted_x after insert on rewards begin"
            " delete from ready_points; end"
        )


@makes("store-on-network")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    mounts = Path("mountinfo")
    mounts.write_text(
        f"29 1 0:26 / / rw - ext4 /dev/a rw\n30 29 0:27 / {file.parent} rw - nfs4 b rw\n"
    )
    patch.setattr(doctor_store, "MOUNTS", mounts)


@makes("stores-several")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    SqliteStore.open(file.with_name("live.db")).close()


@makes("spool-of-others")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    away = file.with_name("away.address")
    away.write_text("postgresql://me@127.0.0.1:1/tau")
    with closing(open_spool(file.with_name("spool.sqlite"))) as spool:
        spool.belong_to("postgresql://me@other.example/tau", id_="1")
    return {"store": str(away), "TAU_LIVE_RL_SPOOL": str(file.with_name("spool.sqlite"))}


@makes("prompts-unread")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    other = file.with_name("other.sqlite")
    other.write_bytes(b"no store" * 2_000)
    decisions = '{"prompt": {"options-from": "resources"}}'
    return {"TAU_LIVE_RL_DECISIONS": decisions, "TAU_LIVE_RL_PROMPTS_STORE": str(other)}


def ship_a_pool(file: Path, key_file: Path) -> None:
    key_in(key_file, make=True)
    with writing(file) as store:
        shipped(store, Keys.read(key_file))


@makes("pool-other-model")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    key_file = file.with_name("lessons.key")
    ship_a_pool(file, key_file)
    decisions = '{"prompt": {"options-from": "experience:units", "model": "stub/two"}}'
    return {"TAU_LIVE_RL_DECISIONS": decisions, "TAU_LIVE_RL_AUDIT_KEY_FILE": str(key_file)}


@makes("pool-unsigned")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    ship_a_pool(file, file.with_name("lessons.key"))
    decisions = '{"prompt": {"options-from": "experience:units", "model": "stub/one"}}'
    return {"TAU_LIVE_RL_DECISIONS": decisions}


@makes("prompts-unused")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    return {"TAU_LIVE_RL_PROMPTS_STORE": str(file)}


@makes("store-open")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    file.chmod(0o644)


@makes("disk-full")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(doctor_store, "LEAST_DISK_BYTES", 2**63)


@makes("store-grows")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(doctor_store, "LARGE_BYTES", 10_000)


@makes("retention-kept")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    with writing(file.with_name("new.sqlite")) as store:
        for number in range(4):
            ready(store, f"live-{number}", "other")
    return {"TAU_LIVE_RL_RETENTION_ROLLOUTS": "1", "store": str(file.with_name("new.sqlite"))}


@makes("gate-held")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    hold(file)


@makes("held-in-memory")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    process = holding(file)
    OPEN.append(lambda: process.__exit__(None, None, None))
    OPEN.append(process.kill)


@makes("plugin-disabled")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    report = PluginReport(name="ours", hooks=("redact_text",), disabled=True, problem="it raises")
    with writing(file) as store:
        Notices(this_process()).publish(store.leases, None, [report], now=time.time())


@makes("process-silent")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    me = this_process()
    with writing(file) as store:
        store.clock = lambda: time.time() - 60.0
        store.leases.acquire(PROCESSES + me, me, ttl_s=1.0)


@makes("policy-missing")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    for one in policies_of(file).iterdir():
        one.unlink()


@makes("update-skipped")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    with writing(file.with_name("new.sqlite")) as store:
        store.policies.add_update(update(10, executed=False), None)
    return {"store": str(file.with_name("new.sqlite"))}


@makes("nobody-learns")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    with writing(file) as store:
        for number in range(20):
            ready(store, f"live-{number}", "other")
    return {"TAU_LIVE_RL_LEARNER": "off"}


@makes("rewards-never-sent")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    with writing(file.with_name("new.sqlite")) as store:
        begun(store)
        writes(store).await_reward("live-1", until=4e9)
    return {"store": str(file.with_name("new.sqlite"))}


@makes("rewards-missed")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    with writing(file) as store:
        store.counters.add({"left_out_reward_missing": 3})


@makes("rewards-refused")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    with writing(file) as store:
        store.counters.add({"rewards_without_a_run": 3})


@makes("rewards-out-of-range")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    with writing(file) as store:
        store.counters.add({"left_out_reward_out_of_range": 3})


@makes("rewards-beyond")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    with writing(file) as store:
        numbers: MonitorNumbers = {"outliers": 3, "limits": (0.0, 1.0)}
        store.monitors.save(Monitor(point="tools", watermark=1, numbers=numbers), {})


@makes("rewards-of-one")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    with writing(file) as store:
        for number in range(40):
            one = reward(rollout_id=f"live-{number}", source="user:anna", at=time.time())
            writes(store).add_reward(one)


@makes("one-option")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    decide(file, 40, replace(decision(), allowed=("small",)))
    remove_others(file)


def remove_others(file: Path) -> None:
    """Leave the decisions of one rollout, as they are the newest in a store of any age."""
    with closing(connect(file, busy_timeout_s=1.0, read_only=False)) as connection:
        with connection.begin():
            connection.rows(
                "delete from decisions where rollout_seq <> "
                "(select seq from rollouts where rollout_id = 'live-many')"
            )


@makes("default-unoffered")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    with writing(file) as store:
        store.counters.add({"defaults_not_offered_model": 3})


@makes("option-untried")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    decide(file, 1_200, replace(decision(), options=("small", "never")))


@makes("choices-refused")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    decide(file, 40, replace(decision(), why_not="error: UserError", propensity=None))


@makes("decisions-late")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    decide(file, 40, replace(decision(), why_not="deadline", propensity=None))


@makes("runs-never-end")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    with writing(file.with_name("new.sqlite")) as store:
        for number in range(12):
            begun(store, f"live-{number}")
    return {"store": str(file.with_name("new.sqlite"))}


@makes("keys-repeated")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    with writing(file) as store:
        store.counters.add({"reruns_after_end": 8})


@makes("rewards-added-up")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    with writing(file) as store:
        writes(store).add_reward(reward(rollout_id="live-x", name="solved"))
        writes(store).add_reward(reward(rollout_id="live-x", name="stars"))


@makes("clock-ahead")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    with writing(file) as store:
        writes(store).add_reward(reward(rollout_id="live-x", at=time.time() + 3600.0))


@makes("events-dropped")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    with writing(file.with_name("new.sqlite")) as store:
        store.counters.add({"dropped_queue_full": 3})
    return {"store": str(file.with_name("new.sqlite"))}
