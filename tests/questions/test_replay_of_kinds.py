"""Whole sessions over matrices, multisets and tiny tables, played with chosen noise, replayed from their bytes alone.

The player below keeps the rules of a server in a few lines of its own: a round for every query that is due one, each
entry hashed on the one before. What the replay is given is bytes.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import rfc8785

from app.audit import writing
from app.audit.replay import replay
from app.curator.dataset import Bought, PublicDataset
from app.curator.mechanisms.protocol import Test
from app.curator.mechanisms.round import Hit, play
from app.curator.opening import Header, Opening
from app.curator.planning import make_plan
from app.curator.request import parse_request
from app.curator.session import Session
from app.declarations.spec import parse_spec
from app.spaces.elements import ElementsTensor
from app.spaces.queries.registry import from_canonical, parse_query
from app.storage.private_data import ElementsData
from curator_client.proofs import records
from tests.kit.forger import documents_of, hypothesis_digest, resealed
from tests.kit.strategies import released

pytestmark = pytest.mark.unit

BUDGET = {"epsilon": 1.0, "delta": 1e-6}
Words = dict[str, Any]


def elements(counts: dict[str, int]) -> ElementsTensor:
    names = sorted(counts, key=str.encode)
    blobs = [n.encode() for n in names]
    offsets = np.cumsum([0, *map(len, blobs)], dtype=np.int64)
    data = ElementsData(
        np.frombuffer(b"".join(blobs), np.uint8), offsets, np.array([counts[n] for n in names]), sum(counts.values())
    )
    return ElementsTensor(data)


def matrix_session() -> tuple[Words, Words, Any, list[Words], float | None]:
    """FK over ratings of either sign: block sums, block means, cells, and a pattern over all of it."""
    rng, rows, columns = np.random.default_rng(11), 60, 40
    spec = {"name": "m", "kind": "matrix", "rows": rows, "columns": columns, "lower": -10, "upper": 4.5}
    spec |= {"budget": {"epsilon": 20.0, "delta": 1e-6}}
    x = rng.integers(-10 * 1024, 4 * 1024, (rows, columns))
    asked: list[Words] = [{"type": "cut", "left": [*range(5 * i, rows // 2 + 5 * i)], "right": "all"} for i in range(6)]
    asked += [{"type": "rank_one", "left": [1 / rows] * rows, "right": [1 / 3] * 3 + [0.0] * (columns - 3)}]
    asked += [{"type": "rank_one", "left": [(-1.0) ** i for i in range(rows)], "right": [0.5] * columns}]
    asked += [{"type": "sparse", "indices": [[0, 1], [7, 7]], "weights": [-1.0, 0.25]}]
    asked += [{"type": "dense", "weights": (np.outer(range(rows), range(columns)) / rows / columns).tolist()}]
    session = {"mechanism": {"construction": "fk"}, "epsilon": 20.0, "max_queries": 40, "max_updates": 15}
    return spec, session, x, asked * 2, None


def words_session() -> tuple[Words, Words, Any, list[Words], float | None]:
    """SMW over words, their number bought; unknown words and text that JSON writers differ on."""
    counts = {"die": 9000, "van": 4000, "en": 3000, 'q"\\\u2028\x07é\U0001f600': 2500, "is": 800, "so": 5}
    spec = {"name": "w", "kind": "multiset", "budget": BUDGET}
    asked = [{"type": "elements", "weights": dict.fromkeys(pair, 1.0)} for pair in itertools.combinations(counts, 2)]
    asked += [
        {"type": "elements", "weights": {"nobody": 1.0}},
        {"type": "elements", "weights": {"die": 1.0, "x": -0.3}},
    ]
    asked += [{"type": "elements", "weights": {"die": 1e-9}}]
    session = {
        "mechanism": {"construction": "smw", "sparsity": 2},
        "epsilon": 1.0,
        "max_queries": 50,
        "max_updates": 20,
    }
    return spec, session, elements(counts), asked, 21_000.0


def table_session(**mechanism: Any) -> tuple[Words, Words, Any, list[Words], float | None]:
    """The median mechanism over four cells of a table whose number of records is public."""
    spec = {
        "name": "t",
        "kind": "table",
        "attributes": [{"name": "x", "size": 2}, {"name": "y", "values": ["no", "yes"]}],
        "records_public": True,
        "budget": BUDGET,
    }
    asked: list[Words] = [{"type": "predicate", "where": {"x": {"equals": i}}} for i in (0, 1)]
    asked += [
        {"type": "predicate", "where": {"x": {"equals": i}, "y": {"in": [v]}}} for i in (0, 1) for v in ("no", "yes")
    ]
    asked += [{"type": "product", "weights": {"x": [0.5, -1.0]}}, {"type": "product", "weights": {"y": [1 / 3, 0.0]}}]
    session = {"mechanism": {"construction": "median"} | mechanism, "epsilon": 1.0, "max_queries": 12, "max_updates": 5}
    return spec, session, np.array([[880, 10], [60, 50]]), asked * 2, None


CASES: dict[str, Callable[[], tuple[Words, Words, Any, list[Words], float | None]]] = {
    "matrix-fk": matrix_session,
    "multiset-smw": words_session,
    "table-median": table_session,
    "table-median-paper": lambda: table_session(step="paper", weights="signed"),
    "table-median-sampled": lambda: table_session(sampled=True),
}


def played(case: str, noise: Callable[[int, float], int]) -> tuple[Session, list[bytes]]:
    """The session's transcript; ``noise(round, scale)`` in grid units."""
    spec, words, data, asked, bought = CASES[case]()
    declared = parse_spec(spec)
    dataset = PublicDataset(declared, int(data.sum()) if declared.mass_public else None)
    request = parse_request(words | {"dataset": spec["name"]})
    plan = make_plan(dataset, request)
    paid = None
    assert (plan.purchase is None) == (bought is None)
    if plan.purchase is not None and bought is not None:
        paid = Bought(bought, plan.purchase.noise_scale)
    opening = Opening(dataset, request, plan, paid)
    header = writing.header(session="s", opening=opening.document(), opened_at="2026-01-01T00:00:00Z")
    session = Session(opening)
    space = dataset.space
    tensor = data if isinstance(data, ElementsTensor) else space.tensor(data)
    lines, head = [header], records.sha256(header)
    named: set[str] = set()
    for number, one in enumerate(asked, 1):
        query = parse_query(one).compiled(space)
        due = session.consider(query)
        if isinstance(due, Test):
            private = space.to_answer_grid(query.exact(tensor), query)
            drawn = noise(number, float(plan.noise_scale_units))
            outcome = play(int(due.hypothesis[0]), private, drawn, plan.threshold_units)
            source = "measurement" if isinstance(outcome, Hit) else "hypothesis"
            due = released(outcome.value, source, due.error_bound)  # type: ignore[arg-type]
            assert abs(outcome.value - private) <= plan.threshold_units + plan.noise_bound_units
        if query.blob is not None and query.canonical["sha256"] not in named:
            named.add(query.canonical["sha256"])
            lines.append(writing.weights_record(query.canonical["sha256"], query.blob))
        entry = writing.answer_entry(
            sequence=number,
            query=query.canonical_bytes,
            values=[session.real(int(due.units[0]))],
            source=due.source,
            error_bound=due.error_bound,
            unverified=False,
            recorded_at="2026-01-01T00:00:01Z",
            previous_hash=head,
        )
        lines.append(entry.line)
        head = entry.entry_hash
        session.record(query, due)
    lines.append(
        writing.trailer(
            entries=len(asked),
            head_hash=head,
            hypothesis_digest=hypothesis_digest([json.loads(line) for line in lines]),
            updates=session.updates_used,
            status="open",
        )
    )
    return session, lines


def quiet(_: int, __: float) -> int:
    return 0


def swinging(number: int, scale: float) -> int:
    return round(scale * (0.7, -1.1, 0.2, -0.4)[number % 4])


@pytest.mark.slow
@pytest.mark.parametrize("noise", [quiet, swinging])
@pytest.mark.parametrize("case", CASES)
def test_a_session_is_replayed_from_its_bytes(case: str, noise: Callable[[int, float], int]) -> None:
    """Would catch a query whose canonical form does not read back, a hypothesis that depends on anything beside the
    measurements, a plan that does not follow from the header, bytes that are not RFC 8785's."""
    session, lines = played(case, noise)
    assert session.updates_used > 0
    verdict = replay(lines)
    assert verdict.ok, verdict
    assert verdict.summary["updates"] == session.updates_used
    assert verdict.summary["hypothesis_answers"] > 0
    assert verdict.summary["cached_answers"] > 0 or case == "multiset-smw"
    assert verdict.summary["hypothesis_digest"] == hypothesis_digest([json.loads(line) for line in lines])
    for line in lines:
        assert line == rfc8785.dumps(json.loads(line))


def forged(lines: Iterable[bytes], change: Callable[[Words], None]) -> list[bytes]:
    """The transcript with answers changed and every hash made good."""
    documents = documents_of(lines)
    for record in documents:
        if record["record"] == "answer":
            change(record)
    return resealed(documents)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_forged_answer_is_found(case: str) -> None:
    """Every hypothesis answer in turn, moved by three grid units with all hashes made good; and every measurement
    doubled, which changes the hypothesis of later answers or contradicts its own threshold. Would catch a replay that
    takes values on trust."""
    session, lines = played(case, quiet)
    entries = [json.loads(line) for line in lines if json.loads(line)["record"] == "answer"]
    assert replay(forged(lines, lambda record: None)).ok
    found = 0
    for entry in entries:
        if entry["source"] != "hypothesis" or entry["query"]["type"] == "zero":
            continue

        def moved(record: Words, at: int = entry["sequence"]) -> None:
            if record["sequence"] == at:
                record["value"] += 3 * session.real(1)

        verdict = replay(forged(lines, moved))
        assert not verdict.ok
        assert verdict.sequence == entry["sequence"]
        found += 1
    assert found > 0


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("units", [1, 2])
def test_another_machine_may_be_one_unit_off(case: str, units: int) -> None:
    """Every hypothesis answer of a session, and the copies of it that were cached, up by one unit of the grid with all
    hashes made good, is accepted; by two it is not. Would catch a tolerance that is another one than is documented."""
    session, lines = played(case, quiet)
    answers = [record for record in map(json.loads, lines) if record["record"] == "answer"]
    free = [record for record in answers if record["source"] == "hypothesis" and record["query"]["type"] != "zero"]
    own = {rfc8785.dumps(record["query"]) for record in free}
    assert own

    def moved(record: Words) -> None:
        if record["source"] in ("hypothesis", "cached") and rfc8785.dumps(record["query"]) in own:
            record["value"] += units * session.real(1)

    verdict = replay(forged(lines, moved))
    assert verdict.ok == (units == 1), verdict
    if not verdict.ok:
        assert verdict.sequence == free[0]["sequence"]


def test_sessions_of_one_transcript_are_equal_bit_for_bit() -> None:
    """The sampled median twice from its header and measurements. Would catch chance that is not the transcript's."""
    session, lines = played("table-median-sampled", swinging)
    again = Session(Header.read(lines[0]).opening())
    for line in lines[1:-1]:
        record = json.loads(line)
        if record["source"] == "measurement":
            units = np.array([again.grid(record["value"])], np.int64)
            again.learn(from_canonical(again.dataset.space, record["query"], {}), units)
    assert again.state.hypothesis.points.tobytes() == session.state.hypothesis.points.tobytes()
