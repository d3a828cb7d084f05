"""Means of blocks of a matrix, which comes as Parquet: asked as sums and divided."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curator_client import Curator, cut, rank_one
from tests.kit.noise import Noise
from tests.kit.service import NPY, Service, register, unique

pytestmark = pytest.mark.api

ROWS, COLUMNS = 300, 120
RATINGS = np.random.default_rng(3).integers(0, 11, (ROWS, COLUMNS)) / 2
USERS, FILMS = list(range(20, 220)), list(range(0, 100, 5))
CELLS = len(USERS) * len(FILMS)


@pytest.fixture(scope="module")
def ratings(service: Service) -> str:
    """A matrix registered from Parquet, one column a film, names in no order; no entry is declared absent."""
    sink = io.BytesIO()
    pq.write_table(pa.table({f"film {97 * j % 1000}": RATINGS[:, j] for j in range(COLUMNS)}), sink, row_group_size=77)
    spec = {
        "name": unique("ratings"),
        "kind": "matrix",
        "rows": ROWS,
        "columns": COLUMNS,
        "lower": 0,
        "upper": 5,
        "budget": {"epsilon": 1.0, "delta": 1e-6},
    }
    reply = register(service.admin, spec, sink.getvalue(), "ratings.parquet")
    assert reply.status_code == 201, reply.text
    return str(spec["name"])


@pytest.fixture
def swing(noise: Noise) -> Iterator[None]:
    """Noise of one scale and either sign by turns."""
    turn = iter(range(10**9))
    noise.draw = lambda scale: round(scale) * (-1) ** next(turn)
    yield
    noise.draw = lambda _scale: 0


def client(service: Service) -> Curator:
    return Curator(service.url, service.admin_key)


@pytest.mark.usefixtures("swing")
def test_the_mean_of_a_block(service: Service, ratings: str) -> None:
    """ "Average rating of these films by these users": the sum's answer divided is within its divided bound, which is
    below the ratings' range; weights of one over the number of cells leave the whole bound on it. Would catch a mean
    that forgets to divide its bound, and a recipe that is no better than the trap."""
    exact = float(RATINGS[np.ix_(USERS, FILMS)].mean())
    left, right = np.isin(np.arange(ROWS), USERS) * 1.0, np.isin(np.arange(COLUMNS), FILMS) * 1.0
    with client(service) as curator:
        options = {"epsilon": 0.3, "max_queries": 20, "max_updates": 3}
        with curator.session(ratings, mechanism={"construction": "fk"}, **options) as session:
            mean = session.ask_mean(cut(USERS, FILMS), CELLS)
            assert mean.error_bound is not None
            assert mean.source == "measurement"
            assert abs(mean - exact) <= mean.error_bound
            assert mean.error_bound < 5

            trap = session.ask(rank_one(left / CELLS, right))
            assert trap.error_bound == pytest.approx(mean.error_bound * CELLS, rel=1e-3)
            assert trap.error_bound > 5 > 2.5 > mean.error_bound

            # The same sum however it is spelled: known, and so is its mean.
            again = session.ask_mean(rank_one(left, right), CELLS)
            assert (again.source, again, again.error_bound) == ("cached", mean, mean.error_bound)
            assert session.ask_mean(cut(USERS, FILMS).unverified(), CELLS).error_bound is None
            for over in (0, -1, float("inf"), float("nan")):
                with pytest.raises(ValueError, match="over"):
                    session.ask_mean(cut(USERS, FILMS), over)


def test_a_matrix_from_parquet_is_the_one_from_npy(service: Service, ratings: str) -> None:
    """Without noise blocks are answered with the array's own sums. Would catch columns in the order of their names."""
    words = {
        "dataset": ratings,
        "mechanism": {"construction": "fk"},
        "epsilon": 0.2,
        "max_queries": 9,
        "max_updates": 9,
    }
    opened = service.admin.post("/v1/sessions", json=words).json()
    for users in (list(range(200)), list(range(50, 300))):
        query = {"type": "cut", "left": users, "right": list(range(60))}
        answer = service.admin.post(f"/v1/sessions/{opened['id']}/queries", json=query).json()
        assert answer["source"] == "measurement"
        assert answer["value"] == RATINGS[np.ix_(users, range(60))].sum()
    assert service.admin.get(f"/v1/sessions/{opened['id']}/hypothesis", headers={"Accept": NPY}).status_code == 200


def test_the_recipe_is_where_it_is_looked_for(service: Service) -> None:
    """In the description of the queries that weigh. Would catch a document that leaves the trap unmarked."""
    schemas = service.admin.get("/openapi.json").json()["components"]["schemas"]
    for name in ("ProductQuery", "RankOneQuery"):
        assert "mean" in schemas[name]["description"]
        assert "divide its value and its error bound" in " ".join(schemas[name]["description"].split())
    assert "bound_status" in schemas["PlanView"]["properties"]
    assert "no-worst-case-bound" in schemas["PlanView"]["description"]
    assert "never the order" in " ".join(schemas["ComparisonView"]["description"].split())
