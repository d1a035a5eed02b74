"""The dashboard's server: one page, the data it shows, and an operator's actions."""

import asyncio
import hmac
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple, TypeVar
from uuid import uuid4

import anyio
import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tau_live.cli.dashboard.actions import Action, act, permit, read_action
from tau_live.cli.dashboard.api import CSRF, Rollouts, Timeline, Which, openapi
from tau_live.cli.dashboard.sections import figures_of, snapshot_of, unreadable
from tau_live.cli.options import operator
from tau_live.cli.output import as_json
from tau_live.cli.policy import list_versions
from tau_live.cli.rollouts import decision_of, duration_s, list_rollouts, story_of
from tau_live.cli.status import details
from tau_live.cli.why import plain as plain_why
from tau_live.cli.why import sentences
from tau_live.core.errors import (
    AccessError,
    AmbiguousIdError,
    StoreError,
    StoreUnavailableError,
    TauLiveError,
    UnknownError,
)
from tau_live.core.guard import logger, text_of
from tau_live.core.records import RolloutQuery
from tau_live.core.sanitize import JsonObject
from tau_live.core.settings import Settings
from tau_live.core.version import this_version
from tau_live.operate.optimizations import optimization_status
from tau_live.operate.report.report import report_facts
from tau_live.operate.status import status_of
from tau_live.operate.why import why
from tau_live.serve.guard import Bind, Guard, RefusedError
from tau_live.store.opening import open_at
from tau_live.store.records import ORDERS
from tau_live.store.roles import Store

KIND = "dashboard_error"
MOST_BYTES = 2**16
PATIENCE_S = 10.0
"""Seconds after which a store is not read any further for one request."""

LOOK_S = 0.75
"""Seconds between two looks at a store that somebody watches."""

REST = 4.0
"""The least pause after a look, in multiples of its duration."""

COMMENT_S = 15.0
"""Seconds of silence after which a stream says that it lives."""

NEWEST = 50
"""The decisions that are listed."""

NOT_RETAINED = "history_not_retained_request_full_snapshot"
PAGE = files("tau_live.cli.dashboard")
OPEN = frozenset({"/", "/page.js", "/page.css", "/plotly.js", "/openapi.json"})
"""What holds no data, so that a browser can load it before its user has typed the token."""

POLICY = (
    "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY, "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer", "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}  # fmt: skip

T = TypeVar("T", bound=Which)


Section = Callable[[Store, Settings, Which, str], JsonObject]


class Watcher:
    """Looks at a store again and again while somebody watches it.

    Attributes:
        number: How often what it shows has changed.
    """

    def __init__(self, look: Callable[[], JsonObject]) -> None:
        self.number = 0
        self._look = look
        self._seen = ""
        self._changed = asyncio.Condition()
        self._watchers = 0
        self._task: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[int]:
        """Keep looking until the caller is done; yield the number of the last state that is old."""
        self._watchers += 1
        old = 0
        if self._task is None:
            self._seen, old = "", self.number
            self._task = asyncio.create_task(self._watch())
        try:
            yield old
        finally:
            self._watchers -= 1
            if not self._watchers and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _watch(self) -> None:
        while True:
            began = time.perf_counter()
            try:
                seen = as_json(await anyio.to_thread.run_sync(self._look))
            except Exception as error:  # noqa: BLE001  # whoever watches sees the last state
                logger().error("dashboard_look_failed", error=text_of(error), effect="it looks on")
                seen = self._seen
            if seen != self._seen:
                async with self._changed:
                    self._seen = seen
                    self.number += 1
                    self._changed.notify_all()
            took = time.perf_counter() - began
            await asyncio.sleep(max(LOOK_S - took, REST * took))

    async def next(self, after: int) -> tuple[int, str] | None:
        """Return the next state and its number; ``None`` if none came for a while."""
        try:
            async with asyncio.timeout(COMMENT_S), self._changed:
                await self._changed.wait_for(lambda: self.number > after)
        except TimeoutError:
            return None
        return self.number, self._seen


class Options(NamedTuple):
    """What an operator says of a dashboard.

    Attributes:
        stores: The settings of each store.
        bind: Where it listens.
        token: What requests for data have to bear; ``None`` for no token.
        environ: The environment, which names the caller where no setting does.
        is_enabled: Whether tau-live is switched on here.
        script: The file of plotly's script.
        suggest: Adds a store to the commands of a text, if that is needed.
    """

    stores: Sequence[Settings]
    bind: Bind
    token: str | None
    environ: Mapping[str, str]
    is_enabled: bool
    script: Path
    suggest: Callable[[Settings, str], str]


class Dashboard:
    """The dashboard of one or more stores.

    Args:
        options: What an operator says of it.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._style_ids = _style_ids(options.script)
        self._csrf = secrets.token_urlsafe(32)
        self._watchers: list[Watcher] = []

    @property
    def app(self) -> Starlette:
        """The dashboard as an application."""
        sections: Mapping[str, tuple[str, type[Which], Section]] = {
            "/dashboard/queue-timeline": ("queue_timeline", Timeline, _timeline),
            "/dashboard/figures": ("figures", Which, self._figures),
            "/dashboard/facts": ("facts", Which, self._facts),
            "/dashboard/versions": ("versions", Which, _versions),
            "/dashboard/runs": ("runs", Which, _runs),
            "/dashboard/decisions": ("decisions", Which, _decisions),
            "/dashboard/rollouts/{id}": ("rollout", Which, _story),
            "/dashboard/decisions/{id}": ("decision", Which, _why),
        }
        return Starlette(
            routes=[
                Route("/", self._page),
                *(Route(f"/{name}", _file) for name in ("page.js", "page.css")),
                Route("/plotly.js", self._plotly),
                Route("/openapi.json", _openapi),
                *(
                    Route(f"/dashboard/{name}", self._snapshot)
                    for name in ("health", "widgets", "alerts", "summary")
                ),
                Route("/training/status", self._snapshot),
                Route("/training/rollouts", self._rollouts),
                *(
                    Route(path, self._section(name, kind, read))
                    for path, (name, kind, read) in sections.items()
                ),
                Route("/dashboard/stream", self._stream),
                Route("/dashboard/actions", self._act, methods=["POST"]),
            ],
            middleware=[
                Middleware(_Headers),
                Middleware(
                    Guard,
                    bind=self._options.bind,
                    token=self._options.token,
                    kind=KIND,
                    without_token=OPEN,
                ),
                Middleware(GZipMiddleware, minimum_size=2000, compresslevel=5),
            ],
            exception_handlers={
                RefusedError: _refusal, TauLiveError: _failure, OSError: _failure, 404: _missing,
                405: _missing,
            },
            lifespan=self._lives,
        )  # fmt: skip

    @asynccontextmanager
    async def _lives(self, _: Starlette) -> AsyncIterator[None]:
        self._watchers = [Watcher(lambda own=own: self.look(own)) for own in self._options.stores]  # type: ignore[misc]  # mypy does not infer the lambda's default
        yield

    def look(self, settings: Settings) -> JsonObject:
        """Return what the page keeps up to date of a store; whatever fails is part of it."""
        try:
            with _open(settings) as store:
                return self._snapshot_of(store, settings)
        except (TauLiveError, OSError) as error:
            return unreadable(settings, error, enabled=self._options.is_enabled)

    def _snapshot_of(self, store: Store, settings: Settings) -> JsonObject:
        return snapshot_of(
            store,
            settings,
            now=time.time(),
            enabled=self._options.is_enabled,
            suggest=partial(self._options.suggest, settings),
        )

    def _settings(self, number: int) -> Settings:
        if number >= len(self._options.stores):
            known = f"there are {len(self._options.stores)}, counted from 0"
            raise RefusedError(404, "dashboard_unknown_store", f"no store {number}: {known}")
        return self._options.stores[number]

    async def _page(self, _: Request) -> Response:
        """Return the page, with the stores: by path, or by name where there is a token."""
        page = PAGE.joinpath("page.html").read_text(encoding="utf-8")
        markers = "".join(f'<meta id="{id_}" class="no-inline-styles">' for id_ in self._style_ids)
        is_guarded = self._options.token is not None
        stores = "".join(
            f'<option value="{number}">{_escape(own.store.name if is_guarded else str(own.store))}'
            "</option>"
            for number, own in enumerate(self._options.stores)
        )
        values = {"csrf": self._csrf, "markers": markers, "stores": stores,
                  "version": this_version()}  # fmt: skip
        html = re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], page)
        return Response(html, media_type="text/html")

    async def _plotly(self, request: Request) -> Response:
        etag = (
            f'"{self._options.script.stat().st_size:x}-{self._options.script.stat().st_mtime_ns:x}"'
        )
        headers = {"etag": etag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match", "").removeprefix("W/") == etag:
            return Response(status_code=304, headers=headers)
        content = await anyio.to_thread.run_sync(self._options.script.read_bytes)
        return Response(content, media_type="text/javascript", headers=headers)

    async def _snapshot(self, request: Request) -> Response:
        settings = self._settings(_query(request, Which).store)
        seen = await anyio.to_thread.run_sync(self.look, settings)
        name = request.url.path.rsplit("/", 1)[1]
        own = {} if name == "status" else {name: seen[name]}
        return _json({**_head(), **own, **_common(seen)})

    def _section(
        self, name: str, kind: type[Which], read: Section
    ) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            query = _query(request, kind)
            settings = self._settings(query.store)

            def work() -> JsonObject:
                with _open(settings) as store:
                    found = read(store, settings, query, request.path_params.get("id", ""))
                    return {
                        name: found.get(name, found),
                        **_common(self._snapshot_of(store, settings)),
                    }

            return _json({**_head(), **await anyio.to_thread.run_sync(work)})

        return answer

    def _figures(self, store: Store, settings: Settings, _: Which, __: str) -> JsonObject:
        facts = report_facts(store, settings, now=time.time(), enabled=self._options.is_enabled)
        return {"figures": figures_of(facts)}

    def _facts(self, store: Store, settings: Settings, _: Which, __: str) -> JsonObject:
        now = time.time()
        status = status_of(store, settings, now=now, enabled=self._options.is_enabled)
        return {
            "facts": {
                "status": msgspec.to_builtins(status),
                "lines": [
                    [name, str(value)]
                    for name, value in details(status, now=now)
                    if value is not None
                ],
            }
        }

    async def _rollouts(self, request: Request) -> Response:
        query = _query(request, Rollouts)
        settings = self._settings(query.store)
        if query.sort not in ORDERS:
            text = f"sort must be one of {', '.join(ORDERS)}, got {query.sort!r}"
            raise RefusedError(400, "invalid_training_rollouts_sort", text)
        return _json({**_head(), **await anyio.to_thread.run_sync(_list, settings, query)})

    async def _stream(self, request: Request) -> Response:
        number = _query(request, Which).store
        self._settings(number)
        watcher = self._watchers[number]
        last = request.headers.get("last-event-id")

        async def events() -> AsyncIterator[str]:
            if last is not None:
                reset = {"schema_version": 1, "reset": True, "last_event_id": last,
                         "reason": NOT_RETAINED}  # fmt: skip
                yield _event("dashboard.reset", as_json(reset))
            async with watcher.watching() as old:
                seen = old
                while True:
                    found = await watcher.next(seen)
                    if found is None:
                        yield ": the store has not changed\n\n"
                        continue
                    seen, content = found
                    head = as_json(_head())[:-1]
                    yield _event("dashboard.snapshot", f"{head}, {content[1:]}", number=seen)

        return StreamingResponse(events(), media_type="text/event-stream")

    async def _act(self, request: Request) -> Response:
        settings = self._settings(_query(request, Which).store)
        if not hmac.compare_digest(request.headers.get(CSRF, "").encode(), self._csrf.encode()):
            text = f"{CSRF} is not the page's: load the page again"
            raise RefusedError(403, "dashboard_csrf", text)
        action = read_action(await _body_of(request))
        permit(action, settings, self._options.environ)
        done = await anyio.to_thread.run_sync(_act_in_thread, action, settings)
        seen = await anyio.to_thread.run_sync(self.look, settings)
        answer = {
            "schema_version": 1, "request_id": str(uuid4()), "action": action.action,
            "actor": operator(), "status": "accepted", "result": done,
            "control": seen["control"],
        }  # fmt: skip
        return _json(answer, 202)


class _Headers:
    """Adds the headers that keep a browser from doing anything but showing the page."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name for name, _ in message["headers"]}
                message["headers"] += [
                    (name.encode(), value.encode())
                    for name, value in HEADERS.items()
                    if name.encode() not in known
                ]
            await send(message)

        await self._app(scope, receive, send_with_headers)


@contextmanager
def _open(settings: Settings) -> Iterator[Store]:
    """Read a store for a while at most: nobody can tell it that its client has left."""
    if not settings.store.exists():
        raise StoreUnavailableError(f"no store at {settings.store} yet")
    with (
        closing(open_at(settings.store, read_only=True, busy_timeout_s=0.5)) as store,
        store.within(PATIENCE_S),
    ):
        yield store


def _act_in_thread(action: Action, settings: Settings) -> JsonObject:
    """Act in the thread that opens the store."""
    if not settings.store.exists():
        raise StoreUnavailableError(f"no store at {settings.store} yet")
    key_file = settings.audit_key_file
    with closing(open_at(settings.store, busy_timeout_s=5.0, key_file=key_file)) as store:
        return act(action, store, settings)


def _timeline(store: Store, _: Settings, query: Which, __: str) -> JsonObject:
    assert isinstance(query, Timeline)  # noqa: S101  # as the route reads it
    since = 60.0 * (time.time() // 60 + 1 - query.minutes)
    buckets = store.queue.timeline(since=since, every_s=60.0, count=query.minutes)
    return {
        "queue_timeline": [
            {"start_unix_ms": round(1000 * bucket.start), **_without(bucket._asdict(), "start")}
            for bucket in buckets
        ]
    }


def _without(fields: Mapping[str, object], name: str) -> JsonObject:
    return {key: value for key, value in fields.items() if key != name}


def _versions(store: Store, settings: Settings, _: Which, __: str) -> JsonObject:
    status = status_of(store, settings, now=time.time())
    return {
        "versions": {
            **list_versions(store).plain(),
            "trials": msgspec.to_builtins(status.trials),
            "prompts": msgspec.to_builtins(status.prompts),
        }
    }


def _runs(store: Store, _: Settings, __: Which, ___: str) -> JsonObject:
    return {
        "runs": [
            {"kind": run.kind, **optimization_status(store, run)}
            for run in store.optimizations.runs(limit=50)
        ]
    }


def _story(store: Store, settings: Settings, _: Which, key: str) -> JsonObject:
    return {"rollout": story_of(store, settings, key).plain()}


def _decisions(store: Store, _: Settings, __: Which, ___: str) -> JsonObject:
    """Return the decisions of the newest rollouts, newest first."""
    rollouts, _total = store.rollouts.query(RolloutQuery(descending=True, limit=NEWEST))
    decided = [
        (decision, rollout)
        for rollout in rollouts
        for decision in reversed(store.decisions.decisions(rollout.rollout_id))
    ]
    return {
        "decisions": [
            {
                "decision_id": decision.decision_id, "rollout_id": rollout.rollout_id,
                "point": decision.point, "options": len(decision.options),
                "applied": decision.applied, "propensity": decision.propensity,
                "policy_version": decision.policy_version, "source": decision.source,
                "arm": decision.arm, "why_not": decision.why_not,
                "at_unix_ms": round(1000 * decision.at), "reward": rollout.total_reward,
            }
            for decision, rollout in decided[:NEWEST]
        ]
    }  # fmt: skip


def _why(store: Store, settings: Settings, _: Which, key: str) -> JsonObject:
    decision = decision_of(store, key)
    explanation = why(store, settings, decision.decision_id)
    return {"decision": {**plain_why(explanation), "sentences": [*sentences(explanation)]}}


def _list(settings: Settings, query: Rollouts) -> JsonObject:
    with _open(settings) as store:
        wanted = RolloutQuery(
            statuses=None if query.status is None else [query.status],
            name=query.name or None,
            host=query.host or None,
            text=query.text or None,
            order_by=query.sort,
            descending=not query.ascending,
            limit=query.per_page,
            offset=query.per_page * (query.page - 1),
        )
        listed = list_rollouts(store, wanted)
        steps = {
            row.rollout_id: len([*store.decisions.decisions(row.rollout_id)]) for row in listed.rows
        }
    records = []
    for row in listed.rows:
        took = duration_s(row.started_at, row.ended_at)
        updated = row.ended_at or row.started_at
        records.append(
            {
                "rollout_id": row.rollout_id, "status": row.status, "mode": row.mode,
                "steps": steps[row.rollout_id], "reward": row.total_reward,
                "duration_ms": None if took is None else round(1000 * took, 3),
                "updated_unix_ms": None if updated is None else round(1000 * updated),
                "name": row.name, "host": row.host, "session_id": row.session_id,
                "why": row.error_type or row.reason,
                "reward_made_up": listed.origins[row.rollout_id],
                "started_unix_ms": None
                if row.started_at is None else round(1000 * row.started_at),
            }
        )  # fmt: skip
    return {
        "page": query.page, "per_page": query.per_page, "total_records": listed.total,
        "total_pages": -(-listed.total // query.per_page), "records": records,
    }  # fmt: skip


def _head() -> JsonObject:
    return {"schema_version": 1, "generated_unix_ms": round(1000 * time.time())}


def _common(seen: JsonObject) -> JsonObject:
    """Return what every answer has."""
    return {name: seen[name] for name in ("training", "control", "state")}


def _json(value: object, status: int = 200) -> Response:
    return Response(as_json(value), status, media_type="application/json")


def _event(name: str, content: str, *, number: int | None = None) -> str:
    id_ = "" if number is None else f"id: dashboard-{number}\n"
    return f"{id_}event: {name}\ndata: {content}\n\n"


def _query(request: Request, kind: type[T]) -> T:
    """Return the parameters of a request. Raises: RefusedError: They are malformed."""
    path = request.url.path
    given = request.query_params.multi_items()
    if len(dict(given)) < len(given):
        raise RefusedError(400, "invalid_query", "a parameter is given twice")
    try:
        return msgspec.convert(dict(given), kind, strict=False)
    except msgspec.ValidationError as error:
        of = re.search(r"\$\.(\w+)", str(error))
        what = path.strip("/").replace("/", "_").replace("-", "_") or "page"
        name = f"invalid_{what}_{of[1]}" if of else f"invalid_{what}"
        raise RefusedError(400, name, str(error)) from None


async def _body_of(request: Request) -> bytes:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BYTES:
                text = f"a body has at most {MOST_BYTES} bytes"
                raise RefusedError(413, "dashboard_body_too_large", text)
    except ClientDisconnect:
        raise RefusedError(400, "client_left", "the client did not send all of it") from None
    return bytes(body)


async def _file(request: Request) -> Response:
    name = request.url.path.strip("/")
    content = PAGE.joinpath(name).read_text(encoding="utf-8")
    if name == "page.css":  # the style of all our pages first
        shared = files("tau_live.cli.page").joinpath("style.css").read_text(encoding="utf-8")
        content = f"{shared}\n{content}"
    kind = "text/css" if name.endswith("css") else "text/javascript"
    return Response(content, media_type=kind)


def _style_ids(script: Path) -> list[str]:
    """Return the ids of the style elements that plotly would insert, which the page refuses.

    An element with such an id keeps it from that. The page's own style sheet has what is needed.
    """
    known = ["plotly.js-style-global"]
    hashes = re.findall(rb'getElementById\("([0-9a-f]{64})"\)', script.read_bytes())
    return [*known, *sorted({id_.decode() for id_ in hashes})]


def _escape(text: str) -> str:
    from html import escape

    return escape(text)


async def _refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)  # noqa: S101  # the only kind it handles
    return error.response(KIND)


async def _failure(_: Request, error: Exception) -> Response:
    """Answer with a failure that is nobody's mistake but the store's, or a refusal of an order."""
    status, code = next(
        (status, code)
        for kind, status, code in (
            (AccessError, 403, "access_denied"),
            (UnknownError, 404, "unknown"),
            (AmbiguousIdError, 409, "ambiguous_id"),
            (StoreError, 503, "store_unavailable"),
            (TauLiveError, 409, "refused"),
            (OSError, 503, "store_unavailable"),
        )
        if isinstance(error, kind)
    )
    return RefusedError(status, code, str(error)).response(KIND)


async def _missing(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    text = f"there is no {request.method} {request.url.path}"
    return RefusedError(status, "dashboard_unknown_endpoint", text).response(KIND)


async def _openapi(_: Request) -> Response:
    """Describe every endpoint that has data."""
    return _json(openapi())
