"""Declarations: what they make, what they refuse, and that a descriptor says all of it."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from app.curator.dataset import PublicDataset
from app.declarations.attributes import Attribute
from app.declarations.errors import InvalidDataset, InvalidRequest
from app.declarations.spec import TableSpec, parse_spec, written
from app.spaces.errors import InvalidQuery
from app.spaces.factory import space_of
from app.spaces.queries.registry import parse_query
from tests.kit.strategies import BUDGET, bin_edges, universes

pytestmark = pytest.mark.unit

OWN = {"name": "d", "budget": BUDGET}


def table(*attributes: Any, **more: Any) -> dict[str, Any]:
    return OWN | {"kind": "table", "attributes": list(attributes)} | more


def graph(**more: Any) -> dict[str, Any]:
    return OWN | {"kind": "graph", "nodes": 3} | more


def bipartite(**more: Any) -> dict[str, Any]:
    return OWN | {"kind": "bipartite", "left": 2, "right": 3} | more


def matrix(**more: Any) -> dict[str, Any]:
    return OWN | {"kind": "matrix", "rows": 2, "columns": 2, "lower": 0, "upper": 5} | more


def binned(**more: Any) -> dict[str, Any]:
    return table({"name": "x"} | more)


CODES = {"name": "x", "size": 2}

REFUSED: list[tuple[Any, str]] = [
    (None, "JSON object"),
    ([], "JSON object"),
    (OWN, "kind: say which: table, bipartite, graph, matrix, multiset"),
    (OWN | {"kind": "tree"}, "table"),
    (table(), "attributes"),
    (table(*({"name": f"x{i}", "size": 1} for i in range(61))), "attributes"),
    (table(CODES, CODES), "attribute names must be distinct"),
    (table({"name": "x"}), "exactly one of size, values, or lower and upper"),
    (table({"size": 2}), "name"),
    (table({"name": "", "size": 2}), "name"),
    (table(CODES | {"values": ["a", "b"]}), "exactly one of size, values, or lower and upper"),
    (table(CODES | {"lower": 0}), "exactly one of size, values, or lower and upper"),
    (table(CODES | {"bins": 2}), "exactly one of size, values, or lower and upper"),
    (table(CODES | {"colour": "red"}), "colour"),
    (table(CODES, colour="red"), "colour"),
    (table({"name": "x", "size": 0}), "size"),
    (table({"name": "x", "size": 2**31}), "size"),
    (table({"name": "x", "size": 2.5}), "size"),
    (table({"name": "x", "size": math.inf}), "size"),
    (table({"name": "x", "size": "2"}), "size"),
    (table({"name": "x", "size": True}), "size"),
    (table({"name": "x", "values": []}), "values"),
    (table({"name": "x", "values": ["a", "a"]}), "values must be distinct"),
    (table({"name": "x", "values": ["1", 1]}), "values must be distinct"),
    (table({"name": "x", "values": ["a", 1.5]}), "categories are strings or integers"),
    (table({"name": "x", "values": ["a", True]}), "categories are strings or integers"),
    (table({"name": "x", "values": ["a", None]}), "values"),
    (table({"name": "x", "values": [2**53 + 1]}), "declare them as strings"),
    (binned(lower=0), "needs lower and upper, or edges"),
    (binned(bins=4), "needs lower and upper, or edges"),
    (binned(lower=1, upper=1), "upper must be above lower"),
    (binned(lower=2, upper=1), "upper must be above lower"),
    (binned(lower=0, upper=0.5), "bins or edges are needed unless lower and upper are integers"),
    (binned(lower=0, upper=10**7), "more than 1,000,000 unit bins: declare bins or edges"),
    (binned(lower=0, upper=1, bins=0), "bins"),
    (binned(lower=0, upper=1, bins=1_000_001), "bins"),
    (binned(lower=0, upper=1, bins=2.5), "bins"),
    (binned(lower=10**9, upper=10**9 + 1, bins=10**6), "bins are narrower than numbers can tell apart"),
    (binned(lower=True, upper=2), "must be a number"),
    (binned(lower="zero", upper=2), "lower"),
    (binned(lower=0, upper=math.nan), "upper"),
    (binned(lower=0, upper=math.inf), "upper"),
    (binned(lower="0", upper=2), "lower: must be a number"),
    (binned(lower=0, upper="2"), "upper: must be a number"),
    (binned(lower=Decimal("0.12345678901234567890"), upper=1, bins=2), "more digits than a JSON number keeps"),
    (binned(lower=0, upper=Decimal("1e400"), bins=2), "more digits than a JSON number keeps"),
    (binned(lower=0, upper=2**60 + 1, bins=2), "more digits than a JSON number keeps"),
    (binned(edges=[1]), "edges"),
    (binned(edges=[1, 2, 2]), "edges must increase strictly"),
    (binned(edges=[2, 1]), "edges must increase strictly"),
    (binned(edges=[0, 1], bins=1), "give bins or edges, not both"),
    (binned(edges=[0, 1], lower=0.5), "lower and upper must be the first and the last edge"),
    (binned(edges=[0, 1], upper=2), "lower and upper must be the first and the last edge"),
    (binned(edges=[0, "1"]), "edges.1: must be a number"),
    (binned(edges=[0, True]), "edges.1: must be a number"),
    (binned(edges=[0, Decimal("0.10000000000000000001"), 1]), "more digits than a JSON number keeps"),
    (table(CODES, capacity=0), "capacity"),
    (table(CODES, capacity=2**40 + 1), "capacity"),
    (table(CODES, capacity=5.5), "capacity"),
    (table(CODES, outside="ignore"), "outside"),
    (table(CODES, records_public=1), "records_public"),
    (table(CODES, access="closed"), "access"),
    (table(CODES, description="x" * 2001), "description"),
    (table(CODES) | {"budget": {"epsilon": 1}}, "budget.delta"),
    *(
        (table(CODES) | {"budget": {"epsilon": e, "delta": d}}, "budget")
        for e, d in [
            (0, 1e-6),
            (-1, 1e-6),
            (1001, 1e-6),
            (1, 0),
            (1, 1),
            (1, -1e-9),
            (math.nan, 1e-6),
            (math.inf, 1e-6),
            (1, math.nan),
            ("one", 1e-6),
            (None, 1e-6),
            (True, 1e-6),
            ("1", 1e-6),
            (1, "1e-6"),
            (Decimal("0.12345678901234567890123"), 1e-6),
            (1, Decimal("1e-400")),
        ]
    ),
    (bipartite(left=0), "left"),
    (bipartite(right=2**26 + 1), "right"),
    (bipartite(left="2"), "left"),
    (bipartite(left_labels=["a"]), "left_labels: 2 labels are needed, 1 are given"),
    (bipartite(right_labels=["a", "b", "b"]), "right_labels: labels must be distinct"),
    (bipartite(weighted="yes"), "weighted"),
    (bipartite(grid=0.3), r"grid must be 2\^-j with j from 0 to 20"),
    (bipartite(grid=2.0**-21), r"grid must be 2\^-j with j from 0 to 20"),
    (bipartite(grid=2.0), "grid"),
    (bipartite(grid=0), "grid"),
    (bipartite(grid=5e-324), r"grid must be 2\^-j with j from 0 to 20"),
    *((bipartite(grid=value), "grid: must be a number") for value in (True, "1", "0.5")),
    (graph(nodes=1), "nodes"),
    (graph(nodes=3.5), "nodes"),
    (graph(directed=1), "directed"),
    (graph(labels=["a", "b"]), "labels: 3 labels are needed, 2 are given"),
    (graph(labels=["a", "b", "a"]), "labels: labels must be distinct"),
    (graph(labels=[1, 2, 3]), "labels"),
    (graph(loops="keep"), "loops"),
    *(
        (matrix(**{name: value}), f"{name}: must be a number")
        for name in ("grid", "lower", "upper", "absent")
        for value in (True, "1")
    ),
    (matrix(rows=0), "rows"),
    (matrix(rows=True), "rows"),
    (matrix(lower=5), "upper must be above lower"),
    (matrix(lower=0.3), r"lower must lie on the grid and within 2\^20"),
    (matrix(upper=2**20 + 1), r"upper must lie on the grid and within 2\^20"),
    (matrix(upper=1e308), r"upper must lie on the grid and within 2\^20"),
    (matrix(lower=-1e308), r"lower must lie on the grid and within 2\^20"),
    (matrix(upper=math.inf), "upper"),
    (matrix(absent=6), "absent must lie between lower and upper"),
    (matrix(absent=0.3), r"absent must lie on the grid"),
    (matrix(grid=0.1), r"grid must be 2\^-j"),
    (OWN | {"kind": "multiset", "capacity": 0}, "capacity"),
    (OWN | {"kind": "multiset", "elements": 3}, "elements"),
]


@pytest.mark.parametrize(("declared", "says"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_a_declaration_that_breaks_a_rule_is_refused(declared: Any, says: str) -> None:
    """Would catch a declaration that is taken and means something else, an exception that is no refusal, a refusal
    that does not name the field, and one that repeats what was sent."""
    if isinstance(declared, dict):
        with pytest.raises(InvalidDataset, match=says) as refused:
            parse_spec(declared)
        assert refused.value.code == "invalid-dataset"
    else:
        with pytest.raises(InvalidDataset, match=says):
            parse_spec(declared)


@pytest.mark.parametrize(
    ("integral", "plain"),
    [
        (table({"name": "x", "size": 2.0}, capacity=5.0), table({"name": "x", "size": 2}, capacity=5)),
        (binned(lower=0, upper=1, bins=2.0), binned(lower=0, upper=1, bins=2)),
        (bipartite(left=2.0, right=3e0), bipartite()),
        (graph(nodes=3.0), graph()),
        (matrix(rows=2.0, columns=2.0), matrix()),
    ],
)
def test_ten_point_nought_is_the_integer_ten(integral: Any, plain: Any) -> None:
    """JSON and its schemas know one kind of number: catches a client turned away for how its library writes one, and
    a declaration that keeps a float where everything counts on an integer."""
    taken = parse_spec(integral)
    assert taken == parse_spec(plain)
    assert taken.model_dump_json() == parse_spec(plain).model_dump_json()


def test_a_declaration_that_was_written_is_read_as_it_was_declared() -> None:
    """Catches a data set that cannot be opened again, and a decimal that is written as something else than a number of
    the same value."""
    for declared in (
        binned(lower=0.25, upper=0.75, bins=2),
        binned(lower=-(2**53), upper=2**53, bins=2),
        binned(edges=[0, 0.5, 2]),
        binned(edges=[1e-300, 0.1, 1e17]),
        matrix(absent=0, grid=0.5),
        bipartite(weighted=True, grid=0.5),
    ):
        spec = parse_spec(declared)
        again = json.loads(json.dumps(written(spec)))
        assert parse_spec(again) == spec
        assert json.loads(json.dumps(written(parse_spec(again)))) == again
        assert again["budget"] == declared["budget"]


@pytest.mark.parametrize("name", [None, 5, "", "a" * 65, ".a", "-a", "a b", "a/b", "é", "a\n", "../a"])
def test_a_name_that_is_no_path_segment_is_refused(name: Any) -> None:
    """Names become parts of URLs: would catch one that is not a plain segment."""
    with pytest.raises(InvalidRequest, match="1 to 64 letters"):
        parse_spec(table(CODES) | {"name": name})


def test_a_universe_that_cannot_be_addressed_is_refused() -> None:
    """Would catch positions that leave 64 bits, and a refusal that does not name the size. Of a table no positions are
    needed, but where cells are listed."""
    wide = space_of(parse_spec(table(*({"name": f"x{i}", "size": 1024} for i in range(50)))))
    assert wide.cells == 1024**50
    with pytest.raises(InvalidQuery, match="1,099,511,627,776 cells: ask by attributes"):
        parse_query({"type": "sparse", "indices": [0], "weights": [1.0]}).compiled(wide)
    with pytest.raises(InvalidDataset, match="cells"):
        space_of(parse_spec(graph(nodes=2**20 + 1)))
    with pytest.raises(InvalidDataset, match="cells"):
        space_of(parse_spec(bipartite(left=2**21, right=2**20)))


@pytest.mark.parametrize(
    ("declared", "shape", "size", "capacity"),
    [
        (table({"name": "a", "size": 3}, {"name": "b", "values": ["x", 2]}), (3, 2), 6, 2**31 - 1),
        (table({"name": "age", "lower": 15, "upper": 95, "bins": 16}, capacity=7), (16,), 16, 7),
        (table({"name": "year", "lower": -3, "upper": 2}), (5,), 5, 2**31 - 1),
        (table({"name": "x", "edges": [0, 0.5, 10]}), (2,), 2, 2**31 - 1),
        (bipartite(), (2, 3), 6, 6),
        (graph(directed=True), (3, 3), 9, 6),  # loops are cells that hold nothing
        (graph(), (3, 3), 3, 3),  # unordered pairs
    ],
)
def test_spaces_have_the_declared_shape(declared: Any, shape: Any, size: int, capacity: int) -> None:
    """Would catch an axis too long or short, an undirected graph with twice its pairs, and a capacity that bounds
    something else than the sum of counts."""
    space = space_of(parse_spec(declared))
    assert (space.shape, space.size, space.capacity) == (shape, size, capacity)
    assert space.unit == 1
    assert space.symmetric == (declared["kind"] == "graph" and not declared.get("directed", False))


@pytest.mark.parametrize(
    ("weighted", "grid", "bits"),
    [(None, None, 0), (False, None, 0), (True, None, 10), (True, 1, 0), (True, 2.0**-20, 20), (False, 2.0**-5, 0)],
)
def test_weights_of_edges_live_on_the_declared_grid(weighted: Any, grid: Any, bits: int) -> None:
    """An edge's largest change is one count: 2^bits units."""
    space = space_of(parse_spec(graph(**({} if weighted is None else {"weighted": weighted}), grid=grid)))
    assert space.data_bits == bits


# ----------------------------------------------------------------------------------------------------- bins


def exact_edges(attribute: dict[str, Any]) -> list[Fraction]:
    made = Attribute.model_validate(attribute)
    return [made.edge_at()(number) for number in range(made.bin_count + 1)]


@given(st.integers(-(10**6), 10**6), st.integers(1, 6), st.integers(1, 400))
def test_bins_in_decimal_steps_have_exactly_the_declared_edges(low: int, digits: int, bins: int) -> None:
    """0.1 + 0.2 is not 0.3 in floats: would catch edges that are computed in them, which no query could name."""
    step = Decimal(1).scaleb(-digits)
    lower, upper = low * step, (low + bins) * step
    edges = exact_edges({"name": "x", "lower": float(lower), "upper": float(upper), "bins": bins})
    assert edges == [Fraction(low + i, 10**digits) for i in range(bins + 1)]
    spec = table({"name": "x", "lower": float(lower), "upper": float(upper), "bins": bins})
    space = space_of(parse_spec(spec))
    for i in {0, bins // 3, bins - 1}:
        between = [float((low + i) * step), float(upper)]
        query = parse_query({"type": "predicate", "where": {"x": {"between": between}}}).compiled(space)
        assert query.norm2sq == bins - i


@given(st.fractions(-1000, 1000, max_denominator=7), st.fractions(0, 50, max_denominator=7), st.integers(1, 30))
def test_any_edge_can_be_named_by_its_nearest_number(low: Fraction, width: Fraction, bins: int) -> None:
    """Thirds are no decimals: would catch a bin that no predicate can reach."""
    lower, upper = float(low), float(low + width + 1)
    attribute = {"name": "x", "lower": lower, "upper": upper, "bins": bins}
    edges = [float(e) for e in exact_edges(attribute)]
    assert edges == [float(e) for e in bin_edges(attribute)]
    space = space_of(parse_spec(table(attribute)))
    for i in range(bins):
        words = {"type": "predicate", "where": {"x": {"between": edges[i : i + 2]}}}
        query = parse_query(words).compiled(space)
        assert query.norm2sq == 1
        assert query.range == ((1.0, 1.0) if bins == 1 else (0.0, 1.0))


@pytest.mark.parametrize("asked", [0.1 + 0.2, math.nextafter(0.3, 0), math.nextafter(0.3, 1), 0.25])
def test_a_number_beside_an_edge_is_none(asked: float) -> None:
    """Would catch edges compared with a tolerance: the asked range would not be the answered one."""
    space = space_of(parse_spec(table({"name": "x", "lower": 0, "upper": 1, "bins": 10})))
    with pytest.raises(InvalidQuery, match="bin edges"):
        parse_query({"type": "predicate", "where": {"x": {"between": [asked, 1]}}}).compiled(space)


def test_edges_far_apart_keep_all_their_digits() -> None:
    """Would catch a width taken in 28 digits, which loses the lower edge."""
    edges = exact_edges({"name": "x", "lower": 1e-20, "upper": 1e20, "bins": 2})
    assert edges[0] == Fraction(1, 10**20)
    assert edges[-1] == 10**20
    assert edges[1] - edges[0] == edges[2] - edges[1]


def test_integers_in_unit_bins_are_codes_but_for_the_last() -> None:
    """[0,1), [1,2), [2,3]: 0 and 1 have a bin of their own, 2 and 3 share the last, closed one."""
    space = space_of(parse_spec(table({"name": "x", "lower": 0, "upper": 3})))

    def cells(condition: Any) -> float:
        return parse_query({"type": "predicate", "where": {"x": condition}}).compiled(space).norm2sq

    assert cells({"equals": 1}) == 1
    assert cells({"in": [0, 1]}) == 2
    assert cells({"between": [2, 3]}) == 1
    for value in (2, 3):
        with pytest.raises(InvalidQuery, match="cut a bin"):
            cells({"equals": value})


# ---------------------------------------------------------------------------------------------- descriptors


@given(universes(), st.booleans(), st.sampled_from([0, 7, 2.5]))
def test_a_descriptor_says_all_that_is_public(u, public: bool, records: float) -> None:
    """An audit recomputes everything from the descriptor: would catch a declaration that it does not bring back, in
    value or in type, also through JSON."""
    spec = parse_spec(u.declared | {"records_public": public, "description": "é €"})
    dataset = PublicDataset(spec, records if spec.mass_public else None)
    document = dataset.descriptor()
    # The number is told where it is public, and there alone.
    for wrong in ({**document, "records": None if spec.mass_public else records}, {**document, "records": 2.0**65}):
        with pytest.raises(InvalidDataset, match="records"):
            PublicDataset.from_descriptor(wrong)
    again = PublicDataset.from_descriptor(orjson.loads(rfc8785.dumps(document)))
    assert again.spec == spec
    assert again.space == dataset.space
    assert again.budget == dataset.budget
    assert rfc8785.dumps(again.descriptor()) == rfc8785.dumps(document)


@given(st.decimals("0.000001", 1000, places=6), st.floats(1e-40, 0.5))
def test_budgets_survive_the_descriptor(epsilon: Decimal, delta: float) -> None:
    """Would catch a budget that an audit would compute from another epsilon or delta than was registered."""
    spec = parse_spec(
        OWN | {"budget": {"epsilon": float(epsilon), "delta": delta}, "kind": "table", "attributes": [CODES]}
    )
    assert spec.budget.epsilon == epsilon
    document = {"epsilon": float(spec.budget.epsilon), "delta": float(spec.budget.delta)}
    assert parse_spec(table(CODES) | {"budget": document}).budget == spec.budget


def test_the_number_of_records_is_in_the_descriptor_only_where_it_is_public() -> None:
    """Would catch a count that is shown though it was not declared public."""
    spec = parse_spec(table(CODES))
    assert isinstance(spec, TableSpec)
    document = rfc8785.dumps(PublicDataset(spec).descriptor())
    assert b'"records"' not in document
    assert b'"bought"' not in document
