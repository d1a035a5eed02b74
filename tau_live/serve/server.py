"""A server in this process: bound before it is announced, and ended by Ctrl-C."""

import socket
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from tau_live.core.errors import TauLiveError
from tau_live.serve.guard import Bind

GRACE_S = 5
"""Seconds that open answers have when the server ends."""


def serve(app: ASGIApp, bind: Bind, *, ready: Callable[[str], None]) -> None:
    """Serve until the process is interrupted.

    Args:
        app: The server.
        bind: Where it listens.
        ready: Takes the server's URL once it is bound.

    Raises:
        TauLiveError: The address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in bind.host else socket.AF_INET
    # asyncio sends small answers at once only on sockets that say TCP
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((bind.host, bind.port))
            listener.listen()
        except OSError as error:
            why = error.strerror or str(error)
            raise TauLiveError(f"cannot listen on {bind.host}:{bind.port}: {why}") from error
        host = f"[{bind.host}]" if family is socket.AF_INET6 else bind.host
        ready(f"http://{host}:{listener.getsockname()[1]}")
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, date_header=False,
            timeout_graceful_shutdown=GRACE_S,
        )  # fmt: skip
        uvicorn.Server(config).run(sockets=[listener])
