"""One service, as one key may call it: what a client's parts share."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from curator_client._async.http import Transport
from curator_client._async.log_routes import LogRoutes
from curator_client._async.seen_log import SeenLog
from curator_client._async.session import AsyncSession
from curator_client.calls import Call
from curator_client.errors import ProtocolError
from curator_client.mechanisms import Mechanism
from curator_client.models import JSON, SessionState
from curator_client.requests import Amount, json_call, listed, new_key, opening_body, session_path

#: Items of a page of a list.
PAGE = 1000


@dataclass(frozen=True)
class Service:
    """What calls it, its log, and what was seen of that."""

    transport: Transport
    log: LogRoutes
    seen_log: SeenLog

    @classmethod
    def at(cls, url: str | None, key: str | None, *, timeout: float, retry_for: float) -> Self:
        """The service at an address, or the one that the environment names."""
        url = url or os.environ.get("CURATOR_URL") or "http://127.0.0.1:8000"
        key = os.environ.get("CURATOR_API_KEY") or None if key is None else key
        transport = Transport(url, key, timeout=timeout, retry_for=retry_for)
        log = LogRoutes(transport)
        return cls(transport, log, SeenLog(log))

    def session(self, state: JSON) -> AsyncSession:
        """A session that a reply describes."""
        return AsyncSession(self.transport, self.seen_log, SessionState.parse(state))

    async def open(
        self,
        dataset: str,
        epsilon: Amount,
        max_queries: int | None,
        mechanism: Mechanism,
        options: Mapping[str, Any],
        key: str | None = None,
    ) -> AsyncSession:
        """Open a session."""
        body = opening_body(dataset, mechanism, epsilon, max_queries, options)
        return self.session(await self.transport.json(json_call("POST", "/v1/sessions", body, key=key or new_key())))

    async def resume(self, id: str) -> AsyncSession:
        """A session that was opened before."""
        return self.session(await self.transport.json(Call("GET", session_path(id))))

    async def items(self, path: str) -> list[Any]:
        """The items of all pages of a list."""
        return [item async for page in self.pages(path) for item in listed(page, "items")]

    async def pages(self, path: str) -> AsyncIterator[JSON]:
        """The pages of a list, at least one."""
        following: Any = f"{path}?limit={PAGE}"
        while following is not None:
            page = await self.transport.json(Call("GET", following))
            if not isinstance(page, dict):
                raise ProtocolError("the reply is no page of a list")
            yield page
            following = page.get("next")
            # The next request has the key in it: it must not go to another address.
            if following is not None and not (isinstance(following, str) and following.startswith(f"{path}?")):
                raise ProtocolError("the next page is of something else")
