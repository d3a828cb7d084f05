"""Entries of transcripts, and the dense weights that they name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from sqlalchemy import func, select

from app.services.ports import EntryKind, EntryRow, KnownEntries, WeightsRow
from app.storage import tables as t
from app.storage.transaction import PAGE_ROWS, BaseTransaction, fitting, typed_rows

e, w = t.entries.c, t.weights.c

_KIND_NUMBER: dict[EntryKind, int] = {
    "hypothesis": t.HYPOTHESIS,
    "measurement": t.MEASUREMENT,
    "cached": t.CACHED,
    "unverified": t.UNVERIFIED,
    "forfeit": t.FORFEIT,
    "release": t.RELEASE,
}


@lru_cache(maxsize=256)
def _find_latest(count: int, mark: str) -> str:
    """Entries of ``count`` sessions, each named with the numbers it begins after and ends with."""
    names = typed_rows(("TEXT", "BIGINT", "BIGINT"), count, mark)
    return (
        f"WITH n (session, after, last) AS (VALUES ({names})) "  # noqa: S608
        "SELECT e.session, e.sequence, e.kind, e.digest, e.units, e.error_bound, "
        f"CASE WHEN e.kind = {t.MEASUREMENT} OR e.sequence = n.last THEN e.line END "
        f"FROM n CROSS JOIN {t.entries.name} e "
        "WHERE e.session = n.session AND e.sequence > n.after AND e.sequence <= n.last ORDER BY e.session, e.sequence"
    )


class Entries(BaseTransaction):
    """What was asked and answered."""

    def append(self, entries: Sequence[EntryRow], weights: Sequence[WeightsRow]) -> None:
        """Append transcript entries and the dense weights they name. Raises StoreConflict for a number in use."""
        self._add_rows(WeightsRow, weights)
        self.add_all(
            t.entries,
            EntryRow.__slots__,
            [
                (row.session, row.sequence, _KIND_NUMBER[row.kind], row.digest, row.units, row.error_bound, row.line)
                for row in entries
            ],
        )

    def known_entries(self, session: str, after: int) -> KnownEntries:
        """The facts that a session must know of its entries beyond ``after``; lines only of those that move the
        hypothesis.
        """
        beyond = (e.session == session, e.sequence > after)
        answers = self.connection.execute(
            select(e.digest, e.units, e.error_bound)
            .where(*beyond, e.kind.in_((t.HYPOTHESIS, t.MEASUREMENT)))
            .order_by(e.sequence)
        )
        measurements = self.connection.execute(
            select(e.units, e.line).where(*beyond, e.kind == t.MEASUREMENT).order_by(e.sequence)
        )
        counted = self.connection.execute(
            select(e.kind, func.count())
            .where(*beyond, e.kind.in_((t.CACHED, t.UNVERIFIED, t.FORFEIT)))
            .group_by(e.kind)
        )
        counts = {kind: int(number) for kind, number in counted}
        return KnownEntries(
            [tuple(row) for row in answers],
            [tuple(row) for row in measurements],
            cached=counts.get(t.CACHED, 0),
            unverified=counts.get(t.UNVERIFIED, 0),
            forfeits=counts.get(t.FORFEIT, 0),
        )

    def latest_entries(self, spans: Mapping[str, tuple[int, int]]) -> dict[str, tuple[KnownEntries, bytes]]:
        """Of several sessions what each must know of its entries beyond the first number up to the second one, and the
        line of that last one. All in one statement, for those that are a few entries behind.
        """
        if not spans:
            return {}
        values = [value for id, (after, last) in spans.items() for value in (id, after, last)]
        rows = self.found(_find_latest(len(spans), self._mark), values)
        known = {id: KnownEntries([], []) for id in spans}
        lines: dict[str, bytes] = {}
        for session, sequence, kind, digest, units, error_bound, line in rows:
            entries = known[session]
            match kind:
                case t.HYPOTHESIS | t.MEASUREMENT:
                    entries.answers.append((digest, units, error_bound))
                    if kind == t.MEASUREMENT:
                        entries.measurements.append((units, line))
                case t.FORFEIT:
                    entries.forfeits += 1
                case t.UNVERIFIED:
                    entries.unverified += 1
                case _:
                    entries.cached += 1
            if sequence == spans[session][1]:
                lines[session] = line
        return {id: (entries, lines[id]) for id, entries in known.items()}

    def entry_lines(self, session: str, after: int, most: int) -> list[tuple[int, bytes]]:
        """Up to ``most`` (sequence, line) beyond ``after`` in order."""
        rows = self.connection.execute(
            select(e.sequence, e.line).where(e.session == session, e.sequence > after).order_by(e.sequence).limit(most)
        )
        return [(row.sequence, row.line) for row in rows]

    def blobs(self, session: str, names: Iterable[str]) -> dict[str, bytes]:
        """Dense weights of a session by their SHA-256."""
        rows = self.connection.execute(select(w.sha256, w.data).where(w.session == session, w.sha256.in_(list(names))))
        return {row.sha256: row.data for row in rows}

    def count_entries(self, session: str, after: int, last: int) -> Mapping[EntryKind, int]:
        """How many entries of each kind there are beyond ``after`` up to ``last``."""
        counted = self.connection.execute(
            select(e.kind, func.count())
            .where(e.session == session, e.sequence > after, e.sequence <= last)
            .group_by(e.kind)
        )
        numbers = {kind: int(count) for kind, count in counted}
        return {kind: numbers.get(number, 0) for kind, number in _KIND_NUMBER.items()}

    def measurements(self, session: str, after: int, last: int) -> list[tuple[int, bytes, bytes]]:
        """Sequence, values and line of the first measurements beyond ``after`` up to ``last``, in order: a few, or one
        where it is long; none where there is none.
        """
        which = (e.session == session, e.sequence > after, e.sequence <= last, e.kind == t.MEASUREMENT)
        found = select(e.sequence, func.length(e.line)).where(*which).order_by(e.sequence).limit(PAGE_ROWS)
        numbers = fitting(tuple(row) for row in self.connection.execute(found))
        if not numbers:
            return []
        rows = self.connection.execute(
            select(e.sequence, e.units, e.line).where(*which, e.sequence <= numbers[-1]).order_by(e.sequence)
        )
        return [tuple(row) for row in rows]

    def transcript_page(self, session: str, after: int, last: int) -> list[tuple[int, bytes, list[tuple[str, bytes]]]]:
        """Sequence and line of the first entries beyond ``after`` up to ``last``, in order, each with the dense weights
        that it is the first to name: SHA-256 and bytes. Some hundred entries, or one where it is long; none where there
        is none.
        """
        within = (e.session == session, e.sequence > after, e.sequence <= last)
        found = select(e.sequence, func.length(e.line)).where(*within).order_by(e.sequence).limit(PAGE_ROWS)
        sizes = {row[0]: row[1] for row in self.connection.execute(found)}
        if not sizes:
            return []
        of_these = (w.session == session, w.sequence > after, w.sequence <= max(sizes))
        for sequence, size in self.connection.execute(select(w.sequence, func.length(w.data)).where(*of_these)):
            sizes[sequence] += size
        numbers = fitting(sizes.items())
        weights: dict[int, list[tuple[str, bytes]]] = {}
        for row in self.connection.execute(
            select(w.sequence, w.sha256, w.data)
            .where(*of_these, w.sequence <= numbers[-1])
            .order_by(w.sequence, w.sha256)
        ):
            weights.setdefault(row.sequence, []).append((row.sha256, row.data))
        rows = self.connection.execute(
            select(e.sequence, e.line).where(*within, e.sequence <= numbers[-1]).order_by(e.sequence)
        )
        return [(row.sequence, row.line, weights.get(row.sequence, [])) for row in rows]
