"""What is shown of a question: a value, how far it may be off, and an interval of stated confidence.

Two estimates stand beside each other. The fit's value is nearer on average; the unbiased one has an exact error. So the
value shown is the fit's, and where the question is estimable the interval is the unbiased one: best linear unbiased
value plus or minus a quantile times its standard deviation. It covers the truth with the stated probability, for
questions that were not chosen by the noise they are answered with. Where the question is not estimable the interval is
the model's, around the value, with the posterior deviation of the fit: as true as the model is.

Intervals are cut to what is possible; the standard error shown belongs to the value shown and is the longer arm from
it to the interval before it was cut, divided by the quantile.

Quantiles are those of the normal law. They serve sums of many noises, and a single cell of Laplace noise at 95% (where
the exact quantile is 2.12 deviations, an interval of 1.96 covers 93.7%); its exact tail is not computed here yet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import ndtri

from app.evidence.fits import LocalFits
from app.evidence.questions import Question
from app.evidence.residuals import Residuals, Unbiased
from app.spaces.tensor import Array, FloatArray

#: Whether an interval is that of the best linear unbiased value or of the fitted model.
IntervalKind = Literal["unbiased", "model"]


@dataclass(frozen=True)
class ShownEstimate:
    """One answer, in counts.

    ``unbiased`` and its standard error are those of the best linear unbiased value; None where the question is not
    estimable, and then the interval is the model's.
    """

    value: float
    standard_error: float
    interval: tuple[float, float]
    interval_kind: IntervalKind
    confidence: float
    unbiased: float | None
    unbiased_standard_error: float | None


@dataclass(frozen=True, eq=False)
class Estimates:
    """The answers of a question, in its shape and in counts."""

    values: FloatArray
    standard_errors: FloatArray
    lows: FloatArray
    highs: FloatArray
    unbiased: Unbiased
    confidence: float

    @property
    def estimable(self) -> Array:
        """Where the interval is the unbiased one; elsewhere it is the model's."""
        return self.unbiased.estimable

    def at(self, *place: int) -> ShownEstimate:
        """One of the answers; that of a sum without a place."""
        estimable = bool(self.estimable[place])
        return ShownEstimate(
            value=float(self.values[place]),
            standard_error=float(self.standard_errors[place]),
            interval=(float(self.lows[place]), float(self.highs[place])),
            interval_kind="unbiased" if estimable else "model",
            confidence=self.confidence,
            unbiased=float(self.unbiased.values[place]) if estimable else None,
            unbiased_standard_error=float(self.unbiased.standard_errors[place]) if estimable else None,
        )


def estimates(question: Question, residuals: Residuals, fits: LocalFits, confidence: float = 0.95) -> Estimates:
    """The answers of a question from all measurements taken in.

    Args:
        question: of the residuals' table.
        residuals: all that was measured.
        fits: over the same residuals.
        confidence: of the intervals, between 0 and 1.

    Raises:
        ValueError: for another confidence, or where nothing is known of the table yet.
        NotConverged: when the fit's tolerance is not met.
    """
    fit = fits.fit(question)
    return around(
        question,
        fit.values(question),
        residuals.unbiased(question),
        lambda: fit.standard_errors(question),
        residuals.public_total,
        confidence,
        normal_quantile(confidence),
    )


def normal_quantile(confidence: float) -> float:
    """How many standard deviations to either side hold the normal law with this probability.

    Raises:
        ValueError: unless it lies between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise ValueError("a confidence lies between 0 and 1")
    return float(ndtri(0.5 + confidence / 2))


def around(
    question: Question,
    values: FloatArray,
    unbiased: Unbiased,
    deviations: Callable[[], FloatArray],
    total: float | None,
    confidence: float,
    quantile: float,
) -> Estimates:
    """Values with their intervals.

    Args:
        question: what is asked.
        values: to be shown, in its shape; what is impossible is cut off here.
        unbiased: its best linear unbiased values.
        deviations: the model's standard deviations of the values, asked for where not all are estimable.
        total: the number of records where it is public.
        confidence: of the intervals.
        quantile: how many standard deviations they reach to either side.
    """
    least, most = possible(question, total)
    values = np.clip(values, least, most)
    centres, errors = unbiased.values, unbiased.standard_errors
    if not unbiased.estimable.all():
        centres = np.where(unbiased.estimable, centres, values)
        errors = np.where(unbiased.estimable, errors, deviations())
    lows, highs = centres - quantile * errors, centres + quantile * errors
    return Estimates(
        values=values,
        standard_errors=np.maximum(values - lows, highs - values) / quantile,
        lows=np.clip(lows, least, most),
        highs=np.clip(highs, least, most),
        unbiased=unbiased,
        confidence=confidence,
    )


def possible(question: Question, total: float | None) -> tuple[float, float]:
    """The least and the greatest answer that counts can have, which are not negative and sum to the total if given."""
    low, high = question.range
    if total is not None:
        return low * total, high * total
    return 0.0 if low >= 0 else -np.inf, 0.0 if high <= 0 else np.inf
