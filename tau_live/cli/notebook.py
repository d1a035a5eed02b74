"""A store in a notebook: its tables as Arrow, and estimates of policies."""

import json
from collections.abc import Sequence
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tau_live.cli.engines import LOCAL, engine_of
from tau_live.cli.evaluate import Request, evaluate_request, to_dict
from tau_live.cli.options import load_settings
from tau_live.cli.output import as_json
from tau_live.core.errors import StoreUnavailableError, TauLiveError
from tau_live.core.settings import Settings, place_paths
from tau_live.core.version import packages_for
from tau_live.store.opening import open_at

if TYPE_CHECKING:
    import pyarrow as pa

    from tau_live.core.sanitize import JsonObject

T = TypeVar("T")

TIMES = frozenset({"at", "started_at", "ended_at", "last_heartbeat_at"})
NAMES = frozenset({"options", "allowed", "exploit_only"})
"""The columns that are lists of options."""


class Opened:
    """A read-only store. Each table is read on access, from one moment.

    A table is a ``pyarrow.Table``: ``.to_pandas()`` makes it one of pandas, ``polars.from_arrow``
    one of polars, and DuckDB reads it by the name of its variable. Times are UTC; what is
    open-ended, such as a context, is JSON text.

    Args:
        settings: The settings, with the path of the store.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __repr__(self) -> str:
        return f"tau_live.open({str(self.path)!r})"

    @property
    def path(self) -> Path:
        """The store's file."""
        return self._settings.store

    def rollouts(self) -> "pa.Table":
        """Return a row for each run: its name, status, times, and its reward once it is known."""
        return self._table("rollouts")

    def attempts(self) -> "pa.Table":
        """Return a row for each attempt at a rollout."""
        return self._table("attempts")

    def spans(self) -> "pa.Table":
        """Return a row for each run, decision and step, with its attributes as JSON text."""
        return self._table("spans")

    def decisions(self) -> "pa.Table":
        """Return a row for each choice: the options, the probabilities, and what was applied."""
        return self._table("decisions")

    def rewards(self) -> "pa.Table":
        """Return a row for each reward, also those of runs that never came."""
        return self._table("rewards")

    def updates(self) -> "pa.Table":
        """Return a row for each update of a policy, with its report as JSON text."""
        return self._table("updates")

    def evaluate(
        self,
        policy: int | str,
        *,
        point: str | None = None,
        limit: int | None = None,
        confidence: float = 0.95,
    ) -> "JsonObject":
        """Return what a policy would have earned, as ``tau-live evaluate --json`` has it.

        Args:
            policy: A version, ``uniform``, ``best-fixed``, ``constant:OPTION`` or a function's
                ``module:name``.
            point: The decision point; ``None`` is that of the version, or the only one.
            limit: How many of the newest rollouts are used; ``None`` is all.
            confidence: The level of the intervals, in (0, 1).

        Raises:
            TauLiveError: There is no such policy or point, or the store cannot be read.
        """
        request = Request(
            policies=(str(policy),),
            log=None,
            context=(),
            point=point,
            since=None,
            limit=limit,
            reward_range=None,
            weight_cap=None,
            confidence=confidence,
        )
        with engine_of(LOCAL, None) as engine:
            found = evaluate_request(
                request, self.path, engine=engine, tell=lambda _: None, expect=lambda _: None
            )
        plain: JsonObject = json.loads(as_json(to_dict(found)))
        return plain

    def _table(self, name: str) -> "pa.Table":
        import pyarrow as pa

        store = open_at(self.path, read_only=True)
        try:
            batches = [
                pa.record_batch([_array(*column) for column in batch.items()], [*batch])
                for batch in store.columns(name)
            ]
        finally:
            store.close()
        return pa.Table.from_batches(batches)


def open_store(path: str | PathLike[str] | None) -> Opened:
    """Return a store to look at.

    Raises:
        TauLiveError: There is none, or pyarrow is not installed.
    """
    try:
        import pyarrow  # noqa: F401  # without it nothing can be shown
    except ImportError as error:
        raise TauLiveError(
            f"tau_live.open needs pyarrow ({error}): pip install {packages_for('arrow')}"
        ) from error
    settings = place_paths(load_settings(None if path is None else Path(path)).settings)
    if not settings.store.is_file():
        raise StoreUnavailableError(f"no store at {settings.store}")
    return Opened(settings)


def _array(name: str, values: Sequence[object]) -> "pa.Array":
    """Return a column; its type depends on its name alone."""
    import pyarrow as pa

    from tau_live.cli.arrow import type_of

    if name in NAMES:
        return pa.array(_lists(values, list[str]), pa.list_(pa.string()))
    if name == "probabilities":
        return pa.array(_lists(values, list[float]), pa.list_(pa.float64()))
    if name in TIMES:
        moments = [
            round(1e6 * value) if isinstance(value, (int, float)) and isfinite(value) else None
            for value in values
        ]
        return pa.array(moments, pa.timestamp("us", "UTC"))
    if name == "encoded":
        return pa.array(values, pa.binary())
    if name == "executed":
        return pa.array([bool(value) for value in values], pa.bool_())
    return pa.array(values, type_of(name))


def _lists(values: Sequence[object], kind: type[list[T]]) -> list[list[T] | None]:
    """Return the lists of a column; a damaged one is ``None``, and ``doctor`` reports it."""
    decoder = msgspec.json.Decoder(kind)
    lists: list[list[T] | None] = []
    for value in values:
        try:
            lists.append(None if value is None else decoder.decode(str(value)))
        except (msgspec.DecodeError, UnicodeEncodeError):
            lists.append(None)
    return lists
