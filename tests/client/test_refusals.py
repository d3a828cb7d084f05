"""Errors: each problem of the service is a class, with numbers where it names some and what to do next."""

from __future__ import annotations

import copy
import json
import math
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.http.problems import PROBLEMS, document
from app.services.errors import BudgetExhausted
from curator_client import errors
from curator_client.errors import BatchFailed, MissingExtra, Refused, refusal

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("code", sorted(PROBLEMS))
def test_every_problem_of_the_service_has_a_class(code: str) -> None:
    """Would catch a problem that people cannot tell from others by its class."""
    status, title = PROBLEMS[code]
    error = refusal({"type": f"/problems/{code}", "title": title, "status": status, "detail": "so it is"}, status)
    assert type(error) is not Refused
    assert (error.type, error.title, error.status, error.detail) == (code, title, status, "so it is")
    # Of a statement the detail begins with the place, as compilers say it.
    assert str(error).startswith("so it is" if code == "sql-refused" else f"{title}: so it is")


def test_amounts_of_a_budget() -> None:
    """What the service itself says. Would catch a number that is lost on its way."""
    body = document(BudgetExhausted("too much", requested=0.5, remaining="0.25"))
    error = refusal(json.loads(json.dumps(body)), 409)
    assert isinstance(error, errors.BudgetExhausted)
    assert (error.requested, error.remaining) == (0.5, 0.25)
    assert math.isnan(errors.BudgetExhausted("budget-exhausted", "no", 409).remaining)
    exact = refusal({"type": "/problems/plan-infeasible", "needed": 0.2, "left": 0.1}, 422)
    assert isinstance(exact, errors.TooExact)
    assert (exact.needed, exact.left) == (0.2, 0.1)


def test_the_place_in_a_statement_is_shown() -> None:
    """Would catch a caret that stands below another word."""
    told = "line 2, column 8: age is counted in bins of five years: say age >= 30 AND age < 65"
    place = {"line": 2, "column": 8, "length": 3, "near": "age", "hint": "say age >= 30 AND age < 65"}
    error = refusal({"type": "/problems/sql-refused", "detail": told} | place, 422)
    assert isinstance(error, errors.SqlRefused)
    assert str(error) == told
    error.statement = "SELECT COUNT(*) FROM t\n\tWHERE age BETWEEN 30 AND 64"
    first, line, caret = str(error).split("\n")
    assert first == told
    assert line[caret.index("^") : caret.rindex("^") + 1] == "age"
    assert (error.near, error.hint) == ("age", "say age >= 30 AND age < 65")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    error.statement = "SELECT"
    assert str(error) == told


@pytest.mark.parametrize(("status", "kind"), [(401, errors.BadKey), (503, errors.Unavailable), (418, Refused)])
def test_what_is_no_problem_object_is_known_by_its_status(status: int, kind: type[Refused]) -> None:
    """Replies of what stands between. Would catch a proxy's page that is no error of this package."""
    error = refusal("<html>", status, retry_after=3.0)
    assert type(error) is kind
    assert (error.status, error.retry_after) == (status, 3.0)
    assert f"HTTP {status}" in str(error)


@given(st.dictionaries(st.sampled_from(["type", "title", "status", "detail", "line", "column", "retry_after", "hint"]),
                       st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.lists(st.integers()))
       , st.sampled_from([200, 409, 422, 500]))  # fmt: skip
def test_any_body_is_a_refusal(body: dict[str, Any], status: int) -> None:
    """Would catch a hostile reply that ends the caller by another error than a refusal."""
    for kind in ("", "/problems/sql-refused", "/problems/budget-exhausted"):
        error = refusal(body | ({"type": kind} if kind else {}), status)
        if isinstance(error, errors.SqlRefused):
            error.statement = "SELECT\n1"
        assert str(error)
        assert copy.copy(error).args == error.args


def test_errors_travel_between_processes() -> None:
    """Would catch an error that a pool of processes cannot hand back."""
    error = refusal({"type": "/problems/budget-exhausted", "title": "no", "requested": 1}, 409)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.requested) == (errors.BudgetExhausted, str(error), 1.0)
    batch = pickle.loads(pickle.dumps(BatchFailed([error])))
    assert "1 of 1 questions" in str(batch)


def test_what_is_missing_is_named_with_its_command() -> None:
    """Would catch a text that leaves people to search for the package."""
    error = MissingExtra("polars")
    assert "pip install 'curator-client[polars]'" in str(error)
    assert isinstance(error, ImportError)
