"""A life in which somebody lies about some of the rewards, in a process of its own.

Run as a program with the share of lies and a seed; prints, as JSON, how often the worse option was
chosen at last, and how many rewards were refused. The settings come from the environment.
"""

import json
import random
import sys

import tau_live

RUNS = 200
LAST = 60
WORTH = {"good": 0.8, "bad": 0.2}


def live(lies: float, seed: int) -> dict[str, float]:
    """Decide between two options; a liar praises the worse one and damns the better."""
    rng = random.Random(seed)
    bad = 0.0
    for number in range(RUNS):
        with tau_live.run("poisoned", key=f"{seed}-{number}") as run:
            choice = run.decide("model", {"good": {"g": 1.0}, "bad": {"b": 1.0}}, default="good")
            id_ = run.id
        if number >= RUNS - LAST:
            bad += choice.option == "bad"
        if rng.random() < lies:
            value, source = float(choice.option == "bad"), f"user:{rng.randrange(3)}"
        else:
            value, source = float(rng.random() < WORTH[str(choice.option)]), "checked"
        tau_live.reward(value, run=id_, source=source, name="solved")
        if number % 20 == 19 and not tau_live.flush(60.0):
            raise SystemExit("not flushed")
    counters = tau_live.snapshot().get("counters")
    refused = counters.get("rewards_refused_source", 0) if isinstance(counters, dict) else 0
    return {"bad": bad / LAST, "refused": refused}


if __name__ == "__main__":
    print(json.dumps(live(float(sys.argv[1]), int(sys.argv[2]))))
    tau_live.detach()
