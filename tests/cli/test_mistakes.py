"""Every mistake that the doctor knows is really made here, and found, with what to do."""

import ast
import json
import os
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from msgspec import structs

from tau_live.cli import doctor_store
from tau_live.cli.doctor_mistakes import MISTAKES, OK
from tau_live.cli.init.frameworks import FRAMEWORKS, Framework, older
from tau_live.core.records import RewardSource
from tau_live.operate.alert_rules import GREW, RECENT_S
from tau_live.store.sqlite.store import SqliteStore
from tests.cli.conftest import Read, Run
from tests.cli.mistaken import MAKE, OPEN
from tests.cli.written import decide, writing
from tests.contracts.making import decision, reward
from tests.scratch import ROOT
from tests.writes import writes

pytestmark = pytest.mark.slow


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


def test_what_was_counted_long_ago_is_no_mistake_any_more(filled: Path, read: Read) -> None:
    names = ("dropped_queue", "rewards_refused", "left_out_reward_missing",
             "defaults_not_offered_model")  # fmt: skip
    with writing(filled) as store:
        store.counters.add(dict.fromkeys(names, 1))
        counts = store.counters.counts()
    codes = {"events-dropped", "rewards-refused", "rewards-missed", "default-unoffered"}
    fresh = found(read("doctor", "--store", filled, TAU_LIVE_RL="1"))
    with writing(filled) as store:
        for name in names:
            at = time.time() - 2 * RECENT_S
            store.alerts.note(GREW, name, f"{counts[name]} {at}")

    old = read("doctor", "--store", filled, TAU_LIVE_RL="1")

    assert codes <= fresh.keys()
    assert codes.isdisjoint(found(old))
    assert isinstance(old, dict)
    drops = [check["found"] for check in old["checks"] if check["check"] == "drops"]
    assert drops == [f"none in the last day; {counts['dropped_queue']} before"]


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
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name)):
                continue
            if call.func.id == "Check" and len(call.args) > 1:
                is_well = getattr(call.args[1], "id", "") not in {"WARN", "FAIL"}
                assert is_well, f"{module.name}:{call.lineno} names no mistake"
            if call.func.id == "mistake" and isinstance(call.args[0], ast.Constant):
                named.add(str(call.args[0].value))
    assert named == MISTAKES.keys()


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
            writes(store).add_reward(reward(rollout_id=f"live-{number}", source=source.value))

    assert "rewards-of-one" not in found(read("doctor", "--store", filled))


def test_options_that_are_rarely_tried_are_not_said_to_be_untried(filled: Path, read: Read) -> None:
    decide(filled, 300, structs.replace(decision(), options=("small", "rarely", "seldom")))

    assert "option-untried" not in found(read("doctor", "--store", filled))
    assert "option-untried" in found(read("doctor", "--store", filled, TAU_LIVE_RL_EXPLORATION="0"))


def test_a_large_folder_does_not_keep_the_doctor_waiting(tmp_path: Path, read: Read) -> None:
    for number in range(503):  # the doctor reads 500
        text = "import tau_live.auto, os\nos.environ['TAU_LIVE_RL'] = '1'\n" if number > 500 else ""
        (tmp_path / f"{number:03}.py").write_text(text)

    assert "switch-late" not in found(read("doctor"))


def test_the_file_system_is_that_of_the_deepest_mount(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "21 1 8:1 / / rw - ext4 /dev/a rw\n22 21 0:9 / /data rw - nfs a rw\n"
        "23 22 0:8 / /data/my\\040disk rw shared:1 - xfs b rw\nbroken\n"
    )

    found = {
        path: doctor_store.file_system_of(Path(path), mounts)
        for path in ("/data/x.db", "/database/x.db", "/data/my disk/x/y.db")
    }

    assert list(found.values()) == ["nfs", "ext4", "xfs"]
    assert doctor_store.file_system_of(Path("/x"), tmp_path / "missing") is None


def test_this_machine_tells_its_file_systems() -> None:
    known = doctor_store.file_system_of(Path(os.devnull), doctor_store.MOUNTS)

    assert known or not doctor_store.MOUNTS.exists()
