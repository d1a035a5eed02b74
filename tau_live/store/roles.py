"""A store and its parts, by the names that all other code uses.

A store object belongs to one thread. All writes between ``begin`` and its end are one transaction.
Times are epoch seconds, UTC. What happened when is passed in; leases expire by the store's own
clock, so that no process decides by a wrong one. Every method may raise ``StoreUnavailableError``;
a value that cannot be stored is a ``StoreError``.

There is one backend. Another is a folder beside ``sqlite``, opened in ``opening`` and held to
``tests/contracts``; these names then stand for what both have in common.
"""

from typing import TypeAlias

from tau_live.store.sqlite.batch import SqliteBatch
from tau_live.store.sqlite.operations import SqliteLeases
from tau_live.store.sqlite.retention import SqliteRetention
from tau_live.store.sqlite.store import SqliteStore

Store: TypeAlias = SqliteStore
Batch: TypeAlias = SqliteBatch
Leases: TypeAlias = SqliteLeases
Retention: TypeAlias = SqliteRetention
