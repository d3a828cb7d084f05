"""The registration of data sets: a declaration and its file are examined, and all of them is kept or nothing."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from app.audit.log import registration_record
from app.curator.dataset import PublicDataset
from app.declarations.errors import CuratorError, InvalidDataset
from app.declarations.spec import Spec, TableSpec, parse_spec, written
from app.privacy.errors import InvalidBudget
from app.services.datasets import dataset_view, file_names, is_dummy
from app.services.errors import Conflict
from app.services.ports import Clock, DatasetRow, PrivateStore, Store, StoreConflict, Upload
from app.services.principals import Principal
from app.spaces.factory import space_of
from curator_client.proofs.commitment import KEY_BYTES, commitment

logger = structlog.get_logger(__name__)

#: Budgets from which on a guarantee says little: an answer may be e^10 times as likely with a record as without it.
LARGE_EPSILON = 10
#: Data sets that a warning names, at most.
MOST_NAMED = 8


class Registration:
    """Registers data sets."""

    def __init__(self, store: Store, private: PrivateStore, clock: Clock) -> None:
        self._store, self._private, self._clock = store, private, clock

    def register(self, actor: Principal, declared: Any, filename: str, path: Path | None) -> dict[str, Any]:
        """Take a declared data set and its file, or count the source that the declaration names, where ``path`` is
        None; all of it or nothing.

        Returns its descriptor, and beside it ``warnings``, what the registration does not keep from, but who registers
        should know, and the ``report`` of the file. Both may depend on the private numbers and are for him alone:
        nothing keeps or logs them, and no descriptor has them.

        Raises:
            InvalidDataset: naming what to change in the declaration or the file.
            Conflict: when the name was ever in use.
            Unavailable: when the private file cannot be written.
        """
        actor.require("admin")
        spec = parse_spec(declared)
        for refusal in self._refusals(spec, uploaded=path is not None):
            raise refusal
        try:
            row, told = self._keep(spec, filename, path)
        except CuratorError:
            raise
        except Exception:
            # Whether the commit happened is in doubt: the file goes if no row names it.
            self._sweep()
            raise
        return {**dataset_view(row, []), **told}

    def examine(
        self, spec: Spec, filename: str, path: Path
    ) -> tuple[list[CuratorError], list[str], Mapping[str, Any] | None]:
        """Every problem that a registration of this would meet, where it tells the first, and what it would warn of;
        nothing is kept.

        Returns:
            The problems; the warnings; and the report of what would become of the file's records, if it is known.
        """
        problems = [*self._refusals(spec, uploaded=True)]
        try:
            upload = self._private.read_upload(spec, filename, path)
        except CuratorError as error:
            # Of the declaration readers may find what was told already.
            known = any(error.detail == problem.detail for problem in problems)
            return problems if known else [*problems, error], [], None
        # What to warn of is computed from a declaration that holds, whatever its name.
        warnings = self._warnings(upload) if all(isinstance(problem, Conflict) for problem in problems) else []
        return problems, warnings, upload.report

    def _refusals(self, spec: Spec, *, uploaded: bool) -> Iterator[CuratorError]:
        """Why a declaration cannot be registered, whatever its file holds, or its source."""
        named = isinstance(spec, TableSpec) and spec.source is not None
        if named and uploaded:
            yield InvalidDataset("source: the declaration names files, and one was sent: leave out one of the two")
        if not named and not uploaded:
            yield InvalidDataset("data: send a file with the declaration, or name files in a source")
        try:
            PublicDataset(spec).budget  # noqa: B018 - computed, and kept for all that are to come
        except InvalidBudget as error:
            yield InvalidDataset(f"budget: {error}")
        try:
            space_of(spec)
        except CuratorError as error:  # it cannot be addressed
            yield error
        with self._store.read() as tx:
            if tx.dataset(spec.name) is not None:
                yield _in_use(spec.name)

    def _keep(self, spec: Spec, filename: str, path: Path | None) -> tuple[DatasetRow, dict[str, Any]]:
        """Write file and row, the row last; and what to tell who registers."""
        now = self._clock()  # before anything private is looked at
        with self._private.registration():
            if path is not None:
                upload = self._private.read_upload(spec, filename, path)
            else:
                assert isinstance(spec, TableSpec)
                upload = self._private.count_source(spec)
            told = {"warnings": self._warnings(upload), "report": upload.report}
            key = secrets.token_bytes(KEY_BYTES)
            committed = commitment(key, upload.file)
            entry = self._private.put(spec.name, upload, key)
            row = DatasetRow(
                name=spec.name,
                spec=written(upload.spec),
                records=upload.mass if spec.mass_public else None,
                bought={},
                vault_entry=entry,
                created_at=now,
                commitment=committed,
            )
            try:
                with self._store.write() as tx:
                    if tx.dataset(spec.name) is not None:
                        raise _in_use(spec.name)
                    tx.add_dataset(row)
                    tx.add_event(
                        registration_record(
                            declared=row.spec, records=row.records, commitment=committed, recorded_at=now
                        )
                    )
                    tx.commit()
            except (StoreConflict, Conflict):
                self._private.destroy(entry)
                raise _in_use(spec.name) from None
        return row, told

    def _warnings(self, upload: Upload) -> list[str]:
        """Warnings for who registers, one sentence each."""
        found, budget, space = [], upload.spec.budget, space_of(upload.spec)
        with self._store.read() as tx:
            rows = [row for row in tx.datasets() if not is_dummy(row)]
        same = [row.name for row in rows if self._private.alike(upload, row.vault_entry)]
        if same:
            named = ", ".join(same[:MOST_NAMED])
            more = f" and {len(same) - MOST_NAMED} more" if len(same) > MOST_NAMED else ""
            found.append(
                f"the same file, or one of the same numbers, was registered as {named}{more}: for whoever is in "
                "several data sets their epsilons and deltas add up, those of retired ones too"
            )
        report = upload.report
        if report is not None and 2 * report["dropped"] > report["read"]:
            found.append(
                f"{report['dropped']:,} of {report['read']:,} records were dropped: are the declared values those of "
                "the file?"
            )
        if budget.epsilon > LARGE_EPSILON:
            found.append(
                f"epsilon {budget.epsilon} is beyond {LARGE_EPSILON}: it lets an answer be e^{budget.epsilon} times as "
                "likely with somebody's record as without it, which protects hardly anybody"
            )
        # A matrix has as many records as cells; else they are what is counted.
        records = space.size if upload.spec.kind == "matrix" else upload.mass
        if records * float(budget.delta) > 1:
            found.append(
                f"delta {budget.delta} is above one over the number of records: to publish one record whole, chosen at "
                "random, would keep such a guarantee. Declare a delta far below"
            )
        return found

    def _sweep(self) -> None:
        """Remove private files that nobody names, as far as that can be known now; else the next start does it."""
        try:
            self._private.sweep(partial(file_names, self._store))
        except Exception as error:  # noqa: BLE001 - the request has failed already, of something else
            logger.warning("private files could not be swept", error=type(error).__name__)


def _in_use(name: str) -> Conflict:
    return Conflict(f"the name {name!r} is or was in use: names are never reused")
