"""Every callback of an adapter gets what no host should hand over, in the midst of real runs.

While a real host plays, each of its calls to one of our callbacks is made some more times: with
the host's own objects, but spoiled. A value in them is one of the catalogue of bad values, an
attribute raises or is missing, an entry is too much; the step of the host's own that the callback
is to make returns or raises something as bad. Whatever that is, the callback has to hand it on as
it is, once, and raise nothing else; and what the host plays meanwhile has to stay as it was.
"""

import copy
import gc
import inspect
import random
import sqlite3
import threading
import time
from asyncio import CancelledError
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial, wraps
from operator import is_
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tau_live
from tau_live.core.sanitize import Limits, plain
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredDecision
from tau_live.runtime.adapters import Adapter
from tests.hooks.hostile_steps import Step, read
from tests.hooks.hostile_values import BadValues, FacelessError, HostsOwnError, spoiled
from tests.proof.inputs_hostile import HostileError
from tests.proof.inputs_tally import Tally

EACH = 4
"""So often a call of the host is made again, spoiled."""

CASES = 500
"""So many cases at least, shared by all callbacks of an adapter."""

PLAYS = 10
"""So often the host plays at most until there are enough."""

MOST_P99, MOST = 0.5, 3.0
"""What a callback may take, of the processor and in the host's thread, beside ``_reading_ms``."""

HANDED = frozenset({"wrapped", "handler", "ask", "make", "chain", "execute", "write"})
"""By what name a callback is given the host's own step."""

ITEMS = 3
POINTS = (
    DeclaredDecision(point="prompt", options={"kind": "{instructions} Be kind."}),
    DeclaredDecision(point="params", options={"cool": {"temperature": 0.0}}),
    DeclaredDecision(point="tools", options={"one": ["look"]}),
    DeclaredDecision(point="tool_gate", options={"no": "Not now."}),
    DeclaredDecision(point="retry", options={"yes": True}),
)
"""What is decided meanwhile: in shadow, as all that begins, so that the host's own is served."""


class _Ended(NamedTuple):
    """How a callback ended: what it returned, or what it raised."""

    result: Any
    error: BaseException | None


class Fuzz:
    """Makes the cases of one adapter.

    Args:
        seed: Determines them.
        cases: So many at least.
        steps: By callback's name the kind of step of the host's own that it makes, and under which
            name it is given; one that is not named has none, and has to return nothing.
        own: By callback's name the argument that it has to return, where it makes no step.
        raises: Likewise the one that it has to raise.
        free: Callbacks that return something of ours, which is not compared.
        around: Returns what a callback is called on, where the host's step is made by that.
        inside: Returns what is inside of what a callback returned, where it is ours.
        meanwhile: Does what the host does in its step, with what it is given by name.
        kept: Named arguments that stay good: what a user gives, for the host to call.

    Attributes:
        tally: What came of them.
        cases: So many are wanted.
        made: How many there are, by callback.
    """

    def __init__(
        self,
        seed: int,
        *,
        cases: int = CASES,
        steps: Mapping[str, str],
        own: Mapping[str, str] | None = None,
        raises: Mapping[str, str] | None = None,
        free: Collection[str] = (),
        around: Callable[[Any, Step], Any] | None = None,
        inside: Callable[[Any], Any] = lambda found: found,
        meanwhile: Callable[[BadValues, Mapping[str, Any]], None] = lambda *_: None,
        kept: Collection[str] = (),
    ) -> None:
        BadValues.make()
        self.tally = Tally()
        self.made: Counter[str] = Counter()
        self._seed = seed
        self.cases = cases
        self._steps = steps
        self._own = own or {}
        self._raises = raises or {}
        self._free = free
        self._around = around
        self._inside = inside
        self._meanwhile = meanwhile
        self._kept = kept
        self._names = list[str]()
        self._lock = threading.RLock()
        self._busy = threading.local()

    @contextmanager
    def watching(self, *owners: tuple[type, list[str]]) -> Iterator[None]:
        """Make the cases of these classes' methods for as long as this lasts."""
        kept = [(owner, name, vars(owner)[name]) for owner, names in owners for name in names]
        self._names += [name for _, name, _ in kept]
        for owner, name, method in kept:
            setattr(owner, name, self._instead(name, method))
        try:
            yield
        finally:
            for owner, name, method in kept:
                setattr(owner, name, method)

    def left(self) -> dict[str, int]:
        """Return the callbacks that have too few cases, and how many they have."""
        return {name: self.made[name] for name in self._names if self.made[name] < EACH}

    @property
    def is_enough(self) -> bool:
        """Whether every callback has its cases, and all together have theirs."""
        return not self.left() and self.made.total() >= self.cases

    @property
    def _most(self) -> int:
        return max(2 * EACH, self.cases * 2 // max(1, len(self._names)))

    def _instead(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(method):

            @wraps(method)
            async def later(*args: Any, **named: Any) -> Any:
                self._cases(name, method, args, named)
                return await method(*args, **named)

            return later

        @wraps(method)
        def now(*args: Any, **named: Any) -> Any:
            self._cases(name, method, args, named)
            return method(*args, **named)

        return now

    def _cases(
        self, name: str, method: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        if getattr(self._busy, "now", False) or self.made[name] >= self._most:
            return
        self._busy.now = True
        try:
            with self._lock:
                for _ in range(EACH if self.made[name] >= 10 * EACH else 4 * EACH):
                    self._case(name, method, args, named)
        finally:
            self._busy.now = False

    def _case(
        self, name: str, method: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
    ) -> None:
        self.made[name] += 1
        self.tally.case = f"{name} {self.made[name]}"
        values = BadValues(random.Random(f"{self._seed}:{name}:{self.made[name]}"))
        parameters = inspect.signature(method).parameters
        given = dict(inspect.signature(method).bind(*args, **named).arguments)
        own = given.pop(next(iter(parameters)))
        handed = next((one for one in ("handler", next(iter(given), "")) if one in given), "")
        handed = handed if handed in HANDED else ""
        rest = [one for one in given if one != handed]
        for one in values.rng.sample(rest, k=min(len(rest), values.rng.choice((1, 1, 2, 3)))):
            given[one] = _bad(values, parameters[one], given[one], self._kept)
        step = self._step(name, values)
        if step is not None and handed:
            given[handed] = step
        if values.rng.random() < 0.5:
            with suppress(Exception):  # proxies have no copies
                own = copy.copy(own)
        if step is not None and self._around is not None and not handed:
            own = self._around(own, step)
        bound = inspect.BoundArguments(
            inspect.signature(method), OrderedDict({next(iter(parameters)): own, **given})
        )
        found: list[_Ended] = []
        gc.disable()  # what it collects, and when, is the process's
        self.tally.timed(lambda *_: found.append(_ended(method, bound, step)), *given.values())
        gc.enable()
        if found:
            self._check(name, found[0], step, given)

    def _step(self, name: str, values: BadValues) -> Step | None:
        kind = self._steps.get(name)
        if kind is None:
            return None
        errors = (HostsOwnError(), FacelessError(), HostileError("host"), CancelledError())
        error = values.rng.choice((None, None, None, *errors))
        many = kind in {"generator", "asyncgen"}
        outcome: Any = [values.any().value for _ in range(ITEMS)] if many else values.any().value
        return Step(kind, outcome, error, meanwhile=partial(self._meanwhile, values))

    def _check(self, name: str, found: _Ended, step: Step | None, given: Mapping[str, Any]) -> None:
        check = self.tally.check
        if step is None:
            wanted = given[self._raises[name]] if name in self._raises else None
            check(found.error is wanted, "raised", repr(type(found.error)))
            if name not in self._free and wanted is None:
                wanted = given[self._own[name]] if name in self._own else None
                check(found.result is wanted, "odd", "it returns something else")
            return
        check(step.calls == 1, "odd", f"the host's step was made {step.calls} times")
        check(found.error is step.error, "raised", f"{type(found.error)} for {type(step.error)}")
        if step.error is None and _many(step):
            same = len(found.result) == ITEMS and all(map(is_, found.result, step.outcome))
            check(same, "odd", "it yields something else")
        elif step.error is None and name not in self._free:
            same = self._inside(found.result) is step.outcome
            check(same, "odd", "it returns something else")


def _many(step: Step) -> bool:
    return step.kind in {"generator", "asyncgen"}


def _bad(values: BadValues, parameter: inspect.Parameter, good: Any, kept: Collection[str]) -> Any:
    """Return a bad argument; those that stand for many stay as many."""

    def maybe(one: Any) -> Any:
        return spoiled(values, one) if values.rng.random() < 0.6 else one

    if parameter.name == "args" and type(good) is tuple:
        return tuple(map(maybe, good))
    if parameter.kind is parameter.VAR_KEYWORD or parameter.name in {"kwargs", "named"}:
        return {name: one if name in kept else maybe(one) for name, one in good.items()}
    return spoiled(values, good)


def _ended(method: Callable[..., Any], bound: inspect.BoundArguments, step: Step | None) -> _Ended:
    kind = "plain" if step is None else step.kind
    if inspect.iscoroutinefunction(method):
        kind = "coroutine"
    try:
        return _Ended(read(kind, method(*bound.args, **bound.kwargs)), None)
    except BaseException as error:
        return _Ended(None, error)


def faults(
    adapter: Adapter,
    fuzz: Fuzz,
    *owners: tuple[type, list[str]],
    play: Callable[[], str],
    path: Path,
    act: bool = True,
) -> list[str]:
    """Return what is wrong after the cases of an adapter, made while its host plays.

    Args:
        adapter: Attaches to the host.
        fuzz: Makes the cases.
        owners: The callbacks, as ``wrappers`` and ``callbacks`` find them.
        play: Lets the host do everything, and returns what its user sees.
        path: Of the store.
        act: Whether anything is decided meanwhile.
    """
    alone = play()
    tau_live.detach()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TAU_LIVE_RL", "1")
        runtime = tau_live.attach(
            Settings(store=path, act=act, decisions=POINTS, decide_deadline_ms=60_000.0)
        )
        with fuzz.watching(*owners):
            detach = adapter.attach(tau_live.runtime.api.in_force)
            seen, plays = play(), 1
            while not fuzz.is_enough and plays < PLAYS * fuzz.cases // CASES:
                seen, plays = play(), plays + 1
        stored, good = tau_live.flush(60.0), play()
        detach()
        found = [*fuzz.tally.words, *_of_the_end(path, fuzz, runtime)]
    for shown in (seen, good):
        pairs = zip(alone.splitlines(), shown.splitlines(), strict=False)
        found += [f"the host's user sees {two}, not {one}" for one, two in pairs if one != two]
    return [*found, *([] if stored else ["what was taken is not stored"])]


def _of_the_end(path: Path, fuzz: Fuzz, runtime: Any) -> list[str]:
    found = [f"{name} has {number} cases" for name, number in fuzz.left().items()]
    tally: Mapping[str, Any] = fuzz.tally.to_dict()
    if fuzz.made.total() < fuzz.cases:
        found.append(f"{fuzz.made.total()} cases: {fuzz.made}")
    reading_ms = _reading_ms()
    if tally["p99_ms"] > MOST_P99 * reading_ms or tally["longest_ms"] > MOST * reading_ms:
        found.append(f"p99 {tally['p99_ms']} ms, {tally['longest']} takes {tally['longest_ms']} ms")
    snapshot = runtime.snapshot()
    if snapshot["gate"]["state"] != "pass":
        found.append(f"the gate: {snapshot['gate']}")
    if not snapshot["refused"].get("host_objects_unread"):
        found.append(f"nothing is counted as left out: {snapshot['refused']}")
    tau_live.detach(60.0)
    with closing(sqlite3.connect(path)) as store:
        sound = store.execute("pragma integrity_check").fetchone()[0]
        ended = store.execute("select count(*) from rollouts where status = 'succeeded'").fetchone()
    if sound != "ok" or not ended[0]:
        found.append(f"integrity: {sound}, {ended[0]} succeeded")
    return found


def _reading_ms() -> float:
    """Return how long the largest value takes here that is read whole, of the processor."""
    largest: list[object] = []
    for _ in range(Limits().depth):
        largest = [largest, largest]
    took = []
    for _ in range(3):
        began = time.thread_time()
        plain(largest)
        took.append(time.thread_time() - began)
    return min(took) * 1e3


def wrappers(*owners: type, but: tuple[str, ...] = ("_",)) -> list[tuple[type, list[str]]]:
    """Return the methods that stand around a function of the host's, by what they take.

    Args:
        owners: Classes.
        but: How those begin that are none.
    """
    found = []
    for owner in owners:
        taken = {name: [*inspect.signature(one).parameters] for name, one in _methods(owner)}
        ends = {name: (len(names), names[-2:-1]) for name, names in taken.items()}
        names = [name for name, end in ends.items() if end == (WRAPPED, ["args"])]
        found.append((owner, [name for name in names if not name.startswith(but)]))
    return found


def _methods(owner: type) -> list[tuple[str, Any]]:
    return [(name, one) for name, one in vars(owner).items() if inspect.isfunction(one)]


WRAPPED = 5
"""What a wrapper takes: itself, what it wraps, whose that is, and both kinds of arguments."""


def callbacks(
    owner: type, begins: str = "", *, but: tuple[str, ...] = (), private: bool = False
) -> tuple[type, list[str]]:
    """Return the methods of a class that its host calls.

    Args:
        owner: The class.
        begins: How they begin, where others do not.
        but: How those begin that are ours alone.
        private: Whether its host calls some that begin with an underscore.
    """
    names = [
        name for name, _ in _methods(owner) if name.startswith(begins) and not name.startswith("__")
    ]
    hosts = [name for name in names if private or begins or not name.startswith("_")]
    return owner, [name for name in hosts if not name.startswith(but)] if but else hosts
