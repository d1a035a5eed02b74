"""Cases of the public door and of what adapters call, in a process that is attached."""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import tau_live
from tau_live.core import events as ev
from tau_live.core.choices import Choice
from tau_live.decisions.runs import PendingDecision, RunHandle
from tau_live.runtime import adapters
from tau_live.runtime.runtime import Runtime
from tests.proof.inputs_events import disordered, event_with, good, hints
from tests.proof.inputs_surface import GOOD, MINE, Called, surface
from tests.proof.inputs_tally import Tally
from tests.proof.inputs_values import Named, Values

CASES_A_RUN = 25
PROMPTS = {"brief": "Answer in one word.", "thorough": "Think, then answer."}
"""Options of the declared decision ``prompt``."""
STEPS = (ev.ToolStart, ev.ToolEnd, ev.ModelStart, ev.ModelEnd, ev.Message, ev.Policy, ev.Handoff)
WEIGHTS: Mapping[str, int] = {
    "tau_live.decide": 12, "Run.decide": 30, "Runtime.decide": 8, "tau_live.reward": 10,
    "Run.reward": 10, "tau_live.run": 10, "RunContext.__call__": 6, "Runtime.emit": 30,
    "Runtime.tell": 10, "Runtime.begin_run": 4, "PendingDecision.settle": 4,
    "RunContext.__exit__": 2,
}  # fmt: skip
RARE: Mapping[str, float] = {
    "tau_live.flush": 0.002, "Runtime.flush": 0.002, "tau_live.detach": 0.0005,
    "tau_live.snapshot": 0.05, "Runtime.snapshot": 0.05, "tau_live.attach": 0.05,
    "Runtime.add_target": 0.05,
}  # fmt: skip
_UNSEEN = frozenset(
    {"range", "bytes", "bytearray", "memoryview", "array", "a counting iterator", "numpy array",
     "numpy objects", "numpy 0-d", "model", "user dict", "chain map", "100 MB of bytes",
     "a million numbers", "an array of 8 MB", "object whose __iter__ has no end"}
)  # fmt: skip
"""Values that yield other objects every time, which cannot be compared."""


class HostsOwnError(Exception):
    """Raised by a host's function, which must get it back."""

    def __str__(self) -> str:
        raise ValueError


class Live:
    """Makes one case after the other.

    Args:
        tally: Counts their faults.
        seed: With the number of a case it determines everything about it.
    """

    def __init__(self, tally: Tally, seed: int) -> None:
        self.tally = tally
        self.taken: Counter[str] = Counter()
        self._seed = seed
        self._surface = surface()
        self._weighed = [*self._surface]
        self._weights = [float(RARE.get(n, WEIGHTS.get(n, 1))) for n in self._weighed]
        self._cases: dict[str, Callable[[Called], None]] = {
            "tau_live.decide": self._decide, "Run.decide": self._decide,
            "Runtime.decide": self._decide, "tau_live.prompt": self._prompt,
            "Run.prompt": self._prompt, "tau_live.reward": self._reward,
            "Run.reward": self._reward, "Runtime.reward": self._reward,
            "tau_live.run": self._run, "RunContext.__call__": self._decorated,
            "Runtime.emit": self._emit, "Runtime.tell": self._tell,
            "Runtime.begin_run": self._begin, "Runtime.end_run": self._begin,
            "PendingDecision.settle": self._settle, "offered.options": self._declare,
            "tau_live.detach": self._detach, "Runtime.report_failure": self._failed,
            **dict.fromkeys([n for n in self._surface if n.startswith("RunContext.__")],
                            self._left),
            **dict.fromkeys(["RunContext.begin", "RunContext.step", "RunContext.finish"],
                            self._stepped),
        }  # fmt: skip
        self._cases["RunContext.__call__"] = self._decorated
        self.values = Values(random.Random(seed))
        self.run: tau_live.Run | None = None

    def many(self, numbers: Iterator[int]) -> None:
        """Make cases, some of them within one run."""
        context = None
        for n, number in enumerate(numbers):
            if n % CASES_A_RUN == 0:
                if context is not None:
                    context.__exit__(None, None, None)
                context = tau_live.run("host", key=f"{self._seed}-{number}")
                self.run = context.__enter__()
            self.make_case(number)
        if context is not None:
            context.__exit__(None, None, None)

    def make_case(self, number: int) -> None:
        """Make one case: a call with at least one bad argument, and what belongs to it."""
        rng = random.Random(f"{self._seed}:{number}")
        self.values = Values(rng)
        self.number = number
        called = self._surface[rng.choices(self._weighed, self._weights)[0]]
        self.tally.case = f"--only {number} {called.name}"
        self._cases.get(called.name, self._any)(called)

    def each(self, called: Called, argument: str, bad: Named) -> None:
        """Make the case in which one argument of one call is one value of the catalogue."""
        self.tally.case = f"{called.name}({argument}={bad.name})"
        self.values = _Fixed(random.Random(7), argument, bad)
        self.number = 0
        self._cases.get(called.name, self._any)(called)

    def uncovered(self) -> list[str]:
        """Return the cases whose call does not exist."""
        return [n for n in self._cases if n not in self._surface]

    def _arguments(self, called: Called) -> dict[str, Any]:
        """Return an argument for each name, at least one of them bad; and name the case."""
        wanted = [name for name in called.arguments if name not in MINE]
        rng, values = self.values.rng, self.values
        fixed = values if isinstance(values, _Fixed) else None
        worst = fixed.argument if fixed else rng.choice(wanted) if wanted else ""
        given: dict[str, Any] = {}
        for name in wanted:
            if name == worst or (fixed is None and rng.random() < 0.2):
                bad_value = fixed.bad if fixed else values.any()
                self.tally.case += f" {name}={bad_value.name}"
                given[name] = bad_value.value
            else:
                given[name] = rng.choice(GOOD[name])
        return given

    def _any(self, called: Called) -> None:
        given = self._arguments(called)
        if called.name.startswith("Runtime."):
            self.tally.timed(called.function, tau_live.attach(), **given)
        else:
            self.tally.timed(called.function, **given)

    def _decide(self, called: Called) -> None:
        given = self._arguments(called)
        options = given["options"]
        may = _identities(options)
        owner = called.name.partition(".")[0]
        first: list[Any] = []
        if owner == "Run" and self.run is not None:
            first = [self.run]
        elif owner == "Runtime":
            first = [tau_live.attach(), self.run.handle if self.run else None]
        choice = self.tally.timed(called.function, *first, **given)
        self.tally.check(type(choice) is Choice, "not offered", "no choice")
        if not isinstance(choice, Choice):
            return
        self.taken["decisions" if choice.id else "decisions refused"] += 1
        self._check(choice, may, given)

    def _check(self, choice: Choice, may: set[int], given: Mapping[str, Any]) -> None:
        option, default, options = choice.option, given["default"], given["options"]
        known = not any(f"options={name}" in self.tally.case for name in _UNSEEN)
        if known and option is not None and option is not default:
            self.tally.check(id(option) in may, "not offered", f"a {type(option).__name__}")
        allowed = given["allowed"]
        if option is None and default is None and allowed is None and type(options) is list:
            nothing = not options or any(option is None for option in options)
            self.tally.check(nothing, "not offered", "nothing")
        if (type(allowed) is list or type(allowed) is tuple) and all(
            type(option) is str for option in allowed
        ):
            within = option is None or type(option) is not str or option in allowed
            self.tally.check(within, "not offered", "not allowed")

    def _prompt(self, called: Called) -> None:
        given = self._arguments(called)
        context = tau_live.run("prompts")
        with context as run:
            first = [run] if called.name == "Run.prompt" else []
            text = self.tally.timed(called.function, *first, **given)
            decided = run.handle is not None and run.handle.decision_count > 0
        known = text is given["own"] or text in PROMPTS.values()
        self.tally.check(known, "not offered", f"a {type(text).__name__} as prompt")
        self.taken["runs"] += 1
        self.taken["decisions" if decided else "decisions refused"] += 1

    def _reward(self, called: Called) -> None:
        given = self._arguments(called)
        owner = called.name.partition(".")[0]
        first: list[Any] = []
        if owner == "Run" and self.run is not None:
            first = [self.run]
        elif owner == "Runtime":
            first = [tau_live.attach()]
            given["inside"] = given["around"] = self.run.handle if self.run else None
        taken = self.tally.timed(called.function, *first, **given)
        self.tally.check(type(taken) is bool, "odd", "no truth")
        self.taken["rewards" if taken else "rewards refused"] += 1

    def _run(self, called: Called) -> None:
        context = self.tally.timed(called.function, **self._arguments(called))
        if context is None:
            return
        self.taken["runs"] += 1
        error = HostsOwnError() if self.values.rng.random() < 0.2 else None
        if self.values.rng.random() < 0.2:
            asyncio.run(self._within(context, error))
            return
        run = self.tally.timed(context.__enter__)
        self.tally.check(tau_live.current() is run, "odd", "another run is the current one")
        self.tally.timed(context.__exit__, type(error) if error else None, error, None)

    async def _within(self, context: Any, error: Exception | None) -> None:
        run = await context.__aenter__()
        self.tally.check(tau_live.current() is run, "odd", "another run is the current one")
        await context.__aexit__(type(error) if error else None, error, None)

    def _left(self, called: Called) -> None:
        """Leave a run twice, or without having entered it, with any error."""
        context: Any = tau_live.run("left")
        if self.values.rng.random() < 0.7:
            self.taken["runs"] += 1
            self.tally.timed(context.__enter__)
        error = HostsOwnError()
        for _ in range(2):
            self.tally.timed(context.__exit__, HostsOwnError, error, None)

    def _stepped(self, called: Called) -> None:
        context = tau_live.run("stepped")
        if self.values.rng.random() < 0.7:
            self.taken["runs"] += 1
            self.tally.timed(context.begin)
        step = self.tally.timed(context.step)
        if step is not None:
            with step:
                pass
        self.tally.timed(context.finish, HostsOwnError() if called.arguments else None)

    def _decorated(self, called: Called) -> None:
        """Call a decorated function of any kind, with a bad argument and a bad key."""
        bad, key = self.values.any(), self.values.any()
        self.tally.case += f" argument={bad.name} key={key.name}"
        kind = self.values.rng.choice(("plain", "coroutine", "generator", "asyncgen", "object"))
        context = tau_live.run("decorated", key=lambda *_: key.value)
        if kind == "object":
            self.tally.timed(context, bad.value)  # whether it can be called is seen when it is
            return
        function = _functions(bad.value)[kind]
        wrapped = self.tally.timed(context, function)
        self.taken["runs"] += 1
        result = _called_to_end(kind, wrapped)
        self.tally.check(result is bad.value, "odd", "another result")

    def _emit(self, called: Called) -> None:
        runtime = tau_live.attach()
        at = self.values.rng.random()
        if at < 0.1:
            for name, event in disordered(self.values.rng, self.number):
                self.tally.case = f"--only {self.number} {name}"
                self._emitted(runtime, event)
            return
        bad_value = self.values.any()
        name, event = (bad_value.name, bad_value.value) if at < 0.15 else event_with(self.values)
        self.tally.case += f" {name}"
        self._emitted(runtime, event)

    def _emitted(self, runtime: Runtime | None, event: Any) -> None:
        if runtime is not None:
            taken = self.tally.timed(runtime.emit, event)
            kind = event.event if taken else ""
            self.taken[f"events {kind}" if taken else "events refused"] += 1

    def _tell(self, called: Called) -> None:
        runtime, kind = tau_live.attach(), self.values.rng.choice(STEPS)
        _, event = event_with(self.values, wanted=kind)
        names = [*hints(kind)][-6:]
        fields = {name: getattr(event, name) for name in names if name not in ("event", "raw")}
        bad_value = self.values.any()
        fields[self.values.rng.choice(tuple(fields))] = bad_value.value
        self.tally.case += f" {kind.__name__} {bad_value.name}"
        if runtime is not None and self.run is not None and self.run.handle is not None:
            self.tally.timed(runtime.tell, self.run.handle, kind, fields)
            self.taken["adapter steps"] += 1

    def _begin(self, called: Called) -> None:
        runtime = tau_live.attach()
        given = self._arguments(self._surface["Runtime.begin_run"])
        fields = {"agent": self.values.any().value, "trigger": good(str, self.values.rng)}
        given |= {"host": "fuzz-host", "fields": fields, "parent": None, "resumed": None}
        if runtime is None:
            return
        handle = self.tally.timed(runtime.begin_run, **given)
        self.taken["others' runs"] += 1
        if isinstance(handle, RunHandle):
            cost = {"cost_usd": fields["agent"]}
            self.tally.timed(runtime.end_run, handle, HostsOwnError(), cost)

    def _settle(self, called: Called) -> None:
        runtime, unsettled = tau_live.attach(), list[PendingDecision]()
        given = self._arguments(self._surface["Run.decide"])
        if runtime is None or self.run is None or self.run.handle is None:
            return
        choice = self.tally.timed(
            partial(runtime.decide, unsettled=unsettled),
            self.run.handle,
            given.pop("point"),
            **given,
        )
        for decision in unsettled:
            self.tally.timed(decision.settle, self.values.rng.choice((None, "replaced")))
            self.tally.timed(decision.settle)
        self.taken["decisions" if choice and choice.id else "decisions refused"] += 1

    def _declare(self, called: Called) -> None:
        """Declare anything: it is read, and may be refused, only when its point is reached."""
        given = self._arguments(called)
        given["point"] = f"declared {self.values.rng.randrange(5)}"
        self.tally.timed(lambda: adapters.options(**given)(dict))

    def _detach(self, called: Called) -> None:
        """Detaching waits and starting anew takes threads: neither is timed, nor other cases'."""

    def _failed(self, called: Called) -> None:
        """Adapters report their own failures, three of which in a row have to hold the gate."""


class _Fixed(Values):
    """One bad value for one argument."""

    def __init__(self, rng: random.Random, argument: str, bad: Named) -> None:
        super().__init__(rng)
        self.argument = argument
        self.bad = bad

    def any(self) -> Named:
        return self.bad


_GROUPS: tuple[Any, ...] = (list, tuple, deque, set, frozenset, dict)


def _identities(options: Any) -> set[int]:
    """Return the identities of the offered objects, without calling any of them."""
    ids = {id(options), id("a")}
    for kind in _GROUPS:
        if issubclass(type(options), kind):
            ids.update(map(id, kind.__iter__(options)))
    if type(options) is type(iter([])):
        inside = options.__reduce__()[1]
        ids.update(map(id, inside[0]))
    return ids


def _functions(result: Any) -> dict[str, Callable[..., Any]]:
    def plain() -> object:
        return result

    async def coroutine() -> object:
        return result

    def generator() -> Iterator[object]:
        yield result

    async def asyncgen() -> Any:
        yield result

    return {"plain": plain, "coroutine": coroutine, "generator": generator, "asyncgen": asyncgen}


def _called_to_end(kind: str, function: Any) -> object:
    async def collected() -> list[object]:
        return [item async for item in function()]

    if kind == "generator":
        return next(iter(function()))
    if kind == "asyncgen":
        return asyncio.run(collected())[0]
    return asyncio.run(function()) if kind == "coroutine" else function()
