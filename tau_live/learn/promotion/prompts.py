"""The state of each adopted prompt, as the trials of the live store settle it.

The trial in the live store is stored first, in one transaction with its line of the audit, and is
what this store's agents go by. From it follows the state in the store that the prompt was published
in, which may be another: it is settled again until it agrees, so a crash in between loses nothing.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

from msgspec.structs import replace

from tau_live.core.errors import StoreError, StoreUnavailableError
from tau_live.core.prompts import META, prompt_of_trial, trial_of_prompt
from tau_live.core.records import AuditEntry, Trial
from tau_live.core.settings import Settings
from tau_live.decisions.prompts import (
    PromptHistory,
    PublishedPrompt,
    is_stopped,
    prompt_history,
    prompt_keys,
)
from tau_live.learn.promotion.rules import (
    Move,
    PromptStatus,
    keep_prompt,
    retry_prompt,
    trial_status,
)
from tau_live.store.opening import open_at
from tau_live.store.roles import Store


class Due(NamedTuple):
    """A prompt whose state does not agree with its trial.

    Attributes:
        prompt: The prompt.
        trial: Its trial.
        state: The state that it gets: ``champion``, ``withdrawn``, or ``adopted`` where it was
            adopted again after it had been withdrawn.
    """

    prompt: PublishedPrompt
    trial: Trial
    state: str


def due_prompts(history: PromptHistory, trials: dict[str, Trial]) -> list[Due]:
    """Return the prompts of a resource whose state does not agree with their trial.

    What was published after a trial ended has the last word: the trial says nothing about it.
    """
    due = []
    for prompt in history.prompts:
        trial = trials.get(trial_of_prompt(prompt.version))
        state = None if trial is None else _state_due(prompt, trial, history.incumbent)
        if trial is not None and state is not None:
            due.append(Due(prompt, trial, state))
    return due


def _state_due(
    prompt: PublishedPrompt, trial: Trial, incumbent: PublishedPrompt | None
) -> str | None:
    if trial.stopped is not None:
        if prompt.state == "adopted" and not is_stopped(trial, prompt):
            return "adopted"
        was_live = prompt.state in {"adopted", "champion"}
        return "withdrawn" if was_live and is_stopped(trial, prompt) else None
    if trial.exposure != 1.0 or prompt is incumbent or prompt.state == "withdrawn":
        return None
    newest = max(prompt.at, 0.0 if incumbent is None else incumbent.at)
    return "champion" if newest <= trial.changed_at else None


class Settlement:
    """Settles the states of prompts; for the thread of the live store, which holds the lease.

    Args:
        live: The store of the trials.
        settings: Names the resources, and the store of the prompts.
        who: Who does it, for the audit.
    """

    def __init__(self, live: Store, settings: Settings, *, who: str) -> None:
        self._live = live
        self._settings = settings
        self._who = who
        self._keys = prompt_keys(settings)
        self._is_elsewhere = settings.prompts_store not in {None, settings.store}

    def is_due(self) -> bool:
        """Whether there is something to settle, as far as the live store alone can tell."""
        if not self._keys:
            return False
        trials = self._live.trials.trials()
        if self._is_elsewhere:
            return any(
                trial.stopped is not None or trial.exposure == 1.0
                for trial in trials.values()
                if prompt_of_trial(trial.point) is not None
            )
        return any(due_prompts(prompt_history(self._live, key), trials) for key in self._keys)

    def settle(self, *, now: float) -> None:
        """Bring the states into line with the trials.

        A store of the prompts that cannot be used is tried again with the next call; ``Prompts``
        reports it.

        Args:
            now: Epoch seconds.

        Raises:
            StoreUnavailableError: The live store failed.
        """
        if not self.is_due():
            return
        try:
            with self._prompts_store() as prompts:
                for key in self._keys:
                    trials = self._live.trials.trials()
                    for due in due_prompts(prompt_history(prompts, key), trials):
                        self._settle(prompts, key, due, now=now)
        except StoreError:
            if not self._is_elsewhere:
                raise

    @contextmanager
    def _prompts_store(self) -> Iterator[Store]:
        path = self._settings.prompts_store
        if path is None or not self._is_elsewhere:
            yield self._live
        elif path.exists():  # or it would be made
            with closing(open_at(path, busy_timeout_s=1.0)) as prompts:
                yield prompts
        else:
            raise StoreUnavailableError(f"there is no store {path}")

    def _settle(self, prompts: Store, key: str, due: Due, *, now: float) -> None:
        prompt, trial, state = due
        if state == "adopted":
            self._save(retry_prompt(trial), now=now)
            return
        incumbent = prompt_history(prompts, key).incumbent
        if state == "champion" and incumbent is not None and self._settings.probation:
            kept = self._live.trials.trial(trial_of_prompt(incumbent.version))
            self._save(keep_prompt(kept, self._settings), now=now)
        with prompts.begin():
            prompts.optimizations.set_prompt_state(prompt.version, state, why=trial.stopped)
            _publish_incumbent(prompts, key, prompt if state == "champion" else None, now=now)
            if self._is_elsewhere:  # the live store has its line already
                move = Move.PROMPT_CHAMPION if state == "champion" else Move.PROMPT_WITHDRAWN
                reason = trial.stopped or "better in a live agent"
                details = {"point": trial.point, "resource": key}
                prompts.audit.add(
                    AuditEntry(
                        at=now, who=self._who, action=move.value, reason=reason, details=details
                    )
                )

    def _save(self, trial: Trial, *, now: float) -> None:
        since = self._live.trials.newest_place(trial.point)
        self._live.trials.save(
            replace(trial, since=since, changed_at=now, revision=trial.revision + 1)
        )


def _publish_incumbent(
    prompts: Store, key: str, champion: PublishedPrompt | None, *, now: float
) -> None:
    """Publish a new champion, or the incumbent where what is in force was withdrawn."""
    history = prompt_history(prompts, key)
    incumbent = history.incumbent
    if champion is not None:
        is_right = incumbent is not None and incumbent.version == champion.version
        incumbent = None if is_right else champion
    elif history.prompts[0].state != "withdrawn":
        return
    if incumbent is None:
        return
    meta = {"prompt_version": incumbent.version, "rolled_back_at": now}
    prompts.resources.publish({key: incumbent.content, META + key: meta}, at=now)


def published_states(live: Store, settings: Settings) -> dict[str, str]:
    """Return the state of each prompt that was adopted, as the store of the prompts has it.

    None is known if that is another store, and cannot be read.
    """
    path = settings.prompts_store
    if path is None or path == settings.store:
        return live.optimizations.prompt_states()
    try:
        with closing(open_at(path, read_only=True)) as prompts:
            return prompts.optimizations.prompt_states()
    except StoreError:
        return {}


def prompt_statuses(store: Store, settings: Settings, *, now: float) -> dict[str, PromptStatus]:
    """Return the status of each prompt that is or was on trial, by prompt version."""
    trials = {prompt_of_trial(point): each for point, each in store.trials.trials().items()}
    states = published_states(store, settings) if trials.keys() - {None} else {}
    return {
        version: _prompt_status(store, trial, settings, state=states.get(version), now=now)
        for version, trial in trials.items()
        if version is not None
    }


def _prompt_status(
    store: Store, trial: Trial, settings: Settings, *, state: str | None, now: float
) -> PromptStatus:
    """Return the status of a prompt version's trial.

    Args:
        store: The store of the trials.
        trial: The trial.
        settings: Ranges, deadlines, margins.
        state: The state of the prompt where it was published; ``None`` if that is unknown.
        now: Epoch seconds.
    """
    known = trial_status(store, trial, settings, now=now)
    lift, (lower, upper) = known.difference.get("estimate"), known.bounds
    states = {
        "withdrawn": trial.stopped is not None or state == "withdrawn",
        "champion": known.exposure == 1.0,
        "replaced": trial.kept > 0,
        "retired": known.exposure == 0.0,
    }
    return PromptStatus(
        state=next((state for state, holds in states.items() if holds), "trial"),
        exposure=known.exposure,
        offered=known.rollouts["learner"],
        withheld=known.rollouts["control"],
        lift=None if lift is None else float(lift),
        lower=lower,
        upper=upper,
        verdict=known.verdict,
        why=trial.stopped or (known.why if 0.0 < known.exposure < 1.0 else None),
        uncounted=known.uncounted,
    )
