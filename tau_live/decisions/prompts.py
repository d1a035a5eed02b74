"""The prompts that ``tau-live optimize`` adopted, and pools of lessons, as options of decisions."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from tau_live.core.errors import TauLiveError
from tau_live.core.events import PromptArm
from tau_live.core.guard import logger, text_of
from tau_live.core.pools import RESOURCE, signed_bytes, text_of_pool
from tau_live.core.prompts import (
    FIRST_SHARE,
    POOL,
    PromptOffer,
    exposure_draw,
    prompt_version,
    trial_of_prompt,
)
from tau_live.core.records import Trial
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Settings
from tau_live.core.settings.tables import DeclaredDecision
from tau_live.decisions.runs import RunHandle
from tau_live.store.records import Topic
from tau_live.store.roles import Store
from tau_live.store.sealing import Keys

MOST = 3
"""How many prompts are offered besides the incumbent."""

RETRY_S = 0.5
"""Seconds between two attempts to read a store that cannot be read."""

NOT_READ = "prompts_not_read"
"""The counter of failures to read the store of the prompts."""


class PublishedPrompt(NamedTuple):
    """A prompt as a resource holds it.

    Attributes:
        version: Its prompt version.
        text: Its text.
        state: ``adopted``, ``champion`` or ``withdrawn``; ``None`` if no optimization adopted it.
        at: Epoch seconds when it was last published.
        content: The resource: the text, or a pool of lessons as JSON data.
    """

    version: str
    text: str
    state: str | None
    at: float
    content: object


class PromptHistory(NamedTuple):
    """The prompts of one resource, the newest first, each once.

    Attributes:
        prompts: The prompts.
    """

    prompts: tuple[PublishedPrompt, ...]

    @property
    def incumbent(self) -> PublishedPrompt | None:
        """The newest prompt that is neither on trial nor withdrawn; ``None`` without any."""
        settled = (prompt for prompt in self.prompts if prompt.state in {None, "champion"})
        return next(settled, None)


def prompt_keys(settings: Settings) -> list[str]:
    """Return the resources whose prompts are options of a decision."""
    keys = (declared.prompt_key for declared in settings.decisions)
    return [key for key in keys if key is not None]


def prompt_history(store: Store, key: str) -> PromptHistory:
    """Return the prompts of a resource, from the store that they are published in."""
    states = store.optimizations.prompt_states()
    prompts: dict[str, PublishedPrompt] = {}
    for resource in store.resources.versions(key):
        content = resource.content
        if isinstance(content, str):
            version, text = prompt_version(content), content
        elif key.startswith(RESOURCE) and isinstance(content, dict):
            version, text = f"{POOL}{content.get('pool_version')}", text_of_pool(content)
        else:
            continue
        prompt = PublishedPrompt(version, text, states.get(version), resource.created_at, content)
        prompts.setdefault(version, prompt)
    return PromptHistory((*prompts.values(),))


def trusted_history(history: PromptHistory, settings: Settings, model: str | None) -> PromptHistory:
    """Return a history without pools of lessons that are not to be offered to this host.

    A pool is offered to hosts of the model that it was learned with, and only while its block is
    what was stamped as it was shipped.

    Args:
        history: The prompts of a resource.
        settings: Those of the host: the file of the stamping keys.
        model: The model that the host uses; ``None`` if it is not declared.
    """
    pools = [prompt.content for prompt in history.prompts if isinstance(prompt.content, dict)]
    if not pools:
        return history
    return PromptHistory(
        tuple(
            prompt
            for prompt in history.prompts
            if not isinstance(prompt.content, dict)
            or (prompt.content.get("model_id") == model and is_signed(prompt.content, settings))
        )
    )


def is_signed(content: JsonObject, settings: Settings) -> bool:
    """Return whether a pool of lessons is what was stamped as it was shipped."""
    evidence = content.get("evidence")
    signature = evidence.get("hmac") if isinstance(evidence, dict) else None
    if not isinstance(signature, str) or not signature.isascii():
        return False
    try:
        keys = Keys.read(settings.audit_key_file)
    except TauLiveError:
        return False
    return keys.is_signed(signed_bytes(content), signature)


def pool_content(store: Store, option: str, key: str) -> JsonObject | None:
    """Return the pool of lessons that an option stood for; ``None`` if it is none.

    Args:
        store: The store that pools are published in.
        option: The name of the option.
        key: The resource that the options of its decision come from.
    """
    if not option.startswith(POOL):
        return None
    for resource in store.resources.versions(key):
        content = resource.content
        if isinstance(content, dict) and f"{POOL}{content.get('pool_version')}" == option:
            return content
    return None


def is_stopped(trial: Trial, prompt: PublishedPrompt) -> bool:
    """Whether a prompt was withdrawn here; one that is adopted again later is tried again."""
    return trial.stopped is not None and trial.changed_at >= prompt.at


def prompt_offers(history: PromptHistory, trials: Mapping[str, Trial]) -> tuple[PromptOffer, ...]:
    """Return the prompts to offer: the incumbent to every rollout, those on trial to a share.

    Args:
        history: The prompts of a resource.
        trials: The trials of the live store.
    """
    incumbent, offers = history.incumbent, []
    for prompt in history.prompts:
        trial = trials.get(trial_of_prompt(prompt.version), Trial(point=""))
        is_on_trial = trial.stopped is None and 0.0 < (trial.exposure or 0.0) < 1.0
        is_candidate = prompt.state == "adopted" or (prompt.state != "withdrawn" and is_on_trial)
        if prompt is incumbent or not is_candidate:
            continue
        share = FIRST_SHARE if trial.exposure is None else trial.exposure
        if trial.stopped is not None:
            share = 0.0 if is_stopped(trial, prompt) else FIRST_SHARE
        if share > 0.0 and prompt.text.strip():
            offers.append(PromptOffer(prompt.version, prompt.text, share))
    own = [] if incumbent is None or not incumbent.text.strip() else [incumbent]
    return *(PromptOffer(prompt.version, prompt.text, 1.0) for prompt in own), *offers[:MOST]


class Prompts:
    """The prompts on offer in this process, in memory; deciding never reads a store.

    All methods but ``fill`` are for the writer's thread. While the store of the prompts cannot be
    read, none is on offer.

    Args:
        settings: Names the resources, and the store that they are published in.
        open_: Opens that store, if it is another than the live one, for reading.
        count: Counts a failure to read it.
    """

    def __init__(
        self, settings: Settings, *, open_: Callable[[], Store], count: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._keys = prompt_keys(settings)
        self._models = {each.prompt_key: each.model for each in settings.decisions}
        self._seed = settings.seed
        self._open = None if settings.prompts_store in {None, settings.store} else open_
        self._count = count
        self._store: Store | None = None
        self._failure: str | None = None
        self._failed_at = float("-inf")
        self._offers: Mapping[str, tuple[PromptOffer, ...]] = {}
        self._filled: tuple[DeclaredDecision, Sequence[PromptOffer], DeclaredDecision] | None = None

    def refresh(self, live: Store) -> None:
        """Take over what was adopted, withdrawn or exposed to another share."""
        if self._keys:
            self._refresh(live)

    def poll(self, live: Store) -> None:
        """Take over what another store than the live one has changed; cheap if nothing has."""
        if not self._keys or self._open is None:
            return
        store = self._store
        try:
            if store is None and time.monotonic() - self._failed_at < RETRY_S:
                return
            if store is not None and store.is_there() and Topic.PROMPTS not in store.changes():
                return
        except TauLiveError:  # it is read again, which reports it
            self.close()
        self._refresh(live)

    def close(self) -> None:
        """Close the store of the prompts, if it is another than the live one."""
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def _refresh(self, live: Store) -> None:
        trials = live.trials.trials()
        try:
            store = self._other_store() or live
            self._offers = {
                key: prompt_offers(self._history(store, key), trials) for key in self._keys
            }
            self._failure = None
        except TauLiveError as error:
            self._offers = {}
            self.close()
            self._failed_at = time.monotonic()
            if text_of(error) != self._failure:
                self._count(NOT_READ)
                self._failure = text_of(error)
                effect = "no prompt is offered"
                logger().warning("prompts_not_read", error=self._failure, effect=effect)

    def _history(self, store: Store, key: str) -> PromptHistory:
        history = prompt_history(store, key)
        return trusted_history(history, self._settings, self._models.get(key))

    def _other_store(self) -> Store | None:
        if self._open is None:
            return None
        if self._store is not None and not self._store.is_there():
            self.close()
        if self._store is None:
            self._store = self._open()
            self._store.changes()
        return self._store

    def fill(
        self, handle: RunHandle, declared: DeclaredDecision
    ) -> tuple[DeclaredDecision, tuple[PromptArm, ...]]:
        """Return a decision with the prompts on offer as options, and who is offered which.

        A prompt that is withheld from the run is among the options all the same, and not allowed.

        Args:
            handle: The run, which keeps what it was offered.
            declared: The decision as declared.
        """
        offers = self._offers.get(declared.prompt_key or "", ())
        if not offers:
            return declared, ()
        filled = self._filled
        if filled is None or filled[0] is not declared or filled[1] is not offers:
            texts = {offer.version: offer.text for offer in offers}
            whole = replace(declared, options={**declared.options, **texts})
            filled = self._filled = declared, offers, whole
        return filled[2], (*self._arms(handle, offers),)

    def _arms(self, handle: RunHandle, offers: Sequence[PromptOffer]) -> Iterator[PromptArm]:
        for version, _, share in offers:
            if share >= 1.0:
                continue
            arm = handle.prompts.get(version)
            if arm is None:  # threads may share a run
                offered = exposure_draw(self._seed, handle.rollout_id, version) < share
                arm = handle.prompts.setdefault(version, PromptArm(version, offered, share))
            yield arm
