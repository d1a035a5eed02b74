"""Small tasks of many kinds: what they offer, and what each choice is worth."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tests.bench.cascade import MODELS, PRICES, Answers, answers
from tests.bench.players import Features, Options, Player, named
from tests.bench.routing import answer_contexts, answered, seen

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Draw = Callable[[float, np.random.Generator], float]


class Score(NamedTuple):
    """What a run was worth, and what chance and the best policy would have made of it."""

    worth: float
    chance: float
    best: float


class Task(NamedTuple):
    """Something to be learned.

    Attributes:
        runs: How many there are.
        play: Lets a player play one run, by its number; returns the expected score and the reward
            that the player is given for it.
        contexts: All contexts of a decision point, for peers that want to know them before.
        options: The features of all options; empty where they have none.
        delay: How many runs later a reward is known, from and below.
        never: The share of runs whose reward is never known.
    """

    runs: int
    play: Callable[[Player, int], tuple[Score, float]]
    contexts: Callable[[str], Sequence[Features]]
    options: Sequence[Features] = ()
    delay: tuple[int, int] = (0, 1)
    never: float = 0.0


def bernoulli(mean: float, rng: np.random.Generator) -> float:
    """Return 1 with this probability, else 0."""
    return float(rng.random() < mean)


def certain(mean: float, rng: np.random.Generator) -> float:
    """Return what is expected."""
    return mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A task of one step, as a table.

    Attributes:
        contexts: ``[N]``.
        options: What is offered in each run, in order.
        means: ``[N][A]``, what each option is expected to earn.
        rng: For the draws.
        draw: Makes a reward of what is expected.
        unlucky: How often the best option earns half of what the worst does, at first.
        default: What the host would do by itself.
    """

    contexts: Sequence[Features]
    options: Sequence[Options]
    means: Sequence[FloatArray]
    rng: np.random.Generator
    draw: Draw = bernoulli
    unlucky: int = 0
    default: str | None = None
    drawn: list[int] = field(default_factory=list)

    def played(self, player: Player, number: int) -> tuple[Score, float]:
        """Let a player choose once."""
        means, offered = self.means[number], self.options[number]
        context = self.contexts[number]
        option = player.decide("choice", offered, context, default=self.default)
        chosen = list(offered).index(option)
        best = int(np.argmax(means))
        mean = float(means[chosen])
        if chosen == best and len(self.drawn) < self.unlucky:
            self.drawn.append(number)
            mean = float(means.min()) * 0.5
        score = Score(float(means[chosen]), float(means.mean()), float(means[best]))
        return score, self.draw(mean, self.rng)

    def task(self, *, options: Sequence[Features] = ()) -> Task:
        """Return it as a task."""
        return Task(len(self.means), self.played, lambda _: self.contexts, options)


def classification(
    contexts: FloatArray, labels: IntArray, *, runs: int, rng: np.random.Generator
) -> Task:
    """Return the task of naming the class of rows of numbers."""
    classes = sorted(set(labels.tolist()))
    order = np.concatenate([rng.permutation(len(labels)) for _ in range(-(-runs // len(labels)))])
    rows = [{f"x{n}": float(v) for n, v in enumerate(contexts[place])} for place in order[:runs]]
    means = [np.array([float(labels[place] == one) for one in classes]) for place in order[:runs]]
    offered = named([f"class {one}" for one in classes])
    return Table(contexts=rows, options=[offered] * runs, means=means, rng=rng).task()


def digits(seed: int) -> Task:
    """Return scikit-learn's digits: 64 numbers, ten classes."""
    from sklearn.datasets import load_digits

    rows, labels = load_digits(return_X_y=True)
    return classification(rows, labels, runs=2_000, rng=np.random.default_rng([seed, 30]))


def of_river(name: str, seed: int, *, runs: int) -> Task:
    """Return a data set that ships with river."""
    from river import datasets

    rows, classes = zip(*getattr(datasets, name)(), strict=True)
    numbers = np.array([[float(value) for value in row.values()] for row in rows])
    labels = np.unique([str(label) for label in classes], return_inverse=True)[1]
    return classification(numbers, labels, runs=runs, rng=np.random.default_rng([seed, 34]))


def lamps(seed: int) -> Task:
    """Return river's LED generator: seven lamps, each wrong in a tenth of cases, ten digits."""
    from river.datasets import synth

    rows, labels = zip(*synth.LED(seed=seed, noise_percentage=0.1).take(2_000), strict=True)
    numbers = np.array([[float(value) for value in row.values()] for row in rows])
    rng = np.random.default_rng([seed, 35])
    return classification(numbers, np.array(labels), runs=2_000, rng=rng)


def docstrings(seed: int) -> Task:
    """Return the docstrings of scipy's functions, each for the package that it is in.

    Of each the first 60 words, of those that are in more than 11 and less than half of them.
    """
    import importlib
    import inspect
    import re

    packages = ("stats", "signal", "linalg", "optimize", "special", "ndimage", "sparse",
                "interpolate")  # fmt: skip
    texts: list[tuple[list[str], int]] = []
    for label, package in enumerate(packages):
        module = importlib.import_module(f"scipy.{package}")
        for name in module.__all__:
            text = inspect.getdoc(getattr(module, name)) or ""
            if callable(getattr(module, name)) and len(text) > 100:
                texts.append((re.findall("[a-z]{2,}", text.lower())[:60], label))
    count = Counter(word for words, _ in texts for word in set(words))
    known = {word for word, found in count.items() if 11 < found < len(texts) // 2}
    rng = np.random.default_rng([seed, 36])
    order = np.concatenate([rng.permutation(len(texts)) for _ in range(2)])[:2_000]
    contexts: list[Features] = [
        {"text": " ".join(word for word in texts[place][0] if word in known)} for place in order
    ]
    means = [np.arange(len(packages)) == texts[place][1] for place in order]
    offered = named(packages)
    return Table(
        contexts=contexts,
        options=[offered] * len(order),
        means=[mean.astype(float) for mean in means],
        rng=rng,
    ).task()


def synthetic(classes: int, seed: int) -> Task:
    """Return a classification of scikit-learn's making."""
    from sklearn.datasets import make_classification

    rows, labels = make_classification(
        n_samples=2_000, n_features=20, n_informative=12 if classes > 5 else 6, n_redundant=4,
        n_classes=classes, n_clusters_per_class=1, class_sep=1.5, flip_y=0.02,
        random_state=seed + 1,
    )  # fmt: skip
    rng = np.random.default_rng([seed, classes])
    return classification(rows, labels, runs=1_000 + 100 * classes, rng=rng)


def wine(seed: int) -> Task:
    """Return scikit-learn's wines: 13 numbers of very different size, three classes."""
    from sklearn.datasets import load_wine

    rows, labels = load_wine(return_X_y=True)
    return classification(rows, labels, runs=800, rng=np.random.default_rng([seed, 31]))


def cancer(seed: int) -> Task:
    """Return scikit-learn's breast cancer: 30 numbers, two classes."""
    from sklearn.datasets import load_breast_cancer

    rows, labels = load_breast_cancer(return_X_y=True)
    return classification(rows, labels, runs=1_000, rng=np.random.default_rng([seed, 32]))


def moons(seed: int) -> Task:
    """Return two classes that no line parts."""
    from sklearn.datasets import make_moons

    rows, labels = make_moons(n_samples=2_000, noise=0.15, random_state=seed + 1)
    return classification(rows, labels, runs=2_000, rng=np.random.default_rng([seed, 33]))


def tickets(seed: int) -> Task:
    """Return texts of twenty topics, each for one of four teams."""
    rng = np.random.default_rng([seed, 41])
    words = [f"w{n}" for n in range(400)]
    teams = rng.permutation(np.arange(20) % 4)
    own = [rng.choice(400, 15, replace=False) for _ in range(20)]
    common = 1.0 / np.arange(1, 401)
    contexts: list[Features] = []
    means = []
    for topic in rng.integers(20, size=2_000).tolist():
        said = [*rng.choice(own[topic], 6), *rng.choice(400, 8, p=common / common.sum())]
        contexts.append({"text": " ".join(words[n] for n in rng.permutation(said))})
        means.append(np.where(np.arange(4) == teams[topic], 0.9, 0.1))
    offered = named(["billing", "sales", "technical", "legal"])
    return Table(contexts=contexts, options=[offered] * 2_000, means=means, rng=rng).task()


def articles(seed: int, *, linear: bool) -> Task:
    """Return ten articles of a hundred each time, described by five numbers and a kind."""
    rng = np.random.default_rng([seed, 51 + linear])
    runs, size = 1_500, 5
    taste = rng.normal(size=(size, size))
    described = rng.normal(size=(100, size))
    kinds = rng.integers(4, size=100)
    extra = rng.normal(scale=0.7, size=4)
    features: list[Features] = [
        {**{f"a{n}": float(v) for n, v in enumerate(row)}, "kind": f"k{kind}"}
        for row, kind in zip(described, kinds, strict=True)
    ]
    contexts: list[Features] = []
    offered: list[Options] = []
    means = []
    for _ in range(runs):
        user, places = rng.normal(size=size), rng.choice(100, 10, replace=False)
        items = described[places]
        if linear:
            liking = items @ taste @ user / size + extra[kinds[places]]
            mean = 1.0 / (1.0 + np.exp(-liking))
        else:
            mean = np.exp(-((items[:, :2] - user[:2]) ** 2).sum(axis=1) / 2.0)
        contexts.append({f"u{n}": float(v) for n, v in enumerate(user)})
        offered.append({f"article {n}": features[n] for n in places})
        means.append(mean)
    named_features = [{**one, "name": f"article {n}"} for n, one in enumerate(features)]
    return Table(contexts=contexts, options=offered, means=means, rng=rng).task(
        options=named_features
    )


def arms(seed: int, *means: float, runs: int, unlucky: int = 0) -> Task:
    """Return options without any context."""
    rng = np.random.default_rng([seed, 61])
    shuffled = rng.permutation(np.array(means))
    offered = named([f"arm {n}" for n in range(len(means))])
    return Table(
        contexts=[{}] * runs,
        options=[offered] * runs,
        means=[shuffled] * runs,
        rng=rng,
        unlucky=unlucky,
    ).task()


def habits(seed: int, *, good: bool) -> Task:
    """Return four models for five kinds of question, and a host with a good or a poor habit.

    The default is good everywhere and best nowhere, or the worst everywhere.
    """
    rng = np.random.default_rng([seed, 65])
    runs, kinds = 1_500, ("code", "mail", "math", "talk", "news")
    means = rng.uniform(0.3, 0.5, size=(5, 4))
    means[np.arange(5), rng.integers(1, 4, size=5)] = 0.75
    means[:, 0] = 0.65 if good else 0.15
    asked = rng.integers(5, size=runs).tolist()
    offered = named([f"model {n}" for n in range(4)])
    return Table(
        contexts=[{"kind": kinds[n], "length": int(rng.integers(1, 2_000))} for n in asked],
        options=[offered] * runs,
        means=[means[n] for n in asked],
        rng=rng,
        default="model 0",
    ).task()


def clicks(seed: int) -> Task:
    """Return clicks that are rare: 0.5 to 6 in a hundred, depending on who sees what."""
    rng = np.random.default_rng([seed, 71])
    groups, runs = ("new", "known", "loyal"), 5_000
    rates = rng.choice([0.005, 0.01, 0.02, 0.06], size=(3, 5))
    rates[np.arange(3), rng.integers(5, size=3)] = 0.06
    who = rng.integers(3, size=runs).tolist()
    offered = named([f"banner {n}" for n in range(5)])
    return Table(
        contexts=[{"group": groups[n]} for n in who],
        options=[offered] * runs,
        means=[rates[n] for n in who],
        rng=rng,
    ).task()


def latencies(seed: int) -> Task:
    """Return rewards that are negative, large and noisy: milliseconds, by the size of a request."""
    rng = np.random.default_rng([seed, 81])
    runs = 1_000
    sizes = rng.lognormal(6.0, 1.0, size=runs)
    means = [-np.array([300.0 + s, 900.0 + 0.4 * s, 1_500.0]) for s in sizes]
    return Table(
        contexts=[{"tokens": float(s), "hour": int(rng.integers(24))} for s in sizes],
        options=[named(["small", "medium", "large"])] * runs,
        means=means,
        rng=rng,
        draw=lambda mean, rng: mean * float(rng.lognormal(-0.08, 0.4)),
    ).task()  # fmt: skip


def categories(
    seed: int,
    worth: Callable[[IntArray, np.random.Generator], Sequence[FloatArray]],
    *,
    kinds: tuple[int, ...],
    options: int,
    runs: int = 2_000,
) -> Task:
    """Return a world that is a table: what an option is worth depends on categories alone.

    Args:
        seed: Of everything.
        worth: Returns ``[runs][options]`` from the categories ``[runs, len(kinds)]``.
        kinds: How many values each category has.
        options: How many there are.
        runs: How many there are.
    """
    rng = np.random.default_rng([seed, 66, len(kinds), options])
    values = np.stack([rng.integers(most, size=runs) for most in kinds], axis=1)
    contexts: list[Features] = [
        {f"c{n}": f"v{value}" for n, value in enumerate(row)} for row in values.tolist()
    ]
    offered = named([f"option {n}" for n in range(options)])
    return Table(
        contexts=contexts, options=[offered] * runs, means=worth(values, rng), rng=rng
    ).task()


def pairs(seed: int) -> Task:
    """Return four options, of which the right one depends on two categories together."""

    def worth(values: IntArray, rng: np.random.Generator) -> Sequence[FloatArray]:
        right = rng.integers(4, size=(4, 4))[values[:, 0], values[:, 1]]
        return list(np.where(np.arange(4) == right[:, None], 0.8, 0.3))

    return categories(seed, worth, kinds=(4, 4, 5), options=4)


def rare(seed: int) -> Task:
    """Return three options; one is good, and another much better in one case of twenty."""

    def worth(values: IntArray, rng: np.random.Generator) -> Sequence[FloatArray]:
        means = np.tile([0.6, 0.3, 0.3], (len(values), 1))
        means[values[:, 0] == rng.integers(20)] = [0.1, 0.9, 0.3]
        return list(means)

    return categories(seed, worth, kinds=(20,), options=3)


def many(seed: int) -> Task:
    """Return thirty options, one of which is right for each of three categories."""

    def worth(values: IntArray, rng: np.random.Generator) -> Sequence[FloatArray]:
        right = rng.permutation(30)[values[:, 0]]
        return list(np.where(np.arange(30) == right[:, None], 0.8, 0.2))

    return categories(seed, worth, kinds=(3,), options=30)


def changing(seed: int, what: str) -> Task:
    """Return five models for six kinds of question, until something changes half-way.

    Args:
        seed: Of everything.
        what: ``permuted``: each model is worth what another one was. ``broken``: the best of
            most kinds earns nothing. ``outage``: for 150 runs nothing earns anything. ``drift``:
            what models are worth turns slowly all the time.
    """
    runs, half = 3_000, 1_500

    def worth(values: IntArray, rng: np.random.Generator) -> Sequence[FloatArray]:
        means = rng.uniform(0.2, 0.5, size=(6, 5))
        means[np.arange(6), rng.integers(5, size=6)] = 0.85
        found = means[values[:, 0]]
        if what == "permuted":
            found[half:] = np.roll(found[half:], 1, axis=1)
        elif what == "broken":
            best = np.bincount(means.argmax(axis=1), minlength=5).argmax()
            found[half:, best] = 0.0
        elif what == "outage":
            found[half : half + 150] = 0.0
        else:
            phase = rng.uniform(0.0, 2.0 * np.pi, size=(6, 5))
            turn = 2.0 * np.pi * np.arange(runs)[:, None] / runs
            found = 0.5 + 0.35 * np.sin(phase[values[:, 0]] + turn)
        return list(found)

    return categories(seed, worth, kinds=(6, 3), options=5, runs=runs)


def coming_and_going(seed: int) -> Task:
    """Return six options at a time out of thirty, of which some leave and others come."""
    rng = np.random.default_rng([seed, 91])
    runs = 1_500
    means = rng.beta(2.0, 2.0, size=30)
    wants = rng.integers(2, size=30)
    contexts: list[Features] = []
    offered: list[Options] = []
    tables = []
    for number in range(runs):
        first = number * 24 // runs
        places = rng.permutation(np.arange(first, first + 6))
        kind = int(rng.integers(2))
        contexts.append({"kind": ("question", "task")[kind]})
        offered.append(named([f"tool {n}" for n in places]))
        tables.append(means[places] * np.where(wants[places] == kind, 1.0, 0.4))
    return Table(contexts=contexts, options=offered, means=tables, rng=rng).task()


@dataclass(frozen=True, slots=True)
class Chain:
    """A task of several steps, valued at its end alone.

    In each step the right option follows from what is seen. ``planned``: a first choice, whose
    right answer follows from the kind of task, decides what the steps after it need.
    """

    rng: np.random.Generator
    wanted: IntArray
    kinds: IntArray
    seen: Sequence[IntArray]
    all_of_them: bool
    planned: bool

    OPTIONS = ("search", "calculate", "ask")
    PLANS = ("quick", "thorough")

    def played(self, player: Player, number: int) -> tuple[Score, float]:
        """Let a player make one chain of choices."""
        seen, kind, plan = self.seen[number], int(self.kinds[number]), 0
        right: list[bool] = []
        if self.planned:
            known: Features = {"kind": ("short", "long")[kind], "noise": float(self.rng.normal())}
            plan = self.PLANS.index(player.decide("plan", named(self.PLANS), known))
            right.append(plan == kind)
        for step, state in enumerate(seen.tolist()):
            option = player.decide(
                "step",
                named(self.OPTIONS),
                {"step": step, "sees": f"s{state}", "plan": self.PLANS[plan]},
            )
            right.append(self.OPTIONS.index(option) == self.wanted[plan, state])
        worth = float(all(right)) if self.all_of_them else float(np.mean(right))
        odds = [1.0 / 2.0] * self.planned + [1.0 / 3.0] * len(seen)
        chance = float(np.prod(odds)) if self.all_of_them else float(np.mean(odds))
        return Score(worth, chance, 1.0), bernoulli(0.05 + 0.9 * worth, self.rng)

    def contexts(self, point: str) -> Sequence[Features]:
        """Return all that may be seen."""
        if point == "plan":
            return [{"kind": kind, "noise": at} for kind in ("short", "long") for at in (-3.0, 3.0)]
        return [
            {"step": step, "sees": f"s{state}", "plan": plan}
            for step in range(5)
            for state in range(4)
            for plan in self.PLANS
        ]


def chain(
    seed: int,
    *,
    steps: tuple[int, int],
    runs: int,
    all_of_them: bool = False,
    planned: bool = False,
) -> Task:
    """Return a task of several steps; ``steps`` is the fewest and the most."""
    rng = np.random.default_rng([seed, 101 + steps[1] + 10 * planned])
    wanted = rng.integers(3, size=(2, 4))
    seen = [rng.integers(4, size=int(rng.integers(steps[0], steps[1] + 1))) for _ in range(runs)]
    found = Chain(rng, wanted, rng.integers(2, size=runs), seen, all_of_them, planned)
    return Task(runs, found.played, found.contexts)


@dataclass(frozen=True, slots=True)
class Support:
    """An agent of three decisions, valued together: a model, a tool, an answer.

    Which tool is right depends on the question, and for one model on another question; which
    answer is right depends on the tool that was taken.
    """

    rng: np.random.Generator
    questions: IntArray
    models: FloatArray
    tools: FloatArray
    answers: FloatArray

    MODELS = ("small", "middle", "large")
    TOOLS = ("search", "database", "none")
    ANSWERS = ("short", "long", "ask")

    def played(self, player: Player, number: int) -> tuple[Score, float]:
        """Let a player make the three decisions."""
        question = int(self.questions[number])
        context: Features = {"question": f"q{question}"}
        model = self.MODELS.index(player.decide("model", named(self.MODELS), context))
        tool = self.TOOLS.index(player.decide("tool", named(self.TOOLS), context))
        answer = self.ANSWERS.index(player.decide("answer", named(self.ANSWERS), context))
        worth = (
            self.models[question][:, None, None]
            * self.tools[question][:, :, None]
            * self.answers[question][None]
        )
        mean = float(worth[model, tool, answer])
        score = Score(mean, float(worth.mean()), float(worth.max()))
        return score, bernoulli(mean, self.rng)

    def contexts(self, _: str) -> Sequence[Features]:
        """Return all that may be seen."""
        return [{"question": f"q{question}"} for question in range(6)]


def support(seed: int) -> Task:
    """Return an agent of three decisions, with rewards 50 runs late and a fifth of them never."""
    rng = np.random.default_rng([seed, 120])
    models = rng.uniform(0.5, 0.95, size=(6, 3))
    tools = rng.uniform(0.4, 0.7, size=(6, 3, 3))
    answers = rng.uniform(0.4, 0.8, size=(6, 3, 3))
    tools[np.arange(6)[:, None], np.arange(3), rng.integers(3, size=(6, 3))] = 1.0
    answers[np.arange(6)[:, None], np.arange(3), rng.integers(3, size=(6, 3))] = 1.0
    found = Support(rng, rng.integers(6, size=2_000), models, tools, answers)
    return Task(2_000, found.played, found.contexts, delay=(40, 61), never=0.2)


@dataclass(frozen=True, slots=True)
class Escalation:
    """Three classifiers of different price, as in the bench of routing: right minus cost."""

    found: Answers
    order: IntArray

    def played(self, player: Player, number: int) -> tuple[Score, float]:
        """Let a player answer one image."""
        place = int(self.order[number])
        worth = answered(
            lambda point, options, context: player.decide(point, named(options), context),
            self.found, place,
        )  # fmt: skip
        alone = np.array(
            [float(self.found.right[model, place]) - PRICES[model] for model in range(len(MODELS))]
        )
        return Score(worth, float(alone.mean()), float(alone.max())), worth

    def contexts(self, point: str) -> Sequence[Features]:
        """Return all that may be seen."""
        if point == "model":
            return [seen(self.found, place) for place in range(len(self.found.pixels))]
        return answer_contexts()


def escalation(seed: int) -> Task:
    """Return the escalation of images, with rewards 10 to 30 runs late and a tenth never."""
    stream, _ = answers(seed)
    rng = np.random.default_rng([seed, 121])
    order = np.concatenate([rng.permutation(len(stream.pixels)) for _ in range(3)])[:2_000]
    found = Escalation(stream, order)
    return Task(len(order), found.played, found.contexts, delay=(10, 31), never=0.1)


TASKS: Mapping[str, Callable[[int], Task]] = {
    "2 classes": lambda seed: synthetic(2, seed),
    "5 classes": lambda seed: synthetic(5, seed),
    "20 classes": lambda seed: synthetic(20, seed),
    "wine": wine,
    "breast cancer": cancer,
    "moons": moons,
    "tickets": tickets,
    "articles, linear": lambda seed: articles(seed, linear=True),
    "articles, not linear": lambda seed: articles(seed, linear=False),
    "digits": digits,
    "segments": lambda seed: of_river("ImageSegments", seed, runs=2_000),
    "phishing": lambda seed: of_river("Phishing", seed, runs=1_250),
    "bananas": lambda seed: of_river("Bananas", seed, runs=2_000),
    "lamps": lamps,
    "docstrings": docstrings,
    "0.50 or 0.45": lambda seed: arms(seed, 0.5, 0.45, runs=2_000),
    "0.60 or 0.50, unlucky": lambda seed: arms(seed, 0.6, 0.5, runs=1_500, unlucky=15),
    "ten arms": lambda seed: arms(seed, *np.linspace(0.3, 0.6, 10).tolist(), runs=2_000),
    "good habit": lambda seed: habits(seed, good=True),
    "poor habit": lambda seed: habits(seed, good=False),
    "clicks": clicks,
    "pairs": pairs,
    "rare": rare,
    "many": many,
    "permuted": lambda seed: changing(seed, "permuted"),
    "broken": lambda seed: changing(seed, "broken"),
    "outage": lambda seed: changing(seed, "outage"),
    "drift": lambda seed: changing(seed, "drift"),
    "latencies": latencies,
    "coming and going": coming_and_going,
    "chain, 3 to 5 steps": lambda seed: chain(seed, steps=(3, 5), runs=1_000),
    "chain, all of 3": lambda seed: chain(seed, steps=(3, 3), runs=1_500, all_of_them=True),
    "plan and 3 steps": lambda seed: chain(seed, steps=(3, 3), runs=1_500, planned=True),
    "support": support,
    "escalation": escalation,
}


def task_of(name: str, seed: int, *, most: int | None = None) -> Task:
    """Return a task of this name for a seed, perhaps with fewer runs."""
    task = TASKS[name](seed)
    return task if most is None else task._replace(runs=min(most, task.runs))
