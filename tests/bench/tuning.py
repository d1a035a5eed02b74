"""Tasks that no goal is set for, to choose defaults by without fitting them to the named benches.

Each figure is the share of what the best policy earns above chance that was earned while learning:
0 is choosing at random, 1 is perfect from the first run.
"""

from collections.abc import Callable
from functools import partial

from tests.bench.harness import OURS, Bench, Contestant, Figures, main
from tests.bench.players import EachStep, Learner, Player, ours
from tests.bench.tasks import TASKS, Task, task_of
from tests.bench.vectors import Vectors

VW_ARGUMENTS = (
    "--squarecb -q ca --gamma_scale 30 -l 2",
    "--synthcover -q ca -l 2",
    "--softmax --lambda 10 -q ca",
)
LINEAR = (("ucb", 0.3), ("ucb", 1.0), ("ts", 0.2))


def earned(task: Task, player: Player) -> float:
    """Return the share of the possible gain over chance, live."""
    got = possible = 0.0
    for number in range(task.runs):
        player.begin()
        score, reward = task.play(player, number)
        got += score.worth - score.chance
        possible += score.best - score.chance
        player.reward(player.end(), reward)
    return got / possible


def play_ours(name: str, seed: int, *, most: int | None = None) -> Figures:
    """Play tau-live with default settings."""
    with ours(seed) as player:
        return {name: earned(task_of(name, seed, most=most), player)}


def play_peer(make: Callable[[Task, str, int], Learner], name: str, seed: int) -> Figures:
    """Play a peer."""
    task = task_of(name, seed)
    return {name: earned(task, EachStep(lambda point: make(task, point, seed)))}


def linear(kind: str, alpha: float, task: Task, point: str, seed: int) -> Learner:
    """Return MABWiser's LinUCB or LinTS."""
    from tests.bench.peer_mabwiser import Linear

    return Linear(
        kind,
        alpha,
        contexts=Vectors(task.contexts(point)),
        options=Vectors(task.options) if task.options else None,
        seed=seed,
    )


def vw(arguments: str, task: Task, point: str, seed: int) -> Learner:
    """Return Vowpal Wabbit."""
    from tests.bench.peer_vw import VW

    return VW(arguments, seed=seed)


def contestants() -> list[Contestant]:
    """Return everybody, once for each task."""
    found = []
    for name in TASKS:
        found.append(Contestant(OURS, partial(play_ours, name), part=name))
        for kind, alpha in LINEAR:
            play = partial(play_peer, partial(linear, kind, alpha), name)
            found.append(Contestant(f"Lin{kind.upper()} {alpha}", play, ("mabwiser",), name))
        for arguments in VW_ARGUMENTS:
            play = partial(play_peer, partial(vw, arguments), name)
            title = f"VW {arguments.split()[0].removeprefix('--')}"
            found.append(Contestant(title, play, ("vowpalwabbit",), name))
    return found


BENCH = Bench(
    name="tuning",
    contestants=contestants(),
    note=("Live share of what the best policy earns above chance."),
)

if __name__ == "__main__":
    main(BENCH)
