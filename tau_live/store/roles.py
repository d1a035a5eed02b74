"""A store and its parts, by the names that all other code uses.

A store object belongs to one thread. All writes between ``begin`` and its end are one transaction.
Times are epoch seconds, UTC. What happened when is passed in; leases expire by the store's own
clock, so that no process decides by a wrong one. Every method may raise ``StoreUnavailableError``;
a value that cannot be stored is a ``StoreError``.

Each backend is a folder beside ``sql``, opened in ``opening`` and held to ``tests/contracts``.
"""

from tau_live.store.checkpoints import Checkpoints
from tau_live.store.sql.batch import Batch
from tau_live.store.sql.operations import Leases
from tau_live.store.sql.retention import Retention
from tau_live.store.sql.store import Store
from tau_live.store.sqlite.spool import Spool

__all__ = ["Batch", "Checkpoints", "Leases", "Retention", "Spool", "Store"]
