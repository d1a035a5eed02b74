"""The scripted host of the drill: a seed determines everything that it does."""

import random
from collections.abc import Iterator

from msgspec.structs import replace

from tau_live.core.events import Decision, Event, Reward, RunEnd, RunStart, Status
from tau_live.rl.features import WIDTH, encode, pack

HOST = "drill"
POINT = "route"
OPTIONS = ("search", "answer")
RUNS = 160
AT_ONCE = 8
"""Runs that are open at a time, so that an update finds some that have not ended."""

BEGINS_AT = 1_700_000_000.0
STEP_S = 0.25


def recording(seed: int) -> list[Event]:
    """Return the events of runs that overlap, each with one decision and a reward.

    Searching is right for long questions, answering for short ones; the host draws evenly.
    """
    rng = random.Random(seed)  # noqa: S311  # a script, no secret
    waiting = [list(_run(number, rng)) for number in range(RUNS)]
    current, waiting = waiting[:AT_ONCE], waiting[AT_ONCE:]
    events: list[Event] = []
    while current:
        run = current[rng.randrange(len(current))]
        events.append(run.pop(0))
        if not run:
            current.remove(run)
            current += waiting[:1]
            waiting = waiting[1:]
    return [
        replace(event, at=BEGINS_AT + STEP_S * place, seq=1 + place, pid=1)
        for place, event in enumerate(events)
    ]


def _run(number: int, rng: random.Random) -> Iterator[Event]:
    run_id, words = f"question-{number}", rng.randrange(1, 20)
    chosen = OPTIONS[rng.randrange(len(OPTIONS))]
    reward = float((words > 10) == (chosen == "search"))
    context = {"words": float(words)}
    encoded = pack(encode(context, [(option, None) for option in OPTIONS], width=WIDTH))
    yield RunStart(host=HOST, run_id=run_id, at=0.0, name="assistant")
    yield Decision(
        host=HOST, run_id=run_id, at=0.0, ordinal=1, point=POINT, options=OPTIONS,
        chosen=chosen, applied=chosen, propensity=0.5, probabilities=(0.5, 0.5), value=0.0,
        context=context, encoded=encoded,
    )  # fmt: skip
    yield RunEnd(host=HOST, run_id=run_id, at=0.0, status=Status.OK)
    yield Reward(host=HOST, run_id=run_id, at=0.0, name="solved", value=reward)
