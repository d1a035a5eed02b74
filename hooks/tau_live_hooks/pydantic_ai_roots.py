"""Where ours goes among the capabilities of a run of pydantic-ai; imported with the host alone.

What is to be known of an agent's own capabilities, and what they are together with ours, is found
out once: to arrange them anew for each run took an eighth of a trivial one's time. A run that has
capabilities of its own resolves the names of models once for the agent's and once for its own, and
makes a model for each; so names are resolved as if ours were not there.
"""

import weakref
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeAlias

from pydantic_ai.capabilities import CombinedCapability

from tau_live.adapters import InForce
from tau_live.errors import pass_on
from tau_live.machine.context_variables import put
from tau_live_hooks.common_border import Border
from tau_live_hooks.pydantic_ai_capability import (
    SharedCapability,
    TauCapability,
    WatchingCapability,
    may_retry,
)
from tau_live_hooks.pydantic_ai_events import resumed_run

KNOWN_LIMIT = 1_000
"""The capabilities of so many agents are known at once."""

_DURABLE = "in_durable_context"
_Host: TypeAlias = Callable[..., Any]

_joins: ContextVar[bool] = ContextVar("tau_live_joins", default=False)
"""Whether the run that is prepared here has ours among its agent's."""


class _Known:
    """What is known of an agent's own capabilities.

    Args:
        root: What holds them.
        gone: Called when that is no more.

    Attributes:
        joined: They and ours; ``None`` until a run has both.
        retries: Whether one may let a request be tried again.
        durable: Those that may run it where nothing of ours belongs.
    """

    __slots__ = ("_root", "durable", "joined", "retries")

    def __init__(self, root: Any, gone: Callable[[Any], object]) -> None:
        parts = _parts_of(root)
        self._root = (lambda: None) if root is None else weakref.ref(root, gone)
        self.joined: Any = None
        self.retries = any(map(may_retry, parts))
        self.durable = [one for one in parts if hasattr(one, _DURABLE)]

    def is_of(self, root: object) -> bool:
        """Say whether it is this of which all this is known."""
        return self._root() is root

    @property
    def is_durable(self) -> bool:
        """Whether a run that begins now is one in which nothing of ours belongs."""
        return any(getattr(one, _DURABLE) for one in self.durable)


class Roots:
    """Adds ours to the capabilities of runs.

    Args:
        in_force: Returns the running system.
    """

    def __init__(self, in_force: InForce) -> None:
        self._in_force = in_force
        self._border = Border(in_force)
        self._shared = SharedCapability(in_force)
        self._known: dict[int, _Known] = {}

    def iterated(self, wrapped: _Host, agent: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Add ours to the capabilities of a call."""
        return wrapped(*args, **(self._given(kwargs, agent, joins=False) or kwargs))

    async def prepared(self, wrapped: _Host, agent: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Add ours to the capabilities of a call, unless it may be among those of the agent."""
        given = self._given(kwargs, agent, joins=True)
        if given is not None:
            return await wrapped(*args, **given)
        token = put(_joins, True)
        try:
            return await wrapped(*args, **kwargs)
        finally:
            _joins.reset(token)

    def based(self, wrapped: _Host, _agent: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Add ours to the capabilities of an agent, for the run that is prepared."""
        found = wrapped(*args, **kwargs)
        if not _joins.get():
            return found
        put(_joins, False)  # what its capabilities run meanwhile is another run
        return self._border.safely(self._joined, *found) or found

    def resolved(self, wrapped: _Host, agent: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Resolve the name of a model as if ours were not there."""
        named = isinstance(args[0] if args else kwargs.get("selection"), str)
        return wrapped(*args, **(_without_ours(kwargs, agent) if named else kwargs))

    def _given(
        self, kwargs: dict[str, Any], agent: object, *, joins: bool
    ) -> Mapping[str, Any] | None:
        """Return the arguments of a run with ours among its capabilities, or as they are.

        ``None`` where ours may be among its agent's, if it ``joins`` them.
        """
        try:
            runtime = self._in_force()
            known = self._known_of(_root_of(agent))
            if runtime is None or known.is_durable:
                return kwargs
            theirs = list(kwargs.get("capabilities") or ())
            if any(isinstance(one, TauCapability) for one in theirs):
                return kwargs
            watches = not (runtime.settings.act or known.retries or any(map(may_retry, theirs)))
            deferred = kwargs.get("deferred_tool_results") is not None
            if watches and joins and not deferred:
                return None
            resumes = resumed_run(kwargs.get("message_history") or ()) if deferred else None
            capability = WatchingCapability if watches else TauCapability
            return {**kwargs, "capabilities": [capability(self._in_force, resumes), *theirs]}
        except Exception as error:  # noqa: BLE001  # the border to the host
            pass_on(error)
            return kwargs

    def _joined(self, base: Any, *more: object) -> tuple[object, ...]:
        known = self._known.get(id(base))
        if known is None or not known.is_of(base):  # the host has made it for this run
            return CombinedCapability([base, self._shared]), *more
        if known.joined is None:
            known.joined = CombinedCapability([base, self._shared])
        return known.joined, *more

    def _known_of(self, root: Any) -> _Known:
        key = id(root)
        found = self._known.get(key)
        if found is None or not found.is_of(root):
            found = self._known[key] = _Known(root, lambda _: self._known.pop(key, None))
            if len(self._known) > KNOWN_LIMIT:
                self._known.pop(next(iter(self._known)), None)
        return found


def _without_ours(kwargs: dict[str, Any], agent: object) -> Mapping[str, Any]:
    """Return the arguments of a resolution with the capability that there would be without ours.

    The host remembers a resolved name by the identity of the capability that resolved it. Ours
    resolves none.
    """
    try:
        capability: Any = kwargs.get("capability")
        parts = _parts_of(capability)
        ours = next((one for one in parts if isinstance(one, TauCapability)), None)
        if ours is None:
            return kwargs
        own = _root_of(agent)
        if not ours.resolvers and own is not None:
            ours.resolvers[frozenset(map(id, _parts_of(own)))] = own
        others = frozenset(id(one) for one in parts if one is not ours)
        return {**kwargs, "capability": ours.resolvers.setdefault(others, capability)}
    except Exception:  # noqa: BLE001  # the border to the host
        return kwargs


def _root_of(agent: object) -> Any:
    """Return what holds the capabilities of an agent, which ``Agent.override`` may replace."""
    effective = getattr(agent, "_effective_root_capability", None)
    return effective() if callable(effective) else getattr(agent, "_root_capability", None)


def _parts_of(capability: Any) -> list[object]:
    """Return the capabilities that one is made of; none of ``None``."""
    found: list[object] = []
    if capability is not None:
        capability.apply(found.append)
    return found
