"""Structural zeros: records that are declared not to occur are outside of the declaration as values can be."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.declarations.errors import InvalidDataset
from app.declarations.spec import TableSpec
from app.spaces.factory import zeros_of
from app.spaces.zeros import Zeros
from app.storage.readers.report import Coded, Rule
from app.storage.readers.sums import exact_sum


class ZeroCheck:
    """Finds the records that one structural zero says cannot be; made by :func:`zero_checks`.

    It is told of under the name of its place in the declaration.
    """

    def __init__(self, number: int, spec: TableSpec, zeros: Zeros) -> None:
        (self._family,) = zeros.families
        named = ", ".join(f'"{spec.attributes[axis].name}"' for axis in self._family.attributes)
        self._name = f"zeros.{number}"
        expected = f"none of the combinations of {named} that {self._name} declares not to occur"
        self.rule = Rule(self._name, expected, spec.outside == "refuse")
        self._zeros = zeros

    def __call__(self, columns: Sequence[Coded]) -> Coded:
        """Where records cannot be, as values outside; those with a value that has no place are not looked at.

        Args:
            columns: of every attribute.
        """
        bad = np.ones(len(columns[0].places), np.bool_)
        index = []
        for axis, classes in zip(self._family.attributes, self._family.classes, strict=True):
            places = columns[axis].places
            bad &= places >= 0
            index.append(classes.at(np.maximum(places, 0)))
        bad &= ~self._family.possible[tuple(index)]
        return Coded(np.where(bad, -1, 0), np.zeros(len(bad), np.bool_))

    def check_counts(self, counts: NDArray[Any]) -> None:
        """Refuse counts of what cannot be.

        Raises:
            InvalidDataset: when one is not 0.
        """
        axes = self._family.attributes
        others = tuple(axis for axis in range(counts.ndim) if axis not in axes)
        held = counts.any(axis=others)
        impossible = ~self._family.possible[np.ix_(*(classes.labels for classes in self._family.classes))]
        if exact_sum(held & impossible):
            raise InvalidDataset(
                f"a count is not 0 of {self.rule.expected.removeprefix('none of ')}: correct the counts, or leave "
                f"{self._name} out"
            )


def zero_checks(spec: TableSpec) -> list[ZeroCheck]:
    """The structural zeros of a table, each by itself.

    Raises:
        InvalidDataset: when one does not fit the attributes, or they leave no record.
    """
    if not spec.zeros:
        return []
    zeros_of(spec)
    singly = (spec.model_copy(update={"zeros": (zero,)}) for zero in spec.zeros)
    return [ZeroCheck(number, spec, zeros_of(own)) for number, own in enumerate(singly)]
