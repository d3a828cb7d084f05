"""What answers that cost nothing write for good: who may have how much of it written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from app.http.free_writing import PIECE, FreeWriting
from app.services.errors import TooManyRequests
from tests.kit.noise import Noise
from tests.kit.service import JSON, Service, ask, refused, register, serving, unique

#: Values of each of two attributes: an answer of 10,000 cells takes 80 kB as it is recorded.
SIDE = 100
TABLE = {"type": "marginal", "attributes": ["x", "y"]}


@dataclass
class Limits:
    rate_limit: float | None = None
    rate_burst: int = 1
    heavy_rate_limit: float | None = 2.0
    heavy_rate_burst: int = 4


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def bucket(clock: Clock, limits: Limits) -> tuple[FreeWriting, list[str]]:
    told: list[str] = []
    made = FreeWriting(limits, told.append)
    made._pieces._clock = clock
    return made, told


@pytest.mark.unit
def test_what_is_owed() -> None:
    """Four pieces are had at once, and two a second. Catches a first piece that counts, one who owes nothing and is
    refused, one who owes and is let in, and a time that is too short."""
    clock = Clock()
    free, told = bucket(clock, Limits())
    for _ in range(100):
        free.count("ann", PIECE)
    for size in (3, 3, 2):
        free.admit("ann")
        free.count("ann", size * PIECE)
    with pytest.raises(TooManyRequests, match="again in 1 s") as error:
        free.admit("ann")
    assert error.value.extra == {"retry_after": 1}
    assert told == ["rate"]
    free.admit("bob")
    clock.now += 0.49
    with pytest.raises(TooManyRequests):
        free.admit("ann")
    clock.now += 0.02
    free.admit("ann")


@pytest.mark.unit
def test_no_limit() -> None:
    """Catches a limit where the operator set none."""
    free, _ = bucket(Clock(), Limits(heavy_rate_limit=None))
    free.count("ann", 10**12)
    free.admit("ann")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Few pieces at once, and hardly any later."""
    folder = tmp_path_factory.mktemp("free")
    with serving(folder, noise=Noise(), heavy_rate_limit=1e-3, heavy_rate_burst=20) as running:
        running.built.context.plans._finished = lambda *_: None  # on a busy machine openings take any time
        yield running


@pytest.fixture(scope="module")
def name(service: Service) -> str:
    name = unique("wide")
    attributes = [{"name": each, "size": SIDE} for each in ("x", "y")]
    spec = {"name": name, "kind": "table", "records_public": True, "attributes": attributes}
    rows = "x,y\n" + "".join(f"{n % SIDE},{n % 7}\n" for n in range(200))
    made = register(service.admin, spec | {"budget": {"epsilon": 50.0, "delta": 1e-6}}, rows.encode())
    assert made.status_code == 201
    return name


def opened(service: Service, analyst: httpx.Client, name: str, **more: Any) -> str:
    words: JSON = {"dataset": name, "mechanism": {"construction": "gaussian"}, "epsilon": 0.5, "max_queries": 50}
    return str(analyst.post("/v1/sessions", json=words | more).raise_for_status().json()["id"])


@pytest.mark.adversarial
@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("route", ["queries", "queries/batch", "sql"])
def test_the_same_question_again_and_again(service: Service, name: str, route: str, keyed: bool) -> None:
    """A short question that costs nothing would fill the disk: its answer, and its reply under a new key, are written
    each time. Catches that on every way to ask, a refusal that leaves a trace, one of a paid answer or of somebody
    else, and a call that is not given its own reply again."""
    analyst, other = service.principal("analyst"), service.principal("analyst")
    id = opened(service, analyst, name)
    path = f"/v1/sessions/{id}/{route}"
    body: JSON = {
        "queries": TABLE,
        "queries/batch": {"queries": [TABLE]},
        "sql": {"statement": f'SELECT x, y, COUNT(*) FROM "{name}" GROUP BY x, y'},
    }[route]

    def send(number: int) -> httpx.Response:
        return analyst.post(path, json=body, headers={"Idempotency-Key": f"k{number}"} if keyed else {})

    first = send(0)
    written = 0
    while (reply := send(written + 1)).status_code == 200:
        written += 1
        assert written < 20
    assert written <= 20 * PIECE // (8 * SIDE * SIDE - PIECE) + 1
    refused(reply, "too-many-requests")
    assert int(reply.headers["retry-after"]) >= 1
    stored = service.stored()
    refused(analyst.post(path, json=body, headers={"Idempotency-Key": "another"}), "too-many-requests")
    assert service.stored() == stored
    assert analyst.get(f"/v1/sessions/{id}").json()["sequence"] == written + 1
    assert analyst.post(f"/v1/sessions/{id}/price", json=TABLE).status_code == 200
    if keyed:
        assert send(0).json() == first.json()
    assert ask(other, opened(service, other, name), TABLE)["sequence"] == 1
    assert analyst.post(f"/v1/sessions/{id}/close").status_code == 200


@pytest.mark.api
def test_what_is_paid_counts_nothing(service: Service, name: str) -> None:
    """Six tables that are measured, which the budget bounds. Catches a limit on what was paid for."""
    analyst = service.principal("analyst")
    ids = [opened(service, analyst, name) for _ in range(6)]
    assert all(ask(analyst, id, TABLE)["charged_epsilon"] for id in ids)


@pytest.mark.api
def test_made_up_records_are_not_paid_for(service: Service, name: str) -> None:
    """The same on made-up records, whose charges bound nothing. Catches a way to fill the disk by rehearsing."""
    analyst = service.principal("analyst")
    ids = [opened(service, analyst, name, dummy=True) for _ in range(6)]
    replies = [analyst.post(f"/v1/sessions/{id}/queries", json=TABLE) for id in ids]
    assert replies[0].json()["charged_epsilon"]
    refused(replies[-1], "too-many-requests")


@pytest.mark.api
def test_numbers_count_nothing(service: Service, name: str) -> None:
    """A program that asks one number again and again, and a batch of them. Catches a limit on what ordinary use is."""
    analyst = service.principal("analyst")
    id = opened(service, analyst, name)
    one = {"type": "predicate", "where": {"x": 1}}
    for _ in range(200):
        ask(analyst, id, one)
    batch = {"queries": [one] * 10}
    for _ in range(20):
        assert analyst.post(f"/v1/sessions/{id}/queries/batch", json=batch).status_code == 200
