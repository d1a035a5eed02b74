"""``tau-live show``: one rollout with all that is stored about it."""

from pathlib import Path

import click

from tau_live.cli import completing
from tau_live.cli.finding import rollout_of
from tau_live.cli.opening import epilog, json_option, opened, store_option
from tau_live.cli.output import print_all, print_json, stdout_width
from tau_live.cli.tree import Story, plain_credit, plain_decision, tree_of
from tau_live.settings import Settings
from tau_live.store.records import RolloutQuery
from tau_live.store.roles import Store
from tau_live.why import credits_of

CHILDREN = 1000


@click.command(epilog=epilog("show", "tau-live show live-5f0d7f0e", "tau-live show 5f0d --json"))
@click.argument("rollout", shell_complete=completing.rollouts)
@store_option
@json_option
def show(rollout: str, path: Path | None, as_json: bool) -> None:
    """Draw ROLLOUT as a tree: attempts, spans, decisions with their odds, rewards, credit.

    Each span shows when it began, how long it took, its tokens and its cost. ROLLOUT is an
    id or a unique prefix of one.
    """
    with opened(path) as (store, settings):
        story = story_of(store, settings, rollout)
    if as_json:
        print_json(
            {
                **story._asdict(),
                "decisions": [plain_decision(decision) for decision in story.decisions],
                "credits": [
                    {"decision_id": id_, **plain_credit(credit)}
                    for id_, credit in story.credits.items()
                ],
                "children": [child.rollout_id for child in story.children],
            }
        )
    else:
        print_all(tree_of(story, width=stdout_width()))


def story_of(store: Store, settings: Settings, beginning: str) -> Story:
    """Return a rollout and everything that is stored about it.

    Raises:
        UnknownError: No id begins so.
        AmbiguousIdError: Several do.
    """
    rollout = rollout_of(store, beginning)
    id_ = rollout.rollout_id
    children = store.rollouts.query(RolloutQuery(parent_id=id_, limit=CHILDREN))
    decisions = store.decisions.decisions(id_)
    credit = {
        name: one
        for point in dict.fromkeys(decision.point for decision in decisions)
        for name, one in credits_of(store, settings, rollout, point=point).items()
    }
    return Story(
        rollout=rollout,
        attempts=store.rollouts.attempts(id_),
        spans=store.rollouts.spans(id_),
        decisions=decisions,
        rewards=store.rewards.rewards(id_),
        children=children.rollouts,
        credits={one.decision_id: credit[one.decision_id] for one in decisions},
    )
