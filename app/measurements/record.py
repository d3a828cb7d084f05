"""The record of a measurement: a strategy, its noise and its values, released once and public for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Generic, TypeVar, cast

import numpy as np

from app.measurements import strategies
from app.measurements.noise import Law, Noise, read_noise
from app.measurements.pricing import Adjacency, price_of
from app.measurements.strategies.tables import TableStrategy
from app.measurements.strategy import Strategy
from app.privacy.ledger import Amounts
from app.spaces.lazy import lazy
from app.spaces.partition import read_integers
from app.spaces.questions import Question
from app.spaces.tensor import Array, FloatArray

S = TypeVar("S", bound=Strategy, covariant=True)
T = TypeVar("T", bound=Strategy)


def _kinds() -> Iterator[type[Strategy]]:
    """The kinds of strategies that there are: those of the files of :mod:`.strategies`."""
    for each in iter_modules(strategies.__path__):
        module = import_module(f"{strategies.__name__}.{each.name}")
        for found in vars(module).values():
            if isinstance(found, type) and issubclass(found, Strategy) and found.__module__ == module.__name__:
                yield found


_KINDS = tuple(_kinds())
#: For each tag what reads the strategy of its document.
STRATEGIES: Mapping[str, Callable[[Any], Strategy]] = {
    tag: reader for kind in _KINDS for tag, reader in kind.readers().items()
}


def read_strategy(document: Mapping[str, Any]) -> Strategy:
    """The strategy of a measurement's document.

    Raises:
        KeyError, TypeError, ValueError: when there is none.
    """
    tag = next((tag for tag in STRATEGIES if tag in document), "")
    _check_whole(document[tag])
    return STRATEGIES[tag](document[tag])


def _check_whole(document: Any) -> None:
    """Refuse what a strategy never writes: 0.0 would equal 0, and be no place in an array.

    Raises:
        TypeError: for any number that is not whole.
    """
    left: list[Any] = [[document]]
    while left:
        each = left.pop()
        parts = each.values() if isinstance(each, dict) else each
        kinds = set(map(type, parts))  # lists of numbers are long
        if float in kinds:
            raise TypeError("a strategy is told in whole numbers")
        if kinds & {dict, list}:
            left += [part for part in parts if isinstance(part, dict | list)]


def serving(question: Question) -> list[TableStrategy]:
    """The strategies that answer a question about a table in one measurement, beside the question's own marginal."""
    found = (strategy for kind in _KINDS for strategy in kind.serving(question))
    return [strategy for strategy in found if isinstance(strategy, TableStrategy)]


@dataclass(frozen=True, eq=False)
class _Noisy(Generic[S]):
    """A strategy, and the noise of each value."""

    strategy: S
    noise: Law

    @property
    def added(self) -> Noise:
        """The noise, which is added to numbers.

        Raises:
            ValueError: where bits are turned over.
        """
        if not isinstance(self.noise, Noise):
            raise ValueError("nothing is added to bits")
        return self.noise


@dataclass(frozen=True)
class Purchase(_Noisy[S]):
    """A measurement to be made.

    Attributes:
        strategy: what is measured.
        noise: of each value.
        price: what it costs in both sums of the ledger.
    """

    price: Amounts

    @classmethod
    def at(cls, strategy: T, noise: Law, adjacency: Adjacency, order: Decimal) -> Purchase[T]:
        """The purchase at its price, where neighbours are so far apart, in a ledger of this order.

        Raises:
            PrivacyError: when that is infinite at this order.
        """
        return Purchase(strategy, noise, price_of(strategy.events(noise, adjacency), order))


@dataclass(frozen=True, eq=False)
class Measurement(_Noisy[S]):
    """A strategy, its noise, and the released values.

    Attributes:
        strategy: what was measured.
        noise: of each value.
        units: the released values: bits, or whole units of 2^-bits, not clipped, so that each is unbiased.

    Raises:
        ValueError: when there are other values than the strategy has, or they are none of this noise.
    """

    units: Array

    def __post_init__(self) -> None:
        units = self.noise.units(self.units)
        self.strategy.check_units(units)
        if units.dtype == np.uint8 and not self.strategy.binary:
            raise ValueError(f"{self.strategy.tag} are no bits")
        units.setflags(write=False)
        object.__setattr__(self, "units", units)

    @property
    def variance(self) -> float:
        """Variance of each unbiased value, in counts squared."""
        return self.noise.variance

    @lazy
    def values(self) -> FloatArray:
        """The unbiased values, in counts."""
        values = self.noise.unbiased(self.units)
        values.setflags(write=False)
        return values

    def of(self, kind: type[T]) -> Measurement[T]:
        """This measurement, which is one of such a strategy.

        Raises:
            ValueError: when it is not.
        """
        if not isinstance(self.strategy, kind):
            raise ValueError(f"a measurement of {self.strategy.tag}")
        return cast(Measurement[T], self)

    def document(self) -> dict[str, Any]:
        """As JSON of integers and strings."""
        values = self.units.tolist() if self.strategy.listed else self.noise.packed(self.units)
        return {self.strategy.tag: self.strategy.document(), "noise": self.noise.document(), "values": values}

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Measurement[Strategy]:
        """From JSON.

        Raises:
            ValueError: when it is none.
        """
        try:
            strategy, noise, values = read_strategy(document), read_noise(document["noise"]), document["values"]
            units = read_integers(values) if strategy.listed else noise.unpacked(values, strategy.cells)
            return Measurement(strategy, noise, units)
        except (KeyError, TypeError) as error:
            raise ValueError("not the document of a measurement") from error


def those(measurements: Iterable[Measurement[Strategy]], kind: type[T]) -> list[Measurement[T]]:
    """Those of such a strategy."""
    return [each.of(kind) for each in measurements if isinstance(each.strategy, kind)]


def bought(purchases: Iterable[Purchase[Strategy]], kind: type[T]) -> list[Purchase[T]]:
    """The purchases of such a strategy."""
    return [cast(Purchase[T], each) for each in purchases if isinstance(each.strategy, kind)]
