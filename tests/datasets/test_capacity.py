"""Would show a file of 2^64 counts taken for an empty one, whose answers wrap, so that one record moves one by 2^64.

The capacity of a data set bounds everything its exact arithmetic and its noise rest on. Counts are held against it by
their sum, and a sum of 64-bit integers may wrap.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pytest

from tests.kit.noise import Noise
from tests.kit.service import JSON, Service, ask, open_session, people, refused, register, serving, unique

pytestmark = pytest.mark.adversarial

#: The largest capacity there is.
CAPACITY = 2**40
CELLS = 2**24
WIDE: JSON = {
    "kind": "table",
    "attributes": [{"name": "one", "size": 1}, {"name": "code", "size": CELLS}],
    "capacity": CAPACITY,
    "records_public": True,
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with serving(tmp_path_factory.mktemp("capacity"), noise=Noise()) as running:
        people(running)  # so that all folders are there
        yield running


def packed(counts: object) -> bytes:
    sink = io.BytesIO()
    np.savez_compressed(sink, counts=counts)
    return sink.getvalue()


@pytest.mark.parametrize("others", [0, 1])
def test_a_sum_that_wraps_to_almost_nothing(service: Service, others: int) -> None:
    """2^24 counts of 2^40 add up to 0 in 64 bits, and with a few more to whatever the attacker likes."""
    counts = np.full((1, CELLS), CAPACITY, np.int64)
    counts[0, :others] = 7
    before = service.stored()
    reply = register(service.admin, {**WIDE, "name": unique("wide")}, packed(counts), "counts.npz")
    assert "capacity" in refused(reply, "invalid-dataset")["detail"]
    assert service.stored() == before


def test_a_full_table_answers_in_whole_numbers(service: Service) -> None:
    """The edge itself: as many counts as the capacity, in two cells, are taken and answered exactly."""
    name = unique("full")
    spec = {**WIDE, "name": name, "attributes": [{"name": "code", "size": 4}]}
    counts = np.array([CAPACITY - 3, 0, 3, 0])
    over = counts + np.array([0, 1, 0, 0])
    refused(register(service.admin, spec, packed(over), "counts.npz"), "invalid-dataset")
    reply = register(service.admin, spec, packed(counts), "counts.npz")
    assert reply.status_code == 201, reply.text
    assert reply.json()["records"] == CAPACITY
    session = open_session(service.admin, name, max_queries=10)
    # Without noise a hit is the exact value; its grid holds whole counts at this capacity.
    answer = ask(service.admin, session["id"], {"type": "predicate", "where": {"code": {"equals": 0}}})
    assert answer["source"] == "measurement"
    assert answer["value"] == CAPACITY - 3
