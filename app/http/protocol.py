"""The wire: what may be sent before a request is one, and problem JSON for what is no HTTP."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.http import problems
from app.services.errors import PayloadTooLarge
from app.spaces.errors import CuratorError, InvalidRequest

#: Bytes that may come in a row without being a body: a request line and its headers, or trailers. One more block that
#: the transport reads may follow before it is noticed. The parser itself has no limit.
MAX_HEAD = 1 << 16


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 with a limit on everything but bodies, which have limits of their own."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._bare = 0

    def data_received(self, data: bytes) -> None:
        """Parse what has come; hang up on who sends heads without end."""
        self._bare += len(data)
        super().data_received(data)
        if self._bare > MAX_HEAD and not self.transport.is_closing():
            self._refuse(PayloadTooLarge(f"the head of a request may have at most {MAX_HEAD:,} bytes", limit=MAX_HEAD))

    def on_message_begin(self) -> None:
        """A request begins: what is counted is its own."""
        self._bare = 0
        super().on_message_begin()

    def on_body(self, body: bytes) -> None:
        """A part of a body, which the application counts."""
        self._bare = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._bare = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, and hang up."""
        self._refuse(InvalidRequest("this is no HTTP/1.1 request: check the client, and what lies between"))

    def _refuse(self, error: CuratorError) -> None:
        reply = problems.response(error)
        head = b"".join(b"%b: %b\r\n" % header for header in reply.raw_headers)
        status = b"HTTP/1.1 %d \r\nconnection: close\r\n" % reply.status_code
        self.transport.write(status + head + b"\r\n" + bytes(reply.body))
        self.transport.close()
