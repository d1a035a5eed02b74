"""Everything in a process that raises and delivers alerts, as one object."""

from collections.abc import Callable, Mapping

from tau_live.alerts.alerting import Alerting, Teller
from tau_live.alerts.plugins import add_command, command_of
from tau_live.gate import HoldReason
from tau_live.plugins import Plugins
from tau_live.settings import Settings
from tau_live.store.roles import Store

LAST_S = 2.0
"""How long the end of a process waits at most for alerts to be told."""


class Alarm:
    """Looks at the store, and tells what is new there to the plugins of this process.

    Args:
        settings: Bounds, limits, and the command.
        plugins: Who is told; the command of the settings becomes one of them.
        environ: What the command inherits.
        owner: This process.
        count: Counts what went wrong.
    """

    def __init__(
        self,
        settings: Settings,
        plugins: Plugins,
        *,
        environ: Mapping[str, str],
        owner: str,
        count: Callable[[str], None],
    ) -> None:
        self._command = command_of(settings, environ, count)
        add_command(plugins, self._command)
        self._teller = Teller(plugins.alert_raised, count=count)
        self._alerting = Alerting(settings, owner=owner, tell=self._teller.put, count=count)

    def look(self, store: Store, status: Mapping[str, object]) -> None:
        """Tell what is new in a store, in whose thread this is called; never raises."""
        self._alerting.look(store, status)

    def gate_changed(self, snapshot: Mapping[str, object]) -> None:
        """Tell that the gate holds because of the store, which cannot say so itself."""
        if snapshot["state"] == "hold" and snapshot["reason"] == HoldReason.STORE_UNAVAILABLE:
            self._alerting.store_fails(str(snapshot["detail"]))

    def close(self) -> None:
        """Tell what waits, in the little time that there is; a command that takes longer dies."""
        if not self._teller.close(LAST_S) and self._command is not None:
            self._command.kill()
