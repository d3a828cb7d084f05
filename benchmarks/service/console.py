"""How soon pages of the console are there, and what people who use it cost those who use the API.

Run `python -m benchmarks.service.console [--seconds N]` (about four minutes). A server on the embedded database holds
500 data sets and 100,000 sessions. Times are those of one browser, one request after another. Then four clients of the
API ask for counts one by one, and a fifth of the time in turn without anybody on the console and with ten people there,
who each change a question every two seconds, whose price is then looked up, and open a page every ten.
"""

from __future__ import annotations

import argparse
import json
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np

from app.demo.survey import survey
from benchmarks.harness import ADMIN_KEY, Server, curator, load, report, request_bytes, sending
from benchmarks.service.answering import open_session, predicates, register, table_spec

DATASETS, SESSIONS, OTHERS = 500, 100_000, 50
#: Times each page is loaded, and each price looked up.
TIMES = 60
PEOPLE, TYPING, READING = 10, 2.0, 10.0
CLIENTS, ROUNDS, AXES = 4, 5, 4
_HIDDEN = re.compile(r'type="hidden" name="(\w+)" value="([^"]*)"')


class Person:
    """Somebody with a browser who has logged in, and a session whose page is open."""

    def __init__(self, url: str, key: str, dataset: str) -> None:
        self.http = httpx.Client(base_url=url, timeout=60, headers={"Sec-Fetch-Site": "same-origin"})
        self.http.post("/console/login", data={"key": key, "then": "/console"})
        self.base = f"/console/datasets/{dataset}/ask"
        opened = self.http.post(f"{self.base}/open", data={**self._fields("/console/me"), "epsilon": "0.1"})
        self.page = opened.headers["location"]
        self.hidden = self._fields(self.page)
        self.number = 0

    def _fields(self, path: str) -> dict[str, str]:
        found = dict(_HIDDEN.findall(self.http.get(path).text))
        return {name: found[name] for name in ("token", "session", "seen", "nonce") if name in found}

    def price(self) -> None:
        """Look up the price of another question, as somebody who types."""
        self.number += 1
        asked = {"kind": "mean", "of": "faminc", "by-0": "educ", "edges-0": f"0 {self.number % 17 + 1} 18"}
        told = self.http.post(f"{self.base}/price", data={**self.hidden, **asked})
        assert told.status_code == 200
        assert "price" in told.text

    def read(self) -> None:
        """Open a page."""
        assert self.http.get(self.page).status_code == 200


def timed(what: Callable[[], Any], times: int = TIMES) -> np.ndarray[Any, Any]:
    """So many times in milliseconds."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        what()
        found.append(1000 * (time.perf_counter() - began))
    return np.array(found)


def filled(url: str, folder: Path) -> str:
    """Make the data sets and the sessions; an analyst's key."""
    admin = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {ADMIN_KEY}"}, timeout=120)
    couples = survey(0)
    spec = couples.spec(1000.0, 1e-9)
    reply = admin.post("/v1/datasets", data={"spec": json.dumps(spec)}, files={"data": ("couples.csv", couples.file)})
    reply.raise_for_status()

    def one(number: int) -> None:
        small = {
            "name": f"survey-{number:03}",
            "kind": "table",
            "attributes": [{"name": "sex", "size": 2}],
            "budget": {"epsilon": 1, "delta": 1e-9},
        }
        files = {"data": ("x.csv", "sex\n0\n1\n")}
        admin.post("/v1/datasets", data={"spec": json.dumps(small)}, files=files).raise_for_status()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, range(DATASETS - 1)))
    keys = [
        admin.post("/v1/principals", json={"name": f"p{number}", "role": "analyst"}).json()["api_key"]
        for number in range(OTHERS)
    ]
    id = admin.post("/v1/sessions", json={"dataset": spec["name"], "epsilon": 0, "max_queries": 10}).json()["id"]
    with closing(sqlite3.connect(folder / "curator.sqlite3", timeout=60)) as database:
        names = [row[1] for row in database.execute("PRAGMA table_info(sessions)")]
        row = dict(zip(names, database.execute("SELECT * FROM sessions WHERE id = ?", (id,)).fetchone(), strict=True))
        marks = ", ".join("?" for _ in names)
        copies = (
            tuple(
                {
                    **row,
                    "id": secrets.token_hex(16),
                    "owner": f"p{number % OTHERS}",
                    "dataset": spec["name"] if number % DATASETS == 0 else f"survey-{number % DATASETS - 1:03}",
                    "status": "closed",
                    "opened_at": f"2026-01-{number % 28 + 1:02}T{number % 24:02}:{number % 60:02}:00Z",
                    "closed_at": "2026-02-01T00:00:00Z",
                    "settled": True,  # as openings leave them: of a session that was free the sum is nothing
                }.values()
            )
            for number in range(SESSIONS)
        )
        database.executemany(f"INSERT INTO sessions VALUES ({marks})", copies)
        database.commit()
    return str(keys[0])


@contextmanager
def people(persons: list[Person]) -> Iterator[None]:
    """People at work on the console while the context lasts."""
    done = threading.Event()

    def work(person: Person, number: int) -> None:
        done.wait(TYPING * number / len(persons))
        turns = round(READING / TYPING)
        for turn in range(10**6):
            if done.is_set():
                return
            (person.read if turn % turns == number % turns else person.price)()
            done.wait(TYPING)

    threads = [threading.Thread(target=work, args=(person, number)) for number, person in enumerate(persons)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def answers(running: Server, seconds: float, session: str) -> float:
    """Answers a second of four clients that ask new questions one by one."""
    make, path = predicates(AXES), f"/v1/sessions/{session}/queries"

    def asked(client: int) -> Callable[[int], bytes]:
        return lambda number: request_bytes(path, json.dumps(make(CLIENTS * number + client)).encode(), ADMIN_KEY)

    found = load(running.port, [sending(asked(client)) for client in range(CLIENTS)], seconds)
    assert found.errors == 0
    return found.rate


def main() -> None:
    """Measure pages and prices, then answers beside people on the console."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each stretch of answers")
    seconds = parser.parse_args().seconds
    with (
        TemporaryDirectory(prefix="curator-console-") as scratch,
        curator(CURATOR_DATA_DIR=scratch, CURATOR_HEAVY_RATE_BURST="1000000") as running,
    ):
        key = filled(running.url, Path(scratch))
        person = Person(running.url, key, "couples")
        pages = {
            "the log-in": "/console/me",
            "data sets, the first hundred": "/console/datasets",
            "the page on which an analyst asks": person.page,
            "an analyst's 2,000 sessions, the newest": "/console/sessions",
            "what was measured": "/console/datasets/couples/measured",
            "what if": "/console/datasets/couples/what-if?epsilon=1&questions=30",
        }
        rows: list[list[Any]] = []
        held = Person(running.url, ADMIN_KEY, "couples")
        of_admin = {
            "an admin's first page": "/console",
            "what is to look at there, which comes afterwards": "/console/to-look-at",
            "a data set as its admin sees it": "/console/datasets/survey-007",
            "a release to be made": "/console/releases/new?dataset=couples",
            "people": "/console/people",
        }
        for who, seen in ((person, pages), (held, of_admin)):
            for told, path in seen.items():
                times = timed(lambda: who.http.get(path).raise_for_status())  # noqa: B023
                rows.append([told, float(np.median(times)), float(np.percentile(times, 95))])
        times = timed(person.price)
        rows.append(
            [
                "the price of a question while somebody types",
                float(np.median(times)),
                float(np.percentile(times, 95)),
            ]
        )
        report(
            "console_pages",
            "Pages of the console, in milliseconds",
            ["page", "median", "95th percentile"],
            rows,
            datasets=DATASETS,
            sessions=SESSIONS,
        )
        persons = [Person(running.url, key, "couples") for _ in range(PEOPLE)]
        admin = httpx.Client(base_url=running.url, headers={"Authorization": f"Bearer {ADMIN_KEY}"}, timeout=60)
        register(admin, table_spec("load", AXES), np.full((10,) * AXES, 10))
        session = open_session(admin, "load")
        answers(running, seconds / 2, session)
        alone, beside = [], []
        for _ in range(ROUNDS):
            alone.append(answers(running, seconds, session))
            with people(persons):
                beside.append(answers(running, seconds, session))
        ratios = np.array(beside) / np.array(alone)
        report(
            "console_beside",
            "Answers a second of four clients beside ten people on the console, over those without",
            ["", "alone", "beside", "ratio", "least", "greatest"],
            [
                [
                    "answers a second",
                    float(np.median(alone)),
                    float(np.median(beside)),
                    float(np.median(ratios)),
                    float(ratios.min()),
                    float(ratios.max()),
                ]
            ],
            rounds=ROUNDS,
            seconds=seconds,
            people=PEOPLE,
        )


if __name__ == "__main__":
    main()
