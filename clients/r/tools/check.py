"""Builds the client in R and tries it at a real server, which ends with this process: ``make r``.

The examples of docs/r.md are run as if the package was just installed, and print what stands below them, but for what
noise changes. `R CMD build` makes the package and its vignette, and `R CMD check` installs it into a library of its own
and runs its examples, its tests and the vignette. Tests reach the server through a proxy, which does to replies what
they say, and asks the same questions as the client in Python does.
"""

from __future__ import annotations

import datetime
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from app.demo.server import ended
from app.demo.survey import survey
from app.http.console.asking import in_r
from curator_client import Curator, by, col, where
from curator_client.answers import Answer, Cell, Table
from curator_client.questions import Question, question
from curator_client.words import shown
from tests.docs.shapes import shape
from tests.kit.processes import end_with_tests
from tests.kit.servers import Launcher, Server, launching
from tests.kit.world import ADMIN_KEY

PACKAGE = Path(__file__).resolve().parents[1]
DOCUMENT = PACKAGE.parents[1] / "docs" / "r.md"
#: Two labels that are hard to send, and to print.
CITIES = ("Zürich", 'a "b"\\, c')
PEOPLE: dict[str, Any] = {
    "name": "people",
    "kind": "table",
    "records_public": True,
    "budget": {"epsilon": 30.0, "delta": 1e-6},
    "attributes": [
        {"name": "sex", "values": ["female", "male"], "missing": True},
        {"name": "city", "values": list(CITIES)},
        {"name": "age", "lower": 0, "upper": 80, "grid": 1, "bins": 8},
        {"name": "income", "lower": 0, "upper": 1000, "grid": 10, "outside": "clamp", "missing": True},
        {"name": "joined", "dates": ["2020-01-01", "2023-12-31"], "by": "month"},
        {"name": "value", "size": 3},
    ],
    "zeros": [{"age": {"lt": 10}, "value": 2}],
}
HIDDEN: dict[str, Any] = {
    "name": "hidden",
    "kind": "table",
    "access": "granted",
    "budget": {"epsilon": 0.1, "delta": 1e-6},
    "attributes": [{"name": "code", "size": 3}],
}
#: What the tests ask in R, as Python asks it.
QUESTIONS: Mapping[str, Question[Any]] = {
    "all": where().count(),
    "count": where(sex="female", age=(30, 60)).count(),
    "several": where(value=[0, 2], city=CITIES[1]).count(),
    "missing": where(sex=None).count(),
    "dates": where(joined=(datetime.date(2021, 1, 1), None)).count(),
    "joined": where((col("age") >= 60) | (col("sex") == "male"), ~col("value").isin([1])).count(),
    "bound": where(col("income").at("upper")).count(),
    "impossible": where(age=(0, 10), value=2).count(),
    "table": by("sex", "value").count(),
    "binned": where(value=[0, 1]).by("age", "city", bins={"age": [0, 40, 80]}).count(),
    "groups": by("city", bins={"city": {"one": [CITIES[0]], "other": [CITIES[1]]}}).count(),
    "mean": where().mean("income"),
    "means": where(age=(20, None)).by("sex").mean("income"),
    "nobody": where(age=(0, 10), value=2, sex="male").mean("income"),
    "median": where().median("income"),
    "quantiles": by("sex").quantile("income", [0.25, 0.5]),
    "share": by("sex").share(value=1),
}


def people(seed: int = 1) -> bytes:
    """Made-up records of 4,000 people."""
    draw = random.Random(seed)
    lines = ["sex,city,age,income,joined,value"]
    for _ in range(4000):
        age = draw.randrange(80)
        sex, city = draw.choice(("female", "male", "female", "male", "")), draw.choice(CITIES).replace('"', '""')
        joined = datetime.date(2020, 1, 1) + datetime.timedelta(draw.randrange(1400))
        lines.append(f'{sex},"{city}",{age},{draw.randrange(1100)},{joined},{draw.randrange(3 if age >= 10 else 2)}')
    return "\n".join(lines).encode()


def vars_of(answer: Answer) -> dict[str, float | None]:
    """A number and its error, by the names of a table's columns."""
    numbers = {"value": answer, "standard_error": answer.standard_error, "low": answer.low, "high": answer.high}
    return {name: None if number is None or number != number else float(number) for name, number in numbers.items()}


class Proxy(ThreadingHTTPServer):
    """Stands before the server. What is posted to ``/test`` is for itself.

    Attributes:
        fates: what becomes of the next requests: ``passed``; ``lost``, answered, but the reply does not arrive;
            ``killed``, the same with the server, of which another one is started; or a status and headers.
        seen: of each request the method, the path and the idempotency key.
    """

    daemon_threads = True

    def __init__(self, launcher: Launcher, server: Server) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.launcher, self.served = launcher, server
        self.fates: list[Any] = []
        self.seen: list[tuple[str, str, str | None]] = []

    def told(self, asked: Mapping[str, Any]) -> Any:
        """What a test wants to know, or to have done."""
        if "fates" in asked:
            self.fates, self.seen = list(asked["fates"]), []
        elif "shown" in asked:
            draw = random.Random(asked["shown"])
            numbers = [(draw.gauss(0, 1) * 10 ** draw.uniform(-4, 9), 10 ** draw.uniform(-6, 6)) for _ in range(500)]
            numbers += [(float(whole), error) for whole in range(-3, 4) for error in (0.0, 0.5, 9.96, 99.5, 1e-20)]
            return [[value, error, shown(value, error)] for value, error in numbers]
        elif "in_r" in asked:
            return [in_r({"type": "elements", "weights": {name: 1.0}}) for name in asked["in_r"]]
        elif "session" in asked:
            with Curator(self.served.url, asked["key"]) as curator:
                named = QUESTIONS[asked["name"]] if "name" in asked else question(asked["question"])
                answer = curator.resume(asked["session"]).ask(named)
            cells: list[Cell] = [row.value for row in answer] if isinstance(answer, Table) else [answer]
            return {
                "rows": answer.to_dicts() if isinstance(answer, Table) else [vars_of(answer)],
                "shown": [str(cell) for cell in cells],
                "doubted": [cell.reliable is False for cell in cells],
            }
        return self.seen


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is written: the tests print what they have to say."""

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/test":
            return self._reply(200, json.dumps({"told": self.server.told(json.loads(body))}).encode())
        self.server.seen.append((self.command, self.path, self.headers.get("Idempotency-Key")))
        fate = self.server.fates.pop(0) if self.server.fates else "passed"
        if isinstance(fate, list):
            return self._reply(fate[0], b"busy", fate[1])
        try:
            status, content = self._passed_on(body)
        except OSError:
            fate = "lost"
        if fate == "killed":
            self.server.served.kill()
            self.server.served = self.server.launcher.start(self.server.served.port)
        if fate == "passed":
            return self._reply(status, content)
        self.close_connection = True
        return None

    do_GET = do_POST = _handle  # noqa: N815

    def _passed_on(self, body: bytes) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.served.port, timeout=60)
        with_body = self.command == "POST"
        headers = {name: value for name, value in self.headers.items() if name != "Content-Length"}
        connection.request(self.command, self.path, body if with_body else None, headers)
        reply = connection.getresponse()
        content = reply.read()
        connection.close()
        return reply.status, content

    def _reply(self, status: int, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def served(folder: Path) -> Iterator[dict[str, str]]:
    """A server with data sets and its proxy; what R finds of them in its environment."""
    with launching(folder / "data", None) as launcher:
        server = launcher.start().wait_until_ready()
        couples = survey(0)
        with Curator(server.url, ADMIN_KEY) as curator:
            curator.register(couples.spec(30.0, 1e-6), couples.file, filename="couples.csv")
            curator.register(PEOPLE, people(), filename="people.csv")
            curator.register(HIDDEN, b"code\n0\n1\n2\n", filename="hidden.csv")
            key = curator.add_principal("analyst", "analyst")
        proxy = Proxy(launcher, server)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            yield {
                "CURATOR_URL": server.url,
                "CURATOR_API_KEY": key,
                "CURATR_PROXY": f"http://127.0.0.1:{proxy.server_port}",
            }
        finally:
            proxy.shutdown()


def run(arguments: Sequence[str], folder: Path, environment: Mapping[str, str], stdin: str | None = None) -> str:
    """What a command prints; it is over when this returns, however it ends.

    Raises:
        SystemExit: when it fails, after what it printed.
    """
    process = subprocess.Popen(  # noqa: S603
        arguments,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C.UTF-8", "_R_CHECK_SYSTEM_CLOCK_": "0", **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=end_with_tests,
    )
    try:
        printed, _ = process.communicate(stdin, timeout=1800)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode != 0:
        raise SystemExit(f"{printed}\n{' '.join(arguments)} failed with code {process.returncode}")
    return printed


def try_document(folder: Path, environment: Mapping[str, str]) -> None:
    """Run the examples of docs/r.md, one after another in one R, and compare what they print.

    Raises:
        SystemExit: naming the first one that prints something else.
    """
    text = DOCUMENT.read_text(encoding="utf-8")
    examples = re.findall(r"^```r\n(.*?)^```\n(?:\n```\n(.*?)^```$)?", text, re.MULTILINE | re.DOTALL)
    if len(examples) != text.count("```r\n") or not examples:
        raise SystemExit(f"{DOCUMENT}: an example that is not read")
    for number, (code, _) in enumerate(examples):
        (folder / f"{number}.R").write_text(code, encoding="utf-8")
    script = (
        f'for (number in 0:{len(examples) - 1}) {{ cat("## example\\n"); '
        'source(paste0(number, ".R"), echo = FALSE, print.eval = TRUE) }'
    )
    printed = run(["Rscript", "-e", script], folder, environment).split("## example\n")[1:]
    for (code, shown_there), now in zip(examples, printed, strict=True):
        if shape(now) != shape(shown_there):
            raise SystemExit(f"{DOCUMENT} does not show what this prints:\n{code}\n{now}")


def main() -> None:
    """Build, check and try."""
    with ended(), TemporaryDirectory(prefix="curatr-") as name:
        folder = Path(name)
        with served(folder) as environment:
            library = folder / "library"
            library.mkdir()
            run(["R", "CMD", "INSTALL", f"--library={library}", str(PACKAGE)], folder, environment)
            # First of all: what an example costs depends on what was asked before.
            try_document(folder, environment | {"R_LIBS": str(library)})
            run(["R", "CMD", "build", str(PACKAGE)], folder, environment)
            (package,) = folder.glob("curatr_*.tar.gz")
            checked = run(["R", "CMD", "check", "--no-manual", package.name], folder, environment)
            tested = (folder / "curatr.Rcheck" / "tests" / "testthat.Rout").read_text(encoding="utf-8")
            counts = re.search(r"\[ FAIL 0 \| WARN 0 \| SKIP 0 \| PASS \d+ \]", tested)
            if "Status: OK" not in checked or counts is None:
                raise SystemExit(f"{tested}\n{checked}")
        sys.stdout.write(f"{counts.group()}\nR CMD check: OK; the examples of docs/r.md print what stands there\n")


if __name__ == "__main__":
    main()
