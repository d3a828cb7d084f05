"""An audit of measured answers: real noise through the whole service, held against the law that the plan states.

A thousand different questions on data that the audit knows. What is left of each answer must be a draw of its own from
the plan's law: its size by the sum of a statistic whose law is known exactly (of Gaussian noise squares, of Laplace
noise magnitudes), its shape by the likelihood beside that of the other law of the same deviation. Wrong alarms have
probability below 1e-6 a test; a planted fault is missed with a probability of some 1e-4 at most.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from app.bootstrap.noise import SystemNoise
from app.privacy.noise import NoiseBlock
from tests.kit.noise import Scaled
from tests.kit.world import SHAPE, World, distinct_queries, make_world, wait

pytestmark = pytest.mark.statistical

QUESTIONS = 1000
ALARM = 1e-7
#: Counts of no pattern, so that an answer to another question is no draw around this one's truth.
COUNTS = np.random.default_rng(1).integers(0, 10_000, SHAPE)


class Swapped(SystemNoise):
    """A planted fault: Laplace noise of the same deviation in the place of Gaussian noise, and the other way round."""

    def laplace(self, scale: Any, ahead: int = 1024) -> NoiseBlock:
        return super().gaussian(Fraction(scale) * Fraction(2**0.5), ahead)

    def gaussian(self, scale: Any, ahead: int = 1024) -> NoiseBlock:
        return super().laplace(Fraction(scale) / Fraction(2**0.5), ahead)


class Reused(SystemNoise):
    """A planted fault: each value is handed out twice."""

    def laplace(self, scale: Any, ahead: int = 1024) -> Any:
        return _Twice(super().laplace(scale, ahead))

    def gaussian(self, scale: Any, ahead: int = 1024) -> Any:
        return _Twice(super().gaussian(scale, ahead))


class _Twice:
    low = False

    def __init__(self, source: NoiseBlock) -> None:
        self._source, self._kept = source, None

    def take(self, n: int) -> Any:
        if self._kept is None:
            self._kept = self._source.take(n)
            return self._kept.copy()
        kept, self._kept = self._kept, None
        return kept


def standardised(folder: Path, law: str, noise: SystemNoise) -> np.ndarray:
    """What is left of the answers, in units of the plan's scale, in the order asked."""
    world: World = make_world(folder, noise=noise)
    try:
        world.register("d", COUNTS, records_public=True)
        ann = world.analyst("ann")
        id = world.open(ann, "d", mechanism={"construction": law}, epsilon=1.0, max_queries=QUESTIONS, max_updates=None)
        scale = world.built.services.sessions.get(ann, id)["plan"]["noise_scale"]
        asked = list(islice(distinct_queries(), QUESTIONS))
        answers = wait(world.submit(ann, id, *asked, kind="batch"))["answers"]
        places = [(each["where"]["a"]["equals"], each["where"]["b"]["in"]) for each in asked]
        left = [(answer["value"] - COUNTS[place].sum()) / scale for place, answer in zip(places, answers, strict=True)]
        if type(noise) is SystemNoise:
            world.audit()
    finally:
        world.stop()
    return np.array(left)


def alarms(left: np.ndarray, law: str) -> list[str]:
    """What is wrong with draws that should be independent ones of a standard law."""
    found = []
    if law == "gaussian":
        size = stats.chi2(len(left)).cdf(float(left @ left))
        stated, other = stats.norm(), stats.laplace(scale=0.5**0.5)
    else:
        size = stats.gamma(len(left)).cdf(float(np.abs(left).sum()))
        stated, other = stats.laplace(), stats.norm(scale=2**0.5)
    if not ALARM < size < 1 - ALARM:
        found.append("size")
    # By Markov's inequality the other law is this much likelier with a probability of at most ALARM.
    if float((other.logpdf(left) - stated.logpdf(left)).sum()) > -np.log(ALARM):
        found.append("shape")
    # Ranks of neighbours are independent: their correlation is about normal with deviation 1/sqrt(n).
    rank = stats.spearmanr(left[::2], left[1::2]).statistic
    if abs(rank) * np.sqrt(len(left) / 2) > stats.norm.isf(ALARM):
        found.append("dependence")
    return found


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_the_service_adds_the_noise_that_it_states(law: str, tmp_path: Path) -> None:
    """Would catch noise of another scale or law, and noise that is used twice: see the faults below."""
    assert alarms(standardised(tmp_path / "data", law, SystemNoise()), law) == []


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("fault", "alarm"),
    [
        (lambda: Scaled(Fraction(7, 10)), "size"),
        (lambda: Scaled(Fraction(13, 10)), "size"),
        (Swapped, "shape"),
        (Reused, "dependence"),
    ],
    ids=["30 percent too small", "30 percent too large", "the other law", "used twice"],
)
def test_other_noise_is_found(law: str, fault: Callable[[], SystemNoise], alarm: str, tmp_path: Path) -> None:
    assert alarm in alarms(standardised(tmp_path / "data", law, fault()), law)
