"""Measurements of data sets: what was ever released of them, for all who may see it.

A measurement that its session does not share serves that session alone; auditors and admins see it all the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from app.curator.mechanisms.protocol import Measured
from app.declarations.errors import InvalidRequest
from app.measurements.noise import BitFlips, read_noise
from app.measurements.pieces import Combination, Contrast, Piece, pieces_of
from app.measurements.record import Measurement, read_strategy
from app.measurements.strategies.degrees import Degrees
from app.measurements.strategies.edges import Edges
from app.measurements.strategies.tables import Draws, Moment, TableStrategy
from app.measurements.strategy import Strategy
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
class Released:
    """A measurement as it is shown: what is said of it, its values, and what they are of."""

    view: dict[str, Any]
    release: Measurement[Strategy]
    space: Space

    def document(self) -> dict[str, Any]:
        """As JSON: unbiased values in the order of the strategy, and what is shown beside them. Of a table they stand
        row by row with what their cells are called, part by part where there is more than the counts of one marginal.

        Raises:
            InvalidRequest: when they are too many.
        """
        strategy, units = self.release.strategy, self.release.units
        if isinstance(strategy, TableStrategy):
            parts = [self._part(moment, piece) for moment, piece in pieces_of(self.release.of(TableStrategy))]
            return self.view | ({"parts": parts} if strategy.plain is None else parts[0])
        if strategy.longest > MOST_SHOWN:
            raise InvalidRequest(
                f"{strategy.longest:,} values are too many for JSON, at most {MOST_SHOWN:,}: ask for Arrow "
                "(Accept: application/vnd.apache.arrow.stream)"
            )
        told = {"values": self.release.values.tolist(), "standard_error": self.release.variance**0.5}
        bits = {"bits": units.tolist()} if isinstance(self.release.noise, BitFlips) else {}
        return self.view | told | bits | strategy.beside()

    def table(self) -> pa.Table:
        """A row a value, of what is no table; what else is said of it is not among the columns."""
        release, strategy = self.release, self.release.strategy
        if isinstance(strategy, Edges):
            bits = release.units if isinstance(release.noise, BitFlips) else None
            return edge_table(self.space, strategy, release.values, bits)
        if isinstance(strategy, Degrees):
            return degree_table(self.space, strategy, release.values)
        return pa.table({"value": release.values})

    def _part(self, moment: Moment | None, piece: Piece) -> dict[str, Any]:
        space, marginal, variance = self.space, piece.marginal, piece.variance
        assert isinstance(space, TableSpace)
        told: dict[str, Any] = {
            "axes": [
                {
                    "attribute": space.names[attribute],
                    "labels": list(space.values[attribute].labels(marginal.partition(k).listed())),
                }
                for k, attribute in enumerate(marginal.attributes)
            ],
            "values": piece.values.reshape(-1).tolist(),
        }
        if isinstance(piece, Contrast):
            # What is shown sums to zero along each axis, and so does its noise.
            variance *= math.prod(1 - 1 / n for n in marginal.shape)
        told["standard_error"] = variance**0.5
        if isinstance(piece, Contrast):
            told["residual"] = True
        elif isinstance(piece, Combination):
            # A value for each row: the axes are those of its weights.
            told["rows"] = piece.rows.document()
        elif piece.draws is not None:
            told["drawn"] = _drawn(space, piece.draws)
        return told if moment is None else told | moment.describe(space)


def _drawn(space: TableSpace, draws: Draws) -> dict[str, Any]:
    """The quantiles that ranges are cut around: numbers group by group, and for each group one a level."""
    named, places = space.values[draws.axis].labels, draws.places.reshape(-1).tolist()
    values = [named([np.array([place])])[0] if place >= 0 else None for place in places]
    return {"of": space.names[draws.axis], "q": list(draws.levels), "scale": draws.scale, "values": values}


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

    def count(self, actor: Principal, name: str) -> int:
        """How many measurements of a data set the actor may see.

        Raises:
            NotFound: when there is no such data set.
            Forbidden: when access is by grant, and the actor has none.
        """
        self._datasets.seen(actor, name)
        with self._store.read() as tx:
            return tx.count_evidence(name, shared=not _sees_all(actor))

    def get(self, actor: Principal, name: str, id: str) -> Released:
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
        return Released(_view(space, row, record), Measured.read(record).measurement, space)

    def _space(self, actor: Principal, name: str) -> Space:
        return public_dataset(self._datasets.seen(actor, name)).space


def _sees_all(actor: Principal) -> bool:
    return actor.role in ("admin", "auditor")


def _sees(actor: Principal, row: EvidenceRow) -> bool:
    return row.shared or _sees_all(actor)


def _view(space: Space, row: EvidenceRow, record: dict[str, Any]) -> dict[str, Any]:
    released = record["measurement"]
    noise = read_noise(released["noise"])
    return {
        "id": row.sha256,
        "strategy": read_strategy(released).describe(space),
        "noise": {"kind": noise.kind, "scale": float(noise.scale)},
        "cost": record["cost"],
        "recorded_at": record["recorded_at"],
        "by": row.session,
        "shared": row.shared,
    }
