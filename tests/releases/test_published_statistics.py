"""Statistics in publications: shares of the made records, and all others as a session tells them that buys nothing."""

from __future__ import annotations

import copy
import hashlib
import io
import itertools
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.csv
import pytest
from typer.testing import CliRunner

from app.audit.publications import Checked, check
from app.audit.replay import replay
from app.cli.application import cli
from app.releases import table_results
from app.releases.finishing import finish
from app.releases.table_results import Told, labels_of
from app.services.publications import differing
from tests.kit.released import measured
from tests.kit.service import JSON, Service, open_session, refused, register, unique
from tests.releases.test_publications import XLSX, publish

_SIZES = (3, 4, 5)
_DECLARED: dict[str, Any] = {
    "name": "d",
    "kind": "table",
    "budget": {"epsilon": 10.0, "delta": 1e-6},
    "attributes": [{"name": f"a{number}", "size": size} for number, size in enumerate(_SIZES)],
}
#: Shares, and the groups that each is asked of: attributes and, of a2, which of its cells a group has.
_SHARES: list[JSON] = [
    {"type": "share", "of": {"a0": 1}},
    {"type": "share", "of": {"a0": [0, 2]}, "group_by": ["a2", "a1"]},
    {"type": "share", "of": {"a1": 3, "a0": 1}, "group_by": ["a2"], "bins": {"a2": {"low": [0, 1], "high": [3, 4]}}},
    {"type": "share", "of": {"a1": 3}, "group_by": ["a0"], "where": {"a2": {"ge": 2}}},
]


@pytest.mark.unit
@pytest.mark.parametrize("most", [1 << 14, 1])
def test_shares_are_quotients_of_counts(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Held against the published counts of all cells, from a fit of all of them and attribute by attribute: would catch
    shares of other records than the tables', groups or conditions mixed up, and labels in another order."""
    monkeypatch.setattr(table_results, "MOST_FITTED", most)
    everything = {"type": "marginal", "attributes": ["a0", "a1", "a2"]}
    asked = {"method": "publication", "workload": {"queries": [_SHARES[0], everything, *_SHARES[1:]]}}
    made = measured(_DECLARED, asked)
    outcome = finish(made.task.job()[1], lambda part: None)
    first, table, *others = outcome.answers
    counts = table.estimates.values
    one, two, three, four = (
        np.stack([part, whole])
        for part, whole in (
            (counts[1].sum(), counts.sum()),
            (counts[[0, 2]].sum(axis=0).T, counts.sum(axis=0).T),
            (
                np.array([counts[1, 3, :2].sum(), counts[1, 3, 3:].sum()]),
                np.array([counts[:, :, :2].sum(), counts[:, :, 3:].sum()]),
            ),
            (counts[:, 3, 2:].sum(axis=1), counts[:, :, 2:].sum(axis=(1, 2))),
        )
    )
    for told, (part, whole) in zip((first, *others), (one, two, three, four), strict=True):
        assert isinstance(told, Told)
        assert told.estimates.values.tolist() == (part / whole).reshape(-1).tolist()
        assert (told.estimates.lows <= told.estimates.values).all()
        assert (told.estimates.values <= told.estimates.highs).all()
        assert told.steps is not None
        assert told.steps.tolist() == (1 / whole).reshape(-1).tolist()
    space = made.opening.dataset.space
    assert isinstance(others[1], Told)
    named = labels_of(space, others[1])  # type: ignore[arg-type]
    assert {name: labels.to_pylist() for name, labels in named.items()} == {"a2": ["low", "high"]}
    by_two = {name: labels.to_pylist() for name, labels in labels_of(space, others[0]).items()}  # type: ignore[arg-type]
    assert list(by_two) == ["a1", "a2"]
    assert list(zip(by_two["a2"], by_two["a1"], strict=True)) == [
        (str(a), str(b)) for a, b in itertools.product(range(5), range(4))
    ]


@pytest.mark.unit
def test_a_published_share_beside_the_truth() -> None:
    """Over several draws of noise: would catch intervals about another share, or of another confidence."""
    held, off = [], []
    for _ in range(20):
        asked = {"method": "publication", "workload": {"queries": _SHARES}}
        made = measured(_DECLARED, asked)
        exact = np.random.default_rng(1).integers(0, 50, _SIZES)
        truth = (exact[[0, 2]].sum(axis=0) / exact.sum(axis=0)).T.reshape(-1)
        found = finish(made.task.job()[1], lambda part: None).answers[1].estimates
        held.append((found.lows <= truth) & (truth <= found.highs))
        off.append((found.values - truth) / found.standard_errors)
    # 400 intervals of 95%, of which a part are of the same noise.
    assert float(np.mean(held)) >= 0.9
    assert float(np.sqrt(np.mean(np.square(off)))) < 1.6


ROWS = 1200
ATTRIBUTES: list[JSON] = [
    {"name": "sex", "values": ["f", "m"]},
    {"name": "q", "values": ["a", "b", "c", "nobody"]},
    {"name": "income", "lower": 0, "upper": 1000, "grid": 1, "bins": 8, "missing": True, "outside": "clamp"},
    {"name": "w", "lower": 0, "upper": 4, "grid": 0.5, "bins": 4, "role": "weight"},
]
BY_SEX: JSON = {"type": "marginal", "attributes": ["sex", "q"]}
SHARE: JSON = {"type": "share", "of": {"q": ["a", "b"]}, "group_by": ["sex"]}
STATISTICS: list[JSON] = [
    {"type": "mean", "of": "income", "group_by": ["sex"]},
    {"type": "sum", "of": "income", "group_by": ["q"], "bins": {"q": {"a or b": ["a", "b"], "rest": ["c", "nobody"]}}},
    {"type": "variance", "of": "income"},
    {"type": "quantile", "of": "income", "q": [0.25, 0.5], "group_by": ["q", "sex"]},
    {"type": "quantile", "of": "income", "q": 0.5, "where": {"sex": "f"}},
    {"type": "ratio", "of": "income", "per": "w", "group_by": ["sex"]},
    {"type": "predicate", "where": {"sex": "m"}, "weighted": True},
    {"type": "mean", "of": "income", "group_by": ["sex"], "weighted": True},
    {"type": "share", "of": {"sex": "f"}, "group_by": ["q"], "weighted": True},
]
#: Of 804,000 numbers.
OF_MANY: JSON = {
    "type": "quantile",
    "of": "w",
    "q": [round(0.01 * k, 2) for k in range(1, 100)] + [0.995],
    "group_by": ["sex", "q", "income"],
    "bins": {"income": list(range(1, 1001))},
}
ASKED = [BY_SEX, *STATISTICS[:4], SHARE, *STATISTICS[4:]]


def survey(service: Service) -> str:
    """A survey with numbers, weights and values that are missing."""
    rng = np.random.default_rng(8)
    lines = ["sex,q,income,w"]
    for _ in range(ROWS):
        income = "" if rng.random() < 0.1 else str(int(min(1000, rng.lognormal(5, 1))))
        lines.append(f"{'fm'[rng.integers(2)]},{'abc'[rng.integers(3)]},{income},{rng.choice([0.5, 1, 2])}")
    name = unique("survey")
    spec = {"name": name, "kind": "table", "attributes": ATTRIBUTES, "budget": {"epsilon": 40.0, "delta": 1e-9}}
    assert register(service.admin, spec, "\n".join(lines).encode(), "rows.csv").status_code == 201
    return name


def asked(client: httpx.Client, dataset: str, questions: list[JSON], epsilon: float) -> list[JSON]:
    """The answers of a session, and its id with each."""
    session = open_session(
        client,
        dataset,
        mechanism={"construction": "evidence"},
        epsilon=epsilon,
        max_queries=len(questions),
        max_updates=None,
    )
    found = []
    for question in questions:
        reply = client.post(f"/v1/sessions/{session['id']}/queries", json=question)
        assert reply.status_code == 200, (question, reply.text)
        found.append({**reply.json(), "session": session["id"]})
    return found


def flat(answer: JSON) -> tuple[list[float | None], list[list[float] | None]]:
    """Values and intervals, of one number as of many."""
    if "values" in answer:
        return answer["values"], answer["intervals"]
    return [answer["value"]], [answer["interval"]]


@pytest.mark.api
class TestOverHttp:
    def published(self, client: httpx.Client, id: str) -> tuple[JSON, dict[int, bytes], bytes]:
        """The manifest of a publication, all of its tables as CSV, and its workbook."""
        manifest: JSON = client.get(f"/v1/releases/{id}/data", params={"part": "manifest"}).json()
        tables = {
            told["table"]: client.get(
                f"/v1/releases/{id}/data", params={"part": f"table-{told['table']}"}, headers={"Accept": "text/csv"}
            ).content
            for told in manifest["tables"]
        }
        return manifest, tables, client.get(f"/v1/releases/{id}/data", headers={"Accept": XLSX}).content

    def test_all_that_a_session_was_asked(self, service: Service, tmp_path: Path) -> None:
        """Every kind, by the answers of a session that buys nothing, and by an auditor. Would catch a statistic that is
        left out, one of other groups or in another order, a charge, a value outside its interval, a share that does not
        agree with the counts beside it, and what an auditor cannot make anew."""
        analyst, dataset = service.principal("analyst"), survey(service)
        id = asked(analyst, dataset, ASKED, 20.0)[0]["session"]
        before = analyst.get(f"/v1/datasets/{dataset}").json()["budget"]
        state = publish(analyst, dataset, tables={"session": id})
        free = asked(analyst, dataset, ASKED, 0)
        assert analyst.get(f"/v1/datasets/{dataset}").json()["budget"] == before
        assert (state["result"]["tables"], state["result"]["untold"]) == (len(ASKED), [])
        manifest, tables, book = self.published(analyst, state["id"])
        for number, (question, answer) in enumerate(zip(ASKED, free, strict=True), start=1):
            table = pyarrow.csv.read_csv(io.BytesIO(tables[number]))
            values, intervals = flat(answer)
            if question is BY_SEX:
                assert table.schema.field("value").type == pa.int64()
                assert "question" not in manifest["tables"][number - 1]
                continue
            assert manifest["tables"][number - 1]["question"] == question
            if question is not SHARE:
                assert table.column("value").to_pylist() == values
                told = zip(table.column("low").to_pylist(), table.column("high").to_pylist(), strict=True)
                assert [None if low is None else [low, high] for low, high in told] == intervals
        counts = pyarrow.csv.read_csv(io.BytesIO(tables[1])).to_pylist()
        shares = pyarrow.csv.read_csv(io.BytesIO(tables[ASKED.index(SHARE) + 1])).to_pylist()
        for row in shares:
            own = {each["q"]: each["value"] for each in counts if each["sex"] == row["sex"]}
            assert row["value"] == (own["a"] + own["b"]) / sum(own.values())
            assert row["low"] <= row["value"] <= row["high"]
        quantiles = pyarrow.csv.read_csv(io.BytesIO(tables[5]))
        assert quantiles.column_names == ["sex", "q", "q_", *table_results.NUMBERS]
        assert quantiles.slice(0, 4).select(["q", "sex", "q_"]).to_pylist() == [
            {"q": "a", "sex": sex, "q_": level} for sex in "fm" for level in (0.25, 0.5)
        ]
        merged = pyarrow.csv.read_csv(io.BytesIO(tables[3]))
        assert merged.column("q").to_pylist() == ["a or b", "rest"]

        reader = service.principal("auditor")
        lines = reader.get(f"/v1/sessions/{state['id']}/transcript").content.splitlines(keepends=True)
        assert replay(iter(lines)).ok
        assert check(lines, manifest, tables) == Checked((), True)
        assert differing(book, tables, manifest) == []
        sheets = openpyxl.load_workbook(io.BytesIO(book))
        notes = [cell for (cell,) in sheets["notes"].iter_rows(values_only=True)]
        assert notes[2] == "table 2: Mean of income by sex"
        assert not any("every value is a whole number" in note for note in notes)
        assert [cell.value for cell in sheets["table 2"]["B"][1:]] == flat(free[1])[0]

        # As files, by the command.
        (tmp_path / "transcript.ndjson").write_bytes(b"".join(lines))
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "manifest.json").write_text(json.dumps(manifest))
        for number, content in tables.items():
            (tmp_path / "out" / f"table-{number}.csv").write_bytes(content)
        (tmp_path / "out" / "tables.xlsx").write_bytes(book)
        words = ["audit", "publication", str(tmp_path / "transcript.ndjson"), str(tmp_path / "out"), "--json"]
        done = CliRunner().invoke(cli, words)
        assert json.loads(done.stdout) == {"ok": True, "same": True, "problems": []}

        # All in one file, where numbers are of one type.
        reply = analyst.get(f"/v1/releases/{state['id']}/data", headers={"Accept": "text/csv"})
        every = pyarrow.csv.read_csv(io.BytesIO(reply.content))
        assert every.num_rows == sum(told["rows"] for told in manifest["tables"])
        self.forged(lines, manifest, tables)

    def forged(self, lines: list[bytes], manifest: JSON, tables: dict[int, bytes]) -> None:
        """Numbers that were altered, with their digests: each is found, but for a share that a rounding moves."""

        def judged(number: int, column: str, change: float, row: int = 0) -> Checked:
            found = pyarrow.csv.read_csv(io.BytesIO(tables[number])).to_pandas()
            found.loc[row, column] += change
            for end, further in (("low", min), ("high", max)):
                found.loc[row, end] = further(found.loc[row, end], found.loc[row, "value"])
            lines_of = found.to_csv(index=False).encode()
            told = copy.deepcopy(manifest)
            told["tables"][number - 1]["sha256"] = hashlib.sha256(lines_of).hexdigest()
            return check(lines, told, {**tables, number: lines_of})

        assert judged(2, "value", 0.0) == Checked((), True)
        for column, change in (("value", 0.01), ("low", -0.5), ("high", 0.5), ("standard_error", -0.1)):
            assert not judged(2, column, change).ok, column
        # Another machine may round otherwise: a mean by nearly nothing, a share by records that lie elsewhere.
        assert judged(2, "value", 1e-9) == Checked((), False)
        share = ASKED.index(SHARE) + 1
        assert judged(share, "value", 2 / ROWS) == Checked((), False)
        assert not judged(share, "value", 0.05).ok
        assert not judged(share, "low", -0.2).ok
        for forge in (
            lambda told: told["tables"][1].update(question={**told["tables"][1]["question"], "of": "w"}),
            lambda told: told["tables"][1].update(sum=5),
            lambda told: told["tables"][1].update(counts=[{"sex": "f"}]),
            lambda told: told["tables"][0].update(question={"type": "mean", "of": "income"}),
            lambda told: told["tables"][1].update(title="of women"),
        ):
            told = copy.deepcopy(manifest)
            forge(told)
            assert not check(lines, told, tables).ok

    def test_what_nothing_tells(self, service: Service) -> None:
        """Of numbers that nobody has asked for: would catch a number that only a model tells in print, and a reader who
        is not told why there is none."""
        analyst, dataset = service.principal("analyst"), survey(service)
        asked(analyst, dataset, [BY_SEX], 1.0)
        mean = {"type": "mean", "of": "income", "group_by": ["sex"]}
        state = publish(analyst, dataset, tables=[mean, BY_SEX, {"type": "predicate", "where": {}}])
        assert state["result"]["untold"] == [1]
        _, tables, _ = self.published(analyst, state["id"])
        rows = pyarrow.csv.read_csv(io.BytesIO(tables[1])).to_pylist()
        assert [(row["sex"], row["value"], row["low"]) for row in rows] == [("f", None, None), ("m", None, None)]
        # By themselves, too, and beside the number of all records.
        for beside in ([], [{"type": "predicate", "where": {}}]):
            assert publish(analyst, dataset, tables=[*beside, mean])["result"]["untold"] == [1 + len(beside)]

    def test_measured_for_them(self, service: Service) -> None:
        """With an epsilon what shares follow from is measured first, and replayed: would catch one that is told by a
        model, a plan that an auditor does not come to, and other statistics that are bought unseen."""
        analyst, dataset = service.principal("analyst"), survey(service)
        counted = {"type": "predicate", "where": {"any": [{"sex": "f"}, {"q": "a"}]}}
        for beside in ([], [BY_SEX], [counted]):
            state = publish(analyst, dataset, tables=[SHARE, *beside, STATISTICS[0]], epsilon=0.5)
            assert 0 < state["cost"]["spent_epsilon"] <= 0.5
            assert state["result"]["untold"] == [2 + len(beside)]
            manifest, tables, book = self.published(analyst, state["id"])
            assert None not in pyarrow.csv.read_csv(io.BytesIO(tables[1])).column("low").to_pylist()
            reader = service.principal("auditor")
            lines = reader.get(f"/v1/sessions/{state['id']}/transcript").content.splitlines(keepends=True)
            assert replay(iter(lines)).ok
            assert check(lines, manifest, tables) == Checked((), True)
            assert differing(book, tables, manifest) == []

    def test_what_is_missing_has_the_numbers_of_tables(self, service: Service) -> None:
        """Behind a statistic: would catch a table that is called by its place among those of counts."""
        analyst, dataset = service.principal("analyst"), survey(service)
        asked(analyst, dataset, [BY_SEX], 0.1)
        state = publish(analyst, dataset, tables=[STATISTICS[0], SHARE, BY_SEX], within=1)
        assert [each["table"] for each in state["result"]["missing"]] == [3]

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"tables": [STATISTICS[0]], "epsilon": 1}, "statistics"),
            ({"tables": [{"type": "mean", "of": "sex"}]}, "question 1 of"),
            ({"tables": [BY_SEX, {**STATISTICS[0], "where": {"q": "x"}}]}, "question 2 of"),
            ({"tables": [OF_MANY] * 6}, "at most 4,194,304 numbers"),
            ({"method": "gaussian", "epsilon": 1, "workload": {"queries": [STATISTICS[0]]}}, "published"),
        ],
    )
    def test_refused(self, service: Service, changes: JSON, words: str) -> None:
        """Would catch a share of the budget that is taken and measures nothing, and words of no help."""
        dataset = survey(service)
        body = {"dataset": dataset, "method": "publication", "epsilon": 0, **changes}
        told = refused(service.admin.post("/v1/releases", json=body), "plan-infeasible")
        assert words in told["detail"]
