"""Refusals of bodies are in this project's words: where in the JSON, what to change, and nothing of what was sent."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.curator.comparison import parse_comparison
from app.curator.request import parse_request
from app.declarations.errors import CuratorError
from app.declarations.spec import parse_spec
from app.services.query_bodies import compiled
from app.spaces.factory import space_of
from app.spaces.queries.registry import parse_query
from app.spaces.queries.request import parse_wanted
from tests.kit.foreign import FOREIGN
from tests.kit.strategies import BUDGET

pytestmark = [pytest.mark.unit, pytest.mark.slow]

#: Values that nobody declares, and that no refusal may repeat.
MARKED = ["zebra-quux", 71.618, -8173645]
TABLE: dict[str, Any] = {
    "name": "people",
    "kind": "table",
    "budget": BUDGET,
    "attributes": [
        {"name": "sex", "values": ["female", "male"]},
        {"name": "code", "size": 3, "missing": True},
        {"name": "age", "lower": 0, "upper": 80, "bins": 8},
        {"name": "wage", "lower": 0, "upper": 10, "grid": 0.5, "outside": "clamp"},
        {"name": "seen", "dates": ["2020-01-01", "2020-12-31"], "by": "month"},
    ],
    "outside": "drop",
    "records_public": True,
}
SPECS: list[dict[str, Any]] = [
    TABLE,
    {"name": "g", "kind": "graph", "nodes": 3, "labels": ["a", "b", "c"], "budget": BUDGET, "grid": 0.5},
    {"name": "b", "kind": "bipartite", "left": 2, "right": 2, "left_labels": ["a", "b"], "budget": BUDGET},
    {"name": "m", "kind": "matrix", "rows": 2, "columns": 2, "lower": 0, "upper": 1, "absent": 0, "budget": BUDGET},
    {"name": "w", "kind": "multiset", "budget": BUDGET, "capacity": 10},
]
QUERIES: list[dict[str, Any]] = [
    {"type": "predicate", "where": {"sex": "male", "age": {"ge": 10, "lt": 30}, "code": {"in": [1, None]}}},
    {"type": "predicate", "where": {"any": [{"sex": {"equals": "male"}}, {"not": {"age": {"between": [0, 10]}}}]}},
    {"type": "marginal", "attributes": ["sex", "age"], "bins": {"age": [0, 20, 80]}, "where": {"seen": "2020-05"}},
    {"type": "product", "weights": {"sex": [0.5, 1]}, "within": 5, "confidence": 0.9},
    {"type": "mean", "of": "wage", "where": {"sex": "male"}, "group_by": ["age"], "bins": {"age": [0, 20, 80]}},
    {"type": "quantile", "of": "wage", "q": [0.25, 0.5]},
    {"type": "cut", "left": [0, 1], "right": "all", "adaptive": True},
    {"type": "rank_one", "left": [0.5, 1], "right": [1, 0]},
    {"type": "sparse", "indices": [[0, 1]], "weights": [1]},
    {"type": "dense", "weights": [[1, 0.5], [0, -1]]},
    {"type": "elements", "weights": {"the": 1.0}, "unverified": True},
]
REQUESTS: list[dict[str, Any]] = [
    {"dataset": "people", "epsilon": 0.5, "max_queries": 10, "beta": 0.1, "calibration": "rdp", "release": "single"},
    {"dataset": "people", "epsilon": 0.5, "mechanism": {"construction": "evidence"}, "within": 5, "start": "nothing"},
    {"dataset": "people", "epsilon": 0.5, "max_queries": 10, "mechanism": {"construction": "smw", "sparsity": 2}},
    {
        "dataset": "people", "epsilon": 0.5, "max_queries": 10,
        "mechanism": {"construction": "md", "potential": "lp", "p": 1.5, "ball_p": "none", "zeta": 1.0},
    },
]  # fmt: skip
COMPARISON = {
    "dataset": "people", "epsilon": 0.5, "max_queries": 10,
    "mechanisms": [{"construction": "mw"}, {"construction": "median", "sampled": True, "weights": "signed"}],
}  # fmt: skip
WANTED = {"unverified": False, "adaptive": True, "within": 3.0, "confidence": 0.9}

odd = st.one_of(
    st.sampled_from([*MARKED, None, True, False, 0, -1, 2.5, "", [], {}, 10**40, 1e300, float("inf"), -0.0, "all"]),
    st.sampled_from([["zebra-quux"], {"zebra": 71.618}, [[[]]], [None], {"ge": {}}, {"in": [{}]}, {"gte": 1}]),
)
names = st.sampled_from(["typ", "wehre", "where", "mechanisms", "beat", "kind", "left", "ge", "size", "date", "xyz"])


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a document."""
    found: list[tuple[Any, Any]] = []
    if isinstance(node, dict | list):
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            found += [(node, key), *places(node[key])]
    return found


def hurt(d: st.DataObject, document: Any) -> Any:
    """A document of which parts are replaced, dropped, renamed or doubled."""
    document = copy.deepcopy(document)
    for _ in range(d.draw(st.integers(1, 3))):
        container, key = d.draw(st.sampled_from(places(document) or [({}, "")]))
        match d.draw(st.sampled_from(["replace", "drop", "rename", "more"])):
            case "drop" if container:
                del container[key]
            case "rename" if isinstance(container, dict) and container:
                container[d.draw(names)] = container.pop(key)
            case "more" if isinstance(container, dict):
                container[d.draw(names)] = copy.deepcopy(d.draw(odd))
            case _ if container:
                container[key] = copy.deepcopy(d.draw(odd))
    return document


def there(document: Any, path: str) -> bool:
    """Whether a path leads through a document, the last step apart: a field may be missing."""
    *steps, last = path.split(".")
    for step in steps:
        if isinstance(document, list) and step.isdigit() and int(step) < len(document):
            document = document[int(step)]
        elif isinstance(document, dict) and step in document:
            document = document[step]
        else:
            return False
    return isinstance(document, dict) or (isinstance(document, list) and last.isdigit())


SPACES = [space_of(parse_spec(spec)) for spec in SPECS]
READERS: dict[str, tuple[Callable[[Any], Any], list[dict[str, Any]]]] = {
    "declarations": (parse_spec, SPECS),
    "queries": (parse_query, QUERIES),
    "sessions": (parse_request, REQUESTS),
    "comparisons": (parse_comparison, [COMPARISON]),
    "what is wanted": (parse_wanted, [WANTED]),
}


@pytest.mark.parametrize("what", READERS)
def test_what_is_changed_here_was_in_order(what: str) -> None:
    """Catches documents that are refused before they are hurt, which would hide what comes behind."""
    read, documents = READERS[what]
    for document in documents:
        read(document)


@pytest.mark.parametrize("what", READERS)
@settings(max_examples=300 if settings().derandomize else 3000)
@given(d=st.data())
def test_nonsense_is_refused_in_own_words(what: str, d: st.DataObject) -> None:
    """Catches a library's sentence, a type's name in a path, a value that is repeated, and an error of another kind."""
    read, documents = READERS[what]
    document = hurt(d, d.draw(st.sampled_from(documents)))
    try:
        read(document)
    except CuratorError as refusal:
        words = refusal.detail
    else:
        return
    assert not FOREIGN.search(words), words
    assert not any(str(value) in words for value in MARKED), words
    for sentence in words.split("; "):
        where, colon, problem = sentence.partition(": ")
        if re.fullmatch(r"[a-z_]+(\.[a-zA-Z0-9_]+)+", where) and colon:
            assert there(document, where), words
            assert len(problem) >= len("is needed"), words


@settings(max_examples=300 if settings().derandomize else 3000)
@given(d=st.data())
def test_what_a_space_refuses_is_in_own_words(d: st.DataObject) -> None:
    """Catches the same behind the reading of a query: refusals of attributes, values, nodes and weights."""
    document = hurt(d, d.draw(st.sampled_from(QUERIES)))
    words = ""
    try:
        compiled(d.draw(st.sampled_from(SPACES)), document, 1 << 28)
    except CuratorError as refusal:
        words = refusal.detail
    assert not FOREIGN.search(words), words


SAID: list[tuple[Callable[[Any], Any], Any, str]] = [
    (parse_query, {"type": "predicate", "wehre": {}}, "unknown field 'wehre': did you mean 'where'?"),
    (parse_query, {"type": "predicate", "where": {"age": {"gte": 3}}}, "where.age: unknown field 'gte'"),
    (parse_query, {"type": "predicate", "where": {"age": {"gte": 3}}}, "between, in, equals, ge, gt, lt, le"),
    (parse_query, {"type": "predicate"}, "where: must be given"),
    (parse_query, {}, "type: say which: predicate, marginal, sum, mean, "),
    (parse_query, {"type": "predicat"}, "did you mean 'predicate'?"),
    (parse_query, {"type": "cut", "left": 3, "right": "all"}, "left: must be 'all' or a list"),
    (parse_query, {"type": "cut", "left": [{}], "right": "all"}, "left.0: must be a whole number or a text"),
    (parse_query, {"type": "sparse", "indices": [[0, 1.5]], "weights": []}, "indices.0.1: must be a whole number"),
    (parse_query, {"type": "predicate", "where": {"age": {"ge": []}}}, "where.age.ge: must be a text or a number"),
    (parse_query, {"type": "elements", "weights": {}}, "weights: must not be empty"),
    (parse_query, {"type": "predicate", "where": {}, "within": 0}, "within: must be above 0"),
    (parse_query, {"type": "predicate", "where": {}, "adaptive": 1}, "adaptive: must be true or false"),
    (parse_spec, {**TABLE, "kind": "tabel"}, "kind: say which: table, bipartite, graph, matrix, multiset: did you me"),
    (parse_spec, {**TABLE, "attributes": [{"name": "a", "sise": 3}]}, "attributes.0: unknown field 'sise': did you"),
    (parse_request, {"epsilon": 1, "max_queries": 0}, "dataset: must be given; max_queries: must be at least 1"),
    (parse_request, {**REQUESTS[0], "mechanism": {"construction": "medain"}}, "did you mean 'median'?"),
    (parse_request, {**REQUESTS[0], "mechanism": {"construction": "x"}}, "say which: mw, fk, md, smw, median"),
    (parse_request, {**REQUESTS[0], "mechanism": {"construction": "gaussian", "step": "paper"}}, "field 'step'"),
    (parse_request, {**REQUESTS[0], "mechanism": {"construction": "md"}}, "mechanism.potential: must be given"),
    (parse_request, {"epsilon": 1, "dataset": "t", "within": 2, "confidence": 1e-50}, "confidence: must be at least"),
    (parse_query, {"type": "predicate", "where": {}, "confidence": 1e-50}, "confidence: must be at least"),
    (parse_request, {**REQUESTS[0], "max_queries": "7"}, "max_queries: must be a whole number"),
    (parse_request, {**REQUESTS[0], **{f"x{i}": 0 for i in range(7)}}, "; and 2 more"),
    (parse_request, {**REQUESTS[0], **{f"x{i}": 0 for i in range(2000)}}, "2,000 fields are unknown"),
]  # fmt: skip


@pytest.mark.parametrize(("read", "document", "says"), SAID, ids=[says for _, _, says in SAID])
def test_what_to_change_is_said(read: Callable[[Any], Any], document: Any, says: str) -> None:
    """Catches a refusal that does not say where the problem is, which name was meant, or what there is."""
    with pytest.raises(CuratorError) as refused:
        read(document)
    assert says in refused.value.detail


def test_an_unknown_attribute_names_the_near_one_and_those_there_are() -> None:
    """Catches a refusal that leaves an analyst to guess the names, or lists a hundred of them."""
    many = {**TABLE, "attributes": [{"name": f"question_{i}", "size": 2} for i in range(30)]}
    with pytest.raises(CuratorError) as refused:
        compiled(space_of(parse_spec(many)), {"type": "predicate", "where": {"qestion_7": 1}}, 1 << 28)
    words = refused.value.detail
    assert words.startswith("unknown attribute 'qestion_7': did you mean 'question_7'? the attributes are question_0, ")
    assert words.endswith("question_19 and 10 more")
