"""What every server refuses before it looks at a request: foreign hosts and origins, no token."""

import hmac
import re
import stat
from collections.abc import Collection, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tau_live.core.errors import TauLiveError

TOKEN = b"x-tau-token"
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
LEAST_TOKEN = 16


class Bind(NamedTuple):
    """Where a server listens.

    Attributes:
        host: Its address.
        port: Its port; 0 takes a free one.
    """

    host: str
    port: int

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        return self.host == "localhost" or ip_address(self.host).is_loopback

    @classmethod
    def parse(cls, text: str) -> "Bind":
        """Return the address of ``HOST:PORT``. Raises: ValueError."""
        host, colon, port = text.rpartition(":")
        host = host.strip("[]")
        if not colon or not port.isdecimal() or int(port) > 65_535:
            raise ValueError(f"expects HOST:PORT, such as 127.0.0.1:8787, got {text!r}")
        if host != "localhost":
            try:
                ip_address(host)
            except ValueError:
                raise ValueError(f"expects an address of this machine, got {host!r}") from None
        return cls(host, int(port))


def read_token(bind: Bind, file: Path | None) -> str | None:
    """Return the token that every request has to bear; ``None`` without a file.

    Raises:
        TauLiveError: The file cannot be read, is too short or may be written by others, or is
            missing for an address that others reach.
    """
    if file is None:
        if not bind.is_local:
            raise TauLiveError(f"{bind.host} is reached from outside: name a --token-file")
        return None
    try:
        mode = file.stat().st_mode
        token = file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise TauLiveError(f"the token in {file} cannot be read: {error}") from error
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise TauLiveError(f"others may write the token in {file}: chmod go-w {file}")
    if len(token) < LEAST_TOKEN:
        raise TauLiveError(f"the token in {file} has fewer than {LEAST_TOKEN} characters")
    return token


class RefusedError(Exception):
    """A request that is answered with an error; the text is for its sender.

    Args:
        status: The HTTP status.
        code: What is wrong, for programs.
        message: The same for people.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def response(self, kind: str) -> JSONResponse:
        """Return the answer."""
        error = {"code": self.code, "message": str(self), "type": kind}
        return JSONResponse({"error": error}, self.status)


class Guard:
    """Lets through what is sent to this server by its own name, with the token if there is one.

    Args:
        app: The server.
        bind: Where it listens.
        token: What every request has to bear in ``x-tau-token``.
        kind: The type of errors.
        without_token: The paths that need no token.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        bind: Bind,
        token: str | None,
        kind: str,
        without_token: Collection[str] = (),
    ) -> None:
        self._app = app
        self._without_token = without_token
        self._hosts = {bind.host, *(LOCAL if bind.is_local else ())}
        self._token = None if token is None else token.encode()
        self._kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._check(scope["headers"], scope["path"])
        except RefusedError as refusal:
            await refusal.response(self._kind)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, headers: Sequence[tuple[bytes, bytes]], path: str) -> None:
        """Refuse what is foreign; of a header that is there twice, each value has to be ours."""
        hosts = [value for name, value in headers if name == b"host"] or [b""]
        tokens = [value for name, value in headers if name == TOKEN] or [b""]
        if self._token is None:
            if not all(_name_of(host) in self._hosts for host in hosts):
                raise RefusedError(403, "foreign_host", "the Host header names another host")
        elif path not in self._without_token and not all(
            hmac.compare_digest(token, self._token) for token in tokens
        ):
            raise RefusedError(401, "token_missing", "x-tau-token is not the token")
        origins = [_site_of(value) for name, value in headers if name == b"origin"]
        if any(origin != host for origin in origins for host in hosts):
            raise RefusedError(403, "foreign_origin", "the Origin header names another site")


def _site_of(origin: bytes) -> bytes:
    try:
        return urlsplit(origin.decode("ascii")).netloc.encode()
    except ValueError:
        return b""


_HOST = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]@,\s]*))(?::\d*)?")


def _name_of(host: bytes) -> str:
    """Return the name of a Host header without its port; empty if it is malformed."""
    match = _HOST.fullmatch(host.decode("latin-1"))
    return "" if match is None else match[1] or match[2]
