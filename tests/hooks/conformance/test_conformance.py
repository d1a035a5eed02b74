"""Every adapter passes what every adapter has to, on its host and from its recordings."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

from tau_live.runtime.adapters import Adapter
from tau_live.testing.conditions import faults, full_disk_faults
from tau_live.testing.expected import Play, Scenario
from tau_live.testing.golden import golden_faults, golden_version, host_version, replay_faults

GOLDEN = Path(__file__).parents[1] / "golden"

pytestmark = pytest.mark.slow


class Case(NamedTuple):
    """A way to use a host.

    Attributes:
        host: Its module in ``tau_live_hooks``.
        module: The module here that plays scenarios on it.
        needs: Modules without which it is skipped.
        play: The function that plays.
        cannot: The module's scenarios that this way does not have, with the reasons.
        golden: The folder of its recordings; empty if there are none of their own.
    """

    host: str
    module: str
    needs: tuple[str, ...]
    play: str = "play"
    cannot: str = "CANNOT"
    golden: str = ""


CASES = {
    "langchain": Case(
        "langchain", "langchain_play", ("langchain", "langgraph"), golden="langchain"
    ),
    "llm": Case("llm", "llm_play", ("llm",), golden="llm"),
    "llm-async": Case("llm", "llm_async_play", ("llm",), golden="llm-async"),
    "llm-routed": Case("llm", "llm_play", ("llm",), play="routed"),
    "llm-async-routed": Case("llm", "llm_async_play", ("llm",), play="routed"),
    "openai-agents": Case(
        "openai_agents", "openai_agents_play", ("agents.run",), golden="openai-agents"
    ),
    "opentelemetry": Case(
        "opentelemetry", "opentelemetry_play", ("opentelemetry.sdk", "pydantic_ai"),
        golden="opentelemetry",
    ),
    "pydantic-ai": Case("pydantic_ai", "pydantic_ai_play", ("pydantic_ai",), golden="pydantic-ai"),
    "smolagents": Case("smolagents", "smolagents_play", ("smolagents",), golden="smolagents"),
    "smolagents-code": Case(
        "smolagents", "smolagents_play", ("smolagents",), play="play_code", cannot="CODE_CANNOT",
        golden="smolagents-code",
    ),
}  # fmt: skip


def _installed(case: Case) -> tuple[Adapter, ModuleType]:
    for module in case.needs:
        pytest.importorskip(module)
    adapter: Adapter = import_module(f"tau_live_hooks.{case.host}").ADAPTER
    return adapter, import_module(f"tests.hooks.conformance.{case.module}")


def _play(case: Case, module: ModuleType) -> Play:
    play: Play = getattr(module, case.play)
    return play


def _skip(cannot: Mapping[Scenario, str], scenario: Scenario) -> None:
    if scenario in cannot:
        pytest.skip(cannot[scenario])


@pytest.mark.parametrize("scenario", Scenario)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_adapter_conforms(case: Case, scenario: Scenario, tmp_path: Path) -> None:
    adapter, module = _installed(case)
    _skip(getattr(module, case.cannot), scenario)

    assert faults(adapter, _play(case, module), scenario, folder=tmp_path) == []


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_full_disk_changes_nothing_for_the_host(case: Case, tmp_path: Path) -> None:
    _, module = _installed(case)

    found = full_disk_faults(
        f"tau_live_hooks.{case.host}:ADAPTER",
        f"{module.__name__}:{case.play}",
        Scenario.TOOL_CALL,
        folder=tmp_path,
    )

    assert found == []


@pytest.mark.parametrize("scenario", Scenario)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.golden])
def test_a_recording_stays_the_same(name: str, scenario: Scenario, tmp_path: Path) -> None:
    case, golden = CASES[name], GOLDEN / CASES[name].golden
    adapter, module = _installed(case)
    _skip(module.CANNOT, scenario)
    recorded, here = golden_version(golden), host_version(adapter)
    if hasattr(module, "versions"):  # spans are of the host that makes them, too
        recorded, here = (golden / "versions.txt").read_text().strip(), module.versions()
    if recorded != here:
        pytest.skip(f"the recordings are of {recorded}, and this is {here}")

    assert (
        golden_faults(adapter, _play(case, module), scenario, golden=golden, folder=tmp_path) == []
    )


@pytest.mark.parametrize("scenario", Scenario)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.golden])
def test_a_recording_is_stored_like_a_play(name: str, scenario: Scenario, tmp_path: Path) -> None:
    case, golden = CASES[name], GOLDEN / CASES[name].golden
    adapter, module = _installed(case)
    _skip(module.CANNOT, scenario)

    assert (
        replay_faults(adapter, _play(case, module), scenario, golden=golden, folder=tmp_path) == []
    )
