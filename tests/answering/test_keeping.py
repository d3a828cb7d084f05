"""What is kept, and what it takes."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.curator import opening
from app.curator.dataset import PublicDataset
from app.declarations.spec import parse_spec
from app.estimation import tails
from app.keeping import Kept

pytestmark = pytest.mark.unit


@given(st.lists(st.integers(1, 9), max_size=60), st.integers(1, 12), st.integers(1, 5))
def test_the_last_ones_are_kept(asked: list[int], most: int, count: int) -> None:
    """Against a list of what was asked for last, a value taking as many bytes as it says. Would catch values that are
    made again, ones that stay too long, and one that is not kept because it is large."""
    kept: Kept[int] = Kept(most, count)
    last: list[int] = []
    for key in asked:
        made: list[int] = []
        assert kept.get(key, lambda key=key, made=made: made.append(key) or key, lambda value: value) == key
        assert bool(made) == (key not in last)
        last = [*(each for each in last if each != key), key]
        while len(last) > count or (len(last) > 1 and sum(last) > most):
            last.pop(0)
        assert kept.held() == sum(last)
    kept.clear()
    assert kept.held() == 0


@pytest.mark.slow
def test_caches_of_what_may_be_large_are_bounded() -> None:
    """Laws of noise of very many steps, and declarations of very many values. Would catch a cache that counts what it
    keeps and not how large it is.
    """
    for scale in range(400, 1000, 4):
        tails._squares("laplace", scale / 4, 63)
        tails._masses("laplace", 10.0 * scale)
        assert tails._SQUARES.held() <= 1 << 23
        assert tails._MASSES.held() <= 1 << 23
    declared = {"name": "t", "kind": "table", "budget": {"epsilon": 1, "delta": 1e-6}}
    for first in range(12):
        values = [f"{first}-{k}" for k in range(30_000)]
        spec = parse_spec(declared | {"attributes": [{"name": "a", "values": values}]})
        descriptor = orjson.dumps(PublicDataset(spec).descriptor())
        assert opening._shared(descriptor).spec == spec
        assert 32 * len(descriptor) <= opening.held() <= 32 << 20
