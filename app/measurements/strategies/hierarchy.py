"""Counts of all nodes of a tree, level by level: the cells of a marginal, and what they add up to along one attribute.

A record is in one node of each level, so each level moves by what a marginal does, and the levels compose
(docs/privacy.md, 9.10). How much of the price a level gets is said by its multiplier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from app.measurements.strategies.tables import Part, TableStrategy, shares
from app.spaces.questions import MOST_COUNTED, Nested, Question
from app.spaces.space import Space

#: Multipliers that are looked at are as these powers of the levels' numbers of cells: equal ones; those that come
#: within about two hundredths of the least errors where noise is Gaussian; and those that do with Laplace noise, where
#: any tree is worth its price (benchmarks/research/hierarchies.py).
POWERS = (0.0, 1 / 3, 1 / 2)


@dataclass(frozen=True)
class Hierarchy(TableStrategy):
    """The strategy of a hierarchy: for each level, from coarse to fine, the number of records in each node.

    Raises:
        ValueError: when the parts are other than counts of ever finer cells along one and the same attribute.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        marginals = [part.marginal for part in self.parts]
        finest = marginals[-1]
        if len(marginals) < 2 or not all(part.counts for part in self.parts) or self._divided is None:
            raise ValueError("a hierarchy counts the nodes of two levels or more")
        for coarse, fine in pairwise(marginals):
            if coarse.attributes != finest.attributes or coarse.sizes != finest.sizes or coarse == fine:
                raise ValueError("the levels of a hierarchy divide one attribute")
            for axis in range(len(finest.attributes)):
                own, finer = coarse.partition(axis), fine.partition(axis)
                if not (own == finer or (axis == self._divided and finer.refines(own))):
                    raise ValueError("each level of a hierarchy divides the cells of the one before")

    @property
    def _divided(self) -> int | None:
        """The place of the attribute along which levels differ."""
        first, last = self.parts[0].marginal, self.parts[-1].marginal
        places = (k for k in range(len(first.attributes)) if first.partition(k) != last.partition(k))
        return next(places, None)

    @property
    def tag(self) -> str:
        return "hierarchy"

    def describe(self, space: Space) -> dict[str, Any]:
        """The attribute, and of each level how many nodes it has and what their counts are multiplied by."""
        assert self._divided is not None
        marginals = [part.marginal for part in self.parts]
        return {
            "type": self.tag,
            "attribute": space.names[marginals[0].attributes[self._divided]],
            "attributes": [space.names[a] for a in marginals[0].attributes],
            "levels": [marginal.shape[self._divided] for marginal in marginals],
            "multipliers": [part.multiplier for part in self.parts],
            "cells": self.cells,
        }

    @classmethod
    def read(cls, document: Sequence[Mapping[str, Any]]) -> Hierarchy:
        return cls(tuple(Part.read(part) for part in document))

    @classmethod
    def readers(cls) -> Mapping[str, Any]:
        return {"hierarchy": cls.read}

    @classmethod
    def serving(cls, question: Question) -> Sequence[Hierarchy]:
        """All nodes of a tree at once, with several divisions of the price among levels."""
        if not isinstance(question, Nested) or len(question.levels) < 2:
            return ()
        marginals = [part.marginal for part in question.parts]
        if sum(marginal.cells for marginal in marginals) > MOST_COUNTED:
            return ()
        divisions = [
            shares([1] * len(marginals), [level.cells ** (2 * p) for level in question.levels]) for p in POWERS
        ]
        return [
            cls(tuple(Part(m, multiplier=times) for m, times in zip(marginals, multipliers, strict=True)))
            for multipliers in divisions
        ]
