"""Routing: choose one of three models, then accept its answer or escalate to a stronger one.

Right minus what was paid, known about 20 runs later, and for one run in ten never.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from tests.bench.cascade import MODELS, PRICES, Answers, answers, best_cascade
from tests.bench.harness import OURS, Bench, Contestant, Figures, Goal, main
from tests.bench.peers import peers
from tests.bench.players import EachStep, Features, Learner, Player, named, ours
from tests.bench.vectors import Vectors

ROLLOUTS = 3_000
DELAY = (10, 31)
NEVER = 0.1
DECIDE = Callable[[str, tuple[str, ...], Features], str]
VW_ARGUMENTS = (
    "--squarecb -q ca --gamma_scale 100",
    "--softmax --lambda 20 -q ca",
    "--synthcover -q ca -l 2",
    "--bag 5 -q ca",
    "--first 300 -q ca",
)
ALPHAS = {"ucb": (0.1, 0.3, 1.0), "ts": (0.1, 0.2)}


def answered(decide: DECIDE, found: Answers, place: int) -> float:
    """Let an agent answer one image, and return right minus cost."""
    model = decide("model", MODELS, seen(found, place))
    number = MODELS.index(model)
    paid = PRICES[number]
    while number < len(MODELS) - 1:
        after = {
            "by": MODELS[number],
            "said": str(found.said[number, place]),
            "confidence": float(found.confidence[number, place]),
            "margin": float(found.margin[number, place]),
        }
        if decide("answer", ("accept", "escalate"), after) == "accept":
            break
        number += 1
        paid += PRICES[number]
    return float(found.right[number, place]) - paid


def seen(found: Answers, place: int) -> Features:
    """Return what is known of an image before anybody was asked."""
    return {f"p{n}": float(value) for n, value in enumerate(found.pixels[place])}


def live(player: Player, found: Answers, *, seed: int, rollouts: int) -> list[float]:
    """Return what every run was worth, rewards coming late or never."""
    rng = np.random.default_rng([seed, 2])
    due: dict[int, list[tuple[str, float]]] = {}
    worth = []
    order = np.zeros(0, dtype=np.int64)
    for number in range(rollouts):
        if not len(order):
            order = rng.permutation(len(found.pixels))
        place, order = int(order[0]), order[1:]
        player.begin()
        worth.append(
            answered(lambda *asked: player.decide(asked[0], named(asked[1]), asked[2]),
                     found, place)
        )  # fmt: skip
        run, when, lost = player.end(), number + int(rng.integers(*DELAY)), rng.random() < NEVER
        if not lost:
            due.setdefault(when, []).append((run, worth[-1]))
        for known, value in due.pop(number, []):
            player.reward(known, value)
    return worth


def end(player: Player, held_out: Answers) -> float:
    """Return what the policy is worth by now: images never seen, no exploring, no learning."""
    found = [
        answered(
            lambda *asked: player.best(asked[0], named(asked[1]), asked[2]), held_out, place
        )
        for place in range(len(held_out.pixels))
    ]  # fmt: skip
    return float(np.mean(found))


def figures(player: Player, seed: int, rollouts: int) -> Figures:
    """Return the figures of one player."""
    stream, held_out = answers(seed)
    worth = live(player, stream, seed=seed, rollouts=rollouts)
    third = max(1, rollouts // 3)
    return {
        "live": float(np.mean(worth)),
        "first third": float(np.mean(worth[:third])),
        "last third": float(np.mean(worth[-third:])),
        "end": end(player, held_out),
    }


def play_ours(seed: int, *, rollouts: int = ROLLOUTS) -> Figures:
    """Play tau-live with default settings."""
    with ours(seed) as player:
        return figures(player, seed, rollouts)


def play_peer(make: Callable[[str, int], Learner], seed: int) -> Figures:
    """Play a peer, with a learner for each decision point."""
    return figures(EachStep(lambda point: make(point, seed)), seed, ROLLOUTS)


def play_fixed(seed: int) -> Figures:
    """Play the cascade that is the best of all in hindsight, on the very images that it meets."""
    stream, held_out = answers(seed)
    best = best_cascade(stream)
    return {"live": best.worth(stream), "end": best_cascade(held_out).worth(held_out)}


def play_alone(model: int, seed: int) -> Figures:
    """Play one model alone."""
    stream, held_out = answers(seed)
    found = [float(part.right[model].mean()) - PRICES[model] for part in (stream, held_out)]
    return {"live": found[0], "end": found[1]}


def vectors(point: str, seed: int) -> Vectors:
    """Return what makes vectors of the contexts of one decision point."""
    if point == "model":
        stream, _ = answers(seed)
        return Vectors(seen(stream, place) for place in range(len(stream.pixels)))
    return Vectors(answer_contexts())


def answer_contexts() -> list[Features]:
    """Return what may be seen of an answer, numbers at their most."""
    return [
        {"by": by, "said": str(digit), "confidence": 1.0, "margin": 1.0}
        for by in MODELS
        for digit in range(10)
    ]


BENCH = Bench(
    name="routing",
    goals=(Goal("live", 0.815), Goal("end", 0.835)),
    contestants=(
        Contestant(OURS, play_ours),
        *peers(play_peer, vectors, alphas=ALPHAS, arguments=VW_ARGUMENTS),
        Contestant("best fixed cascade", play_fixed, ("sklearn",)),
        *(
            Contestant(f"{name} alone", partial(play_alone, place), ("sklearn",))
            for place, name in enumerate(MODELS)
        ),
    ),
    note=(
        f"Right minus cost over {ROLLOUTS} runs; 'end' is the policy after them on 400 other "
        "images, without exploring. The cascade and its thresholds are chosen in hindsight, on "
        "the images that it is valued on. Peers are given what the run was worth for each of its "
        "steps; the best of their settings in hindsight is what counts."
    ),
)

if __name__ == "__main__":
    main(BENCH)
