"""Exact numbers and directed rounding: the arithmetic every guarantee of this package is computed in.

Amounts of Renyi divergence live on the grid of ``QUANTUM`` = 1e-24. Costs go up to the grid, budgets down
to it, so a sum of amounts is exact and errs against the spender. Functions evaluated in ``WORKING`` (80
digits) state an absolute error bound below ``SLACK`` = 1e-30; directed rounding adds or subtracts ``SLACK``
before it touches the grid. ``exp`` and ``ln`` of the standard library's decimal are correctly rounded, so
the bounds are those of the few operations around them.
"""

import math
from decimal import (
    MAX_EMAX,
    MIN_EMIN,
    ROUND_CEILING,
    ROUND_FLOOR,
    ROUND_HALF_EVEN,
    Context,
    Decimal,
    DivisionByZero,
    Inexact,
    InvalidOperation,
    Overflow,
)
from fractions import Fraction

#: A number whose value is exactly what was meant.
Exact = int | Decimal | Fraction

QUANTUM = Decimal("1e-24")
SLACK = Decimal("1e-30")

#: 100 digits: what transcendental functions are evaluated in.
WORKING = Context(
    prec=100,
    rounding=ROUND_HALF_EVEN,
    Emin=MIN_EMIN,
    Emax=MAX_EMAX,
    traps=[InvalidOperation, DivisionByZero, Overflow],
)

#: 40 digits: for searches certified in ``WORKING`` afterwards. The same on every machine, unlike floats.
SEARCH = Context(
    prec=40,
    rounding=ROUND_HALF_EVEN,
    Emin=MIN_EMIN,
    Emax=MAX_EMAX,
    traps=[InvalidOperation, DivisionByZero, Overflow],
)

#: Sums and differences on the grid of amounts: raises rather than rounds.
EXACT = Context(
    prec=200,
    rounding=ROUND_HALF_EVEN,
    Emin=MIN_EMIN,
    Emax=MAX_EMAX,
    traps=[InvalidOperation, DivisionByZero, Overflow, Inexact],
)


def exact(value: Exact, name: str) -> Fraction:
    """The value as a fraction.

    Raises:
        TypeError: for a float or anything else that is not an int, a Decimal or a Fraction.
        ValueError: for a Decimal that is not finite.
    """
    if isinstance(value, bool) or not isinstance(value, (int, Decimal, Fraction)):
        raise TypeError(f"{name} must be an int, a Decimal or a Fraction, not {type(value).__name__}")
    if isinstance(value, Decimal) and not value.is_finite():
        raise ValueError(f"{name} must be finite")
    return Fraction(value)


def to_decimal(value: Fraction, context: Context = WORKING) -> Decimal:
    """The nearest decimal of the context's precision: relative error at most half a unit of its last
    digit."""
    return context.divide(Decimal(value.numerator), Decimal(value.denominator))


def ceil_to(value: Exact, quantum: Decimal = QUANTUM) -> Decimal:
    """The least multiple of ``quantum`` that is at least ``value``. Exact, so there is no error to bound."""
    return _multiple(math.ceil(Fraction(value) / Fraction(quantum)), quantum)


def floor_to(value: Exact, quantum: Decimal = QUANTUM) -> Decimal:
    """The greatest multiple of ``quantum`` that is at most ``value``. Exact, so there is no error to bound."""
    return _multiple(math.floor(Fraction(value) / Fraction(quantum)), quantum)


def _multiple(count: int, quantum: Decimal) -> Decimal:
    return EXACT.multiply(Decimal(count), quantum)


def round_up(value: Decimal) -> Decimal:
    """An amount at least the true one, where ``value`` is within ``SLACK`` of it."""
    return WORKING.add(value, SLACK).quantize(QUANTUM, rounding=ROUND_CEILING, context=WORKING)


def round_down(value: Decimal) -> Decimal:
    """An amount at most the true one, where ``value`` is within ``SLACK`` of it."""
    return WORKING.subtract(value, SLACK).quantize(QUANTUM, rounding=ROUND_FLOOR, context=WORKING)


def float_at_most(value: Exact) -> float:
    """The greatest float that is at most the exact value."""
    nearest = float(value)
    return math.nextafter(nearest, -math.inf) if Fraction(nearest) > Fraction(value) else nearest


def float_at_least(value: Exact) -> float:
    """The least float that is at least the exact value."""
    nearest = float(value)
    return math.nextafter(nearest, math.inf) if Fraction(nearest) < Fraction(value) else nearest
