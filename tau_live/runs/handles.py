"""The state of one run while it lasts, and of a decision until it is applied."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypedDict

from tau_live.envelope import OWN_HOST, Event
from tau_live.rollouts import rollout_id_of

if TYPE_CHECKING:
    from tau_live.deciding.arms import Arm


class Told(TypedDict):
    """What names a run elsewhere than in the process that it goes on in."""

    name: str
    run_id: str
    session_id: str | None
    recorded: bool
    host: str
    execution: str


class RunHandle:
    """What the runtime knows of one run that is going on.

    Attributes:
        host: The framework that runs it; ``OWN_HOST`` for runs of the door.
        name: What kind of run it is.
        run_id: The host's key of it.
        attempt: The try, as far as this process knows.
        execution: Tells this execution from others under the same key.
        run: Host, key and execution, by which the queue knows it.
        session_id: What runs of one conversation share.
        parent: The run inside which it runs.
        epoch: How often the gate had held when it began; it is recorded while that is so.
        recorded: Whether it is recorded at all.
        ended: Whether it is over.
        decided: How many decisions it has made.
        home: What makes its events; a forked child, or a later ``attach``, has another, and one
            that was read from a pickle none.
        arms: Who decides it at each point, as it was assigned with the first decision there.
    """

    __slots__ = (
        "arms",
        "attempt",
        "children",
        "decided",
        "ended",
        "epoch",
        "execution",
        "home",
        "host",
        "name",
        "ordinals",
        "parent",
        "recorded",
        "run",
        "run_id",
        "session_id",
    )

    def __init__(  # noqa: PLR0913  # what it begins with, all keyword-only but its names
        self,
        name: str,
        run_id: str,
        *,
        session_id: str | None,
        parent: "RunHandle | None",
        epoch: int,
        recorded: bool,
        home: object,
        host: str = OWN_HOST,
        execution: str = "",
    ) -> None:
        self.home = home
        self.host = host
        self.arms: dict[str, Arm] = {}
        self.name = name
        self.run_id = run_id
        self.attempt = 1
        self.execution = execution
        self.run = (host, run_id, execution)
        self.session_id = session_id
        self.parent = parent
        self.epoch = epoch
        self.recorded = recorded
        self.ended = False
        self.decided = 0
        self.ordinals = itertools.count(1)
        self.children = itertools.count(1)

    @property
    def rollout_id(self) -> str:
        """The rollout's id; few need it in the host's thread."""
        return rollout_id_of(self.host, self.run_id)

    def told(self) -> Told:
        """Return what names the run, as plain data: with a ``home`` of ``None`` it is the same."""
        return {
            "name": self.name,
            "run_id": self.run_id,
            "session_id": self.session_id,
            "recorded": self.recorded,
            "host": self.host,
            "execution": self.execution,
        }


class Unsettled:
    """A decision that an adapter made, told once it is known what its host did with it.

    Args:
        tell: Takes what makes the event.
        made: Makes it, from what was applied and why not.
        applied: The place of the option that is to be applied; ``None`` if it is none of them.
        why_not: Why that is not what was chosen.
    """

    def __init__(
        self,
        tell: Callable[[Callable[[], Event]], object],
        made: Callable[..., Event],
        *,
        applied: int | None,
        why_not: str | None,
    ) -> None:
        self._tell = tell
        self._made = made
        self._applied = applied
        self._why_not = why_not
        self._settled = False

    def settle(self, instead: str | None = None) -> None:
        """Tell it, once: as applied, or why the host did something else ``instead``."""
        if self._settled:
            return
        self._settled = True
        applied = self._applied if instead is None else None
        why_not = self._why_not or instead
        self._tell(partial(self._made, applied=applied, why_not=why_not))
