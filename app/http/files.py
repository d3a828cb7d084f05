"""Files that are sent: what came of a release, and transcripts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import orjson
import pyarrow as pa

from app.http.context import Context
from app.http.exports import ExportResponse, PagedLines, complete_reply
from app.http.fair_queue import CostlyWork
from app.http.headers import ARROW, CSV, PARQUET, XLSX
from app.services.dummy_records import encoded
from app.services.errors import NotFound
from app.services.exports import Export
from app.services.principals import Principal
from app.services.publications import one, workbook
from app.services.services import Services

#: Media types of what came of a release; the first is sent where any will do. Manifests are JSON alone.
FORMATS: dict[str, Callable[[pa.Table], bytes]] = {
    ARROW: partial(encoded, form="arrow"),
    CSV: partial(encoded, form="csv"),
    PARQUET: partial(encoded, form="parquet"),
    XLSX: workbook,
}
#: Bytes of memory that a byte of a kept file takes while it is written in another format: numbers are longer as text.
CONVERTED = 8


def release_file(
    services: Services, actor: Principal, id: str, part: str | None, media_type: str, export: Export, work: CostlyWork
) -> ExportResponse:
    """A part of what came of a release, in a format.

    Raises:
        NotFound: when there is no such release that the actor sees, or no such part of it.
        InvalidRequest: when there is no part of that name.
        ReleaseEnded, ReleaseFailed, ReleaseTooLong, Conflict: when nothing came of it, or not yet.
    """
    name, data, number = services.releases.data(actor, id, part)
    if name == "manifest":
        export.write(data)
        return complete_reply(export, {}, media_type)
    work.idle += export.reserve_memory(CONVERTED * len(data), work.check)
    table = pa.ipc.open_file(pa.BufferReader(data)).read_all()
    if number is not None:
        table = one(table, number)
        if not len(table):
            raise NotFound(f"the release has no table {number}")
    if name == "tables" and number is None and media_type == XLSX:
        _, told, _ = services.releases.data(actor, id, "manifest")
        export.write(workbook(table, orjson.loads(told)))
    else:
        export.write(FORMATS[media_type](table))
    export.release_memory()
    return complete_reply(export, {}, media_type)


def transcript(context: Context, actor: Principal, id: str, export: Export) -> ExportResponse:
    """A session's transcript, a page at a time.

    Raises:
        NotFound: when there is none that the actor sees.
    """
    pages = PagedLines(export, context.services.transcripts.lines(actor, id))
    pages.write_page()
    return ExportResponse(export, pages.sent(context.pages), {}, "application/x-ndjson")
