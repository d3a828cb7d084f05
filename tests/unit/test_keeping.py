"""What is kept, and what it takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.keeping import Kept


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
