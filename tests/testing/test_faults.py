"""The suite for adapters finds what is wrong with one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tau_live.decisions.runs import RunHandle
from tau_live.runtime.adapters import Adapter, Detach, InForce
from tau_live.runtime.runtime import Runtime
from tau_live.testing.conditions import faults, full_disk_faults
from tau_live.testing.expected import Scenario
from tau_live.testing.golden import golden_faults, write_golden
from tau_live_hooks.common import RunBook

pytestmark = pytest.mark.slow


class Bakery:
    """A host of one function, which its adapter wraps."""

    ask: Callable[[str], str] = staticmethod(lambda order: f"baked {order}")


def play(scenario: Scenario) -> str:
    return Bakery.ask(scenario.value)


def wrapped(around: Callable[[InForce, Callable[[], str]], str]) -> Adapter:
    """Return an adapter that does this around everything the host does."""

    def attach(in_force: InForce) -> Detach:
        original = Bakery.ask
        Bakery.ask = staticmethod(lambda order: around(in_force, lambda: original(order)))

        def detach() -> None:
            Bakery.ask = staticmethod(original)

        return detach

    return Adapter(host="bakery", module="bakery", probe=lambda: None, attach=attach)


def begun(runtime: Runtime) -> RunHandle:
    return runtime.begin_run(
        "bake", key=None, session=None, metadata=None, parent=None, host="bakery"
    )


def watched(in_force: InForce, bake: Callable[[], str]) -> str:
    """Tell one turn with one answer, and keep what fails from the host."""
    try:
        runtime = in_force()
        book = None if runtime is None else RunBook(runtime, begun(runtime), agent="baker")
    except RuntimeError:
        book = None
    baked = bake()
    if book is not None:
        try:
            book.begin_turn()
            book.start_model("model:1", {"streaming": True})
            book.note_token("model:1")
            book.end_model("model:1", {}, usage={"output_tokens": 3.0}, cost=0.5)
            book.end(None, {})
        except RuntimeError:
            pass
    return baked


def unguarded(in_force: InForce, bake: Callable[[], str]) -> str:
    runtime = in_force()
    if runtime is not None:
        runtime.end_run(begun(runtime), None)
    return bake()


def changing(in_force: InForce, bake: Callable[[], str]) -> str:
    return bake() if in_force() is None else bake().upper()


def blind(_in_force: InForce, bake: Callable[[], str]) -> str:
    return bake()


def test_an_adapter_that_tells_all_has_no_faults(tmp_path: Path) -> None:
    adapter = wrapped(watched)

    assert faults(adapter, play, Scenario.STREAMING, folder=tmp_path) == []


@pytest.mark.parametrize(
    ("adapter", "said"),
    [
        pytest.param(wrapped(blind), "the ends of the rollouts", id="it sees nothing"),
        pytest.param(wrapped(unguarded), "broken on purpose", id="it hurts the host"),
        pytest.param(wrapped(changing), "instead of 'baked one_turn'", id="it changes the host"),
    ],
)
def test_what_is_wrong_is_said(adapter: Adapter, said: str, tmp_path: Path) -> None:
    assert said in " ".join(faults(adapter, play, Scenario.ONE_TURN, folder=tmp_path))


def test_a_missing_part_of_the_host_is_a_fault(tmp_path: Path) -> None:
    adapter = Adapter(
        host="bakery", module="bakery", probe=lambda: "Bakery.run", attach=wrapped(blind).attach
    )

    found = faults(adapter, play, Scenario.ONE_TURN, folder=tmp_path)

    assert found == ["bakery does not fit the adapter: Bakery.run is missing"]


def test_a_recording_that_is_not_the_same_any_more_is_shown(tmp_path: Path) -> None:
    golden, folder = tmp_path / "golden", tmp_path / "folder"
    folder.mkdir()
    cannot = [scenario for scenario in Scenario if scenario is not Scenario.ONE_TURN]
    write_golden(wrapped(watched), play, golden=golden, cannot=cannot)

    same = golden_faults(
        wrapped(watched), play, Scenario.ONE_TURN, golden=golden, folder=_in(folder, "same")
    )
    other = golden_faults(
        wrapped(blind), play, Scenario.ONE_TURN, golden=golden, folder=_in(folder, "other")
    )
    none = golden_faults(wrapped(blind), play, Scenario.RETRY, golden=golden, folder=folder)

    assert same == []
    assert [line for line in other if line.startswith("-{")]
    assert none == ["there is no recording of retry: there is no retry.jsonl"]


def _in(folder: Path, name: str) -> Path:
    found = folder / name
    found.mkdir()
    return found


ADAPTER = wrapped(watched)


def test_a_full_disk_is_really_full(tmp_path: Path) -> None:
    here = "tests.testing.test_faults"

    found = full_disk_faults(f"{here}:ADAPTER", f"{here}:play", Scenario.ONE_TURN, folder=tmp_path)

    assert found == []
