"""What an attachment changes of its host is put back, and stays away from what others changed."""

import gc
import importlib
import sys
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import wrapt

from tau_live_hooks.patches import MARK, Patches


class Host:
    """Has one method, and a subclass that has it from here."""

    def greet(self, name: str) -> str:
        return f"hello {name}"


class Guest(Host):
    """Has nothing of its own."""


class Anything:
    """Has every attribute, whatever it is called."""

    def __getattr__(self, name: str) -> "Anything":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self) -> str:
        return "hello"


ORIGINAL = vars(Host)["greet"]


@pytest.fixture(autouse=True)
def _as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "greet", ORIGINAL)


def loud(wrapped: Any, _instance: Any, args: Any, kwargs: Any) -> Any:
    return wrapped(*args, **kwargs) + "!"


def test_undoing_puts_back_the_very_thing_and_twice_is_once() -> None:
    patches = Patches()
    patches.wrap(Host, "greet", loud)
    wrapped = Host().greet("you")

    patches.undo()
    patches.undo()

    assert wrapped == "hello you!"
    assert vars(Host)["greet"] is ORIGINAL
    assert not patches.live


def test_a_second_attachment_wraps_nothing_while_the_first_is_live() -> None:
    first, second = Patches(), Patches()
    first.wrap(Host, "greet", loud)

    second.wrap(Host, "greet", loud)

    assert Host().greet("you") == "hello you!"
    second.wrap(Host, "greet", loud, again=True)
    assert Host().greet("you") == "hello you!!"


def test_who_wraps_after_us_keeps_that_and_ours_in_it_is_over() -> None:
    patches = Patches()
    in_force = patches.while_live(lambda: "running")  # type: ignore[arg-type, return-value]  # any answer
    patches.wrap(Host, "greet", loud)
    theirs = wrapt.FunctionWrapper(vars(Host)["greet"], loud)
    Host.greet = theirs  # type: ignore[method-assign]  # as others do

    patches.undo()

    assert vars(Host)["greet"] is theirs
    assert in_force() is None
    again = Patches()
    again.wrap(Host, "greet", loud)
    assert getattr(vars(Host)["greet"], MARK) is again
    again.undo()
    assert vars(Host)["greet"] is theirs


def test_a_method_is_wrapped_in_the_class_that_has_it() -> None:
    patches = Patches()

    patches.wrap_where_defined(Guest, "greet", loud)

    assert "greet" not in vars(Guest)
    assert Guest().greet("you") == "hello you!"
    patches.undo()
    assert vars(Host)["greet"] is ORIGINAL


def test_what_has_every_attribute_is_wrapped_all_the_same() -> None:
    own: Any = type("Own", (), {"greet": Anything()})
    patches = Patches()

    patches.wrap(own, "greet", loud)

    assert own.greet() == "hello!"


def test_an_attachment_that_raises_leaves_nothing_behind() -> None:
    patches = Patches()

    with pytest.raises(LookupError), patches:
        patches.wrap(Host, "greet", loud)
        raise LookupError("another layout")

    assert vars(Host)["greet"] is ORIGINAL


def test_the_last_change_is_undone_first() -> None:
    undone: list[int] = []
    patches = Patches()
    for number in (1, 2, 3):
        patches.add(partial(undone.append, number))

    patches.undo()

    assert undone == [3, 2, 1]


@pytest.mark.parametrize("undone", [False, True])
def test_a_module_that_is_imported_later_is_changed_unless_all_is_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undone: bool
) -> None:
    name = f"later_host_{undone}"
    (tmp_path / f"{name}.py").write_text("def greet(name): return f'hello {name}'\n")
    monkeypatch.syspath_prepend(tmp_path)
    patches = Patches()
    patches.when(name, lambda module: patches.wrap(module, "greet", loud))
    if undone:
        patches.undo()

    module = importlib.import_module(name)

    assert module.greet("you") == ("hello you" if undone else "hello you!")
    patches.undo()
    assert module.greet("you") == "hello you"
    del sys.modules[name]


@pytest.mark.slow
def test_a_class_of_the_hosts_user_is_not_kept_alive() -> None:
    patches = Patches()
    own = type("Own", (), {"greet": lambda _self: "hello"})
    gone = weakref.ref(own)
    patches.wrap(own, "greet", loud)

    del own
    gc.collect()

    assert gone() is None
    patches.undo()
