"""Plugins that attached processes have disabled, as reported in the store.

Whoever asks from outside has plugins of its own, in which nothing has failed yet.
"""

import json
from collections.abc import Collection

from tau_live.handed.reading import mapping
from tau_live.machine.processes import is_alive
from tau_live.plugins import PluginReport
from tau_live.store.roles import Leases

DISABLED = "plugin-disabled:"
"""Begins the name of the lease that a process holds for each plugin that it does not call."""

RENEW_S = 5.0
TTL_S = 20.0


class DisabledPlugins:
    """Says in the store which plugins this process does not call any more.

    Args:
        owner: This process.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._said_at = float("-inf")
        self._said: Collection[str] = ()

    def say(self, leases: Leases, reports: Collection[PluginReport], *, now: float) -> None:
        """Write it down; most often there is nothing to do.

        Raises:
            StoreUnavailableError: It cannot be written; the next call tries again.
        """
        disabled = {one.name: one for one in reports if one.disabled}
        if not disabled or (disabled.keys() == self._said and 0.0 <= now - self._said_at < RENEW_S):
            return
        for name, one in disabled.items():
            facts = {
                "plugin": name,
                "hooks": list(one.hooks),
                "problem": one.problem,
                "process": self._owner,
            }
            holder = json.dumps(facts)
            leases.acquire(f"{DISABLED}{self._owner}:{name}", holder, ttl_s=TTL_S, now=now)
        self._said, self._said_at = frozenset(disabled), now


def disabled_plugins(leases: Leases, *, now: float) -> list[dict[str, object]]:
    """Return the plugins that processes do not call any more, each with hooks, cause and process.

    ``redact`` or ``redact_text`` among the hooks means that the process keeps no text, and leaves
    decisions to the host.
    """
    found: list[dict[str, object]] = []
    for holder in leases.held(DISABLED, now=now).values():
        try:
            facts = dict(mapping(json.loads(holder)))
        except ValueError:  # somebody has spoiled it
            continue
        if is_alive(str(facts.get("process"))) is not False:
            found.append(facts)
    return sorted(found, key=lambda one: (str(one.get("plugin")), str(one.get("process"))))
