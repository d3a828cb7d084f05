"""Servers that speak as those of Trino and BigQuery do, for the drivers that come by pip; DuckDB acts the engine behind
them (`translated.py`). They tell what a driver sent them.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from app.storage.sources.drivers import Place
from tests.datasets.translated import Translating


class Acted(ThreadingHTTPServer):
    """A server of an engine.

    Attributes:
        slow: whether statements are worked on without an end, cancelled or not.
        cancelled: those that were.
        heads: what requests had in their heads.
        bodies: what they were.
    """

    daemon_threads = True

    def __init__(self, engine: Translating, handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self.engine, self.slow, self.cancelled = engine, False, set[str]()
        self.heads: list[dict[str, str]] = []
        self.bodies: list[Any] = []

    @property
    def at(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def rows(self, text: str) -> list[Any]:
        """The rows of a statement."""
        cursor = self.engine.connect(_NOWHERE, 0).cursor()
        cursor.execute(text)
        return list(cursor.fetchmany(1 << 30))


_NOWHERE = Place("", "", 0, "", "", "")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16  # heads and bodies at once: whoever reads would wait for the second piece
    server: Acted

    def log_message(self, *_: Any) -> None:
        pass

    def body(self) -> str:
        self.server.heads.append(dict(self.headers.items()))
        return self.rfile.read(int(self.headers["Content-Length"])).decode()

    def reply(self, told: Any, status: int = 200) -> None:
        body = b"" if told is None else json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _typed(row: Sequence[Any], kinds: dict[type, str]) -> list[tuple[str, str]]:
    return [(f"n{at}", kinds[type(value)]) for at, value in enumerate(row)]


class _Trino(_Handler):
    """Statements are taken, and then asked for until they are done."""

    def do_POST(self) -> None:
        self.server.bodies.append(self.body())
        number = len(self.server.bodies) - 1
        self.reply(self._told(number, next=True))

    def do_GET(self) -> None:
        number = int(self.path.rpartition("/")[2])
        if self.server.slow:
            time.sleep(0.02)
            self.reply(self._told(number, next=True))
            return
        try:
            rows = self.server.rows(self.server.bodies[number])
        except Exception:
            error = {"message": "quux-secret", "errorCode": 1, "errorName": "NO", "errorType": "USER_ERROR"}
            self.reply(self._told(number) | {"error": error})
            return
        found = _typed(rows[0] if rows else (), {int: "bigint", Decimal: "decimal(38,0)", str: "varchar"})
        columns = [
            {"name": name, "type": kind, "typeSignature": {"rawType": kind.partition("(")[0], "arguments": []}}
            for name, kind in found
        ]
        data = [[str(value) if isinstance(value, Decimal) else value for value in row] for row in rows]
        self.reply(self._told(number) | ({"columns": columns, "data": data} if rows else {}))

    def do_DELETE(self) -> None:
        self.server.cancelled.add(self.server.bodies[int(self.path.rpartition("/")[2])])
        self.reply(None, 204)

    def _told(self, number: int, next: bool = False) -> dict[str, Any]:
        at = f"http://{self.server.at}/v1/statement/executing/{number}"
        told: dict[str, Any] = {"id": str(number), "infoUri": at, "stats": {"state": "RUNNING" if next else "FINISHED"}}
        return told | ({"nextUri": at} if next else {})


class _BigQuery(_Handler):
    """Statements are answered at once."""

    def do_POST(self) -> None:
        told = json.loads(self.body())
        self.server.bodies.append(told)
        while self.server.slow:
            time.sleep(0.02)
        try:
            rows = self.server.rows(told["query"])
        except Exception:
            self.reply({"error": {"code": 400, "message": "quux-secret", "errors": []}}, 400)
            return
        fields = _typed(rows[0] if rows else (), {int: "INTEGER", Decimal: "BIGNUMERIC", str: "STRING"})
        self.reply(
            {
                "kind": "bigquery#queryResponse",
                "schema": {"fields": [{"name": name, "type": kind, "mode": "NULLABLE"} for name, kind in fields]},
                "jobReference": {"projectId": "p", "jobId": "j", "location": "EU"},
                "totalRows": str(len(rows)),
                "rows": [{"f": [{"v": str(value)} for value in row]} for row in rows],
                "jobComplete": True,
            }
        )


#: The key of an account, and what it signs is held against.
# Short: each connection checks it anew.
KEY = rsa.generate_private_key(public_exponent=65537, key_size=1024)
PEM = KEY.private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
).decode()


@contextmanager
def acted(engine: Translating, database: str) -> Iterator[tuple[Acted, str]]:
    """A server of Trino or BigQuery, and the URL that leads to a database of it."""
    handler, who = {
        "trino": (_Trino, "u"),
        "bigquery": (_BigQuery, f"{quote('u@p.iam.gserviceaccount.com', safe='')}:{quote(PEM, safe='')}"),
    }[engine.engine]
    server = Acted(engine, handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server, f"{engine.engine}://{who}@{server.at}/{quote(database, safe='')}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
