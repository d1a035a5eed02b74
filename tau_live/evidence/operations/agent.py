"""An agent for the check of control: decides once for each line that it reads."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import tau_live
from tau_live.core.errors import TauLiveError
from tau_live.core.settings import Learner, Settings

POINT = "size"
OPTIONS = ("small", "large")
RUNS = 32
"""Runs from which it learns first; each eight of them make a version."""


def act(number: int) -> str:
    """Let one run decide, and reward it; return who decided."""
    with tau_live.run("agent", key=str(number)) as run:
        choice = run.decide(POINT, OPTIONS, context={"words": number % 7}, default="small")
        run.reward(float(choice.option == "large"))
    return str(choice.source)


def serve(store: Path) -> None:
    """Learn, and then answer each line with who decides, and with which version.

    Raises:
        TauLiveError: It cannot be attached.
    """
    settings = replace(Settings(store=store), learner=Learner.FLUSH, update_interval=8)
    if tau_live.attach(settings) is None:
        raise TauLiveError("the agent cannot be attached: tau-live is off")
    for number in range(RUNS):
        act(number)
        if number % 8 == 7:
            tau_live.flush(30.0)
    number = RUNS
    for _ in sys.stdin:
        source = act(number)
        serving = tau_live.snapshot()["policies_in_service"]
        version = serving.get(POINT, 0) if isinstance(serving, dict) else 0
        print(json.dumps({"source": source, "version": version}), flush=True)  # noqa: T201
        number += 1
