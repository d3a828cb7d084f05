"""Measurements of data sets: what was ever released of them, for all who may see it.

A measurement that its session does not share serves that session alone; auditors and admins see it all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from app.curator.mechanisms import Measured
from app.evidence.measurements import Measurement
from app.services.datasets import Datasets, public_dataset
from app.services.errors import NotFound
from app.services.pages import Page
from app.services.ports import EvidenceRow, Store
from app.services.principals import Principal
from app.spaces.query import Cells
from app.spaces.table import TableSpace
from app.spaces.values import Label


@dataclass(frozen=True)
class Released:
    """A measurement as it is shown: what is said of it, and the counts with what their cells are called."""

    view: dict[str, Any]
    measurement: Measurement
    names: tuple[str, ...]
    labels: tuple[tuple[Label, ...], ...]

    def document(self) -> dict[str, Any]:
        """As JSON, values row by row."""
        axes = [
            {"attribute": name, "labels": list(labels)} for name, labels in zip(self.names, self.labels, strict=True)
        ]
        values = self.measurement.values.reshape(-1).tolist()
        return self.view | {"axes": axes, "values": values, "standard_error": self.measurement.variance**0.5}


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
        measurement = Measured.read(record).measurement
        marginal = measurement.marginal
        labels = tuple(
            space.values[attribute].labels(Cells(size, None if part is None else part.labels).members)
            for attribute, size, part in zip(marginal.attributes, marginal.sizes, marginal.partitions, strict=True)
        )
        return Released(
            _view(space, row, record), measurement, tuple(space.names[a] for a in marginal.attributes), labels
        )

    def _space(self, actor: Principal, name: str) -> TableSpace:
        space = public_dataset(self._datasets.seen(actor, name)).space
        if not isinstance(space, TableSpace):
            raise NotFound(f"measurements are of tables, and this is a {space.kind}")
        return space


def _sees(actor: Principal, row: EvidenceRow) -> bool:
    return row.shared or actor.role in ("admin", "auditor")


def _view(space: TableSpace, row: EvidenceRow, record: dict[str, Any]) -> dict[str, Any]:
    marginal, noise = record["measurement"]["marginal"], record["measurement"]["noise"]
    return {
        "id": row.sha256,
        "strategy": {
            "type": "marginal",
            "attributes": [space.names[attribute] for attribute in marginal["attributes"]],
            "cells": len(record["measurement"]["values"]),
        },
        "noise": {"kind": noise["kind"], "scale": float(noise["scale"])},
        "cost": record["cost"],
        "recorded_at": record["recorded_at"],
        "by": row.session,
        "shared": row.shared,
    }
