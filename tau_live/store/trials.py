"""What a store can do for trials: who was assigned to which arm, and what follows from it."""

from typing import Protocol

from tau_live.store.records import Assigned, Trial


class Trials(Protocol):
    """The learner of each decision point against its control.

    A rollout is assigned with the first decision that says its arm and share at the point;
    what later ones say changes nothing.
    """

    def trials(self) -> dict[str, Trial]:
        """Return every trial by its point."""
        ...

    def trial(self, point: str) -> Trial:
        """Return the trial of a point; one of revision 0 if none is stored."""
        ...

    def save(self, trial: Trial) -> bool:
        """Store a trial if its revision is still ``trial.revision - 1``; ``False`` if not."""
        ...

    def points(self) -> list[str]:
        """Return every decision point at which a rollout was assigned, sorted."""
        ...

    def assigned(self, point: str, *, after: int, limit: int) -> list[Assigned]:
        """Return assignments with a place behind ``after``, in their order."""
        ...

    def delays(self, point: str, *, limit: int) -> list[tuple[float, float | None]]:
        """Return when the newest assigned rollouts of a point began, and how long rewards took.

        Each as epoch seconds, and the seconds from there until it had ended and its last reward
        was given; ``None`` where nothing is known of what it was worth.
        """
        ...

    def uncounted(self, point: str, *, after: int, limit: int) -> int:
        """Return how many assignments at a point are behind ``after``, counted up to ``limit``."""
        ...

    def newest_place(self, point: str) -> int:
        """Return the place of the newest assignment at a point; 0 before the first."""
        ...

    def rewarded(self, point: str, *, after: int, limit: int) -> list[tuple[int, str]]:
        """Return rewards behind ``after`` of rollouts that the learner decides at a point.

        Each as its ``seq`` and the id of its rollout, in their order.
        """
        ...

    def newest_reward(self) -> int:
        """Return the ``seq`` of the newest reward; 0 before the first."""
        ...
