"""Refits: after an update, the hypothesis nearest to the present one that agrees with all released values.

With answers a(z), released values y and noise bounds L (proportional to the noise's standard deviation, so weights are
1/variance up to one factor) the hypothesis becomes

    argmin_z  1/2 sum_j ((a_j(z) - y_j) / L_j)^2 + kappa D(z; h),

h being the present hypothesis and D the squared Euclidean distance over 2, or the relative entropy over the simplex.
kappa is so small that it moves an answer by a 2^-8th of L or so: it decides between the hypotheses that fit
equally well, and keeps the problem well posed. This is mirror descent from h on the released values, run to its
limit: Euclidean steps are solved at once in the span of the queries, entropic ones by Newton's method.

All of it is a function of released values: free of privacy cost, and a replay reproduces it. It has no bound of
updates.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from app.constructions import dense
from app.constructions.base import CellConstruction, MeasuredQuery, Step, simplex_reach
from app.constructions.dumps import Dump
from app.geometry.norms import FloatArray, pieces
from app.spaces.queries.registry import from_canonical
from app.spaces.query import LinearQuery, linear
from app.spaces.space import Space
from app.spaces.tensor import DenseTensor

#: How far kappa may move an answer, as a part of the noise bound.
SLACK = 2.0**-8
#: Entropic refits end when no answer is further from its value than this part of its noise bound.
_CLOSE = 1e-9
_MOST_STEPS = 200
#: No mass falls below this part of the whole.
_LEAST = 1e-280
#: Cells times measurements of a refit that takes a second or two: an entropic one takes some 40 to 90 ns for each, a
#: Euclidean one 8 to 14 (predicates on three attributes, 2e5 and 1e7 cells).
ENTROPIC_WORK, EUCLIDEAN_WORK = 1 << 25, 1 << 27
#: Bytes an entry of the matrix of inner products that a refit of m measurements solves, m^2 of them: the matrix while
#: it grows, the system, and its decomposition.
_SYSTEM_BYTES = 64


class RefittingConstruction(CellConstruction):
    """A construction whose step may be a refit: what this takes, in time and memory, grows with the measurements."""

    #: Cells times measurements of a refit that takes a second or two.
    refit_work: ClassVar[int] = EUCLIDEAN_WORK
    step: Step

    @abstractmethod
    def _measurements(self, state: Any) -> int:
        """How many measurements a state keeps for refits."""

    @property
    def most_updates(self) -> int | None:
        return max(1, self.refit_work // self.space.cells) if self.step == "refit" else None

    def working_bytes(self, state: Any, query: LinearQuery) -> int:
        return super().working_bytes(state, query) + self.system_bytes(state)

    def system_bytes(self, state: Any) -> int:
        """The most bytes that the next refit takes for the system that it solves."""
        return _SYSTEM_BYTES * (self._measurements(state) + 1) ** 2 if self.step == "refit" else 0


def dump_measurements(measurements: list[MeasuredQuery]) -> Dump:
    """Measurements as their queries' canonical forms and their numbers."""
    values = [(m.value, m.noise_bound) for m in measurements]
    blobs = {
        m.query.canonical["sha256"]: np.frombuffer(m.query.blob, np.uint8)
        for m in measurements
        if m.query.blob is not None
    }
    dump = Dump({"numbers": np.array(values, dtype=np.float64).reshape(-1, 2)})
    return dump | Dump({}, {"queries": [m.query.canonical for m in measurements]}) | Dump(blobs).within("weights")


def load_measurements(space: Space, dump: Dump) -> list[MeasuredQuery]:
    """The measurements of a dump, their queries compiled anew."""
    blobs = {name: array.tobytes() for name, array in dump.part("weights").arrays.items()}
    queries = [linear(from_canonical(space, form, blobs)) for form in dump.words["queries"]]
    values = dump.arrays["numbers"].tolist()
    return [MeasuredQuery(query, value, bound) for query, (value, bound) in zip(queries, values, strict=True)]


@dataclass
class Kept:
    """The measurements so far, their inner products, and the hypothesis' coefficients on them."""

    measurements: list[MeasuredQuery] = field(default_factory=list)
    gram: FloatArray = field(default_factory=lambda: np.zeros((0, 0)))
    coefficients: FloatArray = field(default_factory=lambda: np.zeros(0))

    def keep(self, measurement: MeasuredQuery, inner: Callable[[LinearQuery, LinearQuery], float]) -> None:
        """Add a measurement; ``inner`` is <f, g> of two queries."""
        self.measurements.append(measurement)
        row = np.array([inner(known.query, measurement.query) for known in self.measurements])
        gram = np.zeros((len(row), len(row)))
        gram[:-1, :-1] = self.gram
        gram[-1], gram[:, -1] = row, row
        self.gram = gram
        self.coefficients = np.append(self.coefficients, 0.0)

    def dump(self) -> Dump:
        """All of it."""
        return dump_measurements(self.measurements) | Dump({"gram": self.gram, "coefficients": self.coefficients})

    @classmethod
    def load(cls, space: Space, dump: Dump) -> Kept:
        """The state that :meth:`dump` wrote."""
        return cls(load_measurements(space, dump), dump.arrays["gram"], dump.arrays["coefficients"])


def euclidean(kept: Kept, answers: FloatArray) -> FloatArray:
    """The c with ``z = h + sum_j c_j f_j`` the refit of h, whose present answers are given.

    Solves ``(G + kappa diag(L^2)) c = y - a``, G the inner products of the queries.
    """
    bounds = np.array([m.noise_bound for m in kept.measurements])
    residuals = np.array([m.value for m in kept.measurements]) - answers
    lengths = np.diagonal(kept.gram)
    # An answer that is r off gets a coefficient of about r / ||f||^2, which leaves it kappa L^2 r / ||f||^2 off.
    kappa = SLACK * float((lengths / (bounds * np.maximum(np.abs(residuals), bounds))).min())
    return np.asarray(np.linalg.solve(kept.gram + kappa * np.diag(bounds**2), residuals), dtype=np.float64)


def entropic(measurements: list[MeasuredQuery], tensor: DenseTensor, slack: float, mass: float, copies: int) -> float:
    """Refit masses of a simplex in place, its last cell one that no query touches.

    The solution is ``h exp(sum_j c_j f_j)``, normalised, with ``a_j + kappa L_j^2 c_j = y_j``: the least c of

        mass ln(sum h exp(sum_j c_j f_j) / mass) - <c, y> + 1/2 sum_j kappa L_j^2 c_j^2.

    Damped Newton steps in c, whose matrix of covariances of the queries under h is made anew when steps gain little.
    They run to the limit of float64 (a billionth of the noise bound or so), so that machines agree. Values out of
    the simplex' reach count as just within. Memory is two arrays beside the masses.

    Args:
        measurements: all released values.
        tensor: the masses, each standing ``copies`` times.
        slack: mass of the cell that no query touches.
        mass: of the simplex, in counts.
        copies: 2 where a symmetric array holds each pair twice.

    Returns:
        The new mass of the slack cell.
    """
    queries = [m.query for m in measurements]
    bounds = np.array([m.noise_bound for m in measurements])
    reach = np.array([query.range for query in queries])
    if slack > 0:
        reach = np.stack([np.minimum(reach[:, 0], 0.0), np.maximum(reach[:, 1], 0.0)], axis=1)
    values = np.array([m.value for m in measurements])
    values = np.clip(values, *simplex_reach(reach[:, 0], reach[:, 1], mass))
    stiffness = SLACK / float(bounds.max()) * bounds**2
    c, answers = np.zeros(len(queries)), _answers(queries, tensor)
    exponents, spare = np.empty(tensor.shape), np.empty(tensor.shape)
    matrix: FloatArray | None = None
    fresh = True
    for _ in range(_MOST_STEPS):
        short = values - answers - stiffness * c
        distance = float(np.abs(short / bounds).max())
        if distance <= _CLOSE:
            break
        if matrix is None:
            matrix, fresh = _covariances(queries, tensor, answers, mass, spare) + np.diag(stiffness), True
        step = np.linalg.solve(matrix, short)
        exponents[...] = 0.0
        for rate, query in zip(step.tolist(), queries, strict=True):
            dense.add_to(query, exponents, rate)
        for length in 0.25 ** np.arange(20):
            slack_there, growth = _tilt(tensor.array, slack, exponents, float(length), mass, copies, spare)
            answers = _answers(queries, DenseTensor(spare))
            there = c + length * step
            closer = float(np.abs((values - answers - stiffness * there) / bounds).max()) <= distance / 2
            change = growth - length * float(step @ values) + float(stiffness @ (there**2 - c**2)) / 2
            if closer or change <= -1e-4 * length * float(step @ short):
                tensor.array, spare = spare, tensor.array
                slack, c = slack_there, there
                tensor.touch()
                break
        else:
            if fresh:
                break
            closer = False
        # A matrix serves as long as steps with it gain much.
        matrix, fresh = (matrix, False) if closer else (None, True)
    return slack


def _answers(queries: list[LinearQuery], tensor: DenseTensor) -> FloatArray:
    return np.array([query.inner(tensor) for query in queries])


def _covariances(
    queries: list[LinearQuery], tensor: DenseTensor, answers: FloatArray, mass: float, weighted: FloatArray
) -> FloatArray:
    """``sum_x h(x) f_i(x) f_j(x) - a_i a_j / mass``: the derivative of answers by tilts.

    ``weighted`` is worked in.
    """
    result = np.zeros((len(queries), len(queries)))
    for i, query in enumerate(queries):
        weighted[...] = 0.0
        dense.add_to(query, weighted, 1.0)
        weighted *= tensor.array
        result[i, : i + 1] = _answers(queries[: i + 1], DenseTensor(weighted))
    result += np.tril(result, -1).T
    return result - np.outer(answers, answers) / mass


def _tilt(
    array: FloatArray, slack: float, exponents: FloatArray, length: float, mass: float, copies: int, out: FloatArray
) -> tuple[float, float]:
    """Set ``out`` to the masses times ``exp(length * exponent)``, normalised.

    Returns:
        The slack cell's new mass, and what the first term of the dual gains.
    """
    top = length * float(exponents.max())
    top = max(top, 0.0) if slack > 0 else top
    total = 0.0
    for tilted, masses, exponent in pieces(out, array, exponents, written=1):
        np.multiply(exponent, length, out=tilted)
        tilted -= top
        np.exp(tilted, out=tilted)
        tilted *= masses
        # Where there was mass some is left, so that later measurements can raise it again.
        low = tilted < _LEAST * mass
        low &= masses > 0
        if low.any():
            tilted[low] = _LEAST * mass
        total += float(tilted.sum())
    slack_mass = max(slack * math.exp(-top), _LEAST * mass) if slack > 0 else 0.0
    total = total / copies + slack_mass
    out *= mass / total
    return slack_mass * (mass / total), mass * (top + math.log(total / mass))
