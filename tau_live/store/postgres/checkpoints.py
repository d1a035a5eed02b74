"""Checkpoints in a database, where processes of every machine find them."""

from io import BytesIO
from typing import BinaryIO

from tau_live.core.errors import CheckpointError, StoreError, StoreUnavailableError
from tau_live.store.checkpoints import Checkpoints, is_checkpoint
from tau_live.store.postgres.connection import PostgresConnection

PUT = """
insert into checkpoints (run_id, name, content) values (%b, %b, %b)
on conflict (run_id, name) do update set content = excluded.content
"""


class PostgresCheckpoints(Checkpoints):
    """Checkpoints in a table.

    Args:
        connection: A connection to the store.
        run_id: The optimization whose own policy they are of; empty for the learner's.
    """

    def __init__(self, connection: PostgresConnection, run_id: str = "") -> None:
        self._connection = connection
        self._run_id = run_id

    def of_run(self, run_id: str) -> "PostgresCheckpoints":
        """Return the checkpoints of an optimization's own policy."""
        return PostgresCheckpoints(self._connection, run_id)

    def address(self, name: str) -> str:
        """Return where a checkpoint is, for people."""
        run = f"{self._run_id}/" if self._run_id else ""
        return f"{self._connection.address}#checkpoints/{run}{name}"

    def put(self, name: str, content: bytes) -> None:
        """Store a checkpoint, durably; one of the same name is replaced as a whole.

        Raises:
            CheckpointError: It could not be written.
            StoreUnavailableError: The database cannot be written now.
        """
        if not is_checkpoint(name):
            raise CheckpointError(f"cannot write checkpoint {self.address(name)}: it is no name")
        try:
            with self._connection.begin():
                self._connection.run_bound(PUT, [self._run_id, name, content])
        except StoreUnavailableError:
            raise
        except StoreError as error:
            raise CheckpointError(
                f"cannot write checkpoint {self.address(name)}: {error}"
            ) from error

    def open(self, name: str) -> BinaryIO:
        """Open a checkpoint.

        Raises:
            CheckpointError: There is none of this name.
            StoreUnavailableError: The database cannot be read now.
        """
        row = self._connection.row(
            "select content from checkpoints where run_id = ? and name = ?",
            (self._run_id, name.replace("\0", "")),
        )
        if row is None:
            raise CheckpointError(f"cannot read checkpoint {self.address(name)}: there is none")
        return BytesIO(row[0])

    def names(self) -> list[str]:
        """Return the names of all checkpoints, sorted. Raises: StoreUnavailableError."""
        rows = self._connection.rows(
            "select name from checkpoints where run_id = ? order by name", (self._run_id,)
        )
        return [row[0] for row in rows]

    def delete(self, name: str) -> bool:
        """Delete a checkpoint, if there is one; return whether it is gone."""
        try:
            self._connection.change(
                "delete from checkpoints where run_id = ? and name = ?", (self._run_id, name)
            )
        except StoreError:
            return False
        return True

    def sweep(self) -> list[str]:
        """Delete nothing: what was not committed is not there."""
        return []
