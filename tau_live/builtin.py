"""The plugins that come with tau-live, and how a process gets all of its plugins."""

from collections.abc import Iterable

from tau_live.alerts.plugins import COMMAND, LOG, AlertLog
from tau_live.hookspecs import RewardPart, RolloutSummary, hookimpl
from tau_live.plugins import Plugins
from tau_live.rewards.inference import Summary, infer
from tau_live.rewards.settling import REFERENCE
from tau_live.settings import Settings

REFERENCE_REWARDER = "reference-rewarder"
BUILT_IN = frozenset({REFERENCE_REWARDER, LOG, COMMAND})
"""The names of our own plugins."""


class ReferenceRewarder:
    """Infers a reward from how a run went: it measures form, and is a last resort."""

    @hookimpl(trylast=True)
    def infer_reward(self, summary: RolloutSummary) -> Iterable[RewardPart]:
        """Return the reference's composite and its parts."""
        found = infer(
            Summary(
                has_reply=summary.has_assistant_reply,
                completed=summary.session_completed,
                tool_errors=summary.tool_errors,
                safety_blocked=summary.safety_blocked,
                turns=summary.turns,
                input_chars=summary.input_chars,
                output_chars=summary.output_chars,
            )
        )
        return [
            RewardPart(name=f"{REFERENCE}{name}", value=value)
            for name, value in found._asdict().items()
        ]


def load_plugins(settings: Settings, *, strict: bool = False) -> Plugins:
    """Return the plugins of this process: ours, and those of installed packages.

    Raises:
        SettingsError: A plugin is wrong, and ``strict`` is set.
    """
    plugins = Plugins(off=settings.plugins_off, strict=strict)
    plugins.register(ReferenceRewarder(), name=REFERENCE_REWARDER, is_ours=True)
    plugins.register(AlertLog(), name=LOG)
    plugins.load()
    return plugins


def adopt(plugins: Plugins, manager: object) -> int:
    """Let the plugins of a host's pluggy manager take part in our hooks; return how many do."""
    listed = getattr(manager, "list_name_plugin", None)
    if listed is None:
        raise TypeError(f"expected a pluggy manager or Settings, got {type(manager).__name__}")
    return sum(
        plugins.register(plugin, name=f"host:{name}")
        for name, plugin in listed()
        if plugin is not None and plugins.implements(plugin)
    )
