"""One rollout as a tree: attempts, spans inside each other, decisions, rewards."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.text import Text
from rich.tree import Tree

from tau_live.cli.output import safe, styled
from tau_live.cli.rollouts import took
from tau_live.cli.text import moment, number, seconds, shown
from tau_live.rollouts import Attempt, Decision, Reward, Rollout, Span

DEEPEST = 12
"""Spans that are nested deeper stand here, or a narrow terminal would show nothing of them."""

BAR = 20


class Story(NamedTuple):
    """A rollout and everything that is stored about it."""

    rollout: Rollout
    attempts: Sequence[Attempt]
    spans: Sequence[Span]
    decisions: Sequence[Decision]
    rewards: Sequence[Reward]
    children: Sequence[Rollout]


def tree_of(story: Story) -> Tree:
    """Return a rollout as a tree."""
    tree = Tree(_rollout_line(story.rollout), guide_style="dim")
    for attempt in story.attempts:
        node = tree.add(_attempt_line(attempt))
        _add_spans(node, [span for span in story.spans if span.attempt == attempt.number])
        for decision in story.decisions:
            if decision.attempt == attempt.number:
                _add_decision(node, decision)
    if story.rewards:
        node = tree.add(safe("rewards", "bold"))
        for reward in story.rewards:
            node.add(_reward_line(reward))
    if story.children:
        node = tree.add(safe("ran inside it", "bold"))
        for child in story.children:
            node.add(_joined(safe(child.rollout_id), safe(child.name), styled(child.status)))
    return tree


def _rollout_line(rollout: Rollout) -> Text:
    why = rollout.error_type or rollout.reason
    reward = "no reward yet" if rollout.total_reward is None else number(rollout.total_reward)
    return _joined(
        safe(rollout.rollout_id, "bold"),
        safe(rollout.name),
        safe(rollout.host),
        styled(rollout.status).append(f" ({shown(why)})" if why else "", "dim"),
        safe(f"reward {reward}" if rollout.total_reward is not None else reward),
        safe(moment(rollout.started_at)),
        safe(seconds(took(rollout.started_at, rollout.ended_at))),
    )


def _attempt_line(attempt: Attempt) -> Text:
    return _joined(
        safe(f"attempt {attempt.number}", "bold"),
        styled(attempt.status),
        safe(seconds(took(attempt.started_at, attempt.ended_at))),
        safe(attempt.error_message or "", "red"),
    )


def _add_spans(root: Tree, spans: Sequence[Span]) -> None:
    """Hang every span under its parent; one without a known parent, or in a ring, on the root."""
    by_parent: dict[str | None, list[Span]] = {}
    known = {span.span_id for span in spans}
    for span in spans:
        parent = span.parent_span_id if span.parent_span_id in known else None
        by_parent.setdefault(parent, []).append(span)
    seen: set[str] = set()
    for first in (*by_parent.get(None, ()), *spans):
        waiting = [(root, 0, first)]
        while waiting:
            node, depth, span = waiting.pop()
            if span.span_id in seen:
                continue
            seen.add(span.span_id)
            added = node.add(_span_line(span))
            below = (added, depth + 1) if depth + 1 < DEEPEST else (node, depth)
            waiting.extend((*below, child) for child in reversed(by_parent.get(span.span_id, ())))


def _span_line(span: Span) -> Text:
    return _joined(
        safe(span.kind, "dim").append_text(Text(" ")).append_text(safe(span.name)),
        styled(span.status) if span.ended_at is not None else safe("open", "cyan"),
        safe(seconds(took(span.started_at, span.ended_at))),
    )


def _add_decision(root: Tree, decision: Decision) -> None:
    node = root.add(
        _joined(
            safe(f"decision {decision.ordinal}", "bold"),
            safe(decision.point),
            safe(_decider(decision)),
            safe(f"{decision.latency_us:.0f} us"),
        )
    )
    if decision.why_not:
        node.add(safe(decision.why_not, "yellow"))
    longest = min(24, max((len(option) for option in decision.options), default=0))
    for option, share in zip(decision.options, _shares(decision), strict=True):
        node.add(_option_line(decision, option, share, longest))


def _decider(decision: Decision) -> str:
    if decision.source != "policy":
        return f"by {decision.source}"
    version = f"version {decision.policy_version}" if decision.policy_version else "untrained"
    return f"by policy {version}, {decision.arm}"


def _shares(decision: Decision) -> Sequence[float | None]:
    known = len(decision.probabilities) == len(decision.options)
    return decision.probabilities if known else [None] * len(decision.options)


def _option_line(decision: Decision, option: str, share: float | None, longest: int) -> Text:
    marks = {
        "chosen": decision.chosen, "applied": decision.applied, "default": decision.default
    }  # fmt: skip
    is_applied = option == decision.applied
    line = safe(option.ljust(longest), "bold" if is_applied else "")
    if share is not None:
        line.append(f" {_bar(share)}", "green" if is_applied else "dim").append(f" {share:6.1%}")
    marked = ", ".join(mark for mark, named in marks.items() if named == option)
    return line.append(f"  {marked}", "dim") if marked else line


def _bar(share: float) -> str:
    return ("█" * round(BAR * min(1.0, max(0.0, share)))).ljust(BAR, "·")


def _reward_line(reward: Reward) -> Text:
    value = number(reward.value) if reward.value is not None else "comment"
    target = f"for {reward.decision_id.rpartition(':')[2]}" if reward.decision_id else ""
    return _joined(
        safe(f"{reward.name} {value}"),
        safe(reward.label or ""),
        safe(target),
        safe(f"by {reward.source}"),
        safe(moment(reward.at)),
        safe(reward.comment or "", "italic"),
    )


def _joined(*parts: Text) -> Text:
    return Text(" · ", style="dim").join(part for part in parts if part.plain.strip())


def plain_decision(decision: Decision) -> Mapping[str, object]:
    """Return a decision for JSON: with its id, without the packed features."""
    return {
        "decision_id": decision.decision_id,
        **{
            name: getattr(decision, name)
            for name in decision.__dataclass_fields__
            if name != "encoded"
        },
    }
