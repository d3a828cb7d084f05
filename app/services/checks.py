"""Checks of a declaration and its file before anything is registered, and drafts of declarations.

Nothing is stored, charged or logged. What is found may tell of private values (a draft does), and is for the admin who
sent the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from app.declarations import drafts, imports
from app.declarations.drafts import Layout
from app.declarations.errors import CuratorError, InvalidDataset, InvalidRequest
from app.declarations.spec import Spec, TableSpec, problems_of
from app.services.ports import PrivateStore
from app.services.principals import Principal
from app.services.registration import Registration

#: Problems that are told.
MOST_PROBLEMS = 100


class Checks:
    """Checks and drafts declarations."""

    def __init__(self, registration: Registration, private: PrivateStore) -> None:
        self._registration, self._private = registration, private

    def check(self, actor: Principal, declared: Any, filename: str, path: Path, table: str | None) -> dict[str, Any]:
        """Check a registration: all that is wrong, and a declaration with what was left out of this one.

        Args:
            actor: who asks, an admin.
            declared: a declaration, parsed JSON, as far as it goes; a document of another format; None for a draft.
            filename: the name of the file, which tells its format.
            path: where the file lies.
            table: which table of a document of several.

        Returns:
            ``spec``, the declaration; ``problems``, each with a ``detail`` and, where known, ``attribute`` and ``row``;
            ``report``, what would become of the records; ``warnings``, as a registration has them; and ``notes``, what
            was left out, or read otherwise than it was written.

        Raises:
            InvalidRequest: when a table is named and there is no document of several.
            InvalidDataset: when there is nothing to check: the declaration is no object, or a draft is to be made of a
                file that cannot be read.
        """
        actor.require("admin")
        document = {} if declared is None else declared
        if not isinstance(document, dict):
            raise InvalidDataset("the spec must be an object: a declaration, or a document of SmartNoise or CSVW")
        foreign = imports.format_of(document)
        if table is not None and foreign is None:
            raise InvalidRequest("table: names a table of a SmartNoise or CSVW document, which the spec is not")
        draft = _Draft(document)
        if foreign is not None or document.get("kind", "table") == "table":
            draft = self._drafted(document, filename, path, table, foreign=foreign is not None)
        spec, problems = problems_of(draft.document)
        found: list[CuratorError] = [*problems]
        if isinstance(spec, TableSpec) and draft.columns is not None:
            spec, absent = _without_absent(spec, draft.columns)
            found += absent
        warnings, report = draft.warnings, None
        if spec is not None:
            more, told, report = self._registration.examine(spec, filename, path)
            found += more
            warnings = warnings + told
        listed = [problem for error in found for problem in _told(error)]
        notes = draft.notes
        if len(listed) > MOST_PROBLEMS:
            notes = [*notes, f"{len(listed):,} problems were found: the first {MOST_PROBLEMS} are told"]
        return {
            "spec": draft.document,
            "problems": listed[:MOST_PROBLEMS],
            "report": report,
            "warnings": warnings,
            "notes": notes,
        }

    def _drafted(
        self, document: dict[str, Any], filename: str, path: Path, table: str | None, *, foreign: bool
    ) -> _Draft:
        """A table's declaration with what it leaves out.

        Raises:
            InvalidDataset: when something must be drafted, and the file cannot be read.
        """
        notes: list[str] = []
        columns, unreadable = None, None
        try:
            columns = self._private.columns(filename, path, Layout.of(document))
        except InvalidDataset as error:
            # A problem like others where nothing has to be drafted: it is met again.
            unreadable = error
        if foreign:
            made = imports.imported(document, table, columns or ())
            document, notes = made.spec, [*made.notes]
        wanted = drafts.to_draft(document, columns)
        if wanted is None:
            raise unreadable or InvalidDataset("a draft is made of a file with named columns: this one has none")
        layout = replace(Layout.of(document), names=tuple(wanted))
        summaries = self._private.summarise(filename, path, layout) if wanted else ()
        made = drafts.completed(document, Path(filename).stem, summaries)
        return _Draft(made.spec, columns, [*notes, *made.notes], [drafts.DRAFTED_WARNING] if wanted else [])


@dataclass(frozen=True, slots=True)
class _Draft:
    """A declaration of some soundness, the columns of its file where they are known, and what to tell of it."""

    document: dict[str, Any] = field(repr=False)
    columns: tuple[str, ...] | None = None
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def _without_absent(spec: TableSpec, columns: Sequence[str]) -> tuple[Spec | None, list[CuratorError]]:
    """A table's declaration without what the file has no column for, and a problem for each such column."""
    absent: list[CuratorError] = [
        InvalidDataset(
            f'the file has no column "{attribute.name}": its first line must name every declared column, spelled alike',
            attribute=attribute.name,
        )
        for attribute in spec.attributes
        if attribute.name not in columns
    ]
    if spec.unit is not None and spec.unit.column not in columns:
        absent.append(InvalidDataset(f'unit: the file has no column "{spec.unit.column}" to tell whose a record is'))
        spec = spec.model_copy(update={"unit": None})
    left = tuple(attribute for attribute in spec.attributes if attribute.name in columns)
    return spec.model_copy(update={"attributes": left}) if left else None, absent


def _told(error: CuratorError) -> list[dict[str, Any]]:
    """A refusal as problems: one that has several is told as these."""
    problems, outside = error.extra.get("problems"), error.extra.get("outside")
    if not isinstance(problems, list):
        places: dict[str, Any] = {
            name: error.extra[name] for name in ("attribute", "row", "line") if name in error.extra
        }
        return [{"detail": error.detail, **places}]
    found = [
        {
            "detail": f"outside of the declaration, expected {problem['expected']}",
            "attribute": problem["attribute"],
            "row": problem["row"],
        }
        for problem in problems
    ]
    for name, count in outside.items() if isinstance(outside, dict) else ():
        if count > sum(problem["attribute"] == name for problem in problems):
            found.append({"detail": f"{count:,} values are outside of the declaration in all", "attribute": name})
    return found
