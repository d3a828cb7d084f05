"""Transcripts of releases of graphs: an honest one replays, and each forgery is found, however well it is sealed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.audit import writing
from app.audit.replay import Verdict
from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.feasibility import find_plan
from app.curator.mechanisms.protocol import Measured
from app.curator.opening import Opening, Pins
from app.curator.planners.cells import EdgePlan
from app.curator.request import SessionRequest, parse_request
from app.declarations.spec import parse_spec
from app.measurements.noise import BitFlips, Noise
from app.measurements.record import Measurement
from app.measurements.strategies.degrees import Degrees
from app.measurements.strategies.edges import Edges
from app.privacy.ledger import Amounts, total
from app.verifying.transcript import replay_file
from curator_client.proofs import records

pytestmark = [pytest.mark.unit, pytest.mark.slow]

NOW = "2026-01-01T00:00:00Z"
BUDGET = {"epsilon": 1.0, "delta": 1e-9}
GRAPH = {"name": "g", "kind": "graph", "nodes": 7, "weighted": False, "budget": BUDGET}
MATRIX = {
    "name": "m",
    "kind": "matrix",
    "rows": 3,
    "columns": 4,
    "lower": -1,
    "upper": 2,
    "grid": 0.5,
    "budget": BUDGET,
}
WHOLE = Amounts(Decimal("0.3"), Decimal(1))


def asked(spec: dict[str, Any], **words: Any) -> SessionRequest:
    mechanism = {"method": "histogram", "workload": {"cuts": "all"}, "options": {}} | words.pop("mechanism", {})
    session = {"dataset": spec["name"], "epsilon": Decimal("0.5"), "max_queries": 1}
    return parse_request(session | words | {"mechanism": {"construction": "workload", **mechanism}})


def planned(spec: dict[str, Any], left: Amounts | None = None, **words: Any) -> EdgePlan:
    plan = find_plan(PublicDataset(parse_spec(spec), left=left), asked(spec, **words))
    assert isinstance(plan, EdgePlan)
    return plan


def written(
    spec: dict[str, Any],
    forge: Callable[[Measured], Sequence[Measured]] = lambda made: [made],
    degrees: Callable[[Measured], Sequence[Measured]] = lambda made: [made],
    **words: Any,
) -> tuple[list[bytes], EdgePlan]:
    """The transcript of a release that was recorded as ``forge`` makes of its cells, and ``degrees`` of its degrees
    where there are any.
    """
    dataset, request = PublicDataset(parse_spec(spec)), asked(spec, **words)
    plan = find_plan(dataset, request)
    assert isinstance(plan, EdgePlan)
    opening = Opening(dataset, request, plan, evidence=Pins((), ())).document()
    cells = plan.buy.strategy.cells
    units = np.arange(cells) % 2 if plan.buy.noise.kind == "flips" else np.arange(cells) - 5
    made = Measured(Measurement(plan.buy.strategy, plan.buy.noise, units), plan.buys[0].price)
    lines = [writing.header(session="s", opening=opening, opened_at=NOW)]
    head = records.sha256(lines[0])
    told = list(forge(made))
    if plan.degrees is not None:
        strategy = plan.degrees.strategy
        ends = Measurement(strategy, plan.degrees.noise, np.arange(strategy.cells) - 2)
        told += degrees(Measured(ends, plan.buys[1].price))
    for sequence, each in enumerate(told, start=1):
        line = writing.measurement_record(session="s", sequence=sequence, measured=each.document(), recorded_at=NOW)
        sealed = writing.release_entry(
            sequence=sequence, recorded_at=NOW, previous_hash=head, measurement=records.sha256(line)
        )
        lines += [line, sealed.line]
        head = sealed.entry_hash
    digest = writing.HypothesisDigest(opening).hexdigest()
    lines.append(
        writing.trailer(entries=len(told), head_hash=head, hypothesis_digest=digest, updates=len(told), status="closed")
    )
    return lines, plan


def verdict(lines: list[bytes], folder: Path) -> Verdict:
    path = folder / "transcript.ndjson"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return replay_file(path)


@pytest.mark.parametrize("spec", [GRAPH, MATRIX])
def test_an_honest_release_replays(spec: dict[str, Any], tmp_path: Path) -> None:
    """Of bits and of numbers, and one that was cancelled before anything was drawn. Would catch a plan that is not
    found again, and a record that is not read as it was written.
    """
    for forge in (lambda made: [made], lambda made: []):
        found = verdict(written(spec, forge)[0], tmp_path)
        assert found.ok, (found.problem, found.sequence)


SYNTHETIC = {"method": "synthetic_graph"}


#: So many nodes that degrees are worth measuring.
MANY = {**GRAPH, "nodes": 60}


def less_noise(made: Measured) -> list[Measured]:
    release = made.measurement
    assert isinstance(release.strategy, Degrees)
    noise = replace(release.noise, scale=release.noise.scale * Decimal("0.99"))
    return [replace(made, measurement=Measurement(release.strategy, noise, release.units))]


def of_both_ends(made: Measured) -> list[Measured]:
    release = made.measurement
    assert isinstance(release.strategy, Degrees)
    arcs = Degrees(Edges((60, 60), "arcs"))
    return [replace(made, measurement=Measurement(arcs, release.noise, np.zeros(arcs.cells)))]


def half_price(made: Measured) -> list[Measured]:
    return [replace(made, price=Amounts(made.price.renyi / 2, made.price.pure))]


def test_edges_and_degrees_replay(tmp_path: Path) -> None:
    """Would catch a plan with degrees that is not found again, and a record of them that does not read back."""
    lines, plan = written(MANY, mechanism=SYNTHETIC)
    assert [type(buy.strategy) for buy in plan.buys] == [Edges, Degrees]
    found = verdict(lines, tmp_path)
    assert found.ok, (found.problem, found.sequence)


@pytest.mark.parametrize(
    ("forge", "problem"),
    [
        (less_noise, "opening"),
        (of_both_ends, "none that this data set has"),
        (half_price, "opening"),
        (lambda made: [made, made], "opening"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_forged_degrees_are_found(
    forge: Callable[[Measured], Sequence[Measured]], problem: str, tmp_path: Path
) -> None:
    """Would catch an audit that takes noise, nodes, price or number of degrees from the record instead of the plan."""
    found = verdict(written(MANY, degrees=forge, mechanism=SYNTHETIC)[0], tmp_path)
    assert not found.ok
    assert found.problem is not None
    assert problem in found.problem


def with_noise(made: Measured, noise: BitFlips | Noise) -> Measured:
    release = made.measurement
    assert isinstance(release.strategy, Edges)
    return replace(made, measurement=Measurement(release.strategy, noise, release.units))


def fewer_flips(made: Measured) -> list[Measured]:
    assert isinstance(made.measurement.noise, BitFlips)
    return [with_noise(made, BitFlips(made.measurement.noise.flips - 1))]


def of_arcs(made: Measured) -> list[Measured]:
    release = made.measurement
    arcs = Edges((7, 7), "arcs")
    assert isinstance(release.strategy, Edges)
    return [replace(made, measurement=Measurement(arcs, release.noise, np.zeros(arcs.cells)))]


def as_numbers(made: Measured) -> list[Measured]:
    return [with_noise(made, Noise("laplace", Decimal(2), 0))]


def cheaper(made: Measured) -> list[Measured]:
    assert made.price.pure is not None
    return [replace(made, price=Amounts(made.price.renyi - Decimal("1e-24"), made.price.pure))]


@pytest.mark.parametrize(
    ("forge", "problem"),
    [
        (fewer_flips, "opening"),
        (of_arcs, "none that this data set has"),
        (as_numbers, "opening"),
        (cheaper, "opening"),
        (lambda made: [made, made], "opening"),
    ],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_a_forgery_is_found(forge: Callable[[Measured], Sequence[Measured]], problem: str, tmp_path: Path) -> None:
    """Every record is sealed anew, so that hashes say nothing. Would catch an audit that takes the noise, the cells,
    the price or the number of measurements from the record instead of the plan.
    """
    found = verdict(written(GRAPH, forge)[0], tmp_path)
    assert not found.ok
    assert found.problem is not None
    assert problem in found.problem


def test_values_that_are_written_in_another_way_are_found(tmp_path: Path) -> None:
    """Would catch two records of one measurement: padding that is not zero."""
    lines, _ = written(GRAPH)
    measured = lines[1].replace(b'"values":"VVVQ"', b'"values":"VVVR"')
    assert measured != lines[1]
    assert verdict([lines[0], measured, *lines[2:]], tmp_path).problem == "a measurement cannot be read"


def test_what_is_paid() -> None:
    """A share pays by the Renyi sum and reserves exactly the price, of both sums as the noise is pure; where all of
    epsilon is left it is taken, at whatever price in the other sum. Would catch a release that holds more than it
    spends, noise that is not pure where pure noise varies less, and bits where there are weights.
    """
    half, whole = planned(GRAPH), planned(GRAPH, WHOLE, epsilon=Decimal(1))
    assert (half.regime, half.holds) == ("renyi", half.price)
    assert half.price.renyi <= PublicDataset(parse_spec(GRAPH)).share(Decimal("0.5"))
    assert (whole.regime, whole.reserved_pure) == ("pure", Decimal(1))
    assert whole.price.renyi > Decimal("0.3")
    assert whole.cell_error < half.cell_error
    assert whole.error_bound == whole.all_cuts_bound
    assert whole.epsilon_alone <= 1
    weighted = planned({**GRAPH, "weighted": True})
    assert (weighted.buy.noise.kind, weighted.buy.strategy.cells) == ("laplace", 21)
    matrix = planned({**MATRIX, "budget": {"epsilon": 1.0, "delta": 1e-4}}, epsilon=Decimal("0.01"))
    assert matrix.buy.noise.kind == "gaussian"
    assert matrix.reserved_pure is None


@pytest.mark.parametrize(("left", "epsilon"), [(None, "0.5"), (WHOLE, "1")])
def test_what_is_paid_for_a_synthetic_graph(left: Amounts | None, epsilon: str) -> None:
    """Degrees are measured beside the cells, both within what the histogram of the same share is paid with, and the
    plan says so; the nearest graph in cut norm, and a graph of few nodes, whose sums of cells are as good as degrees,
    are made of cells alone, all of the share for them. Would catch two
    measurements of the whole share each, and a part of the share that nothing is bought with.
    """
    nearest = {"method": "synthetic_graph", "options": {"geometry": "cut_norm"}}
    alone, plan, near = (
        planned(MANY, left, epsilon=Decimal(epsilon), mechanism=mechanism) for mechanism in ({}, SYNTHETIC, nearest)
    )
    assert (near.buys, near.price, near.holds) == (alone.buys, alone.price, alone.holds)
    assert plan.degrees is not None
    assert plan.regime == alone.regime
    assert plan.cell_error > alone.cell_error
    assert plan.price == total(buy.price for buy in plan.buys)
    if left is not None:
        assert plan.holds.pure == 1
        assert plan.price.pure is not None
        assert Decimal("0.998") < plan.price.pure <= 1
        assert plan.degrees.noise.kind == "laplace"
    else:
        share = PublicDataset(parse_spec(MANY)).share(Decimal(epsilon))
        assert plan.holds == plan.price
        assert Decimal("0.998") * share < plan.price.renyi <= share
    told = plan.document()
    assert told["degrees"]["values"] == 60
    assert told["degrees"]["error"] == pytest.approx(plan.degrees.noise.variance**0.5, rel=1e-5)
    assert (told["cells"], told["noise"], told["measurements"]) == (1770, "flips", 2)
    assert told["noise_scale"] == float(plan.buy.noise.scale)
    assert "degrees" not in near.document()
    few = planned(GRAPH, WHOLE, epsilon=Decimal(1), mechanism=SYNTHETIC)
    assert few.degrees is None
    assert few.price == planned(GRAPH, WHOLE, epsilon=Decimal(1)).price


@pytest.mark.parametrize(
    ("spec", "words", "says"),
    [
        (MATRIX, {"mechanism": {"method": "synthetic_graph"}}, "makes graphs"),
        (GRAPH, {"mechanism": {"method": "gaussian"}}, "use histogram or synthetic_graph"),
        (GRAPH, {"mechanism": {"options": {"rounds": 3}}}, "rounds does not belong"),
        ({**GRAPH, "nodes": 5794}, {}, "16,777,216 of bits"),
        (
            {**GRAPH, "nodes": 2049},
            {"mechanism": {"method": "synthetic_graph", "options": {"geometry": "cut_norm"}}},
            "at most 2,048 nodes a side",
        ),
        ({**MATRIX, "rows": 4096, "columns": 1025}, {}, "4,194,304 of numbers"),
        (GRAPH, {"epsilon": Decimal("1e-27")}, "share"),
    ],
)
def test_what_has_no_plan_says_why(spec: dict[str, Any], words: dict[str, Any], says: str) -> None:
    """Would catch a refusal that is an error, and a limit that is off by one."""
    with pytest.raises(PlanInfeasible, match=says):
        planned(spec, **words)
    planned({**GRAPH, "nodes": 5793})
