"""Queries for rollouts: filters, order, pages and totals."""

from tau_live.store.connection import Connection, Value
from tau_live.store.json_text import json_of
from tau_live.store.records import Page, RolloutQuery
from tau_live.store.sqlite_rows import rollout_of

ORDERS = ("seq", "started_at", "ended_at", "total_reward")


def page_of(connection: Connection, query: RolloutQuery) -> Page:
    """Return the page that is asked for, and how many rollouts there are in all.

    Raises:
        ValueError: ``order_by`` is none of ``ORDERS``.
    """
    sql, parameters = sql_of(query)
    with connection.reading():
        rows = connection.rows(sql, parameters)
        total = connection.count(total_of(query), parameters)
    return Page([rollout_of(row) for row in rows], total)


def total_of(query: RolloutQuery) -> str:
    """Return the statement that counts them; by status alone it is known without a look."""
    where = where_of(query, page=False)
    if where in {"", where_of(RolloutQuery(statuses=query.statuses), page=False)}:
        return f"select coalesce(sum(total), 0) from status_counts{where}"
    return f"select count(*) from rollouts{where}"


def sql_of(query: RolloutQuery) -> tuple[str, dict[str, Value]]:
    """Return the statement that finds the page, and its parameters."""
    if query.order_by not in ORDERS:
        raise ValueError(f"order_by must be one of {', '.join(ORDERS)}, got {query.order_by!r}")
    way = "desc" if query.descending else "asc"
    order = f"seq {way}" if query.order_by == "seq" else f"{query.order_by} {way}, seq {way}"
    parameters: dict[str, Value] = {
        "statuses": json_of(query.statuses),
        "mode": query.mode,
        "ids": json_of(query.ids),
        "host": query.host,
        "name": query.name,
        "session_id": query.session_id,
        "parent_id": query.parent_id,
        "since": query.since,
        "until": query.until,
        "after": query.after,
        "limit": -1 if query.limit is None else query.limit,
        "offset": query.offset,
    }
    where = where_of(query, page=True)
    return f"select * from rollouts{where} order by {order} limit :limit offset :offset", parameters


def where_of(query: RolloutQuery, *, page: bool) -> str:
    """Return the condition of a page or of its total.

    It names only what is asked for, so that its index is used.
    """
    conditions = [
        (query.statuses, "status in (select value from json_each(:statuses))"),
        (query.mode, "mode = :mode"),
        (query.ids, "rollout_id in (select value from json_each(:ids))"),
        (query.host is not None, "host = :host"),
        (query.name is not None, "name = :name"),
        (query.session_id is not None, "session_id = :session_id"),
        (query.parent_id is not None, "parent_id = :parent_id"),
        (query.since is not None, "started_at >= :since"),
        (query.until is not None, "started_at < :until"),
        (page and query.after is not None, "seq > :after"),
    ]
    asked = [condition for wanted, condition in conditions if wanted]
    return f" where {' and '.join(asked)}" if asked else ""
