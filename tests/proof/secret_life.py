"""A life of an agent in a process of its own that puts secrets wherever a host can put anything.

Run as a program: reads the secrets from standard input as JSON (a list of texts), lives, says
``stored`` and waits for a line before it ends, so that its files can be looked at before and after.
"""

import json
import sys
from itertools import cycle

import pluggy

import tau_live
from tau_live.core.events import (
    Content,
    ErrorInfo,
    Message,
    ModelEnd,
    ModelStart,
    ToolCall,
    ToolEnd,
)
from tau_live.core.hookspecs import RewardPart, RolloutSummary, hookimpl

RUNS = 24


class _Leaking:
    """A plugin whose every error contains secrets."""

    def __init__(self, secrets: list[str]) -> None:
        self._secrets = cycle(secrets)

    @hookimpl
    def observe(self, event: object) -> None:
        raise RuntimeError(f"no connection with {next(self._secrets)}")

    @hookimpl
    def infer_reward(self, summary: RolloutSummary) -> list[RewardPart]:
        raise ValueError(f"judge refused {next(self._secrets)}")


def live(secrets: list[str]) -> None:
    """Use everything that is public, with secrets in all of it."""
    manager = pluggy.PluginManager("host")
    manager.register(_Leaking(secrets))
    tau_live.attach(manager)
    secret = cycle(secrets)
    for number in range(RUNS):
        _run_once(number, [next(secret) for _ in range(12)])
    print("flushed", tau_live.flush(30.0), flush=True)


def _run_once(number: int, s: list[str]) -> None:
    try:
        with tau_live.run(
            "support", key=f"{number}-{s[0]}", session=s[1], metadata={"env": [{"x": s[2]}]}
        ) as run:
            choice = tau_live.decide(
                "model",
                {"small": {"note": s[3]}, "large": None, s[4]: None},
                context={"header": s[5], "nested": {"list": [s[6]]}},
                default="small",
            )
            _steps(run.run_id, s)
            run.reward(float(number % 2), comment=f"because {s[7]}", name="solved", source=s[8])
            run.reward(s[9], decision=choice, key=s[10])
            if number % 3 == 0:
                raise ConnectionError(f"refused: {s[11]}")
    except ConnectionError:
        pass


def _steps(run_id: str, s: list[str]) -> None:
    runtime = tau_live.attach()
    if runtime is None:
        raise SystemExit("tau-live is off")
    common = {"host": "tau_live", "run_id": run_id, "at": 1.0}
    for event in (
        ModelStart(**common, agent=s[0], messages=Content(text=s[1]), params={"k": s[2]}),  # type: ignore[arg-type]  # plain data
        ModelEnd(**common, tool_calls=(ToolCall(id="1", name=s[3], args=Content(text=s[4])),)),  # type: ignore[arg-type]  # plain data
        Message(**common, role="user", content=Content(text=f"Hello {s[5]}, {s[6]}")),  # type: ignore[arg-type]  # plain data
        ToolEnd(**common, error=ErrorInfo(type="E", message=s[7]), raw={s[8]: s[9]}),  # type: ignore[arg-type]  # plain data
    ):
        runtime.emit(event)


if __name__ == "__main__":
    live(json.loads(sys.stdin.readline()))
    print("stored", flush=True)
    sys.stdin.readline()
    tau_live.detach()
