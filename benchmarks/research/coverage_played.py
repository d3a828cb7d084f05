"""The service's own sessions and releases, without a server: the same plans, decisions, measurements and intervals.

Noise has the laws that are stated, drawn by NumPy from a seed, so that many sessions are played fast and again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np

from app.curator.dataset import PublicDataset
from app.curator.mechanisms.evidence import Evidence
from app.curator.mechanisms.protocol import NO_TARGET, Answer, Buy, Due, MarginalTest, Measure, Target, Units
from app.curator.mechanisms.release import job_of
from app.curator.mechanisms.round import play_marginal
from app.curator.opening import Opening, Pins
from app.curator.planning import chosen, make_plan
from app.curator.request import parse_request
from app.curator.session import Session
from app.declarations.spec import parse_spec
from app.estimation.intervals import Estimates
from app.policies.quantiles import Quantile
from app.privacy.ledger import Amounts
from app.releases.finishing import Outcome, finish
from app.services.measuring import measured_all
from app.services.release_measuring import Ready, measured_for
from app.spaces.counts import ExactCounts
from app.spaces.queries.registry import parse_query
from app.spaces.queries.statistic import StatisticOfNumbers
from app.spaces.query import Query
from app.spaces.tensor import FloatArray, IntArray

#: Up to this scale Gaussian noise is looked up in its own law; beyond it rounded normal noise has a variance that is
#: larger by less than a part in 50,000.
_LOOKED_UP = 64


@cache
def _gaussian_law(scale: float) -> tuple[IntArray, FloatArray]:
    """Whole numbers, and the probabilities that discrete Gaussian noise is no more."""
    reach = math.ceil(12 * scale) + 1
    places = np.arange(-reach, reach + 1)
    weights = np.exp(-np.square(places / scale) / 2)
    return places, np.cumsum(weights) / weights.sum()


@dataclass
class Drawn:
    """Noise as the service draws it, by NumPy.

    Args:
        rng: of everything.
        stretch: by how much noise is larger than is said: of another number than 1 intervals must not hold.
    """

    rng: np.random.Generator
    stretch: float = 1.0

    def laplace(self, scale: Any, ahead: int = 1) -> _Source:
        """Discrete Laplace noise."""
        return _Source(self, "laplace", float(scale) * self.stretch)

    def gaussian(self, scale: Any, ahead: int = 1) -> _Source:
        """Discrete Gaussian noise."""
        return _Source(self, "gaussian", float(scale) * self.stretch)

    def flips(self, probability: Any) -> _Source:
        """Bits that are 1 with this probability."""
        return _Source(self, "flips", float(probability))

    def poisson(self, mean: Any, cut: int) -> _Source:
        """Secret counts of races."""
        return _Source(self, "poisson", float(mean), cut)

    def choose(self, scores: IntArray, scale: Any) -> int:
        """The exponential mechanism."""
        return int(np.argmax(scores / float(scale) + self.rng.gumbel(size=len(scores))))


@dataclass
class _Source:
    """One law of a :class:`Drawn`."""

    of: Drawn
    law: str
    scale: float
    cut: int = 0
    low = False

    def take(self, n: int = 1) -> Any:
        """So many values."""
        rng = self.of.rng
        match self.law:
            case "laplace":
                ratio = -math.expm1(-1 / self.scale)
                return rng.geometric(ratio, n) - rng.geometric(ratio, n)
            case "gaussian" if self.scale <= _LOOKED_UP:
                places, below = _gaussian_law(self.scale)
                return places[np.searchsorted(below, rng.random(n))]
            case "gaussian":
                return np.rint(rng.normal(0, self.scale, n)).astype(np.int64)
            case "flips":
                return (rng.random(n) < self.scale).astype(np.uint8)
        return min(int(rng.poisson(self.scale)), self.cut)


@dataclass(frozen=True, eq=False)
class Setting:
    """A data set with a session's or a release's opening, played as often as is wanted.

    Attributes:
        opening: of each time.
        data: the private numbers.
    """

    opening: Opening
    data: ExactCounts
    compiled: dict[str, Query] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        declared: Mapping[str, Any],
        data: ExactCounts,
        asked: Mapping[str, Any],
        *,
        delta: float,
        records: float | None = None,
        pure: bool = False,
    ) -> Setting:
        """A setting of a data set of which nothing was ever asked.

        Args:
            declared: the data set, without a budget: the session has all of it.
            data: its numbers.
            asked: the session, without its data set.
            delta: of the budget.
            records: how many there are, where that is public.
            pure: whether a session of pure noise may take all of the budget.

        Raises:
            PlanInfeasible: when there is no such session.
        """
        epsilon = float(asked["epsilon"])
        spec = parse_spec({**declared, "name": "covered", "budget": {"epsilon": epsilon, "delta": delta}})
        dataset = PublicDataset(spec, records)
        if pure:
            dataset = PublicDataset(spec, records, left=Amounts(dataset.budget.total, Decimal(str(epsilon))))
        request = chosen(dataset, parse_request({**asked, "dataset": "covered"}))[0]
        return cls(Opening(dataset, request, make_plan(dataset, request), None, Pins((), ())), data)

    @property
    def mode(self) -> str | None:
        """How the session pays, where its plan says that."""
        return getattr(self.opening.plan, "mode", None)

    def query(self, words: Mapping[str, Any]) -> Query:
        """A query, compiled once."""
        name = repr(words)
        if name not in self.compiled:
            self.compiled[name] = parse_query(dict(words)).compiled(self.opening.dataset.space)
        return self.compiled[name]


@dataclass(frozen=True, eq=False)
class Told:
    """One answer as it was told: an array entry for each of its numbers, in the order that people read.

    Attributes:
        values: NaN where there is none.
        accuracy: with arrays in the same order; None where nothing is known.
        bound: what every answer of the session keeps with the session's probability; None where nothing is promised.
    """

    values: FloatArray
    accuracy: Estimates | None
    bound: float | None


class Played:
    """A session that was opened.

    Args:
        setting: what of.
        noise: of everything.
    """

    def __init__(self, setting: Setting, noise: Drawn) -> None:
        self._setting, self._noise = setting, noise
        self.session = Session(setting.opening)
        space = setting.opening.dataset.space
        for measured in measured_all(noise, space, setting.data, self.session.purchases()):
            self.session.pin(measured)

    def ask(self, words: Mapping[str, Any], target: Target = NO_TARGET) -> Told:
        """An answer; asked again it is the first one, known by now as well as it says.

        Raises:
            CuratorError: when it is refused.
        """
        query, session = self._setting.query(words), self.session
        due = session.consider(query, target=target)
        if not isinstance(due, Answer):
            released = self._play(query, due)
            due = session.apply(query, due, released)
        accuracy = session.accuracy(query, due, target)
        session.record(query, due)
        values = np.array([math.nan if v is None else v for v in session.values(query, due.units)])
        return Told(query.ordered(values), None if accuracy is None else _ordered(query, accuracy), due.error_bound)

    def query(self, words: Mapping[str, Any]) -> Query:
        """A query of the session's data set."""
        return self._setting.query(words)

    def ranges(self, words: Mapping[str, Any]) -> list[IntArray] | None:
        """Of a quantile that was answered, for each number the places between which records were counted; None where
        nothing was.
        """
        query = self._setting.query(words)
        assert isinstance(query, StatisticOfNumbers)
        assert isinstance(self.session.state, Evidence)
        kind = self.session.state.statistics._kind(query)
        assert isinstance(kind, Quantile)
        distributions = kind._distributions()
        if distributions is None:
            return None
        found = list(distributions)
        groups = np.repeat(np.arange(len(found)), len(query.levels))
        return [found[group].ends for group in query.ordered(groups).tolist()]

    def _play(self, query: Query, due: Due) -> Units | None:
        data, noise = self._setting.data, self._noise
        if isinstance(due, MarginalTest):
            private = due.purchase.strategy.exact(self.session.dataset.space, data)
            race, fresh = due.race, _of(noise, due.fresh).take(len(private))
            tests = _of(noise, due.noise).take(1 if race is None else race.cut)
            count = 1 if race is None else noise.poisson(race.mean, race.cut).take()
            return play_marginal(private, due.counts, tests, count, due.threshold, fresh)
        if isinstance(due, Buy):
            exact = due.purchase.strategy.exact(self.session.dataset.space, data)
            return due.purchase.strategy.released(exact, due.purchase.noise, noise)
        assert isinstance(due, Measure)
        exact = np.atleast_1d(np.asarray(query.exact(data), np.int64))
        private = np.asarray(self.session.dataset.space.to_answer_grid(exact, query))
        released: Units = private + _of(noise, due.noise).take(len(private))
        return released


def released(setting: Setting, noise: Drawn, seed: int) -> Outcome:
    """What comes of a release."""
    opening = setting.opening
    made = measured_for(Ready(opening, [], setting.data), noise)
    job = job_of(opening, [], [measured.measurement for measured in made], seed)
    return finish(job, lambda part: None)


def _of(noise: Drawn, law: Any) -> _Source:
    return noise.laplace(law.scale) if law.law == "laplace" else noise.gaussian(law.scale)


def _ordered(query: Query, accuracy: Estimates) -> Estimates:
    return accuracy.each(lambda array: np.asarray(query.ordered(array)))
