# Made of _async/datasets.py by make_sync.py: change that.

"""Data sets as a caller sees them: their public facts, what was measured of them, and records made up from them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from curator_client._sync.session import Session
from curator_client._sync.waiting import opening
from curator_client.answers import Table
from curator_client.calls import MOST_DATA, Call
from curator_client.measured import table_of
from curator_client.mechanisms import Mechanism
from curator_client.models import JSON, Described, Report, need
from curator_client.requests import ARROW, CSV, PARQUET, Amount, segment
from curator_client.tables import frame

if TYPE_CHECKING:
    import pandas

    from curator_client._sync.service import Service


@dataclass(frozen=True)
class Measurement:
    """Noisy values that somebody paid for, and that are public since: ``by`` is the session. ``raw`` is all that is
    said of it, without the values.
    """

    id: str
    recorded_at: str
    by: str
    raw: JSON = field(repr=False)
    _service: Service = field(repr=False, compare=False)
    _path: str = field(repr=False, compare=False)

    def values(self) -> JSON:
        """All that is said of it, with the values."""
        return dict(self._service.transport.json(Call("GET", f"{self._path}/{segment(self.id)}")))

    def table(self) -> Table:
        """The counts that were measured, not clipped, as a table.

        Raises:
            ValueError: when it is of something else than the counts of one table: :meth:`values` has it.
        """
        return table_of(self.values())


@dataclass(frozen=True)
class Dataset(Described):
    """A data set."""

    _service: Service = field(repr=False, compare=False)

    @property
    def _path(self) -> str:
        return f"/v1/datasets/{segment(self.name)}"

    def session(
        self,
        *,
        epsilon: Amount,
        max_queries: int | None = None,
        mechanism: Mechanism = "auto",
        dummy: bool = False,
        **options: Any,
    ) -> Session:
        """Open a session on it. Arguments as for :meth:`Curator.session`."""
        told = {"dummy": dummy or None, **options}
        return opening(self._service.open(self.name, epsilon, max_queries, mechanism, told))

    def measurements(self) -> list[Measurement]:
        """All that was measured of it in the order of recording."""
        path = f"{self._path}/measurements"
        return [
            Measurement(
                str(need(item, "id")), str(need(item, "recorded_at")), str(need(item, "by")), item, self._service, path
            )
            for item in self._service.items(path)
        ]

    def dummy(self, records: int = 1000, *, seed: int = 0) -> pandas.DataFrame:
        """Made-up records, drawn from the declaration alone: the same for the same seed. Needs the extras ``pandas``
        and ``arrow``."""
        return frame(self._dummy(records, seed, ARROW))

    def save_dummy(self, path: Path | str, records: int = 1000, *, seed: int = 0) -> Path:
        """Write made-up records to ``path`` as CSV (Parquet or ``.arrow`` by the ending)."""
        target = Path(path)
        accept = {".parquet": PARQUET, ".arrow": ARROW}.get(target.suffix, CSV)
        target.write_bytes(self._dummy(records, seed, accept))
        return target

    def _dummy(self, records: int, seed: int, accept: str) -> bytes:
        path = f"{self._path}/dummy?{urlencode({'records': records, 'seed': seed})}"
        call = Call("GET", path, {"Accept": accept}, most=MOST_DATA)
        return (self._service.transport.send(call)).content


@dataclass(frozen=True)
class Registered:
    """A data set that was registered just now: what is to be known of its declaration, and what became of the records
    of its file, None where it is no table. Both are told once.
    """

    dataset: Dataset
    warnings: tuple[str, ...]
    report: Report | None = field(repr=False)
