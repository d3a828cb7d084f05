"""HTTP/1.1 over connections with limits: their number, the size of a request's head, the least speed of a client.

What is not HTTP is refused with problem JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import struct
import termios
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.declarations.errors import CuratorError, InvalidRequest
from app.http import problems
from app.server.connection_limits import ConnectionLimits
from app.services.errors import PayloadTooLarge, RequestTimeout, Unavailable

#: Most bytes in a row that are not of a body: a request line and its headers, or trailers. The parser has no limit of
#: its own. What is beyond is noticed after the next block that the transport reads.
MAX_HEAD = 1 << 16


@dataclass(frozen=True)
class ConnectionPolicy:
    """The limits on connections.

    Args:
        limits: how many connections there may be.
        seconds: time for the head of a request, and the stretch over which the rates of bodies and replies are taken.
        bytes_a_second: least rate at which a client sends a body and reads a reply.
        idle_seconds: longest time that a connection stays open without a request.
        refused: called with the reason of each connection that is refused or cut off.
        draining: called when the server drains, at least once if there are connections.
    """

    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    seconds: float = 20.0
    bytes_a_second: int = 1024
    idle_seconds: float = 30.0
    refused: Callable[[str], None] = lambda _: None
    draining: Callable[[], None] = lambda: None


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 with a limit on everything but the size of bodies, which routes limit.

    A timer checks each connection at intervals (:meth:`_check`). What happens in between is only counted, so that it
    costs a request next to nothing. Times are exact to one interval.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._policy: ConnectionPolicy = self.app_state.get("connection_policy") or ConnectionPolicy()
        self.timeout_keep_alive = self._policy.idle_seconds  # type: ignore[assignment]
        self._interval = min(1.0, self._policy.seconds / 8)
        self._next_check: asyncio.TimerHandle | None = None
        self._refusal: Unavailable | None = None
        #: Done when the connection is gone: nobody needs to wait on behalf of its client.
        self._lost: asyncio.Future[None] = self.loop.create_future()
        #: Bytes in a row that were not of a body.
        self._bare = 0
        # The request that is coming in: its number, what of it is next, and bytes of its body in this stretch.
        self._number = 0
        self._part: Literal["none", "head", "body"] = "none"
        self._read = 0
        self._reading: tuple[int, str] = (0, "")
        self._reading_since = 0.0
        # The reply that is going out: bytes that the client had not taken at the last look, and taken in this stretch.
        self._unsent = 0
        self._sent = 0
        self._sending_since: float | None = None

    # ------------------------------------------------------------------ connections and requests

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Serve a connection, refuse it when there are too many, or end it at once when there are far too many."""
        super().connection_made(transport)
        limits = self._policy.limits
        try:
            limits.admit(self, self.client[0] if self.client else "")
        except Unavailable as refusal:
            self._policy.refused("connections")
            if len(self.connections) - len(limits) > limits.most:
                transport.abort()
                return
            self._refusal, self.app = refusal, self._refuse_request
        self._next_check = self.loop.call_later(self._interval, self._check)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        if self._next_check is not None:
            self._next_check.cancel()
        self._policy.limits.release(self)
        self._lost.set_result(None)
        super().connection_lost(exc)

    def close_idle(self) -> None:
        """End a connection that is silent or idle, after the rest of its last reply has been sent."""
        self.transport.close()

    def shutdown(self) -> None:
        """Serve no further request, as the server drains."""
        self._policy.draining()
        super().shutdown()

    def data_received(self, data: bytes) -> None:
        """Parse what has come; refuse a head that is too long."""
        self._bare += len(data)
        super().data_received(data)
        if self._bare > MAX_HEAD and not self.transport.is_closing():
            self._refuse(PayloadTooLarge(f"the head of a request may have at most {MAX_HEAD:,} bytes", limit=MAX_HEAD))

    def on_message_begin(self) -> None:
        """A request begins: count anew."""
        self._bare = 0
        self._number += 1
        self._part = "head"
        super().on_message_begin()
        self.scope["state"]["lost"] = self._lost

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._part = "body"
        self._policy.limits.mark_busy(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of a body, whose size the application limits."""
        self._bare = 0
        self._read += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        self._bare = 0
        self._part = "none"
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """A reply is whole: where no request follows, the connection is idle."""
        super().on_response_complete()
        # The beginning of a head is no request: it could be held for as long as a head may take.
        if self._part in ("none", "head") and self.timeout_keep_alive_task is not None:
            self._policy.limits.mark_idle(self)

    async def _refuse_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application of a connection too many: it refuses all but the check that the process is alive."""
        if scope["path"] == "/healthz":
            await self.config.loaded_app(scope, receive, send)
            return
        assert self._refusal is not None
        reply = problems.response(self._refusal)
        reply.headers["Connection"] = "close"
        await reply(scope, receive, send)

    # ------------------------------------------------------------------ slow clients

    def pause_writing(self) -> None:
        """The transport holds more of a reply than it should: the client reads slowly."""
        self._unsent = self._outstanding()
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client has taken most of it, and the reply goes on."""
        self._count_sent()
        super().resume_writing()

    def _outstanding(self) -> int:
        """Bytes that were written and that the client has not acknowledged: here, and in the system's buffer."""
        held = self.transport.get_write_buffer_size()
        if held:
            with contextlib.suppress(OSError):
                queued = fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
                held += struct.unpack("i", queued)[0]
        return held

    def _count_sent(self) -> None:
        left = self._outstanding()
        self._sent += max(0, self._unsent - left)
        self._unsent = left

    def _check(self) -> None:
        now = self.loop.time()
        if self._reads_too_slowly(now):
            self._policy.refused("slow_reader")
            self.transport.abort()  # a refusal would not be read either
            return
        if not self.transport.is_closing() and self._sends_too_slowly(now):
            self._cut_off()
        self._next_check = self.loop.call_later(self._interval, self._check)

    def _reads_too_slowly(self, now: float) -> bool:
        """Whether the client took a reply below the least rate over a whole stretch."""
        self._count_sent()
        if not self._unsent:
            self._sending_since = None
            return False
        if self._sending_since is None:
            self._sending_since, self._sent = now, 0
        if now - self._sending_since < self._policy.seconds:
            return False
        slow = self._sent < self._policy.seconds * self._policy.bytes_a_second
        self._sending_since, self._sent = now, 0
        return slow

    def _sends_too_slowly(self, now: float) -> bool:
        """Whether a head has taken too long, or a body came in below the least rate over a whole stretch."""
        part: str = self._part
        answered = self.cycle is None or self.cycle.response_complete
        if part == "body" and answered:
            part = "rest"  # of the body of a request that was answered before its end
        elif part == "none" and answered and self.timeout_keep_alive_task is None:
            part = "nothing"  # before a first request, or line breaks where the next one should begin
        # No client is slow while the server does not read: it is busy with an earlier request, or has not asked for a
        # body.
        held_up = self.flow.read_paused or (part == "head" and not answered)
        held_up |= part == "body" and self.cycle.waiting_for_100_continue
        if part == "none" or held_up or (self._number, part) != self._reading:
            self._reading, self._reading_since, self._read = (self._number, part), now, 0
            return False
        if now - self._reading_since < self._policy.seconds:
            return False
        if part == "body" and self._read >= self._policy.seconds * self._policy.bytes_a_second:
            self._reading_since, self._read = now, 0
            return False
        return True

    def _cut_off(self) -> None:
        """End a connection whose client sends too slowly; where a reply to it is still due, that is a refusal."""
        if not self._number and not self._bare:
            self.transport.close()  # it never sent anything
            return
        self._policy.refused("slow_request")
        due = self._part == "head" or (self._part == "body" and not self.cycle.response_started)
        if due:
            self._refuse(
                RequestTimeout(
                    f"the request came too slowly: its head must be there in {self._policy.seconds:g} s, and of a body "
                    f"{self._policy.bytes_a_second:,} bytes a second"
                )
            )
        else:
            self.transport.close()

    # ------------------------------------------------------------------ refusals

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request, and hang up."""
        self._refuse(InvalidRequest("this is no HTTP/1.1 request: check the client, and what lies between"))

    def _refuse(self, error: CuratorError) -> None:
        reply = problems.response(error)
        head = b"".join(b"%b: %b\r\n" % header for header in reply.raw_headers)
        status = b"HTTP/1.1 %d \r\nconnection: close\r\n" % reply.status_code
        self.transport.write(status + head + b"\r\n" + bytes(reply.body))
        self.transport.close()
