"""FastAPI reduced to what the service uses of it: routing, and the description."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Application(FastAPI):
    """FastAPI without its middleware stack: requests go to :attr:`requests`, and from there straight to their routes.

    The layers that are left out serve dependencies, telemetry and debugging, which nothing here uses. They would cost
    more time than an answer does (docs/decisions/0011-around-the-library-where-answers-go.md).
    """

    #: What requests go through: the middleware of this service, around the router.
    requests: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection event."""
        if scope["type"] == "http":
            scope["app"] = self
            await self.requests(scope, receive, send)
        else:

            async def send_type(message: Message) -> None:
                # When a start fails, the framework adds the stack trace to its message, and the server logs it. The
                # text of an error could hold anything; what is safe to know, create_app has logged by then.
                await send({"type": message["type"]})

            await super().__call__(scope, receive, send_type)


class PlainRoute(APIRoute):
    """A route whose endpoint takes the request and the path's parameters as they are.

    Routes read bodies themselves, within their limits: there is nothing for the framework to inject.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Call the endpoint and send what it replies."""
        if scope["method"] not in (self.methods or ()):
            raise HTTPException(405)
        reply: Response = await self.endpoint(Request(scope, receive), **scope["path_params"])
        await reply(scope, receive, send)
