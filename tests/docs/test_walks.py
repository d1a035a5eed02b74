"""The two walks of `docs/architecture.md`, held to the calls that are made."""

import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

import tau_live
from tau_live.core.settings import Learner, Settings
from tests.docs.blocks import blocks
from tests.docs.conftest import ROOT

PAGE = (ROOT / "docs/architecture.md").read_text()
WALKS = [block.text for block in blocks(PAGE) if "walk" in block.words]
UPDATE_EVERY = 8


def steps_of(walk: str) -> Iterator[tuple[str, str]]:
    """Yield the thread and the function of each line of a walk."""
    thread = ""
    for line in walk.splitlines():
        if line.startswith(" "):
            yield thread, line.strip()
        else:
            thread = line


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Return every call of ours by thread, in order, while runs are made and learned from."""
    seen: dict[str, list[str]] = defaultdict(list)

    def note(frame: FrameType, event: str, _: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("tau_live"):
            name = f"{module}.{frame.f_code.co_qualname}"
            seen[threading.current_thread().name].append(name)

    store = tmp_path_factory.mktemp("walks") / "store.sqlite"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TAU_LIVE_RL", "1")
        tau_live.detach()
        threading.setprofile(note)
        try:
            settings = Settings(store=store, learner=Learner.THREAD, update_interval=UPDATE_EVERY)
            assert tau_live.attach(settings) is not None
            threading.current_thread().name = "MainThread"
            sys.setprofile(note)
            for number in range(3 * UPDATE_EVERY):
                with tau_live.run("agent", key=number) as run:
                    choice = run.decide("model", ["small", "large"], context={"n": float(number)})
                    run.decide("tool", ["search", "none"])
                    run.reward(float(choice.option == "large"))
                if number % UPDATE_EVERY == UPDATE_EVERY - 1:  # or the writer might serve it first
                    assert tau_live.flush(60)
            sys.setprofile(None)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            tau_live.detach()
    return seen


def test_both_walks_are_written_down() -> None:
    assert [next(steps_of(walk))[1].rpartition(".")[2] for walk in WALKS] == ["decide", "reward"]


@pytest.mark.parametrize("walk", WALKS, ids=["decision", "reward"])
def test_every_function_of_a_walk_is_called_in_this_order(
    calls: dict[str, list[str]], walk: str
) -> None:
    after: dict[str, int] = defaultdict(int)
    for thread, function in steps_of(walk):
        made = calls[thread]
        assert function in made[after[thread] :], f"{function} is not called next in {thread}"
        after[thread] = made.index(function, after[thread]) + 1
