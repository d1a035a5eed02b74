"""What becomes of an adapter: attached once, or disabled with one line; the host never suffers."""

import importlib
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tau_live
import tau_live_hooks
from tau_live.boot.boot import UNLISTED
from tau_live.boot.hosts import Hosts, HostState, Reloads, Standing, load_adapter
from tau_live.core.entry_points import host_of, is_ours, read_entry_points
from tau_live.core.settings import Settings
from tau_live.runtime.adapters import Adapter, Detach, InForce
from tau_live.runtime.runtime import Runtime, start
from tests.boot.hosting import AGENT, NAMED, PLUGIN
from tests.boot.hosting import HOST as HOSTS_CODE
from tests.scratch import Scratch

Add = Callable[..., None]
HOST = "kiosk_host"


class Kiosk:
    """An adapter that notes what is asked of it."""

    def __init__(self, *, missing: str | None = None, fails: str = "") -> None:
        self.calls: list[str] = []
        self.missing = missing
        self.fails = fails

    def adapter(self) -> Adapter:
        self._called("load")
        return Adapter(host="kiosk", module=HOST, probe=self.probe, attach=self.attach)

    def probe(self) -> str | None:
        self._called("probe")
        return self.missing

    def attach(self, in_force: InForce) -> Detach:
        self._called("attach")
        return lambda: self._called("detach")

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name == self.fails:
            raise RuntimeError(f"{name} does not\nwork")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let there be a host that was not imported yet."""
    (tmp_path / f"{HOST}.py").write_text("__version__ = '4.5'\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    importlib.invalidate_caches()
    yield
    sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, Reloads)]
    sys.modules.pop(HOST, None)


@pytest.fixture
def runtime(tmp_path: Path) -> Iterator[Runtime]:
    started = start({}, Settings(store=tmp_path / "live" / "store.sqlite"))
    assert started is not None
    yield started
    started.close(10.0)


@pytest.fixture
def changes() -> list[Standing]:
    return []


@pytest.fixture
def hosts(runtime: Runtime, changes: list[Standing]) -> Hosts:
    return Hosts(lambda: runtime, changed=changes.append)


def imported() -> None:
    importlib.import_module(HOST)


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("before", [True, False], ids=["imported before", "imported after"])
def test_an_adapter_attaches_once_its_host_is_imported(hosts: Hosts, before: bool) -> None:
    kiosk = Kiosk()

    if before:
        imported()
    hosts.add("kiosk", HOST, kiosk.adapter)
    imported()

    assert kiosk.calls == ["load", "probe", "attach"]
    assert hosts.standings() == [
        Standing(host="kiosk", module=HOST, state=HostState.ATTACHED, version="4.5")
    ]


def test_an_adapter_whose_host_is_not_imported_is_not_even_loaded(hosts: Hosts) -> None:
    kiosk = Kiosk()

    hosts.add("kiosk", HOST, kiosk.adapter)

    assert kiosk.calls == []
    assert [one.state for one in hosts.standings()] == [HostState.WAITING]


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(
    ("kiosk", "said"),
    [
        pytest.param(Kiosk(missing="kiosk.Agent.run"), "kiosk.Agent.run", id="another layout"),
        pytest.param(Kiosk(fails="probe"), "RuntimeError: probe does not work", id="probing fails"),
        pytest.param(Kiosk(fails="attach"), "RuntimeError: attach does not", id="attaching fails"),
        pytest.param(Kiosk(fails="load"), "RuntimeError: load does not work", id="no adapter"),
    ],
)
def test_an_adapter_that_does_not_fit_is_disabled_with_one_line(
    hosts: Hosts, changes: list[Standing], kiosk: Kiosk, said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    hosts.add("kiosk", HOST, kiosk.adapter)

    with caplog.at_level(logging.WARNING, logger="tau_live"):
        imported()

    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert "\n" not in lines[0]
    assert all(word in lines[0] for word in ("adapter_disabled", "kiosk", "4.5", said))
    assert [one.state for one in changes] == [HostState.DISABLED]
    assert said in (changes[0].problem or "")


@pytest.mark.usefixtures("host")
def test_an_adapter_stays_away_where_nothing_runs(
    changes: list[Standing], caplog: pytest.LogCaptureFixture
) -> None:
    kiosk = Kiosk()
    Hosts(lambda: None, changed=changes.append).add("kiosk", HOST, kiosk.adapter)

    imported()

    assert kiosk.calls == ["load", "probe"]
    assert [(one.state, one.problem) for one in changes] == [
        (HostState.DISABLED, "tau-live does not run here")
    ]
    assert caplog.records == []


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize("fails", ["", "detach"])
def test_detaching_puts_back_what_is_attached_and_forgets_what_waits(
    hosts: Hosts, fails: str
) -> None:
    kiosk, other = Kiosk(fails=fails), Kiosk()
    hosts.add("kiosk", HOST, kiosk.adapter)
    hosts.add("other", "not_imported_at_all", other.adapter)
    imported()

    hosts.detach()

    assert kiosk.calls[-1] == "detach"
    assert other.calls == []
    assert {one.state for one in hosts.standings()} == {HostState.DISABLED}


@pytest.mark.usefixtures("host")
def test_a_standing_that_cannot_be_noted_changes_nothing_about_it(runtime: Runtime) -> None:
    def full(_: Standing) -> None:
        raise OSError("no space left on device")

    hosts = Hosts(lambda: runtime, changed=full)
    hosts.add("kiosk", HOST, Kiosk().adapter)

    imported()

    assert [one.state for one in hosts.standings()] == [HostState.ATTACHED]


@pytest.mark.usefixtures("host")
def test_the_first_adapter_of_a_host_has_it(hosts: Hosts) -> None:
    first, second = Kiosk(), Kiosk()

    for kiosk in (first, second):
        hosts.add("kiosk", HOST, kiosk.adapter)
    imported()

    assert first.calls
    assert second.calls == []


@pytest.mark.usefixtures("host")
def test_threads_that_import_at_the_same_time_attach_once(hosts: Hosts) -> None:
    kiosk = Kiosk()
    hosts.add("kiosk", HOST, kiosk.adapter)
    together = threading.Barrier(4, timeout=30)

    def work() -> None:
        together.wait()
        imported()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert kiosk.calls == ["load", "probe", "attach"]


@pytest.mark.usefixtures("host")
def test_a_reload_of_the_host_attaches_again_once_all_is_put_back(hosts: Hosts) -> None:
    kiosk = Kiosk()
    hosts.add("kiosk", HOST, kiosk.adapter)
    imported()

    importlib.reload(sys.modules[HOST])

    attached = ["load", "probe", "attach"]
    assert kiosk.calls == [*attached, "detach", *attached]


def test_every_adapter_of_ours_has_an_entry_point_that_names_what_it_declares() -> None:
    folder = Path(next(iter(tau_live_hooks.__path__)))
    declaring = {file.stem for file in folder.glob("*.py") if "\nADAPTER = " in file.read_text()}

    points = [point for point in read_entry_points().adapters if is_ours(point)]

    assert {point.module.removeprefix("tau_live_hooks.") for point in points} == declaring
    for point in points:
        adapter = load_adapter(point, off=())
        assert (adapter.host, adapter.module) == host_of(point)


@pytest.fixture
def without_metadata(bare: Scratch) -> Scratch:
    """Return an environment into which our code was copied, and nothing that lists its hosts."""
    info = bare.site / f"tau_live-{tau_live.__version__}.dist-info"
    (info / "entry_points.txt").write_text("")
    return bare


@pytest.mark.slow
def test_code_without_its_metadata_says_why_nothing_attaches(without_metadata: Scratch) -> None:
    done = without_metadata.run("-c", "import tau_live.auto; print('on')")
    doctor = without_metadata.run("-m", "tau_live.cli", "doctor", "--json")

    assert (done.stdout, done.returncode) == ("on\n", 0)
    assert done.stderr.splitlines() == [UNLISTED]
    checks = json.loads(doctor.stdout)["checks"]
    assert "hosts-unlisted" in [check["mistake"] for check in checks]


@pytest.mark.slow
def test_an_adapter_of_ours_is_left_out_by_the_name_of_its_host(scratch: Scratch) -> None:
    (scratch.site / "smolagents.py").touch()
    environ = scratch.environ(TAU_LIVE_RL_PLUGINS_OFF="smolagents")

    done = scratch.run("-c", "import tau_live.auto, smolagents; print('on')", environ=environ)

    assert (done.stdout, done.returncode) == ("on\n", 0)
    assert "host='smolagents'" in done.stderr
    assert "excluded by TAU_LIVE_RL_PLUGINS_OFF" in done.stderr


@pytest.mark.slow
def test_the_snapshot_and_doctor_tell_what_every_adapter_is_doing(scratch: Scratch) -> None:
    code = "import tau_live, tau_live.auto, bakery; print(tau_live.snapshot()['hosts']['bakery'])"

    said = scratch.said("-c", code)

    checks = json.loads(scratch.cli("doctor", "--json"))["checks"]
    found = {one["check"]: one["found"] for one in checks if one["state"] == "ok"}
    assert said == "attached\n"
    assert found["doors"] == "fired here: none"
    assert found["hosts"] == "bakery 1.2.3 can be attached to (adapter from bakery-hook 1.2.3)"
    assert found["attached"].endswith("(over) by auto: bakery 1.2.3")


@pytest.mark.slow
def test_doctor_names_host_version_and_what_is_missing(scratch: Scratch) -> None:
    (scratch.site / "bakery.py").write_text("def called(name): return name\n")

    checks = json.loads(scratch.cli("run", "--", scratch.python, "-m", "tau_live.cli", "doctor",
                                    "--json"))["checks"]  # fmt: skip

    found = {one["check"]: (one["state"], one["found"]) for one in checks}
    assert found["hosts"] == (
        "warn",
        "bakery 1.2.3 is disabled: bakery.call (adapter from bakery-hook 1.2.3)",
    )
    assert found["doors"] == ("ok", "fired here: run")


@pytest.mark.slow
@pytest.mark.parametrize("stored", [False, True], ids=["nothing stored yet", "a store is there"])
def test_doctor_tells_what_was_missing_in_a_process_that_is_over(
    scratch: Scratch, stored: bool
) -> None:
    if stored:
        scratch.said("-m", "tau_live.cli", "run", "agent.py", "rye")
    (scratch.site / "bakery.py").write_text("def called(name): return name\n")

    done = scratch.run("-m", "tau_live.cli", "run", "-c", "import bakery; print(bakery.called(1))")

    assert (done.stdout, done.returncode) == ("1\n", 0)
    assert done.stderr.count("\n") == 1
    assert "'adapter_disabled' host='bakery' version='1.2.3' missing='bakery.call'" in done.stderr
    checks = json.loads(scratch.cli("doctor", "--json"))["checks"]
    told = [one for one in checks if one["check"] == "attached"]
    assert told[0]["found"].endswith("(over) by run: no host")
    assert (told[1]["state"], told[1]["found"].partition(": ")[2]) == (
        "warn",
        "bakery 1.2.3 disabled: bakery.call",
    )
    assert (scratch.folder / ".tau").stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_settings_that_are_refused_leave_one_line_and_nothing_else(scratch: Scratch) -> None:
    environ = scratch.environ(TAU_LIVE_RL_QUEUE_LIMIT="none")

    done = scratch.run("-m", "tau_live.cli", "run", "agent.py", "rye", environ=environ)

    assert (done.stdout, done.returncode) == ("ran rye\n", 0)
    assert done.stderr.count("\n") == 1, done.stderr
    assert not (scratch.folder / ".tau").exists()


@pytest.fixture
def named(bare: Scratch) -> Scratch:
    """Return an environment whose adapter has an entry point of its own."""
    bare.install("bakery", HOSTS_CODE)
    bare.install("bakery_hook", PLUGIN, NAMED)
    bare.write("agent.py", AGENT)
    return bare


@pytest.mark.slow
def test_an_adapter_with_an_entry_point_of_its_own_is_imported_after_its_host(
    named: Scratch,
) -> None:
    code = (
        "import tau_live.auto, sys\n"
        "print({'bakery_hook', 'numpy', 'pluggy', 'msgspec'} & {*sys.modules})\n"
        "import bakery; print('bakery_hook' in sys.modules, bakery.call('rye'))\n"
    )

    said = named.said("-c", code)

    assert said == "set()\nTrue ran rye\n"
    assert json.loads(named.cli("rollouts", "--json"))["rollouts"][0]["run_id"] == "rye"
    checks = json.loads(named.cli("doctor", "--json"))["checks"]
    expected = "bakery 1.2.3 can be attached to (adapter from bakery-hook 1.2.3)"
    assert expected in [one["found"] for one in checks]
    ours = f"smolagents is not installed here (adapter from tau-live {tau_live.__version__})"
    assert ours in [one["found"] for one in checks]


@pytest.mark.slow
def test_an_adapter_with_an_entry_point_of_its_own_can_be_left_out(named: Scratch) -> None:
    environ = named.environ(TAU_LIVE_RL_PLUGINS_OFF="bakery")

    done = named.run("-m", "tau_live.cli", "run", "agent.py", "rye", environ=environ)

    assert (done.stdout, done.returncode) == ("ran rye\n", 0)
    assert "excluded by TAU_LIVE_RL_PLUGINS_OFF" in done.stderr
    assert "excluded by TAU_LIVE_RL_PLUGINS_OFF" in named.cli("doctor", environ=environ)


@pytest.mark.slow
def test_what_is_no_adapter_is_refused_and_the_others_attach(scratch: Scratch) -> None:
    wrong = (
        "from tau_live.core.hookspecs import hookimpl\n@hookimpl\ndef register_hosts(register):\n"
    )
    scratch.install(
        "wrong", f"{wrong}    register('wrong', adapter='none')\n", "[tau_live]\nwrong = wrong\n"
    )

    done = scratch.run("-m", "tau_live.cli", "run", "agent.py", "rye")

    assert (done.stdout, done.returncode) == ("ran rye\n", 0)
    assert done.stderr.count("\n") == 1
    assert "'adapter_refused' host='wrong' error='expected an Adapter, got str'" in done.stderr
    assert "wrong is disabled: TypeError: expected an Adapter, got str" in scratch.cli("doctor")
    assert [one["run_id"] for one in json.loads(scratch.cli("rollouts", "--json"))["rollouts"]] == [
        "rye"
    ]


@pytest.mark.slow
def test_a_plugin_that_cannot_be_imported_does_not_hurt_the_host(scratch: Scratch) -> None:
    (scratch.site / "bakery_hook.py").write_text("raise RuntimeError('broken')\n")

    done = scratch.run("-c", "import tau_live.auto, bakery; print(bakery.call('rye'))")

    assert (done.stdout, done.returncode) == ("ran rye\n", 0)


@pytest.mark.slow
def test_what_is_detached_by_hand_is_left_alone_until_it_is_attached_again(
    scratch: Scratch,
) -> None:
    code = (
        "import tau_live, tau_live.auto, bakery\n"
        "bakery.call('a'); tau_live.detach(); bakery.call('b')\n"
        "tau_live.attach(); bakery.call('c')\n"
        "from tau_live.boot.boot import detach_hosts; detach_hosts(); bakery.call('d')\n"
    )

    scratch.said("-c", code)

    found = json.loads(scratch.cli("rollouts", "--json"))["rollouts"]
    assert sorted(one["run_id"] for one in found) == ["a", "c"]
