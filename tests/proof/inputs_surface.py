"""Everything that a host can call, found in the package, with good values of each argument.

A new function is fuzzed as soon as it is there; a new argument needs its good value in ``GOOD``, or
the proof fails and names it.
"""

import inspect
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, NamedTuple

import tau_live
from tau_live.core.choices import Choice
from tau_live.decisions.choice import Decisions
from tau_live.decisions.runs import PendingDecision
from tau_live.runtime import adapters
from tau_live.runtime.api import Run, RunContext
from tau_live.runtime.runtime import Runtime

NOT_A_HOSTS = frozenset({
    "Runtime.abandon_run", "Runtime.close", "Runtime.count", "Runtime.failed_to_begin",
    "Runtime.start", "Runtime.stop", "Run.__init__", "RunContext.__init__",
})  # fmt: skip
"""Called by the door alone, with what it has read, or made by it alone."""

SLOW = frozenset({"tau_live.flush", "tau_live.detach", "tau_live.attach", "Runtime.flush"})
"""Calls that wait for the disk, or start and stop threads, with a documented limit."""


class Called(NamedTuple):
    """A function or method that a host can call.

    Attributes:
        name: Its name, such as ``tau_live.decide`` or ``Run.reward``.
        function: The function; a method's has the object as its first argument.
        arguments: The names of the other arguments.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[str, ...]


def surface() -> dict[str, Called]:
    """Return everything that a host or an adapter can call, by name."""
    callables = [
        _called(f"tau_live.{name}", getattr(tau_live, name), ())
        for name in tau_live.__all__
        if isinstance(getattr(tau_live, name), FunctionType)
    ]
    callables.append(_called("offered.options", adapters.options, ()))
    arguments = _called("Runtime.decide", Decisions.decide, ("self",)).arguments
    callables.append(Called("Runtime.decide", _decide, arguments))  # an attribute of each runtime
    for owner in (Run, RunContext, Runtime, PendingDecision):
        callables += [
            _called(f"{owner.__name__}.{name}", method, ("self",))
            for name, method in vars(owner).items()
            if isinstance(method, FunctionType) and (name[0] != "_" or name in _SPECIAL)
        ]
    return {call.name: call for call in callables if call.name not in NOT_A_HOSTS}


def _decide(runtime: Runtime, *given: Any, **named: Any) -> Choice:
    return runtime.decide(*given, **named)


_SPECIAL = frozenset({"__enter__", "__exit__", "__aenter__", "__aexit__", "__call__"})


def _called(name: str, function: Callable[..., Any], bound: tuple[str, ...]) -> Called:
    parameters = inspect.signature(function).parameters
    return Called(name, function, tuple(name for name in parameters if name not in bound))


OPTIONS = ("small", "large", "other")
ROWS: Mapping[str, Mapping[str, object]] = {
    "small": {"price": 0.1, "kind": "fast"},
    "large": {"price": 0.9, "kind": "a slow one of many words"},
}
GOOD: Mapping[str, tuple[object, ...]] = {
    "point": ("model", "tools"),
    "options": (OPTIONS, [*OPTIONS], ROWS, {"small": None, "large": None}),
    "own": ("You answer questions.", ""),
    "context": (None, {"words": 3.0, "kind": "x"}, {"words": 1}),
    "default": (None, "small", "large"),
    "allowed": (None, ["small"], OPTIONS),
    "exploit_only": (None, ["large"]),
    "exposure": (None, 0.5),
    "value": (1.0, True, 0, "good"),
    "name": ("reward", "quality"),
    "source": ("api", "user"),
    "key": ("", "k"),
    "comment": (None, "well done"),
    "session": (None, "s1"),
    "environ": (None, {"PATH": "/bin", "TAU_LIVE_RL": "1"}),
    "metadata": (None, {"user": 7}),
    "run": (None, "live-1"),
    "host": (None, "llm"),
    "claim": (None,),
    "decision": (None, "live-1:attempt-1:decision-1"),
    "target": (None,),
    "timeout_s": (0.0,),
    "error": (None, ValueError("the host's own")),
    "function": (len,),
    "every": ("run", "request"),
    "never": ((),),
    "kind": (None,),
    "traceback": (None,),
    "fields": ({},),
    "resumed": (None, {}),
    "event": (None,),
    "parent": (None,),
    "start": (None, 0.0, 1.0),
    "unsettled": (None,),
    "unread": (False, True),
    "instead": (None, "replaced"),
    "handle": (None,),
    "inside": (None,),
    "around": (None,),
    "prompts": ((),),
}
"""Good values of every argument by its name, whichever function has it."""

MINE = frozenset(
    {"around", "handle", "inside", "parent", "prompts", "unsettled", "kind", "traceback", "start"}
)
"""Arguments that are ours, an adapter's own, or the interpreter's: never a host's."""


def missing(callables: Mapping[str, Called]) -> list[str]:
    """Return the arguments without a good value."""
    arguments = {(call.name, name) for call in callables.values() for name in call.arguments}
    return sorted(f"{call}: {name}" for call, name in arguments if name not in GOOD)
