"""The client against a real service, as somebody uses it who has a question."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from curator_client import MW, Curator, TooExact, col, where
from tests.kit.awaited import awaited
from tests.kit.service import Service, register, unique

pytestmark = pytest.mark.api

AGE, JOB = np.random.default_rng(1).integers(0, 80, 4000), np.random.default_rng(2).integers(0, 3, 4000)
SPEC = {
    "name": "flow",
    "kind": "table",
    "records_public": True,
    "budget": {"epsilon": 3.0, "delta": 1e-6},
    "attributes": [
        {"name": "age", "lower": 0, "upper": 80, "grid": 1, "bins": 8},
        {"name": "job", "values": ["none", "part", "full"]},
    ],
}


@pytest.mark.parametrize("calling", [Curator, awaited], ids=["blocking", "awaited"])
def test_a_survey(
    service: Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, calling: Callable[..., Curator]
) -> None:
    """From the environment to a price, a number, a table, a frame and a verdict. Catches any part that does not fit the
    next one: a price that is not what is charged, at_most that is not heeded, a table whose frame is another one."""
    rows = [f"{age},{['none', 'part', 'full'][job]}" for age, job in zip(AGE, JOB, strict=True)]
    name = unique("flow")
    reply = register(service.admin, SPEC | {"name": name}, "\n".join(["age,job", *rows]).encode(), "flow.csv")
    assert reply.status_code == 201, reply.text
    monkeypatch.setenv("CURATOR_URL", service.url)
    monkeypatch.setenv("CURATOR_API_KEY", service.admin_key)
    with calling() as curator:
        survey = curator.dataset(name)
        assert (survey.attributes["age"].upper, survey.budget.left) == (80, 3)
        assert [each.has_mean for each in survey.attributes.values()] == [True, False]
        made_up = survey.dummy(7, seed=3)
        assert [*made_up.columns] == ["age", "job"]
        assert len(made_up) == 7
        survey.save_dummy(tmp_path / "made-up.csv", 7, seed=3)
        assert (tmp_path / "made-up.csv").read_text().splitlines()[0] == '"age","job"'
        assert "none, part, full" in survey._repr_html_()
        with survey.session(epsilon=1.0, max_queries=30) as session:
            assert session.dataset == name
            asked = where(col("job").isin(["part", "full"])).by("job").mean("age")
            price = session.price(asked)
            assert (price.certain, price.source) == (True, "measurement")
            assert 0 < price.epsilon < 1
            with pytest.raises(TooExact, match="at_most"):
                session.ask(asked, at_most=price.epsilon / 2)
            assert session.state().queries_asked == 0
            table = session.ask(asked, at_most=1.01 * price.epsilon)
            assert table.charged == pytest.approx(price.epsilon)
            assert table.cell("full") == pytest.approx(AGE[JOB == 2].mean(), abs=1)
            frame = table.to_pandas()
            assert [*frame.columns] == ["job", "value", "standard_error", "low", "high"]
            assert frame["value"].tolist()[-1] == table.cell("full")
            assert session.price(asked).epsilon == 0
            young = session.count(col("age") < 40, job="none")
            true = int(((AGE < 40) & (JOB == 0)).sum())
            assert young == pytest.approx(true, abs=6 * (young.standard_error or math.nan))
            assert (
                session.crosstab("job", "age", bins={"age": [0, 40, 80]}).cell("none", "[0, 40)").interval is not None
            )
            assert session.median("age").low <= np.median(AGE) <= session.median("age").high
            assert len(session.histogram("age", bins=[0, 20, 40, 60, 80])) == 4
            assert session.mean("age", where={"job": "none"}) == session.mean("age", where=where(job="none"))
            assert session.ask({"type": "mean", "of": "age"}) == session.mean("age")
            measured = survey.measurements()
            plain = next(each for each in measured if each.raw["strategy"]["type"] == "marginal")
            counts = plain.table()
            assert [axis.name for axis in counts.axes] == plain.raw["strategy"]["attributes"]
            assert counts[0].value.standard_error == pytest.approx(plain.raw["noise"]["scale"], rel=0.01)
            moment = next(each for each in measured if each.raw["strategy"]["type"] == "parts")
            with pytest.raises(ValueError, match="not the counts of one table"):
                moment.table()
            verdict = session.verify()
            assert verdict
            assert verdict.summary["status"] == "open"
            assert session.verify(replay=True).summary["spent"] == session.state().raw["spent"]
        assert session.state().status == "closed"
        with session:  # closed within, as some write it
            pass
        table = curator.what_if(name, epsilon=[0.1, 0.2], max_queries=[10, 100])
        assert [(row["epsilon"], row["max_queries"]) for row in table] == [(0.1, 10), (0.1, 100), (0.2, 10), (0.2, 100)]
        assert table[0]["expected_error"] > table[2]["expected_error"] > 0


def test_mechanisms_are_named(service: Service) -> None:
    """Catches options that are sent as another word, and a word of the contract that is not taken."""
    spec = {**SPEC, "name": "named"}
    assert register(service.admin, spec, b"age,job\n3,none\n50,full\n", "named.csv").status_code == 201
    with Curator(service.url, service.admin_key) as curator:
        with curator.session("named", epsilon=0.2, max_queries=5, max_updates=2, mechanism=MW(step="paper")) as session:
            assert session.opened.raw["mechanism"]["construction"] == "mw"
            assert session.opened.raw["mechanism"]["step"] == "paper"
            frame = session.hypothesis()
            assert {"age", "job"} <= {*frame.columns}
            assert {*frame["job"]} == {0, 1, 2}
            assert len(frame) == session.hypothesis_array().array.size
        with curator.session("named", epsilon=0.2, max_queries=5, mechanism="gaussian") as session:
            assert curator.resume(session.id).opened.raw["mechanism"]["construction"] == "gaussian"
    with pytest.raises(TypeError):
        MW("paper")  # type: ignore[misc]
