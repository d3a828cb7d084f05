"""What is compared: the policy of the service, and what else could be done with the same budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from app.estimation.tables.dense_fit import DenseFit
from app.estimation.tables.dense_fit import fitted as ridge
from app.estimation.tables.local_fit import LocalFits
from app.estimation.tables.residuals import Residuals
from app.measurements.noise import Noise
from app.measurements.pieces import Counts
from app.measurements.strategies.tables import Part
from app.policies.table import Bought, Funds, Policy, Wanted
from app.privacy.ledger import Budget
from app.spaces.partition import Marginal
from app.spaces.questions import Question
from app.spaces.tensor import FloatArray
from benchmarks.research.regret_data import POOL, World

DELTA = 1e-9
#: Of this many answers intervals are looked at.
LOOKED_AT = 200
#: How many questions an analyst asks who knows the truth.
ADVERSARY = 300


@dataclass
class Score:
    """Errors of the answers to one stream. A question of many answers counts as its mean square."""

    squares: list[float] = field(default_factory=list)
    largest: float = 0.0
    covered: dict[str, list[int]] = field(default_factory=lambda: {"unbiased": [0, 0], "model": [0, 0]})
    paid: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    kappa: float = 1.0
    mode: str = ""
    left: float = 0.0

    def take(self, errors: FloatArray) -> None:
        self.squares.append(float(np.mean(np.square(errors))))
        self.largest = max(self.largest, float(np.abs(errors).max()))

    @property
    def rmse(self) -> float:
        """Root mean square over questions."""
        return math.sqrt(float(np.mean(self.squares)))

    @property
    def percentile(self) -> float:
        """The 95th percentile of the questions' root mean squares."""
        return math.sqrt(float(np.quantile(self.squares, 0.95)))


def funds(epsilon: float, pure: bool, questions: int | None) -> Funds:
    """What a session over the whole of a fresh data set's budget may pay from."""
    budget = Budget.of(Decimal(str(epsilon)), Decimal(str(DELTA)))
    return Funds(float(budget.order), float(budget.total), epsilon, pure, questions)


def drawn(table: World, buy: Wanted, rng: np.random.Generator) -> tuple[Counts, ...]:
    """A measurement of counts, of one marginal or of several at once, with noise of NumPy on whole numbers."""
    return tuple(_drawn(table, part, buy.noise, rng) for part in buy.strategy.parts)


def _drawn(table: World, part: Part, law: Noise, rng: np.random.Generator) -> Counts:
    exact = table.marginal(part.marginal).astype(np.int64) * part.multiplier
    scale = float(law.scale)
    if law.kind == "laplace":
        ratio = -math.expm1(-1 / scale)
        noise = rng.geometric(ratio, exact.shape) - rng.geometric(ratio, exact.shape)
    else:
        noise = np.rint(rng.normal(0, scale, exact.shape)).astype(np.int64)
    return Counts(part.marginal, law, exact + noise, part.multiplier)


class Session:
    """The policy and its purse."""

    def __init__(
        self, table: World, allowed: Funds, rng: np.random.Generator, residuals: Residuals | None = None
    ) -> None:
        self.table, self.rng = table, rng
        self.policy = Policy(residuals or Residuals(table.sizes), allowed)
        self.left = self.all = allowed.epsilon if self.policy.pure else allowed.renyi
        self.paid = 0
        for buy in self.policy.opening():
            self._pay(buy)
            for counts in drawn(table, buy, rng):
                self.policy.residuals.add(counts)

    def _pay(self, buy: Wanted) -> None:
        self.left -= self.policy.price(buy.noise, buy.strategy.sensitivity)
        assert self.left > -1e-9, "more was spent than there is"

    def ask(self, question: Question) -> Bought | None:
        """One question, recorded."""
        prediction, buy = self.policy.decide(question, self.left)
        bought = None
        if buy is not None:
            self._pay(buy)
            self.paid += 1
            bought = Bought(prediction, drawn(self.table, buy, self.rng))
        self.policy.record(question, bought)
        return bought


def policy(table: World, questions: list[Question], epsilon: float, seed: int, declared: int | None = -1) -> Score:
    """The service's policy. ``declared`` other than -1: a number of questions that need not be true."""
    rng = np.random.default_rng(10_000 + seed)
    score, started = Score(), time.perf_counter()
    session = Session(table, funds(epsilon, True, len(questions) if declared == -1 else declared), rng)
    score.mode = session.policy.mode
    every = max(1, len(questions) // LOOKED_AT)
    spent = time.perf_counter() - started
    for number, question in enumerate(questions):
        began = time.perf_counter()
        bought = session.ask(question)
        if number % every == 0:
            shown = session.policy.shown(question, bought, 0.95)
            values = shown.values
        else:
            values = session.policy.value(question, bought)
        took = time.perf_counter() - began
        spent, score.slowest = spent + took, max(score.slowest, took)
        exact = table.exact(question)
        score.take(values - exact)
        if number % every == 0:
            inside = (shown.lows <= exact + 1e-9) & (exact - 1e-9 <= shown.highs)
            for kind, chosen in (("unbiased", shown.unbiased), ("model", ~shown.unbiased)):
                score.covered[kind][0] += int((inside & chosen).sum())
                score.covered[kind][1] += int(chosen.sum())
    score.seconds, score.paid, score.kappa = spent, session.paid, session.policy.kappa
    score.left = session.left / session.all
    return score


def adversary(table: World, pool: list[Question], epsilon: float, seed: int) -> Score:
    """The policy against an analyst who knows the truth: see :func:`attacked`."""
    rng = np.random.default_rng(10_000 + seed)
    started = time.perf_counter()
    session = Session(table, funds(epsilon, True, ADVERSARY), rng)
    score = Score(mode=session.policy.mode)

    def answer(question: Question) -> FloatArray:
        bought = session.ask(question)
        shown, exact = session.policy.shown(question, bought, 0.95), table.exact(question)
        kind = "unbiased" if shown.unbiased else "model"
        score.covered[kind][0] += int(shown.lows <= exact + 1e-9 and exact - 1e-9 <= shown.highs)
        score.covered[kind][1] += 1
        return shown.values

    attacked(table, pool, seed, score, lambda question: session.policy.value(question, None), answer)
    score.seconds, score.paid, score.kappa = time.perf_counter() - started, session.paid, session.policy.kappa
    score.left = session.left / session.all
    return score


def attacked(
    table: World,
    pool: list[Question],
    seed: int,
    score: Score,
    foreseen: Callable[[Question], FloatArray],
    answer: Callable[[Question], FloatArray],
) -> None:
    """Questions one after another: of those of the pool on six sets of attributes drawn at random the one whose answer
    from what is public would err most."""
    choice = np.random.default_rng(20_000 + seed)
    left: dict[tuple[int, ...], list[Question]] = {}
    for question in pool:
        left.setdefault(question.attributes, []).append(question)
    for _ in range(min(ADVERSARY, len(pool))):
        sets = sorted(left)
        places = choice.choice(len(sets), min(6, len(sets)), replace=False)
        candidates = [question for place in places for question in left[sets[int(place)]]]
        errors = [abs(float(foreseen(question) - table.exact(question))) for question in candidates]
        question = candidates[int(np.argmax(errors))]
        left[question.attributes].remove(question)
        if not left[question.attributes]:
            del left[question.attributes]
        score.take(answer(question) - table.exact(question))


def gaussian_sigma(epsilon: float) -> float:
    """The least Gaussian noise of sensitivity one (Balle and Wang 2018)."""

    def beyond(logarithm: float) -> float:
        s = math.exp(logarithm)
        return float(ndtr(0.5 / s - epsilon * s) - np.exp(epsilon + log_ndtr(-0.5 / s - epsilon * s))) - DELTA

    return math.exp(brentq(beyond, -3, 12))


def gaussian(table: World, questions: list[Question], epsilon: float, seed: int) -> Score:
    """Each question measured on its own; a table is one question."""
    rng, score, started = np.random.default_rng(seed), Score(), time.perf_counter()
    sigma = gaussian_sigma(epsilon) * math.sqrt(len(questions))
    for question in questions:
        exact = table.exact(question)
        score.take(np.maximum(exact + rng.normal(0, sigma, exact.shape), 0.0) - exact)
    score.seconds = time.perf_counter() - started
    return score


def laplace(table: World, questions: list[Question], epsilon: float, seed: int) -> Score:
    """The same with Laplace noise."""
    rng, score, started = np.random.default_rng(seed), Score(), time.perf_counter()
    for question in questions:
        exact = table.exact(question)
        score.take(np.maximum(exact + rng.laplace(0, len(questions) / epsilon, exact.shape), 0.0) - exact)
    score.seconds = time.perf_counter() - started
    return score


def histogram(table: World, questions: list[Question], epsilon: float, seed: int) -> Score | None:
    """The whole table by Laplace noise, and the ridge fit of it to the product of one-way marginals.

    Who knows the truth attacks it as he does the policy.
    """
    if table.cells > 5_000_000:
        return None
    started, score, rng = time.perf_counter(), Score(), np.random.default_rng(seed)
    whole = Marginal.of(table.sizes, dict.fromkeys(range(len(table.sizes))))
    buy = Wanted.of(whole, Noise("laplace", Decimal(repr(1 / epsilon)), 0))
    (measured,) = drawn(table, buy, rng)
    total = max(float(measured.values.sum()), 1.0)
    base = np.ones(())
    for axis in range(len(table.sizes)):
        counts = measured.values.sum(axis=tuple(k for k in range(len(table.sizes)) if k != axis))
        base = base[..., None] * np.maximum(projected(counts, total), 0.3)
    found = ridge(measured.values, measured.variance**0.5, base / base.sum(), total)
    fit = DenseFit(found.value.reshape(table.sizes), converged=found.converged)
    if len(questions) == POOL:
        attacked(table, questions, seed, score, fit.values, fit.values)
        return score
    for question in questions:
        score.take(fit.values(question) - table.exact(question))
    score.seconds = time.perf_counter() - started
    return score


def projected(values: FloatArray, total: float) -> FloatArray:
    """The nearest values that are not negative and have a given sum."""
    low, high = float(values.min()) - total, float(values.max())
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(values - middle, 0).sum() > total else (low, middle)
    return np.maximum(values - high, 0)


def offline(table: World, questions: list[Question], epsilon: float, seed: int) -> Score | None:
    """Knows the workload: all its marginals by Gaussian noise at once, fitted. (Those that no other contains.)"""
    rng, score, started = np.random.default_rng(seed), Score(), time.perf_counter()
    sets = {q.attributes for q in questions}
    maximal = sorted(s for s in sets if not any(set(s) < set(other) for other in sets))
    if sum(math.prod(table.sizes[a] for a in attributes) for attributes in maximal) > 2_000_000:
        return None
    scale = Decimal(repr(round(gaussian_sigma(epsilon) * math.sqrt(len(maximal)), 3)))
    residuals = Residuals(table.sizes)
    for attributes in maximal:
        buy = Wanted.of(Marginal.of(table.sizes, dict.fromkeys(attributes)), Noise("gaussian", scale, 0))
        residuals.add(*drawn(table, buy, rng))
    fits = LocalFits(residuals)
    for question in questions:
        score.take(fits.fit(question).values(question) - table.exact(question))
    score.seconds = time.perf_counter() - started
    return score


METHODS: dict[str, Callable[[World, list[Question], float, int], Score | None]] = {
    "policy": policy,
    "gaussian": gaussian,
    "laplace": laplace,
    "histogram": histogram,
    "offline": offline,
}
