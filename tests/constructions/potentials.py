"""Potentials and Bregman projections on whole arrays, as their definitions say.

The forms of mirror descent, which keep part of an array or factors of it, are held against these.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from app.geometry.norms import FloatArray, Side, conjugate, row_norms, vector_norm
from app.geometry.potentials import (
    Line,
    SpectralLine,
    group_line,
    inverse_magnitudes,
    link_magnitudes,
    power_line,
    tilted_line,
)
from app.geometry.projections import first_rate, magnitudes_onto_ball, solve


class Potential(ABC):
    """A differentiable, strongly convex function of arrays."""

    @property
    @abstractmethod
    def mu(self) -> float:
        """Modulus of strong convexity in :meth:`norm`."""

    @abstractmethod
    def value(self, z: FloatArray) -> float:
        """Psi(z)."""

    @abstractmethod
    def conjugate_value(self, theta: FloatArray) -> float:
        """Psi*(theta), the largest ``<theta, z> - Psi(z)``."""

    @abstractmethod
    def link(self, z: FloatArray) -> FloatArray:
        """grad Psi(z)."""

    @abstractmethod
    def inverse(self, theta: FloatArray) -> FloatArray:
        """grad Psi*(theta): the z whose link is theta (up to a constant shift, for the entropy)."""

    @abstractmethod
    def norm(self, z: FloatArray) -> float:
        """The norm Psi is strongly convex in."""

    @abstractmethod
    def dual_norm(self, f: FloatArray) -> float:
        """The dual of :meth:`norm`: zeta of a query."""

    @abstractmethod
    def line(self, theta: FloatArray, f: FloatArray) -> Line:
        """The line through theta along f."""

    def inner(self, f: FloatArray, z: FloatArray) -> float:
        """<f, z>."""
        return float(np.vdot(f, z))

    def divergence(self, x: FloatArray, h: FloatArray) -> float:
        """``D(x; h) = Psi(x) - Psi(h) - <link(h), x - h>``, never negative."""
        return max(0.0, self.value(x) - self.value(h) - self.inner(self.link(h), x - h))


@dataclass(frozen=True)
class Entropy(Potential):
    """``sum z ln(z/n)`` on the simplex of mass n (in counts; a slack cell is a coordinate like any other).

    In counts ``mu = 1/n`` in L1, and a constant shift of f changes nothing: its dual norm is
    ``(max f - min f)/2``.
    """

    mass: float

    @property
    def mu(self) -> float:
        return 1 / self.mass

    def value(self, z: FloatArray) -> float:
        positive = z[z > 0]
        return float(positive @ np.log(positive / self.mass))

    def conjugate_value(self, theta: FloatArray) -> float:
        top = float(theta.max())
        return self.mass * (top + math.log(float(np.exp(theta - top).sum())))

    def link(self, z: FloatArray) -> FloatArray:
        result: FloatArray = np.log(z / self.mass) + 1
        return result

    def inverse(self, theta: FloatArray) -> FloatArray:
        weights = np.exp(theta - theta.max())
        result: FloatArray = weights * (self.mass / weights.sum())
        return result

    def norm(self, z: FloatArray) -> float:
        return float(np.abs(z).sum())

    def dual_norm(self, f: FloatArray) -> float:
        return (float(f.max()) - float(f.min())) / 2

    def divergence(self, x: FloatArray, h: FloatArray) -> float:
        positive = x > 0
        return max(0.0, float(x[positive] @ np.log(x[positive] / h[positive])) - float(x.sum() - h.sum()))

    def line(self, theta: FloatArray, f: FloatArray) -> Line:
        return tilted_line(f.reshape(-1), self.inverse(theta).reshape(-1), 0.0)


@dataclass(frozen=True)
class SquaredNorm(Potential):
    """``||z||^2/(p-1)`` for a norm that is l_p of magnitudes, 1 < p <= 2.

    The link is that of l_p on the magnitudes, ``2/(p-1) ||m||_p^(2-p) m^(p-1)``, the inverse
    ``(p-1)/2 ||m||_q^(2-q) m^(q-1)``; directions are kept.
    """

    p: float

    @property
    def q(self) -> float:
        """Exponent of the dual norm."""
        return conjugate(self.p)

    @property
    def copies(self) -> int:
        """How often each coordinate stands in an array: 2 where a symmetric matrix spells unordered pairs."""
        return 1

    @abstractmethod
    def split(self, z: FloatArray) -> tuple[FloatArray, Callable[[FloatArray], FloatArray]]:
        """The magnitudes, and what makes an array of new magnitudes in the old directions."""

    @property
    def mu(self) -> float:
        return 2.0

    def inner(self, f: FloatArray, z: FloatArray) -> float:
        return super().inner(f, z) / self.copies

    def norm(self, z: FloatArray) -> float:
        return vector_norm(self.split(z)[0], self.p, self.copies)

    def dual_norm(self, f: FloatArray) -> float:
        return vector_norm(self.split(f)[0], self.q, self.copies)

    def value(self, z: FloatArray) -> float:
        return self.norm(z) ** 2 / (self.p - 1)

    def conjugate_value(self, theta: FloatArray) -> float:
        return self.dual_norm(theta) ** 2 * (self.p - 1) / 4

    def link(self, z: FloatArray) -> FloatArray:
        magnitudes, rebuild = self.split(z)
        return rebuild(link_magnitudes(magnitudes, self.p, self.copies))

    def inverse(self, theta: FloatArray) -> FloatArray:
        magnitudes, rebuild = self.split(theta)
        return rebuild(inverse_magnitudes(magnitudes, self.p, self.copies))


@dataclass(frozen=True)
class Power(SquaredNorm):
    """The l_p potential on the entries of an array of any shape.

    ``multiplicity`` is 2 for a symmetric matrix with zero diagonal whose coordinates are the pairs i < j.
    """

    multiplicity: int = 1

    @property
    def copies(self) -> int:
        return self.multiplicity

    def split(self, z: FloatArray) -> tuple[FloatArray, Callable[[FloatArray], FloatArray]]:
        return np.abs(z), lambda magnitudes: np.copysign(magnitudes, z)

    def line(self, theta: FloatArray, f: FloatArray) -> Line:
        return power_line(theta, f, 0.0, self.p, self.copies)


@dataclass(frozen=True)
class Group(SquaredNorm):
    """The group (2, p) potential: l_p of the Euclidean norms of a matrix's rows, or of its columns."""

    side: Side = "rows"

    def split(self, z: FloatArray) -> tuple[FloatArray, Callable[[FloatArray], FloatArray]]:
        norms = row_norms(z, self.side)

        def rebuild(magnitudes: FloatArray) -> FloatArray:
            ratio = np.divide(magnitudes, norms, out=np.zeros_like(norms), where=norms > 0)
            result: FloatArray = z * (ratio[:, None] if self.side == "rows" else ratio)
            return result

        return norms, rebuild

    def line(self, theta: FloatArray, f: FloatArray) -> Line:
        along = "ij,ij->i" if self.side == "rows" else "ij,ij->j"
        squares, products, lengths = (np.einsum(along, a, b) for a, b in ((theta, theta), (f, theta), (f, f)))
        return group_line(squares, products, lengths, 0.0, self.p)


@dataclass(frozen=True)
class Schatten(SquaredNorm):
    """The Schatten p potential: l_p of a matrix's singular values."""

    def split(self, z: FloatArray) -> tuple[FloatArray, Callable[[FloatArray], FloatArray]]:
        left, values, right = np.linalg.svd(z, full_matrices=False)
        return values, lambda magnitudes: (left * magnitudes) @ right

    def line(self, theta: FloatArray, f: FloatArray) -> Line:
        return SpectralLine(theta, f, self.p)


def onto_halfspace(potential: Potential, theta: FloatArray, f: FloatArray, target: float) -> FloatArray:
    """``argmin D(z; h)`` subject to ``<f, z> = target``, as theta + rate f; h is the point at theta.

    For a target beyond <f, h> this is the projection on the half-space whose edge it is. The link of the solution
    is ``theta + rate f`` (the multiplier of the one constraint).
    """
    line = potential.line(theta, f)
    present = line(0.0)[0]
    zeta = potential.dual_norm(f)
    if zeta == 0.0 or target == present:
        return theta
    rate = solve(line, target, first_rate(potential.mu, zeta, target - present), scale=abs(present))
    result: FloatArray = theta + rate * f
    return result


def onto_ball(potential: SquaredNorm, z: FloatArray, p: float, radius: float) -> FloatArray:
    """``argmin D(y; z)`` subject to ``||y|| <= radius``, the norm being l_p (p >= 1) of the potential's magnitudes.

    Directions (signs, rows' directions, singular vectors) are kept: for given magnitudes they make ``<link(z), y>``
    largest, and nothing else in the problem depends on them.
    """
    magnitudes, rebuild = potential.split(z)
    return rebuild(magnitudes_onto_ball(magnitudes, potential.p, p, radius, potential.copies))
