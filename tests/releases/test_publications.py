"""Publications: tables that agree with one another, from what was measured, as files over HTTP."""

from __future__ import annotations

import copy
import hashlib
import io
import itertools
import json
import math
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from app.audit.publications import Checked, check
from app.audit.replay import replay
from app.audit.rules import Rules
from app.cli.application import cli
from app.estimation.tables.residuals import Residuals
from app.measurements.noise import Noise
from app.measurements.pieces import Counts
from app.releases import publication, table_results
from app.releases.publication import Target, missing, moved, published
from app.releases.workloads import Marginals
from app.services.dummy_records import encoded
from app.services.exports import MOST_EACH
from app.services.publications import differing, digest, workbook
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Question
from app.spaces.tensor import IntArray
from curator_client import Curator, NotVerified
from curator_client.log_folder import LogFolder
from tests.audit.test_log_client import soon
from tests.kit.fetched import fetch
from tests.kit.service import JSON, PEOPLE, Service, open_session, people, refused, register, unique

XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"


def distance(codes: IntArray, targets: list[Target]) -> float:
    """The sum that moves lessen, by its definition."""
    found = 0.0
    for target in targets:
        counts = np.zeros(len(target.counts))
        for row in codes:
            cell = 0
            for axis, partition in zip(target.axes, target.cells, strict=True):
                cell = cell * partition.cells + int(partition.labels[row[axis]])
            counts[target.sums[cell]] += 1
        found += target.weight * float(np.square(counts - target.counts).sum())
    return found


@st.composite
def problems(draw: st.DrawFn) -> tuple[IntArray, list[int], list[Target]]:
    """Records of two to four attributes, and tables of some of these in some cells."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes = draw(st.lists(st.integers(2, 5), min_size=2, max_size=4))
    codes = np.stack([rng.integers(0, size, 60) for size in sizes], 1)
    targets = []
    for _ in range(draw(st.integers(1, 4))):
        axes = tuple(sorted(rng.choice(len(sizes), draw(st.integers(1, 2)), replace=False).tolist()))
        cells = tuple(Partition.of(rng.integers(0, 2, sizes[axis])) for axis in axes)
        number = int(np.prod([partition.cells for partition in cells]))
        sums = np.arange(number) if draw(st.booleans()) else np.minimum(np.arange(number), 1)
        counts = rng.multinomial(60, np.full(sums.max() + 1, 1 / (sums.max() + 1))).astype(np.float64)
        targets.append(Target(axes, cells, sums, counts, float(rng.uniform(0.1, 3))))
    return codes, sizes, targets


@pytest.mark.unit
@given(problems())
def test_moves_lessen_the_distance(problem: tuple[IntArray, list[int], list[Target]]) -> None:
    """Against the definition, record by record: would catch moves that lead away, counts that are not those of the
    records, values that no attribute has, and records that are lost."""
    codes, sizes, targets = problem
    before = codes.copy()
    found = moved(codes, sizes, targets, np.random.default_rng(3), lambda part: None)
    assert (codes == before).all()
    assert found.shape == codes.shape
    assert all(int(column.min()) >= 0 and int(column.max()) < size for column, size in zip(found.T, sizes, strict=True))
    assert distance(found, targets) <= distance(codes, targets) + 1e-9


@pytest.mark.unit
@given(problems())
def test_a_gain_is_what_the_distance_lessens_by(problem: tuple[IntArray, list[int], list[Target]]) -> None:
    """Each value that a record could have, tried: would catch a wrong sign, a forgotten one, or cells mixed up."""
    codes, sizes, targets = problem
    target = targets[0]
    axis, places = target.axes[0], target.places(codes)
    off = target.counted(places) - target.counts
    gains = publication._gains(target, axis, codes[:3, axis], places[:3], off)
    for row, value in itertools.product(range(3), range(sizes[axis])):
        tried = codes.copy()
        tried[row, axis] = value
        lessened = distance(codes, [target]) - distance(tried, [target])
        assert lessened == pytest.approx(2 * target.weight * gains[row, value], abs=1e-9)


def measured(sizes: tuple[int, ...], seed: int, deviation: str) -> tuple[Residuals, IntArray]:
    """What was measured of all pairs of attributes of 400 records, and these records."""
    rng = np.random.default_rng(seed)
    codes = np.stack([np.minimum(rng.geometric(0.4, 400) - 1, size - 1) for size in sizes], 1)
    residuals = Residuals(sizes)
    for pair in itertools.combinations(range(len(sizes)), 2):
        marginal = Marginal.of(sizes, dict.fromkeys(pair))
        exact = np.zeros(marginal.shape, np.int64)
        np.add.at(exact, tuple(codes[:, list(pair)].T), 1)
        noise = np.rint(rng.normal(0, float(deviation), exact.shape)).astype(np.int64)
        residuals.add(Counts(marginal, Noise("gaussian", Decimal(deviation), 0), exact + noise))
    return residuals, codes


@pytest.mark.unit
@pytest.mark.parametrize("most", [1 << 14, 1])
def test_tables_agree_and_are_near(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Tables that share attributes, from a fit of all cells and attribute by attribute: would catch tables that do not
    add up, counts below zero or between whole numbers, values outside their intervals, and tables that are farther
    from the truth than noise of 4 a cell makes any of them alone."""
    monkeypatch.setattr(table_results, "MOST_FITTED", most)
    sizes = (4, 3, 5)
    residuals, codes = measured(sizes, 5, "4")
    wanted = [(0, 1), (0, 2), (1, 2), (0,), (0, 1, 2)]
    workload = Marginals(tuple(Marginal.of(sizes, dict.fromkeys(axes)) for axes in wanted))
    made = published(workload, residuals, 7, lambda part: None)
    tables = {}
    for axes, answers in zip(wanted, made.answers, strict=True):
        found = answers.estimates
        assert (found.values == np.rint(found.values)).all()
        assert found.values.min() >= 0
        assert (np.sort([found.lows, found.values, found.highs], axis=0)[1] == found.values).all()
        assert (np.rint([found.lows, found.highs]) == [found.lows, found.highs]).all()
        tables[axes] = found.values
    for one, other in itertools.combinations(wanted, 2):
        common = [axis for axis in one if axis in other]
        sums = [tables[axes].sum(axis=tuple(k for k, a in enumerate(axes) if a not in common)) for axes in (one, other)]
        assert np.array_equal(*sums)
    exact = np.zeros(sizes)
    np.add.at(exact, tuple(codes.T), 1)
    for axes in wanted[:3]:
        truth = exact.sum(axis=tuple(axis for axis in range(3) if axis not in axes))
        assert float(np.sqrt(np.mean(np.square(tables[axes] - truth)))) < 4


@pytest.mark.unit
def test_what_is_missing_suffices_and_hardly_more() -> None:
    """Held against residuals that take in noise of that price: would catch a price that does not bring the intervals
    there, one that is too high, a table that is known well and listed, and one that is not known and left out."""
    sizes, unit = (4, 3, 5), 3.0
    residuals, _ = measured(sizes, 5, "4")
    marginals = [Marginal.of(sizes, dict.fromkeys(axes)) for axes in ((0, 1), (0,), (0, 1, 2), (2,))]
    questions = Marginals(tuple(marginals)).questions

    def reach(question: Question, *more: Counts) -> float:
        known = Residuals(sizes)
        for counts in (*residuals.measurements, *more):
            known.add(counts)
        found = known.unbiased(question)
        return float(known.reaches(question, found, 0.95).max()) if found.estimable.all() else math.inf

    for within in (4.0, 7.9, 30.0):
        listed = {each.table: each for each in missing(questions, residuals, within, unit)}
        assert set(listed) == {k for k, question in enumerate(questions, start=1) if reach(question) > within}
        assert 3 in listed
        for number, each in listed.items():
            question, marginal = questions[number - 1], marginals[number - 1]
            assert each.half_width == pytest.approx(reach(question))
            for factor, suffices in ((0.999, True), (1.05, False)):
                noise = Noise("gaussian", Decimal(repr(factor * math.sqrt(unit / each.epsilon))), 0)
                bought = Counts(marginal, noise, np.zeros(marginal.shape, np.int64))
                assert (reach(question, bought) <= within) == suffices


@pytest.mark.unit
def test_texts_are_no_formulas() -> None:
    """Would catch a label that a spreadsheet would compute, and one that breaks the file."""
    table = pa.table({"name": ["=1+1", "a\x00b"], "value": [1, 2]})
    sheet = openpyxl.load_workbook(io.BytesIO(workbook(table))).active
    cells = [(cell.data_type, cell.value) for (cell, _) in sheet.iter_rows(min_row=2)]
    assert cells == [("s", "=1+1"), ("s", "a\N{REPLACEMENT CHARACTER}b")]


@pytest.mark.unit
def test_a_workbook_is_that_of_its_tables() -> None:
    """Would catch a cell that was altered, a sheet that is gone, and one that is said to differ and does not: a label
    that is a number, one that breaks a file, and one that there is none of."""
    labels = {1: ["7", "=1+1", "a\x00b", None], 2: ["b", "b", "c", "d"]}
    parts = [
        pa.table(
            {
                "table": pa.array([number] * 4, pa.int32()),
                "name": pa.array(names, pa.string()),
                "value": pa.array([3, 0, 12_345, 1], pa.int64()),
                "standard_error": [1.8, None, 1e-7, 0.1 + 0.2],
            }
        )
        for number, names in labels.items()
    ]
    told = {"table": 1, "attributes": ["name"], "counts": None, "sum": 9, "rows": 4}
    facts = {"dataset": "d", "release": "r", "confidence": 0.95, "epsilon": 0.5, "notes": []}
    manifest = {**facts, "tables": [told]}
    book = workbook(pa.concat_tables(parts), manifest)
    tables = {number: encoded(part.drop_columns(["table"]), "csv") for number, part in enumerate(parts, start=1)}
    assert differing(book, tables, manifest) == []
    for was, becomes in ((b"12345", b"12346"), (b"1.8", b"1.9"), (b"=1+1", b"2"), (b"1e-7\n", b"1e-7\nx,1,1\n")):
        altered = {**tables, 1: tables[1].replace(was, becomes)}
        assert differing(book, altered, manifest), was
    assert differing(book, tables, {**manifest, "confidence": 0.99})
    assert differing(book, {1: tables[1]}, manifest) == ["tables.xlsx has other parts than a workbook of these tables"]
    assert differing(book[:-30], tables, manifest) == ["tables.xlsx is no workbook"]


SHEET = "xl/worksheets/sheet1.xml"
#: By attack the part of a workbook that it changes, what is replaced there, and by what.
LIES = {
    "a note": ("xl/worksheets/sheet2.xml", rb"records by sex", rb"records by age"),
    "a number's format": (SHEET, rb'<c r="B2" ', rb'<c r="B2" s="1" '),
    "a formula": (SHEET, rb"<v>111</v>", rb"<f>1+1</f><v>111</v>"),
    "a size that hides a row": (SHEET, rb"</sheetData>", rb'<row r="9"><c r="A9"><v>9</v></c></row></sheetData>'),
    "a sheet without an end": (SHEET, rb"</sheetData>", rb"</sheetData>" + b" " * (1 << 20)),
    "a hidden column": (SHEET, rb"<sheetData>", rb'<cols><col min="1" max="1" hidden="1"/></cols><sheetData>'),
}


@pytest.mark.adversarial
@pytest.mark.parametrize("what", [*LIES, "a part more"])
def test_a_workbook_that_says_something_else(what: str) -> None:
    """An attack: numbers as they were, and a reader who believes something else. Would show a part of a workbook that
    nobody looks at, and one that is read for ever."""
    table = pa.table(
        {"table": pa.array([1, 1], pa.int32()), "sex": ["f", "m"], "value": pa.array([111, 7], pa.int64())}
    )
    told = {"table": 1, "attributes": ["sex"], "counts": None, "sum": 118, "rows": 2}
    manifest = {"dataset": "d", "release": "r", "confidence": 0.95, "epsilon": 0.5, "notes": [], "tables": [told]}
    book, tables = workbook(table, manifest), {1: encoded(table.drop_columns(["table"]), "csv")}
    assert differing(book, tables, manifest) == []
    made = io.BytesIO()
    part, was, becomes = LIES.get(what, ("", b"", b""))
    with zipfile.ZipFile(io.BytesIO(book)) as genuine, zipfile.ZipFile(made, "w") as forged:
        for name in genuine.namelist():
            content = genuine.read(name)
            assert name != part or was in content, content
            forged.writestr(name, content.replace(was, becomes) if name == part else content)
        if not part:
            forged.writestr("xl/comments1.xml", b"<comments/>")
    (found,) = differing(made.getvalue(), tables, manifest)
    assert (part or "other parts") in found


def publish(client: httpx.Client, dataset: str, **asked: Any) -> JSON:
    reply = client.post("/v1/releases", json={"dataset": dataset, "method": "publication", "epsilon": 0, **asked})
    assert reply.status_code == 202, reply.text
    id = reply.json()["id"]
    client.get(f"/v1/releases/{id}/events")
    state: JSON = client.get(f"/v1/releases/{id}").json()
    assert state["status"] == "done", state
    return state


def csv_of(client: httpx.Client, id: str, part: str) -> pa.Table:
    reply = client.get(f"/v1/releases/{id}/data", params={"part": part}, headers={"Accept": "text/csv"})
    assert reply.status_code == 200, reply.text
    return pyarrow.csv.read_csv(io.BytesIO(reply.content))


#: Attributes that are called like the columns of tables.
CALLED = ["value", "low", "question", "table", "standard_error"]
BUDGET = {"epsilon": 20.0, "delta": 1e-9}
#: A question for no count.
WEIGHTED = {"type": "product", "weights": {"sex": [0.5, 1]}}
TABLES = [
    {"type": "marginal", "attributes": ["sex", "age"]},
    {"type": "marginal", "attributes": ["age"]},
    {"type": "predicate", "where": {"sex": "female"}},
]


@pytest.mark.api
class TestOverHttp:
    def test_of_what_a_session_was_told(self, service: Service) -> None:
        """All that a session was told as tables that agree, for nothing. Would catch a charge, tables of other
        questions, a manifest that is not of these tables, a transcript that an auditor cannot follow, and a session of
        somebody else's."""
        analyst, dataset = service.principal("analyst"), people(service)
        session = open_session(
            analyst, dataset, mechanism={"construction": "evidence"}, max_queries=4, max_updates=None
        )
        for query in (*TABLES, WEIGHTED):
            assert analyst.post(f"/v1/sessions/{session['id']}/queries", json=query).status_code == 200
        before = analyst.get(f"/v1/datasets/{dataset}").json()["budget"]
        state = publish(analyst, dataset, tables={"session": session["id"]})
        assert analyst.get(f"/v1/datasets/{dataset}").json()["budget"] == before
        assert (state["cost"]["spent"], state["cost"]["spent_epsilon"]) == ("0", 0)
        every = csv_of(analyst, state["id"], "tables")
        manifest = analyst.get(f"/v1/releases/{state['id']}/data", params={"part": "manifest"}).json()
        assert manifest["records"] == 15_000
        assert set(every.column("table").to_pylist()) == {1, 2, 3}
        for told in manifest["tables"]:
            reply = analyst.get(
                f"/v1/releases/{state['id']}/data",
                params={"part": f"table-{told['table']}"},
                headers={"Accept": "application/vnd.apache.arrow.stream"},
            )
            with pa.ipc.open_stream(reply.content) as stream:
                found = stream.read_all()
            assert digest(found) == told["sha256"]
            assert (len(found), found.column("value").to_pylist()) == (
                told["rows"],
                every.filter(pc.equal(every.column("table"), told["table"])).column("value").to_pylist(),
            )
        assert [told["sum"] for told in manifest["tables"][:2]] == [15_000, 15_000]
        assert manifest["tables"][0]["attributes"] == ["sex", "age"]
        assert [told["counts"] for told in manifest["tables"]] == [None, None, [{"sex": "female"}]]
        lines = (
            service.principal("auditor").get(f"/v1/sessions/{state['id']}/transcript").content.splitlines(keepends=True)
        )
        assert replay(iter(lines)).ok
        # Each manifest gives back the export that it is.
        for _ in range(MOST_EACH + 1):
            reply = analyst.get(f"/v1/releases/{state['id']}/data", params={"part": "manifest"})
            assert (reply.status_code, reply.json()) == (200, manifest)
        refused(
            service.principal("analyst").post(
                "/v1/releases",
                json={"dataset": dataset, "method": "publication", "epsilon": 0, "tables": {"session": session["id"]}},
            ),
            "not-found",
        )

    def files(self, client: httpx.Client, id: str, number: int) -> tuple[JSON, dict[int, bytes]]:
        """The manifest of a publication, and so many tables."""
        parts = {"manifest": "application/json", **{f"table-{k}": "text/csv" for k in range(1, number + 1)}}
        found = [
            client.get(f"/v1/releases/{id}/data", params={"part": part}, headers={"Accept": accept}).content
            for part, accept in parts.items()
        ]
        return json.loads(found[0]), dict(enumerate(found[1:], start=1))

    def test_an_auditor_makes_them_anew(self, service: Service) -> None:
        """From the transcript alone, and against it: would catch a publication that nobody else can make, and a check
        that lets pass a number that was altered, with or without its digest, tables that do not add up, and those of
        another release."""
        analyst, dataset = service.principal("analyst"), people(service)
        first, other = (publish(analyst, dataset, tables=TABLES, epsilon=0.3)["id"] for _ in range(2))
        reader = service.principal("auditor")
        lines = reader.get(f"/v1/sessions/{first}/transcript").content.splitlines()
        manifest, tables = self.files(analyst, first, 3)
        assert check(lines, manifest, tables) == Checked((), True)
        first_row = tables[1].split(b"\n")[1]
        cells = first_row.rsplit(b",", 4)
        cells[1] = b"%d" % (int(cells[1]) + 1)
        altered = {**tables, 1: tables[1].replace(first_row, b",".join(cells))}
        assert check(lines, manifest, altered).problems[0] == "table 1 is not the one that the manifest names"
        told = copy.deepcopy(manifest)
        told["tables"][0]["sha256"] = hashlib.sha256(altered[1]).hexdigest()
        assert "tables 1 and 2 do not add up to the same" in check(lines, told, altered).problems
        cells[1:] = [b"99999", cells[2], b"0", b"99999"]
        altered[1] = tables[1].replace(first_row, b",".join(cells))
        told["tables"][0]["sha256"] = hashlib.sha256(altered[1]).hexdigest()
        assert any("follows" in problem for problem in check(lines, told, altered).problems)
        for forge in (
            lambda told: told.update(epsilon=0.0001),
            lambda told: told.update(confidence=0.9999),
            lambda told: told.update(records=1),
            lambda told: told.update(seed="1"),
            lambda told: told.update(dataset="another"),
            lambda told: told.update(head_hash="ab" * 32),
            lambda told: told.update(format=True),
            lambda told: told.update(notes=["exact counts"]),
            lambda told: told["tables"][0].update(sum=-5),
            lambda told: told["tables"][0].update(rows=1),
            lambda told: told["tables"][0].update(attributes=["age"]),
            lambda told: told["tables"][2].update(counts=[{"sex": "male"}]),
            lambda told: told["tables"].append(told["tables"][0] | {"sha256": "ab" * 32}),
            lambda told: told.update(warning="counts are exact"),
            lambda told: told["tables"][0].update(title="women alone"),
        ):
            told = copy.deepcopy(manifest)
            forge(told)
            assert not check(lines, told, tables).ok

        def written(*rows: bytes) -> Checked:
            """What is found of the first table with these lines, whose digest is told."""
            content, told = b"".join(row + b"\n" for row in rows), copy.deepcopy(manifest)
            told["tables"][0]["sha256"] = hashlib.sha256(content).hexdigest()
            return check(lines, told, {**tables, 1: content})

        header, row, *rest = tables[1].splitlines()
        assert written(header, row, *rest) == Checked((), True)
        cells = row.rsplit(b",", 4)
        for forged in (
            [*cells[:2], b"0.001", *cells[3:]],
            [*cells[:2], b"=cmd()", *cells[3:]],
            [*cells[:3], cells[1], cells[1]],
            [cells[0], b"0" + cells[1], *cells[2:]],
            [b"nobody" + cells[0], *cells[1:]],
            [cells[0], b"9" * 401, *cells[2:]],
        ):
            assert not written(header, b",".join(forged), *rest).ok, forged
        # Each is within its interval, and together they are another table.
        most = max(range(1, 1 + len(rest)), key=lambda place: int([row, *rest][place].rsplit(b",", 4)[1]))
        swapped = [row, *rest]
        for place, more in ((0, 20), (most, -20)):
            name, value, error, low, high = swapped[place].rsplit(b",", 4)
            put = int(value) + more
            ends = b"%d,%d" % (min(int(low), put), max(int(high), put))
            swapped[place] = b"%b,%d,%b,%b" % (name, put, error, ends)
        assert any("lie in other cells" in problem for problem in written(header, *swapped).problems)
        for more in (b"value", b"true count"):
            assert not written(more + b"," + header, *(b"123456," + each for each in (row, *rest))).ok
        found = check(lines, *self.files(analyst, other, 3)).problems
        assert any("the manifest is that of release" in problem for problem in found)
        assert "the manifest does not name the measurements that the transcript has" in found

    def test_the_log_names_them(self, service: Service, tmp_path: Path) -> None:
        """By the command, and by the rules that every reader has. Would catch a record that was added later, as a
        machine that rounds otherwise may have it, and a release that publishes twice."""
        analyst, dataset = service.principal("analyst"), people(service)
        id, folder, log = (
            publish(analyst, dataset, tables=TABLES, epsilon=0.3)["id"],
            tmp_path / "out",
            tmp_path / "log",
        )
        manifest, tables = self.files(analyst, id, 3)
        folder.mkdir()
        for number, content in tables.items():
            (folder / f"table-{number}.csv").write_bytes(content)
        transcript = tmp_path / "release.ndjson"
        transcript.write_bytes(service.principal("auditor").get(f"/v1/sessions/{id}/transcript").content)

        def judged(told: JSON) -> tuple[int, JSON]:
            (folder / "manifest.json").write_text(json.dumps(told, indent=1))
            words = ["audit", "publication", str(transcript), str(folder), "--log", str(log), "--json"]
            done = CliRunner().invoke(cli, words)
            return done.exit_code, json.loads(done.stdout)

        def logged() -> list[bytes]:
            with Curator(service.url, service.admin_key) as curator:
                fetch(LogFolder(log), curator)
            lines = (log / "entries.ndjson").read_bytes().splitlines()
            found = [line for line in lines if b'"published"' in line and id.encode() in line]
            if not found:
                raise NotVerified("not yet")
            return [*lines, found[0]]

        lines = soon(logged)
        assert judged(manifest) == (0, {"ok": True, "same": True, "problems": []})
        value, *rest = tables[3].split(b"\n")[1].split(b",")
        one_more = b",".join([b"%d" % (int(value) + 1), *rest])
        (folder / "table-3.csv").write_bytes(tables[3].replace(b",".join([value, *rest]), one_more))
        told = copy.deepcopy(manifest)
        told["tables"][2] |= {
            "sum": told["tables"][2]["sum"] + 1,
            "sha256": hashlib.sha256((folder / "table-3.csv").read_bytes()).hexdigest(),
        }
        code, found = judged(told)
        assert code == 1
        assert "the log names another manifest of this release" in found["problems"]
        assert judged(manifest | {"release": "ab" * 16})[1]["problems"][-1].endswith("no publication of this release")

        broken: list[str] = []
        rules = Rules(lambda problem, line: broken.append(str(problem)))
        for line in lines:
            rules.survey(line)
        for line in lines:
            rules.take(line)
        rules.end()
        assert len(broken) == 1
        assert "published a second time" in broken[0]

    def test_attributes_that_are_called_like_columns(self, service: Service) -> None:
        """Would catch labels that numbers stand in the place of, in a file or in what an auditor makes anew, and a
        release that is paid for and cannot be carried through."""
        analyst, name = service.principal("analyst"), unique("columns")
        attributes = [{"name": each, "size": 2 + k} for k, each in enumerate(CALLED)]
        spec = {"name": name, "kind": "table", "attributes": attributes, "records_public": True, "budget": BUDGET}
        rows = np.random.default_rng(3).integers(0, 2, (400, len(CALLED)))
        lines = "\n".join([",".join(CALLED), *(",".join(map(str, row)) for row in rows)])
        assert register(service.admin, spec, lines.encode(), "rows.csv").status_code == 201
        tables = [{"type": "marginal", "attributes": [*pair]} for pair in itertools.pairwise(CALLED)]
        asked: list[JSON] = [{"method": "publication", "tables": tables}]
        workload = {"marginals": 2, "attributes": CALLED}
        asked += [{"method": method, "workload": workload} for method in ("gaussian", "synthetic_table")]
        for words in asked:
            id = publish(analyst, name, **words, epsilon=1.0)["id"]
            found = csv_of(analyst, id, "tables" if words is asked[0] else "answers")
            first = "table" if words is asked[0] else "question"
            assert found.column_names == [first, *(f"{each}_" for each in CALLED), *table_results.NUMBERS]
            shown = found.select([f"{each}_" for each in CALLED]).to_pylist()
            # Each cell of every table is told apart from the others.
            assert len(
                {(number, *row.values()) for number, row in zip(found[0].to_pylist(), shown, strict=True)}
            ) == len(found)
            if words is asked[0]:
                reader = service.principal("auditor")
                transcript = reader.get(f"/v1/sessions/{id}/transcript").content.splitlines()
                manifest, files = self.files(analyst, id, len(tables))
                assert check(transcript, manifest, files) == Checked((), True)
        # Its records have columns of their own, which are no tables.
        book = analyst.get(f"/v1/releases/{id}/data", params={"part": "records"}, headers={"Accept": XLSX}).content
        assert [cell.value for cell in next(openpyxl.load_workbook(io.BytesIO(book)).active.iter_rows())] == CALLED

    def test_measured_for_it(self, service: Service) -> None:
        """With an epsilon what is lacking is measured first: would catch a publication that measures nothing, and a
        workbook without a sheet for each table."""
        analyst, dataset = service.principal("analyst"), people(service)
        state = publish(analyst, dataset, tables=TABLES, epsilon=0.5)
        assert 0 < state["cost"]["spent_epsilon"] <= 0.5
        reply = analyst.get(f"/v1/releases/{state['id']}/data", headers={"Accept": XLSX})
        assert reply.headers["content-type"] == XLSX
        book = openpyxl.load_workbook(io.BytesIO(reply.content))
        assert book.sheetnames == ["table 1", "table 2", "table 3", "notes"]
        manifest, tables = self.files(analyst, state["id"], 3)
        assert differing(reply.content, tables, manifest) == []
        header, *rows = book["table 1"].iter_rows(values_only=True)
        assert header == ("sex", "age", "value", "standard_error", "low", "high")
        assert sum(row[2] for row in rows) == 15_000
        notes = [cell for (cell,) in book["notes"].iter_rows(values_only=True)]
        assert dataset in notes[0]
        assert "95%" in notes[0]
        assert notes[1] == "table 1: records by sex, age; 15,000 together"
        assert notes[3].startswith("table 3: records with sex female; ")
        alone = analyst.get(f"/v1/releases/{state['id']}/data", params={"part": "table-1"}, headers={"Accept": XLSX})
        assert openpyxl.load_workbook(io.BytesIO(alone.content)).sheetnames == ["data"]
        assert all(row[4] <= row[2] <= row[5] for row in rows)

    def test_what_is_missing_can_be_bought(self, service: Service) -> None:
        """What is said to be missing is asked of a session of that epsilon, and nothing is missing any more. Would
        catch a price in another currency, a list that is not told anew, and a charge for being told."""
        analyst, dataset = service.principal("analyst"), people(service)
        publish(analyst, dataset, tables=TABLES, epsilon=0.1)
        before = analyst.get(f"/v1/datasets/{dataset}").json()["budget"]
        told = publish(analyst, dataset, tables=TABLES, within=20)["result"]
        assert told["within"] == 20
        assert {1, 3} <= {each["table"] for each in told["missing"]}
        assert all(each["half_width"] > 20 and 0 < each["epsilon"] < 1 for each in told["missing"])
        assert analyst.get(f"/v1/datasets/{dataset}").json()["budget"] == before
        for each in told["missing"]:
            words = {"dataset": dataset, "epsilon": each["epsilon"], "within": 20, "max_queries": 1}
            reply = analyst.post("/v1/sessions", json={**words, "mechanism": {"construction": "evidence"}})
            assert reply.status_code == 201, reply.text
            reply = analyst.post(f"/v1/sessions/{reply.json()['id']}/queries", json=TABLES[each["table"] - 1])
            assert reply.status_code == 200, reply.text
        assert publish(analyst, dataset, tables=TABLES, within=20)["result"]["missing"] == []

    def test_every_count_of_a_session_is_published(self, service: Service) -> None:
        """Those of any one of several conditions, of what satisfies them not, and of groups within groups as well; and
        the number of all records beside others. Would catch a count that was asked for and is left out, unsaid."""
        analyst, spec = service.principal("analyst"), {**PEOPLE, "name": unique("towns")}
        towns: JSON = {"name": "town", "values": ["a", "b", "c", "d"], "levels": {"x": ["a", "b"], "y": ["c", "d"]}}
        spec["attributes"] = [*PEOPLE["attributes"], towns]
        rows = "".join(f"{('fe' * (k % 2)) + 'male'},{k % 80},{'abcd'[k % 4]}\n" for k in range(900))
        assert register(service.admin, spec, f"sex,age,town\n{rows}".encode(), "rows.csv").status_code == 201
        young = {"age": {"between": [0, 20]}}
        kinds: list[JSON] = [
            {"type": "predicate", "where": {"any": [{"sex": "female"}, young]}},
            {"type": "predicate", "where": {"not": {"sex": "female", **young}}},
            {"type": "marginal", "attributes": ["town"], "where": {"any": [{"sex": "female"}, young]}},
            {"type": "hierarchy", "attribute": "town"},
            {"type": "predicate", "where": {}},
        ]
        session = open_session(
            analyst, spec["name"], mechanism={"construction": "evidence"}, max_queries=9, max_updates=None
        )
        for number, query in enumerate(kinds, start=1):
            reply = analyst.post(f"/v1/sessions/{session['id']}/queries", json=query)
            assert reply.status_code == 200, reply.text
            state = publish(analyst, spec["name"], tables={"session": session["id"]})
            assert set(csv_of(analyst, state["id"], "tables").column("table").to_pylist()) == {*range(1, number + 1)}

    def test_the_number_of_all_records_alone_is_no_table(self, service: Service) -> None:
        """Of the data or of a session: refused before anything is spent. Would catch a worker that ends over a table
        without attributes, whose share is spent."""
        analyst, dataset = service.principal("analyst"), people(service)
        alone = {"type": "predicate", "where": {}}
        session = open_session(
            analyst, dataset, mechanism={"construction": "evidence"}, max_queries=9, max_updates=None
        )
        assert analyst.post(f"/v1/sessions/{session['id']}/queries", json=alone).status_code == 200
        before = analyst.get(f"/v1/datasets/{dataset}").json()["budget"]
        for words in (
            {"method": "publication", "epsilon": 0.3, "tables": [alone]},
            {"method": "publication", "epsilon": 0, "tables": {"session": session["id"]}},
            *(
                {"method": method, "epsilon": 0.3, "workload": {"queries": [alone]}}
                for method in ("synthetic_table", "projection", "factorization", "gaussian", "histogram", "auto")
            ),
        ):
            reply = analyst.post("/v1/releases", json={"dataset": dataset, **words})
            assert (reply.status_code, "number of all records" in reply.json()["detail"]) == (422, True), words
        assert analyst.get(f"/v1/datasets/{dataset}").json()["budget"] == before

    @pytest.mark.parametrize(
        ("changes", "problem", "words"),
        [
            ({}, "invalid-request", "one of workload, tables"),
            ({"tables": TABLES, "workload": {"marginals": 1}}, "invalid-request", "one of workload, tables"),
            ({"tables": TABLES, "method": "gaussian", "epsilon": 1}, "invalid-request", "tables go with"),
            ({"workload": {"marginals": 1}, "method": "gaussian"}, "invalid-request", "epsilon"),
            ({"tables": []}, "invalid-request", "tables"),
            ({"tables": {"session": "0" * 32}}, "not-found", "no such session"),
            ({"tables": [{"type": "mean", "of": "age"}]}, "plan-infeasible", "question 1 of"),
            ({"tables": [WEIGHTED]}, "plan-infeasible", "counts of records"),
            ({"tables": TABLES, "within": 0}, "invalid-request", "within"),
            ({"tables": TABLES, "within": "50"}, "invalid-request", "within"),
            (
                {"workload": {"marginals": 1}, "method": "gaussian", "epsilon": 1, "within": 50},
                "plan-infeasible",
                "within",
            ),
        ],
    )
    def test_refused(self, service: Service, changes: JSON, problem: str, words: str) -> None:
        """Would catch a publication of what it cannot hold, which fails later or is a 500, and words of no help."""
        dataset = people(service)
        asked = {"dataset": dataset, "method": "publication", "epsilon": 0, **changes}
        assert words in refused(service.admin.post("/v1/releases", json=asked), problem)["detail"]

    @pytest.mark.parametrize("wanted", [{"tables": TABLES}, {"workload": {"marginals": 2}}])
    def test_a_plan_of_nothing_to_spend(self, service: Service, wanted: JSON) -> None:
        """Would catch a plan for one that looks for other ways, of which none is free: it failed for ever."""
        dataset = people(service)
        asked = {"dataset": dataset, "method": "publication", "epsilon": 0, **wanted}
        told = service.admin.post("/v1/plans", json=asked)
        assert told.status_code == 200, told.text
        (way,) = told.json()["methods"]
        assert (way["method"], told.json()["best"], way["expected"]) == ("publication", "publication", None)
        assert way["expected_seconds"] > 0
        assert way["plan"]["measurements"] == 0

    def test_nothing_is_known(self, service: Service) -> None:
        """Would catch a release that fails when it is worked on, of which it is known before that it must."""
        dataset = people(service, records_public=False)
        asked = {"dataset": dataset, "method": "publication", "epsilon": 0, "tables": TABLES}
        told = refused(service.admin.post("/v1/releases", json=asked), "plan-infeasible")
        assert "nothing was measured" in told["detail"]
