"""One logical call over HTTP: tried again when that is safe, until it is answered or its time is up.

A call is *repeatable* when to send it twice does no more than to send it once: reads, ``PUT``, and every call with an
``Idempotency-Key``. The key is the same for all tries, so that the service returns the first reply and charges nothing
twice. A repeatable call is tried again after any failure of the connection. Any other call is tried again only when it
certainly was not carried out: the connection was refused, or the service itself said 503 or 429.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx

from app.client.errors import Problem, ProtocolError, Unreachable

T = TypeVar("T")

#: Statuses of refusals that are temporary.
RETRIED = frozenset({429, 503})
#: First and longest pause between two tries, in seconds. Each is twice the one before, less a random part.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0


@dataclass(frozen=True)
class Call:
    """One request, complete enough to be sent again. ``content`` is made anew for each try."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    content: Callable[[], dict[str, Any]] = field(default=dict)
    key: str | None = None

    @property
    def repeatable(self) -> bool:
        """Whether a second sending does no more than the first."""
        return self.key is not None or self.method in ("GET", "PUT")


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


class Transport:
    """Sends calls to one service with one key.

    Args:
        base_url: address of the service, without ``/v1``.
        api_key: the caller's key, or None for the routes that need none.
        timeout: seconds that one try may wait for the service.
        retry_for: seconds over which a call may be tried again; 0 for a single try.
    """

    def __init__(self, base_url: str, api_key: str | None, *, timeout: float = 60.0, retry_for: float = 60.0) -> None:
        headers = {"User-Agent": "curator-client"}
        if api_key is not None:
            headers["Authorization"] = f"Bearer {api_key}"
        self._http = httpx.Client(base_url=base_url.rstrip("/"), headers=headers, timeout=timeout)
        self._retry_for = retry_for

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, call: Call) -> httpx.Response:
        """The successful reply to ``call``, with its whole body.

        Raises:
            Problem: as :meth:`consume`.
            Unreachable: as :meth:`consume`.
        """

        def whole(response: httpx.Response) -> httpx.Response:
            response.read()
            return response

        return self.consume(call, whole)

    def json(self, call: Call) -> Any:
        """The JSON of the successful reply to ``call``.

        Raises:
            ProtocolError: when it is not JSON.
            Problem: as :meth:`consume`.
            Unreachable: as :meth:`consume`.
        """
        return parse_json(self.send(call))

    def consume(self, call: Call, reader: Callable[[httpx.Response], T]) -> T:
        """What ``reader`` makes of the successful reply, whose body is still to be read.

        A connection that breaks while the body is read is a failed try like any other: ``reader`` then starts
        anew.

        Raises:
            Problem: when the service refuses.
            Unreachable: when there is no reply within the time for retries.
        """
        deadline = time.monotonic() + self._retry_for
        pause = FIRST_PAUSE
        while True:
            try:
                with closing(self._http.send(self._request(call), stream=True)) as response:
                    if response.is_success:
                        return reader(response)
                    response.read()
            except httpx.TransportError as error:
                not_sent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
                wait = pause * random.uniform(0.5, 1.0)
                if not (call.repeatable or not_sent) or time.monotonic() + wait > deadline:
                    raise Unreachable(f"no reply from {self._http.base_url}: {describe(error)}") from error
            else:
                asked = retry_after(response)
                wait = pause * random.uniform(0.5, 1.0) if asked is None else asked
                if response.status_code not in RETRIED or time.monotonic() + wait > deadline:
                    raise problem_of(response)
            time.sleep(wait)
            pause = min(2 * pause, LONGEST_PAUSE)

    def download(self, call: Call, target: Path, progress: Callable[[int], None] | None = None) -> None:
        """Write the body of the successful reply to ``call`` to a file, which appears once it is whole and durable;
        ``progress`` hears of the bytes so far.

        Raises:
            OSError: when it cannot be written.
            Problem: as :meth:`consume`.
            Unreachable: as :meth:`consume`.
        """
        part = target.with_name(f".{target.name}.part")

        def write(response: httpx.Response) -> None:
            with part.open("wb") as file:
                for piece in response.iter_bytes():
                    file.write(piece)
                    if progress is not None:
                        progress(file.tell())
                file.flush()
                os.fsync(file.fileno())

        try:
            self.consume(call, write)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)

    def stream(self, call: Call, reader: Callable[[httpx.Response], Iterator[T]]) -> Iterator[T]:
        """What ``reader`` makes of the reply to ``call`` as it comes; one try, however long it takes.

        Raises:
            Problem: when the service refuses, other than for the moment: then there is nothing.
            httpx.TransportError: when the connection breaks.
        """
        with closing(self._http.send(self._request(call), stream=True)) as response:
            if response.is_success:
                yield from reader(response)
                return
            response.read()
        if response.status_code not in RETRIED:
            raise problem_of(response)

    def _request(self, call: Call) -> httpx.Request:
        headers = dict(call.headers)
        if call.key is not None:
            headers["Idempotency-Key"] = call.key
        return self._http.build_request(call.method, call.path, headers=headers, **call.content())


def describe(error: httpx.TransportError) -> str:
    """What happened to the connection, in a few words."""
    if isinstance(error, httpx.TimeoutException):
        return "it took too long"
    return str(error) or type(error).__name__


def parse_json(response: httpx.Response) -> Any:
    """The reply's JSON.

    Raises:
        ProtocolError: when it is not JSON.
    """
    try:
        return json.loads(response.content)
    except ValueError:
        raise ProtocolError(f"{response.request.url} answered with something that is not JSON") from None


def problem_of(response: httpx.Response) -> Problem:
    """The refusal that a reply states."""
    try:
        body = json.loads(response.content)
    except ValueError:
        body = None
    return Problem.parse(body, response.status_code)
