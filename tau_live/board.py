"""What one process knows of its store, in memory."""

import threading
from typing import TYPE_CHECKING

from tau_live.handles import HOST

if TYPE_CHECKING:
    from collections.abc import Mapping


class Board:
    """What is known of the store in memory, for whoever asks without wanting to wait.

    The writer's and the learner's threads write it; replacing a value is atomic.
    """

    def __init__(self) -> None:
        self.stored: Mapping[str, object] = {}
        self.last_report: Mapping[str, object] | None = None
        self.hosts: dict[str, str] = {HOST: "attached"}
        self.started = threading.Event()
