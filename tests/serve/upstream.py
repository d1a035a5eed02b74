"""A real upstream on this machine: it answers as each test says, and remembers what it was sent."""

import gzip
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
ANSWER = {
    "id": "chatcmpl-1", "object": "chat.completion", "model": "gpt-5-mini",
    "choices": [{"index": 0, "finish_reason": "stop",
                 "message": {"role": "assistant", "content": "It is 7 kg."}}],
    "usage": USAGE,
}  # fmt: skip


NESTED = b'{"choices": ' + b"[" * 5000 + b"]" * 5000 + b"}"
LONG = b'{"data": "' + b"x" * (20 * 2**20) + b'"}'


def chunk(**parts: Any) -> bytes:
    return b"data: " + json.dumps({"id": "chatcmpl-2", "model": "gpt-5-mini", **parts}).encode()


STREAM = b"\n\n".join(
    [
        chunk(choices=[{"index": 0, "delta": {"content": "It is "}}]),
        b": a comment, with bytes that are no text \xff\xfe",
        chunk(choices=[{"index": 0, "delta": {"content": "7 kg."}, "finish_reason": "stop"}]),
        chunk(choices=[], usage=USAGE),
        b"data: [DONE]\n\n",
    ]
)


class Upstream(ThreadingHTTPServer):
    """An OpenAI-compatible API.

    Attributes:
        mode: ``whole``, ``stream``, ``slow_stream``, ``silent``, ``reset``, ``broken``,
            ``refused``, ``redirect``, ``nested``, ``odd_header``, ``odd_status``, ``gzip``,
            ``long`` or ``slow_end``.
        requests: Method, path, headers and body of every request.
        left: Set when a client left in the middle of a stream.
        pause_s: Seconds between two chunks of a stream.
    """

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that left."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.mode = "whole"
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.left = threading.Event()
        self.pause_s = 0.0
        self.url = f"http://127.0.0.1:{self.server_port}"

    @contextmanager
    def serving(self) -> Iterator["Upstream"]:
        """Serve in a thread."""
        threading.Thread(target=self.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            self.shutdown()
            self.server_close()


class Handler(BaseHTTPRequestHandler):
    """Answers one request as the mode says."""

    protocol_version = "HTTP/1.1"
    server: Upstream

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append((self.command, self.path, headers, body))
        getattr(self, f"_{self.server.mode}")()

    def _send(self, status: int, content: bytes, **headers: str) -> None:
        self._begin(status, Content_Length=str(len(content)), **headers)
        self.wfile.write(content)

    def _begin(self, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content_Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def _whole(self) -> None:
        if self.path.startswith("/v1/models"):
            self._send(200, b'{"data": []}')
        else:
            self._send(200, json.dumps(ANSWER).encode(), X_Request_Id="req-7", Set_Cookie="a=b")

    def _refused(self) -> None:
        headers = {"Retry_After": "3", "X_RateLimit_Remaining_Requests": "0"}
        self._send(429, b'{"error": {"message": "slow down"}}', **headers)

    def _redirect(self) -> None:
        self._send(302, b"", Location="http://127.0.0.1:1/elsewhere")

    def _nested(self) -> None:
        self._send(200, NESTED)

    def _odd_header(self) -> None:
        self._send(200, json.dumps(ANSWER).encode(), X_Request_Id="a\xff\xe9b")

    def _odd_status(self) -> None:
        self._send(999, json.dumps(ANSWER).encode())

    def _gzip(self) -> None:
        self._send(200, gzip.compress(json.dumps(ANSWER).encode()), Content_Encoding="gzip")

    def _long(self) -> None:
        self._send(200, LONG)

    def _slow_end(self) -> None:
        self._begin(Content_Length="1000000")
        self._drip(b" ")

    def _drip(self, part: bytes) -> None:
        """Send a part again and again, for ten seconds or until the client leaves."""
        try:
            for _ in range(200):
                self.wfile.write(part)
                self.wfile.flush()
                time.sleep(0.05)
        except OSError:
            self.server.left.set()
        self.close_connection = True

    def _silent(self) -> None:
        time.sleep(3.0)

    def _reset(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def _broken(self) -> None:
        self._begin(Content_Length="1000")
        self.wfile.write(b'{"id": "half')
        self.close_connection = True

    def _stream(self) -> None:
        self._begin(
            Content_Type="text/event-stream; charset=utf-8", Set_Cookie="a=b", Connection="close"
        )
        for part in STREAM.split(b"\n\n")[:-1]:
            self.wfile.write(part + b"\n\n")
            self.wfile.flush()
            time.sleep(self.server.pause_s)
        self.close_connection = True

    def _slow_stream(self) -> None:
        self._begin(Content_Type="text/event-stream", Connection="close")
        self._drip(chunk(choices=[]) + b"\n\n")

    def log_message(self, *_: object) -> None:
        """Say nothing."""
