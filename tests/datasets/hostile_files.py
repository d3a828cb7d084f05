"""Files that cost a reader more than they should: a few kilobytes that become seconds or gigabytes."""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq

JSON = dict[str, Any]

MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
_SHEET = "xl/worksheets/sheet1.xml"
_STRINGS = "xl/sharedStrings.xml"
HEADER = '<row r="1"><c r="A1" t="inlineStr"><is><t>a</t></is></c></row>'


def sheet(rows: str) -> str:
    """A sheet with these rows below a column called a."""
    return f"<worksheet {MAIN}><sheetData>{HEADER}{rows}</sheetData></worksheet>"


def strings(*texts: str) -> str:
    """A table of shared strings."""
    return f"<sst {MAIN}>{''.join(f'<si><t>{text}</t></si>' for text in texts)}</sst>"


def workbook(parts: Mapping[str, str | bytes]) -> bytes:
    """A workbook as openpyxl writes it, with other parts in the place of some."""
    plain = io.BytesIO()
    openpyxl.Workbook().save(plain)
    with zipfile.ZipFile(plain) as source:
        members: dict[str, str | bytes] = {name: source.read(name) for name in source.namelist()}
    if _STRINGS in parts:
        members["[Content_Types].xml"] = members["[Content_Types].xml"].replace(  # type: ignore[arg-type,type-var]
            b"</Types>",
            b'<Override PartName="/xl/sharedStrings.xml" ContentType="application/vnd.openxmlformats-officedocument.'
            b'spreadsheetml.sharedStrings+xml"/></Types>',
        )
        members["xl/_rels/workbook.xml.rels"] = members["xl/_rels/workbook.xml.rels"].replace(  # type: ignore[arg-type,type-var]
            b"</Relationships>",
            b'<Relationship Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/sharedStrings" '
            b'Target="/xl/sharedStrings.xml" Id="rId99"/></Relationships>',
        )
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in {**members, **parts}.items():
            target.writestr(name, content)
    return sink.getvalue()


def entities(part: str, content: str) -> bytes:
    """A workbook of which one part has entities that become a billion letters."""
    lines = ['<!ENTITY e0 "zebra-quux">', *(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 9))]
    text = content.replace("<t>", "<t>&e8;", 1) if "<t>" in content else content.replace("</", "&e8;</", 1)
    return workbook({part: f"<!DOCTYPE x [{''.join(lines)}]>{text}"})


def understated(content: bytes) -> bytes:
    """An archive in which every member is said to be ten bytes large."""
    damaged = bytearray(content)
    for found in re.finditer(rb"PK\x01\x02", content):
        struct.pack_into("<I", damaged, found.start() + 24, 10)
    return bytes(damaged)


def parquet(table: pa.Table, **how: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **how)
    return sink.getvalue()


def runs(rows: int) -> bytes:
    """A column of one number over and over, a few bytes a million rows."""
    sink = io.BytesIO()
    part = pa.table({"a": pa.array(np.zeros(1 << 20, np.int8))})
    with pq.ParquetWriter(sink, part.schema, compression="zstd") as writer:
        for _ in range(rows >> 20):
            writer.write_table(part)
    return sink.getvalue()


def one_long_text(rows: int, size: int) -> bytes:
    """A Parquet file in which one text stands in each row, and in the file once."""
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * size]))
    return parquet(pa.table({"a": texts}), compression="zstd")


def npy(header: str, data: bytes = b"") -> bytes:
    """A .npy file with this for a header."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def npz(content: bytes, times: int = 1) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(times):
            archive.writestr(f"a{number}.npy", content)
    return sink.getvalue()


def gzipped(size: int) -> bytes:
    """So many zeros, packed."""
    packer = zlib.compressobj(9, wbits=31)
    parts = [packer.compress(bytes(1 << 20)) for _ in range(size >> 20)]
    return b"".join([*parts, packer.flush()])
