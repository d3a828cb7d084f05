"""How often the intervals of sums, means and variances hold, with the service's own plans and noise.

Two tables of 1,200 persons in five regions. Of the small one a session counts every combination of values once, with
Laplace noise: sums and moments follow from counts, and go with the numbers of records. The other has too many
combinations for that: a session buys counts and moments by question, with Gaussian noise, over groups of 100 to 300.
What is bought is decided once, and released sixty times with noise from a seed.

Bounds are nominal .95 less, and more, than chance explains: groups share some noise. Where the bounds of numbers cut
intervals on one side they hold more often.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from app.curator.dataset import PublicDataset
from app.curator.planners.table import funds_of, residuals_of
from app.curator.request import parse_request
from app.declarations.spec import parse_spec
from app.estimation.tables.residuals import Residuals
from app.measurements.pieces import pieces_of
from app.measurements.record import Measurement
from app.measurements.strategies.tables import Moment
from app.policies.statistics import Statistics
from app.policies.table import Policy, Wanted
from app.spaces.queries.registry import parse_query
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.records import RecordsTensor

pytestmark = pytest.mark.statistical

PERSONS, REGIONS = 1200, 5
RANDOM = np.random.default_rng(5)
SEX, JOB = RANDOM.integers(0, 2, PERSONS), RANDOM.integers(0, 400, PERSONS)
REGION = np.minimum(RANDOM.integers(0, REGIONS, PERSONS), RANDOM.integers(0, REGIONS, PERSONS))
#: Most are small, and one in seven has none.
ROOMS = np.minimum(RANDOM.geometric(0.4, PERSONS), 4)
AGE = np.minimum(RANDOM.geometric(0.06, PERSONS) + 9, 70)
NONE = RANDOM.random(PERSONS) < 1 / 7
TABLES: dict[str, tuple[list[dict[str, Any]], list[np.ndarray]]] = {
    "rooms": (
        [{"name": "rooms", "lower": 1, "upper": 4, "grid": 1, "missing": True}],
        [np.where(NONE, 4, ROOMS - 1)],
    ),
    "age": (
        [
            {"name": "age", "lower": 10, "upper": 70, "grid": 1, "missing": True, "bins": 3},
            {"name": "job", "size": 400},
        ],
        [np.where(NONE, 61, AGE - 10), JOB],
    ),
}


class Play:
    """A session on one of the tables, as far as evidence goes: what it would buy, and what is released of that."""

    def __init__(self, name: str, epsilon: float, questions: Sequence[dict[str, Any]]) -> None:
        attributes, columns = TABLES[name]
        attributes = [{"name": "sex", "size": 2}, {"name": "region", "size": REGIONS}, *attributes]
        declared = {"kind": "table", "attributes": attributes, "records_public": True, "name": "d"}
        spec = parse_spec(declared | {"budget": {"epsilon": epsilon, "delta": 1e-9}})
        self._dataset = PublicDataset(spec, records=float(PERSONS))
        how = {"construction": "histogram" if name == "rooms" else "evidence"}
        asked = {"dataset": "d", "mechanism": how, "epsilon": epsilon, "max_queries": 20}
        self._request = parse_request(asked)
        self._data = RecordsTensor([SEX, REGION, *columns], self._dataset.space.shape)
        self.asked: list[CompiledStatistic] = []
        for words in questions:
            query = parse_query(words).compiled(self._dataset.space)
            assert isinstance(query, CompiledStatistic)
            self.asked.append(query)
        policy, moments, rng = self._begun(), dict[Moment, Residuals](), np.random.default_rng(0)
        self.mode = policy.mode
        self._bought = list(policy.opening())
        for buy in self._bought:
            self._learn(policy, moments, buy, rng)
        left = float(funds_of(self._dataset, self._request).renyi)
        for statistic in self.asked:
            buy = Statistics(policy, moments).decide(statistic, left / 2, None, 0.95)
            if buy is not None:
                self._bought.append(buy)
                self._learn(policy, moments, buy, rng)
            policy.note(statistic.question, paid=buy is not None)

    def _begun(self) -> Policy:
        residuals = residuals_of(self._dataset.space, self._dataset.records)
        return Policy(residuals, funds_of(self._dataset, self._request))

    def _learn(self, policy: Policy, moments: dict[Moment, Residuals], buy: Wanted, rng: np.random.Generator) -> None:
        exact, noise = buy.strategy.exact(None, self._data), buy.noise
        scale, size = float(buy.noise.scale), len(exact)
        if buy.noise.kind == "laplace":
            ratio = -np.expm1(-1 / scale)
            drawn = rng.geometric(ratio, size) - rng.geometric(ratio, size)
        else:
            drawn = np.rint(rng.normal(0, scale, size)).astype(np.int64)
        for moment, piece in pieces_of(Measurement(buy.strategy, noise, exact + drawn)):
            known = (
                policy.residuals if moment is None else moments.setdefault(moment, Residuals(self._dataset.space.shape))
            )
            known.add(piece)

    def held(self, truths: Sequence[np.ndarray], draws: int) -> list[float]:
        """For each question the part of nominal 95% intervals that hold what is true."""
        rng, found = np.random.default_rng(1), [[] for _ in truths]  # type: list[list[np.ndarray]]
        for _ in range(draws):
            policy, moments = self._begun(), dict[Moment, Residuals]()
            for buy in self._bought:
                self._learn(policy, moments, buy, rng)
            statistics = Statistics(policy, moments)
            for statistic, truth, own in zip(self.asked, truths, found, strict=True):
                shown = statistics.shown(statistic, 0.95, False)
                assert shown.unbiased.all()
                told = ~np.isnan(shown.values)
                assert told.mean() > 0.5
                own.append(((shown.lows <= truth + 1e-9) & (truth <= shown.highs + 1e-9))[told])
        return [float(np.concatenate(own).mean()) for own in found]


#: Of the records that each question is asked of, which there are: all, those of a sex, those of some numbers, and those
#: of which either is so.
FORMS: dict[str, dict[str, tuple[dict[str, Any], np.ndarray]]] = {
    "rooms": {
        "all": ({}, np.ones(PERSONS, bool)),
        "where": ({"where": {"sex": 0}}, SEX == 0),
        "own": ({"where": {"rooms": {"ge": 2}}}, ROOMS >= 2),
        "any": ({"where": {"any": [{"sex": 0}, {"rooms": {"ge": 2}}]}}, (SEX == 0) | (ROOMS >= 2)),
    },
    "age": {
        "all": ({}, np.ones(PERSONS, bool)),
        "where": ({"where": {"sex": 0}}, SEX == 0),
        "own": ({"where": {"age": {"ge": 12, "lt": 30}}}, (AGE >= 12) & (AGE < 30)),
        "any": ({"where": {"any": [{"sex": 0}, {"age": {"le": 30}}]}}, (SEX == 0) | (AGE <= 30)),
    },
}


def true(kind: str, values: np.ndarray) -> float:
    return float({"sum": np.sum, "mean": np.mean, "variance": np.var}[kind](values))


@cache
def played(name: str, form: str, epsilon: float) -> dict[str, float]:
    """By region, for sums, means and variances."""
    more, who = FORMS[name][form]
    kinds, numbers = ("sum", "mean", "variance"), {"rooms": ROOMS, "age": AGE}[name]
    words = [{"type": kind, "of": name, "group_by": ["region"]} | more for kind in kinds]
    groups = [numbers[who & ~NONE & (place == REGION)] for place in range(REGIONS)]
    play = Play(name, epsilon, words)
    assert play.mode == ("table" if name == "rooms" else "lift")
    return dict(zip(kinds, play.held([np.array([true(kind, g) for g in groups]) for kind in kinds], 120), strict=True))


@pytest.mark.parametrize("form", ["all", "where", "own", "any"])
@pytest.mark.parametrize("kind", ["sum", "mean", "variance"])
@pytest.mark.parametrize(("name", "epsilon"), [("rooms", 1.0), ("age", 3.0)])
def test_intervals_hold(name: str, epsilon: float, form: str, kind: str) -> None:
    """Of 600, which share some noise. Would catch numbers of records and moments that are taken for independent where
    both follow from the same counts, and variances of the first order."""
    assert 0.92 <= played(name, form, epsilon)[kind] <= 0.98
