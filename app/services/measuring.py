"""Measurements, made and recorded: exact values, noise drawn for each alone, their sum."""

from __future__ import annotations

from collections.abc import Sequence

from app.audit import writing
from app.curator.mechanisms.protocol import Measured
from app.curator.opening import Opening
from app.measurements.record import Measurement, Purchase
from app.measurements.strategy import Strategy, exact_values
from app.services.ports import EvidenceRow, NoisePort
from app.spaces.counts import ExactCounts
from app.spaces.space import Space
from curator_client.proofs import records

#: What is shared costs at least one part of so many of the data set's budget.
SHARED_FROM = 10**6


def evidence_row(
    opening: Opening, dataset: str, session: str, sequence: int, measured: Measured, recorded_at: str
) -> EvidenceRow:
    """The record of a measurement that was made for an entry of a session, 0 for its opening.

    It serves others where its session shares, and where it costs a millionth of the data set's budget or more: a
    cheaper one tells as little, and there could be any number of them, which each later session would read.
    """
    document = measured.document()
    line = writing.measurement_record(session=session, sequence=sequence, measured=document, recorded_at=recorded_at)
    shared = opening.request.share and measured.price.renyi * SHARED_FROM >= opening.dataset.budget.total
    return EvidenceRow(dataset, session, sequence, records.sha256(line), shared, line)


def measured_all(
    noise: NoisePort, space: Space, data: ExactCounts, due: Sequence[Purchase[Strategy]]
) -> list[Measured]:
    """The due measurements, made."""
    exact = exact_values([buy.strategy for buy in due], space, data)
    made = []
    for buy, values in zip(due, exact, strict=True):
        units = buy.strategy.released(values, buy.noise, noise)
        made.append(Measured(Measurement(buy.strategy, buy.noise, units), buy.price))
    return made
