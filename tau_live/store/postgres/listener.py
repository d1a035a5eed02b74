"""Hears what the server announces about topics, on a connection that is used for nothing else.

An announcement is a hint: what has changed, the table ``revisions`` says, which is read after each,
after each connecting, and every five seconds in any case. Operators' orders, updates and trials are
announced, by the trigger that counts their revisions; what is recorded never is, because the server
takes one lock for all transactions that announce something.
"""

import time
from select import POLLIN, poll

import psycopg

from tau_live.core.errors import suppress
from tau_live.core.guard import logger

READ_S = 5.5
"""Seconds after which topics are read without an announcement: heartbeats read them every five."""

CONNECT_S = 5.0
"""Seconds between two attempts to connect."""


class Listener:
    """Hears what the server announces, and connects anew when it cannot.

    Args:
        conninfo: A connection string.

    Attributes:
        raw: The connection; ``None`` until it is first needed, and while it cannot be made.
    """

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._read_at = self._tried_at = float("-inf")
        self._is_pooled = False
        self._poll = poll()  # of the connection's socket
        self.raw: psycopg.Connection[tuple[object, ...]] | None = None

    def is_due(self) -> bool:
        """Return whether topics are to be read: announced, or not read for five seconds."""
        now = time.monotonic()
        if self.raw is None and now - self._tried_at >= CONNECT_S:
            self._tried_at = now
            self._listen()
        elif not self._hears() and now - self._read_at < READ_S:
            return False
        self._read_at = now
        return True

    def note_read(self) -> None:
        """Note that topics were read without being due."""
        self._read_at = time.monotonic()

    def _listen(self) -> None:
        try:
            self.raw = psycopg.connect(
                self._conninfo, autocommit=True, application_name="tau-live listening",
                keepalives_idle=30, keepalives_interval=10, keepalives_count=3,  # or a network
            )  # fmt: skip  # that drops idle connections is not noticed for hours
            select = "select 'tau_live_' || 'revisions'::regclass::oid, pg_backend_pid()"
            [(channel, session)] = self.raw.execute(select)
            self.raw.execute(f"listen {channel}")
            self._poll = poll()
            self._poll.register(self.raw.fileno(), POLLIN)
        except psycopg.Error:  # topics are read all the same, which reports it
            self.close()
            return
        if session != self.raw.info.backend_pid and not self._is_pooled:
            self._is_pooled = True
            effect = "orders may take 5 seconds"
            logger().warning("announcements_not_certain", cause="a pooler", effect=effect)

    def _hears(self) -> bool:
        """Return whether something was announced, or nothing can be heard any more."""
        if self.raw is None or not self._poll.poll(0.0):  # a tenth of the time of asking libpq
            return False
        try:
            return bool([*self.raw.notifies(timeout=0.0)])
        except psycopg.Error:
            self.close()
            return True

    def close(self) -> None:
        """Close the connection."""
        raw, self.raw = self.raw, None
        if raw is not None:
            with suppress(psycopg.Error):
                raw.close()
