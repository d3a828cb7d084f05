"""The dual of a ridge fit by entropy: a smooth convex problem, solved by Newton's method to a stated tolerance.

Over cells with base b (which sums to one) and total n, and values y, each the count of some of the cells (or a weighted
sum of them), it is the least theta of

    n ln Z(theta) - <theta, y> + 1/2 sum of ridge * theta^2,     Z(theta) = sum of b exp(W' theta),

W being the matrix of what each cell weighs in each value, 0 or 1 for counts. The fitted counts are
``p = n b exp(W' theta) / Z``. The gradient is ``W p - y + ridge * theta``, the matrix of second derivatives
``W (diag(p) - p p'/n) W' + diag(ridge)``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import csc_array

from app.estimation.solving import Reason, Solved
from app.spaces.lazy import lazy
from app.spaces.tensor import FloatArray

_MOST_STEPS = 200
_MOST_INNER_STEPS = 2000
#: What a step must gain of what its slope promises.
_GAIN = 1e-4
#: Systems up to this size are factored, larger ones solved by conjugate gradients to this part of the gradient.
_FACTORED, _SOLVED = 1024, 1e-3
#: What float64 can tell of a gradient: this part of the total, for each unit of the largest exponent.
_ROUNDING = 2.0**-46
#: A factor serves for further steps as long as each divides the distance from the optimum by this.
_REUSED = 4.0


class Dual:
    """One problem.

    Args:
        counted: W, values by cells.
        base: b, positive.
        total: n, in counts.
        values: y, in counts; they agree with n where they cover all cells.
        ridge: positive, one a value.
    """

    def __init__(
        self, counted: csc_array, base: FloatArray, total: float, values: FloatArray, ridge: FloatArray
    ) -> None:
        self._counted, self._cells = counted, counted.T.tocsr()
        self._logarithms, self._total, self._values, self._ridge = np.log(base), total, values, ridge

    def solve(self, start: FloatArray, tolerance: FloatArray) -> Solved[tuple[FloatArray, FloatArray]]:
        """The least theta and the fitted counts.

        Args:
            start: any theta.
            tolerance: the gradient ends within this, one a value, or within what float64 can tell where that is more.
        """
        theta, scale = start, np.maximum(tolerance, _ROUNDING * self._total)
        level, fitted, gradient, resolution = self._at(theta)
        solver: Callable[[FloatArray], FloatArray] | None = None
        reason: Reason = "steps"
        for _ in range(_MOST_STEPS):
            if bool((np.abs(gradient) <= np.maximum(tolerance, resolution)).all()):
                reason = "converged"
                break
            distance = float(np.abs(gradient / scale).max())
            fresh = solver is None
            try:
                solver = solver or self._solver(fitted)
            except LinAlgError:
                reason = "singular"
                break
            step = -solver(gradient)
            slope = float(gradient @ step)
            for length in 0.5 ** np.arange(40 if fresh else 1):
                there = theta + length * step
                found = self._at(there)
                fast = float(np.abs(found[2] / scale).max()) <= distance / _REUSED
                if fast or (fresh and found[0] - level <= _GAIN * length * slope):
                    theta, (level, fitted, gradient, resolution) = there, found
                    solver = solver if fast else None
                    break
            else:
                if fresh:
                    reason = "no descent"
                    break
                solver = None
        return Solved((theta, fitted), reason, float((np.abs(gradient) / np.maximum(tolerance, resolution)).max()))

    def _at(self, theta: FloatArray) -> tuple[float, FloatArray, FloatArray, float]:
        """The objective, the fitted counts, the gradient, and how well float64 can tell that."""
        exponents = self._logarithms + self._cells @ theta
        top = float(exponents.max())
        fitted = np.exp(exponents - top)
        mass = float(fitted.sum())
        fitted *= self._total / mass
        pull = self._ridge * theta
        level = self._total * (top + float(np.log(mass))) + float(theta @ (pull / 2 - self._values))
        resolution = _ROUNDING * self._total * (1 + float(np.abs(exponents).max()))
        return level, fitted, self._counted @ fitted - self._values + pull, resolution

    def _solver(self, fitted: FloatArray) -> Callable[[FloatArray], FloatArray]:
        """Solves with the matrix of second derivatives: by values or by cells, whichever are fewer, or by iteration."""
        values, cells = self._counted.shape
        if min(values, cells) > _FACTORED:
            return self._by_iteration(fitted)
        return self._by_values(fitted) if values <= cells else self._by_cells(fitted)

    def _by_values(self, fitted: FloatArray) -> Callable[[FloatArray], FloatArray]:
        seen = self._counted @ fitted
        matrix = ((self._counted * fitted) @ self._cells).toarray()
        matrix -= np.outer(seen, seen / self._total)
        matrix[np.diag_indices(len(seen))] += self._ridge
        factor = cho_factor(matrix, overwrite_a=True, check_finite=False)
        return lambda right: np.asarray(cho_solve(factor, right, check_finite=False))

    @lazy
    def _shared(self) -> FloatArray:
        """``W' diag(1/ridge) W``."""
        return np.asarray((self._cells @ (self._counted.multiply((1 / self._ridge)[:, None]).tocsc())).toarray())

    def _by_cells(self, fitted: FloatArray) -> Callable[[FloatArray], FloatArray]:
        # With T = diag(root) (1 - e e'), e = root/|root|, the matrix is diag(ridge) + W T T' W': Woodbury's identity.
        root = np.sqrt(fitted)
        unit = root / np.linalg.norm(root)
        matrix = root[:, None] * self._shared * root
        matrix -= np.outer(matrix @ unit, unit)
        matrix -= np.outer(unit, unit @ matrix)
        matrix[np.diag_indices(len(root))] += 1.0
        factor = cho_factor(matrix, overwrite_a=True, check_finite=False)

        def solved(right: FloatArray) -> FloatArray:
            scaled = right / self._ridge
            inner = root * (self._cells @ scaled)
            inner = cho_solve(factor, inner - unit * float(unit @ inner), check_finite=False)
            inner = root * (inner - unit * float(unit @ inner))
            return np.asarray(scaled - (self._counted @ inner) / self._ridge)

        return solved

    def _by_iteration(self, fitted: FloatArray) -> Callable[[FloatArray], FloatArray]:
        seen = self._counted @ fitted
        diagonal = np.maximum(seen - seen * seen / self._total, 0.0) + self._ridge

        def solved(right: FloatArray) -> FloatArray:
            solution, rest, scaled = np.zeros_like(right), right, right / diagonal
            towards, squared = scaled, float(right @ scaled)
            enough = squared * _SOLVED**2
            for _ in range(_MOST_INNER_STEPS):
                image = self._counted @ (fitted * (self._cells @ towards))
                image += self._ridge * towards - seen * (float(seen @ towards) / self._total)
                length = squared / float(towards @ image)
                solution, rest = solution + length * towards, rest - length * image
                scaled = rest / diagonal
                before, squared = squared, float(rest @ scaled)
                if squared <= enough:
                    break
                towards = scaled + (squared / before) * towards
            return solution

        return solved
