"""The wire: what may be sent before a request is one, how slowly, by how many at once, and problem JSON for what is no
HTTP.
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

from app.http import problems
from app.http.places import Places
from app.services.errors import PayloadTooLarge, RequestTimeout, Unavailable
from app.spaces.errors import CuratorError, InvalidRequest

#: Bytes that may come in a row without being a body: a request line and its headers, or trailers. One more block that
#: the transport reads may follow before it is noticed. The parser itself has no limit.
MAX_HEAD = 1 << 16


@dataclass(frozen=True)
class Wire:
    """What the operator allows connections.

    Args:
        places: of the connections that this process serves at a time.
        seconds: in which a request's head must be there, and over which the rate of bodies and replies is taken.
        bytes_a_second: least rate at which a client sends a body and reads a reply.
        idle_seconds: that a connection may stay without a request.
        refused: called with the reason of each connection that is refused or cut off.
        ending: called, at least once where there are connections, when the server drains.
    """

    places: Places = field(default_factory=Places)
    seconds: float = 20.0
    bytes_a_second: int = 1024
    idle_seconds: float = 30.0
    refused: Callable[[str], None] = lambda _: None
    ending: Callable[[], None] = lambda: None


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 with a limit on everything but the size of bodies, which have limits of their own.

    Each connection is looked at once a while (:meth:`_look`); what happens in between only counts, so that a request
    pays nothing for it. What the clock knows is exact to one such while.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._wire: Wire = self.app_state.get("wire") or Wire()
        self.timeout_keep_alive = self._wire.idle_seconds  # type: ignore[assignment]
        self._pause = min(1.0, self._wire.seconds / 8)
        self._look_later: asyncio.TimerHandle | None = None
        self._refusal: Unavailable | None = None
        #: Done when the connection is gone: whoever waits on behalf of its client may stop.
        self._lost: asyncio.Future[None] = self.loop.create_future()
        self._bare = 0
        # The request that is coming in: its number, how far it is, and the body's bytes since the stretch began.
        self._number = 0
        self._part: Literal["none", "head", "body"] = "none"
        self._read = 0
        self._reading: tuple[int, str] = (0, "")
        self._reading_since = 0.0
        # What is going out: bytes not taken yet when last looked at, and bytes taken since the stretch began.
        self._unsent = 0
        self._sent = 0
        self._sending_since: float | None = None

    # ------------------------------------------------------------------ what comes

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Serve a connection, tell it that there are too many, or, when there are far too many, end it."""
        super().connection_made(transport)
        places = self._wire.places
        try:
            places.take(self, self.client[0] if self.client else "")
        except Unavailable as refusal:
            self._wire.refused("connections")
            if len(self.connections) - len(places) > places.most:
                transport.abort()
                return
            self._refusal, self.app = refusal, self._crowded
        self._look_later = self.loop.call_later(self._pause, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Look no more, and make room."""
        if self._look_later is not None:
            self._look_later.cancel()
        self._wire.places.leave(self)
        self._lost.set_result(None)
        super().connection_lost(exc)

    def shed(self) -> None:
        """End a connection that is idle: what its client has not taken of the last reply still goes out."""
        self.transport.close()

    def shutdown(self) -> None:
        """The server drains: serve no further request."""
        self._wire.ending()
        super().shutdown()

    def data_received(self, data: bytes) -> None:
        """Parse what has come; hang up on who sends heads without end."""
        self._bare += len(data)
        self._wire.places.busy(self)
        super().data_received(data)
        if self._bare > MAX_HEAD and not self.transport.is_closing():
            self._refuse(PayloadTooLarge(f"the head of a request may have at most {MAX_HEAD:,} bytes", limit=MAX_HEAD))

    def on_message_begin(self) -> None:
        """A request begins: what is counted is its own."""
        self._bare = 0
        self._number += 1
        self._part = "head"
        super().on_message_begin()
        self.scope["state"]["lost"] = self._lost

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._part = "body"
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
        """A reply is whole: where nothing follows, the connection is idle."""
        super().on_response_complete()
        if self._part == "none" and self.timeout_keep_alive_task is not None:
            self._wire.places.idle(self)

    async def _crowded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application of a connection too many: whether the process lives, it still tells."""
        if scope["path"] == "/healthz":
            await self.config.loaded_app(scope, receive, send)
            return
        assert self._refusal is not None
        reply = problems.response(self._refusal)
        reply.headers["Connection"] = "close"
        await reply(scope, receive, send)

    # ------------------------------------------------------------------ what is too slow

    def pause_writing(self) -> None:
        """A reply is larger than what the client has taken."""
        self._unsent = self._outstanding()
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client has taken most of it."""
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

    def _look(self) -> None:
        now = self.loop.time()
        if self._reads_too_slowly(now):
            self._wire.refused("slow_reader")
            self.transport.abort()  # there is no telling somebody who does not listen
            return
        if not self.transport.is_closing() and self._sends_too_slowly(now):
            self._cut_off()
        self._look_later = self.loop.call_later(self._pause, self._look)

    def _reads_too_slowly(self, now: float) -> bool:
        """Whether less of a reply than the least rate was taken over a whole stretch."""
        self._count_sent()
        if not self._unsent:
            self._sending_since = None
            return False
        if self._sending_since is None:
            self._sending_since, self._sent = now, 0
        if now - self._sending_since < self._wire.seconds:
            return False
        slow = self._sent < self._wire.seconds * self._wire.bytes_a_second
        self._sending_since, self._sent = now, 0
        return slow

    def _sends_too_slowly(self, now: float) -> bool:
        """Whether a head has taken too long, or a body came in below the least rate over a whole stretch."""
        part: str = self._part
        answered = self.cycle is None or self.cycle.response_complete
        if part == "body" and answered:
            part = "rest"  # of a body that was refused before its end
        elif part == "none" and answered and self.timeout_keep_alive_task is None:
            part = "nothing"  # a connection without its first request, or with line breaks in the place of the next one
        # Nobody is slow while the server does not read: it is busy with an earlier request, or has not asked for this.
        held_up = self.flow.read_paused or (part == "head" and not answered)
        held_up |= part == "body" and self.cycle.waiting_for_100_continue
        if part == "none" or held_up or (self._number, part) != self._reading:
            self._reading, self._reading_since, self._read = (self._number, part), now, 0
            return False
        if now - self._reading_since < self._wire.seconds:
            return False
        if part == "body" and self._read >= self._wire.seconds * self._wire.bytes_a_second:
            self._reading_since, self._read = now, 0
            return False
        return True

    def _cut_off(self) -> None:
        """End a connection whose client sends too slowly; where a reply to it is still due, that is a refusal."""
        if not self._number and not self._bare:
            self.transport.close()  # it never said a word
            return
        self._wire.refused("slow_request")
        due = self._part == "head" or (self._part == "body" and not self.cycle.response_started)
        if due:
            self._refuse(
                RequestTimeout(
                    f"the request came too slowly: its head must be there in {self._wire.seconds:g} s, and of a body "
                    f"{self._wire.bytes_a_second:,} bytes a second"
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
