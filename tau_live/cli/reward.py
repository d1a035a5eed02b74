"""``tau-live reward``: record a reward from a shell, a script or a person."""

import math
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypedDict, Unpack

import click
from msgspec.structs import asdict, replace

from tau_live.cli import completion
from tau_live.cli.options import epilog, json_option, open_store, store_option
from tau_live.cli.output import number, print_json, printable
from tau_live.cli.rollouts import rollout_of
from tau_live.core.errors import TauLiveError
from tau_live.core.processes import parent_of
from tau_live.core.records import Reward, RewardSource, Rollout, rollout_id_of
from tau_live.core.redaction import clean_id, scrub_text
from tau_live.core.reward_rules import allowed_sources, is_counted, refuses
from tau_live.core.settings import Settings
from tau_live.core.settings.kinds import nearest
from tau_live.record.attempts import last_run, rollout_named
from tau_live.record.pipeline import Texts, known_rewards
from tau_live.record.rewards import Rewarding
from tau_live.runtime.builtin_plugins import load_plugins
from tau_live.store.roles import Store

WORDS = {"true": 1.0, "false": 0.0}


class RewardOptions(TypedDict):
    """The options of the command, by name."""

    run: str | None
    host: str | None
    session: str | None
    decision: str | None
    name: str
    source: str
    key: str
    comment: str | None


@click.command(
    context_settings={"ignore_unknown_options": True},  # a value may be negative
    epilog=epilog(
        "reward",
        "tau-live reward 1 --run live-5f0d7f0e-2b0c-5c53-9a5e-0d1f6f1d7c11 --name solved",
        'tau-live reward --run live-5f0d7f0e --comment "polite, but wrong"',
        "tau-live reward true --host pydantic-ai --run 01a2b3c4 --name solved --source user",
        "tau-live reward 0.5 --session user-1 --name stars",
    ),
)
@click.argument("value", required=False)
@click.option(
    "--run", metavar="ID", help="The rollout, or with --host that host's run id.",
    shell_complete=completion.rollouts,
)  # fmt: skip
@click.option("--host", help="The host that --run or --session belongs to, such as pydantic-ai.")
@click.option("--session", metavar="ID", help="The session; its last run gets the reward.")
@click.option(
    "--decision", metavar="ID", help="The decision, instead of the whole rollout.",
    shell_complete=completion.decisions,
)  # fmt: skip
@click.option("--name", default="reward", show_default=True, help="Name of the reward.")
@click.option("--source", default=RewardSource.API.value, show_default=True, help="Who gives it.")
@click.option("--key", default="", help="Distinguishes rewards with the same name and source.")
@click.option("--comment", help="A comment; needs no VALUE.")
@store_option
@json_option
def reward(
    value: str | None, path: Path | None, as_json: bool, **options: Unpack[RewardOptions]
) -> None:
    """Record a reward for a rollout or a decision: VALUE is a number, true or false.

    Repeating it changes nothing; another value replaces it. A reward may arrive before its
    rollout and waits for it.
    """
    given = reward_of(value, options, at=time.time())
    with open_store(path, write=True) as (store, settings):
        given = replace(given, rollout_id=target_of(store, given.rollout_id, options))
        check_allowed(given, settings, os.environ)
        plugins = load_plugins(settings)
        given = Texts(plugins.redact_text, known_rewards(settings)).reward(given)
        outcome, rollout = store_reward(store, Rewarding(settings, plugins), given)
    if as_json:
        ready = rollout is not None and rollout.ready_seq is not None
        total = None if rollout is None else rollout.total_reward
        plain = {name: value for name, value in asdict(given).items() if name != "seq"}
        done = {"outcome": outcome, "stored": rollout is not None}
        print_json({**plain, **done, "ready": ready, "total_reward": total})
        return
    value_text = number(given.value) if given.value is not None else "comment"
    click.echo(f"{printable(given.name)} {value_text}: {outcome}")
    for complaint in complaints(given, rollout, settings):
        click.echo(complaint, err=True)


def complaints(given: Reward, rollout: Rollout | None, settings: Settings) -> Iterator[str]:
    """Yield what may be wrong with a reward that was stored.

    Args:
        given: The reward.
        rollout: Its rollout; ``None`` if it is not stored.
        settings: Which rewards are declared.
    """
    own = next((known for known in settings.rewards if known.name == given.name), None)
    if own is not None and given.value is not None and not own.allows(given.value):
        low, high = own.bounds
        effect = "" if own.cost else ", so its run is left out"
        yield (
            f"{printable(given.name)} {number(given.value)} is outside its range from {low:g} to "
            f"{high:g}{effect}"
        )
    if rollout is None:
        yield f"no rollout {printable(given.rollout_id)} is stored yet; the reward waits for it"


def target_of(store: Store, name: str, options: RewardOptions) -> str:
    """Return the id of the rewarded rollout: a stored one, or any complete id.

    Raises:
        UnknownError: No stored rollout has an id that begins with ``name``, which is no complete
            one; or nothing of the session is stored.
        AmbiguousIdError: Several rollouts match.
    """
    host, session, run = options["host"], options["session"], options["run"]
    with store.begin(), store.batch([]) as batch:
        if session is not None:
            return last_run(batch, clean_id(session), host=host or "")
        if host is not None and run is not None:
            return rollout_named(batch, rollout_id_of(host, clean_id(run)))
    is_complete = re.fullmatch(r"live-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", name)
    return name if is_complete else rollout_of(store, name).rollout_id


def check_allowed(given: Reward, settings: Settings, environ: Mapping[str, str]) -> None:
    """Raise if a reward's name does not count, its source may not give it, or its own run does.

    Raises:
        TauLiveError: It is so.
    """
    if given.value is not None and not is_counted(given, settings.rewards):
        names = [declared.name for declared in settings.rewards]
        near = nearest(given.name, names)
        hint = f"did you mean {near!r}?" if near else f"declared are {', '.join(names)}"
        raise TauLiveError(f"no reward {given.name!r} is declared, so it would not count; {hint}")
    if refuses(given, settings):
        known = ", ".join(allowed_sources(given.name, settings)) or "any except safety"
        raise TauLiveError(f"{given.source!r} may not give {given.name!r}, only {known} may")
    link = parent_of(environ)
    if not settings.self_rewards and link and given.rollout_id == rollout_id_of(*link):
        raise TauLiveError("a run may not give itself a reward (TAU_LIVE_RL_SELF_REWARDS=0)")


def reward_of(value: str | None, options: RewardOptions, *, at: float) -> Reward:
    """Return the reward of the options.

    Raises:
        click.UsageError: There is no target, more than one, or neither a value nor a comment.
    """
    run, decision, comment = options["run"], options["decision"], options["comment"]
    if sum(target is not None for target in (run, decision, options["session"])) != 1:
        raise click.UsageError("give one of --run ID, --session ID and --decision ID")
    if decision is not None and options["host"] is not None:
        raise click.UsageError("--host needs --run or --session")
    if decision is not None and ":attempt-" not in decision:
        raise click.BadParameter(f"{decision!r} is not a decision id", param_hint="--decision")
    if value is None and not (comment or "").strip():
        raise click.UsageError("give a VALUE or a --comment")
    return Reward(
        rollout_id=run or "" if decision is None else decision.rpartition(":attempt-")[0],
        decision_id=decision,
        name=scrub_text(options["name"]),
        value=None if value is None else _number(value),
        label=value.lower() if value is not None and value.lower() in WORDS else None,
        comment=None if comment is None else scrub_text(comment),
        source=clean_id(options["source"]),
        key=clean_id(options["key"]),
        at=at,
    )


def store_reward(store: Store, rewarding: Rewarding, given: Reward) -> tuple[str, Rollout | None]:
    """Store a reward, settle its rollout, and return the outcome and the rollout, if known."""
    with store.begin(), store.batch([given.rollout_id]) as batch:
        outcome = batch.add_reward(given)
        rollout = batch.find_rollout(given.rollout_id)
        if rollout is not None and rollout.ended_at is not None and outcome != "same":
            rewarding.settle(rollout, batch=batch, now=given.at)
            rollout = batch.rollout(given.rollout_id)
    return outcome, rollout


def _number(value: str) -> float:
    if value.lower() in WORDS:
        return WORDS[value.lower()]
    try:
        number_ = float(value)
    except ValueError:
        number_ = math.nan
    if not math.isfinite(number_):
        raise click.BadParameter(
            f"{value!r} is neither a number nor true or false", param_hint="VALUE"
        )
    return number_
