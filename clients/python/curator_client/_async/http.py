"""One logical call over HTTP: tried again when that is safe, until it is answered or its time is up.

A call is *repeatable* when to send it twice does no more than to send it once: reads, ``PUT``, and every call with an
``Idempotency-Key``. The key is the same for all tries, so that the service returns the first reply and charges nothing
twice. A repeatable call is tried again after any failure of the connection. Any other call is tried again only when it
certainly was not carried out: the connection was refused, or the service itself said 503 or 429.

What listens at an address need not be the service. So a reply has a size that it may not pass, is not decompressed, is
read as JSON of a bounded depth, and has its time: so many seconds, and more only for bytes that move.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpcore
import httpx

from curator_client._async.waiting import place, sleep
from curator_client.calls import SMALL, Call, Reply
from curator_client.durable import written
from curator_client.errors import ProtocolError, Refused, Unreachable, refusal
from curator_client.version import __version__

T = TypeVar("T")

#: Statuses of refusals that are temporary.
RETRIED = frozenset({429, 503})
#: First and longest pause between two tries, in seconds. Each is twice the one before, less a random part.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
#: Bytes a second that must move, either way, once the time of a try is over.
LEAST_RATE = 1 << 15


def retry_after(response: httpx.Response) -> float | None:
    """Seconds to wait by the reply's ``Retry-After``, a number or a date (RFC 9110); None without one."""
    value = response.headers.get("Retry-After")
    if value is None:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None


class _Pace:
    """The time of a try that is under way; none where ``seconds`` is None."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds, self._began = seconds, time.monotonic()
        self.moved = 0

    def left(self, timeout: float | None) -> float | None:
        """Seconds for which the next bytes may be waited for, at most those of a timeout; 0 when the time is over."""
        if self._seconds is None:
            return timeout
        rest = max(0.0, self._began + self._seconds + self.moved / LEAST_RATE - time.monotonic())
        return rest if timeout is None else min(rest, timeout)


#: Of the thread or task that reads: connections are handed on, and do not know whose they are.
_PACE: ContextVar[_Pace] = ContextVar("pace")


def _pace() -> _Pace:
    return _PACE.get(_UNHURRIED)


_UNHURRIED = _Pace(None)


def _begin(seconds: float | None) -> None:
    """Begin a try, or a line."""
    _PACE.set(_Pace(seconds))


class _PacedStream(httpcore.AsyncNetworkStream):
    """A connection whose bytes come and go in their time. A timeout for each of them would let one come now and then
    for ever, of the head of a reply too.
    """

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        pace = _pace()
        left = pace.left(timeout)
        if left == 0:
            raise httpcore.ReadTimeout("too slow")
        data = await self._stream.read(max_bytes, left)
        pace.moved += len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        pace = _pace()
        left = pace.left(timeout)
        if left == 0:
            raise httpcore.WriteTimeout("too slow")
        await self._stream.write(buffer, left)
        pace.moved += len(buffer)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(self, *arguments: Any, **named: Any) -> httpcore.AsyncNetworkStream:
        return _PacedStream(await self._stream.start_tls(*arguments, **named))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _PacedBackend(httpcore.AsyncNetworkBackend):
    """Makes such connections."""

    def __init__(self, backend: httpcore.AsyncNetworkBackend) -> None:
        self._backend = backend

    async def connect_tcp(self, *arguments: Any, **named: Any) -> httpcore.AsyncNetworkStream:
        return _PacedStream(await self._backend.connect_tcp(*arguments, **named))

    async def connect_unix_socket(self, *arguments: Any, **named: Any) -> httpcore.AsyncNetworkStream:
        return _PacedStream(await self._backend.connect_unix_socket(*arguments, **named))

    async def sleep(self, seconds: float) -> None:
        await self._backend.sleep(seconds)


def _paced(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """A client with such connections. httpx has no way to say so, and httpcore, which it is made of, has one."""
    for transport in (client._transport, *client._mounts.values()):
        if isinstance(transport, httpx.AsyncHTTPTransport):
            pool = transport._pool
            pool._network_backend = _PacedBackend(pool._network_backend)
    return client


class Transport:
    """Sends calls to one service with one key.

    Args:
        base_url: address of the service, without ``/v1``.
        api_key: the caller's key, or None for the routes that need none.
        timeout: seconds that one try may take, and more only while :data:`LEAST_RATE` is kept.
        retry_for: seconds over which a call may be tried again; 0 for a single try.
    """

    def __init__(self, base_url: str, api_key: str | None, *, timeout: float = 60.0, retry_for: float = 60.0) -> None:
        headers = {"User-Agent": f"curator-client/{__version__}", "Accept-Encoding": "identity"}
        if api_key is not None:
            headers["Authorization"] = f"Bearer {_sendable(api_key.strip(), 'the key')}"
        self._made = partial(httpx.AsyncClient, base_url=base_url.rstrip("/"), headers=headers, timeout=timeout)
        self._retry_for, self._timeout, self._closed = retry_for, timeout, False
        self._place: object = None
        self._http = _paced(self._made())

    def _own(self) -> httpx.AsyncClient:
        """Connections of this place: on those of a process that this one was forked from come that one's replies."""
        if self._closed:
            raise Unreachable("the client was closed: make another one")
        if self._place != place():
            if self._place is not None:
                self._http = _paced(self._made())
            self._place = place()
        return self._http

    async def close(self) -> None:
        """Close the connections."""
        self._closed = True
        if self._place == place():
            await self._http.aclose()

    async def send(self, call: Call) -> Reply:
        """The successful reply to ``call``, with its whole body.

        Raises:
            ProtocolError: when it is larger than it may be.
            Refused: when the service refuses.
            Unreachable: when there is no reply within the time for retries.
        """
        return await self._consume(call, partial(_whole, most=call.most))

    async def json(self, call: Call) -> Any:
        """The JSON of the successful reply to ``call``.

        Raises:
            ProtocolError: when it is not JSON, or is larger or deeper than it may be.
            Refused: as :meth:`send`.
            Unreachable: as :meth:`send`.
        """
        return (await self.send(call)).json()

    async def _consume(self, call: Call, reader: Callable[[httpx.Response], Awaitable[T]]) -> T:
        """Give what ``reader`` makes of the successful reply, whose body is still to be read.

        A connection that breaks while the body is read is a failed try like any other: ``reader`` then starts
        anew.

        Raises:
            Refused: when the service refuses.
            Unreachable: when there is no reply within the time for retries.
        """
        deadline = time.monotonic() + self._retry_for
        pause = FIRST_PAUSE
        while True:
            _begin(self._timeout)
            try:
                async with aclosing(await self._own().send(self._request(call), stream=True)) as response:
                    if response.is_success:
                        return await reader(_plain(response))
                    refused = await _refused(response)
            except (httpx.LocalProtocolError, httpx.UnsupportedProtocol) as error:
                # What is wrong with a request may quote its headers, and stays.
                said = error if isinstance(error, httpx.UnsupportedProtocol) else "the request cannot be sent"
                raise Unreachable(f"{self._http.base_url}: {said}") from None
            except httpx.TransportError as error:
                not_sent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
                wait = pause * random.uniform(0.5, 1.0)
                if not (call.repeatable or not_sent) or time.monotonic() + wait > deadline:
                    raise Unreachable(f"no reply from {self._http.base_url}: {describe(error)}") from error
            else:
                asked = refused.retry_after
                wait = pause * random.uniform(0.5, 1.0) if asked is None else asked
                if refused.status not in RETRIED or time.monotonic() + wait > deadline:
                    raise refused
            await sleep(wait)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def download(self, call: Call, target: Path, progress: Callable[[int], None] | None = None) -> None:
        """Write the body of the successful reply to ``call`` to a file, which appears once it is whole and durable;
        ``progress`` hears of the bytes so far.

        Raises:
            OSError: when it cannot be written.
            ProtocolError: when it is larger than it may be; then there is no file.
            Refused: as :meth:`send`.
            Unreachable: as :meth:`send`.
        """
        with written(target, mode=0o666) as file:

            async def write(response: httpx.Response) -> None:
                file.seek(0)
                file.truncate()
                async for piece in _pieces(response, call.most):
                    file.write(piece)
                    if progress is not None:
                        progress(file.tell())

            await self._consume(call, write)

    async def lines(self, call: Call, seconds: float) -> AsyncIterator[str]:
        """The lines of the reply to ``call`` as they come; one try, however long it takes, but for its head.

        Args:
            call: what is sent.
            seconds: in which each line must be whole.

        Raises:
            ProtocolError: when the reply is compressed, or has a line that is longer than a small reply.
            Refused: when the service refuses, other than for the moment: then there is nothing.
            Unreachable: when the connection breaks, or a line takes longer.
        """
        _begin(self._timeout)
        try:
            async with aclosing(await self._own().send(self._request(call), stream=True)) as response:
                if response.is_success:
                    async for line in _lines(_plain(response), SMALL, seconds):
                        yield line
                    return
                refused = await _refused(response)
        except httpx.TransportError as error:
            raise Unreachable(f"the reply broke off: {describe(error)}") from error
        if refused.status not in RETRIED:
            raise refused

    def _request(self, call: Call) -> httpx.Request:
        headers = dict(call.headers)
        if call.key is not None:
            headers["Idempotency-Key"] = _sendable(call.key, "an idempotency key")
        return self._http.build_request(call.method, call.path, headers=headers, **call.content())


def _sendable(text: str, what: str) -> str:
    if not (text and text.isascii() and text.isprintable()):
        raise ValueError(f"{what} has one or more printable ASCII characters, and no others")
    return text


def describe(error: httpx.TransportError) -> str:
    """The connection's failure, in a few words."""
    if isinstance(error, httpx.TimeoutException):
        return "it took too long"
    return str(error) or type(error).__name__


def _plain(response: httpx.Response) -> httpx.Response:
    """A reply whose bytes are those that came.

    Raises:
        ProtocolError: when they would become more.
    """
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise ProtocolError(f"{response.request.url} answered with something compressed, which nobody asked for")
    return response


async def _pieces(response: httpx.Response, most: int) -> AsyncIterator[bytes]:
    """The body as it comes.

    Raises:
        ProtocolError: when it is larger than ``most`` bytes.
    """
    size = 0
    async for piece in response.aiter_bytes():
        size += len(piece)
        if size > most:
            raise ProtocolError(f"{response.request.url} answered with more than {most:,} bytes")
        yield piece


async def _whole(response: httpx.Response, most: int) -> Reply:
    """The reply with its body.

    Raises:
        ProtocolError: when it is compressed, or larger than ``most`` bytes.
    """
    content = b"".join([piece async for piece in _pieces(_plain(response), most)])
    return Reply(response.status_code, dict(response.headers), content, str(response.request.url))


async def _refused(response: httpx.Response) -> Refused:
    """The refusal that a reply states."""
    reply = await _whole(response, SMALL)
    try:
        body = reply.json()
    except ProtocolError:
        body = None
    return refusal(body, reply.status, retry_after(response))


async def _lines(response: httpx.Response, most: int, seconds: float) -> AsyncIterator[str]:
    """The lines of a reply as they come.

    Raises:
        ProtocolError: when one is longer than ``most`` bytes.
        httpx.ReadTimeout: when one takes longer than ``seconds``.
    """
    rest = b""
    # Each line has its own time, and what the reply began with counts no more.
    _begin(seconds)
    async for piece in response.aiter_bytes():
        *whole, rest = (rest + piece).split(b"\n")
        if len(rest) > most or any(len(line) > most for line in whole):
            raise ProtocolError(f"{response.request.url} answered with a line of more than {most:,} bytes")
        if whole:
            _begin(seconds)
        for line in whole:
            yield line.removesuffix(b"\r").decode(errors="replace")
            _begin(seconds)
