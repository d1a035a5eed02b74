"""Lessons: what is found, what ships, and what that is worth on tasks that were never seen.

In one world a rule helps, in one nothing helps, in one a lesson that looks right harms. The peer is
the published Training-Free GRPO, run from its own checkout; see `peer_youtu`.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click
import structlog

from tau_live.core.pools import FRAME
from tests.bench.harness import OURS, Bench, Contestant, Figures, Goal, main
from tests.bench.lesson_stub import RATES, RULE, attempt, share_right, tasks
from tests.experience.world import DATA, World

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models.function import AgentInfo

HERE = f"function/{__name__}"
INSTRUCTIONS = "Answer the question."
GROUPS, MEMBERS, EPOCHS, PEER_EPOCHS = 20, 5, 3, 7
SIZES = (GROUPS, 100, 200)
CHECKOUT, PYTHON = "TAU_LIVE_BENCH_YOUTU", "TAU_LIVE_BENCH_YOUTU_PYTHON"


def _model(world: str, messages: "list[ModelMessage]", info: "AgentInfo") -> "ModelResponse":
    from pydantic_ai.messages import ModelResponse, TextPart

    parts = [part for message in messages for part in message.parts]
    system = "".join(str(p.content) for p in parts if p.part_kind == "system-prompt")
    user = "".join(str(p.content) for p in parts if p.part_kind == "user-prompt")
    data, settings = DATA.search(user), info.model_settings or {}
    if data is None:
        return ModelResponse([TextPart(attempt(world, system, user, settings.get("seed")))])
    return ModelResponse([TextPart(json.dumps(_learned(system, json.loads(data[2]))))])


def _learned(system: str, data: Mapping[str, Any]) -> dict[str, object]:
    """Answer as the learner is asked: a summary, lessons, or what becomes of them."""
    if '"summary"' in system:
        return {"summary": "Gave an answer, with or without its unit."}
    if '"ops"' in system:
        add = [{"op": "ADD", "lesson": each["lesson"], "reason": "new"} for each in data["lessons"]]
        return {"ops": add}
    return {"lessons": [{"kind": "do", "when": "", "text": RULE}]}


def helps(messages: "list[ModelMessage]", info: "AgentInfo") -> "ModelResponse":
    """The model of the world in which the rule helps."""
    return _model("helps", messages, info)


def nothing(messages: "list[ModelMessage]", info: "AgentInfo") -> "ModelResponse":
    """The model of the world in which it changes nothing."""
    return _model("nothing", messages, info)


def harms(messages: "list[ModelMessage]", info: "AgentInfo") -> "ModelResponse":
    """The model of the world in which it harms."""
    return _model("harms", messages, info)


def play_ours(world: str, seed: int) -> Figures:
    """Learn lessons, and put what ships into the prompt."""
    with TemporaryDirectory(prefix="tau-live-bench-") as name, structlog.testing.capture_logs():
        own = World(
            Path(name), world, sizes=SIZES, sample_size=GROUPS, group_size=MEMBERS, epochs=EPOCHS,
            validation_repeats=1, workers=4, seed=seed,
        )  # fmt: skip
        own.given["model"] = f"{HERE}:{world}"
        run = own.run()
        found = own.test(run)
    blocks = [block for block in found["blocks"].values() if block]
    is_shipped = found["ship"] == "shipped" and bool(blocks)
    text = FRAME.replace("{instructions}", INSTRUCTIONS).replace("{block}", "\n".join(blocks))
    prompt = text if is_shipped else INSTRUCTIONS
    return _figures(world, prompt, seed, run.calls, shipped=is_shipped)


def play_youtu(world: str, seed: int) -> Figures:
    """Let the published method practise; its final instructions are what it ships."""
    checkout, python = os.environ.get(CHECKOUT), os.environ.get(PYTHON)
    if not checkout or not python:
        text = f"set {CHECKOUT} to a checkout of TencentCloudADP/youtu-agent, and {PYTHON} to a "
        raise click.ClickException(f"{text}Python in which it is installed; or use --no-peers")
    script = Path(__file__).with_name("peer_youtu.py")
    words = [checkout, world, str(seed), str(PEER_EPOCHS), str(GROUPS), str(MEMBERS)]
    done = subprocess.run([python, script, *words], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    shipped = bool(found["lessons"])
    return _figures(world, found["instructions"], seed, found["calls"], shipped=shipped)


def _figures(world: str, prompt: str, seed: int, used: int, *, shipped: bool) -> Figures:
    unseen = tasks("unseen", 1000, 50_000)
    return {
        f"{world}: right": share_right(world, prompt, unseen, seed),
        f"{world}: shipped": float(shipped),
        f"{world}: calls": float(used),
    }


def play_first(world: str, seed: int) -> Figures:
    """Change nothing."""
    return _figures(world, INSTRUCTIONS, seed, 0, shipped=False)


BENCH = Bench(
    name="lessons",
    needs=(),
    goals=(
        Goal("helps: right", 0.9),
        Goal("nothing: shipped", 0.105, at_least=False),
        Goal("harms: shipped", 0.0, at_least=False),
    ),
    contestants=tuple(
        contestant
        for world in RATES
        for contestant in (
            Contestant(OURS, partial(play_ours, world), part=world),
            Contestant("Training-Free GRPO", partial(play_youtu, world), part=world),
            Contestant("no lessons", partial(play_first, world), part=world),
        )
    ),
    note=(
        f"{GROUPS} tasks, {MEMBERS} attempts at each; {EPOCHS} epochs, and {PEER_EPOCHS} for the "
        "peer, which has as many calls so. `nothing: shipped` with 200 seeds and without peers is "
        "the rate of false alarms: at most 21 of 200."
    ),
)

if __name__ == "__main__":
    main(BENCH)
