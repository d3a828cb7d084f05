"""A POST that does nothing, on the same framework, middleware and server settings: the rate to compare with."""

from __future__ import annotations

import sys

import orjson
import uvicorn
from fastapi import FastAPI, Request
from starlette.responses import Response

from app.bootstrap.logs import configure_logs
from app.http.bodies import BodyMemory
from app.http.metrics import Metrics
from app.http.middleware import Observe
from app.server.protocol import HttpProtocol

app = FastAPI()
metrics = Metrics()
app.add_middleware(Observe, metrics=metrics, body_memory=BodyMemory(1 << 30, metrics.refused))


@app.get("/healthz")
async def healthz() -> Response:
    return Response(b"{}", media_type="application/json")


@app.post("/v1/sessions/{id}/queries")
async def noop(request: Request, id: str) -> Response:
    orjson.loads(await request.body())
    return Response(b'{"value":0}', media_type="application/json")


if __name__ == "__main__":
    configure_logs("warning")
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), http=HttpProtocol, access_log=False, log_level="warning")
