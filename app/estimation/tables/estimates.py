"""The estimate that is shown of a question: a value, how far it may be off, and an interval of stated confidence.

Two estimates stand beside each other. The fit's value is nearer on average; the unbiased one has an exact error. So the
value shown is the fit's, and where the question is estimable the interval is the unbiased one: best linear unbiased
value plus or minus a quantile times its standard deviation. It covers the truth with the stated probability, for
questions that were not chosen by the noise they are answered with. Where the question is not estimable the interval is
the model's, around the value, with the posterior deviation of the fit: as true as the model is.

How far the unbiased interval reaches is that of the law of its noise (:mod:`app.estimation.tails`). It is that of the
nearest value to the unbiased one that is possible, which is nearer to the truth, and is cut to what is possible: of a
count that noise took far below zero it goes as far up as of one that was measured as zero. It reaches the value shown,
wherever that lies. The standard error shown belongs to the value shown: it is that of the unbiased value, and what lies
between the two in the deviations that the interval reaches (an eighth of one at least). That is the longer arm from the
value to the interval before it was cut, divided by how many deviations the interval reaches: the normal law's where
noise is normal, more where it has longer tails or the question was chosen by it.

A fit may be wrong by more than noise: where its values and the unbiased ones are farther from each other than the noise
of these can be, and than the fit is likely to be nearer, the unbiased ones are shown (:func:`contradicted`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from app.estimation.intervals import Estimates
from app.estimation.tables.residuals import Unbiased
from app.estimation.tails import normal_quantile
from app.spaces.questions import Question
from app.spaces.tensor import FloatArray

#: A fit whose values were true would be off the unbiased ones by once their variance on average; by twice, and so many
#: deviations of that average, it is farther from the truth than they are.
_CONTRADICTED, _SURELY = 2.0, 3.0
#: Intervals of integer noise may reach nowhere: to tell errors by they are taken to reach this.
_LEAST_DEVIATIONS = 0.125


def around(
    question: Question,
    values: FloatArray,
    unbiased: Unbiased,
    reaches: FloatArray,
    deviations: Callable[[], FloatArray],
    total: float | None,
    confidence: float,
) -> Estimates:
    """Values with their intervals.

    Args:
        question: what is asked.
        values: to be shown, in its shape; what is impossible is cut off here, but of answers that add up.
        unbiased: its best linear unbiased values, or others that the interval is about.
        reaches: how far their intervals reach to either side.
        deviations: the model's standard deviations of the values, asked for where not all are estimable.
        total: the number of records where it is public.
        confidence: of the intervals.
    """
    least, most = possible(question, total)
    if not question.additive:
        values = np.clip(values, least, most)
    centres, errors = unbiased.values, unbiased.standard_errors
    if not question.additive:
        centres = np.clip(centres, least, most)
    if not unbiased.estimable.all():
        own = deviations()
        centres = np.where(unbiased.estimable, centres, values)
        errors = np.where(unbiased.estimable, errors, own)
        reaches = np.where(unbiased.estimable, reaches, own * normal_quantile(confidence))
    return Estimates(
        values=values,
        standard_errors=shown_errors(values - centres, errors, reaches),
        lows=np.minimum(values, np.clip(centres - reaches, least, most)),
        highs=np.maximum(values, np.clip(centres + reaches, least, most)),
        unbiased=unbiased.estimable,
        confidence=confidence,
        linear=unbiased.values,
        linear_errors=unbiased.standard_errors,
    )


def contradicted(values: FloatArray, unbiased: Unbiased) -> bool:
    """Whether unbiased values say that a fit's are farther from the truth than they are themselves.

    The square of the difference is on average the variance of the unbiased value, where the fit is true, and more by
    the square of the fit's error: as much again where both err alike. Of few values that average is held to be larger
    by chance: its own deviation is ``sqrt(2 / n)`` variances for n values of normal noise.

    Args:
        values: of the fit.
        unbiased: of the same question.
    """
    if not unbiased.estimable.all() or not (unbiased.variances > 0).all():
        return False
    off = float(np.mean(np.square(values - unbiased.values) / unbiased.variances))
    return off > _CONTRADICTED + _SURELY * math.sqrt(2 / max(np.size(values), 1))


def shown_errors(moved: FloatArray, errors: FloatArray, reaches: FloatArray) -> FloatArray:
    """The standard errors of shown values, which lie some way off those that intervals are about.

    Args:
        moved: from these to the values shown.
        errors: standard errors of these.
        reaches: of the intervals.
    """
    deviations = np.divide(reaches, errors, out=np.ones(np.shape(errors)), where=errors > 0)
    return np.asarray(errors + np.abs(moved) / np.maximum(deviations, _LEAST_DEVIATIONS))


def possible(question: Question, total: float | None) -> tuple[float, float]:
    """The least and the greatest answer that counts can have, which are not negative and sum to the total if given."""
    low, high = question.range
    if total is not None:
        return low * total, high * total
    return 0.0 if low >= 0 else -np.inf, 0.0 if high <= 0 else np.inf
