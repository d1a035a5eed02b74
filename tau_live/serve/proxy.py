"""A proxy of OpenAI-compatible APIs that makes every call a span of the attempt that makes it."""

import asyncio
import json
import time
import zlib
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import aiohttp
import anyio
import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from yarl import URL

from tau_live.core.errors import StoreError
from tau_live.core.guard import logger, text_of
from tau_live.core.settings import Settings
from tau_live.core.version import this_version
from tau_live.serve.attribution import (
    INVALID,
    LOG,
    ROLLOUT,
    Attribution,
    CallLog,
    LoggedCall,
    attribution_of,
)
from tau_live.serve.calls import UNLOGGED, UNSTORED, Calls, Forwarded, Reserved, as_json
from tau_live.serve.deciding import (
    BeginRun,
    Chosen,
    Decide,
    Deciding,
    EndRun,
    GiveReward,
    read,
)
from tau_live.serve.guard import Bind, Guard, RefusedError

T = TypeVar("T")

KIND = "proxy_error"
MOST_BYTES = 16 * 2**20
MOST_KEPT = 4 * 2**20
"""How many bytes of an answer are read for what it says of itself."""

ENDPOINTS: Mapping[str, str] = {
    "/v1/chat/completions": "POST", "/v1/responses": "POST", "/v1/embeddings": "POST",
    "/v1/models": "GET",
}  # fmt: skip
OWN: Mapping[str, tuple[type, str]] = {
    "/v1/decide": (Decide, "Decide, in an open run or in one of its own."),
    "/v1/reward": (GiveReward, "Reward a run, a decision or the answer of a model."),
    "/tau/reward": (GiveReward, "Reward a run, a decision or the answer of a model."),
    "/v1/runs": (BeginRun, "Begin a run, in which several things are decided."),
    "/v1/runs/{run}/end": (EndRun, "End a run."),
}
SENT = frozenset(
    {"authorization", "content-type", "accept", "openai-organization", "openai-project",
     "openai-beta", "x-request-id", "content-encoding"}
)  # fmt: skip
PRIVATE = frozenset({"authorization", "openai-organization", "openai-project"})
"""What is meant for the proxy's own upstream, and goes to no other."""

RETURNED = frozenset({"content-type", "content-encoding", "x-request-id", "retry-after"})
EVENTS = "text/event-stream"
STREAMED = (EVENTS, "application/x-ndjson", "application/jsonl", "application/json-seq")
LEAST_TIMEOUT_MS = 1000
LEFT = "client_left"
MOST_HELD = 8 * 2**20
"""How many bytes of an answer are held before any is passed on."""

KNOWN_STATUSES = frozenset(map(int, HTTPStatus))


class Options(NamedTuple):
    """What an operator says of a proxy.

    Attributes:
        upstream: The URL of the API, with or without ``/v1``; ``None`` for none.
        bind: Where it listens.
        token: What requests have to bear; ``None`` for no token.
        timeout_ms: How long the upstream may be silent.
        allows_unattributed: Whether calls of no attempt are forwarded too.
    """

    upstream: str | None
    bind: Bind
    token: str | None = None
    timeout_ms: int = 30_000
    allows_unattributed: bool = False


def upstream_of(url: str) -> str:
    """Return the URL of an API without ``/v1`` at its end. Raises: ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"expects a URL such as https://api.openai.com/v1, got {url!r}")
    return url.rstrip("/").removesuffix("/v1")


def log_of(store: Path) -> Path:
    """Return where the log of calls is, beside their store."""
    return store.with_name(LOG)


class Proxy:
    """The proxy; its methods are called in one event loop.

    Args:
        options: What the operator says of it.
        settings: Those of the store.
        environ: The environment, with the keys of upstream models.

    Attributes:
        options: What the operator says of it.
        upstream: The URL of the API, without ``/v1``.
        counts: How many calls were forwarded, failed, unattributed and unlogged.
        calls: The store of the calls, while it serves.
        client: The client of the upstream, while it serves.
        deciding: The decisions, while it serves.
    """

    calls: Calls
    client: aiohttp.ClientSession
    deciding: Deciding

    def __init__(self, options: Options, settings: Settings, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.options = options
        self._settings = settings
        self.upstream = None if options.upstream is None else upstream_of(options.upstream)
        self.counts = {"forwarded": 0, "failed": 0, "unattributed": 0, "unlogged": 0}

    @property
    def app(self) -> Starlette:
        """The proxy as an application."""
        routes = [
            Route(prefix + path, self._forward, methods=[method])
            for path, method in ENDPOINTS.items()
            for prefix in ("", "/rollout/{rollout_id}/attempt/{number}")
        ]
        app = Starlette(
            routes=[
                *routes,
                *(Route(path, self._own, methods=["POST"]) for path in OWN),
                Route("/openapi.json", _openapi),
                Route("/training/proxy/health", self._health),
            ],
            middleware=[
                Middleware(Guard, bind=self.options.bind, token=self.options.token, kind=KIND)
            ],
            exception_handlers={RefusedError: self._refusal, 404: _missing, 405: _missing},
            lifespan=self._lives,
        )
        app.router.redirect_slashes = False
        return app

    @asynccontextmanager
    async def _lives(self, _: Starlette) -> AsyncIterator[None]:
        self.log = CallLog(log_of(self._settings.store))
        self.calls = Calls(self._settings)
        self.deciding = Deciding(self._settings, self._environ)
        seconds = self.options.timeout_ms / 1000
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=seconds, sock_read=seconds)
        async with aiohttp.ClientSession(
            timeout=timeout,
            connector=aiohttp.TCPConnector(limit=0),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=["user-agent", "accept"],
            trust_env=True,
        ) as self.client:
            yield
        self.deciding.close()
        self.calls.close()
        self.log.close()

    async def _health(self, _: Request) -> JSONResponse:
        url = None if self.upstream is None else f"{self.upstream}/v1/chat/completions"
        return JSONResponse(
            {
                "schema_version": 1, "status": "ready", "upstream_chat_completions_url": url,
                "attribution_log_path": str(self.log.path),
                "store_path": str(self._settings.store), **self.counts,
                "unstored": self.calls.lost,
            }
        )  # fmt: skip

    async def _own(self, request: Request) -> JSONResponse:
        """Answer a call that is ours: a decision, a run, a reward."""
        body, deciding = await _body_of(request), self.deciding
        match request.url.path.rsplit("/", 1)[1]:
            case "decide":
                return JSONResponse(deciding.decide(read(body, Decide)))
            case "reward":
                answer = deciding.reward(read(body, GiveReward))
                return JSONResponse(answer, 202 if answer["accepted"] else 200)
            case "runs":
                return JSONResponse(deciding.begin_run(read(body, BeginRun)), 201)
        run = request.path_params["run"]
        return JSONResponse(deciding.end_run(run, read(body, EndRun)))

    async def _refusal(self, _: Request, error: Exception) -> Response:
        assert isinstance(error, RefusedError)  # noqa: S101  # the only kind it handles
        return error.response(KIND)

    async def _forward(self, request: Request) -> Response:
        call = _Call(self, request)
        try:
            return await call.answer()
        except RefusedError as refusal:
            call.end(status=refusal.status, error=refusal.code, message=str(refusal))
            raise
        except BaseException as error:
            call.end(error="proxy_failed", message=type(error).__name__)
            raise

    def note(self, call: LoggedCall) -> None:
        """Write a call into the log; a failure is counted."""
        try:
            self.log.add(call)
        except OSError as error:
            self.counts["unlogged"] += 1
            self.calls.lose(UNLOGGED)
            if self.counts["unlogged"] == 1:
                logger().error("proxy_call_not_logged", error=text_of(error), effect="counted")


class _Call:
    """One call, from its arrival to its end."""

    def __init__(self, proxy: Proxy, request: Request) -> None:
        self._proxy = proxy
        self._request = request
        self._began = time.perf_counter()
        self._at = time.time()
        path = request.url.path
        self._endpoint = path[path.rindex("/v1/") :]
        self._url = f"{proxy.upstream or ''}{self._endpoint}"
        self._body = b""
        self._attribution: Attribution | None = None
        self._reserved: Reserved | None = None
        self._chosen: Chosen | None = None
        self._kept = bytearray()
        self._bytes = 0
        self._first_ms: float | None = None
        self._is_streamed = False
        self._encoding = ""
        self._status: int | None = None
        self._is_forwarded = False
        self._has_ended = False

    def _ms(self) -> float:
        return round(1000 * (time.perf_counter() - self._began), 3)

    async def answer(self) -> Response:
        """Forward the call, and return what the upstream says."""
        own, request = self._proxy, self._request
        self._body = await _body_of(request)
        given = request.path_params
        path = (given["rollout_id"], given["number"]) if given else None
        self._attribution = attribution_of(request.headers.raw, path)
        is_decided = self._choose()
        if self._attribution is not None:
            await self._admit(self._attribution)
        elif not is_decided and not own.options.allows_unattributed:
            raise RefusedError(400, INVALID, f"missing required header {ROLLOUT!r}")
        elif not is_decided:
            own.counts["unattributed"] += 1
        response = await self._while_waited_for(self._send())
        self._status = response.status
        self._encoding = response.headers.get("content-encoding", "").lower()
        headers = {
            name: value
            for name, value in ((key.lower(), value) for key, value in response.headers.items())
            if name in RETURNED or name.startswith(("x-ratelimit-", "ratelimit"))
        }
        headers = {name: _as_latin(value) for name, value in headers.items()}
        if self._chosen is not None:
            choice = self._chosen.choice
            headers |= {"x-tau-option": self._chosen.option, "x-tau-decision": choice.id}
        kind = response.headers.get("content-type", "")
        self._is_streamed = kind.startswith(EVENTS)
        if kind.startswith(STREAMED) and response.status in KNOWN_STATUSES:
            return StreamingResponse(self._chunks(response), response.status, headers)
        content, is_whole = await self._while_waited_for(self._beginning(response))
        if not is_whole:  # too long to be held
            chunks = self._chunks(response, beginning=content)
            return StreamingResponse(chunks, response.status, headers)
        self.end()
        return Response(content, response.status, headers)

    async def _while_waited_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of some work; a client that leaves ends the call of the upstream."""
        task, leaving = asyncio.ensure_future(work), asyncio.ensure_future(self._until_left())
        try:
            await asyncio.wait({task, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise RefusedError(400, LEFT, "the client did not wait for the end")
        finally:
            leaving.cancel()
            task.cancel()

    async def _until_left(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass

    def _choose(self) -> bool:
        """Choose the upstream model of a request for one that is decided; say whether it is."""
        body = as_json(self._body)
        own, headers = self._proxy.deciding, self._request.headers
        chosen = own.choose(body, headers, streaming=body.get("stream") is True)
        if chosen is None:
            return False
        self._chosen = chosen
        self._body = json.dumps({**body, **chosen.params, "model": chosen.model}).encode()
        if chosen.url is not None:
            self._url = f"{chosen.url}{self._endpoint}"
        return True

    async def _admit(self, attribution: Attribution) -> None:
        try:
            self._reserved = await self._proxy.calls.admit(attribution, self._body)
        except StoreError as error:  # it is forwarded all the same
            self._proxy.calls.lose(UNSTORED)
            logger().error("proxy_store_not_read", error=text_of(error), effect="it is forwarded")

    async def _send(self) -> aiohttp.ClientResponse:
        request, client = self._request, self._proxy.client
        headers = {name: value for name, value in request.headers.items() if name in SENT}
        if self._chosen is not None and self._chosen.url is not None:  # another's key is not theirs
            headers = {name: value for name, value in headers.items() if name not in PRIVATE}
        if self._chosen is not None and self._chosen.key is not None:
            headers["authorization"] = f"Bearer {self._chosen.key}"
        if not self._url.startswith("http"):
            text = "the proxy was started without --upstream-url"
            raise RefusedError(502, "training_proxy_upstream_request_failed", text)
        self._is_forwarded = True
        try:
            query = request.url.query
            return await client.request(
                request.method, URL(f"{self._url}?{query}" if query else self._url, encoded=True),
                data=self._body, headers={**headers, "accept-encoding": "identity"},
                allow_redirects=False,
            )  # fmt: skip
        except TimeoutError:
            text = f"the upstream was silent for {self._proxy.options.timeout_ms} ms"
            raise RefusedError(504, "training_proxy_upstream_timeout", text) from None
        except (aiohttp.ClientError, ValueError) as error:
            text = f"the upstream cannot be reached: {type(error).__name__}"
            raise RefusedError(502, "training_proxy_upstream_request_failed", text) from None

    async def _beginning(self, response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
        """Return an answer, and whether that is all of it: of a long one the beginning."""
        content, is_long = bytearray(), False
        try:
            if response.status not in KNOWN_STATUSES:
                text = f"the upstream answered with {response.status}, which is no status"
                raise RefusedError(502, "training_proxy_upstream_response_read_failed", text)
            async for chunk in self._read(response):
                content += chunk
                is_long = len(content) > MOST_HELD
                if is_long:
                    break
        except TimeoutError:
            text = f"the upstream was silent for {self._proxy.options.timeout_ms} ms"
            raise RefusedError(504, "training_proxy_upstream_timeout", text) from None
        except aiohttp.ClientError as error:
            text = f"the answer of the upstream broke off: {type(error).__name__}"
            raise RefusedError(502, "training_proxy_upstream_response_read_failed", text) from None
        finally:
            if not is_long:
                response.close()
        return bytes(content), not is_long

    async def _read(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        async for chunk in response.content.iter_any():
            if self._first_ms is None:
                self._first_ms = self._ms()
            self._bytes += len(chunk)
            self._kept += chunk[: max(MOST_KEPT - len(self._kept), 0)]
            yield chunk

    async def _chunks(
        self, response: aiohttp.ClientResponse, beginning: bytes = b""
    ) -> AsyncIterator[bytes]:
        """Yield a stream as it comes; a client that leaves ends the call of the upstream."""
        code = message = None
        try:
            if beginning:
                yield beginning
            async for chunk in self._read(response):
                yield chunk
        except (aiohttp.ClientError, TimeoutError) as error:
            code, message = "training_proxy_upstream_response_read_failed", type(error).__name__
            raise  # the client sees that it broke off, as it did
        except (GeneratorExit, anyio.get_cancelled_exc_class()):
            code, message = LEFT, "the client did not wait for the end"
            raise
        finally:
            response.close()
            self.end(error=code, message=message)

    def end(
        self, *, status: int | None = None, error: str | None = None, message: str | None = None
    ) -> None:
        """Log the call and store its span, once; nothing is raised, for it was answered."""
        if self._has_ended:
            return
        self._has_ended = True
        try:
            self._record(status=status, error=error, message=message)
        except Exception as failure:  # noqa: BLE001  # no failure of ours is the client's
            self._proxy.calls.lose(UNSTORED)
            logger().error("proxy_call_not_recorded", error=text_of(failure), effect="counted")

    def _record(self, *, status: int | None, error: str | None, message: str | None) -> None:
        own, request, attribution = self._proxy, self._request, self._attribution
        if self._is_forwarded:
            own.counts["failed" if error else "forwarded"] += 1
        took_ms = self._ms()
        decided = None if self._chosen is None else self._chosen.choice.run or None
        own.note(
            LoggedCall(
                method=request.method, path=request.url.path, upstream_url=self._url,
                timestamp_unix_ms=round(1000 * self._at), request_bytes=len(self._body),
                response_bytes=self._bytes, duration_ms=took_ms,
                rollout_id=attribution.rollout_id if attribution else decided,
                attempt_id=attribution.attempt if attribution else decided and 1,
                sequence_id=attribution and attribution.sequence,
                trace_id=attribution and attribution.trace_id,
                status_code=status or self._status, error_code=error, error_message=message,
            )
        )  # fmt: skip
        call = Forwarded(
            attribution, self._endpoint, self._body, self._readable(), self._bytes, self._status,
            self._is_streamed, self._at, self._first_ms, took_ms, error, self._reserved,
        )  # fmt: skip
        if self._chosen is not None and not self._is_forwarded:
            own.deciding.withdraw(self._chosen)
        elif self._chosen is not None:
            failed = error or (None if (self._status or 500) < 400 else f"HTTP {self._status}")
            own.deciding.end(self._chosen, call, failed)
        if attribution is not None and self._is_forwarded:
            own.calls.add(call)

    def _readable(self) -> bytes:
        """Return the beginning of the answer, decompressed: an upstream may compress unasked."""
        if self._encoding not in {"gzip", "deflate"}:
            return bytes(self._kept)
        try:
            return zlib.decompressobj(32 + zlib.MAX_WBITS).decompress(self._kept, MOST_KEPT)
        except zlib.error:
            return b""


def _as_latin(value: str) -> str:
    """Return a header whose bytes, as they are sent, are those that came."""
    return value.encode("utf-8", "surrogateescape").decode("latin-1")


async def _body_of(request: Request) -> bytes:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MOST_BYTES:
                text = f"a body has at most {MOST_BYTES} bytes"
                raise RefusedError(413, "training_proxy_body_too_large", text)
    except ClientDisconnect:
        raise RefusedError(400, LEFT, "the client did not send all of it") from None
    return bytes(body)


async def _missing(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    known: Sequence[str] = [f"{method} {path}" for path, method in ENDPOINTS.items()]
    text = f"{request.method} {request.url.path} is not forwarded: there are {', '.join(known)}"
    return RefusedError(status, "training_proxy_unknown_endpoint", text).response(KIND)


async def _openapi(_: Request) -> JSONResponse:
    """Describe the calls that are ours."""
    kinds = [kind for kind, _ in OWN.values()]
    schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")[1]
    refused = {"description": "Refused: `error` has a code and a message."}
    paths = {
        path: {
            "post": {
                "summary": summary,
                "parameters": [
                    {"name": "run", "in": "path", "required": True, "schema": {"type": "string"}}
                ] if "{run}" in path else [],
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/json": {
                            "schema": {"$ref": f"#/components/schemas/{kind.__name__}"}
                        }
                    },
                },
                "responses": {"2XX": {"description": "Done."}, "4XX": refused},
            }
        }
        for path, (kind, summary) in OWN.items()
    }  # fmt: skip
    info = {"title": "tau-live", "version": this_version()}
    return JSONResponse(
        {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}
    )
