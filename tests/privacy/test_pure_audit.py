"""An audit of the pure sum: what a miss tells, held exactly against what the service then lets be released.

A session is opened, asks one question that is a miss, and is closed: nothing is spent. Then all that is left of the
budget is taken for one measured answer. On neighbours whose record the question counts, the chance of that miss
and the law of that answer are known from the two plans, so the delta of both together is a sum over the integers,
without any sampling. That the miss cost nothing does not make it untold: an answer with all of epsilon as pure
differential privacy behind it passes delta by orders of magnitude.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mpmath
import pytest

from app.storage.store import SqlTransaction
from tests.kit.world import World, make_world, query

pytestmark = pytest.mark.statistical

BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = make_world(tmp_path / "data")
    try:
        made.register("d", budget=BUDGET)
        yield made
    finally:
        made.stop()


def after_a_miss(world: World, release: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plans of a session that ended after one miss, and of the one that took all that was left then."""
    ann, service = world.analyst("ann"), world.built.services
    asked = {"epsilon": 1.0, "max_queries": 1, "max_updates": 1, "release": release}
    first = world.open(ann, "d", **asked)
    world.noise.script.append(0)
    assert world.ask(ann, first, query(0, 0))["source"] == "hypothesis"
    closed = world.close(ann, first)
    assert (closed["spent"], closed["updates_used"]) == ("0", 0)
    left = service.datasets.describe("d")["budget"]["remaining_epsilon"]
    assert left == 1.0
    mechanism = {"construction": "laplace"}
    second = world.open(ann, "d", mechanism=mechanism, epsilon=left, max_queries=1, max_updates=None)
    world.audit()
    return closed["plan"], service.sessions.get(ann, second)["plan"]


def units(plan: dict[str, Any], name: str) -> mpmath.mpf:
    return mpmath.mpf(plan[name]) / mpmath.mpf(plan["answer_grid"])


def miss(gap: int, tested: dict[str, Any]) -> mpmath.mpf:
    """The chance that a gap and discrete Laplace noise together stay within the threshold; of a race, that each of a
    Poisson number of them does.
    """
    ratio, threshold = mpmath.exp(-1 / units(tested, "noise_scale")), int(units(tested, "threshold"))

    def above(n: int) -> mpmath.mpf:
        return ratio**n / (1 + ratio) if n > 0 else 1 - ratio ** (1 - n) / (1 + ratio)

    within = above(-threshold - gap) - above(threshold - gap + 1)
    return within if tested["race"] is None else mpmath.exp(-tested["race"]["mean"] * (1 - within))


def delta_of(tested: dict[str, Any], measured: dict[str, Any]) -> mpmath.mpf:
    """The largest P[S] - e^epsilon Q[S] over events S of a miss and the answer after it, and over where the data lie
    among those looked at: the value of the question on the one data set, a record more on the other.
    """
    with mpmath.workdps(40):
        unit = round(1 / measured["answer_grid"])
        assert measured["answer_grid"] == tested["answer_grid"]
        threshold = int(units(tested, "threshold"))
        noise, most = units(measured, "noise_scale"), mpmath.exp(BUDGET["epsilon"])
        ratio, best = mpmath.exp(-1 / noise), mpmath.mpf(0)
        for counts in range(-60, 61, 10):
            p, q = (miss(threshold + (counts + more) * unit, tested) for more in (0, 1))
            # The answer's noise is y on the one, y - unit on the other. The likelier an answer is on the one, the less
            # is y: all up to 0 have the same odds, from there to the last one that gains anything they are summed up.
            last = min(max(0, int(mpmath.floor((noise * mpmath.log(p / (most * q)) + unit) / 2))), unit - 1)
            found = (p - most * q * ratio**unit) / (1 + ratio)
            found += ratio * (1 - ratio**last) / (1 + ratio) * (p - most * q * ratio ** (unit - last - 1))
            best = max(best, found)
        return best


@pytest.mark.parametrize("release", ["single", "race"])
def test_after_a_miss_the_answer_is_paid_in_the_other_sum(world: World, release: str) -> None:
    """Would catch a data set that passes for untouched as nothing is spent and nothing reserved."""
    tested, measured = after_a_miss(world, release)
    assert (measured["regime"], tested["reserved_pure"]) == ("renyi", None)
    assert delta_of(tested, measured) <= BUDGET["delta"]


@pytest.mark.parametrize(("release", "least"), [("single", 0.009), ("race", 0.0095)])
def test_a_miss_that_is_forgotten_is_found(
    world: World, monkeypatch: pytest.MonkeyPatch, release: str, least: float
) -> None:
    """The planted fault: the flag of the data set is not kept. What leaves then has 9,000 times its delta."""
    monkeypatch.setattr(SqlTransaction, "set_impure", lambda self, name: None)
    with pytest.raises(AssertionError):  # the books notice as well
        after_a_miss(world, release)
    ann, service = world.analyst("ann"), world.built.services
    tested, measured = (
        state["plan"] for state in sorted(service.sessions.list(ann, "", 10).items, key=lambda s: s["status"])
    )
    assert (measured["regime"], measured["noise_scale"]) == ("pure", 1.0)
    assert delta_of(tested, measured) > least, float(delta_of(tested, measured))
