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
    if not 0 < confidence < 1:
        raise ValueError("a confidence lies between 0 and 1")
    quantile = float(ndtri(0.5 + confidence / 2))
    fit, unbiased = fits.fit(question), residuals.unbiased(question)
    least, most = possible(question, residuals.public_total)
    values = np.clip(fit.values(question), least, most)
    centres, deviations = unbiased.values, unbiased.standard_errors
    if not unbiased.estimable.all():
        centres = np.where(unbiased.estimable, centres, values)
        deviations = np.where(unbiased.estimable, deviations, fit.standard_errors(question))
    lows, highs = centres - quantile * deviations, centres + quantile * deviations
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
