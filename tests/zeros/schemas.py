"""Tiny tables with declared zeros, and what these say, cell by cell of the universe."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Document = dict[str, Any]
NAMES = ("a", "b", "c", "d")


def satisfied(where: Document, record: Document) -> bool:
    """Whether a record (values by name) satisfies conditions, one by one."""
    for name, condition in where.items():
        if name == "all":
            holds = all(satisfied(each, record) for each in condition)
        elif name == "any":
            holds = any(satisfied(each, record) for each in condition)
        elif name == "not":
            holds = not satisfied(condition, record)
        elif isinstance(condition, list):
            holds = record[name] in condition
        elif isinstance(condition, dict):
            holds = all(record[name] >= v if k == "ge" else record[name] <= v for k, v in condition.items())
        else:
            holds = record[name] == condition
        if not holds:
            return False
    return True


def possible_of(zeros: list[Document], sizes: tuple[int, ...]) -> NDArray[np.bool_]:
    """Which cells of the universe can hold a record."""
    found = np.ones(sizes, np.bool_)
    for cell in itertools.product(*map(range, sizes)):
        record = dict(zip(NAMES, cell, strict=False))
        found[cell] = not any(satisfied(zero, record) for zero in zeros)
    return found


def declared(sizes: tuple[int, ...], zeros: list[Document], **more: Any) -> Document:
    """The declaration of a table of codes."""
    attributes = [{"name": name, "size": size} for name, size in zip(NAMES, sizes, strict=False)]
    budget = {"epsilon": 1.0, "delta": 1e-9}
    return {"name": "t", "kind": "table", "budget": budget, "attributes": attributes, "zeros": zeros, **more}


@st.composite
def plain(draw: st.DrawFn, sizes: tuple[int, ...]) -> Document:
    """Conditions of some attributes."""
    named = draw(st.lists(st.integers(0, len(sizes) - 1), min_size=1, max_size=3, unique=True))
    where: Document = {}
    for axis in named:
        values = draw(st.lists(st.integers(0, sizes[axis] - 1), min_size=1, max_size=sizes[axis], unique=True))
        where[NAMES[axis]] = draw(st.sampled_from([values, values[0], {"le": values[0]}, {"ge": values[0]}]))
    return where


@st.composite
def schemas(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Document]]:
    """Sizes and zeros: conditions, some of them with any and not."""
    sizes = tuple(draw(st.lists(st.integers(2, 4), min_size=2, max_size=4)))
    one = plain(sizes)
    joined = st.one_of(
        one,
        st.builds(lambda kept, negated: {**kept, "not": negated}, one, one),
        st.builds(lambda some: {"any": some}, st.lists(one, min_size=1, max_size=2)),
    )
    return sizes, draw(st.lists(joined, min_size=1, max_size=4))
