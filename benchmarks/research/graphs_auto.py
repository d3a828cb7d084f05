"""The service's own session on a graph, without a server: the same plan, decisions and numbers.

Noise comes from NumPy with a fixed seed, and is not rounded to the grid before it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from app.curator.dataset import PublicDataset
from app.curator.mechanisms.graph import GraphEvidence
from app.curator.mechanisms.protocol import Answer as Answered
from app.curator.mechanisms.protocol import Buy, Measured
from app.curator.opening import Opening
from app.curator.planning import chosen, make_plan
from app.curator.request import parse_request
from app.curator.session import Session
from app.declarations.spec import parse_spec
from app.estimation.graphs.cut_posterior import CutPosterior
from app.measurements.noise import BitFlips, Noise
from app.measurements.record import Measurement, Purchase
from app.measurements.strategies.asked import Asked
from app.measurements.strategies.degrees import Degrees
from app.measurements.strategies.edges import Edges
from app.measurements.strategy import Strategy
from app.policies.graph import GraphPolicy
from app.privacy.ledger import Amounts
from app.spaces.queries.canonical import pair_query
from app.spaces.queries.weights import product
from app.spaces.query import Query
from app.spaces.tensor import FloatArray
from benchmarks.research.graphs_data import Answer, BoolArray, Graph


def dataset_of(of: Graph, epsilon: float, delta: float, **declared: object) -> PublicDataset:
    """The declaration of a graph of which nothing was ever asked."""
    rows, columns = of.shape
    if of.bipartite:
        told: dict[str, object] = {"kind": "bipartite", "left": rows, "right": columns}
    else:
        told = {"kind": "graph", "nodes": rows, "directed": not of.undirected}
    budget = {"epsilon": epsilon, "delta": delta}
    dataset = PublicDataset(parse_spec(told | {"name": "g", "budget": budget} | declared))
    left = Amounts(dataset.budget.total, Decimal(str(epsilon)))
    return PublicDataset(dataset.spec, left=left)


@dataclass
class Auto:
    """An evidence session of a graph."""

    name: str
    of: Graph
    session: Session
    rng: np.random.Generator

    def query(self, left: BoolArray, right: BoolArray) -> Query:
        """The query of a cut."""
        sides = np.flatnonzero(left), np.flatnonzero(right)
        space = self.session.dataset.space
        if self.of.undirected:
            return pair_query(space, *sides, bits=0, rounding=0.0)
        return product(space, {0: sides[0], 1: sides[1]})

    def answer(self, left: BoolArray, right: BoolArray) -> Answer:
        query, session = self.query(left, right), self.session
        due = session.consider(query)
        if isinstance(due, Buy):
            exact = self.of.truth(left, right) * 2**session.plan.answer_bits
            noise = due.purchase.added
            scale = math.ldexp(float(noise.scale), noise.bits)
            draw = self.rng.normal if noise.kind == "gaussian" else self.rng.laplace
            units = np.array([round(exact + draw(0, scale))], np.int64)
            due = session.apply(query, due, units)
        assert isinstance(due, Answered)
        found = session.accuracy(query, due)
        session.record(query, due)
        assert found is not None
        value = math.ldexp(int(due.units[0]), -session.plan.answer_bits)
        return value, float(found.lows[0]), float(found.highs[0])

    def expectation(self) -> FloatArray:
        """What is expected of every pair by now; of edges that were measured, what they say."""
        known = self.session.state
        assert isinstance(known, GraphEvidence)
        return cells_of(known.policy)


def cells_of(policy: GraphPolicy) -> FloatArray:
    """The expectation of every cell of the matrix."""
    if policy.edges is not None:
        return policy.edges.matrix.astype(np.float64)
    posterior = policy.posterior
    cells = posterior.expected.cells
    made: FloatArray = np.minimum(1.0, cells.rows[:, None] * cells.columns)
    if not cells.loops:
        np.fill_diagonal(made, 0.0)
    if posterior.kept:
        made += _learnt(posterior)
    return made


def _learnt(posterior: CutPosterior) -> FloatArray:
    """What measured cuts move the expectation of every cell by."""
    n = posterior.kept
    weights = np.linalg.solve(posterior._root.T, posterior._solved)
    expected, total = posterior.expected, posterior.expected.total
    kept, slopes = [], []
    for family in posterior._families:
        columns = family._columns
        bits = np.unpackbits(columns._bits, axis=1, bitorder="little")[:, : columns.count].T.astype(np.float64)
        kept.append(bits.reshape(n, -1, bits.shape[1]))
        slopes.append(family.slopes)

    def centred(sets: FloatArray, by: FloatArray) -> FloatArray:
        weighed: FloatArray = sets * by - np.outer(sets @ by, by) / max(float(by.sum()), 1e-12)
        return weighed

    sides = (expected.left, expected.right)
    moved = []
    for sets, slope, side in zip(kept, slopes, sides, strict=False):
        by = np.einsum("q,qk,qkn->n", weights, slope, sets)
        moved.append(centred(by[None], side.noise)[0] + posterior.shape_factor * centred(by[None], side.shape)[0])
    if expected.kind == "pairs":
        s, t, w = (centred(kept[0][:, k], sides[0].weights) for k in range(3))
        half = (s * weights[:, None]).T @ t - 0.5 * (w * weights[:, None]).T @ w
        share = sides[0].sums / total
        made: FloatArray = posterior.factor * (half + half.T)
        across = np.outer(moved[0], share)
        return made + across + across.T
    u, v = centred(kept[0][:, 0], sides[0].weights), centred(kept[1][:, 0], sides[1].weights)
    made = posterior.factor * (u * weights[:, None]).T @ v
    shares = sides[0].sums / total, sides[1].sums / total
    return made + np.outer(moved[0], shares[1]) + np.outer(shares[0], moved[1])


def make(of: Graph, epsilon: float, delta: float, questions: int, seed: int, **declared: object) -> Auto:
    """A session that takes the whole budget of a graph."""
    dataset, rng = dataset_of(of, epsilon, delta, **declared), np.random.default_rng([seed, 7])
    asked = {"dataset": "g", "epsilon": epsilon, "max_queries": questions}
    request, _ = chosen(dataset, parse_request(asked))
    session = Session(Opening(dataset, request, make_plan(dataset, request)))
    for buy in session.purchases():
        session.pin(Measured(_measured(of, buy, rng), buy.price))
    return Auto("auto", of, session, rng)


def _measured(
    of: Graph, buy: Purchase[Strategy], rng: np.random.Generator
) -> Measurement[Degrees] | Measurement[Edges] | Measurement[Asked]:
    if isinstance(buy.strategy, Asked):
        assert isinstance(buy.noise, Noise)
        draw = rng.normal if buy.noise.kind == "gaussian" else rng.laplace
        noisy = (of.edges + draw(0, float(buy.noise.scale))) * 2**buy.noise.bits
        return Measurement(buy.strategy, buy.noise, np.array([round(noisy)], np.int64))
    if isinstance(buy.strategy, Degrees):
        rows, columns = (of.matrix.sum(axis=axis, dtype=np.float64) for axis in (1, 0))
        exact = rows if of.undirected else np.concatenate([rows, columns])
        draw = rng.normal if buy.noise.kind == "gaussian" else rng.laplace
        noisy = np.rint(exact + draw(0, float(buy.noise.scale), len(exact))).astype(np.int64)
        return Measurement(buy.strategy, buy.noise, noisy)
    assert isinstance(buy.strategy, Edges)
    assert isinstance(buy.noise, BitFlips)
    bits = buy.strategy.flattened(of.matrix.toarray()).astype(np.uint8)
    return Measurement(buy.strategy, buy.noise, bits ^ (rng.random(len(bits)) < float(buy.noise.probability)))
