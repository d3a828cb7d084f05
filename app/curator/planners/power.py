"""Plans of iterative constructions of graphs and matrices: how many rounds of the power method, and on which terms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.plan import Offer
from app.curator.planners.workload import WorkloadPlan, check_options, workload_of
from app.curator.request import SessionRequest
from app.declarations.errors import CuratorError
from app.measurements.pricing import Events
from app.measurements.record import Measurement
from app.measurements.strategies.edges import Edges
from app.measurements.strategies.products import Products
from app.measurements.strategy import Strategy
from app.patience import Progress
from app.privacy.exactness import floor_to
from app.privacy.ledger import Amounts
from app.releases.edge_designs import product_noise
from app.releases.playing import Begin
from app.releases.power import STEPS, WEIGHT_BITS, PowerRounds, started
from app.spaces.space import Space

#: The hypothesis has at most so many cells.
MOST_CELLS = 1 << 22
#: The most rounds where no number is asked for: on graphs of few communities more of them erred more.
MOST_ROUNDS = 5
#: There are as many rounds as leave noise that is this part of the largest sum of a row or a column.
NOISE_PART = 1 / 8
#: What a round holds of a cell, in bytes: hypothesis, query, and data in 64 bits each, and what they are made of.
_CELL_BYTES = 32


@dataclass(frozen=True, kw_only=True)
class PowerPlan(WorkloadPlan):
    """The plan of an iterative construction of a graph or a matrix.

    Attributes:
        power: the terms of its rounds.
        papers_epsilon: epsilon of a step as GRU11 has it, section 6.
    """

    power: PowerRounds
    papers_epsilon: float

    def admits(self, place: int, release: Measurement[Strategy], price: Amounts) -> bool:
        """Whether a measurement may be the one at this place: of the side that is due, on the terms of the rounds."""
        return isinstance(release.strategy, Products) and self.power.admits(place, release.of(Products), price)

    def rounds(
        self,
        dataset: PublicDataset,
        request: SessionRequest,
        known: Sequence[Measurement[Strategy]],
        made: Sequence[Measurement[Strategy]],
        progress: Progress,
    ) -> Begin:
        """All that is measured."""
        return partial(self.power.play, started(self.power.edges, known), progress)

    def measuring_bytes(self, space: Space) -> int:
        """The memory that the rounds take, in bytes."""
        return _CELL_BYTES * space.cells

    def document(self) -> dict[str, Any]:
        """As JSON: the terms of a round, and beside them those of the papers. Of noise the least is that of rank-one
        queries or of power steps.
        """
        power = self.power
        scales = [float(noise.scale) for noise in (power.step, power.query)]
        return super().document() | {
            "cells": power.edges.cells,
            "noise": "gaussian",
            "noise_scale": min(scales),
            "largest_noise_scale": max(scales),
            "rounds": {
                "number": power.number,
                "power_steps": STEPS,
                "weight_bits": power.bits,
                "step_cost": str(power.step_price.renyi),
                "cost": str(power.price.renyi),
                "papers_epsilon": self.papers_epsilon,
            },
        }


def power(dataset: PublicDataset, request: SessionRequest) -> Offer[PowerPlan]:
    """The offer of such a release. Reads public facts only: the same for neighbouring data.

    Raises:
        PlanInfeasible, PrivacyError: when there is no such release.
    """
    mechanism, space, budget = request.workload, dataset.space, dataset.budget
    workload = workload_of(space, request)
    try:
        bits = min(WEIGHT_BITS, space.axis_bits(2))
    except CuratorError as error:
        raise PlanInfeasible(error.detail) from None
    check_options(space, mechanism.options, "iterative_construction", ("rounds", "construction"))
    if mechanism.options.construction == "mw":
        raise PlanInfeasible(f"of a {space.kind} the construction is fk: leave construction out, or say fk")
    if space.cells > MOST_CELLS:
        raise PlanInfeasible(
            f"iterative_construction keeps a number for every cell, at most {MOST_CELLS:,}, and the {space.kind} has "
            f"{space.cells:,}: ask its queries one by one in a session of gaussian or laplace, or of a construction"
        )
    share = dataset.share(request.epsilon)
    number = mechanism.options.rounds or _usual_number(space, share, budget.order)
    rounds, events = _terms(dataset, Edges.of(space), bits, number, share)
    papers = float(request.epsilon) / (4 * math.sqrt(number * math.log(1 / float(budget.delta))))
    plan = partial(
        PowerPlan,
        max_updates=rounds.measurements,
        workload=workload,
        expected=None,
        power=rounds,
        papers_epsilon=float(f"{papers:.6g}"),
    )
    return Offer(plan=plan, most=Amounts(share), events=events)


def _terms(dataset: PublicDataset, edges: Edges, bits: int, number: int, share: Decimal) -> tuple[PowerRounds, Events]:
    """The terms of so many rounds, each measurement for the same part of the share, and the events of all.

    Raises:
        Unaffordable: when such a part pays for no noise that can be drawn.
    """
    part, adjacency = floor_to(Fraction(share) / (number * (STEPS + 1))), dataset.adjacency
    one = [_any(edges, bits, whole=whole) for whole in (False, True)]
    step, query = (product_noise(each, adjacency, dataset.budget.order, part) for each in one)
    rounds = PowerRounds(edges, bits, number, step.added, query.added, step.price, query.price)
    ((each, _),), ((whole, _),) = (buy.strategy.events(buy.noise, adjacency) for buy in (step, query))
    return rounds, ((each, STEPS * number), (whole, number))


def _any(edges: Edges, bits: int, *, whole: bool) -> Products:
    """Some products: the price is the same whatever the weights are."""
    left, right = (np.zeros(length, np.int64) for length in edges.shape)
    return Products(edges, bits, left if whole else None, right)


def _usual_number(space: Space, share: Decimal, order: Decimal) -> int:
    """How many rounds are played where none are asked for.

    A round finds something while the noise of a power step is well below the sums of rows and columns, of which the
    largest that the data can have is the shorter side times the largest entry. Noise grows like the root of the number
    of rounds, as each gets a part of the share.
    """
    side = min(space.shape)
    variance = float(order) * (STEPS + 1) * (2 if space.symmetric else 1) / (2 * float(share))
    largest = float(space.largest or space.unit) / float(space.unit)
    return max(1, min(MOST_ROUNDS, side, int((NOISE_PART * side * largest) ** 2 / variance)))
