"""Every mistake that the doctor knows is really made here, and found, with what to do."""

import ast
import json
import os
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tau_live.cli.doctor_checks import checks, places
from tau_live.cli.doctor_checks import environment as environment_checks
from tau_live.cli.doctor_checks import retention as retention_checks
from tau_live.cli.doctor_checks import stores as store_checks
from tau_live.cli.doctor_checks.check import OK
from tau_live.cli.doctor_checks.mistakes import MISTAKES
from tau_live.machine.processes import PROCESSES, this_process
from tau_live.pauses import Part, Pause
from tau_live.policies.files import checkpoint_folder
from tau_live.projects import surroundings
from tau_live.projects.frameworks import FRAMEWORKS, Framework, older
from tau_live.rollouts import Decision, RewardSource
from tau_live.settings import Settings
from tau_live.store.connection import connect
from tau_live.store.sqlite import SqliteStore
from tests.cli.conftest import Read, Run
from tests.cli.filled import hold
from tests.contracts.making import begun, decision, ready, reward, update
from tests.scratch import ROOT

Environ = dict[str, str]
Make = Callable[[Path, pytest.MonkeyPatch], Environ | None]
"""Makes a mistake around a filled store; returns what is to be set besides."""

MAKE: dict[str, Make] = {}


def makes(code: str) -> Callable[[Make], Make]:
    def known(make: Make) -> Make:
        MAKE[code] = make
        return make

    return known


@contextmanager
def writing(file: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore.open(file)) as store, store.begin():
        yield store


def decide(file: Path, times: int, like: Decision) -> None:
    """Store decisions of one new rollout."""
    with writing(file) as store:
        begun(store, "live-many")
        for ordinal in range(1, times + 1):
            one = replace(like, ordinal=ordinal, rollout_id="live-many", at=time.time())
            store.decisions.add_decision(one)


def installed(folder: Path, name: str, version: str, entry_points: str = "") -> Path:
    """Write what an installer writes of a package."""
    info = folder / "site" / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entry_points)
    return folder / "site"


@makes("packages-missing")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checks, "NEEDS", (*checks.NEEDS, "tau-live-nobody-has-it"))


@makes("sqlite-old")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checks, "OLDEST_SQLITE", (99, 0, 0))


@makes("other-environment")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    Path(".venv").mkdir()
    Path(".venv/pyvenv.cfg").touch()


@makes("host-elsewhere")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(surroundings, "installed", lambda _: None)
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
    patch.setattr("tau_live.cli.doctor_checks.hosts.site_packages", Path.cwd)


@makes("alert-command-missing")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    return {"TAU_LIVE_RL_ALERT_COMMAND": "/nowhere/page-somebody --loud"}


@makes("plugin-broken")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    points = "[tau_live]\nbroken = nothing_of_that_name\n"
    patch.syspath_prepend(installed(Path.cwd(), "broken", "1.0", points))


@makes("plugin-unknown")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    return {"TAU_LIVE_RL_PLUGINS_OFF": "reference-rewarders"}


@makes("plugin-off")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    points = "[tau_live]\nbroken = nothing_of_that_name\n"
    patch.syspath_prepend(installed(Path.cwd(), "broken", "1.0", points))
    return {"TAU_LIVE_RL_PLUGINS_OFF": "broken"}


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
    points = "[tau_live_hosts]\nllm = llm_hook:ADAPTER\n"
    site = installed(Path.cwd() / "hook", "llm-hook", "1.0", points)
    (site / "llm_hook.py").write_text(
        "from tau_live.adapters import Adapter\n"
        "ADAPTER = Adapter(host='llm', module='llm', probe=lambda: None, attach=print)\n"
    )
    for folder in (Path.cwd() / "site", site):
        patch.syspath_prepend(folder)
    for name in [one for one in sys.modules if one.partition(".")[0] == "llm"]:
        patch.delitem(sys.modules, name)
    patch.setattr("tau_live_hooks.HOSTS", {})  # so that the adapter is the one above


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
    patch.setattr(store_checks, "WAIT_S", 0.05)
    connection = connect(file, busy_timeout_s=1.0, read_only=False)
    connection.raw.execute("begin immediate")
    OPEN.append(connection.raw.close)


OPEN: list[Callable[[], None]] = []


@makes("store-unusable")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    with closing(connect(file, busy_timeout_s=1.0, read_only=False)) as connection:
        connection.change("pragma user_version = 99")


@makes("store-damaged")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    with closing(connect(file, busy_timeout_s=1.0, read_only=False)) as connection:
        connection.rows("pragma wal_checkpoint(truncate)")
        root = connection.count("select rootpage from sqlite_master where name = 'rewards_by_time'")
    with file.open("r+b") as opened:
        opened.seek((root - 1) * 4096 + 3)
        opened.write(b"\xff" * 8)


@makes("store-on-network")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    mounts = Path("mountinfo")
    mounts.write_text(
        f"29 1 0:26 / / rw - ext4 /dev/a rw\n30 29 0:27 / {file.parent} rw - nfs4 b rw\n"
    )
    patch.setattr(places, "MOUNTS", mounts)


@makes("stores-several")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    SqliteStore.open(file.with_name("live.db")).close()


@makes("store-open")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    file.chmod(0o644)


@makes("disk-full")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(checks, "LEAST_DISK_BYTES", 2**63)


@makes("store-grows")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(retention_checks, "LARGE_BYTES", 10_000)


@makes("retention-kept")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    with writing(file.with_name("new.sqlite")) as store:
        for number in range(4):
            ready(store, f"live-{number}", "other")
    return {"TAU_LIVE_RL_RETENTION_ROLLOUTS": "1", "store": str(file.with_name("new.sqlite"))}


@makes("gate-held")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    hold(file)


@makes("process-silent")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    me = this_process()
    with writing(file) as store:
        store.leases.acquire(PROCESSES + me, me, ttl_s=1.0, now=time.time() - 60.0)


@makes("policy-missing")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    for one in checkpoint_folder(Settings(store=file)).iterdir():
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
        store.rewards.await_reward("live-1", until=4e9)
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


@makes("rewards-of-one")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    with writing(file) as store:
        for number in range(40):
            one = reward(rollout_id=f"live-{number}", source="user:anna", at=time.time())
            store.rewards.add_reward(one)


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


@makes("option-untried")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    decide(file, 600, replace(decision(), options=("small", "never")))


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


@makes("clock-ahead")
def _(file: Path, patch: pytest.MonkeyPatch) -> None:
    with writing(file) as store:
        store.rewards.add_reward(reward(rollout_id="live-x", at=time.time() + 3600.0))


@makes("events-dropped")
def _(file: Path, patch: pytest.MonkeyPatch) -> Environ:
    with writing(file.with_name("new.sqlite")) as store:
        store.counters.add({"dropped_queue_full": 3})
    return {"store": str(file.with_name("new.sqlite"))}


@pytest.fixture(autouse=True)
def _closed(tmp_path: Path) -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop()()
    for name, module in [*sys.modules.items()]:
        if (getattr(module, "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("code", MISTAKES)
def test_a_mistake_that_is_made_is_found_with_what_to_do(
    code: str, filled: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"TAU_LIVE_RL": "1", **(MAKE[code](filled, monkeypatch) or {})}
    store = environ.pop("store", filled)
    result = run("doctor", "--store", store, "--json", **environ)
    after = found(json.loads(result.stdout))

    assert code in after
    assert all(check["advice"] for check in after.values())


def test_where_nothing_was_mistaken_nothing_is_found(filled: Path, read: Read) -> None:
    left = found(read("doctor", "--store", filled, TAU_LIVE_RL="1"))
    SqliteStore.open(filled.with_name("new.sqlite")).close()
    filled.unlink()

    new = found(read("doctor", "--store", filled.with_name("new.sqlite"), TAU_LIVE_RL="1"))

    assert left.keys() == {"events-dropped", "update-skipped"}  # as the filled store has them
    assert new.keys() == set()


def found(told: object) -> dict[str, Mapping[str, str]]:
    """Return what is not well, by the code of the mistake."""
    assert isinstance(told, dict)
    return {check["mistake"]: check for check in told["checks"] if check["state"] != OK}


def test_every_mistake_is_made_here_and_every_check_that_fails_names_one() -> None:
    assert MAKE.keys() == MISTAKES.keys()
    assert len(MISTAKES) >= 20
    named = set[str]()
    for module in (ROOT / "tau_live/cli").rglob("*.py"):
        for call in ast.walk(ast.parse(module.read_text())):
            if not (isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Check"):
                continue
            if getattr(call.args[1], "id", "") in {"WARN", "FAIL"}:
                assert len(call.args) == 5, f"{module.name}:{call.lineno} names no mistake"
                if isinstance(call.args[4], ast.Constant):
                    named.add(str(call.args[4].value))
    assert named <= MISTAKES.keys()
    assert MISTAKES.keys() - named <= {"store-locked", "store-unusable"}


@pytest.mark.parametrize(
    ("version", "oldest", "is_older"),
    [("2.15.9", "2.16", True), ("2.16.0", "2.16", False), ("10.0", "9.9", False),
     ("0.36a1", "0.36", False), ("unknown", "1.0", False), (None, "1.0", False)],
)  # fmt: skip
def test_versions_are_compared_as_numbers(version: str | None, oldest: str, is_older: bool) -> None:
    assert older(version, oldest) == is_older


@pytest.mark.parametrize("host", FRAMEWORKS.values(), ids=lambda host: host.host)
def test_the_oldest_version_of_each_host_is_what_its_extra_says(host: Framework) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert f"{host.packages[0]}>={host.oldest}" in project["optional-dependencies"][host.host]


def test_a_source_that_infers_or_a_lone_program_is_nobody_in_particular(
    filled: Path, read: Read
) -> None:
    with writing(filled) as store:
        for number in range(80):
            source = RewardSource.INFERRED if number % 2 else RewardSource.API
            store.rewards.add_reward(reward(rollout_id=f"live-{number}", source=source.value))

    assert "rewards-of-one" not in found(read("doctor", "--store", filled))


def test_options_that_are_rarely_tried_are_not_said_to_be_untried(filled: Path, read: Read) -> None:
    decide(filled, 300, replace(decision(), options=("small", "rarely", "seldom")))

    assert "option-untried" not in found(read("doctor", "--store", filled))
    assert "option-untried" in found(read("doctor", "--store", filled, TAU_LIVE_RL_EXPLORATION="0"))


def test_a_large_folder_does_not_keep_the_doctor_waiting(
    tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = replace(environment_checks.LOOKS, files=5)
    monkeypatch.setattr(environment_checks, "LOOKS", bounds)
    for number in range(9):
        text = "import tau_live.auto, os\nos.environ['TAU_LIVE_RL'] = '1'\n" if number > 6 else ""
        (tmp_path / f"{number}.py").write_text(text)

    assert "switch-late" not in found(read("doctor"))


def test_the_file_system_is_that_of_the_deepest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "21 1 8:1 / / rw - ext4 /dev/a rw\n22 21 0:9 / /data rw - nfs a rw\n"
        "23 22 0:8 / /data/my\\040disk rw shared:1 - xfs b rw\nbroken\n"
    )

    found = {
        path: places.file_system_of(Path(path), mounts)
        for path in ("/data/x.db", "/database/x.db", "/data/my disk/x/y.db")
    }

    assert list(found.values()) == ["nfs", "ext4", "xfs"]
    assert places.file_system_of(Path("/x"), tmp_path / "missing") is None


def test_this_machine_tells_its_file_systems() -> None:
    known = places.file_system_of(Path(os.devnull), places.MOUNTS)

    assert known or not places.MOUNTS.exists()
