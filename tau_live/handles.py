"""What is known of one run while it goes on."""

import itertools
from typing import TYPE_CHECKING

from tau_live.rollouts import rollout_id_of

if TYPE_CHECKING:
    from tau_live.arms import Arm

HOST = "tau_live"
"""The host of runs of the public door."""


class RunHandle:
    """What the runtime knows of one run that is going on.

    Attributes:
        host: The framework that runs it; ``tau_live`` for runs of the door.
        name: What kind of run it is.
        run_id: The host's key of it.
        rollout_id: The rollout's id.
        attempt: The try, as far as this process knows.
        execution: Tells this execution from others under the same key.
        session_id: What runs of one conversation share.
        parent: The run inside which it runs.
        epoch: How often the gate had held when it began; it is recorded while that is so.
        recorded: Whether it is recorded at all.
        ended: Whether it is over.
        decided: How many decisions it has made.
        home: What makes its events; a forked child, or a later ``attach``, has another.
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
        "rollout_id",
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
        host: str = HOST,
    ) -> None:
        self.home = home
        self.host = host
        self.arms: dict[str, Arm] = {}
        self.name = name
        self.run_id = run_id
        self.rollout_id = rollout_id_of(host, run_id)
        self.attempt = 1
        self.execution = ""
        self.session_id = session_id
        self.parent = parent
        self.epoch = epoch
        self.recorded = recorded
        self.ended = False
        self.decided = 0
        self.ordinals = itertools.count(1)
        self.children = itertools.count(1)
