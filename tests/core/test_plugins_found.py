"""Plugins are found and checked before they are called; a wrong one is left out."""

import logging
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tau_live.core.errors import SettingsError
from tau_live.core.events import Event
from tau_live.core.hookspecs import Answer, DecisionRequest, hookimpl
from tau_live.core.plugins import Plugins
from tests.plugged import EVENT, REQUEST, Seen


class Misspelt:
    @hookimpl
    def observ(self, event: Event) -> None: ...


class WrongArguments:
    @hookimpl
    def observe(self, event: Event) -> None: ...

    @hookimpl
    def decide(self, question: DecisionRequest) -> None: ...


class Coroutine:
    @hookimpl
    async def observe(self, event: Event) -> None: ...


class Wrapping:
    @hookimpl(wrapper=True)
    def observe(self, event: Event) -> Iterator[None]:
        yield


class Hostile:
    @hookimpl
    def observe(self, event: Event) -> None: ...

    def __dir__(self) -> list[str]:
        raise RuntimeError("do not look at me")


@pytest.mark.parametrize(
    ("plugin", "problem"),
    [
        (Misspelt(), "implements 'observ', which is not a hook; hooks are observe, decide"),
        (Coroutine(), "implements 'observe' as a coroutine; hooks are plain functions"),
        (Wrapping(), "wraps 'observe'; wrappers are not called"),
        (WrongArguments(), "question"),
        (Hostile(), "RuntimeError: do not look at me"),
    ],
)
def test_a_plugin_that_is_wrong_is_left_out_in_a_host_and_an_error_at_the_command_line(
    plugin: object, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    host, command_line = Plugins(), Plugins(strict=True)
    seen = Seen()
    host.register(seen, name="seen")

    with caplog.at_level(logging.WARNING, logger="tau_live"):
        taken = host.register(plugin, name="wrong")
    with pytest.raises(SettingsError) as caught:
        command_line.register(plugin, name="wrong")

    assert not taken
    assert "plugin_left_out" in caplog.text
    assert problem in str(caught.value)
    assert problem in (host.report()[1].problem or "")
    host.tell("observe", EVENT)
    assert seen.events == [EVENT]


def test_a_name_is_given_once() -> None:
    plugins = Plugins()
    first = Seen()
    plugins.register(first, name="seen")

    taken = plugins.register(Seen(), name="seen")

    assert not taken
    plugins.tell("observe", EVENT)
    assert first.events == [EVENT]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., EntryPoint]:
    """Write a module that a package would install, and return its entry point."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name: str, source: str) -> EntryPoint:
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return EntryPoint(name=name, value=name, group="tau_live")

    return install


GOOD = """
from tau_live.core.hookspecs import Answer, hookimpl

@hookimpl
def decide(request):
    return Answer(option="large")
"""


def test_installed_plugins_are_loaded_and_one_that_cannot_be_imported_is_left_out(
    installed: Callable[..., EntryPoint], caplog: pytest.LogCaptureFixture
) -> None:
    entry_points = [
        installed("tau_test_bad", "import a_module_that_nobody_has"),
        installed("tau_test_good", GOOD),
        installed("tau_test_syntax", "def"),
        installed("tau_test_exits", "raise SystemExit(3)"),
    ]
    plugins = Plugins(strict=True)

    with caplog.at_level(logging.WARNING, logger="tau_live"):
        plugins.load(entry_points)

    assert plugins.decide(REQUEST) == Answer(option="large")
    report = {line.name: line for line in plugins.report()}
    assert report["tau_test_good"].hooks == ("decide",)
    assert (report["tau_test_bad"].problem or "").startswith(
        "cannot be imported: ModuleNotFoundError"
    )
    assert report["tau_test_syntax"].disabled
    assert caplog.text.count("plugin_left_out") == 3


def test_a_plugin_that_is_switched_off_is_not_even_imported(
    installed: Callable[..., EntryPoint],
) -> None:
    entry_point = installed("tau_test_off", GOOD)
    plugins = Plugins(off=["tau_test_off"])

    plugins.load([entry_point])

    assert "tau_test_off" not in sys.modules
    assert plugins.decide(REQUEST) is None


def test_an_object_of_a_name_that_is_switched_off_is_not_registered() -> None:
    plugins = Plugins(off=["seen"])

    taken = plugins.register(Seen(), name="seen")

    assert not taken
    assert not plugins.listening["observe"]


def test_nothing_is_installed_here_and_loading_works() -> None:
    plugins = Plugins()

    plugins.load()

    assert all(line.problem is None for line in plugins.report())
