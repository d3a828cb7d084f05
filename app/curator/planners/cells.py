"""Plans of releases of graphs and matrices: every cell is measured once, and all cuts are answered from that.

A synthetic graph that is found by its singular values is made of degrees, too, which are measured beside the cells
where their noise is the lesser.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from app.curator.dataset import PublicDataset
from app.curator.errors import PlanInfeasible
from app.curator.plan import Offer
from app.curator.planners.workload import WorkloadPlan, check_options, workload_of
from app.curator.request import SessionRequest
from app.measurements.record import Purchase, bought
from app.measurements.strategies.degrees import Degrees
from app.measurements.strategies.edges import Edges
from app.measurements.strategy import Strategy
from app.privacy.exactness import floor_to
from app.privacy.ledger import Amounts, Regime, total
from app.releases.cut_bounds import Term, all_cuts_bound, rounded_up
from app.releases.edge_designs import beside_degrees, best_noise, degrees_pay, part_for_degrees
from app.releases.expected import Expected
from app.spaces.space import Space

#: The most cells that are measured: bits, which take little time and are packed, and numbers.
MOST_BITS, MOST_NUMBERS = 1 << 24, 1 << 22
#: The most nodes of a side for which the nearest graph in cut norm is sought, which takes minutes.
MOST_NEAREST = 2048
#: What measuring a cell takes for a while, in bytes: a bit and what it is turned over by; a number, its noise as the
#: sampler's list and as an array, and their sum.
_BIT_BYTES, _NUMBER_BYTES = 8, 64

#: How all cells are released: as they were measured, or as the graph that is made of that.
EdgeMethod = Literal["histogram", "synthetic_graph"]
#: The options that belong to each.
_OPTIONS: dict[EdgeMethod, tuple[str, ...]] = {"histogram": (), "synthetic_graph": ("rounding", "geometry")}


@dataclass(frozen=True, kw_only=True)
class EdgePlan(WorkloadPlan):
    """The plan of a release of all cells of a graph or a matrix, with degrees where these pay. Errors are in counts.

    Attributes:
        method: how they are released.
        cell_error: the standard error of the unbiased value of a cell; that of a cut of m cells is ``sqrt(m)`` of it.
        all_cuts_bound: what the errors of all cuts by the unbiased values, and of all rank-one queries with weights in
            [0, 1], keep at once with probability 1 - beta.
    """

    method: EdgeMethod
    cell_error: float
    all_cuts_bound: float

    @property
    def buy(self) -> Purchase[Edges]:
        """The measurement of the cells."""
        return bought(self.buys, Edges)[0]

    @property
    def degrees(self) -> Purchase[Degrees] | None:
        """The measurement of the degrees; None where there is none."""
        return next(iter(bought(self.buys, Degrees)), None)

    @property
    def price(self) -> Amounts:
        """The cost of all measurements together."""
        return total(buy.price for buy in self.buys)

    @property
    def error_bound(self) -> float | None:
        """That of all cuts, where it is the unbiased values that are released."""
        return self.all_cuts_bound if self.method == "histogram" else None

    def measuring_bytes(self, space: Space) -> int:
        """The memory that measuring takes, in bytes."""
        each = [_BIT_BYTES if buy.noise.kind == "flips" else _NUMBER_BYTES for buy in self.buys]
        return sum(size * buy.strategy.cells for size, buy in zip(each, self.buys, strict=True))

    def document(self) -> dict[str, Any]:
        """As JSON: noise and number are those of the cells; with the errors of a cell, and of the largest cut, and with
        number, noise and error of degrees where these are measured.
        """
        document = super().document() | {
            "cells": self.buy.strategy.cells,
            "noise_scale": float(self.buy.noise.scale),
            "largest_noise_scale": float(self.buy.noise.scale),
            "cell_error": self.cell_error,
            "largest_cut_error": rounded_up(math.sqrt(self.buy.strategy.cells) * self.cell_error),
            "all_cuts_bound": self.all_cuts_bound,
        }
        return document if self.degrees is None else document | {"degrees": _degrees_told(self.degrees)}


def _degrees_told(buy: Purchase[Degrees]) -> dict[str, Any]:
    return {
        "values": buy.strategy.cells,
        "noise": buy.noise.kind,
        "noise_scale": float(buy.noise.scale),
        "error": rounded_up(math.sqrt(buy.noise.variance)),
    }


def cells(dataset: PublicDataset, request: SessionRequest) -> Offer[EdgePlan]:
    """The offer of a release of all cells. Reads public facts only: the same for neighbouring data.

    Raises:
        PlanInfeasible, PrivacyError: when there is no such release.
    """
    mechanism, space, budget = request.workload, dataset.space, dataset.budget
    workload = workload_of(space, request)
    method = _method(space, mechanism.method)
    check_options(space, mechanism.options, method, _OPTIONS[method])
    edges, adjacency = Edges.of(space), dataset.adjacency
    most = MOST_BITS if adjacency.binary else MOST_NUMBERS
    if edges.cells > most:
        raise PlanInfeasible(
            f"{method} measures every cell, at most {most:,} of {'bits' if adjacency.binary else 'numbers'}, and the "
            f"{space.kind} has {edges.cells:,}: declare fewer nodes, or ask its cuts one by one in a session of "
            "gaussian or laplace, or of a construction"
        )
    if mechanism.options.geometry == "cut_norm" and max(edges.shape) > MOST_NEAREST:
        raise PlanInfeasible(
            f"geometry: the nearest graph in cut norm is sought for at most {MOST_NEAREST:,} nodes a side, and there "
            f"are {max(edges.shape):,}: leave it out, or say spectral"
        )
    share = dataset.share(request.epsilon)
    whole = floor_to(request.epsilon) if dataset.admits_pure(request.epsilon) else None
    measured = best_noise(edges, adjacency, budget.order, share, whole)
    # Where its price passes the share, it takes all that is left of epsilon instead.
    regime: Regime = "renyi" if measured.price.renyi <= share else "pure"
    buys: tuple[Purchase[Strategy], ...] = (measured,)
    if method == "synthetic_graph" and mechanism.options.geometry != "cut_norm":
        part = part_for_degrees(measured, adjacency, budget.order, by_pure=regime == "pure")
        less, degrees = beside_degrees(edges, adjacency, budget.order, share, whole if regime == "pure" else None, part)
        if degrees_pay(degrees.added, measured.noise, edges):
            measured, buys = less, (less, degrees)
    noise, events = measured.noise, tuple(event for buy in buys for event in buy.strategy.events(buy.noise, adjacency))
    deviation = rounded_up(math.sqrt(noise.variance))
    bound = all_cuts_bound(edges, [Term(noise)], request.beta)
    # A cut that has half of the nodes on either side has a quarter of the cells. How far those of a synthetic graph are
    # off depends on the graph.
    expected = None
    if method == "histogram":
        expected = Expected((), deviation * math.sqrt(edges.cells) / 2, bound)
    plan = partial(
        EdgePlan,
        max_updates=len(buys),
        workload=workload,
        expected=expected,
        method=method,
        cell_error=deviation,
        all_cuts_bound=bound,
    )
    pure = total(buy.price for buy in buys).pure
    return Offer(plan=plan, buys=buys, events=events, regime=regime, guarantees=pure)


def _method(space: Space, asked: str) -> EdgeMethod:
    """How the cells are released.

    Raises:
        PlanInfeasible: when they cannot be so.
    """
    if asked in ("auto", "histogram"):
        return "histogram"
    if asked != "synthetic_graph":
        raise PlanInfeasible(f"{asked} serves tables, and this is a {space.kind}: use histogram or synthetic_graph")
    if space.kind == "matrix":
        raise PlanInfeasible("synthetic_graph makes graphs, and this is a matrix: use histogram")
    return "synthetic_graph"
