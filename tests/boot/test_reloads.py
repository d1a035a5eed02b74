"""Hosts that are reloaded or imported anew, and boots that come twice, at once, or late."""

import importlib
import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tau_live.boot.hosts import Hosts, HostState, Reloads
from tau_live.runtime.adapters import Adapter, Detach, InForce
from tests.scratch import Scratch

BAKERY = """
version = {version}


def call(name):
    return f"{{version}} ran {{name}}"
"""


class Counted:
    """Wraps the host's one function; what it is wrapped in is counted by how it answers."""

    def __init__(self) -> None:
        self.raises = False

    def adapter(self) -> Adapter:
        return Adapter(host="oven", module="oven_host", probe=self.probe, attach=self.attach)

    def probe(self) -> str | None:
        found = importlib.import_module("oven_host.core")
        return None if hasattr(found, "call") else "oven_host.core.call"

    def attach(self, in_force: InForce) -> Detach:
        found: Any = importlib.import_module("oven_host.core")
        original = found.call

        def call(name: str) -> str:
            return f"seen {original(name)}"

        def detach() -> None:
            found.call = original
            if self.raises:
                raise RuntimeError("out of order")

        found.call = call
        return detach


@pytest.fixture
def oven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Let there be a host in two modules, which was not imported yet."""
    folder = tmp_path / "oven_host"
    folder.mkdir()
    (folder / "__init__.py").write_text("from oven_host import core\n")
    (folder / "core.py").write_text(BAKERY.format(version=1))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    importlib.invalidate_caches()
    yield folder
    sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, Reloads)]
    forget()


def forget() -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] == "oven_host"]:
        del sys.modules[name]


def hosts(adapter: Counted) -> Hosts:
    made = Hosts(lambda: None, changed=lambda _: None, dormant=lambda: True)
    made.add("oven", "oven_host", adapter.adapter)
    return made


def called() -> str:
    found: str = importlib.import_module("oven_host.core").call("rye")
    return found


def reloaded(name: str) -> object:
    return importlib.reload(importlib.import_module(name))


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["oven_host.core"], id="what was wrapped is gone"),
        pytest.param(["oven_host"], id="what was wrapped is still there"),
        pytest.param(["oven_host.core", "oven_host", "oven_host.core"], id="again and again"),
    ],
)
def test_a_reloaded_host_is_attached_exactly_once(oven: Path, names: list[str]) -> None:
    made = hosts(Counted())
    before = called()

    for name in names:
        reloaded(name)

    assert (before, called()) == ("seen 1 ran rye", "seen 1 ran rye")
    assert [one.state for one in made.standings()] == [HostState.ATTACHED]


def test_what_a_host_has_become_is_what_is_wrapped(oven: Path) -> None:
    made = hosts(Counted())
    called()
    (oven / "core.py").write_text(BAKERY.format(version=2))

    reloaded("oven_host.core")

    after = called()
    made.detach()
    assert (after, called()) == ("seen 2 ran rye", "2 ran rye")


def test_a_host_that_is_imported_anew_is_attached_too(oven: Path) -> None:
    hosts(Counted())
    called()
    forget()

    found = called()

    assert found == "seen 1 ran rye"


def test_a_reload_that_fails_leaves_the_host_attached(oven: Path) -> None:
    hosts(Counted())
    called()
    (oven / "core.py").write_text("raise ValueError('half way')\n")

    with pytest.raises(ValueError, match="half way"):
        reloaded("oven_host.core")

    assert called() == "seen 1 ran rye"


def test_a_host_that_does_not_fit_any_more_is_disabled(oven: Path) -> None:
    made = hosts(Counted())
    called()
    (oven / "core.py").write_text("def other(): ...\n")
    del sys.modules["oven_host.core"]

    reloaded("oven_host")

    [standing] = made.standings()
    assert (standing.state, standing.problem) == (HostState.DISABLED, "oven_host.core.call")


def test_an_adapter_that_cannot_detach_hurts_no_reload(oven: Path) -> None:
    adapter = Counted()
    hosts(adapter)
    called()
    adapter.raises = True

    reloaded("oven_host.core")

    assert called() == "seen 1 ran rye"


def test_a_reload_leaves_the_modules_loader_and_the_search_as_they_were(oven: Path) -> None:
    made = hosts(Counted())
    called()
    core = sys.modules["oven_host.core"]
    kind = type(core.__loader__)

    reloaded("oven_host.core")

    assert core.__spec__ is not None
    assert (type(core.__loader__), type(core.__spec__.loader)) == (kind, kind)
    made.detach()
    assert not [one for one in sys.meta_path if isinstance(one, Reloads)]


def test_after_detaching_a_reload_attaches_nothing(oven: Path) -> None:
    made = hosts(Counted())
    called()
    made.detach()

    reloaded("oven_host.core")

    assert called() == "1 ran rye"


def test_a_host_that_another_thread_is_importing_is_waited_for(oven: Path) -> None:
    (oven / "core.py").write_text(
        "import oven_gate\noven_gate.begun.set()\noven_gate.go_on.wait(30)\n"
        + BAKERY.format(version=1)
    )
    gate = type(sys)("oven_gate")
    begun, go_on = threading.Event(), threading.Event()
    gate.__dict__.update(begun=begun, go_on=go_on)
    sys.modules["oven_gate"] = gate
    importing = threading.Thread(target=importlib.import_module, args=("oven_host",))
    importing.start()
    assert begun.wait(30)
    made: list[Hosts] = []
    attaching = threading.Thread(target=lambda: made.append(hosts(Counted())))

    attaching.start()
    attaching.join(0.1)
    waited = attaching.is_alive()
    go_on.set()
    attaching.join(30)
    importing.join(30)

    del sys.modules["oven_gate"]
    assert waited
    assert called() == "seen 1 ran rye"
    assert [one.state for one in made[0].standings()] == [HostState.ATTACHED]


def runs(scratch: Scratch) -> list[str]:
    found = json.loads(scratch.cli("rollouts", "--json"))["rollouts"]
    return sorted(one["run_id"] for one in found)


@pytest.mark.slow
def test_a_real_process_sees_its_host_again_after_a_reload(scratch: Scratch) -> None:
    code = (
        "import tau_live.auto, bakery, importlib\n"
        "bakery.call('a')\n"
        "importlib.reload(bakery); bakery.call('b')\n"
        "import sys; del sys.modules['bakery']\n"
        "import bakery; bakery.call('c')\n"
    )

    scratch.said("-c", code)

    assert runs(scratch) == ["a", "b", "c"]


@pytest.mark.slow
def test_what_is_detached_is_attached_again_by_another_boot(scratch: Scratch) -> None:
    code = (
        "import tau_live.auto, bakery\n"
        "from tau_live.boot.boot import boot, boot_state, detach_hosts\n"
        "bakery.call('a'); detach_hosts(); bakery.call('b')\n"
        "boot('mine'); boot('mine'); bakery.call('c')\n"
        "doors, hosts = boot_state()\n"
        "print(doors, [one.state.value for one in hosts if one.host == 'bakery'])\n"
    )

    said = scratch.said("-c", code)

    assert said == "('auto', 'mine') ['attached']\n"
    assert runs(scratch) == ["a", "c"]


@pytest.mark.slow
def test_a_host_that_is_imported_while_detached_is_seen_once_attached(scratch: Scratch) -> None:
    code = (
        "import tau_live, tau_live.auto\n"
        "tau_live.detach()\n"
        "import bakery; bakery.call('a')\n"
        "tau_live.attach(); bakery.call('b')\n"
    )

    scratch.said("-c", code)

    assert runs(scratch) == ["b"]


@pytest.mark.slow
def test_threads_that_boot_at_once_attach_once(scratch: Scratch) -> None:
    code = (
        "import threading\n"
        "from tau_live.boot.boot import boot, boot_state\n"
        "together = threading.Barrier(8)\n"
        "def work(number):\n"
        "    together.wait(); print(boot(f'door-{number}'))\n"
        "threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]\n"
        "[one.start() for one in threads]; [one.join() for one in threads]\n"
        "import bakery; bakery.call('a')\n"
        "stand = [one.state.value for one in boot_state()[1] if one.host == 'bakery']\n"
        "print(len(boot_state()[0]), stand)\n"
    )

    said = scratch.said("-c", code)

    assert said == "True\n" * 8 + "8 ['attached']\n"
    assert runs(scratch) == ["a"]
