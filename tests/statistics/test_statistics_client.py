"""Statistics as the client and readers of Arrow get them; without noise they are the data's own."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from curator_client import Answer, Curator, Refused, Session, Table, by, col, where
from tests.kit.service import ARROW, Service, register, unique

pytestmark = pytest.mark.api

N = 4000
_RNG = np.random.default_rng(11)
SEX = _RNG.integers(0, 2, N)
#: Nobody is above 89.
AGE = _RNG.integers(15, 90, N)
INCOME = np.clip(_RNG.lognormal(10.3 + 0.4 * SEX, 0.7), 0, 200_000).round(-2)
KNOWN = _RNG.random(N) > 0.1
YEAR = _RNG.integers(2018, 2021, N)


@pytest.fixture(scope="module")
def survey(service: Service) -> str:
    """A table with a number that some records lack, and a date."""
    rows = zip(SEX, AGE, INCOME, KNOWN, YEAR, strict=True)
    lines = [f"{'fm'[s]},{a},{i:.0f},{y}-06-15" if k else f"{'fm'[s]},{a},,{y}-06-15" for s, a, i, k, y in rows]
    spec = {
        "name": unique("survey"),
        "kind": "table",
        "records_public": True,
        "budget": {"epsilon": 4.0, "delta": 1e-9},
        "attributes": [
            {"name": "sex", "values": ["f", "m"]},
            {"name": "age", "lower": 15, "upper": 95, "grid": 1, "bins": 16},
            {"name": "income", "lower": 0, "upper": 200_000, "grid": 100, "bins": 20, "missing": True},
            {"name": "joined", "dates": ["2018-01-01", "2020-12-31"], "by": "year"},
        ],
    }
    reply = register(service.admin, spec, "\n".join(["sex,age,income,joined", *lines]).encode(), "survey.csv")
    assert reply.status_code == 201, reply.text
    return str(spec["name"])


@pytest.fixture(scope="module")
def session(service: Service, survey: str) -> Iterator[Session]:
    with Curator(service.url, service.admin_key) as curator:
        yield curator.session(survey, epsilon=1.0, max_queries=40)


def test_one_number(session: Session) -> None:
    """Sums, means and variances over who has a value, under conditions. Would catch a word that the client leaves out:
    the attribute, a condition, a missing value or a date."""
    mean = session.mean("income")
    assert isinstance(mean, Answer)
    assert mean == pytest.approx(INCOME[KNOWN].mean(), rel=1e-6)
    assert mean.standard_error is not None
    assert mean.interval is not None
    assert mean.interval[0] < INCOME[KNOWN].mean() < mean.interval[1]
    old = KNOWN & (AGE >= 60) & (SEX == 1)
    assert session.sum("income", where=where(age=(60, None), sex="m")) == pytest.approx(INCOME[old].sum())
    assert session.variance("age", where=where(income=None)) == pytest.approx(AGE[~KNOWN].var(), rel=1e-6)
    joined = session.mean("age", where=where(joined=(datetime.date(2020, 1, 1), None)))
    assert joined == pytest.approx(AGE[YEAR == 2020].mean(), rel=1e-6)
    assert session.ask(where(income=None).count()) == pytest.approx((~KNOWN).sum())


def test_tables(session: Session) -> None:
    """By groups, those without a value among them. Would catch axes in another order and a group that is lost."""
    table = session.mean("age", by=["joined", "sex"], where=where(col("age") < 80))
    assert isinstance(table, Table)
    assert [axis.name for axis in table.axes] == ["joined", "sex"]
    for (year, sex), value in table:
        own = (str(year) == YEAR.astype(str)) & (np.array(["f", "m"])[SEX] == sex) & (AGE < 80)
        assert value == pytest.approx(AGE[own].mean(), rel=1e-6)
    by_income = session.sum("age", by="income", bins={"income": [0, 20_000, 200_000]})
    assert by_income.axes[0].labels == ("[0, 20000)", "[20000, 200000]")
    own = KNOWN & (INCOME < 20_000)
    assert by_income[0].value == pytest.approx(AGE[own].sum())
    everyone = session.group_by("income")
    assert everyone.axes[0].labels[-1] is None
    assert everyone[-1].value == pytest.approx((~KNOWN).sum())
    assert "no value " in str(everyone)


def test_quantiles(session: Session) -> None:
    """Several of them are an axis of their own, one is a number, and each is in its interval. Would catch levels and
    groups that change places."""
    levels = [0.25, 0.5, 0.75]
    table = session.quantile("income", q=levels, by="sex")
    assert isinstance(table, Table)
    assert [axis.name for axis in table.axes] == ["sex", "q"]
    assert table.axes[1].labels == tuple(levels)
    for number, sex in enumerate("fm"):
        true = np.quantile(INCOME[KNOWN & (number == SEX)], levels, method="inverted_cdf")
        found = [table.cell(sex, level) for level in levels]
        assert all(cell.low <= at <= cell.high for cell, at in zip(found, true, strict=True))
        assert (np.diff(found) > 0).all()
    one = session.quantile("age", q=0.5, where=where(sex="f"))
    assert isinstance(one, Answer)
    assert not one.missing
    with pytest.raises(Refused) as refused:
        session.ask(where().median("age"), within=1.0)
    assert refused.value.status == 422


def test_no_value(session: Session) -> None:
    """Of groups that have no records. Would catch a number made of nothing, and null that the client cannot read."""
    table = session.mean("income", by="sex", where=where(age=(90, None)))
    assert [(row.labels, row.value.missing) for row in table] == [(("f",), True), (("m",), True)]
    assert str(table).count("n/a") == 2
    assert table.to_arrow()["value"].null_count == 2
    assert session.mean("income", where=where(income=None)).missing
    [of_batch] = session.ask_many([where(income=None).mean("income")])
    assert isinstance(of_batch, Answer)
    assert str(of_batch) == "n/a"


def test_as_arrow(service: Service, session: Session) -> None:
    """The service's stream and the client's table are one. Would catch nulls that become zeros, and a number that is
    asked for as a table after it was paid for."""
    question = by("joined").quantile("income", [0.1, 0.9])
    told = session.ask(question)
    path = f"/v1/sessions/{session.id}/queries"
    reply = service.admin.post(path, json=question.json, headers={"Accept": ARROW})
    assert reply.status_code == 200, reply.text
    table = pa.ipc.open_stream(reply.content).read_all()
    assert table.schema.remove_metadata().equals(told.to_arrow().schema)
    assert table.to_pydict() == told.to_arrow().to_pydict()
    assert [str(table.schema.field(name).type) for name in ("joined", "q")] == ["string", "double"]
    asked = session.state().queries_asked
    one = service.admin.post(path, json=where(sex="m").mean("age").json, headers={"Accept": ARROW})
    assert (one.status_code, one.json()["type"]) == (422, "/problems/invalid-request")
    assert session.state().queries_asked == asked


def test_other_sessions_refuse(service: Service, survey: str) -> None:
    """Would catch statistics of mechanisms that answer counts alone, and a refusal without a word of what serves."""
    with (
        Curator(service.url, service.admin_key) as curator,
        curator.session(survey, mechanism={"construction": "gaussian"}, epsilon=0.1, max_queries=5) as plain,
        pytest.raises(Refused) as refused,
    ):
        plain.mean("income")
    assert refused.value.status == 422
    assert "evidence" in str(refused.value.detail)
