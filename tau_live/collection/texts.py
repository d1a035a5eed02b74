"""Every text of an event, passed through the plugins that redact."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum

from tau_live import rollouts
from tau_live.envelope import Content, ErrorInfo, Event, ToolCall, replaced
from tau_live.events import Decision, Reward
from tau_live.hookspecs import Text
from tau_live.privacy.plans import Plan, plan_of
from tau_live.privacy.redaction import scrubbed
from tau_live.settings import Settings

USUAL = "reward"
"""What a reward is called that nobody has named."""

LEFT_OUT = "[redacted:plugin]"
"""Stands for a text that a plugin was given and failed at."""

_WORDS = frozenset(
    {
        *("role", "trigger", "stage", "mode", "op", "what", "step_kind", "tool_kind", "type"),
        *("finish_reason", "finish_reasons", "reason_codes", "why_not", "where"),
        *("host_version", "adapter_version", "usage", "aliases"),
    }
)
"""No texts: ids, versions, numbers, and words by which rewards and reports count."""

_NAMES: Mapping[type[Event], frozenset[str]] = {
    Decision: frozenset({"options", "allowed", "exploit_only"}),
}
"""What of an event is looked up by its name."""

_TRUTHS = frozenset({"true", "false"})
"""Labels that say no more than the value."""

Keep = Callable[[Text], str | None]
"""Returns what may be kept of a text; ``None`` where that is not known."""


class Texts:
    """Shows every text of events to whoever may leave something out of it.

    Ids, names of points and options, and words of a fixed set are no texts, nor are the names of
    rewards that settings know already.

    Args:
        keep: Says what may be kept.
        rewards: Names of rewards by which settings weigh them; see ``known_rewards``.
    """

    def __init__(self, keep: Keep, rewards: Collection[str] = ()) -> None:
        self._keep = keep
        self._rewards = frozenset(rewards)
        self._plans: dict[type[Event], Plan] = {}

    def kept(self, event: Event) -> Event:
        """Return an event of plain data with what may be kept; the same object if that is all."""
        kind = type(event)
        plan = self._plans.get(kind)
        if plan is None:
            plan = self._plans[kind] = plan_of(kind)
        shown = _Shown(self._keep, event)
        changes: dict[str, object] = {}
        for name in (*plan.texts, *plan.others):
            value = getattr(event, name)
            if value and name not in _WORDS and name not in _NAMES.get(kind, ()):
                if kind is Reward and self._is_word(name, value):
                    continue
                kept = shown.value(name, value)
                if kept != value:
                    changes[name] = kept
        return replaced(event, changes) if changes else event

    def reward(self, reward: rollouts.Reward) -> rollouts.Reward:
        """Return a reward that comes without an event with what may be kept of its texts."""
        return replace(
            reward,
            name=self._of_reward("name", reward.name) or LEFT_OUT,
            label=self._of_reward("label", reward.label),
            comment=self._of_reward("comment", reward.comment),
        )

    def _of_reward(self, field: str, text: str | None) -> str | None:
        if not text or self._is_word(field, text):
            return text
        kept = self._keep(Text(text=text, event="reward", field=field))
        return LEFT_OUT if kept is None else scrubbed(kept)

    def _is_word(self, field: str, value: object) -> bool:
        """Say whether a field of a reward holds a word that is known, and no text."""
        return value in {"name": self._rewards, "label": _TRUTHS}.get(field, ())


def known_rewards(settings: Settings) -> frozenset[str]:
    """Return the names of rewards that say nothing of a run: the usual one, and those declared."""
    return frozenset({USUAL, *(one.name for one in settings.rewards)})


class _Shown:
    """The texts of one event."""

    def __init__(self, keep: Keep, event: Event) -> None:
        self._keep = keep
        self._kind = event.event

    def value(self, field: str, value: object) -> object:
        """Return what may be kept of a field."""
        if isinstance(value, ErrorInfo):
            return replace(value, message=self._text(field, "message", value.message))
        if field == "features" and isinstance(value, Mapping):  # by the names of options
            return {name: self._plain(field, "", of) for name, of in value.items()}
        if isinstance(value, tuple):
            return tuple(self._one(field, one) for one in value)
        return self._one(field, value)

    def _one(self, field: str, value: object) -> object:
        if isinstance(value, Content):
            return self._content(field, value)
        if isinstance(value, ToolCall):
            args = value.args and self._content(field, value.args)
            return replace(value, name=self._text(field, "name", value.name), args=args)
        return value if isinstance(value, StrEnum) else self._plain(field, "", value)

    def _text(self, field: str, key: str, text: str) -> str:
        if not text:
            return text
        kept = self._keep(Text(text=text, event=self._kind, field=field, key=key))
        return LEFT_OUT if kept is None else kept

    def _content(self, field: str, content: Content) -> Content:
        """Return a text; its size and hash are those of what is kept, or they would tell it."""
        if content.text is None:
            return content
        kept = self._text(field, "", content.text)
        return content if kept == content.text else Content(text=kept)

    def _plain(self, field: str, key: str, value: object) -> object:
        """Return plain data with what may be kept of its texts, its keys among them."""
        if isinstance(value, str):
            return self._text(field, key, value)
        if isinstance(value, Mapping):
            return self._mapping(field, value.items())
        if isinstance(value, list | tuple):
            return [self._plain(field, key, one) for one in value]
        return value

    def _mapping(self, field: str, items: Iterable[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in items:
            kept = self._text(field, "", key)
            name, number = kept, 1
            while name in found:
                number += 1
                name = f"{kept} ({number})"
            found[name] = self._plain(field, key, value)
        return found
