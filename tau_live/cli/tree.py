"""One rollout as a tree: attempts, spans inside each other, decisions, rewards, credit."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text
from rich.tree import Tree

from tau_live.cli.output import joined, safe, styled
from tau_live.cli.rollouts import made_up, took
from tau_live.cli.text import clipped, moment, number, seconds, shown
from tau_live.handed.reading import mapping, real
from tau_live.rollouts import Attempt, Decision, Reward, Rollout, RolloutStatus, Span
from tau_live.why import Credit

DEEPEST = 12
"""Spans that are nested deeper stand here, or a narrow terminal would show nothing of them."""

GUIDE = 4
"""So many columns each level of a tree takes."""

LEAST = 24
"""So many columns are kept for what is said, however deep it stands."""

BAR = 20
TEXT = 400
"""So many characters are shown of a text or an error; ``show --json`` has all that is kept."""

LONGEST = 24
"""So many characters of an option's name are lined up."""


class Story(NamedTuple):
    """A rollout and everything that is stored about it."""

    rollout: Rollout
    attempts: Sequence[Attempt]
    spans: Sequence[Span]
    decisions: Sequence[Decision]
    rewards: Sequence[Reward]
    children: Sequence[Rollout]
    credits: Mapping[str, Credit]


def tree_of(story: Story, *, width: int) -> Tree:
    """Return a rollout as a tree that has room in so many columns."""
    tree = Tree(_rollout_line(story.rollout, story.rewards), guide_style="dim")
    for line in _texts_of({"input": story.rollout.input, **story.rollout.metadata}):
        tree.add(line)
    began = story.rollout.started_at
    deepest = max(1, min(DEEPEST, (width - LEAST) // GUIDE - 1))
    for attempt in story.attempts:
        node = tree.add(_attempt_line(attempt, story.rollout))
        spans = [span for span in story.spans if span.attempt == attempt.number]
        _add_spans(node, spans, began=began, deepest=deepest)
        for decision in story.decisions:
            if decision.attempt == attempt.number:
                _add_decision(node, decision, began=began, room=width - 3 * GUIDE)
    node = tree.add(safe("rewards" if story.rewards else "no rewards yet", "bold"))
    for reward in story.rewards:
        node.add(_reward_line(reward))
    _add_credit(tree, story)
    if story.children:
        node = tree.add(safe("ran inside it", "bold"))
        for child in story.children:
            node.add(_joined(safe(child.rollout_id), safe(child.name), styled(child.status)))
    return tree


def _rollout_line(rollout: Rollout, rewards: Sequence[Reward]) -> Text:
    why = rollout.error_type or rollout.reason
    reward = "no reward yet" if rollout.total_reward is None else number(rollout.total_reward)
    origin = f" ({source})" if (source := made_up(rewards)) else ""
    return _joined(
        safe(rollout.rollout_id, "bold"),
        safe(rollout.name),
        safe(rollout.host),
        joined(styled(rollout.status), safe(f" ({why})" if why else "", "dim")),
        safe(f"reward {reward}{origin}" if rollout.total_reward is not None else reward),
        safe(moment(rollout.started_at)),
        safe(seconds(took(rollout.started_at, rollout.ended_at))),
        *_spent(rollout.metadata),
    )


def _spent(said: Mapping[str, object]) -> Iterator[Text]:
    """Yield what something took in tokens and money, as far as that is known."""
    usage = mapping(said.get("usage"))
    tokens = [real(usage.get(f"{kind}_tokens")) for kind in ("input", "output")]
    if any(tokens):
        went_in, came_out = (number(int(one or 0)) for one in tokens)
        yield safe(f"{went_in} + {came_out} tokens")
    cost = real(said.get("cost_usd"))
    if cost is not None:
        yield safe(f"${cost:.4g}")


def _since(at: float, began: float | None) -> Text:
    """Return how long after the beginning of the rollout something was."""
    return safe("" if began is None else f"+{seconds(max(0.0, at - began))}", "dim")


def _attempt_line(attempt: Attempt, rollout: Rollout) -> Text:
    """Return what became of an attempt; the contract of attempts has no word for cancelled."""
    is_last = attempt.number == rollout.attempt_count
    cancelled = is_last and rollout.status is RolloutStatus.CANCELLED
    return _joined(
        safe(f"attempt {attempt.number}", "bold"),
        styled(RolloutStatus.CANCELLED if cancelled else attempt.status),
        safe(seconds(took(attempt.started_at, attempt.ended_at))),
        safe(attempt.error_message or "", "red"),
    )


def _add_spans(root: Tree, spans: Sequence[Span], *, began: float | None, deepest: int) -> None:
    """Hang every span under its parent; one without a known parent, or in a ring, on the root."""
    by_parent: dict[str | None, list[Span]] = {}
    known = {span.span_id for span in spans}
    for span in spans:
        parent = span.parent_span_id if span.parent_span_id in known else None
        by_parent.setdefault(parent, []).append(span)
    failed = _failed_inside(spans)
    seen: set[str] = set()
    for first in (*by_parent.get(None, ()), *spans):
        waiting = [(root, 0, first)]
        while waiting:
            node, depth, span = waiting.pop()
            if span.span_id in seen:
                continue
            seen.add(span.span_id)
            added = node.add(_span_line(span, began, failed_inside=span.span_id in failed))
            for line in _texts_of(span.attributes):
                added.add(line)
            below = (added, depth + 1) if depth + 1 < deepest else (node, depth)
            waiting.extend((*below, child) for child in reversed(by_parent.get(span.span_id, ())))


def _failed_inside(spans: Sequence[Span]) -> set[str]:
    """Return the spans in which another has failed, by their ids.

    A host says of a turn that it is over, not how it went; what failed inside may be its child,
    or have the number of the turn alone.
    """
    parents = {span.span_id: span.parent_span_id for span in spans}
    turns = {span.attributes.get("turn"): span.span_id for span in spans if span.kind == "turn"}
    found: set[str] = set()
    for span in spans:
        if span.status != "error":
            continue
        above = [span.parent_span_id, turns.get(span.attributes.get("turn"))]
        while above:
            parent = above.pop()
            if parent is not None and parent != span.span_id and parent not in found:
                found.add(parent)
                above.append(parents.get(parent))
    return found


def _texts_of(attributes: Mapping[str, object]) -> Iterator[Text]:
    """Yield what an error said, and the texts that were kept, each on a line."""
    error = mapping(attributes.get("error"))
    if error:
        told = ": ".join(str(error[name]) for name in ("type", "message") if error.get(name))
        yield safe(clipped(shown(told or "error"), TEXT), "red")
    for name, value in attributes.items():
        text = mapping(value).get("text")
        if name != "error" and isinstance(text, str) and text:
            yield joined(safe(f"{name}: ", "dim"), safe(clipped(shown(text), TEXT)))


def _span_line(span: Span, began: float | None, *, failed_inside: bool) -> Text:
    status = styled(span.status) if span.ended_at is not None else safe("open", "cyan")
    return _joined(
        Text.assemble(safe(span.kind, "dim"), " ", safe(span.name)),
        safe("failed inside", "yellow") if failed_inside and span.status == "ok" else status,
        _since(span.started_at, began),
        safe(seconds(took(span.started_at, span.ended_at))),
        *_spent(span.attributes),
    )


def _add_decision(root: Tree, decision: Decision, *, began: float | None, room: int) -> None:
    node = root.add(
        _joined(
            safe(f"decision {decision.ordinal}", "bold"),
            safe(decision.point),
            safe(_decider(decision)),
            safe(f"{decision.latency_us:.0f} us"),
            _since(decision.at, began),
        )
    )
    if decision.why_not:
        node.add(safe(f"not by the policy: {decision.why_not}", "yellow"))
    longest = min(LONGEST, max((cell_len(option) for option in decision.options), default=0))
    bar = min(BAR, max(4, room - longest - len(" 100.0%  chosen, applied") - 1))
    for option, share in zip(decision.options, _shares(decision), strict=True):
        node.add(_option_line(decision, option, share, longest=longest, bar=bar))


def _decider(decision: Decision) -> str:
    if decision.source != "policy":
        return f"by {decision.source}"
    version = f"version {decision.policy_version}" if decision.policy_version else "untrained"
    return f"by policy {version}, {decision.arm}"


def _shares(decision: Decision) -> Sequence[float | None]:
    known = len(decision.probabilities) == len(decision.options)
    return decision.probabilities if known else [None] * len(decision.options)


def _option_line(
    decision: Decision, option: str, share: float | None, *, longest: int, bar: int
) -> Text:
    is_applied = option == decision.applied
    parts: list[str | Text] = [safe(_padded(option, longest), "bold" if is_applied else "")]
    if share is not None:
        parts.append(safe(f" {_bar(share, bar)}", "green" if is_applied else "dim"))
        parts.append(f" {share:6.1%}")
    marked = ", ".join(marks(decision, option))
    return Text.assemble(*parts, safe(f"  {marked}" if marked else "", "dim"))


def _padded(name: str, width: int) -> str:
    """Return a name with spaces behind it; some signs are two columns wide."""
    return name + " " * max(0, width - cell_len(name))


def marks(decision: Decision, option: str) -> Iterator[str]:
    """Yield what is to be said of an option: whether it was chosen, applied, the host's own."""
    named = {
        "chosen": decision.chosen, "applied": decision.applied, "host's own": decision.default
    }  # fmt: skip
    yield from (mark for mark, name in named.items() if name == option)
    if decision.allowed is not None and option not in decision.allowed:
        yield "not allowed"
    if decision.exploit_only is not None and option in decision.exploit_only:
        yield "not explored"


def _bar(share: float, width: int) -> str:
    return ("█" * round(width * min(1.0, max(0.0, share)))).ljust(width, "·")


def _add_credit(tree: Tree, story: Story) -> None:
    """Add what each decision got; those that taught nothing are told together, by reason."""
    if not story.credits:
        return
    node = tree.add(safe("credit", "bold"))
    without: dict[str, list[str]] = {}
    for decision in story.decisions:
        credit, name = story.credits[decision.decision_id], _named(decision, story.attempts)
        if credit.why is not None:
            without.setdefault(f"{credit.state}: {credit.why}", []).append(name)
            continue
        learned = "not learned from yet" if credit.update is None else f"update {credit.update}"
        node.add(
            _joined(
                safe(f"decision {name}", "bold"),
                safe(f"{decision.point}: {decision.applied or '-'}"),
                safe(f"return {number(credit.return_)}"),
                _advantage(credit.advantage),
                safe(learned),
            )
        )
    for why, names in without.items():
        node.add(_joined(safe(f"decision {', '.join(names)}", "bold"), safe(why)))


def _named(decision: Decision, attempts: Sequence[Attempt]) -> str:
    """Return the number of a decision, with its attempt where there were several."""
    return f"{decision.attempt}:{decision.ordinal}" if len(attempts) > 1 else f"{decision.ordinal}"


def _advantage(advantage: float | None) -> Text:
    if advantage is None:
        return safe("")
    better = "better" if advantage > 0.0 else "worse" if advantage < 0.0 else "as"
    style = "green" if advantage > 0.0 else "red" if advantage < 0.0 else ""
    than = "expected" if better == "as" else "than expected"
    return safe(f"advantage {advantage:+.3g} ({better} {than})", style)


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
    told = [part for part in parts if part.plain.strip()]
    return joined(*(text for part in told for text in (safe(" · ", "dim"), part)))[3:]


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


def plain_credit(credit: Credit) -> dict[str, object]:
    """Return for JSON what a decision got afterwards."""
    return {name.rstrip("_"): value for name, value in credit._asdict().items()}
