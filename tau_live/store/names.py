"""What a store can do with the other ids that a host gives to its runs, and with sessions."""

from collections.abc import Mapping
from typing import Protocol


class Names(Protocol):
    """Other ids by which rollouts are known: of a model's response, of what spans several runs.

    A host's id is looked for as the rollout's id that would be made of it, so that a reward that
    came before it lies where it will be looked for.
    """

    def add(self, name_id: str, rollout_id: str) -> int:
        """Note that a rollout has another id; return how many rewards had waited for that id.

        They become the rollout's, as if they came now.

        Raises:
            UnknownError: No such rollout is stored.
        """
        ...

    def rollouts_of(self, name_id: str) -> list[str]:
        """Return the rollouts that have this other id, without those inside another of them."""
        ...

    def last_of(self, session_id: str) -> Mapping[str, str]:
        """Return by host the rollout of a session that began last, inside no other one of it.

        Looked for among the newest runs of the session.
        """
        ...

    def last_of_host(self, session_id: str, host: str) -> str | None:
        """Return the rollout of a host's session that began last, inside no other one of it."""
        ...
