"""Runs of openai-agents, and what is stored of them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import agents
import pytest
from agents import Agent, Runner

import tau_live
from tau_live.core.records import Reason, Rollout, RolloutStatus, Span
from tau_live.core.settings import Content, Learner, Settings
from tau_live_hooks.openai_agents import ADAPTER
from tests.live.running import opened, rollouts


@contextmanager
def attached(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Attach, without the host's own processor."""
    agents.set_trace_processors([])
    monkeypatch.setenv("TAU_LIVE_RL", "1")
    tau_live.detach()
    assert tau_live.attach(Settings(store=path, learner=Learner.OFF, content=Content.REDACTED))
    detach = ADAPTER.attach(tau_live.attach)
    try:
        yield
    finally:
        detach()
        tau_live.detach()


def ran(asked: Agent[Any], given: Any = "hello", **more: Any) -> Any:
    return asyncio.run(Runner.run(asked, given, **more))


def stored(path: Path) -> list[Rollout]:
    assert tau_live.flush()
    return rollouts(path)


def spans(path: Path, rollout: Rollout, kind: str) -> list[Span]:
    with opened(path) as store:
        found = store.rollouts.spans(rollout.rollout_id)
    return [span for span in found if span.kind == kind]


def ending(rollout: Rollout) -> tuple[RolloutStatus, Reason | None]:
    return rollout.status, rollout.reason


def read(asked: Agent[Any], *, until: str = "", mode: Any = "immediate", **more: Any) -> list[str]:
    async def main() -> list[str]:
        result = Runner.run_streamed(asked, "hello", **more)
        seen = []
        async for event in result.stream_events():
            seen.append(getattr(event, "name", None) or getattr(event, "data", event).type)
            if seen[-1] == until:
                result.cancel(mode=mode)
        return seen

    return asyncio.run(main())
