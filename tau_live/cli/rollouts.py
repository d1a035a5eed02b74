"""``tau-live rollouts`` and ``show``: a filtered, sorted, paged list, and one rollout as a tree."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click
from msgspec import to_builtins
from msgspec.structs import asdict
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from tau_live.cli import completion
from tau_live.cli.options import epilog, json_option, open_store, store_option
from tau_live.cli.output import (
    clip,
    join_texts,
    moment,
    number,
    print_all,
    print_json,
    printable,
    safe,
    seconds,
    status_text,
    stdout_width,
    table_of,
    when,
)
from tau_live.core.errors import AmbiguousIdError, UnknownError
from tau_live.core.records import (
    Attempt,
    Decision,
    Reward,
    RewardSource,
    Rollout,
    RolloutMode,
    RolloutQuery,
    RolloutStatus,
    Span,
)
from tau_live.core.sanitize import JsonObject, mapping, real
from tau_live.core.settings import Settings
from tau_live.store.records import ORDERS
from tau_live.store.roles import Store

if TYPE_CHECKING:
    from tau_live.operate.why import Credit

SHORT = 13
"""The characters of an id that are shown where not all fit: ``live-`` and eight."""

COLUMNS: Sequence[tuple[str, int, Callable[[Rollout], object]]] = (
    ("name", 60, lambda rollout: rollout.name),
    ("started (UTC)", 80, lambda rollout: moment(rollout.started_at)),
    ("took#", 80, lambda rollout: seconds(duration_s(rollout.started_at, rollout.ended_at))),
    ("host", 100, lambda rollout: rollout.host),
    ("why", 130, lambda rollout: rollout.error_type or rollout.reason or ""),
    ("session", 150, lambda rollout: rollout.session_id or ""),
)
"""Further columns: name, the least width of the terminal, and the value."""


@click.command(
    epilog=epilog(
        "rollouts",
        "tau-live rollouts --status failed --since 2h",
        "tau-live rollouts --name triage --sort total_reward --ascending --limit 5",
    )
)
@click.option(
    "--status",
    multiple=True,
    type=click.Choice([status.value for status in RolloutStatus]),
    help="Only with this status; repeatable.",
)
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in RolloutMode]),
    help="Only queued rollouts of this mode.",
)
@click.option("--host", help="Only of this host.")
@click.option("--name", help="Only of this name.")
@click.option("--session", help="Only of this session.")
@click.option(
    "--parent", metavar="ROLLOUT", help="Only rollouts that ran inside this one.",
    shell_complete=completion.rollouts,
)  # fmt: skip
@click.option(
    "--text",
    help="Only rollouts in which this text is: in an id, a name, an error, metadata or a step.",
)
@click.option(
    "--since", metavar="WHEN", type=when, help="Only rollouts that started at or after this time."
)
@click.option(
    "--until", metavar="WHEN", type=when, help="Only rollouts that started before this time."
)
@click.option(
    "--sort", type=click.Choice(ORDERS), default="seq", show_default=True, help="Sort key."
)
@click.option("--ascending", is_flag=True, help="Oldest or smallest first.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="Rollouts per page.",
)
@click.option("--page", type=click.IntRange(1), default=1, show_default=True, help="Page to show.")
@store_option
@json_option
def rollouts(  # noqa: PLR0913  # one for each option
    path: Path | None,
    *,
    as_json: bool,
    status: tuple[str, ...],
    mode: str | None,
    host: str | None,
    name: str | None,
    session: str | None,
    parent: str | None,
    text: str | None,
    since: float | None,
    until: float | None,
    sort: str,
    ascending: bool,
    limit: int,
    page: int,
) -> None:
    """List rollouts, newest first.

    A time is 2026-01-31T12:00 (UTC), or 2h for two hours ago. A rollout can be named
    by the beginning of its id.
    """
    query = RolloutQuery(
        statuses=[RolloutStatus(word) for word in status] or None,
        mode=None if mode is None else RolloutMode(mode),
        host=host,
        name=name,
        session_id=session,
        parent_id=parent,
        text=text,
        since=since,
        until=until,
        order_by=sort,
        descending=not ascending,
        limit=limit,
        offset=limit * (page - 1),
    )
    with open_store(path) as (store, _):
        listed = list_rollouts(store, query)
    rows, total, origins = listed
    if as_json:
        print_json({"total": total, "page": page, "limit": limit, "rollouts": listed.plain()})
        return
    pages = max(1, -(-total // limit))
    if page > pages:  # as JSON it is empty: programs read until one is
        raise click.BadParameter(
            f"there {'is' if pages == 1 else 'are'} {number(pages)}, with {number(total)} rollouts",
            param_hint="--page",
        )
    footer = safe(f"page {page} of {pages}, {number(total)} rollouts in all", "dim")
    print_all(*([rollout_table(rows, origins)] if rows else []), footer)


class Listed(NamedTuple):
    """A page of rollouts.

    Attributes:
        rows: The rollouts.
        total: How many match in all.
        origins: The result of ``made_up``, by rollout.
    """

    rows: Sequence[Rollout]
    total: int
    origins: Mapping[str, str | None]

    def plain(self) -> list[JsonObject]:
        """Return the rollouts for JSON."""
        return [
            {**asdict(row), "reward_made_up": self.origins[row.rollout_id]} for row in self.rows
        ]


def list_rollouts(store: Store, query: RolloutQuery) -> Listed:
    """Return a page of rollouts."""
    rows, total = store.rollouts.query(query)
    origins = {row.rollout_id: made_up(store.rewards.rewards(row.rollout_id)) for row in rows}
    return Listed(rows, total, origins)


def made_up(rewards: Sequence[Reward]) -> str | None:
    """Return ``inferred`` or ``default`` if nobody gave any of the rewards; else ``None``."""
    sources = {reward.source for reward in rewards if reward.value is not None}
    if not sources or not sources <= {RewardSource.INFERRED, RewardSource.DEFAULT}:
        return None
    return str(max(sources))  # inferred, where both are


def rollout_table(rollouts_: Sequence[Rollout], origins: Mapping[str, str | None]) -> Table:
    """Return a list of rollouts, as much of it as fits the terminal.

    Args:
        rollouts_: The rollouts.
        origins: The result of ``made_up``, by rollout.
    """
    width = stdout_width()
    columns = [column for column in COLUMNS if column[1] <= width]
    room = (
        len(max((rollout.rollout_id for rollout in rollouts_), key=len)) if width >= 110 else SHORT
    )
    return table_of(
        ("rollout", "status", "reward#", *(name for name, _, _ in columns)),
        [
            (
                rollout.rollout_id[:room],
                status_text(rollout.status),
                _reward(rollout, origins[rollout.rollout_id]),
                *(cell(rollout) for _, _, cell in columns),
            )
            for rollout in rollouts_
        ],
    )


def _reward(rollout: Rollout, origin: str | None) -> str:
    text = number(rollout.total_reward)
    return f"{text} ({origin})" if origin and rollout.total_reward is not None else text


def duration_s(start: float | None, end: float | None) -> float | None:
    """Return the seconds between two times; ``None`` while either is unknown."""
    return None if start is None or end is None else end - start


GUIDE = 4
"""The columns of each level of a tree."""


TEXT = 400
"""The characters of a text or an error that are shown; ``show --json`` has all of it."""


class Story(NamedTuple):
    """A rollout and everything that is stored about it."""

    rollout: Rollout
    attempts: Sequence[Attempt]
    spans: Sequence[Span]
    decisions: Sequence[Decision]
    rewards: Sequence[Reward]
    children: Sequence[Rollout]
    credits: Mapping[str, "Credit"]

    def plain(self) -> JsonObject:
        """Return it for JSON."""
        return {
            **self._asdict(),
            "decisions": [plain_decision(decision) for decision in self.decisions],
            "credits": [
                {"decision_id": id_, **to_builtins(credit)} for id_, credit in self.credits.items()
            ],
            "children": [child.rollout_id for child in self.children],
        }


def tree_of(story: Story, *, width: int) -> Tree:
    """Return a rollout as a tree that fits ``width`` columns."""
    tree = Tree(_rollout_line(story.rollout, story.rewards), guide_style="dim")
    for line in _texts_of({"input": story.rollout.input, **story.rollout.metadata}):
        tree.add(line)
    began = story.rollout.started_at
    # 24 columns are reserved for text; deeper spans are drawn at this level, or a narrow terminal
    # would hide them
    deepest = max(1, min(12, (width - 24) // GUIDE - 1))
    for attempt in story.attempts:
        node = tree.add(_attempt_line(attempt, story.rollout))
        # the runs and decisions among them have lines of their own
        steps = [span for span in story.spans if span.attempt == attempt.number and span.seq]
        _add_spans(node, steps, began=began, deepest=deepest)
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
            node.add(
                _join_parts(safe(child.rollout_id), safe(child.name), status_text(child.status))
            )
    return tree


def _rollout_line(rollout: Rollout, rewards: Sequence[Reward]) -> Text:
    why = rollout.error_type or rollout.reason
    reward = "no reward yet" if rollout.total_reward is None else number(rollout.total_reward)
    origin = f" ({source})" if (source := made_up(rewards)) else ""
    return _join_parts(
        safe(rollout.rollout_id, "bold"),
        safe(rollout.name),
        safe(rollout.host),
        join_texts(status_text(rollout.status), safe(f" ({why})" if why else "", "dim")),
        safe(f"reward {reward}{origin}" if rollout.total_reward is not None else reward),
        safe(moment(rollout.started_at)),
        safe(seconds(duration_s(rollout.started_at, rollout.ended_at))),
        *_spent(rollout.metadata),
    )


def _spent(attributes: JsonObject) -> Iterator[Text]:
    """Yield the tokens and the cost of a rollout or span, as far as known."""
    usage = mapping(attributes.get("usage"))
    tokens = [real(usage.get(f"{kind}_tokens")) for kind in ("input", "output")]
    if any(tokens):
        inputs, outputs = (number(int(token or 0)) for token in tokens)
        yield safe(f"{inputs} + {outputs} tokens")
    cost = real(attributes.get("cost_usd"))
    if cost is not None:
        yield safe(f"${cost:.4g}")


def _since(at: float, began: float | None) -> Text:
    """Return the time since the start of the rollout."""
    return safe("" if began is None else f"+{seconds(max(0.0, at - began))}", "dim")


def _attempt_line(attempt: Attempt, rollout: Rollout) -> Text:
    """Return the outcome of an attempt; the contract of attempts has no word for cancelled."""
    is_last = attempt.number == rollout.attempt_count
    cancelled = is_last and rollout.status is RolloutStatus.CANCELLED
    return _join_parts(
        safe(f"attempt {attempt.number}", "bold"),
        status_text(RolloutStatus.CANCELLED if cancelled else attempt.status),
        safe(seconds(duration_s(attempt.started_at, attempt.ended_at))),
        safe(attempt.error_message or "", "red"),
    )


def _add_spans(root: Tree, spans: Sequence[Span], *, began: float | None, deepest: int) -> None:
    """Add every span under its parent; one without a known parent, or in a cycle, to the root."""
    by_parent: dict[str | None, list[Span]] = {}
    known = {span.span_id for span in spans}
    for span in spans:
        parent = span.parent_span_id if span.parent_span_id in known else None
        by_parent.setdefault(parent, []).append(span)
    failed = _failed_inside(spans)
    seen: set[str] = set()
    for first in (*by_parent.get(None, ()), *spans):
        stack = [(root, 0, first)]
        while stack:
            node, depth, span = stack.pop()
            if span.span_id in seen:
                continue
            seen.add(span.span_id)
            added = node.add(_span_line(span, began, failed_inside=span.span_id in failed))
            for line in _texts_of(span.attributes):
                added.add(line)
            below = (added, depth + 1) if depth + 1 < deepest else (node, depth)
            stack.extend((*below, child) for child in reversed(by_parent.get(span.span_id, ())))


def _failed_inside(spans: Sequence[Span]) -> set[str]:
    """Return the spans in which another has failed, by their ids.

    A host reports that a turn ended, not how it went; a failed span inside may be its child,
    or have the number of the turn alone.
    """
    parents = {span.span_id: span.parent_span_id for span in spans}
    turns = {span.attributes.get("turn"): span.span_id for span in spans if span.kind == "turn"}
    failed: set[str] = set()
    for span in spans:
        if span.status != "error":
            continue
        above = [span.parent_span_id, turns.get(span.attributes.get("turn"))]
        while above:
            parent = above.pop()
            if parent is not None and parent != span.span_id and parent not in failed:
                failed.add(parent)
                above.append(parents.get(parent))
    return failed


def _texts_of(attributes: JsonObject) -> Iterator[Text]:
    """Yield the error message and the kept texts, each on a line."""
    error = mapping(attributes.get("error"))
    if error:
        message = ": ".join(str(error[name]) for name in ("type", "message") if error.get(name))
        yield safe(clip(printable(message or "error"), TEXT), "red")
    for name, value in attributes.items():
        text = mapping(value).get("text")
        if name != "error" and isinstance(text, str) and text:
            yield join_texts(safe(f"{name}: ", "dim"), safe(clip(printable(text), TEXT)))


def _span_line(span: Span, began: float | None, *, failed_inside: bool) -> Text:
    status = status_text(span.status) if span.ended_at is not None else safe("open", "cyan")
    return _join_parts(
        Text.assemble(safe(span.kind, "dim"), " ", safe(span.name)),
        safe("failed inside", "yellow") if failed_inside and span.status == "ok" else status,
        _since(span.started_at, began),
        safe(seconds(duration_s(span.started_at, span.ended_at))),
        *_spent(span.attributes),
    )


def _add_decision(root: Tree, decision: Decision, *, began: float | None, room: int) -> None:
    node = root.add(
        _join_parts(
            safe(f"decision {decision.ordinal}", "bold"),
            safe(decision.point),
            safe(_decider(decision)),
            safe(latency_text(decision)),
            _since(decision.at, began),
        )
    )
    if decision.why_not:
        node.add(safe(f"not by the policy: {decision.why_not}", "yellow"))
    # names of options are aligned up to 24 columns
    longest = min(24, max((cell_len(option) for option in decision.options), default=0))
    bar = min(20, max(4, room - longest - len(" 100.0%  chosen, applied") - 1))
    known = len(decision.probabilities) == len(decision.options)
    shares = decision.probabilities if known else [None] * len(decision.options)
    for option, share in zip(decision.options, shares, strict=True):
        node.add(_option_line(decision, option, share, longest=longest, bar=bar))


def _decider(decision: Decision) -> str:
    if decision.source != "policy":
        return f"by {decision.source}"
    version = f"version {decision.policy_version}" if decision.policy_version else "untrained"
    return f"by policy {version}, {decision.arm}"


def _option_line(
    decision: Decision, option: str, share: float | None, *, longest: int, bar: int
) -> Text:
    is_applied = option == decision.applied
    padded = option + " " * max(0, longest - cell_len(option))  # wide characters take two columns
    parts: list[str | Text] = [safe(padded, "bold" if is_applied else "")]
    if share is not None:
        full = "█" * round(bar * min(1.0, max(0.0, share)))
        parts.append(safe(f" {full.ljust(bar, '·')}", "green" if is_applied else "dim"))
        parts.append(f" {share:6.1%}")
    notes = ", ".join(marks(decision, option))
    return Text.assemble(*parts, safe(f"  {notes}" if notes else "", "dim"))


def marks(decision: Decision, option: str) -> Iterator[str]:
    """Yield the marks of an option: chosen, applied, the host's own."""
    options = {
        "chosen": decision.chosen, "applied": decision.applied, "host's own": decision.default
    }  # fmt: skip
    yield from (mark for mark, name in options.items() if name == option)
    if decision.allowed is not None and option not in decision.allowed:
        yield "not allowed"
    if decision.exploit_only is not None and option in decision.exploit_only:
        yield "not explored"


def _add_credit(tree: Tree, story: Story) -> None:
    """Add the credit of each decision; those that taught nothing are grouped by reason."""
    if not story.credits:
        return
    node = tree.add(safe("credit", "bold"))
    without: dict[str, list[str]] = {}
    several = len(story.attempts) > 1
    for decision in story.decisions:
        credit = story.credits[decision.decision_id]
        name = f"{decision.attempt}:{decision.ordinal}" if several else f"{decision.ordinal}"
        if credit.why is not None:
            without.setdefault(f"{credit.state}: {credit.why}", []).append(name)
            continue
        learned = "not learned from yet" if credit.update is None else f"update {credit.update}"
        node.add(
            _join_parts(
                safe(f"decision {name}", "bold"),
                safe(f"{decision.point}: {decision.applied or '-'}"),
                safe(f"return {number(credit.return_)}"),
                _advantage(credit.advantage),
                safe(learned),
                safe(credit.since or "", "yellow"),
            )
        )
    for why, names in without.items():
        node.add(_join_parts(safe(f"decision {', '.join(names)}", "bold"), safe(why)))


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
    return _join_parts(
        safe(f"{reward.name} {value}"),
        safe(reward.label or ""),
        safe(target),
        safe(f"by {reward.source}"),
        safe(moment(reward.at)),
        safe(reward.comment or "", "italic"),
    )


def _join_parts(*parts: Text) -> Text:
    visible = [part for part in parts if part.plain.strip()]
    return join_texts(*(text for part in visible for text in (safe(" · ", "dim"), part)))[3:]


def latency_text(decision: Decision) -> str:
    """Return the microseconds that a decision took in the host's thread."""
    return f"{decision.latency_us:.0f} us"


def plain_decision(decision: Decision) -> JsonObject:
    """Return a decision for JSON: with its id, without the packed features."""
    return {
        "decision_id": decision.decision_id,
        **{
            name: getattr(decision, name)
            for name in decision.__struct_fields__
            if name != "encoded"
        },
    }


CANDIDATES = 5
PARTS = re.compile(
    r"(?s)(?P<rollout>.+?)(:attempt-(?P<attempt>[0-9]{1,18}))?"
    r"(:(decision-)?(?P<ordinal>[0-9]{1,18}))?"
)


def rollout_of(store: Store, beginning: str) -> Rollout:
    """Return the rollout of an id, or of a unique beginning of one.

    The ``live-`` of an id may be left out.

    Raises:
        UnknownError: No id begins so.
        AmbiguousIdError: Several do; the message lists them.
    """
    exact = store.rollouts.find_rollout(beginning)
    if exact is not None:
        return exact
    ids = {
        rollout_id
        for whole in (beginning, f"live-{beginning}")
        for rollout_id in store.rollouts.ids_beginning_with(whole, limit=CANDIDATES + 1)
        if beginning
    }
    return store.rollouts.rollout(_only(sorted(ids), "rollout", beginning))


def _only(ids: Sequence[str], kind: str, beginning: str) -> str:
    """Return the only id.

    Raises:
        UnknownError: There is none.
        AmbiguousIdError: There are several; the message lists them.
    """
    if not ids:
        raise UnknownError(kind, beginning)
    if len(ids) > 1:
        listed = ", ".join(ids[:CANDIDATES])
        more = ", ..." if len(ids) > CANDIDATES else ""
        raise AmbiguousIdError(f"several {kind}s begin with {beginning!r}: {listed}{more}")
    return ids[0]


def decision_of(store: Store, name: str) -> Decision:
    """Return the decision of an id, or of the beginning of its rollout's id and its number.

    ``live-5f0d`` is the only decision of that rollout, ``live-5f0d:2`` the second of its last
    attempt, ``live-5f0d:attempt-1:decision-2`` the second of the first.

    Raises:
        UnknownError: There is none.
        AmbiguousIdError: Several fit; the message lists them.
    """
    try:
        return store.decisions.decision(name)
    except UnknownError:
        match = PARTS.fullmatch(name)
    if match is None:
        raise UnknownError("decision", name)
    rollout = rollout_of(store, match["rollout"])
    decisions = store.decisions.decisions(rollout.rollout_id)
    last = max((decision.attempt for decision in decisions), default=0)
    attempt = int(match["attempt"]) if match["attempt"] else last
    matching = {
        decision.decision_id: decision
        for decision in decisions
        if match["ordinal"] is None
        or (decision.attempt, decision.ordinal) == (attempt, int(match["ordinal"]))
    }
    return matching[_only(list(matching), "decision", name)]


@click.command(epilog=epilog("show", "tau-live show live-5f0d7f0e", "tau-live show 5f0d --json"))
@click.argument("rollout", shell_complete=completion.rollouts)
@store_option
@json_option
def show(rollout: str, path: Path | None, as_json: bool) -> None:
    """Draw ROLLOUT as a tree: attempts, spans, decisions with their odds, rewards, credit.

    Each span shows when it began, how long it took, its tokens and its cost. ROLLOUT is an
    id or a unique prefix of one.
    """
    with open_store(path) as (store, settings):
        story = story_of(store, settings, rollout)
    if as_json:
        print_json(story.plain())
    else:
        print_all(tree_of(story, width=stdout_width()))


def story_of(store: Store, settings: Settings, beginning: str) -> Story:
    """Return a rollout and everything that is stored about it.

    Raises:
        UnknownError: No id begins so.
        AmbiguousIdError: Several do.
    """
    from tau_live.operate.why import credits_of  # numpy, which no list needs

    rollout = rollout_of(store, beginning)
    id_ = rollout.rollout_id
    children = store.rollouts.query(RolloutQuery(parent_id=id_, limit=1000))
    decisions = store.decisions.decisions(id_)
    credit = {
        name: value
        for point in dict.fromkeys(decision.point for decision in decisions)
        for name, value in credits_of(store, settings, rollout, point=point).items()
    }
    return Story(
        rollout=rollout,
        attempts=store.rollouts.attempts(id_),
        spans=store.rollouts.spans(id_),
        decisions=decisions,
        rewards=store.rewards.rewards(id_),
        children=children.rollouts,
        credits={decision.decision_id: credit[decision.decision_id] for decision in decisions},
    )
