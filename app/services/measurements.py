"""Measurements of data sets: what was ever released of them, for all who may see it.

A measurement that its session does not share serves that session alone; auditors and admins see it all the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from app.curator.mechanisms import Measured
from app.declarations.errors import InvalidRequest
from app.measurements.noise import BitFlips, read_noise
from app.measurements.pieces import Combination, Contrast, Piece, pieces_of
from app.measurements.record import Measurement
from app.measurements.rows import Rows
from app.measurements.strategies.asked import Asked
from app.measurements.strategies.degrees import Degrees
from app.measurements.strategies.edges import Edges
from app.measurements.strategies.products import Products
from app.measurements.strategies.tables import Moment, TableStrategy
from app.services.datasets import Datasets, public_dataset
from app.services.edge_tables import degree_table, edge_table
from app.services.errors import NotFound
from app.services.pages import Page
from app.services.ports import EvidenceRow, Store
from app.services.principals import Principal
from app.spaces.space import Space
from app.spaces.table import TableSpace

#: The most values that are shown as JSON.
MOST_SHOWN = 1 << 16


@dataclass(frozen=True)
class ReleasedDegrees:
    """A measurement of a graph's degrees as it is shown: what is said of it, and their values."""

    view: dict[str, Any]
    release: Measurement[Degrees]
    space: Space

    def document(self) -> dict[str, Any]:
        """As JSON: of a directed graph the degrees of sources, then those of targets; of a bipartite graph those of the
        left side, then those of the right.
        """
        return self.view | {"values": self.release.values.tolist(), "standard_error": self.release.variance**0.5}

    def table(self) -> pa.Table:
        """A row a degree; what else is said of it is not among the columns."""
        return degree_table(self.space, self.release.strategy, self.release.values)


@dataclass(frozen=True)
class ReleasedProducts:
    """A measurement of products of cells with weights as it is shown: what is said of it, weights and values."""

    view: dict[str, Any]
    release: Measurement[Products]
    space: Space

    def document(self) -> dict[str, Any]:
        """As JSON: of weights by columns a value for each row, of those by rows one for each column, of both one value.

        Raises:
            InvalidRequest: when they are too many.
        """
        products = self.release.strategy
        if max(products.edges.shape) > MOST_SHOWN:
            raise _too_many(max(products.edges.shape))
        left, right = (
            None if weights is None else np.ldexp(weights.astype(np.float64), -products.bits).tolist()
            for weights in (products.left, products.right)
        )
        told = {"values": self.release.values.tolist(), "standard_error": self.release.variance**0.5}
        return self.view | told | {"left": left, "right": right}

    def table(self) -> pa.Table:
        """A row a value; what else is said of it is not among the columns."""
        return pa.table({"value": self.release.values})


@dataclass(frozen=True)
class ReleasedAsked:
    """A query of a graph or a matrix that was measured, as it is shown: what is said of it, and its values."""

    view: dict[str, Any]
    release: Measurement[Asked]

    def document(self) -> dict[str, Any]:
        """As JSON: the query in its canonical form, and its values in the order of that."""
        told = {"values": self.release.values.tolist(), "standard_error": self.release.variance**0.5}
        return self.view | told | {"query": dict(self.release.strategy.form)}

    def table(self) -> pa.Table:
        """A row a value; what else is said of it is not among the columns."""
        return pa.table({"value": self.release.values})


@dataclass(frozen=True)
class ReleasedEdges:
    """A measurement of a graph or a matrix as it is shown: what is said of it, and the values of its cells."""

    view: dict[str, Any]
    release: Measurement[Edges]
    space: Space

    def document(self) -> dict[str, Any]:
        """As JSON: unbiased values row by row, and how they were released.

        Raises:
            InvalidRequest: when they are too many.
        """
        if self.release.strategy.cells > MOST_SHOWN:
            raise _too_many(self.release.strategy.cells)
        noise = self.release.noise
        told = {"values": self.release.values.tolist(), "standard_error": self.release.variance**0.5}
        if isinstance(noise, BitFlips):
            told |= {"bits": self.release.units.tolist()}
        return self.view | told

    def table(self) -> pa.Table:
        """A row a cell; what else is said of it is not among the columns."""
        release = self.release
        bits = release.units.astype(np.uint8, copy=False) if isinstance(release.noise, BitFlips) else None
        return edge_table(self.space, release.strategy, release.values, bits)


@dataclass(frozen=True)
class Released:
    """A measurement as it is shown: what is said of it, and its values with what their cells are called."""

    view: dict[str, Any]
    release: Measurement[TableStrategy]
    space: TableSpace

    @property
    def plain(self) -> bool:
        """Whether it is the counts of one marginal."""
        return self.release.strategy.plain is not None

    def document(self) -> dict[str, Any]:
        """As JSON, values row by row: of several parts, of moments, or of combinations, part by part."""
        parts = [self._part(moment, piece) for moment, piece in pieces_of(self.release)]
        return self.view | (parts[0] if self.plain else {"parts": parts})

    def _part(self, moment: Moment | None, piece: Piece) -> dict[str, Any]:
        marginal = piece.marginal
        axes = [
            {
                "attribute": self.space.names[attribute],
                "labels": list(self.space.values[attribute].labels(marginal.partition(k).listed())),
            }
            for k, attribute in enumerate(marginal.attributes)
        ]
        variance = piece.variance
        if isinstance(piece, Contrast):
            # What is shown sums to zero along each axis, and so does its noise.
            variance *= math.prod(1 - 1 / n for n in marginal.shape)
        told: dict[str, Any] = {"axes": axes, "values": piece.values.reshape(-1).tolist()}
        told["standard_error"] = variance**0.5
        if isinstance(piece, Contrast):
            told["residual"] = True
        elif isinstance(piece, Combination):
            # A value for each row: the axes are those of its weights.
            told["rows"] = piece.rows.document()
        return told | ({} if moment is None else {"of": self.space.names[moment.axis], "moment": moment.power})


#: A measurement as it is shown.
Shown: TypeAlias = Released | ReleasedEdges | ReleasedDegrees | ReleasedProducts | ReleasedAsked


class Measurements:
    """Shows measurements."""

    def __init__(self, store: Store, datasets: Datasets) -> None:
        self._store, self._datasets = store, datasets

    def list(self, actor: Principal, name: str, after: int, most: int) -> Page:
        """Measurements of a data set numbered beyond ``after``, in the order of recording, without their values.

        Raises:
            NotFound: when there is no such data set.
            Forbidden: when access is by grant, and the actor has none.
        """
        space = self._space(actor, name)
        with self._store.read() as tx:
            rows, others = tx.evidence_page(name, after, most)
        items = [_view(space, row, orjson.loads(row.line)) for _, row in rows if _sees(actor, row)]
        return Page(items, str(rows[-1][0]) if others else None)

    def get(self, actor: Principal, name: str, id: str) -> Shown:
        """A measurement with its values.

        Raises:
            NotFound: when there is none that the actor may see.
            Forbidden: when access is by grant, and the actor has none.
        """
        space = self._space(actor, name)
        with self._store.read() as tx:
            row = tx.evidence_row(name, id)
        if row is None or not _sees(actor, row):
            raise NotFound("there is no such measurement of this data set")
        record = orjson.loads(row.line)
        view, release = _view(space, row, record), Measured.read(record).release
        if isinstance(release.strategy, Edges):
            return ReleasedEdges(view, release.of(Edges), space)
        if isinstance(release.strategy, Degrees):
            return ReleasedDegrees(view, release.of(Degrees), space)
        if isinstance(release.strategy, Products):
            return ReleasedProducts(view, release.of(Products), space)
        if isinstance(release.strategy, Asked):
            return ReleasedAsked(view, release.of(Asked))
        assert isinstance(space, TableSpace)
        return Released(view, release.of(TableStrategy), space)

    def _space(self, actor: Principal, name: str) -> Space:
        return public_dataset(self._datasets.seen(actor, name)).space


def _too_many(values: int) -> InvalidRequest:
    return InvalidRequest(
        f"{values:,} values are too many for JSON, at most {MOST_SHOWN:,}: ask for Arrow "
        "(Accept: application/vnd.apache.arrow.stream)"
    )


def _sees(actor: Principal, row: EvidenceRow) -> bool:
    return row.shared or actor.role in ("admin", "auditor")


def _view(space: Space, row: EvidenceRow, record: dict[str, Any]) -> dict[str, Any]:
    released = record["measurement"]
    law = read_noise(released["noise"])
    noise = {"kind": law.kind, "scale": float(law.scale)}
    if "edges" in released:
        return _told(row, record, _edges_view(Edges.read(released["edges"])), noise)
    if "degrees" in released:
        degrees = Degrees.read(released["degrees"])
        return _told(row, record, _edges_view(degrees.edges) | {"type": "degrees", "cells": degrees.cells}, noise)
    if "products" in released:
        products = Products.read(released["products"])
        told = _edges_view(products.edges) | {"type": "products", "cells": products.cells, "weight_bits": products.bits}
        return _told(row, record, told, noise)
    if "asked" in released:
        asked = released["asked"]
        return _told(row, record, {"type": "query", "of": asked["query"]["type"], "cells": asked["numbers"]}, noise)
    assert isinstance(space, TableSpace)
    if "marginal" in released:
        told = {"type": "marginal", "attributes": [space.names[a] for a in released["marginal"]["attributes"]]}
    else:
        told = {"type": "parts", "parts": [_part_view(space, part) for part in released["strategy"]]}
    return _told(row, record, told | {"cells": len(released["values"])}, noise)


def _told(row: EvidenceRow, record: dict[str, Any], strategy: dict[str, Any], noise: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": row.sha256,
        "strategy": strategy,
        "noise": noise,
        "cost": record["cost"],
        "recorded_at": record["recorded_at"],
        "by": row.session,
        "shared": row.shared,
    }


def _edges_view(edges: Edges) -> dict[str, Any]:
    """All cells, or those whose sums are degrees: of an undirected graph pairs of nodes, of a directed one no loops."""
    return {"type": "edges", "shape": list(edges.shape), "of": edges.kind, "cells": edges.cells}


def _part_view(space: TableSpace, part: dict[str, Any]) -> dict[str, Any]:
    """One part of what was measured at once: of moments the attribute and the power, of rows how many there are."""
    moment = part["moment"]
    told = {"attributes": [space.names[a] for a in part["marginal"]["attributes"]], "multiplier": part["multiplier"]}
    if part.get("residual"):
        told["residual"] = True
    elif "rows" in part:
        told["rows"] = Rows.read(part["rows"]).count
    return told | ({} if moment is None else {"of": space.names[moment["axis"]], "moment": moment["power"]})
